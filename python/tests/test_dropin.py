"""One import changed: what torch's `DataLoader` gives over Python datasets, and what it does not: exact draws and resumes."""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import threading
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import infeed
import pytest
from conftest import png

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
numpy = pytest.importorskip("numpy")

from infeed.torch import DataLoader as TheLoader  # noqa: E402 (torch is needed)

# Of arguments that are made.
DataLoader: Any = TheLoader
Point = namedtuple("Point", "x y")


class Made(data.Dataset):  # type: ignore[misc,name-defined]
    """Items by a function of their index."""

    def __init__(self, make: Callable[[int], Any], count: int = 6) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def described(value: Any) -> Any:
    """A batch with types and values, to be compared."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.tolist()
    if isinstance(value, numpy.ndarray):
        return numpy.ndarray, value.dtype, value.shape, value.tolist()
    if isinstance(value, dict):
        return {key: described(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [described(of) for of in value]
    return type(value), value


ITEMS: dict[str, Callable[[int], Any]] = {
    "int": lambda i: i,
    "float": lambda i: i / 2,
    "bool": lambda i: i % 2 == 0,
    "str": lambda i: f"s{i}",
    "bytes": lambda i: b"b" * i,
    "one tensor": lambda i: torch.full((3,), float(i)),
    "scalar": lambda i: torch.tensor(i, dtype=torch.int32),
    "bfloat16": lambda i: torch.full((2,), float(i), dtype=torch.bfloat16),
    "complex": lambda i: torch.full((2,), 1j * i),
    "numpy": lambda i: numpy.full(3, i, dtype=numpy.int16),
    "numpy scalar": lambda i: numpy.float32(i),
    "pair": lambda i: (torch.full((3, 4, 4), float(i)), i),
    "one in a tuple": lambda i: (torch.zeros(2),),
    "three": lambda i: (torch.zeros(2), i, f"name {i}"),
    "views": lambda i: ([torch.full((2,), float(i)), torch.full((2,), -float(i))], i),
    "nested": lambda i: ((i, (i, [i, i])), {"a": {"b": i}}),
    "dict": lambda i: {"pixel_values": torch.zeros(3, 2, 2), "labels": i},
    "named": lambda i: Point(torch.zeros(2), i),
    "bytes of an image": lambda i: (torch.full((3, 4, 4), i, dtype=torch.uint8), i),
    "list": lambda i: [i, i + 10],
    "lists": lambda i: (torch.zeros(2), [i, i / 2, i > 2], [[i, 1], [2, i]], ["a", f"b{i}"], [f"c{i}"]),
    "dict of lists": lambda i: {"x": [i, i + 10], "y": (i / 2, i), "z": f"s{i}", "of texts": ["a", f"b{i}"]},
    "texts": lambda i: (f"a{i}", "b"),
    "arrays in a list": lambda i: ([numpy.full(3, i, numpy.int32), numpy.full(3, i, numpy.float32)], i),
    "named in a tuple": lambda i: (Point(i, i / 2), i),
    "ordered": lambda i: OrderedDict(b=i, a=f"{i}"),
    "image files": lambda i: (png(i, i, i), [numpy.zeros((3, 4), numpy.uint8)] * 2),
    "bytes of gray": lambda i: (numpy.full((4, 5), i, numpy.uint8), numpy.full((4, 5, 3), i, numpy.uint8)),
}
# What the engine refuses.
ONLY_TORCHS = ("bfloat16", "complex", "nested")


@pytest.mark.parametrize("kind", ITEMS)
def test_batches_have_the_structure_of_torchs(kind: str) -> None:
    made = Made(ITEMS[kind], 5)
    for arguments in ({"batch_size": 2}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}, {}):
        mine, theirs = DataLoader(made, **arguments), data.DataLoader(made, **arguments)
        assert len(mine) == len(theirs)
        assert [described(batch) for batch in mine] == [described(batch) for batch in theirs]


@pytest.mark.parametrize("kind", [kind for kind in ITEMS if kind not in ONLY_TORCHS])
def test_batches_of_the_engine_have_the_structure_of_torchs(kind: str) -> None:
    made = Made(ITEMS[kind], 5)
    for arguments in ({"batch_size": 2}, {"batch_size": 4, "drop_last": True}, {"batch_size": 2, "collate_fn": list}):
        mine = DataLoader(made, on_bad_sample="raise", **arguments)
        theirs = [described(batch) for batch in data.DataLoader(made, **arguments)]
        assert isinstance(mine.loader, infeed.Loader)
        assert [described(batch) for batch in mine] == theirs


@pytest.mark.parametrize("make", [lambda i: None, lambda i: torch.zeros(i), lambda i: [0] * i, lambda i: {i: i}])
def test_what_torch_cannot_collate_fails_as_there(make: Callable[[int], Any]) -> None:
    with pytest.raises(Exception) as theirs:
        list(data.DataLoader(Made(make), 3))
    with pytest.raises(theirs.type) as mine:
        list(DataLoader(Made(make), 3))
    assert str(mine.value) == str(theirs.value)


def test_orders_are_torchs_for_the_same_seed() -> None:
    made = Made(ITEMS["int"], 20)
    orders: list[dict[str, Any]] = [
        {"shuffle": True},
        {"shuffle": True, "num_workers": 2},
        {"sampler": data.WeightedRandomSampler([1.0] * 20, 30)},
        {"sampler": data.SubsetRandomSampler(range(10))},
        {"batch_sampler": data.BatchSampler(data.RandomSampler(made), 3, True)},
        {"sampler": [3, 3, 1]},
        {"sampler": torch.tensor([2, 0])},
    ]
    for order in orders:
        epochs = []
        for kind in (DataLoader, data.DataLoader):
            torch.manual_seed(5)
            loader = kind(made, **order) if "batch_sampler" in order else kind(made, 4, **order)
            epochs.append([[batch.tolist() for batch in loader] for _ in range(2)])
        assert epochs[0] == epochs[1]


def test_tensors_are_taken_at_once_with_the_same_result() -> None:
    whole = data.TensorDataset(torch.arange(40, dtype=torch.uint8).view(10, 4), torch.arange(10) * 0.5)
    for dataset in (whole, data.Subset(whole, [5, 1, 7, 3]), data.Subset(data.Subset(whole, [9, 8, 7]), [2, 0])):
        want = [described(batch) for batch in data.DataLoader(dataset, 3)]
        assert [described(batch) for batch in DataLoader(dataset, 3)] == want
        asked: list[Any] = []
        assert list(DataLoader(dataset, 3, collate_fn=asked.extend)) == [None] * len(want)
        assert len(asked) == len(dataset) and type(asked[0]) is tuple


def test_a_dataset_is_called_in_the_thread_of_the_loop() -> None:
    threads: set[int] = set()

    def make(i: int) -> int:
        threads.add(threading.get_ident())
        return i

    assert len(list(DataLoader(Made(make), 2))) == 3
    assert threads == {threading.get_ident()}


# Draws.


def drawing(i: int) -> Any:
    return i, torch.rand(2), random.random(), numpy.random.rand(), numpy.random.randn()


def drawn(loader: Any, epochs: int = 1) -> dict[tuple[int, int], Any]:
    """What each record drew, by epoch and index."""
    found: dict[tuple[int, int], Any] = {}
    for epoch in range(epochs):
        for batch in loader:
            for at, index in enumerate(batch[0].tolist()):
                found[epoch, index] = [value[at].tolist() for value in batch[1:]]
    return found


def seeded() -> None:
    torch.manual_seed(3)
    random.seed(4)
    numpy.random.seed(5)


def test_draws_are_those_of_the_record_and_the_epoch() -> None:
    """Whoever makes the records, in whatever batches; and nobody else's draws are others for it."""
    made = Made(drawing, 12)
    seeded()
    want = drawn(DataLoader(made, 4, shuffle=True), 2)
    assert all(want[0, i] != want[1, i] for i in range(12))
    assert len({json.dumps(values) for values in want.values()}) == 24
    for arguments in ({"batch_size": 5}, {"batch_size": 4, "num_workers": 2}, {"batch_size": 1, "num_workers": 3}):
        seeded()
        assert drawn(DataLoader(made, shuffle=True, **arguments), 2) == want
    split = data.random_split(made, [12], torch.Generator().manual_seed(0))[0]
    seeded()
    first = drawn(DataLoader(split, 4))
    seeded()
    assert drawn(DataLoader(split, 6, num_workers=1)) == first

    seeded()
    loader = iter(DataLoader(made, 4))
    here = torch.rand(1), random.random(), numpy.random.rand(), numpy.random.randn()
    seeded()
    # As torch's: a number for its workers.
    torch.empty((), dtype=torch.int64).random_()
    assert (torch.rand(1), random.random(), numpy.random.rand(), numpy.random.randn()) == here
    next(loader)
    after = torch.rand(1), random.random(), numpy.random.rand()
    seeded()
    torch.empty((), dtype=torch.int64).random_()
    (torch.rand(1), random.random(), numpy.random.rand(), numpy.random.randn())
    assert (torch.rand(1), random.random(), numpy.random.rand()) == after


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, lambda: random.gauss(0, 1), numpy.random.randn])
def test_any_draw_is_seen(draw: Callable[[], Any]) -> None:
    """Also one that not every record makes."""
    made = Made(lambda i: (i, float(draw()) if i >= 7 else 0.0), 12)
    runs = []
    for workers in (0, 0, 2):
        seeded()
        runs.append(drawn(DataLoader(made, 3, num_workers=workers)))
    assert runs[0] == runs[1] == runs[2]


