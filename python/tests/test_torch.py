"""torch's `DataLoader` over what the engine reads: torch's arguments, tensors and samplers."""

from __future__ import annotations

import inspect
import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import infeed
import pytest
from conftest import png

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")

from infeed.torch import DataLoader as TheLoader  # noqa: E402 (torch is needed)

Dataset: Any = data.Dataset
IterableDataset: Any = data.IterableDataset

RECORDS = {"image": "image", "label": "label", "records": "records", "valid": "valid"}


def DataLoader(dataset: Any, *args: Any, **more: Any) -> TheLoader[Any]:  # noqa: N802 (it stands for the class)
    """With a transform, since pictures of files may be of any size."""
    return TheLoader(dataset, *args, **{"transform": "center_crop:24", **more})


def records(loader: TheLoader[Any]) -> list[list[int]]:
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
    images, labels = loader.dataset.collated(batch)
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


def test_texts_are_str(tmp_path: Path) -> None:
    lines = [json.dumps({"file_name": f"{i}.png", "text": "x" * i}) for i in range(6)]
    (tmp_path / "metadata.jsonl").write_text("\n".join(lines))
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(png(i, i, i))
    images, texts = next(iter(DataLoader(tmp_path, 6)))
    assert len(images) == 6 and texts == ["x" * i for i in range(6)]


def test_lists_are_tensors_for_each_row_or_nested(tmp_path: Path) -> None:
    tokens = [list(range(i % 4)) for i in range(6)]

    class Data:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"tokens": tokens[i], "y": i}

    data = infeed.open(Data(), fields={"tokens": "list", "y": "label"})
    batch = next(iter(TheLoader(data, 6, output="dict")))
    assert [row.tolist() for row in batch["tokens"]] == tokens and batch["y"].tolist() == list(range(6))
    nested = next(iter(TheLoader(data, 6, output="dict", nested=True)))["tokens"]
    assert nested.is_nested and [row.tolist() for row in nested.unbind()] == tokens
    padded = next(iter(TheLoader(data, 6, output="dict", pad={"tokens": 0})))
    assert padded["tokens"].shape == (6, 3) and padded["tokens.lengths"].tolist() == [len(row) for row in tokens]
    # One sample, and samples for a function.
    for is_nested in (False, True):
        sample = TheLoader(data, 6, output="dict", nested=is_nested).dataset[2]
        assert sample["tokens"].tolist() == [0, 1] and sample["y"] == 2
    collated = next(iter(TheLoader(data, 6, output="dict", collate_fn=lambda rows: [len(row["tokens"]) for row in rows])))
    assert collated == [len(row) for row in tokens]


def test_several_images_a_record_are_a_tensor_for_each_row(tmp_path: Path) -> None:
    class Data:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"images": [png(i, k, 9) for k in range(i + 1)], "words": ["a"] * i + ["b"]}

    data = infeed.open(Data())
    for last in (False, True):
        batch = next(iter(TheLoader(data, 4, output="dict", transform="center_crop:6", dtype="uint8", channels_last=last)))
        assert [tuple(row.shape) for row in batch["images"]] == [(i + 1, 3, 6, 6) for i in range(4)]
        assert [row[:, :2, 0, 0].tolist() for row in batch["images"]] == [[[i, k] for k in range(i + 1)] for i in range(4)]
        assert batch["words"] == [["a"] * i + ["b"] for i in range(4)]
        padded = next(iter(TheLoader(data, 4, output="dict", transform="center_crop:6", channels_last=last, pad={"images": 0})))
        assert padded["images"].shape == (4, 4, 3, 6, 6) and padded["images.lengths"].tolist() == [1, 2, 3, 4]
    nested = next(iter(TheLoader(data, 4, output="dict", transform="center_crop:6", nested=True)))["images"]
    assert nested.is_nested and [row.shape[0] for row in nested.unbind()] == [1, 2, 3, 4]


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
    # Key points as Keypoint R-CNN takes them.
    assert "keypoints" not in last
    coco["categories"] = [{"id": 4, "name": "thing", "keypoints": ["head", "tail"]}]
    coco["annotations"][0]["keypoints"] = [1, 2, 2, 0, 0, 0]
    (tmp_path / "_annotations.coco.json").write_text(json.dumps(coco))
    targets = next(iter(DataLoader(infeed.open(tmp_path), 3)))[1]
    assert [tuple(target["keypoints"].shape) for target in targets] == [(i, 2, 3) for i in range(3)]
    assert targets[1]["keypoints"].tolist() == [[[1, 2, 2], [0, 0, 0]]] and targets[1]["keypoints"].dtype == torch.float32


