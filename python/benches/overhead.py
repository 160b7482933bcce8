#!/usr/bin/env python3
"""Measures the cost of Python: a loop over `infeed.Loader`, compared with the command `infeed run`, on the same work.

    python python/benches/overhead.py --infeed target/release/infeed --photos imagenet/train --cifar cifar10

Run it with an interpreter that has infeed and torch installed, on an idle machine. It takes about 8 minutes. Three parts:

- Photographs (ImageNet's training transform, batch 64) and CIFAR-10 (`cifar-train`, batch 256): the command line, the loop
  with torch tensors, and the loop without torch in the process.
  - Each runs in its own process and takes the same batches in the same order. A round runs all three, and each round
    starts with another one. Ratios are taken within a round.
  - Rates count all batches after the first, which is shown separately. CPU time is that of the run, without opening and
    imports. Peak memory is that of the process.
  - The command line, and the loop without torch, drop a batch before they request the next one, so the difference in
    memory is that of Python and the package. A loop that holds its batch until it has the next, as `for` does, needs memory
    for one more batch: an extra run measures it.
- One batch: tiny rows in batches of one. How much longer the loop takes per batch than the command line, at the engine's
  full rate; and how long it takes for a batch that is ready. Both with image and label as torch tensors.
- `import infeed`, each time in a new process.

Compare only ratios and differences within one run: rates vary with the machine. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
from common import compare

LOOP = Path(__file__).with_name("loop.py")
COMMAND_LINE, TORCH, BARE = "command line", "Python, torch's tensors", "Python, no torch"
HOLDING = f"{BARE}, batch held"
# Enough for epochs of a reasonable length.
PHOTOS = 2000
# Images of 4x4 pixels, so that the cost per batch dominates.
TINY = "synthetic://?count=1000000&height=4&width=4&classes=2"
BURST, READ_AHEAD = 32, 64
IMPORT = "import time; start = time.perf_counter(); import infeed; print(time.perf_counter() - start)"

Rounds = list[dict[str, dict[str, Any]]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True, help="the release binary")
    parser.add_argument("--photos", help="class folders of JPEGs; repeated to 2,000 on the RAM disk")
    parser.add_argument("--cifar", help="folder of CIFAR-10's binary version")
    parser.add_argument("--rounds", type=int, help="(default: 5)")
    parser.add_argument("--seconds", type=float, help="run time of the command line; the loops take as many batches (default: 10)")
    parser.add_argument("--batches", type=int, help="batches of one row (default: 100000)")
    parser.add_argument("--imports", type=int, help="processes that import infeed (default: 15)")
    parser.add_argument("--cores", type=int, default=2, help="cores for each run, and its number of workers (default: 2)")
    parser.add_argument("--ram-disk", default="/dev/shm", help="folder for the data (default: /dev/shm)")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works; not for measuring")
    parser.add_argument("--json", help="write every figure to this file")
    full, quick = (5, 10.0, 100_000, 15), (1, 1.0, 2_000, 3)
    first, _ = parser.parse_known_args()
    parser.set_defaults(**dict(zip(("rounds", "seconds", "batches", "imports"), quick if first.quick else full)))
    args = parser.parse_args()
    args.infeed = shutil.which(args.infeed) or parser.error(f"--infeed {args.infeed}: no such program")
    return args


# Measuring.


def command_line(args: argparse.Namespace, workload: Any, *ends: str) -> Any:
    """A contestant: `infeed run` as in `benches/peers`, which stops by the options `ends`."""
    endless = replace(workload, epochs=1_000_000, options=ends)
    return compare.Contestant(COMMAND_LINE, compare.infeed_command(args, endless), lambda report, _: report)


def in_python(args: argparse.Namespace, workload: Any, name: str, batches: int, take: str, **more: Any) -> Any:
    """A contestant: the loop in its own process, with the settings of `infeed run`."""
    loader = {
        "transform": workload.transform,
        "batch_size": workload.batch_size,
        "shuffle": int(workload.shuffle),
        "drop_last": True,
        "num_workers": args.cores,
        "rank": 0,
        "world_size": 1,
        **({"prefetch": READ_AHEAD} if "burst" in more else {}),
    }
    asked = {"dataset": str(workload.folder), "loader": loader, "batches": batches, "take": take, **more}
    return compare.Contestant(name, [sys.executable, str(LOOP), json.dumps(asked)], lambda figures, _: figures)


def rounds_of(args: argparse.Namespace, workload: Any, entered: Sequence[Any], cores: list[int]) -> Rounds:
    rounds: Rounds = []
    for number in range(args.rounds):
        turn = number % len(entered)
        done: dict[str, dict[str, Any]] = {}
        for one in (*entered[turn:], *entered[:turn]):
            done[one.name] = measure(one, workload, cores)
            told = f"{workload.name} round {number + 1}: {one.name}: {rate(done[one.name]):,.0f} batches/s"
            print(told, file=sys.stderr)
        rounds.append(done)
    return rounds


def measure(contestant: Any, workload: Any, cores: list[int]) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = compare.measure(contestant, workload, cores)
    except compare.Failed as error:
        sys.exit(f"{contestant.name} failed: {error}")
    return figures


def rate(figures: Mapping[str, Any]) -> float:
    """Batches per second after the first batch."""
    first = figures.get("first_batch_seconds")
    if first is None:
        return float(figures["batches"] / figures["seconds"])
    return float((figures["batches"] - 1) / (figures["seconds"] - first))


def each(rounds: Rounds, name: str, figure: Callable[[Mapping[str, Any]], float]) -> list[float]:
    return [figure(one[name]) for one in rounds]


def against(rounds: Rounds, name: str, figure: Callable[[Mapping[str, Any]], float]) -> list[float]:
    """Ratios to the command line, round by round, so that the machine's fluctuations affect both."""
    return [figure(one[name]) / figure(one[COMMAND_LINE]) for one in rounds]


