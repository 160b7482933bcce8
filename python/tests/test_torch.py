"""A training script that changes one import: torch's arguments, tensors and samplers; what has no equal is refused."""

from __future__ import annotations

import inspect
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import infeed
import pytest
from conftest import png
from infeed.torch import DataLoader as TheLoader

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
Dataset: Any = data.Dataset
IterableDataset: Any = data.IterableDataset

RECORDS = {"image": "image", "label": "label", "records": "records", "valid": "valid"}


def DataLoader(dataset: Any, *args: Any, **more: Any) -> TheLoader:  # noqa: N802 (it stands for the class)
    """With a transform, since pictures of files may be of any size."""
    return TheLoader(dataset, *args, **{"transform": "center_crop:24", **more})


def records(loader: TheLoader) -> list[list[int]]:
    """Of a loader whose output is `RECORDS`, those that are no padding."""
    return [batch["records"][: batch["valid"]].tolist() for batch in loader]


def flat(batches: list[list[int]]) -> list[int]:
    return [record for batch in batches for record in batch]


def test_arguments_are_those_of_torch_in_its_order() -> None:
    theirs = inspect.signature(data.DataLoader.__init__).parameters
    mine = inspect.signature(TheLoader.__init__).parameters
    of_both = [(it.name, it.kind, it.default) for name, it in mine.items() if name in theirs]
    assert [of[:2] for of in of_both] == [(it.name, it.kind) for it in theirs.values()]
    assert [of[2] for of in of_both] == [it.default for it in theirs.values()]


def test_an_epoch_is_that_of_the_loader(folder: str) -> None:
    loader = DataLoader(folder, 32, True, seed=7)
    plain = infeed.Loader(folder, batch_size=32, shuffle=7, transform="center_crop:24")
    assert len(loader) == len(plain) == 4
    for _ in range(2):
        pairs = list(loader)
        batches = list(plain)
        assert len(pairs) == len(batches)
        for (images, labels), batch in zip(pairs, batches, strict=True):
            assert torch.equal(images, batch["image"].torch()) and torch.equal(labels, batch["label"].torch())
    assert [len(labels) for _, labels in DataLoader(folder, 32, drop_last=True)] == [32, 32, 32]
    assert torch.cat([labels for _, labels in DataLoader(folder, 32)]).tolist() == [0] * 50 + [1] * 50


def test_tensors_are_the_memory_of_the_engine(folder: str) -> None:
    loader = DataLoader(folder, 16)
    batch = next(iter(loader.loader))
    images, labels = loader._hand_out(batch)
    assert images.data_ptr() == batch["image"].numpy().ctypes.data
    assert labels.data_ptr() == batch["label"].numpy().ctypes.data
    images.zero_()
    assert not batch["image"].numpy().any()


def test_a_batch_is_what_output_says(folder: str) -> None:
    def first(**more: Any) -> Any:
        return next(iter(DataLoader(folder, 4, **more)))

    images, labels = first()
    assert tuple(images.shape) == (4, 3, 24, 24) and labels.dtype == torch.int64
    for found in (first(output="tuple"), list(first(output="dict").values())):
        assert torch.equal(found[0], images) and torch.equal(found[1], labels)
    named = first(output={"pixel_values": "image", "labels": "label"})
    assert list(named) == ["pixel_values", "labels"] and torch.equal(named["pixel_values"], images)
    chosen = first(output={"x": "image", "index": "records", "valid": "valid"})
    assert chosen["index"].tolist() == [0, 1, 2, 3] and chosen["index"].dtype == torch.int64 and chosen["valid"] == 4
    # More than two fields have names; in a tuple the views of an image stand in its place.
    views = first(transform="dino")
    assert isinstance(views, dict) and len(views) == 11 and views["image.local7"].ndim == 4
    assert [value.ndim for value in first(transform="dino", output="tuple")] == [4] * 10 + [1]
    with pytest.raises(ValueError, match="no field 'mask': there are image, label, and records"):
        first(output={"masks": "mask"})
    with pytest.raises(ValueError, match="'list'"):
        DataLoader(folder, output="list")


def test_texts_stay_bytes(tmp_path: Path) -> None:
    lines = [json.dumps({"file_name": f"{i}.png", "text": "x" * i}) for i in range(6)]
    (tmp_path / "metadata.jsonl").write_text("\n".join(lines))
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(png(i, i, i))
    images, texts = next(iter(DataLoader(tmp_path, 6)))
    assert len(images) == 6 and texts == [b"x" * i for i in range(6)]


