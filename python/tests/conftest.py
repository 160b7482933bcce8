"""Data that the tests make for themselves."""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest


def png(red: int, green: int, blue: int, side: int = 24) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([red, green, blue]) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two classes, 100 pictures; record i is in the colour (i, 255 - i, class)."""
    root = tmp_path_factory.mktemp("folder")
    for label, name in enumerate(["cat", "dog"]):
        (root / name).mkdir()
        for i in range(50):
            record = label * 50 + i
            (root / name / f"{i:03}.png").write_bytes(png(record, 255 - record, label))
    return str(root)


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Ten pictures of one class, of which number 3 is none."""
    (tmp_path / "one").mkdir()
    for i in range(10):
        (tmp_path / "one" / f"{i}.png").write_bytes(b"no picture" if i == 3 else png(i, i, i))
    return str(tmp_path)


@pytest.fixture
def script() -> Callable[..., subprocess.Popen[str]]:
    """Starts a Python process with a script, which has `infeed`, `LONG` (a long dataset) and `many` (its loader)."""

    def start(body: str) -> subprocess.Popen[str]:
        head = """
            import os, signal, sys, threading, time
            import infeed
            # What runs in the background of a shell has inherited that it is ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            LONG = "synthetic://?count=1000000&height=32&width=32&classes=3"
            many = lambda **more: infeed.Loader(LONG, batch_size=32, num_workers=2, **more)
        """
        text = textwrap.dedent(head) + textwrap.dedent(body)
        return subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start