def ranged(values: Sequence[float], form: str, unit: str = "") -> str:
    return str(compare.ranged(compare.spread(values), form, unit))


def disturbed(rounds: Rounds) -> None:
    runs = [figures["process"]["disturbed"] for one in rounds for figures in one.values()]
    if any(runs):
        took = f"other processes used more than {compare.DISTURBED:.0%} of these cores"
        print(f"\n{sum(runs)} of {len(runs)} runs were disturbed: {took}.")


# The parts of the benchmark.


def work(args: argparse.Namespace, workload: Any, cores: list[int]) -> dict[str, Any]:
    """Photographs or CIFAR-10: the same batches, by the command line and by the loops."""
    # This run also brings the files into the page cache.
    length = measure(command_line(args, workload, "--max-time", f"{args.seconds}s"), workload, cores)
    batches = length["batches"]
    entered = [
        command_line(args, workload, "--max-batches", str(batches)),
        in_python(args, workload, TORCH, batches, "torch"),
        in_python(args, workload, BARE, batches, "tensors", let_go=True),
    ]
    rounds = rounds_of(args, workload, entered, cores)
    holding = measure(in_python(args, workload, HOLDING, batches, "tensors"), workload, cores)
    size = workload.batch_size
    head = ["", "images/s", "rate, of the command line's", "first batch ms"]
    head += ["CPU ms/image", "CPU, of the command line's", "peak MB", "above the command line MB"]
    rows = [head]
    for name in (COMMAND_LINE, TORCH, BARE):
        other = name != COMMAND_LINE
        peaks = each(rounds, name, lambda run: run["peak_rss_bytes"] / 1e6)
        above = [run[name]["peak_rss_bytes"] / 1e6 - run[COMMAND_LINE]["peak_rss_bytes"] / 1e6 for run in rounds]
        rows.append([
            name,
            ranged(each(rounds, name, lambda run: rate(run) * size), ",.0f"),
            ranged(against(rounds, name, rate), ".3f") if other else "",
            ranged(each(rounds, name, lambda run: 1e3 * run["first_batch_seconds"]), ",.0f"),
            ranged(each(rounds, name, lambda run: 1e3 * run["cpu_seconds"] / run["samples"]), ".4g"),
            ranged(against(rounds, name, lambda run: run["cpu_seconds"]), ".3f") if other else "",
            ranged(peaks, ",.0f"),
            ranged(above, "+,.0f") if other else "",
        ])
    grown = each(rounds, TORCH, lambda run: (run["peak_rss_bytes"] - run["resident_before_bytes"]) / 1e6)
    print(f"\n{workload.title}; batch {size}, {batches:,} batches, rounds: {args.rounds}\n\n{compare.aligned(rows)}")
    print(f"\nWith torch, from before the first batch to the peak: {ranged(grown, ',.0f', ' MB')}")
    print(f"A loop without torch that holds its batch until it has the next: {holding['peak_rss_bytes'] / 1e6:,.0f} MB")
    disturbed(rounds)
    return {"batch_size": size, "batches": batches, "rounds": rounds, "holding": holding}


