"""Data that the tests make for themselves."""

from __future__ import annotations

import os
import shutil
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


class MockGpu:
    """The mock driver of the Rust tests, and beside it a made-up `site-packages` with the mock nvJPEG."""

    def __init__(self, root: Path) -> None:
        self.driver = root / "driver"
        self.site = root / "site"

    def run(self, body: str, env: dict[str, str] | None = None, *, nvjpeg: bool = True) -> str:
        """What a script prints, in a process that finds the mock; `env` steers it."""
        env = {"LD_LIBRARY_PATH": str(self.driver), "INFEED_MOCK_STRICT": "1", "INFEED_MOCK_PIXELS": "100", **(env or {})}
        if nvjpeg:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(body)], env={**os.environ, **env}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def mock_gpu(tmp_path_factory: pytest.TempPathFactory) -> MockGpu:
    """A GPU that is host memory, where there are its sources and a C++ compiler."""
    root = Path(__file__).parents[2]
    sources = root / "integration" / "support" / "mock"
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if sys.platform != "linux" or compiler is None or not sources.is_dir():
        pytest.skip("there is no mock GPU without its sources and a C++ compiler, on Linux")
    mock = MockGpu(tmp_path_factory.mktemp("gpu"))
    nvjpeg = mock.site / "nvidia" / "cu13" / "lib"
    nvjpeg.mkdir(parents=True)
    mock.driver.mkdir()
    # As `integration/support/mock.rs` does it, but for the kernels' exact products.
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", "-s", "-Wl,-Bsymbolic", "-I", str(sources)]
    made = {
        mock.driver / "libcuda.so.1": ["control", "copies", "driver", "kernels", "memory", "streams"],
        nvjpeg / "libnvjpeg.so.13": ["decode", "nvjpeg", "pixels"],
    }
    # As `cargo test` has built it, if that was after the last change.
    target = Path(os.environ.get("CARGO_TARGET_DIR") or root / "target")
    changed = max(path.stat().st_mtime for path in [*sources.iterdir(), *(root / "crates/infeed-cuda/src/cuda").glob("*.cu")])
    built = [path.parent for path in target.glob("tmp/infeed-mock-*/libnvjpeg.so.13") if path.stat().st_mtime > changed]
    for library, files in made.items():
        if built:
            shutil.copy(built[0] / library.name, library)
            continue
        names = [str(sources / f"{name}.cpp") for name in files]
        command = [compiler, *flags, f"-Wl,-soname,{library.name}", *names, "-o", str(library), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return mock
