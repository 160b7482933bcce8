"""Orders of the user's: samplers and batch samplers, another list in each epoch."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from typing import Any

import infeed
import pytest


def Loader(data: Any, **more: Any) -> infeed.Loader:  # noqa: N802 (it stands for the class)
    return infeed.Loader(data, **{"transform": "center_crop:24", **more})


def records(loader: infeed.Loader) -> list[list[int]]:
    return [batch.records for batch in loader]


class Growing:
    """Another order, and another length, in each epoch."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = random.Random(f"{self.seed} {self.epoch}")
        return iter([order.randrange(100) for _ in range(len(self))])

    def __len__(self) -> int:
        return 40 + 7 * self.epoch


def of(sampler: Growing, epoch: int, size: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    found = list(sampler)
    return [found[at : at + size] for at in range(0, len(found), size)]


def test_an_epoch_is_what_its_sampler_gives(folder: str) -> None:
    loader = Loader(folder, batch_size=8, sampler=Growing())
    for epoch in range(3):
        assert records(loader) == of(Growing(), epoch, 8)
    loader.set_epoch(1)
    assert records(loader) == of(Growing(), 1, 8)
    assert len(Loader(folder, batch_size=8, sampler=Growing())) == 5
    assert len(Loader(folder, batch_size=7, sampler=Growing(), drop_last=True)) == 5
    assert records(Loader(folder, batch_size=7, sampler=Growing(), drop_last=True)) == of(Growing(), 0, 7)[:5]
    # Any iterable will do.
    assert records(Loader(folder, batch_size=2, sampler=[5, 5, 99])) == [[5, 5], [99]]
    assert records(Loader(folder, batch_size=2, sampler=range(10, 14))) == [[10, 11], [12, 13]]


def test_a_state_in_a_sampler_goes_on_exactly(folder: str) -> None:
    loader = Loader(folder, batch_size=8, sampler=Growing())
    states = [loader.state_dict()]
    for _ in range(2):
        for _ in loader:
            states.append(loader.state_dict())
    whole = [of(Growing(), epoch, 8) for epoch in range(3)]
    flat = [batch for epoch in whole for batch in epoch]
    for at, state in enumerate(states):
        other = Loader(folder, batch_size=8, sampler=Growing())
        other.load_state_dict(json.loads(json.dumps(state)))
        assert [batch for _ in range(3 - state["epoch"]) for batch in records(other)] == flat[at:], at
    # Another list is another order.
    inside = Loader(folder, batch_size=8, sampler=Growing(seed=1))
    with pytest.raises(infeed.errors.StateError):
        inside.load_state_dict(states[2])


def test_batch_samplers_say_which_batches_there_are(folder: str) -> None:
    batches = [[1, 2, 3], [9], [4, 4, 4, 4], [99, 0]]
    loader = Loader(folder, batch_size=4, batch_sampler=batches)
    assert records(loader) == batches == records(loader)
    assert len(loader) == 4
    for at in range(1, 4):
        here = iter(loader)
        for _ in range(at):
            next(here)
        other = Loader(folder, batch_size=4, batch_sampler=batches)
        other.load_state_dict(loader.state_dict())
        assert records(other) == batches[at:]
        assert records(other) == batches
    with pytest.raises(ValueError, match="4"):
        records(Loader(folder, batch_size=3, batch_sampler=batches))
    with pytest.raises(ValueError, match="give batch_size"):
        Loader(folder, batch_sampler=batches)


def test_an_epoch_may_be_empty(folder: str) -> None:
    class Every:
        def __init__(self) -> None:
            self.epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            return iter([] if self.epoch == 1 else [3, 4])

    loader = Loader(folder, batch_size=2, sampler=Every())
    assert [records(loader) for _ in range(3)] == [[[3, 4]], [], [[3, 4]]]
    loader.set_epoch(1)
    assert records(loader) == [] and loader.state_dict()["epoch"] == 2
    # Less than a batch.
    assert records(Loader(folder, batch_size=3, sampler=Every(), drop_last=True)) == []


def test_samplers_of_torch_are_taken(folder: str) -> None:
    data = pytest.importorskip("torch.utils.data")
    sampler = data.SequentialSampler(range(100))
    assert records(Loader(folder, batch_sampler=data.BatchSampler(sampler, 30, False)))[3] == list(range(90, 100))
    ranks = [data.DistributedSampler(range(100), num_replicas=3, rank=rank, seed=5) for rank in range(3)]
    loaders = [Loader(folder, batch_size=10, sampler=sampler) for sampler in ranks]
    for epoch in range(2):
        got = [record for loader in loaders for batch in records(loader) for record in batch]
        for sampler in ranks:
            sampler.set_epoch(epoch)
        assert got == [record for sampler in ranks for record in sampler]
        assert set(got) == set(range(100))


def test_a_loader_with_a_sampler_is_pickled(folder: str) -> None:
    loader = Loader(folder, batch_size=8, sampler=Growing())
    records(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert records(copy) == of(Growing(), 1, 8)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"sampler": [1], "batch_sampler": [[1]]}, ValueError, "give one of them"),
        ({"sampler": [1], "shuffle": True}, ValueError, "omit shuffle"),
        ({"sampler": [1], "rank": 0, "world_size": 2}, ValueError, "omit rank"),
        ({"batch_sampler": [[1]], "batch_size": 2, "drop_last": True}, ValueError, "drop_last"),
        ({"sampler": 5}, TypeError, "iterable"),
        ({"sampler": ["a"]}, TypeError, "indices"),
        ({"sampler": [[1, 2]]}, TypeError, "indices"),
        ({"sampler": [3, 100]}, ValueError, "100"),
        ({"sampler": [3, -1]}, IndexError, "-1"),
    ],
)
def test_what_cannot_be_is_refused(folder: str, arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        next(iter(Loader(folder, **arguments)))
