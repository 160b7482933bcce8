"""Packs a dataset by tasks of Ray, on as many machines as there are:

    python prepare.py s3://BUCKET/raw s3://BUCKET/packed --tasks 64 --cpus 8 -- --shorter 256 --quality 90

What follows -- goes to `infeed prepare`. Nothing tells a plain task of Ray which of how many it is, so it is given --rank and
--world-size. A task that is lost is tried again, and finds the shards that are finished.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import ray


# Tried again when its machine is lost, and when the program ends with an error.
@ray.remote(max_retries=3, retry_exceptions=True)
def prepare(command: list[str]) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("out", help="a bucket and prefix, or a folder that all machines share")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--cpus", type=int, default=4, help="of each task")
    args = parser.parse_args(given[:cut])
    program = os.environ.get("INFEED", "infeed")
    # Of a cluster when there is one (RAY_ADDRESS), else on this machine.
    ray.init(log_to_driver=True)
    command = [program, "prepare", args.url, args.out, *given[cut + 1:]]
    tasks = [
        prepare.options(num_cpus=args.cpus).remote([*command, "--rank", str(rank), "--world-size", str(args.tasks)])
        for rank in range(args.tasks)
    ]
    ray.get(tasks)


if __name__ == "__main__":
    main()
