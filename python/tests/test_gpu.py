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
    # Unless this machine has one: the system's, or torchvision's, to which the driver is too old.
    found = told == "" or "torchvision.libs" in told and told.count("\n") == 1
    assert found or told.endswith("libnvjpeg.so.13 not found; pip install 'infeed[cuda]'\n"), told


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


PICKED = """
    import sys, types, infeed
    if {torch!r}:
        fake = types.ModuleType("torch")
        fake.cuda = types.SimpleNamespace(is_initialized=lambda: {begun}, current_device=lambda: 2)
        sys.modules["torch"] = fake
    pictures = "synthetic://?count=40&height=8&width=8&classes=2"
    loader = infeed.Loader(pictures, batch_size=4, device={device!r})
    print(*[batch["image"].device for batch in loader], loader.config["device"])
"""


@pytest.mark.parametrize(
    ("torch", "begun", "device", "local_rank", "taken"),
    [
        (False, False, "cuda", None, "cuda:0"),
        (False, False, "cuda", "1", "cuda:1"),
        (False, False, None, "1", "cuda:1"),
        # More processes than GPUs.
        (False, False, "cuda", "4", "cuda:1"),
        (True, False, "cuda", "1", "cuda:1"),
        (True, True, "cuda", "1", "cuda:2"),
        (True, True, "cuda:0", "1", "cuda:0"),
        (True, True, "cpu", "1", "cpu"),
    ],
)
def test_cuda_is_torchs_current_gpu_or_that_of_the_rank(
    mock_gpu: MockGpu, torch: bool, begun: bool, device: str | None, local_rank: str | None, taken: str
) -> None:
    ranks = {}
    if local_rank is not None:
        ranks = {"RANK": local_rank, "WORLD_SIZE": "5", "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": "5"}
    body = PICKED.format(torch=torch, begun=begun, device=device)
    told = set(mock_gpu.run(body, {"INFEED_MOCK_DEVICES": "3", **ranks}).split())
    assert told == {taken}


def test_without_a_gpu_cuda_is_an_error_that_says_what_to_do() -> None:
    body = """
        import infeed
        try:
            infeed.Loader("synthetic://?count=8&height=8&width=8&classes=2", device="cuda")
        except infeed.errors.DeviceError as error:
            print(error)
    """
    told = MockGpu(Path("/nowhere")).run(body, {"CUDA_VISIBLE_DEVICES": ""})
    assert "cuda:0 can't be used: " in told and 'device="cpu"' in told, told
