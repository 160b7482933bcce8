#!/usr/bin/env bash
# Builds the published wheels of one platform.
#
#   python/wheels.sh [FOLDER] [--target TRIPLE] [--profile NAME]
#
# FOLDER     the folder for the wheels, default target/wheels; wheels of the same names are replaced
# --target   another platform than this machine's, such as aarch64-unknown-linux-gnu, if the Rust compiler has its
#            standard library (`rustup target add TRIPLE`, or RUSTC=…)
# --profile  the cargo profile, default `kit`; `dev` builds faster, but is not for publishing
#
# Needs Rust and a CPython 3.11 or newer with venv (python3, or PYTHON=…). Installs its tools from PyPI into
# target/wheel-tools. The wheels' own interpreters need not be installed: maturin has their settings.
#
#   infeed-…-cp311-abi3-….whl       every CPython from 3.11
#   infeed-…-cp314-cp314t-….whl     free-threaded CPython 3.14, which has no stable ABI
#
# On Linux they need glibc 2.28, as PyTorch's wheels do, whatever this machine has: zig links against that version.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=target/wheels target="" profile=kit
while (($#)); do
    case $1 in
        --target | --profile)
            [[ $# -ge 2 ]] || { echo "$1 needs a value" >&2; exit 2; }
            case $1 in
                --target) target=$2 ;;
                --profile) profile=$2 ;;
            esac
            shift 2
            ;;
        -h | --help) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "unknown option $1" >&2; exit 2 ;;
        *) folder=$1; shift ;;
    esac
done

python=${PYTHON:-python3}
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    echo "$python is not a CPython 3.11 or newer with venv" >&2
    exit 2
fi
rustc=${RUSTC:-rustc}
target=${target:-$("$rustc" -vV | sed -n 's/^host: //p')}
if ! compgen -G "$("$rustc" --print target-libdir --target "$target")/libstd-*.rlib" > /dev/null; then
    echo "$rustc has no standard library for $target: rustup target add $target" >&2
    exit 2
fi

step() { printf '\n== %s\n' "$*"; }

step "tools"
tools=$PWD/target/wheel-tools
[[ -x $tools/bin/pip ]] || "$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check "abi3audit>=0.0.26" "maturin[zig]>=1.16,<2" "twine>=7"
# maturin finds zig on the path.
PATH=$tools/bin:$PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A stub library to link against, with the name, symbols and symbol versions of GCC's unwinder. Otherwise zig links LLVM's
# unwinder in, and two unwinders on one stack crash: CPython before 3.14 ends a thread that requests the GIL after the
# interpreter's end with `pthread_exit`, which unwinds with GCC's.
unwinder() {
    cat > "$work/gcc_s.map" << 'MAP'
GCC_3.0 {
    _Unwind_DeleteException; _Unwind_ForcedUnwind; _Unwind_GetDataRelBase; _Unwind_GetGR; _Unwind_GetIP;
    _Unwind_GetLanguageSpecificData; _Unwind_GetRegionStart; _Unwind_GetTextRelBase; _Unwind_RaiseException; _Unwind_Resume;
    _Unwind_SetGR; _Unwind_SetIP;
};
GCC_3.3 { _Unwind_Backtrace; _Unwind_FindEnclosingFunction; _Unwind_GetCFA; _Unwind_Resume_or_Rethrow; } GCC_3.0;
GCC_4.2.0 { _Unwind_GetIPInfo; } GCC_3.3;
MAP
    grep -o '_Unwind_[A-Za-z_]*' "$work/gcc_s.map" | sed 's/.*/void &(void) {}/' > "$work/gcc_s.c"
    "$tools/bin/python" -m ziglang cc -target "${target%%-*}-linux-gnu.2.28" -shared -nostdlib -Wl,-soname,libgcc_s.so.1 \
        -Wl,--version-script="$work/gcc_s.map" "$work/gcc_s.c" -o "$work/libgcc_s.so.1"
}

step "build for $target"
platform=() link=()
case $target in
    *-linux-gnu)
        unwinder
        platform=(--zig --compatibility manylinux_2_28)
        link=(-- -C link-arg="$work/libgcc_s.so.1")
        ;;
    # The oldest version for both kinds of processor; Rust's default is older for one of them.
    *-apple-darwin) export MACOSX_DEPLOYMENT_TARGET=${MACOSX_DEPLOYMENT_TARGET:-11.0} ;;
esac
# `--auditwheel check` repairs nothing: it fails if a wheel needs libraries that the platform does not guarantee.
# (`${a[@]+…}`: in macOS's bash an empty array is an error.)
maturin build --locked --compression-level 9 --profile "$profile" --target "$target" ${platform[@]+"${platform[@]}"} --auditwheel check \
    --interpreter python3.11 python3.14t --manifest-path python/Cargo.toml --out "$work/wheels" ${link[@]+"${link[@]}"}

step "check"
wheels=("$work"/wheels/infeed-*.whl)
[[ ${#wheels[@]} -eq 2 ]] || { echo "expected two wheels, got: ${wheels[*]##*/}" >&2; exit 1; }
twine check --strict "${wheels[@]}"
abi3audit --strict --summary --assume-minimum-abi3 3.11 "$work"/wheels/infeed-*-abi3-*.whl
for wheel in "${wheels[@]}"; do
    bytes=$(wc -c < "$wheel")
    printf '%s: %d bytes\n' "${wheel##*/}" "$bytes"
    if [[ $profile != dev && $bytes -gt 10000000 ]]; then
        echo "a wheel must have at most 10 MB" >&2
        exit 1
    fi
done
mkdir -p "$folder"
mv "${wheels[@]}" "$folder"
echo "in $folder"
