"""What `docs/coming-from.md` says in its columns for Python is done."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import infeed
import infeed.transforms
from infeed.loader import Options, Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
URL = "synthetic://?count=64&height=32&width=32&classes=2"
LOADER = {*inspect.signature(infeed.Loader.__init__).parameters, *Settings.__annotations__}
OPEN = {*inspect.signature(infeed.open).parameters, *Options.__annotations__}


def spans() -> list[str]:
    """Code in the second cell of each row of the tables that have a column for Python."""
    found: list[str] = []
    ours = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            ours = False
        elif cells[1:2] == ["in Python"]:
            ours = True
        elif ours:
            found += re.findall(r"`([^`]+)`", cells[1])
    return found


def call(span: str) -> ast.Call | None:
    """Of `a=1, b=2` the arguments; None of all else."""
    try:
        parsed = ast.parse(f"f({span})", mode="eval").body
    except SyntaxError:
        return None
    return parsed if isinstance(parsed, ast.Call) and parsed.keywords and not parsed.args else None


def load(**arguments: Any) -> None:
    given = {"batch_size": 8, "transform": infeed.transforms.Resize((16, 16)), **arguments}
    batch = next(iter(infeed.Loader(URL, **given)))
    assert batch.size == min(given["batch_size"], 64)


def test_the_page_has_its_columns() -> None:
    assert len(spans()) > 50


@pytest.mark.parametrize("span", sorted(set(spans())))
def test_what_is_named_is_there(span: str, folder: str) -> None:
    known: dict[str, Any] = {"infeed": infeed, "dir": folder, "url": URL, "loader": infeed.Loader(URL)}
    if re.fullmatch(r"\w+=", span):
        assert span[:-1] in LOADER
    elif arguments := call(span):
        for keyword in arguments.keywords:
            assert keyword.arg in LOADER | OPEN, span
        values = {str(k.arg): eval(compile(ast.Expression(k.value), span, "eval"), known) for k in arguments.keywords}
        # Not every machine has a GPU.
        needs_gpu = values.get("device") == "cuda" or "decode" in values or "gpu_split" in values or values.get("pin_memory")
        if values.keys() <= LOADER and not needs_gpu:
            load(**values)
    elif span == "loader.load_state_dict(state)":
        state = infeed.Loader(URL, batch_size=8).state_dict()
        infeed.Loader(URL, batch_size=8).load_state_dict(state)
    elif span.startswith("infeed.Loader(") and ".tar" not in span:
        eval(span, known)
    elif span == 'batch["image"].torch()':
        assert hasattr(infeed.Tensor, "torch")
    elif span.startswith(("infeed.transforms.", "infeed.open", "loader.")):
        eval(span, known)
    elif span.startswith("infeed ") or span.startswith("--"):
        # The command line's, which `integration/first_hour` looks up.
        pass
    else:
        others = {"for", "image", "label", "map", "wds2idx", "Compose", "__len__", "__getitem__", "infeed.torch.DataLoader"}
        assert span in others or span.startswith('infeed.Loader("train-{'), f"this test does not try {span}"