class Stream(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dataset": Stream()}, "IterableDataset .*by index"),
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
        ({"worker_init_fn": print}, "worker_init_fn: it is not called"),
        ({"num_workers": 2, "multiprocessing_context": "spawn"}, "multiprocessing_context: threads need none"),
        ({"timeout": 5}, "timeout: .*patience"),
        ({"in_order": False}, "in_order: batches come in order"),
    ],
)
def test_arguments_for_processes_are_taken_with_a_word(folder: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.warns(UserWarning, match=words):
        loader = DataLoader(folder, 50, **arguments)
    assert [len(labels) for _, labels in loader] == [50, 50]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prefetch_factor": 2}, "num_workers"),
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


def test_any_collate_fn_is_given_the_samples(folder: str) -> None:
    def collate(samples: list[Any]) -> Any:
        images, labels = zip(*samples, strict=True)
        assert all(type(label) is int for label in labels)
        return torch.stack(images), labels, "mine"

    batches = list(DataLoader(folder, 40, collate_fn=collate))
    assert [(len(labels), word) for _, labels, word in batches] == [(40, "mine"), (40, "mine"), (20, "mine")]
    plain = next(iter(DataLoader(folder, 40)))
    assert torch.equal(batches[0][0], plain[0]) and list(batches[0][1]) == plain[1].tolist()
    named = next(iter(DataLoader(folder, 2, collate_fn=list, output={"x": "image", "y": "label"})))
    assert [list(sample) for sample in named] == [["x", "y"]] * 2


def test_samples_come_without_batches(folder: str) -> None:
    samples = list(DataLoader(folder, batch_size=None))
    assert len(samples) == 100
    assert [label for _, label in samples] == [0] * 50 + [1] * 50 and tuple(samples[0][0].shape) == (3, 24, 24)


def test_seeds_are_those_of_torch(folder: str) -> None:
    def order(**more: Any) -> list[list[int]]:
        return records(DataLoader(folder, 10, True, output=RECORDS, **more))

    assert order(seed=2**63 + 5) != order(seed=1) == order(seed=1)
    made = torch.Generator().manual_seed(5)
    drawn = [order(generator=made), order(generator=made)]
    assert drawn[0] != drawn[1] and order(generator=made.manual_seed(5)) == drawn[0]
    torch.manual_seed(1)
    first = [order(), order()]
    assert first[0] != first[1]
    torch.manual_seed(1)
    assert [order(), order()] == first
    # Where ranks share an order, none may draw one of its own.
    torch.manual_seed(1)
    dealt = [order(rank=rank, world_size=2) for rank in (0, 1)]
    assert sorted(set(flat(dealt[0]) + flat(dealt[1]))) == list(range(100))


def test_epochs_are_counted_or_told(folder: str) -> None:
    loader = DataLoader(folder, 10, True, output=RECORDS)
    want = [records(loader) for _ in range(4)]
    assert len({json.dumps(epoch) for epoch in want}) == 4
    loader.set_epoch(1)
    assert [records(loader) for _ in range(3)] == want[1:]


def test_the_loader_says_what_it_was_given(folder: str) -> None:
    loader = DataLoader(folder, 10, num_workers=2, drop_last=True)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (10, 2, True, False)
    assert len(loader.dataset) == 100 and loader.dataset.classes == ["cat", "dog"]
    assert isinstance(loader.loader, infeed.Loader)
    assert isinstance(loader, data.DataLoader) and len(loader.sampler) == 100
    assert list(loader.batch_sampler)[0] == list(range(10))
    assert folder in repr(loader)
    kind: Any = TheLoader
    assert kind[int]


def test_a_state_goes_on_behind_the_last_batch(folder: str) -> None:
    torch.manual_seed(4)
    whole = DataLoader(folder, 10, True, output=RECORDS)
    want = [records(whole), records(whole)]
    torch.manual_seed(4)
    loader = DataLoader(folder, 10, True, output=RECORDS)
    for step, _ in enumerate(loader):
        if step == 3:
            break
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["samples"]) == (0, 40)

    # The order is that of the state, which torch's generator drew.
    other = DataLoader(folder, 10, True, output=RECORDS)
    other.load_state_dict(state)
    assert len(other) == 10
    other.set_epoch(0)
    assert records(other) == want[0][4:]
    assert records(other) == want[1]
    with pytest.raises(ValueError):
        DataLoader(folder, 10).load_state_dict(state)
    with pytest.raises(infeed.errors.StateError):
        other.load_state_dict({})
    with pytest.raises(infeed.errors.StateError, match="seed"):
        DataLoader(folder, 10, True, seed=state["seed"] + 1).load_state_dict(state)


