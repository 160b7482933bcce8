#!/usr/bin/env bash
# The whole GPU kit on the mock GPU of the tests, with peers that are fakes: every part must run to its end and measure what
# it should, so that a day with a GPU is not lost to a typo. The figures mean nothing.
#
#   integration/gpu/dry.sh [OUT] [--both] [--packed KIT]
#
# OUT           reports go to OUT/first and OUT/second; default target/gpu-dry
# --both        the second day too
# --packed KIT  the folder that build.sh made, both days, from its archives; otherwise what `cargo test` has built is used
#
# The parts in Python use the environment that python/check.sh made, and are left out without it. Without Python or a C++ compiler
# it says so and ends well.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

out=target/gpu-dry packed="" days=first
while (($#)); do
    case $1 in
        --both) days="first second"; shift ;;
        --packed) packed=$(realpath "$2") days="first second"; shift 2 ;;
        -*) echo "unknown option $1" >&2; exit 2 ;;
        *) out=$1; shift ;;
    esac
done
if ! command -v python3 > /dev/null; then
    echo "skipped: the GPU kit's dry run needs python3"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

# Those that are not run below too.
python3 -c 'import sys; [compile(open(path).read(), path, "exec") for path in sys.argv[1:]]' integration/gpu/*.py

python=$root/target/python/venv/bin/python
if [[ -x $python ]] && "$python" -c 'import numpy' && { [[ -n $packed ]] || "$python" -c 'import infeed'; }; then
    only=()
else
    python=python3 only=(--only "tests,photos,torchvision,engines,nvimgcodec,thousand,kernels,recipes,newer,sanitizer,others,memory,more,dali")
    echo "the kit's parts in Python are left out: python/check.sh makes the environment for them"
fi
if [[ -n $packed ]]; then
    kit=$packed
    "$python" -c 'import sys; sys.path.insert(0, sys.argv[1]); from kit import unpack; unpack(sys.argv[1] + "/binaries.tar.xz", sys.argv[2])' "$kit" "$work/bin"
    integration=$work/bin/integration
else
    kit=$work/kit
    # As the tests are built, nothing twice; with `cli` comes the binary.
    cargo test --locked --no-run --message-format=json --test cli --test integration --bench gpu > "$work/messages"
    integration=$(python3 integration/gpu/pack.py path "$work/messages" integration)
fi
mock=$("$integration" kit::where_the_mock_gpu_is --exact --include-ignored --nocapture --quiet | sed -n 's/^mock //p')
if [[ -z $mock ]]; then
    echo "skipped: the GPU kit's dry run needs a C++ compiler for the mock GPU"
    exit 0
fi
while IFS='=' read -r name value; do
    [[ $name == INFEED_NVJPEG ]] && library=$value || export "$name=$value"
done <<< "$mock"
if [[ -z $packed ]]; then
    python3 integration/gpu/pack.py dry "$work/messages" "$kit" "$(dirname "$library")"
    cp integration/gpu/*.py "$kit"
    nvjpeg=()
else
    # The kit's own need a GPU.
    nvjpeg=(--nvjpeg "$library")
fi

# The mock's nvJPEG has no decoder in programs that give it none: it makes gray.
export INFEED_MOCK_PIXELS=100 PYTHONPATH=$root/integration/gpu/fakes
mkdir -p "$out"
for day in $days; do
    if ! "$python" "$kit/run.py" --day "$day" "${nvjpeg[@]}" "${only[@]}" --strict --out "$out/$day" > "$out/$day.txt" 2>&1; then
        cat "$out/$day.txt"
        echo "the GPU kit fails on the mock GPU: see $out/$day/log.txt"
        exit 1
    fi
    grep -h "^- checks" "$out/$day.txt" | sed "s/^-/the $day day:/"
done