def test_a_record_that_comes_again_draws_anew() -> None:
    sampler = data.WeightedRandomSampler([1.0, 1.0], 12, generator=torch.Generator().manual_seed(1))
    values = [value for batch in DataLoader(Made(drawing, 2), 5, sampler=sampler) for value in batch[1].tolist()]
    assert len({json.dumps(value) for value in values}) == 12


def test_a_dataset_that_draws_nothing_is_asked_once() -> None:
    asked: list[int] = []

    def make(i: int) -> int:
        asked.append(i)
        return i

    made = Made(make, 10)
    for _ in range(2):
        list(DataLoader(made, 3))
    assert asked == list(range(10)) * 2


def test_a_loader_of_each_epoch_draws_other_numbers() -> None:
    seeded()
    epochs = [drawn(DataLoader(Made(drawing), 2)) for _ in range(3)]
    assert len({json.dumps(list(epoch.values())) for epoch in epochs}) == 3


# Iterable datasets.


class Counting(data.IterableDataset):  # type: ignore[misc,name-defined]
    """Numbers, shared among worker processes as torch's documentation has it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        return iter(range(self.count) if info is None else range(info.id, self.count, info.num_workers))


class Standing(data.IterableDataset):  # type: ignore[misc,name-defined]
    """Knows where it is."""

    def __init__(self) -> None:
        self.at = 0
        self.asked: list[int] = []

    def __iter__(self) -> Iterator[int]:
        while self.at < 20:
            self.at += 1
            self.asked.append(self.at)
            yield self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [3, None])
def test_iterables_come_as_torch_has_them_and_go_on(workers: int, size: int | None) -> None:
    arguments = {"batch_size": size, "num_workers": workers}
    want = [described(batch) for batch in data.DataLoader(Counting(20), **arguments)]
    loader = DataLoader(Counting(20), **arguments)
    got = []
    for step, batch in enumerate(loader):
        got.append(described(batch))
        if step == 2:
            state = json.loads(json.dumps(loader.state_dict()))
    assert got == want
    other = DataLoader(Counting(20), **arguments)
    other.load_state_dict(state)
    assert [described(batch) for batch in other] == want[3:]
    assert [described(batch) for batch in other] == want


def test_an_iterable_that_knows_its_place_is_not_read_again() -> None:
    loader = DataLoader(Standing(), 4)
    batches = iter(loader)
    first = [next(batches).tolist() for _ in range(2)]
    assert first == [[1, 2, 3, 4], [5, 6, 7, 8]]
    state = loader.state_dict()
    dataset = Standing()
    other = DataLoader(dataset, 4)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == [[9, 10, 11, 12], [13, 14, 15, 16], [17, 18, 19, 20]]
    assert dataset.asked == list(range(9, 21))


# States.


class Shuffled(data.Sampler):  # type: ignore[misc,name-defined]
    """Draws of the global generators of Python and NumPy, at once."""

    def __iter__(self) -> Iterator[int]:
        order = list(range(23))
        random.shuffle(order)
        numpy.random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return 23


class Stateful(data.Sampler):  # type: ignore[misc,name-defined]
    """Has a place of its own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 23:
            self.at += 1
            yield (self.at * 7) % 23
        self.at = 0

    def __len__(self) -> int:
        return 23

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"batch_size": 4},
    "shuffled": lambda: {"batch_size": 4, "shuffle": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(8)},
    "weighted": lambda: {"batch_size": 4, "sampler": data.WeightedRandomSampler([1.0] * 23, 23)},
    "distributed": lambda: {"batch_size": 4, "sampler": data.DistributedSampler(range(23), 2, 1)},
    "of Python": lambda: {"batch_size": 4, "sampler": Shuffled()},
    "stateful": lambda: {"batch_size": 4, "sampler": Stateful()},
    "batches": lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(range(23)), 5, False)},
    "lists": lambda: {"batch_sampler": [[1, 2], [3], [2, 2, 2], [22], [0, 4]]},
    "one by one": lambda: {"batch_size": None, "shuffle": True},
}