def test_boxes_are_targets_as_detectors_take_them(tmp_path: Path) -> None:
    annotations: list[dict[str, Any]] = []
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png(i, i, i))
        # i boxes in picture i, the last one a crowd.
        for k in range(i):
            outline = [k, 0, k + 2, 0, k + 2, 3, k, 3]
            box = {"bbox": [k, 0, 2, 3], "category_id": 4, "segmentation": [outline], "area": 6, "iscrowd": int(k == 1)}
            annotations.append({"id": 10 + len(annotations), "image_id": 100 + i, **box})
    coco = {
        "images": [{"id": 100 + i, "file_name": f"{i}.png", "width": 24, "height": 24} for i in range(3)],
        "annotations": [annotation for annotation in annotations if not annotation["iscrowd"]],
        "categories": [{"id": 4, "name": "thing"}],
    }
    runs = {"size": [24, 24], "counts": [24, 3, 21, 3, 525]}
    coco["annotations"].append({**annotations[-1], "segmentation": runs})
    (tmp_path / "_annotations.coco.json").write_text(json.dumps(coco))

    images, targets = next(iter(DataLoader(infeed.open(tmp_path, masks=True), 3)))
    assert len(images) == len(targets) == 3
    assert [len(target["boxes"]) for target in targets] == [0, 1, 2]
    assert [target["image_id"] for target in targets] == [100, 101, 102]
    last = targets[2]
    assert last["boxes"].tolist() == [[0, 0, 2, 3], [1, 0, 3, 3]] and last["boxes"].dtype == torch.float32
    assert last["labels"].tolist() == [0, 0] and last["ids"].tolist() == [11, 12]
    assert last["iscrowd"].tolist() == [False, True] and last["size"].tolist() == [24, 24]
    # Three rows, two columns each: of a polygon, and of a crowd's runs.
    assert tuple(last["masks"].shape) == (2, 24, 24) and last["masks"].dtype == torch.uint8
    for mask, left in zip(last["masks"], [0, 1], strict=True):
        want = torch.zeros(24, 24, dtype=torch.uint8)
        want[:3, left : left + 2] = 1
        assert torch.equal(mask, want)
    assert tuple(targets[0]["masks"].shape) == (0, 24, 24) and tuple(targets[0]["boxes"].shape) == (0, 4)

    plain = next(iter(DataLoader(infeed.open(tmp_path), 3, output="dict")))
    assert list(plain) == ["image", "instances", "image_id"] and plain["image_id"].tolist() == [100, 101, 102]
    assert "masks" not in plain["instances"][2] and torch.equal(plain["instances"][2]["boxes"], last["boxes"])
    # Outlines lie on the row, also where it is larger than the image.
    padded = next(iter(DataLoader(infeed.open(tmp_path, masks=True), 3, transform="pad_to:32")))[1]
    assert [tuple(target["masks"].shape) for target in padded] == [(i, 32, 32) for i in range(3)]
    assert padded[2]["size"].tolist() == [24, 24] and torch.equal(padded[2]["masks"][:, :24, :24], last["masks"])


