#!/usr/bin/env python3
"""Padded batches of tokens from Parquet: infeed beside torch's DataLoader over Hugging Face's `datasets`, in turns.

    python3 benches/peers/tokens.py --infeed target/release/infeed --python VENV/bin/python

VENV has torch, datasets and pyarrow. Both shuffle 100,000 rows of 1 to 1,023 tokens (int32), make batches of 256 rows and fill
short rows with 0. `datasets` memory-maps Arrow files that it has made before; they are not counted. torch has a process for
each core; its first epoch, in which they start, is counted as infeed's is.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

ROWS, BATCH, EPOCHS = 100_000, 256, 3

MAKE = """
import numpy, pyarrow, pyarrow.parquet, sys
draws = numpy.random.default_rng(1)
rows = [draws.integers(0, 50_000, draws.integers(1, 1024), dtype="int32") for _ in range(int(sys.argv[2]))]
pyarrow.parquet.write_table(pyarrow.table({"tokens": rows}), sys.argv[1], row_group_size=10_000)
"""

PEER = """
import json, os, sys, time
import datasets, torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
file, cache, batch, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=cache).with_format("torch")
def collate(rows):
    tokens = [row["tokens"] for row in rows]
    return pad_sequence(tokens, batch_first=True), torch.tensor([len(row) for row in tokens])
if epochs:
    loader = DataLoader(data, batch, shuffle=True, collate_fn=collate, num_workers=len(os.sched_getaffinity(0)), drop_last=True,
                        persistent_workers=True)
    began, samples = time.perf_counter(), 0
    for epoch in range(epochs):
        for tokens, lengths in loader:
            samples += len(tokens)
    print(json.dumps({"samples": samples, "seconds": time.perf_counter() - began}))
"""


def timed(command):
    """Samples a second, and microseconds of CPU a sample with all processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report = json.loads(found.strip().splitlines()[-1])
    return report["samples"] / report["seconds"], cpu / report["samples"] * 1e6


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, cache = str(Path(folder) / "tokens.parquet"), str(Path(folder) / "cache")
        subprocess.run([args.python, "-c", MAKE, file, str(ROWS)], check=True)
        peer = [args.python, "-c", PEER, file, cache, str(BATCH)]
        subprocess.run([*peer, "0"], check=True, capture_output=True)
        ours = [args.infeed, "run", file, "--batch-size", str(BATCH), "--shuffle", "1", "--pad", "tokens=0", "--transform", "none"]
        ours += ["--device", "cpu", "--epochs", str(EPOCHS), "--json", "-"]
        found = {"infeed": [], "torch + datasets": []}
        for number in range(args.rounds):
            turns = [("infeed", ours), ("torch + datasets", [*peer, str(EPOCHS)])]
            for name, command in turns if number % 2 == 0 else reversed(turns):
                found[name].append(timed(command))
        print(f"{len(os.sched_getaffinity(0))} cores, {args.rounds} rounds in turns, medians (least-most)")
        for name, runs in found.items():
            rates, cpu = zip(*runs, strict=True)
            print(f"{name:18} {spread(rates, ',.0f')} rows/s, {spread(cpu, '.1f')} µs CPU a row")
        ratios = [ours[0] / theirs[0] for ours, theirs in zip(*found.values(), strict=True)]
        print(f"infeed is {spread(ratios, '.2f')} times as fast")


main()
