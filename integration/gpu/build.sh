#!/usr/bin/env bash
# Makes a folder that runs all GPU checks on a Linux machine with a GPU, Python 3 and no Rust.
#
#   integration/gpu/build.sh [FOLDER] [--photos DIR] [--count N] [--peers PYTHON] [--no-nvjpeg]
#
# FOLDER          default target/gpu-kit; what this script put there before is replaced
# --photos DIR    class folders of JPEGs to take along; without it pictures are made there
# --count N       so many of them, evenly spread, default 100: they are repeated there
# --peers PYTHON  take along nvImageCodec for that Python (as 3.12) with PyTorch for CUDA 13
# --no-nvjpeg     leave NVIDIA's library out: the GPU's machine has one
#
# At most 50 MiB, and 62 with the repository's own files. There: python3 FOLDER/run.py --day first --out RESULTS (see README.md).
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=target/gpu-kit photos="" count=100 peers="" nvjpeg=yes
while (($#)); do
    case $1 in
        --photos | --count | --peers)
            [[ $# -ge 2 ]] || { echo "$1 needs a value" >&2; exit 2; }
            case $1 in
                --photos) photos=$2 ;;
                --count) count=$2 ;;
                --peers) peers=$2 ;;
            esac
            shift 2
            ;;
        --no-nvjpeg) nvjpeg=no; shift ;;
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "unknown option $1" >&2; exit 2 ;;
        *) folder=$1; shift ;;
    esac
done
[[ -z $photos || -d $photos ]] || { echo "$photos is no folder" >&2; exit 2; }
[[ -z $peers || $peers =~ ^3\.[0-9]+$ ]] || { echo "--peers takes a version of Python, as 3.12" >&2; exit 2; }
if [[ -e $folder && ! -e $folder/kit.json && -n $(ls -A "$folder" 2> /dev/null) ]]; then
    echo "$folder holds something else than a kit; name a new or empty folder" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { printf '\n== %s\n' "$*"; }

# Wheels for Linux on x86-64, whatever this machine is.
wheels() {
    local to=$1 python=$2
    shift 2
    local platforms=()
    for platform in manylinux_2_{34,31,28,27,17}_x86_64 manylinux2014_x86_64; do
        platforms+=(--platform "$platform")
    done
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --python-version "$python" --implementation cp "${platforms[@]}" --dest "$to" "$@"
}

step "build (minutes, the first time)"
# One call, so that the crate is compiled once for all of them. What makes a module for Python of a library is said as maturin
# says it.
PYO3_BUILD_EXTENSION_MODULE=1 cargo build --locked --profile kit --message-format=json \
    -p infeed-cli --bin infeed -p infeed-integration --test integration -p infeed-benches --bench gpu -p infeed-python --lib > "$work/messages"

step "libraries of others"
mkdir -p "$folder"
rm -f "$folder"/*.py "$folder"/kit.json "$folder"/*.tar.xz "$folder"/photos.tar
if [[ $nvjpeg == yes ]]; then
    # Two: the first day's, which PyTorch for CUDA 13 has too, and the newest for the second.
    mkdir "$work/old" "$work/new"
    if ! { wheels "$work/old" 3.12 nvidia-nvjpeg==13.0.0.40 && wheels "$work/new" 3.12 nvidia-nvjpeg==13.3.2.43 \
        && mv "$work/old"/* "$work/new" && python3 integration/gpu/pack.py nvjpeg "$work/new" "$folder/nvjpeg.tar.xz"; }; then
        rm -f "$folder/nvjpeg.tar.xz"
        echo "NOTE: nvJPEG could not be had (pip download nvidia-nvjpeg); infeed will look for one there"
    fi
fi
if [[ -n $peers ]]; then
    mkdir "$work/peers"
    if ! { wheels "$work/peers" "$peers" nvidia-nvimgcodec-cu13==0.9.0.20 \
        && python3 integration/gpu/pack.py peers "$work/peers" "$folder/peers.tar.xz" --python "$peers"; }; then
        rm -f "$folder/peers.tar.xz"
        echo "NOTE: the peers could not be had (pip download nvidia-nvimgcodec-cu13); those that are installed there are measured"
    fi
fi

step "scripts"
cp integration/gpu/{run,kit,report,wheel,peers,peer_torchvision,peer_nvimgcodec,peer_dali}.py integration/gpu/README.md "$folder"/

step "pack"
python3 integration/gpu/pack.py kit "$work/messages" "$folder" --count "$count" ${photos:+--photos "$photos"}
