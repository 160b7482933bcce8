#!/usr/bin/env python3
"""How long a trainer waits for a batch that is ready, beside threads that compute; and its accelerator's utilisation.

    python python/benches/waits.py --photos imagenet/train

Run it with the interpreter that has infeed, torch and torchvision installed, on an idle machine; 3 minutes.
Photographs, ImageNet's training transform, batches of 8: infeed, torch's `DataLoader` with torchvision v2, and Grain
where `--loaders` names it, each with `--cores` workers, each run in a process of its own.

A run takes batches for two seconds as fast as they come, which says how long the loader takes for one in that company.
Then it takes turns: a step of fixed length, in which the thread sleeps as a trainer does whose accelerator computes,
and the next batch, with image and label as torch's tensors. Steps are as long as two batches take, so that the loader
has always read ahead: every batch is ready. The wait is the time from asking for it to having its tensors; `next` is
the part of it until the loader has handed the batch over. Beside the loop runs nothing, a thread that computes in pure
Python and does not leave the GIL by itself, or a thread that computes in torch with two threads of its own.

AU is the accelerator utilisation of MLPerf Storage: the time of the steps, as measured, divided by that of steps and
waits. The last rows have steps that are a quarter longer than a batch takes the first loader, with nothing beside.

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
# More than a run takes, so that few epochs end in one.
RECORDS = 6000
# Until everything is started and has read ahead for the first time.
WARM_UP_BATCHES = 8
FLAT_OUT_SECONDS = 2.0
# As many batches' time lets a loader read ahead, however far it does.
SETTLE_BATCHES = 20


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", help="class folders of JPEGs; repeated to 6,000 on the RAM disk")
    parser.add_argument(
        "--loaders", nargs="+", choices=LOADERS, default=["infeed", "torch"], help="(default: infeed torch)"
    )
    parser.add_argument("--batch-size", type=int, default=8, help="(default: 8)")
    parser.add_argument("--seconds", type=float, help="of steps and waits in each run (default: 12)")
    parser.add_argument("--cores", type=int, default=2, help="that all are held to, and workers of each (default: 2)")
    parser.add_argument("--ram-disk", default="/dev/shm", help="where the photographs are laid out (default: /dev/shm)")
    parser.add_argument("--quick", action="store_true", help="short runs: to see that it works, not to measure")
    parser.add_argument("--json", help="write every figure to this file")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.run and not args.photos:
        parser.error("the following arguments are required: --photos")
    args.seconds = args.seconds or (2.0 if args.quick else 12.0)
    return args


# Loaders: a function that begins an epoch, and one that makes torch's tensors of a batch.

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


# Who computes beside the loop, until it is over.


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
    """In a process of its own: prints the figures of a run."""
    epochs = {"infeed": infeed_epochs, "torch": torch_epochs, "grain": grain_epochs}[asked["loader"]]
    epoch, convert = epochs(asked["folder"], asked["batch_size"], asked["workers"])
    batches = endless(epoch)
    # What forks does so before there are threads.
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
        # The last one is held until here, and let go while nobody looks at the clock.
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
    """By nearest rank: the least of the values that so many are not above."""
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
