"""Zero copy, lifetimes, and who may write."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from infeed import Loader

numpy = pytest.importorskip("numpy")


def loader(folder: str, **more: Any) -> Loader:
    return Loader(folder, batch_size=10, shuffle=1, transform="center_crop:24", **more)


def test_all_see_the_same_memory(folder: str) -> None:
    torch = pytest.importorskip("torch")
    image = next(iter(loader(folder)))["image"]
    assert (image.dtype, image.device, len(image)) == ("float32", "cpu", 10)
    mine, theirs = image.torch(), image.numpy()
    assert mine.data_ptr() == theirs.ctypes.data == torch.from_dlpack(image).data_ptr()
    assert mine.data_ptr() % 64 == 0
    assert tuple(mine.shape) == theirs.shape == image.shape
    # A sole owner may write, and everybody sees it.
    theirs[0, 0, 0, 0] = 5
    assert mine[0, 0, 0, 0] == 5
    mine.zero_()
    assert not theirs.any()


def test_jax_sees_it_too(folder: str) -> None:
    jax = pytest.importorskip("jax")
    batch = next(iter(loader(folder)))
    mine, theirs = batch["image"].numpy(), batch["image"].jax()
    assert isinstance(theirs, jax.Array)
    assert theirs.unsafe_buffer_pointer() == mine.ctypes.data
    assert (numpy.asarray(theirs) == mine).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_types_have_their_names(folder: str, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    image = next(iter(loader(folder, dtype=dtype)))["image"]
    assert image.dtype == dtype
    assert image.torch().dtype == getattr(torch, dtype)
    if dtype == "bfloat16":
        with pytest.raises(TypeError, match="bfloat16"):
            image.numpy()
    else:
        assert image.numpy().dtype == getattr(numpy, dtype)


def test_kept_tensors_never_change_and_outlive_their_loader(folder: str) -> None:
    here = loader(folder, prefetch=2)
    kept, copies, addresses = [], [], set()
    for _ in range(3):
        for i, batch in enumerate(here):
            array = batch["image"].numpy()
            addresses.add(array.ctypes.data)
            if i % 2:
                kept.append(array)
                copies.append(array.copy())
            del batch, array
    here.close()
    del here
    gc.collect()
    assert all((a == b).all() for a, b in zip(kept, copies, strict=True))
    assert len({array.ctypes.data for array in kept}) == len(kept)
    # What was dropped was used again.
    assert len(addresses) < 30


def test_capsules_that_nobody_takes_are_freed(folder: str) -> None:
    here = loader(folder, prefetch=1)
    for batch in here:
        for version in (None, (1, 0)):
            for _ in range(1000):
                batch["image"].__dlpack__(max_version=version)
    assert batch["image"].__dlpack_device__() == (1, 0)


def test_numpy_asks_as_it_does(folder: str) -> None:
    image = next(iter(loader(folder)))["image"]
    same = image.numpy()
    assert numpy.asarray(image).ctypes.data == same.ctypes.data
    assert numpy.array(image, copy=True).ctypes.data != same.ctypes.data
    wider = numpy.asarray(image, dtype="float64")
    assert wider.dtype == numpy.float64 and (wider == same).all()
    with pytest.raises(ValueError, match="copy"):
        image.__array__("float64", copy=False)


def test_what_dlpack_cannot_do_is_a_buffer_error(folder: str) -> None:
    image = next(iter(loader(folder)))["image"]
    with pytest.raises(BufferError, match="copy"):
        image.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="cpu"):
        image.__dlpack__(dl_device=(2, 0))