def a_batch(args: argparse.Namespace, cores: list[int]) -> dict[str, Any]:
    """Batches of one tiny row: the time that the loop adds per batch."""
    workload = compare.Workload(
        name="batch", title="4x4 pixels", transform="none", batch_size=1, epochs=1, folder=TINY, records=1
    )
    flat, only, ready = "torch's tensors", "next alone", "torch's tensors, ready"
    entered = [
        command_line(args, workload, "--max-batches", str(args.batches)),
        in_python(args, workload, flat, args.batches, "torch"),
        in_python(args, workload, only, args.batches, "nothing"),
        in_python(args, workload, ready, args.batches // 10, "torch", burst=BURST),
    ]
    rounds = rounds_of(args, workload, entered, cores)
    rows = [["", "µs a batch", "more than the command line µs", "CPU of the loop's thread µs"]]
    for name in (COMMAND_LINE, flat, only, ready):
        more = [1e6 / rate(one[name]) - 1e6 / rate(one[COMMAND_LINE]) for one in rounds]
        busy = lambda run: 1e6 * run["loop_cpu_seconds"] / run["batches"]
        rows.append([
            name,
            ranged(each(rounds, name, lambda run: 1e6 / rate(run)), ".1f"),
            ranged(more, "+.1f") if name in (flat, only) else "",
            ranged(each(rounds, name, busy), ".1f") if name != COMMAND_LINE else "",
        ])
    print(f"\nBatches of a row of 4x4 pixels; {args.batches:,} batches, rounds: {args.rounds}\n\n{compare.aligned(rows)}")
    disturbed(rounds)
    return {"batches": args.batches, "rounds": rounds}


def importing(times: int) -> list[float]:
    """Seconds of `import infeed` in new processes."""
    command = [sys.executable, "-c", IMPORT]
    # The first process brings the files into the page cache.
    runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(1 + times)]
    return [float(seconds) for seconds in runs[1:]]


def main() -> None:
    args = parse()
    cores = common.hold(args.cores)
    told = common.about(cores)
    print(common.headline(told))
    figures: dict[str, Any] = {**told, "rounds": args.rounds, "quick": args.quick, "works": {}}
    with tempfile.TemporaryDirectory(prefix="infeed-overhead-", dir=args.ram_disk) as root:
        workloads = []
        if args.photos:
            workloads.append(
                compare.Workload(
                    name="photos",
                    title="Photographs: RandomResizedCrop(224), flip, normalise",
                    transform="imagenet-train",
                    batch_size=64,
                    epochs=1,
                    folder=common.photos(args.photos, PHOTOS, Path(root)),
                    records=PHOTOS,
                )
            )
        if args.cifar:
            workloads.append(compare.stage_cifar(SimpleNamespace(cifar=args.cifar, cifar_epochs=1), Path(root)))
        for workload in workloads:
            figures["works"][workload.name] = work(args, workload, cores)
    figures["batch"] = a_batch(args, cores)
    figures["import_seconds"] = importing(args.imports)
    milliseconds = [1e3 * seconds for seconds in figures["import_seconds"]]
    print(f"\nimport infeed: {ranged(milliseconds, '.1f')} ms, processes: {args.imports}")
    common.save(args.json, figures)


if __name__ == "__main__":
    main()
