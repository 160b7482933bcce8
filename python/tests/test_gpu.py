"""On a GPU that is host memory: which one is taken, and what is told when it can't decode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MockGpu
from infeed.libraries import nvjpeg_folders


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight JPEGs."""
    folder = tmp_path_factory.mktemp("jpegs") / "photos"
    made = [sys.executable, "-m", "infeed", "synth", "imagenet", str(folder), "--count", "8"]
    subprocess.run(made, check=True, capture_output=True)
    return str(folder)


def test_folders_of_nvjpeg_are_those_that_pip_makes(tmp_path: Path) -> None:
    places = ["one/nvidia/cu13/lib", "one/torchvision.libs", "two/nvidia/nvjpeg/lib", "two/nvidia/cu13/include"]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
    path = [str(tmp_path / name) for name in ("nowhere", "two", "one")]
    assert nvjpeg_folders(path) == [str(tmp_path / places[i]) for i in (2, 0, 1)]


def test_nothing_is_imported_to_find_them() -> None:
    body = """
        import sys, infeed.libraries
        before = set(sys.modules)
        infeed.libraries.nvjpeg_folders()
        assert set(sys.modules) == before
    """
    MockGpu(Path()).run(body)


WARNED = """
    import warnings, infeed
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            loader = infeed.Loader({photos!r}, batch_size=4, transform="resize_exact:8", device="cuda")
            for batch in loader:
                assert batch["image"].device == "cuda:0"
    for it in told:
        print(it.category.__name__, it.filename, it.message)
"""


def test_jpegs_that_the_cpu_decodes_for_want_of_nvjpeg_are_one_warning(mock_gpu: MockGpu, photos: str) -> None:
    body = WARNED.format(photos=photos)
    lines = mock_gpu.run(body, {"INFEED_NVJPEG": "/nowhere/libnvjpeg.so.13"}, nvjpeg=False).splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("UserWarning <string> JPEGs are decoded on the CPU: INFEED_NVJPEG: /nowhere/"), lines
    told = mock_gpu.run(body, nvjpeg=False)
    # Unless this machine has one that the system's loader finds.
    assert told == "" or told.endswith("libnvjpeg.so.13 not found; pip install 'infeed[cuda]'\n"), told


def test_nvjpeg_is_found_where_pip_puts_it(mock_gpu: MockGpu, photos: str) -> None:
    # Without the video decoder's library the engines are missed; that is another matter.
    told = mock_gpu.run(WARNED.format(photos=photos))
    assert told == "" or "libnvcuvid" in told, told
    told = mock_gpu.run("""
        import sys, infeed.__main__
        sys.argv[1:] = ["inspect", "--devices"]
        sys.exit(infeed.__main__.main())
    """)
    assert "nvJPEG 13" in told and "/nvidia/cu13/lib/libnvjpeg.so.13" in told, told
