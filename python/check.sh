#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment, and runs its tests and type checks there.
#
#   --quick       no wheel: the package folder with a module that reuses the build of `cargo test`; only NumPy and mypy
#   --torch       also with torch and torchvision, a large download
#   --frameworks  also with the frameworks of the examples, and `integration/conformance`, which kills and resumes loaders
#
# Tests whose requirements are not installed are skipped, with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    echo "$python is not a CPython 3.11 or newer with venv: nothing was checked"
    exit 2
fi
extras=test,nightly
case "${1:-}" in
    --quick) extras=test ;;
    --torch) extras=test,nightly,torch ;;
    --frameworks) extras=test,nightly,torch,frameworks ;;
esac

here=target/python
rm -rf "$here"
mkdir -p "$here"
"$python" -m venv "$here/venv"
bin=$PWD/$here/venv/bin
pip() { "$bin/pip" install --quiet --disable-pip-version-check "$@"; }
if [[ $extras == test ]]; then
    # All libraries and one example, whose dev-dependencies turn on the features of the tests, so the build is shared. The
    # variable makes the library a Python module, as maturin does.
    PYO3_BUILD_EXTENSION_MODULE=1 cargo build --locked --quiet --workspace --exclude infeed-candle --exclude infeed-burn --lib --example quickstart \
        --message-format json > "$here/messages"
    mkdir "$here/package"
    cp -r python/infeed "$here/package"
    cp "$(grep -o '"[^"]*lib_native\.so"' "$here/messages" | head -1 | tr -d '"')" "$here/package/infeed/_native.abi3.so"
    echo "$PWD/$here/package" > "$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/infeed.pth"
    (cd python && "$bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"], sep="\n")') \
        | pip -r /dev/stdin
else
    pip "maturin>=1.16,<2"
    # The profile of the tests: this checks results, not speed.
    "$bin/maturin" build --quiet --locked --profile dev --manifest-path python/Cargo.toml --out "$here"
    wheel=$(ls "$here"/infeed-*.whl)
    pip "$wheel[$extras]"
fi

"$bin/pytest" -q -p no:cacheprovider python/tests
"$bin/mypy" --config-file python/pyproject.toml --cache-dir "$here/mypy" python/infeed python/tests python/benches
# Without torch the other type checkers would not know the types of half the package.
[[ $extras == *torch* ]] || exit 0
"$bin/pyright" --project python/pyproject.toml --pythonpath "$bin/python"
# In another folder: here `infeed` would be the source folder.
(cd "$here" && "$bin/stubtest" infeed)
[[ $extras == *frameworks* ]] || exit 0
"$bin/python" integration/conformance/conform.py --self-test
"$bin/python" integration/conformance/conform.py --loaders ours
