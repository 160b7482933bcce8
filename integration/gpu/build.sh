#!/usr/bin/env bash
# Makes a folder that runs all GPU checks on a Linux machine with a GPU, Python 3 and no Rust.
#
#   integration/gpu/build.sh [FOLDER] [--photos DIR] [--limit-mib N] [--no-nvjpeg]
#
# FOLDER        default target/gpu-kit; what this script put there before is replaced
# --photos DIR  class folders of JPEGs to take along, as many as the limit leaves room for
# --limit-mib N size of the folder at most, default 62
# --no-nvjpeg   leave NVIDIA's library out: the GPU's machine has one
#
# There: python3 FOLDER/run.py --out RESULTS (see README.md).
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=target/gpu-kit photos="" limit=62 nvjpeg=yes
while (($#)); do
    case $1 in
        --photos | --limit-mib)
            [[ $# -ge 2 ]] || { echo "$1 needs a value" >&2; exit 2; }
            if [[ $1 == --photos ]]; then photos=$2; else limit=$2; fi
            shift 2
            ;;
        --no-nvjpeg) nvjpeg=no; shift ;;
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "unknown option $1" >&2; exit 2 ;;
        *) folder=$1; shift ;;
    esac
done
[[ -z $photos || -d $photos ]] || { echo "$photos is no folder" >&2; exit 2; }
if [[ -e $folder && ! -e $folder/kit.json && -n $(ls -A "$folder" 2> /dev/null) ]]; then
    echo "$folder holds something else than a kit; name a new or empty folder" >&2
    exit 2
fi

step() { printf '\n== %s\n' "$*"; }

step "build (minutes, the first time)"
messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
# Not `cargo bench`: with its own profile everything would be built once more.
examples=$(python3 integration/gpu/pack.py examples)
# shellcheck disable=SC2086 # several words
cargo test --locked --profile kit --no-run --message-format=json \
    --lib --test integration --bench gpu $examples > "$messages"

step "library"
mkdir -p "$folder"
rm -f "$folder"/*.py "$folder"/kit.json "$folder"/binaries.tar.xz "$folder"/photos.tar
if [[ $nvjpeg == no ]]; then
    rm -f "$folder/libnvjpeg.so.13"
elif [[ ! -s $folder/libnvjpeg.so.13 ]]; then
    wheel=$(mktemp -d)
    trap 'rm -rf "$messages" "$wheel"' EXIT
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 \
        --dest "$wheel" nvidia-nvjpeg==13.0.0.40 \
        && python3 integration/gpu/pack.py library "$wheel" "$folder/libnvjpeg.so.13"; then
        echo "nvidia-nvjpeg 13.0.0.40"
    else
        echo "NOTE: libnvjpeg.so.13 could not be had (pip download nvidia-nvjpeg==13.0.0.40); infeed will look for one there"
    fi
fi

step "scripts"
cp integration/gpu/{run,peer_torchvision,peer_dali,step_torch}.py integration/gpu/README.md "$folder"/

step "pack"
python3 integration/gpu/pack.py kit "$messages" "$folder" --limit-mib "$limit" ${photos:+--photos "$photos"}
