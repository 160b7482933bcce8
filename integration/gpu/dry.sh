#!/usr/bin/env bash
# The whole GPU kit on the mock GPU of the tests, with peers that are fakes: every part must run to its end and measure what
# it should, so that a day with a GPU is not lost to a typo. The figures mean nothing.
#
#   integration/gpu/dry.sh [OUT]     reports go to OUT/first and OUT/second; default target/gpu-dry
#
# What `cargo test` has built is used; the bench is built beside it. Without Python or a C++ compiler it says so and ends well.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
out=${1:-target/gpu-dry}

if ! command -v python3 > /dev/null; then
    echo "skipped: the GPU kit's dry run needs python3"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

# Those that are not run below too.
python3 -c 'import sys; [compile(open(path).read(), path, "exec") for path in sys.argv[1:]]' integration/gpu/*.py

# The same features as the tests have: nothing is built twice.
cargo test --locked --features parquet,otel,nvtx,jxl,hdf5,zarr,dicom --no-run --message-format=json --lib --test integration --bench gpu > "$work/messages"
integration=$(python3 integration/gpu/pack.py path "$work/messages" integration)
mock=$("$integration" kit::where_the_mock_gpu_is --exact --include-ignored --nocapture --quiet | sed -n 's/^mock //p')
if [[ -z $mock ]]; then
    echo "skipped: the GPU kit's dry run needs a C++ compiler for the mock GPU"
    exit 0
fi
while IFS='=' read -r name value; do
    [[ $name == INFEED_NVJPEG ]] && library=$value || export "$name=$value"
done <<< "$mock"
python3 integration/gpu/pack.py dry "$work/messages" "$work/kit" "$(dirname "$library")"
cp integration/gpu/*.py "$work/kit"

# The mock's nvJPEG has no decoder in programs that give it none: it makes gray.
export INFEED_MOCK_PIXELS=100 PYTHONPATH=$root/integration/gpu/fakes
mkdir -p "$out"
for day in first second; do
    if ! python3 "$work/kit/run.py" --day "$day" --minutes 4 --strict --out "$out/$day" > "$out/$day.txt" 2>&1; then
        cat "$out/$day.txt"
        echo "the GPU kit fails on the mock GPU: see $out/$day/log.txt"
        exit 1
    fi
    grep -h "^- checks" "$out/$day.txt" | sed "s/^-/the $day day:/"
done
