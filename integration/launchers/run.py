#!/usr/bin/env python3
"""The same epoch under each launcher that is installed, and what infeed makes of each: a table.

    integration/launchers/run.py [--infeed target/release/infeed] [--python VENV/bin/python] [--only WORD] [--markdown]

Launchers are looked for on the path (Open MPI, MPICH, Slurm, GNU parallel) and beside --python (torch, accelerate,
Lightning, Ray, Dask, SageMaker's toolkit). What is not there is named and skipped. README.md says how to install each.

A row is right when each rank is told its rank, world size and place on its node, and when the ranks' checksums add up to
those of one process. Exits with 1 if a row is wrong. All that is started is stopped, and lies in one temporary folder,
which --keep leaves there: with the environment of each rank.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import caches
import epochs
import packing
import recipes
from bench import ROOT, Bench, Outcome, Row

ROWS: list[Row] = [*epochs.ROWS, *packing.ROWS, *caches.ROWS, *recipes.ROWS]
# Of programs that say their version; the other launchers are Python's.
ASK = {
    "Open MPI": ("mpirun.openmpi", "--version"), "MPICH": ("mpichversion",), "Slurm": ("srun", "--version"),
    "GNU parallel": ("parallel", "--version"),
}  # fmt: skip
MODULES = {
    "torchrun": "torch", "accelerate": "accelerate", "Lightning": "lightning", "Ray": "ray", "Dask": "distributed",
    "SageMaker": "sagemaker-training", "botocore": "botocore", "kubernetes-validate": "kubernetes-validate",
}  # fmt: skip


def version(bench: Bench, launcher: str) -> str:
    if module := MODULES.get(launcher):
        return bench.modules.get(module, "")
    if launcher not in ASK:
        return ""
    told = subprocess.run(ASK[launcher], capture_output=True, text=True, env=bench.environment())
    found = re.search(r"\d[\w.]*\d", told.stdout.splitlines()[0] if told.stdout else "")
    return found[0] if found else ""


def line(cells: list[str], widths: list[int], markdown: bool) -> str:
    if markdown:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def table(bench: Bench, rows: list[Row], markdown: bool) -> tuple[int, int]:
    """Runs the rows; gives how many were wrong and how many were skipped."""
    heads = ["row", "launcher", "version", "ranks", "nodes", "told", "sums", "result"]
    widths = [max(len(row.name) for row in rows), 12, 8, 5, 5, 11, 6, 60]
    print(line(heads, widths, markdown))
    if markdown:
        print("|" + "---|" * len(heads))
    versions = {launcher: "" for launcher in sorted({row.launcher for row in rows})}
    wrong = skipped = 0
    for row in rows:
        lacking = [what for what in map(bench.lacks, row.needs) if what]
        if lacking:
            skipped += 1
            cells = [row.name, row.launcher, "-", "-", "-", "-", "-", f"SKIPPED: {', '.join(lacking)} is not installed"]
            print(line(cells, widths, markdown), flush=True)
            continue
        versions[row.launcher] = versions[row.launcher] or version(bench, row.launcher)
        began = time.monotonic()
        try:
            outcome = row.run(bench)
        except (RuntimeError, OSError, KeyError, ValueError, IndexError, AssertionError, TimeoutError) as error:
            outcome = Outcome(wrong=[f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"])
            bench.clear()
        right = "; ".join(filter(None, [f"ok, {time.monotonic() - began:.1f} s", outcome.note]))
        wrong += bool(outcome.wrong)
        result = " ".join((f"WRONG: {'; '.join(outcome.wrong)}" if outcome.wrong else right).split())
        numbers = [versions[row.launcher], str(outcome.ranks), str(outcome.nodes)]
        cells = [row.name, row.launcher, *numbers, outcome.told, outcome.sums, result]
        print(line(cells, widths, markdown), flush=True)
    return wrong, skipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", type=Path, default=ROOT / "target/release/infeed", help="the program")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the launchers of Python, and infeed")
    parser.add_argument("--only", default="", help="rows whose name or launcher holds this word")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    parser.add_argument("--list", action="store_true", help="the rows and what they need, without running them")
    parser.add_argument("--keep", action="store_true", help="leave the folder there: logs, environments, figures of each rank")
    args = parser.parse_args()
    word = args.only.lower()
    rows = [row for row in ROWS if word in f"{row.launcher}: {row.name}".lower()]
    if args.list:
        for row in rows:
            print(f"{row.launcher}: {row.name}" + (f"  (needs {', '.join(row.needs)})" if row.needs else ""))
        return
    if not rows:
        sys.exit(f"no row holds {args.only!r}; --list names them")
    if not args.infeed.exists():
        sys.exit(f"{args.infeed} is not there: cargo build --release, or --infeed")
    # Whoever starts this in the background may have told it to ignore Ctrl-C, and daemons would be left.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Short: sockets lie in it, whose paths have 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="infeed-l-"))
    folder.chmod(0o755)
    bench = Bench(args.infeed.resolve(), args.python, folder)
    began = time.monotonic()
    wrong = skipped = 0
    try:
        bench.make_data()
        wrong, skipped = table(bench, rows, args.markdown)
    except KeyboardInterrupt:
        sys.exit("interrupted: stopping what was started")
    finally:
        bench.close()
        if args.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    told = f", {skipped} SKIPPED for what is not installed" if skipped else ""
    print(f"\n{len(rows)} rows in {time.monotonic() - began:.0f} s: {wrong} wrong{told}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