@pytest.mark.parametrize("sampler", [None, "weighted", "distributed", "batches"])
def test_behind_the_last_batch_nothing_is_left_of_the_epoch(folder: str, sampler: str | None) -> None:
    def made() -> TheLoader[Any]:
        torch.manual_seed(9)
        order: dict[str, Any] = {"shuffle": True, "batch_size": 20}
        if sampler == "weighted":
            order = {"sampler": data.WeightedRandomSampler([1.0] * 100, 100), "batch_size": 20}
        if sampler == "distributed":
            order = {"sampler": data.DistributedSampler(range(100), 1, 0), "batch_size": 20}
        if sampler == "batches":
            order = {"batch_sampler": data.BatchSampler(data.SubsetRandomSampler(range(60)), 12, False)}
        return DataLoader(folder, output=RECORDS, **order)

    loader = made()
    states = []
    got = []
    for batch in loader:
        got.append(batch["records"].tolist())
        states.append(json.loads(json.dumps(loader.state_dict())))
    ended = loader.state_dict()
    second = records(loader)
    for step, state in enumerate(states):
        other = made()
        torch.manual_seed(100 + step)
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert records(other) == got[step + 1 :]
        assert len(second) == len(records(other)) == len(got)
    other = made()
    other.load_state_dict(ended)
    assert len(records(other)) == len(got)


def test_a_loop_that_is_left_is_over(folder: str) -> None:
    loader = DataLoader(folder, 10, True, output=RECORDS, seed=0)
    want = [records(loader), records(loader)]
    loader = DataLoader(folder, 10, True, output=RECORDS, seed=0)
    for batch in loader:
        assert batch["records"].tolist() == want[0][0]
        break
    assert records(loader) == want[1]
    with loader:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        iter(loader)


def test_a_copy_by_pickle_has_arguments_and_place(folder: str) -> None:
    loader = DataLoader(folder, 10, True, output=RECORDS, seed=0)
    want = [records(pickle.loads(pickle.dumps(loader))), records(loader)]
    assert want[0] == want[1]
    loader = DataLoader(folder, 10, True, output=RECORDS, seed=0)
    next(iter(loader))
    copy = pickle.loads(pickle.dumps(loader))
    assert records(copy) == want[0][1:]
    assert copy.batch_size == 10
    copy.set_epoch(0)
    assert records(copy) == want[0]


def test_ranks_share_where_they_are_told_so(folder: str) -> None:
    ranks = [DataLoader(folder, 16, True, output=RECORDS, rank=rank, world_size=3) for rank in range(3)]
    steps = [records(loader) for loader in ranks]
    assert [len(loader) for loader in ranks] == [len(batches) for batches in steps] == [3, 3, 3]
    assert sorted(flat([flat(batches) for batches in steps])) == list(range(100))


def test_padding_is_told(folder: str) -> None:
    dealt: dict[str, Any] = {"batch_size": 30, "rank": 0, "world_size": 2}
    with pytest.warns(UserWarning, match="last 10 rows of this batch come twice.*valid"):
        assert [len(labels) for _, labels in DataLoader(folder, **dealt)] == [30, 30]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(folder, **dealt, drop_last=True))
        assert [batch["valid"] for batch in DataLoader(folder, **dealt, output=RECORDS)] == [30, 20]