def as_lists(batch: Any) -> list[Any]:
    return [value.tolist() if isinstance(value, torch.Tensor) else value for value in batch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_a_state_anywhere_goes_on_exactly(order: str, workers: int) -> None:
    """Order, and what records draw, of the rest of the epoch."""
    made = Made(drawing, 23)

    def begun() -> Any:
        seeded()
        return DataLoader(made, num_workers=workers, **ORDERS[order]())

    loader = begun()
    for epoch in range(2):
        loader.set_epoch(epoch)
        whole, states = [], [json.loads(json.dumps(loader.state_dict()))]
        for batch in loader:
            whole.append(as_lists(batch))
            states.append(json.loads(json.dumps(loader.state_dict())))
    places = range(1, len(states)) if workers == 0 else [1, len(states) // 2, len(states) - 1]
    for done in places:
        other = begun()
        torch.manual_seed(100 + done)
        random.seed(done)
        other.load_state_dict(states[done])
        other.set_epoch(states[done]["epoch"])
        assert other.state_dict() == states[done]
        assert [as_lists(batch) for batch in other] == whole[done:]
        assert len(list(other)) == len(whole)


@pytest.mark.parametrize("order", ["sequential", "shuffled", "weighted", "distributed"])
def test_a_state_goes_on_with_other_batches_and_workers(order: str) -> None:
    def begun(size: int, workers: int) -> Any:
        seeded()
        return DataLoader(Made(ITEMS["int"], 23), num_workers=workers, **{**ORDERS[order](), "batch_size": size})

    whole = [index for batch in begun(4, 0) for index in batch.tolist()]
    loader = begun(4, 2)
    batches = iter(loader)
    got = [index for _ in range(2) for index in next(batches).tolist()]
    for size, workers in ((3, 0), (7, 1)):
        other = begun(size, workers)
        other.load_state_dict(loader.state_dict())
        assert got + [index for batch in other for index in batch.tolist()] == whole


def test_a_sampler_that_was_never_told_has_the_same_order_after_a_resume() -> None:
    def begun() -> Any:
        return DataLoader(Made(ITEMS["int"], 23), 4, sampler=data.DistributedSampler(range(23), 2, 1))

    loader = begun()
    first = [batch.tolist() for batch in loader]
    batches = iter(loader)
    assert next(batches).tolist() == first[0]
    other = begun()
    other.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in other] == first[1:]


@pytest.mark.parametrize("generator", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_persistent_workers_resume_in_any_epoch(generator: bool, workers: int) -> None:
    def begun(workers: int) -> Any:
        seeded = torch.Generator().manual_seed(4) if generator else None
        more = {"persistent_workers": True} if workers else {}
        made = Made(lambda index: index * 1000 + int(torch.randint(100, (1,))), 10)
        return DataLoader(made, 3, shuffle=True, num_workers=workers, generator=seeded, **more)

    def left(loader: Any) -> list[Any]:
        return [batch.tolist() for batch in loader]

    torch.manual_seed(1)
    loader = begun(1)
    for epoch in range(3):
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = left(batches)
        torch.manual_seed(99 + epoch)
        other = begun(workers)
        other.load_state_dict(state)
        again = iter(other)
        # A state of the resumed loader, and the same loader once more.
        assert next(again).tolist() == rest[0]
        third = begun(workers)
        third.load_state_dict(other.state_dict())
        assert left(again) == left(third) == rest[1:]
        loader.load_state_dict(state)
        assert left(loader) == rest


def test_a_dataset_that_stops_ends_the_loop() -> None:
    def item(index: int) -> int:
        return index if index < 4 else next(iter(()))

    for workers in (0, 1):
        for made in (DataLoader, data.DataLoader):
            batches = iter(made(Made(item, 9), 3, num_workers=workers))
            assert next(batches).tolist() == [0, 1, 2]
            with pytest.raises((StopIteration, RuntimeError)):
                next(batches)


def test_a_later_number_that_needs_more_bits_is_not_cut() -> None:
    for values in ([True, 3], [numpy.int8(1), numpy.int64(300)]):
        found = next(iter(DataLoader(Made(lambda i: (png(i, i, i), values[i]), 2), 2, transform="center_crop:24")))[1]
        assert found.tolist() == [int(value) for value in values]


def test_a_state_of_another_dataset_is_refused() -> None:
    loader = DataLoader(Made(ITEMS["int"]), 2)
    next(iter(loader))
    state = loader.state_dict()
    for wrong, words in (
        (Made(ITEMS["int"], 7), "6 records, and this one has 7"),
        (Made(ITEMS["int"], 6), "version 99"),
    ):
        other = DataLoader(wrong, 2)
        with pytest.raises(infeed.errors.StateError, match=words):
            other.load_state_dict({**state, **({"infeed.torch": 99} if "99" in words else {})})
    with pytest.raises(infeed.errors.StateError, match="state_dict"):
        loader.load_state_dict({"epoch": 0})
    engines = DataLoader(Made(lambda i: (png(i, i, i), i)), 2, transform="center_crop:24")
    next(iter(engines))
    with pytest.raises(infeed.errors.StateError, match="torch reads this dataset"):
        loader.load_state_dict(engines.state_dict())
    with pytest.raises(infeed.errors.StateError, match="infeed's engine reads this dataset"):
        engines.load_state_dict(state)
    unordered = DataLoader(Made(ITEMS["int"]), 2, num_workers=2, in_order=False)
    next(iter(unordered))
    with pytest.raises(infeed.errors.StateError, match="in_order"):
        unordered.state_dict()


def test_epochs_that_are_left_count(tmp_path: Path) -> None:
    loader = DataLoader(Made(drawing), 2)
    next(iter(loader))
    assert loader.state_dict()["epoch"] == 0
    list(loader)
    # Behind an epoch that has ended stands the next one.
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (2, 0)
    copy = pickle.loads(pickle.dumps(DataLoader(Standing(), 3)))
    assert next(iter(copy)).tolist() == [1, 2, 3]


# Errors, arguments, processes.


def test_an_error_is_the_datasets_own_and_the_loop_may_go_on() -> None:
    class Broken(Made):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise LookupError("number 3")
            return index

    for kind in (data.DataLoader, DataLoader):
        batches, got = iter(kind(Broken(ITEMS["int"], 8), 2)), []
        for _ in range(5):
            try:
                got.append(next(batches).tolist())
            except LookupError as error:
                got.append(str(error))
            except StopIteration:
                got.append("end")
        assert got == [[0, 1], "number 3", [4, 5], [6, 7], "end"]


def test_constructors_read_no_record() -> None:
    def never(index: int) -> Any:
        raise AssertionError

    DataLoader(Made(never), 2)
    DataLoader(Made(never), 2, transform="center_crop:8")
    assert DataLoader({"a": 1, "b": 2}, sampler=["b", "a"]).sampler == ["b", "a"]
    assert [batch.item() for batch in DataLoader({"a": 1, "b": 2}, sampler=["b", "a"])] == [2, 1]


def test_wrong_arguments_are_torchs() -> None:
    made = Made(ITEMS["int"])
    for arguments in (
        {"num_workers": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"sampler": [1], "shuffle": True},
        {"batch_sampler": [[1]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"multiprocessing_context": "spawn"},
        {"timeout": -1},
    ):
        with pytest.raises(ValueError) as theirs:
            data.DataLoader(made, **arguments)
        with pytest.raises(ValueError) as mine:
            DataLoader(made, **arguments)
        assert str(mine.value) == str(theirs.value)
    loader = DataLoader(made, 2)
    for name in ("batch_size", "sampler", "dataset", "drop_last", "batch_sampler"):
        with pytest.raises(ValueError, match=name):
            setattr(loader, name, None)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


def test_lengths_follow_the_dataset_and_empty_ones_end() -> None:
    growing = [1, 2, 3]
    loader = DataLoader(growing, 2)
    assert len(loader) == 2
    growing += [4, 5]
    assert len(loader) == 3 and [batch.tolist() for batch in loader] == [[1, 2], [3, 4], [5]]
    assert list(DataLoader([])) == [] and list(DataLoader([1, 2], 4, drop_last=True)) == []


def _told(worker: int) -> None:
    info = data.get_worker_info()
    assert info.id == worker and type(info.dataset) is Made
    info.dataset.make = lambda i: 100 * (worker + 1) + i


def test_worker_processes_are_torchs() -> None:
    loader = DataLoader(Made(ITEMS["int"], 8), 2, num_workers=2, worker_init_fn=_told)
    assert [batch.tolist() for batch in loader] == [[100, 101], [202, 203], [104, 105], [206, 207]]
    stays = DataLoader(Made(lambda i: os.getpid(), 4), 2, num_workers=1, persistent_workers=True)
    pids = [{pid for batch in stays for pid in batch.tolist()} for _ in range(3)]
    assert pids[0] == pids[1] == pids[2] != {os.getpid()}
    stays.close()
    seeded()
    stays = DataLoader(Made(drawing, 6), 2, num_workers=2, persistent_workers=True)
    epochs = [drawn(stays) for _ in range(2)]
    assert epochs[0] != epochs[1]
    state = stays.state_dict()
    third = drawn(stays)
    stays.load_state_dict(state)
    assert [list(values) for values in drawn(stays)] == [list(values) for values in third]


def test_worker_processes_end_with_their_loader() -> None:
    gc.disable()
    try:
        loader = DataLoader(Made(ITEMS["int"], 8), 2, num_workers=1, persistent_workers=True)
        batches = iter(loader)
        next(batches)
        (worker,) = batches._workers
        del batches, loader
        worker.join(60)
        assert not worker.is_alive()
    finally:
        gc.enable()


def test_processes_may_be_spawned() -> None:
    for dataset in (data.TensorDataset(torch.arange(6.0)), list(range(6))):
        loader = DataLoader(dataset, 3, num_workers=1, multiprocessing_context="spawn")
        assert [described(batch) for batch in loader] == [described(batch) for batch in data.DataLoader(dataset, 3)]


def test_a_worker_that_is_too_slow_loses_no_batch() -> None:
    gate = torch.multiprocessing.Event()

    def make(i: int) -> int:
        if i >= 2:
            gate.wait()
        return i

    loader = DataLoader(Made(make), 2, num_workers=1, timeout=1)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="timed out"):
        next(batches)
    state = loader.state_dict()
    gate.set()
    assert [batch.tolist() for batch in batches] == [[2, 3], [4, 5]]
    other = DataLoader(Made(make), 2)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == [[2, 3], [4, 5]]


def test_each_rank_reads_all_and_is_told_so(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    for loader in (DataLoader(Made(ITEMS["int"]), 2), DataLoader(folder, 20, transform="center_crop:24")):
        with pytest.warns(UserWarning, match="one of 2 ranks.*DistributedSampler.*infeed.Loader"):
            assert len(list(loader)) == len(loader) == (3 if loader.batch_size == 2 else 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = data.DistributedSampler(range(6), 2, 1, shuffle=False)
        assert [batch.tolist() for batch in DataLoader(Made(ITEMS["int"]), 2, sampler=sampler)] == [[1, 3], [5]]


# What the engine reads of torchvision's and Hugging Face's.


def test_an_image_folder_is_read_by_the_engine_as_torch_would(folder: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    transforms = torchvision.transforms
    chain = transforms.Compose([transforms.CenterCrop(16), transforms.ToTensor()])
    dataset = torchvision.datasets.ImageFolder(folder, chain)
    for given in (dataset, data.Subset(dataset, [7, 99, 50])):
        mine, theirs = DataLoader(given, 40), data.DataLoader(given, 40)
        assert isinstance(mine.loader, infeed.Loader)
        for batch, want in zip(mine, theirs, strict=True):
            assert type(batch) is type(want) is list
            assert torch.allclose(batch[0], want[0], atol=1e-6) and torch.equal(batch[1], want[1])
    assert DataLoader(dataset).dataset.class_to_idx == {"cat": 0, "dog": 1}
    # What no step makes of one size is torch's affair; so are functions of the user's.
    for other in (
        torchvision.datasets.ImageFolder(folder, transforms.ToTensor()),
        torchvision.datasets.ImageFolder(folder, lambda image: torch.zeros(1)),
        torchvision.datasets.ImageFolder(folder, chain, target_transform=lambda label: label + 5),
    ):
        loader = DataLoader(other, 50)
        assert not hasattr(loader, "loader")
        assert [described(batch) for batch in loader] == [described(batch) for batch in data.DataLoader(other, 50)]


def test_a_folder_that_only_torchvision_reads_is_read_by_it(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    chain = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(8), torchvision.transforms.ToTensor()])

    def tree(name: str, files: list[str], mode: str = "RGB") -> str:
        for at, file in enumerate(files):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            image.new(mode, (9, 9), 40 * at if mode == "L" else (40 * at, 7, 9)).save(path)
        return str(tmp_path / name)

    def default_loader(path: str) -> Any:
        return image.new("RGB", (8, 8), (1, 2, 3))

    described = tree("described", ["a/0.png", "b/0.png"])
    (tmp_path / "described" / "metadata.csv").write_text("file_name,label\na/0.png,3\n")
    for root, more in (
        (tree("gray", ["a/0.tif", "b/0.tif"], "L"), {}),
        (tree("named", ["mask/0.png", "image/0.png", "x/0.png"]), {}),
        (described, {}),
        (tree("own", ["a/0.png", "b/0.png"]), {"loader": default_loader}),
    ):
        made = torchvision.datasets.ImageFolder(root, chain, **more)
        for ours, theirs in zip(DataLoader(made, 4), data.DataLoader(made, 4), strict=True):
            assert ours[1].tolist() == theirs[1].tolist() and (ours[0] - theirs[0]).abs().max() < 0.01, root
        assert list(DataLoader(data.Subset(made, []), 4)) == []
    # The dataset's attributes are those of the folder.
    loader = DataLoader(torchvision.datasets.ImageFolder(described, chain), 4)
    assert loader.dataset.samples[1][1] == 1 and callable(loader.dataset.loader)
    engine = DataLoader(torchvision.datasets.ImageFolder(tree("plain", ["a/0.png", "b/0.png"]), chain), 4)
    assert engine.dataset.transform is chain
    engine.dataset.transform = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(4), *chain.transforms[1:]])
    assert next(iter(engine))[0].shape == (2, 3, 4, 4)
    engine.dataset.target_transform = lambda label: 5
    assert next(iter(engine))[1].tolist() == [5, 5]


def test_a_transform_may_change_between_epochs(folder: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    transforms = torchvision.transforms
    dataset = torchvision.datasets.ImageFolder(folder, transforms.Compose([transforms.CenterCrop(16), transforms.ToTensor()]))
    loader = DataLoader(data.Subset(dataset, range(10)), 5)
    sizes = [next(iter(loader))[0].shape[-1]]
    # Progressive resizing, by another step and by another transform.
    dataset.transform.transforms[0] = transforms.CenterCrop(20)
    sizes.append(next(iter(loader))[0].shape[-1])
    dataset.transform = transforms.Compose([transforms.CenterCrop(8), transforms.PILToTensor()])
    last = next(iter(loader))[0]
    assert [*sizes, last.shape[-1]] == [16, 20, 8] and last.dtype == torch.uint8


def test_a_folder_that_a_script_changes_is_read_as_it_is(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    """By the engine, or by torchvision if the engine cannot."""
    torchvision = pytest.importorskip("torchvision")
    transforms = torchvision.transforms
    path, label = torchvision.datasets.ImageFolder(folder).samples[0]
    changes: list[Callable[[Any], Any]] = [
        lambda images: setattr(images, "transform", lambda image: torch.zeros(1)),
        lambda images: setattr(images, "transform", transforms.ToTensor()),
        lambda images: setattr(images, "target_transform", lambda label: label + 5),
        lambda images: setattr(images, "loader", lambda path: torchvision.datasets.folder.default_loader(path).rotate(90)),
        lambda images: setattr(images, "samples", images.samples[:12]),
        lambda images: images.samples.__setitem__(0, (path, label + 1)),
        lambda images: images.samples.pop(),
    ]
    for change in changes:
        runs = []
        for kind in (DataLoader, data.DataLoader):
            images = torchvision.datasets.ImageFolder(
                folder, transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])
            )
            loader = kind(images, 7, shuffle=True)
            seeded()
            epochs = [list(loader)]
            change(images)
            # A change in a list counts from the next epoch on.
            first = loader.dataset[20 if len(images.samples) > 20 else 1]
            epochs += [list(loader), list(loader)]
            runs.append([(batch[0], batch[1].tolist()) for epoch in epochs for batch in epoch] + [(first[0], first[1])])
        for (mine, of_mine), (theirs, of_theirs) in zip(*runs, strict=True):
            assert of_mine == of_theirs and torch.allclose(mine, theirs, atol=1e-6)
    assert "from now on torchvision reads it" in caplog.text


def test_what_the_engine_does_otherwise_torchvision_reads(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision = pytest.importorskip("torchvision")
    file = pytest.importorskip("PIL.ImageFile")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    floats, bicubic = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], v2.Resize((16, 16), interpolation=3)
    # A filter's overshoot behind ToTensor.
    for steps, is_native in (([bicubic, *floats], True), ([*floats, bicubic], False)):
        loader = DataLoader(torchvision.datasets.ImageFolder(folder, v2.Compose(steps)), 4)
        assert hasattr(loader, "loader") == is_native
    monkeypatch.setattr(file, "LOAD_TRUNCATED_IMAGES", True)
    assert not hasattr(DataLoader(torchvision.datasets.ImageFolder(folder, v2.Compose([bicubic, *floats]))), "loader")


def test_types_are_those_of_torchvisions_chain(folder: str, tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    chain = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(16), torchvision.transforms.PILToTensor()])
    dataset = torchvision.datasets.ImageFolder(folder, chain)
    mine, theirs = next(iter(DataLoader(dataset, 3))), next(iter(data.DataLoader(dataset, 3)))
    assert mine[0].dtype == torch.uint8 and torch.equal(mine[0], theirs[0])

    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
        for i in range(3):
            (tmp_path / kind / f"{i}.png").write_bytes(png(i, i, i))
    steps = [v2.CenterCrop(16), v2.ToImage(), v2.ToDtype({tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True)]
    batch = next(iter(DataLoader(tmp_path, 3, transform=v2.Compose(steps))))
    images, masks = batch if isinstance(batch, tuple) else (batch["image"], batch["mask"])
    assert images.dtype == torch.float32 and float(images.max()) <= 1
    assert masks.dtype == torch.int64 and masks[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_formats_of_hugging_face_are_obeyed() -> None:
    datasets = pytest.importorskip("datasets")
    plain = datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0], "y": [0, 1, 0], "t": ["a", "b", "c"]})
    for dataset in (
        plain,
        plain.with_format("torch"),
        plain.with_format("torch", columns=["x"]),
        plain.with_transform(lambda rows: {"x": [value * 100 for value in rows["x"]]}),
        plain.select([2, 0]),
    ):
        want = [described(batch) for batch in data.DataLoader(dataset, 2)]
        assert [described(batch) for batch in DataLoader(dataset, 2)] == want


