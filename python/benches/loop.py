"""Runs one loop over infeed, in a process that imports nothing else. `overhead.py` starts it.

Its argument is JSON:

- `dataset` and `loader`: the arguments of `infeed.Loader`.
- `batches`: the number of batches after which the loop ends.
- `take`: what the loop does with a batch: `nothing`, `tensors` (looks up two fields) or `torch` (converts both to torch).
- `let_go`: whether it drops a batch before it requests the next one.
- `burst`: the number of batches between pauses, in which the loader reads ahead.

It prints the figures as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import infeed

# Long enough for the loader to prepare a burst of tiny batches.
PAUSE_SECONDS = 0.01


def nothing(batch: infeed.Batch) -> object:
    return None


def tensors(batch: infeed.Batch) -> object:
    return batch["image"], batch["label"]


def in_torch(batch: infeed.Batch) -> object:
    return batch["image"].torch(), batch["label"].torch()


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    take = {"nothing": nothing, "tensors": tensors, "torch": in_torch}[asked["take"]]
    if asked["take"] == "torch":
        import_module("torch")
    loader = infeed.Loader(asked["dataset"], **asked["loader"])
    wanted, burst = asked["batches"], asked.get("burst")
    figures = bursts(loader, take, wanted, burst) if burst else run(loader, take, wanted, asked.get("let_go", False))
    figures["peak_rss_bytes"] = resident("VmHWM:")
    print(json.dumps(figures))


def run(loader: infeed.Loader, take: Any, wanted: int, let_go: bool) -> dict[str, Any]:
    """A trainer's loop without computation, over as many epochs as `wanted` batches need."""
    before = resident("VmRSS:")
    batches, first = 0, 0.0
    start = ended = clocks()
    while batches < wanted:
        for batch in loader:
            held = take(batch)
            batches += 1
            if batches == 1:
                first = time.perf_counter() - start[0]
            if batches == wanted:
                # Read the clocks before the stream is closed.
                ended = clocks()
                break
            if let_go:
                # Otherwise the variables hold the batch until the next one arrives, as in most loops.
                del batch, held
    seconds, cpu, own = (after - before for before, after in zip(start, ended))
    return {
        "batches": batches,
        "samples": batches * loader.config["batch_size"],
        "seconds": seconds,
        "first_batch_seconds": first,
        "cpu_seconds": cpu,
        "loop_cpu_seconds": own,
        "resident_before_bytes": before,
    }


def clocks() -> tuple[float, float, float]:
    """Seconds of wall time, of the process's CPU time, and of this thread's CPU time."""
    return time.perf_counter(), time.process_time(), time.thread_time()


def bursts(loader: infeed.Loader, take: Any, wanted: int, burst: int) -> dict[str, Any]:
    """Takes `burst` ready batches in a row, again and again. The pauses between bursts are not timed."""
    batches, seconds, own, stream = 0, 0.0, 0.0, iter(loader)
    next(stream)
    while batches < wanted:
        time.sleep(PAUSE_SECONDS)
        cpu, start = time.thread_time(), time.perf_counter()
        for _ in range(burst):
            take(next(stream))
        seconds, own = seconds + time.perf_counter() - start, own + time.thread_time() - cpu
        batches += burst
    return {"batches": batches, "samples": batches, "seconds": seconds, "loop_cpu_seconds": own}


def resident(key: str) -> int:
    """Bytes of physical memory, current (VmRSS) or peak (VmHWM)."""
    with open("/proc/self/status") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


if __name__ == "__main__":
    main()