class Stateful:
    """Ten other records in each epoch, counted by itself."""

    def __init__(self) -> None:
        self.begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return iter(range(10 * self.begun, 10 * self.begun + 10))

    def __len__(self) -> int:
        return 10

    def state_dict(self) -> dict[str, int]:
        return {"begun": self.begun}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begun = state["begun"]


def test_a_sampler_that_counts_goes_on_in_its_epoch(folder: str) -> None:
    loader = DataLoader(folder, 4, sampler=Stateful(), output=RECORDS)
    assert flat(records(loader)) == list(range(10, 20))
    for _ in loader:
        break
    other = DataLoader(folder, 4, sampler=Stateful(), output=RECORDS)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert flat(records(other)) == list(range(24, 30)) and flat(records(other)) == list(range(30, 40))


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
    def made() -> TheLoader[Any]:
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
    # Who never told it goes on in its order.
    told = [DataLoader(folder, batch_sampler=data.BatchSampler(data.DistributedSampler(range(100), 2, 0), 30, False), output=RECORDS) for _ in "ab"]
    assert records(told[0]) == first
    next(iter(told[0]))
    told[1].load_state_dict(told[0].state_dict())
    assert records(told[1]) == first[1:]
    mixed = [[1, 2, 3], [9], [4, 4]]
    assert records(DataLoader(folder, batch_sampler=mixed, output=RECORDS)) == mixed
    # A longer one in a later epoch.
    mixed.append([7] * 20)
    loader = DataLoader(folder, batch_sampler=mixed, output=RECORDS)
    assert records(loader) == mixed
    mixed.append([8] * 50)
    assert records(loader) == mixed


def test_a_distributed_sampler_goes_on_in_another_world(folder: str) -> None:
    """Nothing is lost and nothing comes twice, whatever was read and whoever goes on."""

    def made(rank: int, world: int, size: int) -> TheLoader[Any]:
        sampler = data.DistributedSampler(range(100), num_replicas=world, rank=rank, seed=3)
        return DataLoader(folder, size, sampler=sampler, output=RECORDS)

    for steps, worlds in ((2, [(2, 5), (3, 4), (1, 7)]), (3, [(3, 4), (1, 3), (2, 16)])):
        state: dict[str, Any] | None = None
        got: list[int] = []
        for world, size in worlds:
            ranks = [made(rank, world, size) for rank in range(world)]
            for loader in ranks:
                if state is not None:
                    loader.load_state_dict(state)
            batches = [iter(loader) for loader in ranks]
            last = (world, size) == worlds[-1]
            for _ in range(100 if last else steps):
                given = [next(it, None) for it in batches]
                if given[0] is None:
                    break
                got += flat([batch["records"].tolist() for batch in given if batch is not None])
            states = [loader.state_dict() for loader in ranks]
            assert all(it["consumed"] == states[0]["consumed"] for it in states)
            state = json.loads(json.dumps(states[0]))
        assert set(got) == set(range(100)) and len(got) <= 100 + worlds[-1][0]


