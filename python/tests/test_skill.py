"""The page for coding assistants: each block of its Python is run as it is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "skills" / "infeed" / "SKILL.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
TORCH = importlib.util.find_spec("torch") is not None


def test_the_page_says_what_it_is_for() -> None:
    head = PAGE.split("---")[1]
    name, description = re.findall(r"^(\w+): (.+)$", head, re.M)
    assert name == ("name", "infeed")
    assert description[0] == "description" and len(description[1]) <= 1024
    assert len(BLOCKS) >= 7


@pytest.mark.parametrize("block", BLOCKS, ids=[block.splitlines()[-1][:40] for block in BLOCKS])
def test_a_block_runs(block: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not TORCH:
        if "infeed.torch" in block:
            pytest.skip("needs torch")
        # The same memory without torch.
        block = block.replace(".torch()", ".numpy()")
    (tmp_path / "data").mkdir()
    for part in ("train", "val"):
        (tmp_path / "data" / part).symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    exec(compile(block, "SKILL.md", "exec"), known)


def test_every_page_is_listed() -> None:
    listed = (ROOT / "llms.txt").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)]+)\)", listed))
    assert all((ROOT / page).is_file() for page in linked)
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - {"docs/README.md"}
    assert pages <= linked, f"not in llms.txt: {sorted(pages - linked)}"