class Stream(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"collate_fn": list}, "collate_fn .*batch_transform"),
        ({"worker_init_fn": print}, "worker_init_fn .*seed="),
        ({"multiprocessing_context": "spawn"}, "multiprocessing_context .*no worker processes"),
        ({"timeout": 5}, "timeout .*patience"),
        ({"in_order": False}, "in_order=False .*in order"),
        ({"batch_size": None}, "batch_size=None .*batch_size=1"),
        ({"dataset": Stream()}, "IterableDataset .*__getitem__"),
        ({"generator": torch.Generator(), "seed": 1}, "seed and generator"),
        ({"num_workers": 2, "prefetch_factor": 2, "prefetch": 1}, "prefetch and prefetch_factor"),
        ({"workers": 1}, "num_workers"),
        ({"nothing": 1}, "nothing"),
    ],
)
def test_what_has_no_equal_is_refused_by_name(folder: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        DataLoader(**{"dataset": folder, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prefetch_factor": 2}, "num_workers"),
        ({"pin_memory_device": "xpu"}, "xpu"),
        ({"sampler": [1], "shuffle": True}, "shuffle"),
        ({"batch_sampler": [[1]], "sampler": [1]}, "batch_sampler"),
        ({"batch_sampler": [[1]], "batch_size": 2, "shuffle": True}, "shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2, "drop_last": True}, "drop_last"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DataLoader(folder, **arguments)


def test_threads_and_batches_ahead_are_those_of_the_arguments(folder: str) -> None:
    config = DataLoader(folder, 4, num_workers=2, prefetch_factor=3, persistent_workers=True).loader.config
    assert (config["workers"], config["prefetch"]) == (2, 6)


def test_a_generator_gives_the_seed(folder: str) -> None:
    def order(**more: Any) -> list[list[int]]:
        return records(DataLoader(folder, 10, True, output=RECORDS, **more))

    made = torch.Generator().manual_seed(2**63 + 5)
    assert order(generator=made) == order(seed=2**63 + 5) != order()
    assert order() == order(seed=0)


def test_trainers_call_set_epoch_of_the_sampler(folder: str) -> None:
    loader = DataLoader(folder, 10, True, output=RECORDS)
    want = [records(loader) for _ in range(4)]
    assert len({json.dumps(epoch) for epoch in want}) == 4
    loader.sampler.set_epoch(2)
    assert records(loader) == want[2]
    loader.set_epoch(1)
    assert [records(loader) for _ in range(3)] == want[1:]


def test_the_loader_says_what_it_was_given(folder: str) -> None:
    loader = DataLoader(folder, 10, num_workers=2, drop_last=True)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (10, 2, True, False)
    assert len(loader.dataset) == 100 and loader.dataset.classes == ["cat", "dog"]
    assert isinstance(loader.loader, infeed.Loader)
    # Who finds one takes the loader apart.
    assert not hasattr(loader, "batch_sampler")
    assert not isinstance(loader, data.DataLoader)
    assert "100 records" in repr(loader)


def test_a_state_goes_on_behind_the_last_batch(folder: str) -> None:
    whole = DataLoader(folder, 10, True, output=RECORDS)
    want = [records(whole), records(whole)]
    loader = DataLoader(folder, 10, True, output=RECORDS)
    for step, _ in enumerate(loader):
        if step == 3:
            break
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["position"]) == (0, 40)

    other = DataLoader(folder, 10, True, output=RECORDS)
    other.load_state_dict(state)
    assert len(other) == 10
    # As Lightning and the Trainer do behind it.
    other.sampler.set_epoch(0)
    other.set_epoch(0)
    assert records(other) == want[0][4:]
    assert records(other) == want[1]
    with pytest.raises(ValueError):
        DataLoader(folder, 10).load_state_dict(state)
    with pytest.raises(infeed.errors.StateError):
        other.load_state_dict({})


def test_a_loop_that_is_left_is_over(folder: str) -> None:
    loader = DataLoader(folder, 10, True, output=RECORDS)
    want = [records(loader), records(loader)]
    loader = DataLoader(folder, 10, True, output=RECORDS)
    for batch in loader:
        assert batch["records"].tolist() == want[0][0]
        break
    assert records(loader) == want[1]
    with loader:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        iter(loader)


def test_a_copy_by_pickle_has_arguments_and_place(folder: str) -> None:
    loader = DataLoader(folder, 10, True, output=RECORDS)
    want = [records(pickle.loads(pickle.dumps(loader))), records(loader)]
    assert want[0] == want[1]
    loader = DataLoader(folder, 10, True, output=RECORDS)
    next(iter(loader))
    copy = pickle.loads(pickle.dumps(loader))
    assert records(copy) == want[0][1:]
    assert copy.batch_size == 10
    # Its sampler is that of the copy.
    copy.sampler.set_epoch(0)
    assert records(copy) == want[0]


def test_ranks_share_without_a_sampler(folder: str) -> None:
    ranks = [DataLoader(folder, 16, True, output=RECORDS, rank=rank, world_size=3) for rank in range(3)]
    steps = [records(loader) for loader in ranks]
    assert [len(loader) for loader in ranks] == [len(batches) for batches in steps] == [3, 3, 3]
    assert sorted(flat([flat(batches) for batches in steps])) == list(range(100))


def test_ranks_may_have_a_sampler_of_torch(folder: str) -> None:
    samplers = [data.DistributedSampler(range(100), num_replicas=2, rank=rank, seed=3) for rank in range(2)]
    loaders = [DataLoader(folder, 8, sampler=sampler, output=RECORDS) for sampler in samplers]
    assert [loader.sampler for loader in loaders] == samplers
    for epoch in (0, 5):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        got = [records(loader) for loader in loaders]
        theirs = [data.DataLoader(range(100), 8, sampler=sampler) for sampler in samplers]
        assert got == [[batch.tolist() for batch in loader] for loader in theirs]
        assert [len(loader) for loader in loaders] == [len(loader) for loader in theirs] == [7, 7]
        assert sorted(flat(got[0]) + flat(got[1])) == list(range(100))
    # As with torch's loader, whoever does not call `set_epoch` gets the same again; the loader's own does so.
    assert [records(loader) for loader in loaders] == got
    loaders[0].set_epoch(0)
    assert samplers[0].epoch == 0 and records(loaders[0]) != got[0]


def test_a_state_in_a_sampler_is_of_its_epoch(folder: str) -> None:
    def made() -> TheLoader:
        sampler = data.DistributedSampler(range(100), num_replicas=2, rank=1, seed=3)
        return DataLoader(folder, 8, sampler=sampler, output=RECORDS)

    loader = made()
    want = []
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        want.append(records(loader))
    loader = made()
    loader.set_epoch(1)
    for step, _ in enumerate(loader):
        if step == 2:
            break
    other = made()
    other.load_state_dict(loader.state_dict())
    other.sampler.set_epoch(1)
    assert records(other) == want[1][3:]
    other.set_epoch(2)
    assert records(other) == want[2]


def test_batch_samplers_make_the_batches(folder: str) -> None:
    sampler = data.BatchSampler(data.DistributedSampler(range(100), 2, 0), 30, drop_last=False)
    loader = DataLoader(folder, batch_sampler=sampler, output=RECORDS)
    assert loader.batch_size is None and loader.batch_sampler is sampler and len(loader) == 2
    first = records(loader)
    assert first == list(sampler)
    # That of the sampler inside.
    loader.set_epoch(1)
    assert sampler.sampler.epoch == 1 and records(loader) == list(sampler) != first
    mixed = [[1, 2, 3], [9], [4, 4]]
    assert records(DataLoader(folder, 3, batch_sampler=mixed, output=RECORDS)) == mixed


class Pictures(Dataset):  # type: ignore[misc]
    """What `folder` has."""

    classes = ["cat", "dog"]

    def __len__(self) -> int:
        return 100

    def __getitem__(self, i: int) -> tuple[bytes, int]:
        return png(i, 255 - i, i // 50), i // 50


def test_datasets_of_torch_are_taken(folder: str) -> None:
    dataset = Pictures()
    loader = DataLoader(dataset, 10, True)
    assert loader.dataset is dataset
    for (images, labels), (theirs, others) in zip(loader, DataLoader(folder, 10, True), strict=True):
        assert torch.equal(images, theirs) and torch.equal(labels, others)


def test_batches_are_transformed_as_the_loop_gets_them(folder: str) -> None:
    def one_less(batch: tuple[Any, Any]) -> tuple[Any, Any]:
        images, labels = batch
        return images, labels - 1

    pairs = list(DataLoader(folder, 50, batch_transform=one_less))
    assert [labels.tolist() for _, labels in pairs] == [[-1] * 50, [0] * 50]


def test_torchvisions_mixup_takes_batches(folder: str) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    mixed = DataLoader(folder, 20, True, batch_transform=v2.MixUp(num_classes=2))
    for images, labels in mixed:
        assert tuple(images.shape) == (20, 3, 24, 24) and tuple(labels.shape) == (20, 2)
        assert torch.allclose(labels.sum(1), torch.ones(20))


def test_functions_and_settings_of_the_loader_are_passed_on(folder: str) -> None:
    def invert(sample: dict[str, Any]) -> None:
        sample["image"][...] = 255 - sample["image"]

    settings: dict[str, Any] = {"dtype": "uint8", "channels_last": True}
    plain, _ = next(iter(DataLoader(folder, 4, **settings)))
    inverted, _ = next(iter(DataLoader(folder, 4, map=invert, **settings)))
    assert plain.dtype == torch.uint8 and plain.shape[-1] == 3
    assert torch.equal(inverted, 255 - plain)


def test_memory_is_pinned_where_there_is_a_gpu(folder: str) -> None:
    if torch.cuda.is_available():
        images, _ = next(iter(DataLoader(folder, 10, pin_memory=True, pin_memory_device="cuda")))
        assert images.is_pinned()
        return
    with pytest.warns(RuntimeWarning, match="pin_memory"):
        loader = DataLoader(folder, 10, pin_memory=True)
    assert loader.pin_memory and len(list(loader)) == 10


def test_accelerate_leaves_it_alone(folder: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    loader = DataLoader(folder, 10, True)
    prepared, _ = accelerate.Accelerator(cpu=True).prepare(loader, torch.nn.Linear(1, 1))
    assert prepared is loader


def test_global_seeds_change_nothing(folder: str) -> None:
    orders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        random.seed(seed)
        orders.append(records(DataLoader(folder, 10, True, output=RECORDS)))
    assert orders[0] == orders[1]