def test_items_of_a_python_dataset_keep_their_structure_in_the_engine() -> None:
    crop: dict[str, Any] = {"transform": "center_crop:24", "batch_size": 3}

    def one(make: Callable[[int], Any]) -> Any:
        return next(iter(DataLoader(Made(make), **crop)))

    picture = one(lambda i: png(i, i, i))
    assert tuple(picture.shape) == (3, 3, 24, 24)
    pair = one(lambda i: (png(i, i, i), i))
    assert type(pair) is list and torch.equal(pair[0], picture) and pair[1].tolist() == [0, 1, 2]
    named = one(lambda i: {"pixel_values": png(i, i, i), "labels": torch.tensor(i, dtype=torch.int32), "text": f"t{i}"})
    assert list(named) == ["pixel_values", "labels", "text"] and named["text"] == ["t0", "t1", "t2"]
    assert named["labels"].dtype == torch.int32 and torch.equal(named["pixel_values"], picture)
    point = one(lambda i: Point(png(i, i, i), i % 2 == 0))
    assert type(point) is Point and point.y.tolist() == [True, False, True] and point.y.dtype == torch.bool
    three = one(lambda i: (png(i, i, i), i, float(i)))
    assert type(three) is list and len(three) == 3 and three[2].dtype == torch.float64


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "LA", "RGBA", "I;16"])
def test_pictures_keep_the_channels_that_torchvision_gives_them(mode: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    chain = v2.Compose([v2.CenterCrop(20), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])

    def make(i: int) -> Any:
        draws = numpy.random.default_rng(i)
        if mode == "I;16":
            return pillow.fromarray(draws.integers(0, 65536, (24, 26), numpy.uint16)), i
        if mode == "1":
            return pillow.fromarray(draws.integers(0, 256, (24, 26), numpy.uint8)).convert("1"), i
        channels = len(mode)
        shape = (24, 26) if channels == 1 else (24, 26, channels)
        return pillow.fromarray(draws.integers(0, 256, shape, numpy.uint8), mode), i

    mine = list(DataLoader(Made(make), 4, transform=chain))
    theirs = list(data.DataLoader(Made(lambda i: (chain(make(i)[0]), i)), 4))
    for (images, labels), (want, want_labels) in zip(mine, theirs, strict=True):
        assert images.shape == want.shape and images.dtype == want.dtype
        assert torch.allclose(images, want, atol=1e-6) and torch.equal(labels, want_labels)


def test_pictures_that_torch_cannot_stack_are_named() -> None:
    pillow = pytest.importorskip("PIL.Image")
    modes = ["L", "L", "RGB"]
    mixed = Made(lambda i: pillow.new(modes[i], (9, 9)), 3)
    with pytest.raises(ValueError, match=r'mode RGB, but record 0 has 1 channel.*image.convert\("RGB"\)'):
        list(DataLoader(mixed, 3, transform="center_crop:8"))
    # Colours first: gray gets three channels, as from files.
    modes.reverse()
    assert next(iter(DataLoader(mixed, 3, transform="center_crop:8"))).shape == (3, 3, 8, 8)
    with pytest.raises(TypeError, match=r"mode F has numbers beyond 8 bits: return numpy.asarray\(image\)"):
        list(DataLoader(Made(lambda i: pillow.new("F", (9, 9))), transform="center_crop:8"))


def test_indices_of_a_palette_next_to_colours_are_a_mask(caplog: pytest.LogCaptureFixture) -> None:
    pillow = pytest.importorskip("PIL.Image")

    def make(mode: str) -> Any:
        def made(i: int) -> Any:
            target = pillow.frombytes("P", (10, 10), bytes([0, 1, 20, 255] * 25))
            target.putpalette([9, 9, 9, 200, 0, 0] * 128)
            return pillow.new("RGB", (10, 10), (i, 0, 0)), target if mode == "P" else pillow.new(mode, (10, 10), 7)

        return Made(made)

    images, masks = next(iter(DataLoader(make("P"), 3, transform="resize_exact:20;to_float")))
    assert images.shape == (3, 3, 20, 20) and images.dtype == torch.float32
    assert masks.shape == (3, 1, 20, 20) and masks.dtype == torch.uint8 and masks.unique().tolist() == [0, 1, 20, 255]
    # Gray may be an image or a mask.
    caplog.set_level("WARNING")
    _, gray = next(iter(DataLoader(make("L"), 3, transform="resize_exact:20;to_float")))
    assert gray.shape == (3, 1, 20, 20) and gray.dtype == torch.float32
    assert 'infeed.open(dataset, fields={"image1": "mask"})' in caplog.text


def test_draws_that_the_engine_cannot_seed_are_told() -> None:
    crop: dict[str, Any] = {"transform": "center_crop:24", "batch_size": 3}
    with pytest.warns(UserWarning, match=r"draws random numbers in __getitem__.*map="):
        next(iter(DataLoader(Made(lambda i: (png(i, i, i), random.random())), **crop)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(DataLoader(Made(lambda i: (png(i, i, i), 1.0)), **crop)))


def test_lists_of_texts_of_other_lengths_are_refused() -> None:
    made = Made(lambda i: (png(i, i, i), ["a"] * (i + 1)))
    with pytest.raises(ValueError, match="'texts': its lists have different lengths.*infeed.open"):
        next(iter(DataLoader(made, 2, transform="center_crop:24")))
    batch = next(iter(DataLoader(infeed.open(made), 2, transform="center_crop:24")))
    assert batch[1] == [["a"], ["a", "a"]]


def engine(made: Any, *arguments: Any, **more: Any) -> Any:
    """A loader whose records the engine reads."""
    return DataLoader(made, *arguments, on_bad_sample="raise", **more)


def test_a_loader_without_batches_converts_as_torchs() -> None:
    made = Made(lambda i: (numpy.ones(3, numpy.float32), i, "a", {"x": numpy.int16(i)}["x"]), 2)
    want = [described(sample) for sample in data.DataLoader(made, None)]
    assert [described(sample) for sample in engine(made, None)] == want
    assert [described(sample) for sample in DataLoader(made, None)] == want


def test_records_end_as_a_list_does(folder: str) -> None:
    for dataset in (engine(Made(lambda i: i, 3)).dataset, DataLoader(folder, transform="center_crop:8").dataset):
        assert len(list(dataset)) == len(dataset)
        with pytest.raises(IndexError, match="out of range"):
            dataset[len(dataset)]
        assert dataset[-1] is not None
    with pytest.raises(IndexError, match="index 9 is out of range: the dataset has 3 records"):
        list(engine(Made(lambda i: i, 3), sampler=[0, 9]))


def test_samplers_draw_as_under_torch() -> None:
    made = Made(lambda i: i, 10)
    kinds: list[Callable[[], Any]] = [
        lambda: data.RandomSampler(range(10)),
        lambda: data.WeightedRandomSampler([1.0] * 10, 10),
        Shuffled10,
    ]
    for kind in kinds:
        orders = []
        for make in (engine, data.DataLoader):
            seeded()
            loader = make(made, 5, sampler=kind())
            orders.append([[batch.tolist() for batch in loader] for _ in range(2)] + [torch.rand(1).item()])
        assert orders[0] == orders[1]


class Shuffled10(data.Sampler):  # type: ignore[misc,name-defined]
    """An order of torch's global generator."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(10).tolist())

    def __len__(self) -> int:
        return 10


def test_what_a_script_changes_counts(folder: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    tensors = data.TensorDataset(torch.arange(12.0).view(6, 2))
    chain = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(16), torchvision.transforms.ToTensor()])
    images = torchvision.datasets.ImageFolder(folder, chain)
    for make in (DataLoader, data.DataLoader):
        # The function that joins samples.
        for dataset in (tensors, images):
            loader = make(dataset, 60)
            next(iter(loader))
            loader.collate_fn = lambda samples: (type(samples), len(samples))
            assert list(loader)[0] == (list, min(60, len(dataset)))
        loader = make(images, None)
        loader.collate_fn = lambda sample: sample[1]
        assert len(list(loader)) == 100
        # Tensors, and indices in place and replaced.
        loader = make(data.Subset(tensors, [0, 1]), 3)
        next(iter(loader))
        loader.dataset.indices = [5]
        assert [batch[0].tolist() for batch in loader] == [[[10.0, 11.0]]]
        tensors.tensors = (tensors.tensors[0] * 0,)
        assert [batch[0].tolist() for batch in loader] == [[[0.0, 0.0]]]
        tensors.tensors = (torch.arange(12.0).view(6, 2),)
        subset = data.Subset(images, [0, 1])
        loader = make(subset, 1)
        assert [label.item() for _, label in loader] == [0, 0]
        subset.indices.append(99)
        assert [label.item() for _, label in loader] == [0, 0, 1]
        subset.indices = [98, 99]
        assert [label.item() for _, label in loader] == [1, 1]
        # A transform between single records.
        loader = make(images)
        sizes = [loader.dataset[0][0].shape[-1]]
        loader.dataset.transform = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(8), *chain.transforms[1:]])
        sizes.append(loader.dataset[0][0].shape[-1])
        images.transform = chain
        assert sizes == [16, 8]


def test_strides_and_slices_of_tensors_are_torchs() -> None:
    images = torch.arange(96.0).view(2, 3, 4, 4).to(memory_format=torch.channels_last)
    for kind in (DataLoader, data.DataLoader):
        assert next(iter(kind(data.TensorDataset(images), 2)))[0].is_contiguous()
        batch = next(iter(kind(data.TensorDataset(images), 2, sampler=[slice(0, 2), slice(0, 2)])))
        assert batch[0].shape == (2, 2, 3, 4, 4)


def test_labels_and_types_of_torchvisions_chains_stay(folder: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    pillow = pytest.importorskip("PIL.Image")
    transforms = torchvision.transforms
    crop, floats = v2.CenterCrop(6), v2.Compose([v2.ToImage(), v2.CenterCrop(6), v2.ToDtype(torch.float32, scale=True)])

    def pair(dtype: Any, shape: tuple[int, ...]) -> Callable[[int], Any]:
        labels = torch.arange(64).view(8, 8).add(100) if dtype is torch.int64 else torch.eye(8)
        return lambda i: (tv_tensors.Image(torch.full((3, 8, 8), i, dtype=torch.uint8)), tv_tensors.Mask(labels.to(dtype).view(shape)))

    # What a record holds, and the chain over it.
    rows: list[tuple[Callable[[int], Any], Any]] = [
        (pair(torch.int64, (8, 8)), floats),
        (pair(torch.int64, (1, 8, 8)), floats),
        (pair(torch.bool, (8, 8)), floats),
        (pair(torch.uint8, (8, 8)), crop),
        # Numbers of another size than the image are no image.
        (lambda i: {"image": pillow.new("RGB", (8, 8), (i, 0, 0)), "flags": torch.ones(2, 2, dtype=torch.uint8)}, floats),
        # No step that sets a type.
        (lambda i: torch.full((3, 8, 8), i, dtype=torch.uint8), crop),
        (lambda i: torch.full((3, 8, 8), i, dtype=torch.uint8), torch.nn.Sequential(transforms.CenterCrop(4))),
        # Tensors have their channels first, whatever their width.
        (lambda i: torch.arange(3 * 20 * 4, dtype=torch.uint8).view(3, 20, 4) + i, v2.Compose([v2.CenterCrop(4), floats.transforms[2]])),
        (lambda i: torch.arange(9, dtype=torch.uint8).view(1, 3, 3) + i, v2.CenterCrop(3)),
    ]

    def applied(make: Callable[[int], Any], chain: Any) -> Callable[[int], Any]:
        return lambda i: chain(*item) if isinstance(item := make(i), tuple) else chain(item)

    for make, chain in rows:
        want = next(iter(data.DataLoader(Made(applied(make, chain), 4), 4)))
        assert described(next(iter(DataLoader(Made(make, 4), 4, transform=chain)))) == described(want)
    with pytest.raises(ValueError, match="bytes of images of 16 bits"):
        next(iter(DataLoader(Made(lambda i: torch.zeros(1, 8, 8, dtype=torch.uint16)), transform=v2.Compose([v2.CenterCrop(6), v2.ToImage()]))))
    # Types of labels that a script sets are the batch's, so torchvision reads.
    images = torchvision.datasets.ImageFolder(folder, transforms.Compose([transforms.CenterCrop(6), transforms.ToTensor()]))
    images.samples = [(path, numpy.int32(label)) for path, label in images.samples]
    assert next(iter(DataLoader(images, 2)))[1].dtype == torch.int32
    # A crop beyond a small image, then a resize.
    images = torchvision.datasets.ImageFolder(folder, v2.Compose([v2.CenterCrop(200), v2.Resize((9, 9)), *floats.transforms]))
    assert not hasattr(DataLoader(images), "loader")


def test_python_numbers_may_be_integers_and_fractions() -> None:
    made = Made(lambda i: (0.5 if i == 0 else i, [1.5, 2] if i == 0 else [i, 3]), 4)
    for arguments in ({"batch_size": 1}, {"batch_size": 4}):
        want = [[value.tolist() for value in (batch[0], *batch[1])] for batch in data.DataLoader(made, **arguments)]
        assert [[value.tolist() for value in (batch[0], *batch[1])] for batch in engine(made, **arguments)] == want
    assert next(iter(engine(Made(lambda i: (numpy.str_(f"a{i}"), numpy.int8(i))), 2)))[0] == ("a0", "a1")
    for kind in (dict, tuple, list):
        with pytest.raises(TypeError, match=r"dataset\[0\] is empty"):
            next(iter(engine([kind()] * 3, 2)))


def test_a_shuffling_buffer_of_hugging_face_is_read_again() -> None:
    """Its own state leaves out what the buffer holds."""
    datasets = pytest.importorskip("datasets")

    def loader() -> Any:
        rows = datasets.Dataset.from_dict({"a": list(range(23))}).to_iterable_dataset(num_shards=4)
        return DataLoader(rows.shuffle(seed=3, buffer_size=5), 4)

    first = loader()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    other = loader()
    other.load_state_dict(state)
    want = [batch["a"].tolist() for batch in batches]
    assert sum(map(len, want)) == 11 and [batch["a"].tolist() for batch in other] == want


def test_resized_jpegs_have_torchvisions_pixels(tmp_path: Path) -> None:
    """Where colours are strong, RGB is cut before it is resized, not after it."""
    torchvision = pytest.importorskip("torchvision")
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    for i in range(4):
        blocks = numpy.random.default_rng(i).choice([0, 255], (12, 15, 3)).astype(numpy.uint8)
        pillow.fromarray(blocks).resize((90, 72), 0).save(tmp_path / "a" / f"{i}.jpg", quality=75)
    chain = torchvision.transforms.Compose([torchvision.transforms.Resize((31, 40)), torchvision.transforms.PILToTensor()])
    images = torchvision.datasets.ImageFolder(str(tmp_path), chain)
    want = next(iter(data.DataLoader(images, 4)))[0].int()

    def apart(loader: Any) -> int:
        return int((next(iter(loader))[0].int() - want).abs().max())

    loader = DataLoader(images, 4)
    assert isinstance(loader.loader, infeed.Loader) and apart(loader) <= 1
    assert apart(DataLoader(images, 4, jpeg_exact=True)) <= 1
    # The engine's own way.
    assert apart(DataLoader(images, 4, jpeg_exact=False)) > 8


@pytest.fixture
def images(folder: str) -> Any:
    """An ``ImageFolder`` that the engine reads."""
    torchvision = pytest.importorskip("torchvision")
    chain = [torchvision.transforms.CenterCrop(8), torchvision.transforms.ToTensor()]
    return torchvision.datasets.ImageFolder(folder, torchvision.transforms.Compose(chain))


def test_an_image_folder_has_torchs_order_and_moves_its_generator(images: Any) -> None:
    """What the script draws between batches is torch's, too."""
    arguments: list[Callable[[], dict[str, Any]]] = [
        lambda: {},
        lambda: {"shuffle": True},
        lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(1)},
        lambda: {"shuffle": True, "num_workers": 1, "persistent_workers": True},
        lambda: {"sampler": data.RandomSampler(images)},
        lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(images), 7, drop_last=True)},
    ]
    for make in arguments:
        runs = []
        for kind in (DataLoader, data.DataLoader):
            seeded()
            given = make()
            loader = kind(images, **given) if "batch_sampler" in given else kind(images, 9, **given)
            assert not isinstance(loader, TheLoader) or isinstance(loader.loader, infeed.Loader)
            seeded()
            runs.append([[(batch[1].tolist(), torch.rand(1).item()) for batch in loader] for _ in range(3)])
        assert runs[0] == runs[1]


