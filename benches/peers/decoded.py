"""Decoded pixels kept from epoch to epoch: infeed without, in memory and in a folder, and tf.data's cache(), in turn.

    cargo build --release
    python3 benches/peers/decoded.py --infeed target/release/infeed --photos /dev/shm/photos --folder /dev/shm --python-tf ~/peers/tf/bin/python

Rates of infeed's later epochs are differences of two runs, of 2 epochs and of 2 + --epochs; of a first one, a run of one. A folder
is filled by a run before the first round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def infeed(args, epochs, *more):
    line = [args.infeed, "run", args.photos, "--transform", "imagenet-train", "--batch-size", "64", "--shuffle", "1"]
    line += ["--device", "cpu", "--epochs", str(epochs), "--json", "-", *more]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    run = json.loads(done.stdout)
    return run["seconds"], run["samples"], run


def later(args, *more):
    short, few, _ = infeed(args, 2, *more)
    long, many, _ = infeed(args, 2 + args.epochs, *more)
    return (many - few) / (long - short)


def first(args, *more):
    seconds, samples, _ = infeed(args, 1, *more)
    return samples / seconds


def tensorflow(args, variant):
    line = [args.python_tf, os.path.join(HERE, "peer_tf.py"), "photos", args.photos, "--batch-size", "64"]
    line += ["--epochs", str(args.epochs), "--threads", str(len(os.sched_getaffinity(0))), "--variant", variant]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["images"] / found["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--infeed", required=True)
    parser.add_argument("--photos", required=True, help="class folders of JPEGs, all of whose pixels fit into half of the memory")
    parser.add_argument("--folder", required=True, help="where pixels are kept as files")
    parser.add_argument("--python-tf", help="an interpreter with tensorflow")
    parser.add_argument("--size", default="8GiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        ram, files = ["--decoded-cache", f"ram:{args.size}"], ["--decoded-cache", f"{folder}:{args.size}"]
        rows = {
            "infeed, first epoch": lambda: first(args),
            "infeed, first epoch, ram": lambda: first(args, *ram),
            "infeed, later epochs (with its index)": lambda: later(args),
            "infeed, later epochs, ram": lambda: later(args, *ram),
            "infeed, all epochs, folder filled before": lambda: later(args, *files),
        }
        if args.python_tf:
            rows["tf.data, later epochs"] = lambda: tensorflow(args, "antialias")
            rows["tf.data, later epochs, cache()"] = lambda: tensorflow(args, "cache")
            rows["tf.data, later epochs, cache(), not antialiased"] = lambda: tensorflow(args, "cache-plain")
        _, _, run = infeed(args, 2, *files)
        kept = run["decoded_cache"]
        print(f"pixels: {kept['used'] / 1e9:.2f} GB, {kept['bytes_written'] / 1e9:.2f} GB written by the run before")
        found = {name: [] for name in rows}
        for n in range(args.rounds):
            for name, measure in rows.items():
                found[name].append(measure())
                print(f"round {n}: {name}: {found[name][-1]:.0f}", file=sys.stderr)
    base = found["infeed, later epochs (with its index)"]
    print("| | images/s | range | times infeed's later epochs without |\n|---|---|---|---|")
    for name, rates in found.items():
        ratios = [rate / other for rate, other in zip(rates, base)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"| {name} | {statistics.median(rates):,.0f} | {min(rates):,.0f}–{max(rates):,.0f} | {ratio} |")


if __name__ == "__main__":
    main()
