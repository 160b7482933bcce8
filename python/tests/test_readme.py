"""The Python of both READMEs, run word for word on small data."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import infeed
import infeed.transforms as T

ROOT = Path(__file__).resolve().parents[2]


def block(page: str, first: str) -> str:
    """The block of Python that begins with this line."""
    found: list[str] = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    [text] = [text for text in found if text.startswith(first)]
    # The same memory for those who have no torch.
    return text if importlib.util.find_spec("torch") else text.replace(".torch()", ".numpy()")


def replaced(text: str, this: str, that: str) -> str:
    assert this in text, f"the README has no {this!r} any more: mend this test"
    return text.replace(this, that)


def small(text: str) -> str:
    return replaced(replaced(text, "batch_size=256", "batch_size=10"), "range(90)", "range(2)")


def test_the_loop_of_the_readme_trains_and_goes_on_behind_its_checkpoint(folder: str) -> None:
    code = replaced(small(block("README.md", "import infeed\n")), "/data/imagenet/train", folder)
    seen: list[Any] = []
    known: dict[str, Any] = {"step": lambda images, labels: seen.append((tuple(images.shape), tuple(labels.shape)))}
    exec(compile(code, "README.md", "exec"), known)
    assert seen == [((10, 3, 224, 224), (10,))] * 20

    again = infeed.Loader(folder, batch_size=10, shuffle=42, transform="imagenet-train")
    again.load_state_dict(known["checkpoint"])
    batch = next(iter(again))
    assert (batch.epoch, batch["image"].shape[0]) == (2, 10)


def test_the_loop_of_the_package_trains(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    exec(compile(small(block("python/README.md", "import infeed\n")), "python/README.md", "exec"), known)
    assert tuple(known["images"].shape) == (10, 3, 224, 224)
    assert tuple(known["labels"].shape) == (10,)


def test_data_and_code_of_ones_own() -> None:
    code = replaced(block("python/README.md", "class Scans"), "10_000", "128")
    known: dict[str, Any] = {
        "infeed": infeed,
        "numpy": numpy,
        "T": T,
        "read": lambda i: numpy.full((300, 260, 3), i, "uint8"),
        "label": lambda i: i % 7,
    }
    exec(compile(code, "python/README.md", "exec"), known)
    batches = list(known["loader"])
    assert [tuple(batch["image"].shape) for batch in batches] == [(64, 3, 224, 224)] * 2
    assert sorted(label for batch in batches for label in batch["label"].numpy().tolist()) == sorted(i % 7 for i in range(128))