def test_a_seed_is_a_generator(images: Any) -> None:
    for dataset in (images, Made(ITEMS["pair"], 20)):
        generator = torch.Generator().manual_seed(3)
        want = [batch[1].tolist() for batch in data.DataLoader(dataset, 9, shuffle=True, generator=generator)]
        assert [batch[1].tolist() for batch in DataLoader(dataset, 9, shuffle=True, seed=3)] == want


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_image_folder_resumes_in_torchs_order(images: Any, shuffle: bool) -> None:
    seeded()
    loader = DataLoader(images, 9, shuffle=shuffle)
    epochs = [[(batch[0].sum().item(), batch[1].tolist()) for batch in loader] for _ in range(2)]
    for stop in (1, 5, 12):
        seeded()
        first = DataLoader(images, 9, shuffle=shuffle)
        list(first)
        batches = iter(first)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(first.state_dict()))
        torch.rand(5)
        other = DataLoader(images, 9, shuffle=shuffle)
        other.load_state_dict(state)
        assert [(batch[0].sum().item(), batch[1].tolist()) for batch in other] == epochs[1][stop:]


def test_parts_of_a_loaders_dataset_are_samples(images: Any) -> None:
    """As in pytorch's ImageNet example, which reads the rest of the validation set by a ``Subset``."""
    made = DataLoader(images, 10).dataset
    chosen = [3, 70, 99, 4]
    wanted = [*data.DataLoader(data.Subset(images, chosen), 3), next(iter(data.DataLoader(images, 7)))]
    for kind in (DataLoader, data.DataLoader):
        for workers in (0, 2):
            batches = [*kind(data.Subset(made, chosen), 3, num_workers=workers), next(iter(kind(made, 7, num_workers=workers)))]
            for batch, want in zip(batches, wanted, strict=True):
                assert type(batch) is list and batch[1].tolist() == want[1].tolist()
                assert torch.allclose(batch[0], want[0], atol=1e-6)
    samples = next(iter(data.DataLoader(made, 4, num_workers=1, collate_fn=as_they_are)))
    assert type(samples) is list and len(samples) == 4 and type(samples[0]) is tuple


