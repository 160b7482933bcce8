#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment, and runs its tests and type checks there.
# `--torch`: with torch and torchvision, a large download; `--frameworks`: with all that the examples are for, too. Tests are
# left out, with a word, where what they need is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    echo "$python is no CPython 3.11 or newer with venv: nothing was checked"
    exit 2
fi
extras=test
case "${1:-}" in
    --torch) extras=test,torch ;;
    --frameworks) extras=test,torch,frameworks ;;
esac

here=target/python
rm -rf "$here"
mkdir -p "$here"
"$python" -m venv "$here/venv"
bin=$PWD/$here/venv/bin
"$bin/pip" install --quiet --disable-pip-version-check "maturin>=1.16,<2"
# The profile of the tests: what is checked is what it does, not how fast.
"$bin/maturin" build --quiet --locked --profile dev --manifest-path python/Cargo.toml --out "$here"
wheel=$(ls "$here"/infeed-*.whl)
"$bin/pip" install --quiet --disable-pip-version-check "$wheel[$extras]"

"$bin/pytest" -q -p no:cacheprovider python/tests
"$bin/mypy" --cache-dir "$here/mypy" --strict python/infeed python/tests python/benches
"$bin/pyright" --project python/pyproject.toml --pythonpath "$bin/python"
# Elsewhere: here `infeed` is the folder.
(cd "$here" && "$bin/stubtest" infeed)
