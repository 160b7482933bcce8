"""The examples run as they stand, each where its framework is installed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(example: str, *arguments: str, needs: str, by: str = "", **environment: str) -> str:
    """What an example prints, started `by` such arguments of Python. Skipped where what it `needs` is not installed."""
    for package in needs.split():
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    # Several libraries start as many threads as there are cores, each; and nobody here is to be asked by network.
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    ended = subprocess.run(
        [sys.executable, *by.split(), str(EXAMPLES / example), *arguments],
        env={**os.environ, **quiet, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def losses(printed: str, samples: int) -> list[float]:
    """The losses of epochs that had as many samples, which are finite and have fallen."""
    found = re.findall(r"epoch \d+: loss (\S+) over (\d+) samples", printed)
    assert found and {int(seen) for _, seen in found} == {samples}, printed
    values = [float(loss) for loss, _ in found]
    assert all(map(math.isfinite, values)) and values[-1] < values[0], printed
    return values


def assert_resumed(printed: str, steps: int, middle: int) -> None:
    """A run from the middle did what the whole run did: its records and losses are compared by the example."""
    words = rf"{steps} steps; from the \w+ after step {middle}, {steps - middle} more, the same: True"
    assert re.search(words, printed), printed


def test_imagenet_as_torchvision_trains_it(folder: str, tmp_path: Path) -> None:
    size = ["--model", "resnet18", "--crop-size", "32", "--lr", "0.003"]
    checkpoint = ["--checkpoint", str(tmp_path / "last.pt")]
    command = ["imagenet_torch.py", folder, folder, *size, *checkpoint]
    printed = run(*command, "--epochs", "3", needs="torch torchvision")
    assert len(losses(printed, samples=100)) == 3
    # From its checkpoint it does what is left.
    printed = run(*command, "--epochs", "4", needs="torch torchvision")
    assert re.findall(r"epoch (\d+): loss", printed) == ["3"]
    assert re.search(r"epoch 3: accuracy [01]\.\d+", printed)


def test_several_processes_share_an_epoch_in_equal_steps(folder: str) -> None:
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2"
    printed = run("ddp_torch.py", folder, needs="torch", by=torchrun)
    for epoch in range(2):
        assert f"epoch {epoch}: 100 records, each once: True; steps of the ranks: [4, 4]" in printed


def test_lightning_goes_on_in_the_middle_of_an_epoch(folder: str) -> None:
    printed = run("lightning_resume.py", folder, needs="torch lightning")
    assert_resumed(printed, steps=14, middle=9)


def test_accelerate_goes_on_in_the_middle_of_an_epoch(folder: str) -> None:
    printed = run("accelerate_train.py", folder, needs="torch accelerate", ACCELERATE_USE_CPU="true")
    assert_resumed(printed, steps=21, middle=9)
    whole = "".join(printed.splitlines(keepends=True)[:3])
    assert len(losses(whole, samples=100)) == 3


def test_the_trainer_goes_on_in_the_middle_of_an_epoch(folder: str) -> None:
    printed = run("huggingface_trainer.py", folder, needs="torch accelerate transformers")
    assert_resumed(printed, steps=21, middle=9)
    told = re.search(r"losses: (\S+) (\S+) (\S+)", printed)
    assert told and float(told[3]) < float(told[1]) < math.inf


def test_workers_of_ray_share_an_epoch(folder: str, tmp_path: Path) -> None:
    # Where its results go.
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
    printed = run("ray_train.py", folder, needs="torch ray", **environment)
    for epoch in range(2):
        assert f"epoch {epoch}: 100 records over 2 ranks, each once: True" in printed


def test_jax_trains(folder: str) -> None:
    # Without the last 4, which do not fill a batch.
    assert len(losses(run("jax_train.py", folder, needs="jax"), samples=96)) == 3


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_takes_it(folder: str, backend: str) -> None:
    printed = run("keras_train.py", folder, needs=f"keras {backend}", KERAS_BACKEND=backend)
    values = [float(loss) for loss in re.findall(r"^7/7 .* loss: (\S+)", printed, re.MULTILINE)]
    assert len(values) == 3 and values[2] < values[0] < math.inf, printed
