#!/usr/bin/env bash
# Clippy, tests and docs of infeed-tch, if there is the libtorch that its tch needs: in LIBTORCH, or as PyTorch of the python3 on
# the path. Not part of the workspace, since it does not build without libtorch.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target/tch}

cargo fmt --check

# The version for this tch; torch-sys refuses others, unless LIBTORCH_BYPASS_VERSION_CHECK is set.
wanted=2.13.0
if [[ -n ${LIBTORCH:-} ]]; then
    lib=${LIBTORCH_LIB:-$LIBTORCH}/lib
elif lib=$(python3 -c 'import os, torch; print(torch.__version__.split("+")[0], os.path.join(os.path.dirname(torch.__file__), "lib"))' 2> /dev/null); then
    read -r version lib <<< "$lib"
    if [[ $version != "$wanted" && -z ${LIBTORCH_BYPASS_VERSION_CHECK:-} ]]; then
        echo "infeed-tch: skipped, python3 has PyTorch $version; tch needs $wanted"
        exit 0
    fi
    export LIBTORCH_USE_PYTORCH=1
else
    echo "infeed-tch: skipped, there is no libtorch: set LIBTORCH, or put a python3 with torch==$wanted first on the path"
    exit 0
fi
export LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

cargo clippy --locked --quiet --all-targets -- -D warnings
cargo test --locked --quiet
RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --no-deps
python3 ../../.ci/examples.py "$CARGO_TARGET_DIR/doc"
