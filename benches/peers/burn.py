#!/usr/bin/env python3
"""burn's own image dataset and loader beside infeed's, both as burn's tensors: images a second, peak memory, order.

    cargo build --release --manifest-path benches/peers/burn/Cargo.toml --target-dir target/beside-burn
    python3 benches/peers/burn.py --program target/beside-burn/release/infeed-beside-burn --photos imagenet/train

The photographs are linked into class folders as often as it takes. Each round runs all of them once, in turn, each in a
process of its own; behind a step the loaders may read ahead as far as they like.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path


def link(photos, folder, images):
    """`images` links below `folder`, a class each four of them, named as burn reads them."""
    files = sorted(path for path in Path(photos).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    for n in range(images):
        place = folder / f"{n // 4:06}"
        place.mkdir(exist_ok=True)
        os.symlink(files[n % len(files)].resolve(), place / f"{n:08}.jpg")


def run(program, who, folder, threads, batch, step):
    command = [program, who, str(folder), str(threads), str(batch), str(step)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def spread(values, form="{:,.0f}"):
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--photos", required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--step", type=int, default=0, metavar="MS", help="of the trainer for a batch")
    parser.add_argument("--threads", type=int, nargs="+", default=[0, 1, 2, 8])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    kinds = [(who, threads) for threads in args.threads for who in ("burn", "infeed")]
    runs = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        link(args.photos, Path(folder), args.images)
        for turn in range(args.rounds):
            for kind in kinds[turn % len(kinds):] + kinds[: turn % len(kinds)]:
                runs[kind].append(run(args.program, kind[0], folder, kind[1], args.batch_size, args.step))
    print(f"{args.images} photographs, batches of {args.batch_size}, step {args.step} ms, {args.rounds} rounds\n")
    print("| by | threads | images/s | CPU ms an image | first batch, ms | peak, MB | orders |")
    print("|---|---|---|---|---|---|---|")
    for (who, threads), all_runs in runs.items():
        rate = spread([run["images_per_second"] for run in all_runs])
        cpu = spread([1e3 * run["cpu_seconds"] / run["images"] for run in all_runs], "{:.2f}")
        first, peak = (spread([run[name] for run in all_runs]) for name in ("first_ms", "peak_mb"))
        orders = len({run["order"] for run in all_runs})
        name = "auto" if (who, threads) == ("infeed", 0) else threads
        print(f"| {who} | {name} | {rate} | {cpu} | {first} | {peak} | {orders} |")
    for who in ("burn", "infeed"):
        orders = {run["order"] for kind, all_runs in runs.items() if kind[0] == who for run in all_runs}
        print(f"\n{who}: {len(orders)} orders over all numbers of threads")


if __name__ == "__main__":
    main()
