#!/usr/bin/env python3
"""Measures `infeed run` on a bucket of a real S3 server: decoding, caching, and two hosts that share a bucket.

    eval "$(integration/s3/serve.sh start DIR)"
    DIR/venv/bin/pip install boto3
    DIR/venv/bin/python integration/s3/measure.py --infeed target/release/infeed --photos FOLDER --scratch /dev/shm

FOLDER holds class folders of JPEGs; `infeed synth caltech FOLDER --count 2000` makes one. Everything runs on this machine:
the server, too, takes part of its cores, and its CPU time is counted. Rounds alternate; the figures are medians with ranges.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from accept import bucket, client


def server_seconds():
    """CPU time that the server has used."""
    def of(stat):
        fields = stat.read_text().rsplit(")", 1)
        named = fields[0].split("(", 1)[1] == "weed"
        used = fields[1].split()
        return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK") if named else 0

    total = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            total += of(stat)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


def upload(photos, prefix):
    """All files below a folder, unless they are there. Returns how many and their bytes."""
    s3, total, count = client(), 0, 0
    have = {o["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket(), Prefix=prefix + "/")
            for o in page.get("Contents", [])}
    for path in sorted(p for p in photos.rglob("*") if p.is_file()):
        key = f"{prefix}/{path.relative_to(photos)}"
        total, count = total + path.stat().st_size, count + 1
        if key not in have:
            s3.upload_file(str(path), bucket(), key)
    return count, total


def run(infeed, url, *options, **env):
    """The JSON of one run, with the server's CPU time beside it."""
    before = server_seconds()
    command = [infeed, "run", url, "--device", "cpu", "--batch-size", "64", "--last-batch", "partial", "--json", "-", *options]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return {**json.loads(done.stdout), "server_seconds": server_seconds() - before}


def cell(values, form):
    values = sorted(values)
    return f"{statistics.median(values):{form}} ({values[0]:{form}} to {values[-1]:{form}})"


def decoding(args, url):
    """The bucket beside the folder, decoding: how much of the cores works on images."""
    runs = {"folder": [], "bucket": []}
    options = ["--transform", args.transform, "--shuffle", "1", "--epochs", str(args.epochs)]
    for _ in range(args.rounds):
        for name, where in (("folder", str(args.photos)), ("bucket", url)):
            runs[name].append(run(args.infeed, where, *options))
    print(f"\n`infeed run URL {' '.join(options)}`, {os.cpu_count()} cores\n")
    print("| from | images/s | infeed's CPU, ms an image | server's, ms | cores / all CPU an image | reached |\n|---|---|---|---|---|---|")
    for name, of in runs.items():
        ms = lambda r, key: 1000 * r[key] / r["samples"]
        allowed = lambda r: 1000 * os.cpu_count() / (ms(r, "cpu_seconds") + (ms(r, "server_seconds") if name == "bucket" else 0))
        print("|", name, "|", cell([r["samples_per_second"] for r in of], ",.0f"), "|",
              cell([ms(r, "cpu_seconds") for r in of], ".2f"), "|", cell([ms(r, "server_seconds") for r in of], ".2f"), "|",
              cell([allowed(r) for r in of], ",.0f"), "|",
              cell([100 * r["samples_per_second"] / allowed(r) for r in of], ".1f"), "% |")


def caching(args, url, count, total):
    """Later epochs from a cache beside the folder; then a cache of half the data."""
    options = ["--transform", args.transform, "--shuffle", "1"]
    rates = {"folder": [], "ram": [], "disk": []}
    disk = pathlib.Path(tempfile.mkdtemp(dir=args.scratch))
    run(args.infeed, url, *options, "--cache", f"{disk}:{2 * total}B")
    for _ in range(args.rounds):
        rates["folder"].append(run(args.infeed, str(args.photos), *options, "--epochs", str(args.epochs)))
        rates["disk"].append(run(args.infeed, url, *options, "--epochs", str(args.epochs), "--cache", f"{disk}:{2 * total}B"))
    print(f"\nFrom a full cache in {args.scratch}, `infeed run URL --cache DIR:SIZE`\n\n| from | images/s | CPU ms an image | requests |\n|---|---|---|---|")
    for name in ("folder", "disk"):
        of = rates[name]
        print("|", name, "|", cell([r["samples_per_second"] for r in of], ",.0f"), "|",
              cell([1000 * r["cpu_seconds"] / r["samples"] for r in of], ".2f"), "|",
              max((r.get("requests") or {}).get("requests", 0) for r in of), "|")
    shutil.rmtree(disk)
    print("\nA cache of half the bytes, one host\n\n| cache | epochs | hits of the reads from the second | written, of its size |\n|---|---|---|---|")
    for where in ("ram", "disk"):
        half = total // 2
        folder = tempfile.mkdtemp(dir=args.scratch)
        spec = f"ram:{half}B" if where == "ram" else f"{folder}:{half}B"
        told = run(args.infeed, url, *options, "--epochs", "4", "--cache", spec)["cache"]
        print(f"| {where} | 4 | {told['hits'] / (3 * count):.3f} | {told['bytes_written'] / half:.3f} |")
        shutil.rmtree(folder)


def two_hosts(args, url, count, total):
    """Two ranks with a cache each, of a quarter of the data: half of what a rank reads in an epoch."""
    epochs, quarter = 6, total // 4
    runs = []
    for rank in range(2):
        folder = tempfile.mkdtemp(dir=args.scratch)
        command = [args.infeed, "run", url, "--device", "cpu", "--batch-size", "16", "--last-batch", "partial", "--json", "-", "--shuffle",
                   "1", "--transform", args.transform, "--rank", str(rank), "--world-size", "2", "--epochs", str(epochs),
                   "--memory-budget", args.budget,
                   "--cache", f"{folder}:{quarter}B"]
        runs.append((folder, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
    for rank, (folder, child) in enumerate(runs):
        out, errors = child.communicate()
        if child.returncode:
            sys.exit(errors)
        told = json.loads(out)["cache"]
        later = (epochs - 1) * count / 2
        # What a host has pinned it needs again with probability 1/2: a quarter of the data serves a quarter of its reads.
        print(f"host {rank}: {told['hits'] / later:.3f} of the reads from the second epoch served by a cache of a quarter "
              f"of the data; pinning serves {quarter / total:.3f}")
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True)
    parser.add_argument("--photos", required=True, type=pathlib.Path)
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="where caches are made")
    parser.add_argument("--transform", default="caltech")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--budget", default="auto", help="memory budget of the two hosts: what they read ahead should be little of an epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["decoding", "caching", "two-hosts"])
    args = parser.parse_args()
    prefix = f"measure/{args.photos.resolve().name}"
    count, total = upload(args.photos, prefix)
    print(f"{count} objects, {total / 1e6:.0f} MB")
    url = f"s3://{bucket()}/{prefix}"
    if args.only in (None, "decoding"):
        decoding(args, url)
    if args.only in (None, "caching"):
        caching(args, url, count, total)
    if args.only in (None, "two-hosts"):
        two_hosts(args, url, count, total)


if __name__ == "__main__":
    main()
