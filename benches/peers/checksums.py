#!/usr/bin/env python3
"""What it costs to compare photographs of a store with their MD5s: several builds and settings of infeed, in turns.

    python3 benches/peers/checksums.py FOLDER 'target/release/infeed' 'target/release/infeed --verify checksums' …

Serves FOLDER from this process as a bucket whose ETags are MD5s and that sends no other checksum. Each command reads all of
it with `run`, three epochs in random order, and is measured by its own processor time. The first is the one the others are
compared with.
"""

import json
import resource
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "launchers"))
from store import Store  # noqa: E402

ROUNDS = 9
RUN = ("--batch-size", "64", "--epochs", "3", "--shuffle", "1", "--seed", "1", "--checksum", "--json", "-")


def main() -> None:
    store = Store(Path(sys.argv[1]), "photographs")
    commands = sys.argv[2:]
    cost: dict[str, list[float]] = {command: [] for command in commands}
    sums = set()
    for number in range(ROUNDS + 1):
        for command in commands:
            binary, *options = shlex.split(command)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run(
                [binary, "run", store.url, *RUN, *options], env=store.environment, stdout=subprocess.PIPE, check=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            report = json.loads(run.stdout)
            sums.add(report["checksum"])
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            # The first round fills the system's caches.
            if number > 0:
                cost[command].append(1e6 * used / report["samples"])
    assert len(sums) == 1, f"the commands read different bytes: {sums}"
    for command in commands:
        ratios = [own / first for own, first in zip(cost[command], cost[commands[0]], strict=True)]
        print(f"{command}: {spread(cost[command], '.0f')} us a sample, {spread(ratios, '.3f')} of the first")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


if __name__ == "__main__":
    main()