def as_they_are(samples: Any) -> Any:
    return samples


class Endless(data.Sampler):  # type: ignore[misc,name-defined]
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(self.count)


def test_endless_samplers_never_end(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The engine takes 2 x 100 + 30 indices at once, so 24 batches of 10, and goes on at 240.
    monkeypatch.setattr("infeed.torch._WINDOW", 30)
    orders: list[Callable[[], dict[str, Any]]] = [
        lambda: {"batch_size": 10, "sampler": Endless(100)},
        lambda: {"batch_sampler": data.BatchSampler(Endless(100), 10, drop_last=True)},
        lambda: {"batch_sampler": BatchesWithoutEnd(100)},
    ]
    for order in orders:
        loader = DataLoader(images, **order())
        want = [label.tolist() for (_, label), _ in zip(data.DataLoader(images, **order()), range(60), strict=False)]
        got: list[Any] = []
        states: dict[int, Any] = {}
        for step, (_, label) in zip(range(60), loader, strict=False):
            got.append(label.tolist())
            if step in (3, 23, 24, 50):
                states[step] = json.loads(json.dumps(loader.state_dict()))
        assert got == want
        for step, state in states.items():
            other = DataLoader(images, **order())
            other.load_state_dict(state)
            left = [label.tolist() for _, (_, label) in zip(range(59 - step), other, strict=False)]
            assert left == want[step + 1 :]


class BatchesWithoutEnd:
    """As timm's loaders that keep their workers for many epochs have it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            for start in range(0, self.count, 10):
                yield list(range(start, start + 10))


def test_a_batch_sampler_that_a_script_changes_counts(images: Any) -> None:
    for dataset in (images, Made(ITEMS["pair"], 30)):
        orders = []
        for kind in (DataLoader, data.DataLoader):
            loader = kind(dataset, 10)
            sizes = [[len(batch[1]) for batch in loader]]
            loader.batch_sampler.batch_size = 4
            loader.batch_sampler.drop_last = True
            sizes.append([len(batch[1]) for batch in loader])
            loader.batch_sampler.sampler = range(5)
            sizes.append([len(batch[1]) for batch in loader])
            # As loaders that repeat their batches do.
            object.__setattr__(loader, "batch_sampler", [[1, 2], [3]])
            sizes.append([len(batch[1]) for batch in loader])
            orders.append(sizes)
        assert orders[0] == orders[1]


class Passes(data.Sampler):  # type: ignore[misc,name-defined]
    """Another order in each pass, whose number is its state."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter(torch.randperm(40, generator=torch.Generator().manual_seed(self.passes)).tolist())

    def __len__(self) -> int:
        return 40

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


def test_a_state_between_epochs_has_the_samplers(images: Any) -> None:
    for dataset in (images, Made(ITEMS["pair"], 40)):
        for epochs in (0, 2):
            loader = DataLoader(dataset, 8, sampler=Passes())
            for _ in range(epochs):
                list(loader)
            states = [loader.state_dict()]
            batches = iter(loader)
            states.append(loader.state_dict())
            want = [batch[1].tolist() for batch in batches]
            for state in json.loads(json.dumps(states)):
                other = DataLoader(dataset, 8, sampler=Passes())
                other.load_state_dict(state)
                assert [batch[1].tolist() for batch in other] == want


def test_samplers_are_asked_when_torch_asks_them(images: Any) -> None:
    """Loops that are left, and loops over two loaders, draw the same."""
    runs = []
    for kind in (DataLoader, data.DataLoader):
        generator = torch.Generator().manual_seed(0)
        loader = kind(images, 8, shuffle=True, generator=generator)
        left = [next(iter(loader))[1].tolist() for _ in range(3)]
        torch.manual_seed(0)
        both = [kind(images, 8, shuffle=True), kind(images, 8, shuffle=True)]
        pairs = [(x[1].tolist(), y[1].tolist()) for x, y in zip(*both, strict=True)]
        batches = iter(both[0])
        torch.manual_seed(1)
        late = [batch[1].tolist() for batch in batches]
        again = kind(DataLoader(images, 5).dataset, 8, shuffle=True)
        runs.append((left, pairs, late, [batch[1].tolist() for batch in again], torch.rand(1).item()))
    assert runs[0] == runs[1]


def test_a_batch_sampler_that_changes_in_an_epoch_keeps_the_place(images: Any) -> None:
    loader = DataLoader(images, 8)
    batches = iter(loader)
    next(batches)
    loader.batch_sampler.batch_size = 5
    other = DataLoader(images, 5)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    want = torch.stack([image for image, _ in [images[at] for at in range(8, 13)]])
    assert torch.allclose(next(iter(other))[0], want, atol=1e-6)