class Pictures(Dataset):  # type: ignore[misc]
    """What `folder` has."""

    classes = ["cat", "dog"]

    def __len__(self) -> int:
        return 100

    def __getitem__(self, i: int) -> tuple[bytes, int]:
        return png(i, 255 - i, i // 50), i // 50


def test_datasets_of_torch_are_taken(folder: str) -> None:
    dataset = Pictures()
    loader = DataLoader(dataset, 10, True, seed=1)
    assert loader.dataset.given is dataset and loader.dataset.classes == ["cat", "dog"]
    assert loader.dataset[60][1] == 1 and tuple(loader.dataset[60][0].shape) == (3, 24, 24)
    for (images, labels), (theirs, others) in zip(loader, DataLoader(folder, 10, True, seed=1), strict=True):
        assert torch.equal(images, theirs) and torch.equal(labels, others)


def test_a_transform_is_said_once(folder: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    its_own = torchvision.datasets.ImageFolder(folder, torchvision.transforms.CenterCrop(20))
    loader = DataLoader(its_own, 50)
    for _ in range(2):
        with pytest.raises(ValueError, match="the dataset has a transform, and so has the loader"):
            list(loader)
    plain = DataLoader(torchvision.datasets.ImageFolder(folder), 50)
    assert [type(batch) for batch in plain] == [list, list]


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
    # As torch means it: where values lie, not what the shape is.
    assert plain.dtype == torch.uint8 and tuple(plain.shape) == (4, 3, 24, 24)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(inverted, 255 - plain)


def test_memory_is_pinned_where_there_is_a_gpu(folder: str) -> None:
    if torch.cuda.is_available():
        images, _ = next(iter(DataLoader(folder, 10, pin_memory=True, pin_memory_device="cuda")))
        assert images.is_pinned()
        return
    with pytest.warns(RuntimeWarning, match="pin_memory"):
        loader = DataLoader(folder, 10, pin_memory=True)
    assert loader.pin_memory and len(list(loader)) == 10


def test_an_empty_dataset_is_an_empty_loop(folder: str) -> None:
    few = data.Subset(Pictures(), [1, 2])
    for empty in (DataLoader(folder, 200, drop_last=True), DataLoader(few, 4, drop_last=True), DataLoader(data.Subset(few, []))):
        assert len(empty) == 0 and list(empty) == [] and list(empty) == []
    assert list(DataLoader(folder, sampler=[])) == []


def test_a_datasets_own_error_is_raised(folder: str) -> None:
    class Broken(Pictures):
        def __getitem__(self, i: int) -> tuple[bytes, int]:
            if i == 7:
                raise LookupError("number 7")
            return super().__getitem__(i)

    loader = DataLoader(Broken(), 5)
    batches = iter(loader)
    next(batches)
    with pytest.raises(LookupError, match="number 7") as caught:
        next(batches)
    assert any(entry.name == "__getitem__" for entry in caught.traceback)
    assert [len(labels) for _, labels in batches] == [5] * 18


@pytest.mark.parametrize("order", [{"batch_size": 2}, {"batch_sampler": [[1], [3, 4], [5]]}, {"batch_size": 4, "drop_last": True}])
def test_the_loop_goes_on_behind_a_bad_file(damaged: str, order: dict[str, Any]) -> None:
    def given(loader: Any) -> list[Any]:
        batches, found = iter(loader), []
        while True:
            try:
                found.append(next(batches)["records"].tolist())
            except StopIteration:
                return found
            except infeed.errors.Error as error:
                found.append((error.record, loader.state_dict()))

    loader = DataLoader(damaged, output={"records": "records"}, **order)
    want = [list(batch) for batch in loader.batch_sampler]
    got = given(loader)
    at = next(at for at, batch in enumerate(want) if 3 in batch)
    assert got[:at] + got[at + 1 :] == want[:at] + want[at + 1 :] and got[at][0] == 3
    # A state stands behind it, too.
    other = DataLoader(damaged, output={"records": "records"}, **order)
    other.load_state_dict(got[at][1])
    assert given(other) == want[at + 1 :]


def test_parts_of_a_loader_make_another(folder: str) -> None:
    """As accelerate and Lightning do: dataset, samplers and collate_fn go to another loader, torch's or this one's."""
    loader = DataLoader(folder, 10, num_workers=2, dtype="uint8")
    parts = {"batch_sampler": loader.batch_sampler, "collate_fn": loader.collate_fn}
    want = list(loader)
    kind: Any
    # Also in processes that began when this one's engine ran.
    forked: Any = {"num_workers": 2, "multiprocessing_context": "fork"}
    for kind, more in ((data.DataLoader, {}), (TheLoader, {}), (data.DataLoader, forked)):
        other = kind(loader.dataset, **parts, **more)
        assert len(other) == 10
        for (images, labels), (theirs, others) in zip(other, want, strict=True):
            assert images.dtype == torch.uint8 and torch.equal(images, theirs) and torch.equal(labels, others)
    twice = [batch[0] for _ in range(2) for batch in data.DataLoader(DataLoader(folder, 10, transform="random_crop:8").dataset, 100, collate_fn=loader.collate_fn)]
    assert tuple(twice[0].shape) == (100, 3, 8, 8)
