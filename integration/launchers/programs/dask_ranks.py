"""Tasks of Dask's workers, which other processes of this job have been told to start.

    dask_ranks.py inherit|ranked SCHEDULER_FILE N COMMAND...

`inherit` leaves the rank to be found in what the worker inherited of its launcher; `ranked` gives each task its own.
"""

from __future__ import annotations

import subprocess
import sys

from distributed import Client

KIND, SCHEDULER, N, *COMMAND = sys.argv[1:]


def task(command: list[str]) -> int:
    return subprocess.run(command).returncode


def main() -> None:
    count = int(N)
    with Client(scheduler_file=SCHEDULER, timeout=120) as client:
        client.wait_for_workers(count, timeout=120)
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        ranks = [["--rank", str(rank), "--world-size", str(count)] if KIND == "ranked" else [] for rank in range(count)]
        tasks = [
            client.submit(task, [*COMMAND, *rank], workers=worker, pure=False)
            for rank, worker in zip(ranks, workers, strict=True)
        ]
        failed = any(client.gather(tasks))
        client.shutdown()
    sys.exit(failed)


if __name__ == "__main__":
    main()
