"""Runs tests of others with one import changed: where they import a `DataLoader`, they get infeed's.

    python swapped.py FILE_OR_MODULE... [-- ARGUMENTS]

A file whose name begins with `test_` goes to pytest, with the arguments; another one, or a module, is run as a script, by
torchrun where `--ranks N` is the first of the arguments. Nothing is fetched: files are what the reader has, such as
`tests/test_data_loader.py` of accelerate's source distribution, `tests` of Lightning's repository or pytorch's
`test/test_dataloader.py`; accelerate installs `accelerate.test_utils.scripts.test_distributed_data_loop` and others.
`--torch` as the first argument leaves the import as it is, to compare.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

INSTEAD = "from infeed.torch import DataLoader"


def swapped(source: str) -> str:
    """The source with another `DataLoader` behind each import of one. Lines keep their numbers."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and any("DataLoader" in (name.asname, name.name) for name in node.names):
            assert node.end_lineno is not None
            lines[node.end_lineno - 1] += f"; {INSTEAD}"
    return "\n".join(lines) + "\n"


def path_of(name: str) -> Path:
    """The file of a path or of a module."""
    if name.endswith(".py"):
        return Path(name)
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{name} is not installed")
    return Path(spec.origin)


def main() -> int:
    names, arguments = sys.argv[1:], list[str]()
    if "--" in names:
        at = names.index("--")
        names, arguments = names[:at], names[at + 1 :]
    keep = names[:1] == ["--torch"]
    status = 0
    for name in names[keep:]:
        path = path_of(name)
        source = path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            copy.write_text(source if keep else swapped(source))
            if path.name.startswith("test_") and name.endswith(".py"):
                command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(copy), *arguments]
            elif arguments[:1] == ["--ranks"]:
                launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={arguments[1]}"]
                command = [*launch, str(copy), *arguments[2:]]
            else:
                command = [str(copy), *arguments]
            # Their helpers lie beside them.
            ended = subprocess.run([sys.executable, *command], cwd=path.parent, check=False)
        print(f"{name}: {'passed' if ended.returncode == 0 else f'exit status {ended.returncode}'}", flush=True)
        status = status or ended.returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
