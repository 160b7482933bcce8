"""The place of a loop over a ``DataLoader``, and the remaining indices of its epoch."""
# torch is not fully typed.
# pyright: basic

from __future__ import annotations

import base64
import itertools
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from . import _draws
from .errors import StateError

_VERSION = 1
OF_TORCH = (BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
_END: Any = object()


class Place:
    """The place of one ``iter``: after the last batch that the loop got. Read-ahead does not count."""

    def __init__(self, loader: Any, epoch: int) -> None:
        self.epoch = epoch
        # The seed of the records' draws; set after torch has drawn its base seed.
        self.seed: int | None = None
        self.ended = False
        # Batches and samples of the whole epoch that the loop got.
        self.batches = self.samples = 0
        # Those of them that came before this `iter`, in the run that saved the state.
        self.skipped_batches = self.skipped_samples = 0
        # For a `DistributedSampler`: number of indices before this `iter`, of all ranks together.
        self.consumed = 0
        self.world = 1
        sampler = distributed(loader)
        if sampler is not None:
            self.world = sampler.num_replicas
        self.sampler_epoch = epoch_of(loader)
        # For drawn batches that the loop did not get yet: their sizes, and the sampler's state after each.
        self._ahead: deque[tuple[int, Any]] = deque()
        # The sampler's state, and whether the sampler had ended, so that it would start again.
        self.sampler_state: Any = None
        self.dataset_state: Any = None
        # The generators' states before the epoch's first draw, and (after a resume) when its indices are drawn.
        self.rng: dict[str, Any] = _rng_of(loader)
        self.replay: tuple[Any, ...] | None = None
        # The base seed of an iterator of persistent workers, from its second epoch on: torch draws it only for the first.
        self.base_seed: int | None = None
        # Of an endless sampler the engine takes some epochs' indices at once: how often it took more.
        self.window = 0
        # Whether the engine has begun, and the engine's state at which it begins.
        self.has_begun = False
        self.behind: dict[str, Any] | None = None
        # How often each index came; None if no index can come twice.
        self.counts: dict[int, int] | None = None if _once(source(loader)) else {}

    def resume(self, state: Mapping[str, Any]) -> None:
        self.batches = self.skipped_batches = state["batches"]
        self.samples = self.skipped_samples = state["samples"]
        self.consumed = state["consumed"]
        self.sampler_state, self.dataset_state = state.get("sampler"), state.get("dataset")
        self.base_seed, self.window = state.get("base_seed"), state.get("window", 0)
        self.rng = dict(state["rng"])

    @property
    def engine_epoch(self) -> int:
        """The epoch for the engine's draws, another one for each window."""
        return self.epoch + (self.window << 40)

    def drew(self, size: int, sampler_state: Any) -> None:
        self._ahead.append((size, sampler_state))

    def gave(self) -> None:
        """The loop gets the next batch."""
        self.batches += 1
        if self._ahead:
            size, self.sampler_state = self._ahead.popleft()
            self.samples += size

    def before(self, indices: Iterable[Any]) -> list[int] | None:
        """Counts the indices. Returns how often each came before in this epoch; None if none did."""
        counts = self.counts
        if counts is None:
            return None
        found: list[int] = []
        for index in indices:
            number = _draws._number(index)
            nth = counts.get(number, 0)
            counts[number] = nth + 1
            found.append(nth)
        return found if any(found) else None

    def state_dict(self) -> dict[str, Any]:
        new = self.samples - self.skipped_samples
        self.rng = as_text(self.rng)
        state = {
            "infeed.torch": _VERSION,
            "epoch": self.epoch,
            "batches": self.batches,
            "samples": self.samples,
            "consumed": self.consumed + new * self.world,
            "sampler_epoch": self.sampler_epoch,
            "rng": self.rng,
        }
        kept = {"sampler": self.sampler_state, "dataset": self.dataset_state, "base_seed": self.base_seed}
        kept["window"] = self.window or None
        return state | {name: value for name, value in kept.items() if value is not None}


def checked(state: Any, records: int | None) -> dict[str, Any]:
    """The state as a dict, after a check that this version wrote it, for a dataset with as many records."""
    if not isinstance(state, Mapping) or "infeed.torch" not in state:
        raise StateError("this is not a state of infeed.torch.DataLoader: give the result of its state_dict()")
    if state["infeed.torch"] != _VERSION:
        raise StateError(f"the state has version {state['infeed.torch']}, and this infeed reads version {_VERSION}")
    of = state.get("records")
    if of is not None and records is not None and of != records:
        raise StateError(f"the state is from a dataset with {of} records, and this one has {records}")
    return dict(state)


def _packed(state: torch.Tensor) -> str:
    return base64.b64encode(zlib.compress(bytes(state.tolist()))).decode()


def _unpacked(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.uint8)


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators from which indices may be drawn, without the global one."""
    found: list[torch.Generator] = []
    for holder in (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)):
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator) and generator not in found:
            found.append(generator)
    return found


def _rng_of(loader: Any) -> dict[str, Any]:
    rng: dict[str, Any] = {"torch": torch.default_generator.get_state()}
    rng["generators"] = [generator.get_state() for generator in _generators(loader)]
    samplers = (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
    if any(it is not None and type(it) not in OF_TORCH for it in samplers):
        _, of_numpy, of_python = _draws.state()
        rng["python"] = of_python
        rng["numpy"] = of_numpy
    return rng


def as_text(rng: Mapping[str, Any]) -> dict[str, Any]:
    """The generators' states in a form for JSON."""
    if isinstance(rng["torch"], str):
        return dict(rng)
    text: dict[str, Any] = {
        "torch": _packed(rng["torch"]),
        "generators": [_packed(state) for state in rng["generators"]],
    }
    if rng.get("python") is not None:
        version, words, gauss = rng["python"]
        text["python"] = [version, list(words), gauss]
    if rng.get("numpy") is not None:
        name, keys, at, has_gauss, gauss = rng["numpy"]
        text["numpy"] = [name, keys.tolist(), int(at), int(has_gauss), float(gauss)]
    return text


def replay(loader: Any, rng: Mapping[str, Any]) -> None:
    """Sets the generators to their states at the start of an epoch."""
    text = as_text(rng)
    torch.default_generator.set_state(_unpacked(text["torch"]))
    for generator, state in zip(_generators(loader), text["generators"], strict=False):
        generator.set_state(_unpacked(state))
    _, of_numpy, of_python = _draws.state()
    if "python" in text:
        version, words, gauss = text["python"]
        of_python = (version, tuple(words), gauss)
    if "numpy" in text:
        of_numpy = tuple(text["numpy"])
    _draws.restore((torch.default_generator.get_state(), of_numpy, of_python))


def epoch_of(loader: Any) -> int | None:
    """The epoch of the samplers, if they have one."""
    for it in (loader.batch_sampler, source(loader)):
        epoch = getattr(it, "epoch", None)
        if isinstance(epoch, int):
            return epoch
    return None


def source(loader: Any) -> Any:
    """The sampler whose indices the loader reads in order. None if a custom batch sampler makes the batches."""
    batch_sampler = loader.batch_sampler
    if batch_sampler is None:
        return loader.sampler
    return batch_sampler.sampler if type(batch_sampler) is BatchSampler else None


def distributed(loader: Any) -> DistributedSampler[Any] | None:
    """The sampler if it is torch's ``DistributedSampler``, which deals one order of all records to the ranks in turn."""
    sampler = source(loader)
    return sampler if type(sampler) is DistributedSampler else None


def dealt(sampler: DistributedSampler[Any], consumed: int) -> list[Any]:
    """This rank's part of the rest of an epoch, after the ``consumed`` indices that all ranks together got."""
    alone: DistributedSampler[Any] = DistributedSampler(sampler.dataset, 1, 0, sampler.shuffle, sampler.seed)
    alone.epoch = sampler.epoch
    order = list(alone)
    left, world = order[consumed:], sampler.num_replicas
    if sampler.drop_last:
        del left[len(left) // world * world :]
    elif left:
        left += itertools.islice(itertools.cycle(order), -len(left) % world)
    return left[sampler.rank :: world]


def _once(sampler: Any) -> bool:
    """Whether no index can come twice in an epoch."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return type(sampler) in (SequentialSampler, DistributedSampler)


def stateful(*those: Any) -> Any:
    """The first object with ``state_dict`` and ``load_state_dict``."""
    return next((it for it in those if hasattr(it, "state_dict") and hasattr(it, "load_state_dict") and not _buffers(it)), None)


def _buffers(dataset: Any) -> bool:
    """Whether it is an iterable dataset of Hugging Face that shuffles in a buffer, which its state does not contain."""
    part = getattr(dataset, "_ex_iterable", None)
    while part is not None:
        if "BufferShuffled" in type(part).__name__:
            return True
        part = getattr(part, "ex_iterable", None)
    return False


def stateful_sampler(loader: Any) -> Any:
    """The first of a loader's samplers with ``state_dict`` and ``load_state_dict``."""
    return stateful(loader.batch_sampler, source(loader))


def left_of_epoch(loader: Any, place: Place) -> Iterator[Any]:
    """The rest of the epoch's batches of indices (or indices, without batches), drawn lazily."""
    kept = None
    if place.replay is not None:
        kept = _draws.state()
        _draws.restore(place.replay)
    drawn = _drawn(loader, place)
    first = next(drawn, _END)
    if kept is not None:
        _draws.restore(kept)
    if first is not _END:
        yield first
        yield from drawn


def _drawn(loader: Any, place: Place) -> Iterator[Any]:
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    dealer = distributed(loader)
    if dealer is not None:
        order: Iterable[Any] = dealt(dealer, place.consumed)
    elif place.sampler_state is not None:
        keeper = stateful_sampler(loader)
        if keeper is None:
            raise StateError("the state contains a sampler's state, and this loader's sampler has no load_state_dict")
        state, spent = place.sampler_state
        keeper.load_state_dict(state)
        if not spent:
            yield from batch_sampler if batch_sampler is not None else sampler
        return
    elif (of := source(loader)) is not None:
        order = _behind(of, place.skipped_samples, place)
    else:
        for skipped in itertools.islice(batches := iter(batch_sampler), place.skipped_batches):
            place.before(skipped)
        yield from batches
        return
    yield from order if batch_sampler is None else BatchSampler(order, batch_sampler.batch_size, batch_sampler.drop_last)  # type: ignore[arg-type,unused-ignore]


def _behind(sampler: Any, samples: int, place: Place) -> Iterator[Any]:
    order: Iterator[Any] = iter(sampler)
    place.before(itertools.islice(order, samples))
    if place.counts is None:
        # Without counts, `before` took nothing from the iterator: skip the samples here.
        next(itertools.islice(order, samples, samples), None)
    return order
