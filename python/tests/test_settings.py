"""The column for Python in the tables of `docs/configuration.md`."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import infeed
from infeed.loader import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
ROWS = [
    (row[1], [cell.strip() for cell in row[2].split("|")])
    for row in re.finditer(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
]
DEFAULTS = {key: cells[0] for key, cells in ROWS if len(cells) == 2}
OTHER = {key: cells[2] for key, cells in ROWS if len(cells) == 3}
PARAMETERS = inspect.signature(infeed.Loader.__init__).parameters


def test_the_tables_were_found() -> None:
    assert len(DEFAULTS) > 30
    assert len(OTHER) > 10
    assert OTHER.keys() <= DEFAULTS.keys()


@pytest.mark.parametrize("key", DEFAULTS)
def test_python_has_the_setting_with_its_default(key: str) -> None:
    for span in re.findall(r"`([^`]+)`", OTHER.get(key, "")) or [key]:
        name, _, stated = span.partition("=")
        if name == "None":
            continue
        assert name in PARAMETERS or name in Settings.__annotations__, name
        if stated:
            assert PARAMETERS[name].default == ast.literal_eval(stated)
        elif name in PARAMETERS:
            words = DEFAULTS[key].strip("`").replace("false", "False").replace("true", "True")
            chosen = re.match("auto|none|the ", words) or OTHER.get(key)
            assert PARAMETERS[name].default == (None if chosen else ast.literal_eval(words))
