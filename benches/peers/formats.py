#!/usr/bin/env python3
"""The same photographs as loose files and as shards, read by infeed in turn; and what preparing them costs.

One venv-free command (Python's standard library alone):

    python3 benches/peers/formats.py --infeed target/release/infeed --photos imagenet/train --rounds 5

All forms are made by `infeed prepare` on the RAM disk. Each run is a process of its own; rounds run every form once, each
beginning with another one. Ratios are within a round, so they hold where the machine's speed moves from hour to hour.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True, help="the release binary")
    parser.add_argument("--photos", required=True, type=Path, help="class folders of JPEGs")
    parser.add_argument("--records", type=int, default=2000, help="the photographs are repeated to so many")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ram", default="/dev/shm", help="where the forms are made")
    parser.add_argument("--out", help="write every figure as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.ram, prefix="formats-") as root:
        figures = measure(args, Path(root))
    if args.out:
        Path(args.out).write_text(json.dumps(figures, indent=1))


def measure(args, root):
    files = repeat(args.photos, root / "files", args.records)
    sizes = {"files": tree_size(files)}
    raw = ("--shorter", "256", "--raw")
    ways = {
        "tars": (),
        "tars, shorter side 256, quality 90": ("--shorter", "256", "--quality", "90"),
        "tars, the same with restart markers": ("--shorter", "256", "--quality", "90", "--restart-markers"),
        "tars, shorter side 256, pixels": raw,
    }
    forms, prepared = {"files": files}, {name: [] for name in ways}
    for _ in range(3):
        for name, options in ways.items():
            out = root / name.replace(", ", "-").replace(" ", "-")
            shutil.rmtree(out, ignore_errors=True)
            done = infeed(args, "prepare", files, out, *options)
            prepared[name].append(args.records / done["wall_seconds"])
            forms[name], sizes[name] = out, tree_size(out)
    # What preparing is bound by: reading, decoding and resizing to that size, with nothing encoded.
    steps = root / "shorter.json"
    steps.write_text(json.dumps([{"op": "resize_shorter", "size": 256}, {"op": "center_crop", "size": 256}]))
    bound = [run(args, files, "--transform", steps, "--dtype", "u8", "--epochs", 3)["samples_per_second"] for _ in range(3)]

    runs = {name: [] for name in forms}
    for turn in range(args.rounds):
        for name in rotate(list(forms), turn):
            runs[name].append(run(args, forms[name], "--transform", "imagenet-train", "--epochs", args.epochs))
    hundred = root / "hundred"
    infeed(args, "prepare", files, hundred, "--parts", "100")
    opened = [run(args, hundred, "--transform", "imagenet-train", "--max-batches", 1)["open_seconds"] for _ in range(9)]

    print(f"{args.records} photographs, ImageNet's training transform, f32, batch 64; {args.rounds} rounds\n")
    print("| form | MB | images/s: median (range) | files are 1; this is | CPU ms/image |\n|---|---|---|---|---|")
    for name, done in runs.items():
        rates = [figures["samples_per_second"] for figures in done]
        ratios = [rate / files["samples_per_second"] for rate, files in zip(rates, runs["files"])]
        cpu = statistics.median(1000 * figures["cpu_seconds"] / figures["samples"] for figures in done)
        print(f"| {name} | {sizes[name] / 1e6:,.0f} | {spread(rates, 0)} | {spread(ratios, 2)} | {cpu:.3f} |")
    print("\n| prepare | images/s: median (range) of 3 |\n|---|---|")
    for name, rates in prepared.items():
        print(f"| {name} | {spread(rates, 0)} |")
    print(f"| reading, decoding and resizing alone (`run`) | {spread(bound, 0)} |")
    print(f"\nOpening 100 shards by their manifest: {spread([1000 * seconds for seconds in opened], 1)} ms")
    return {"sizes": sizes, "runs": runs, "prepare": prepared, "bound": bound, "open_seconds": opened}


def repeat(photos, into, records):
    """`records` files in class folders, the photographs again and again under new names."""
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        sys.exit(f"{photos} holds no .jpg, .jpeg or .JPEG files")
    for n in range(records):
        source = found[n % len(found)]
        folder = into / source.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / f"{n:06}.jpg")
    return into


def run(args, data, *options):
    common = ("--batch-size", 64, "--device", "cpu", "--shuffle", 1, "--rank", 0, "--world-size", 1, "--log-every", 1000000)
    return infeed(args, "run", data, *common, *options)


def infeed(args, *words):
    command = [str(word) for word in (args.infeed, *words, "--json", "-")]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return {**json.loads(done.stdout), "wall_seconds": time.perf_counter() - start}


def rotate(names, by):
    by %= len(names)
    return names[by:] + names[:by]


def tree_size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def spread(values, digits):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


if __name__ == "__main__":
    main()
