#!/usr/bin/env python3
"""Measures how long a trainer waits for a ready batch while other threads compute, and its accelerator utilisation.

    python python/benches/waits.py --photos imagenet/train

Run it with an interpreter that has infeed, torch and torchvision installed, on an idle machine. It takes 3 minutes.
Photographs, ImageNet's training transform, batches of 8: infeed, torch's `DataLoader` with torchvision v2, and Grain if
`--loaders` names it. Each has `--cores` workers, and each run is its own process.

A run first takes batches for two seconds as fast as they come, which gives the loader's time per batch. Then steps and
batches alternate: in a step of fixed length the thread sleeps, as a trainer does while its accelerator computes; then it
takes the next batch, with image and label as torch tensors. A step is as long as two batches, so the loader has always
read ahead, and every batch is ready. The wait is the time from the request to the tensors; `next` is the part of it until
the loader has handed over the batch. In parallel with the loop runs nothing, a thread that computes in pure Python and
does not release the GIL by itself, or a thread that computes in torch with two threads of its own.

AU is the accelerator utilisation of MLPerf Storage: the measured time of the steps, divided by the time of steps and
waits. In the last rows, steps are a quarter longer than the first loader's time per batch, and nothing runs in parallel.

Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import common
from common import compare

LOADERS = {"infeed": "infeed", "torch": "torch DataLoader + torchvision v2", "grain": "Grain + OpenCV"}
BESIDE = ("nothing", "Python", "torch")
# More than a run takes, so that few epochs end during a run.
RECORDS = 6000
# Enough for all threads to start and read ahead for the first time.
WARM_UP_BATCHES = 8
FLAT_OUT_SECONDS = 2.0
# The time of this many batches lets every loader finish its read-ahead.
SETTLE_BATCHES = 20


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", help="class folders of JPEGs; repeated to 6,000 on the RAM disk")
    parser.add_argument(
        "--loaders", nargs="+", choices=LOADERS, default=["infeed", "torch"], help="(default: infeed torch)"
    )
    parser.add_argument("--batch-size", type=int, default=8, help="(default: 8)")
    parser.add_argument("--seconds", type=float, help="duration of steps and waits in each run (default: 12)")
    parser.add_argument("--cores", type=int, default=2, help="cores for each run, and its number of workers (default: 2)")
    parser.add_argument("--ram-disk", default="/dev/shm", help="folder for the photographs (default: /dev/shm)")
    parser.add_argument("--quick", action="store_true", help="short runs, to see that it works; not for measuring")
    parser.add_argument("--json", help="write every figure to this file")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.run and not args.photos:
        parser.error("the following arguments are required: --photos")
    args.seconds = args.seconds or (2.0 if args.quick else 12.0)
    return args


# Loaders: a function that starts an epoch, and one that converts a batch to torch tensors.

Loading = tuple[Callable[[], Iterable[Any]], Callable[[Any], object]]


def infeed_epochs(folder: str, batch_size: int, workers: int) -> Loading:
    import infeed

    loader = infeed.Loader(
        folder,
        batch_size=batch_size,
        transform="imagenet-train",
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        rank=0,
        world_size=1,
    )
    return lambda: loader, lambda batch: (batch["image"].torch(), batch["label"].torch())


def torch_epochs(folder: str, batch_size: int, workers: int) -> Loading:
    import peer_torch  # type: ignore[import-not-found]

    photos = peer_torch.Photos(folder, "photos", "v2")
    loader = peer_torch.DataLoader(
        photos, batch_size=batch_size, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True
    )
    return lambda: loader, lambda batch: batch


def grain_epochs(folder: str, batch_size: int, workers: int) -> Loading:
    import grain  # type: ignore[import-not-found]
    import peer_grain  # type: ignore[import-not-found]
    torch: Any = import_module("torch")

    data = grain.MapDataset.source(peer_grain.Files(folder)).shuffle(seed=0).random_map(peer_grain.crop, seed=1)
    data = data.to_iter_dataset(grain.ReadOptions(num_threads=workers, prefetch_buffer_size=2 * batch_size))
    data = data.batch(batch_size, drop_remainder=True)
    return lambda: data, lambda batch: (torch.from_numpy(batch[0]), torch.from_numpy(batch[1]))


def endless(epoch: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    while True:
        yield from epoch()


# Computations in parallel with the loop, until it ends.


def spin(over: threading.Event) -> None:
    turns = 0
    while not over.is_set():
        for _ in range(1000):
            turns += 1


def multiply(over: threading.Event) -> None:
    torch: Any = import_module("torch")

    torch.set_num_threads(2)
    matrix, product = torch.rand(512, 512), torch.empty(512, 512)
    while not over.is_set():
        torch.mm(matrix, matrix, out=product)


def one_run(asked: dict[str, Any]) -> None:
    """Does one run, in its own process, and prints the figures."""
    epochs = {"infeed": infeed_epochs, "torch": torch_epochs, "grain": grain_epochs}[asked["loader"]]
    epoch, convert = epochs(asked["folder"], asked["batch_size"], asked["workers"])
    batches = endless(epoch)
    # Loaders that fork must do so before other threads start.
    for _ in range(WARM_UP_BATCHES):
        convert(next(batches))
    over, computing = threading.Event(), {"Python": spin, "torch": multiply}.get(asked["beside"])
    other = threading.Thread(target=computing, args=(over,)) if computing else None
    if other:
        other.start()
    taken, start = 0, time.perf_counter()
    while time.perf_counter() < start + asked["flat_out_seconds"]:
        convert(next(batches))
        taken += 1
    a_batch = (time.perf_counter() - start) / taken
    length = asked["step_seconds"] or asked["batches_a_step"] * a_batch
    time.sleep(SETTLE_BATCHES * a_batch)
    steps: list[float] = []
    waits: list[float] = []
    nexts: list[float] = []
    held = None
    while sum(steps) + sum(waits) < asked["seconds"]:
        start = time.perf_counter()
        time.sleep(length)
        stepped = time.perf_counter()
        fresh = next(batches)
        there = time.perf_counter()
        tensors = convert(fresh)
        waits.append(time.perf_counter() - stepped)
        nexts.append(there - stepped)
        steps.append(stepped - start)
        # The last batch is held until here, and dropped outside the timed part.
        held = fresh, tensors
    del held
    over.set()
    if other:
        other.join()
    figures = {"batch_seconds": a_batch, "step_seconds": length, "waits": waits, "nexts": nexts, "steps": steps}
    print(json.dumps(figures), flush=True)


# The runs.


def run(
    args: argparse.Namespace, folder: Path, loader: str, beside: str, batches_a_step: float, step: float | None = None
) -> dict[str, Any]:
    asked = {
        "loader": loader,
        "beside": beside,
        "folder": str(folder),
        "batch_size": args.batch_size,
        "workers": args.cores,
        "seconds": args.seconds,
        "flat_out_seconds": min(FLAT_OUT_SECONDS, args.seconds),
        "batches_a_step": batches_a_step,
        "step_seconds": step,
    }
    command = [sys.executable, str(Path(__file__)), "--run", json.dumps(asked)]
    print(f"{LOADERS[loader]}, beside it: {beside}", file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{LOADERS[loader]} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return {"loader": loader, "beside": beside, **figures, **summary(figures["waits"], figures["steps"])}


def summary(waits: list[float], steps: list[float]) -> dict[str, float]:
    quantiles = {name: quantile(waits, share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {**quantiles, "max": max(waits), "au": sum(steps) / (sum(steps) + sum(waits))}


def quantile(values: list[float], share: float) -> float:
    """The quantile by nearest rank: the smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(runs: list[dict[str, Any]]) -> str:
    quantiles = ["p50 µs", "p90 µs", "p99 µs", "max µs", "next: p50 µs", "p99 µs"]
    rows = [["loader", "beside it", "a batch takes ms", "step ms", "waits", *quantiles, "AU"]]
    for one in runs:
        waits = [f"{1e6 * one[name]:,.0f}" for name in ("p50", "p90", "p99", "max")]
        times = [f"{1e3 * one[name]:.1f}" for name in ("batch_seconds", "step_seconds")]
        nexts = [f"{1e6 * quantile(one['nexts'], share):,.0f}" for share in (0.5, 0.99)]
        counts = [str(len(one["waits"])), *waits, *nexts]
        rows.append([LOADERS[one["loader"]], one["beside"], *times, *counts, f"{one['au']:.2%}"])
    return str(compare.aligned(rows))


def main() -> None:
    args = parse()
    if args.run:
        one_run(json.loads(args.run))
        return
    cores = common.hold(args.cores)
    told = common.about(cores)
    print(common.headline(told))
    with tempfile.TemporaryDirectory(prefix="infeed-waits-", dir=args.ram_disk) as root:
        folder = common.photos(args.photos, RECORDS, Path(root))
        ready = [run(args, folder, loader, beside, 2.0) for beside in BESIDE for loader in args.loaders]
        size = args.batch_size
        print(f"\nEvery batch is ready: steps as long as two batches of {size} photographs take\n\n{table(ready)}")
        tight: list[dict[str, Any]] = []
        for loader in args.loaders:
            tight.append(run(args, folder, loader, "nothing", 1.25, tight[0]["step_seconds"] if tight else None))
        print(f"\nAU: steps a quarter longer than a batch takes {LOADERS[args.loaders[0]]}\n\n{table(tight)}")
    common.save(args.json, {**told, "batch_size": args.batch_size, "quick": args.quick, "ready": ready, "tight": tight})


if __name__ == "__main__":
    main()
