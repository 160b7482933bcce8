"""Functions of the user's: on samples, by the engine's threads; on batches, by the loop's."""

from __future__ import annotations

import threading
from typing import Any

import infeed
import pytest

numpy = pytest.importorskip("numpy")


def Loader(data: Any, **more: Any) -> infeed.Loader:  # noqa: N802 (it stands for the class)
    settings = {"transform": "center_crop:24", "dtype": "uint8", "channels_last": True, "batch_size": 10}
    return infeed.Loader(data, **{**settings, **more})


def test_a_function_changes_samples_in_place(folder: str) -> None:
    def invert(sample: dict[str, Any]) -> None:
        numpy.subtract(255, sample["image"], out=sample["image"])
        sample["label"] += 1

    for batch in Loader(folder, map=invert, shuffle=1):
        for image, label, record in zip(batch["image"].numpy(), batch["label"].numpy(), batch.records):
            assert (image == [255 - record, record, 255 - record // 50]).all()
            assert label == record // 50 + 1


def test_a_function_may_give_other_arrays_back(folder: str) -> None:
    def half(sample: dict[str, Any]) -> dict[str, Any]:
        return {"image": sample["image"] // 2}

    def replaced(sample: dict[str, Any]) -> None:
        sample["image"] = sample["image"][:, ::-1] // 2

    want = numpy.concatenate([batch["image"].numpy() // 2 for batch in Loader(folder)])
    for function in (half, replaced):
        got = numpy.concatenate([batch["image"].numpy() for batch in Loader(folder, map=function)])
        assert (got == want).all()


def test_a_seed_is_the_samples_own(folder: str) -> None:
    def noise(sample: dict[str, Any], seed: int) -> None:
        sample["image"][...] = numpy.random.default_rng(seed).integers(0, 256, sample["image"].shape)

    def epochs(**more: Any) -> list[dict[int, bytes]]:
        loader = Loader(folder, map=noise, shuffle=1, seed=5, **more)
        found: list[dict[int, bytes]] = []
        for _ in range(2):
            found.append({})
            for batch in loader:
                found[-1].update(zip(batch.records, [row.tobytes() for row in batch["image"].numpy()]))
        return found

    first = epochs(num_workers=1)
    assert first == epochs(num_workers=3, prefetch=1)
    assert len(set(first[0].values())) == 100 and not set(first[0].values()) & set(first[1].values())


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda sample: {"image": sample["image"][:3]}, ValueError, "keep type and shape"),
        (lambda sample: {"image": sample["image"].astype("float32")}, ValueError, "keep type and shape"),
        (lambda sample: {"picture": 1}, ValueError, "image, label"),
        (lambda sample: 5, ValueError, "return a dict"),
        (lambda sample: 1 / 0, infeed.errors.CorruptError, "ZeroDivisionError"),
        (lambda a, b, c: None, TypeError, "3 arguments"),
        (5, TypeError, "map=5: must be a function"),
    ],
)
def test_what_a_function_cannot_do_is_told(folder: str, function: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as told:
        list(Loader(folder, map=function))
    if "ZeroDivision" in words:
        assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_an_exception_makes_a_bad_sample(folder: str) -> None:
    def picky(sample: dict[str, Any]) -> None:
        if sample["image"][0, 0, 0] == 7:
            raise ValueError("not this one")

    batches = list(Loader(folder, map=picky, on_bad_sample={"skip": {"at_most": 1}}))
    assert sorted(record for batch in batches for record in batch.records) == [i for i in range(100) if i != 7]


def test_batches_are_what_a_function_makes_of_them(folder: str) -> None:
    threads = set()

    def pair(batch: infeed.Batch) -> tuple[Any, Any]:
        threads.add(threading.get_ident())
        return batch["image"].numpy(), batch["label"].numpy()

    loader = Loader(folder, batch_transform=pair)
    found = list(loader)
    assert [len(labels) for _, labels in found] == [10] * 10
    assert threads == {threading.get_ident()}
    # The place is that of the batch.
    assert loader.state_dict()["epoch"] == 1

    def fails(batch: infeed.Batch) -> None:
        raise KeyError("mine")

    loader = Loader(folder, batch_transform=fails)
    with pytest.raises(KeyError, match="mine"):
        next(iter(loader))


def test_bfloat16_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match="bfloat16"):
        Loader(folder, dtype="bfloat16", map=lambda sample: None)


def test_what_is_raised_to_end_the_program_stays_itself(folder: str) -> None:
    for kind in (KeyboardInterrupt, SystemExit):

        def end(_sample: Any, kind: type[BaseException] = kind) -> None:
            raise kind("by the user")

        with pytest.raises(kind, match="by the user"):
            next(iter(Loader(folder, map=end, on_bad_sample="substitute")))
