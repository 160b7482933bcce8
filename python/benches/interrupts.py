"""Measures how long Ctrl-C takes, from signal to handler: in a busy loop, in a wait for a batch, and while `open` hangs.

    python python/benches/interrupts.py [--rounds 15] [--json FILE]

Each case runs in its own process. The time is from `kill` here to the first line of `except KeyboardInterrupt` there, by the
machine's monotonic clock. Target: 100 ms.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import time

from common import about, headline, hold, save

HEAD = """
import os, signal, socket, sys, threading, time
import infeed
signal.signal(signal.SIGINT, signal.default_int_handler)
class Hangs:
    def __len__(self): return 1000
    def __getitem__(self, i):
        if i: time.sleep(600)
        return i
def silent():
    server = socket.create_server(("127.0.0.1", 0))
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.getsockname()[1]}", AWS_ALLOW_HTTP="true",
                      AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_REGION="x")
    return server
def loop():
    loader = infeed.Loader("synthetic://?count=1000000&height=64&width=64", batch_size=32, num_workers=2)
    while True:
        for batch in loader: pass
"""
WORKS = {
    "a loop over batches": "loop()",
    "a wait for a Python dataset that hangs": "next(iter(infeed.Loader(Hangs(), batch_size=5)))",
    "opening a store that never answers": "server = silent(); infeed.open('s3://bucket/train')",
}


def once(work: str) -> float:
    """Seconds from the signal to the handler."""
    script = f"{HEAD}\nprint('go', flush=True)\ntry:\n    {work}\nexcept KeyboardInterrupt:\n"
    script += "    print(time.monotonic(), flush=True)\n    os._exit(0)\n"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.6)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    handled = float(process.stdout.readline())
    process.wait()
    return handled - sent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    told = about(hold(args.cores))
    print(headline(told))
    times: dict[str, list[float]] = {name: [] for name in WORKS}
    for _ in range(args.rounds):
        for name, work in WORKS.items():
            times[name].append(1000 * once(work))
    for name, ms in times.items():
        print(f"{name}: {statistics.median(ms):.1f} ms ({min(ms):.1f}–{max(ms):.1f})")
    save(args.json, {**told, "milliseconds": times})


if __name__ == "__main__":
    main()
