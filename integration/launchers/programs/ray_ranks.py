"""Ranks as Ray starts them.

    ray_ranks.py ranked|train N FOLDER COMMAND...

`ranked` are plain tasks, which nothing tells a rank, so that each is given one; `train` are the workers of Ray Train.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ray

KIND, N, FOLDER, *COMMAND = sys.argv[1:]


@ray.remote(num_cpus=1)
def task(command: list[str]) -> int:
    return subprocess.run(command).returncode


def train(config: dict[str, Any]) -> None:
    subprocess.run(config["command"], check=True)


def main() -> None:
    count = int(N)
    # More than there are, and nothing on a port that somebody else may have.
    ray.init(num_cpus=count + 1, include_dashboard=False, log_to_driver=False, _temp_dir=FOLDER)
    if KIND == "train":
        # Only here: plain tasks need no torch.
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        TorchTrainer(
            train, train_loop_config={"command": COMMAND},
            scaling_config=ScalingConfig(num_workers=count, use_gpu=False),
            run_config=RunConfig(storage_path=f"{FOLDER}/results"),
        ).fit()  # fmt: skip
        return
    tasks = [task.remote([*COMMAND, "--rank", str(rank), "--world-size", str(count)]) for rank in range(count)]
    sys.exit(any(ray.get(tasks)))


if __name__ == "__main__":
    main()
