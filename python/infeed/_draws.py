"""Seeds torch, NumPy and ``random`` for each record, and only the generators from which records draw.

A record's draws depend on the epoch, the record and how often it came before in the epoch, in whichever process it is read.
Seeding all three generators costs about 8 µs per record. So a generator is seeded only after a record drew from it, which a
comparison of the generator's memory shows for 1 µs.
"""
# torch is not fully typed.
# pyright: basic

from __future__ import annotations

import ctypes
import itertools
import random
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import Subset, get_worker_info

_U64 = (1 << 64) - 1


class _OfTorch:
    """torch's CPU generator."""

    def seen(self) -> bytes:
        """Bytes that differ after any draw."""
        state = torch.default_generator.get_state()
        return ctypes.string_at(state.data_ptr(), state.nbytes)

    def state(self) -> Any:
        return torch.default_generator.get_state()

    def restore(self, state: Any) -> None:
        torch.default_generator.set_state(state)

    def seed(self, number: int) -> None:
        # Not `torch.manual_seed`, which seeds GPUs too.
        torch.default_generator.manual_seed(number >> 1)


class _OfNumPy:
    """NumPy's global generator, if NumPy is imported and the generator is the one that can be seeded."""

    # 624 words and a position in them. Read from memory, since `get_state` costs 30 µs.
    _BYTES = 2500

    def _random(self) -> Any:
        random = sys.modules.get("numpy.random")
        return random if random is not None and type(random.get_bit_generator()).__name__ == "MT19937" else None

    def seen(self) -> bytes:
        random = self._random()
        if random is None:
            return b""
        return ctypes.string_at(random.get_bit_generator().ctypes.state_address, self._BYTES)

    def state(self) -> Any:
        random = self._random()
        return None if random is None else random.get_state()

    def restore(self, state: Any) -> None:
        if state is not None:
            sys.modules["numpy.random"].set_state(state)

    def seed(self, number: int) -> None:
        random = self._random()
        if random is not None:
            random.seed(number & 0xFFFFFFFF)


class _OfPython:
    """The generator behind ``random.random``."""

    _IT: Any = random.random.__self__  # type: ignore[attr-defined]
    # The object's memory after its header. Read directly, since `getstate` makes a tuple of 625 numbers.
    _HEAD = object.__basicsize__
    _BYTES = type(_IT).__mro__[1].__basicsize__ - _HEAD

    def seen(self) -> tuple[bytes, float | None]:
        return ctypes.string_at(id(self._IT) + self._HEAD, self._BYTES), self._IT.gauss_next

    def state(self) -> Any:
        return random.getstate()

    def restore(self, state: Any) -> None:
        random.setstate(state)

    def seed(self, number: int) -> None:
        random.seed(number)


_GENERATORS: tuple[Any, ...] = (_OfTorch(), _OfNumPy(), _OfPython())


def seen() -> tuple[Any, ...]:
    """Bytes that differ after any draw from one of the three generators."""
    return tuple([generator.seen() for generator in _GENERATORS])


def state() -> tuple[Any, ...]:
    """The states of the three generators: torch's, NumPy's (None without NumPy), Python's."""
    return tuple([generator.state() for generator in _GENERATORS])


def restore(kept: tuple[Any, ...]) -> None:
    """Sets the generators back to a result of ``state``."""
    for generator, state in zip(_GENERATORS, kept, strict=True):
        generator.restore(state)


def mixed(*numbers: int) -> int:
    """A 64-bit hash of some numbers, by SplitMix64."""
    mix = 0
    for number in numbers:
        mix = (mix + (number & _U64) + 0x9E3779B97F4A7C15) & _U64
        mix = ((mix ^ (mix >> 30)) * 0xBF58476D1CE4E5B9) & _U64
        mix = ((mix ^ (mix >> 27)) * 0x94D049BB133111EB) & _U64
        mix ^= mix >> 31
    return mix


def _number(index: Any) -> int:
    return index if type(index) is int else zlib.crc32(repr(index).encode())


class Task(NamedTuple):
    """A request to a dataset: the indices of a batch, or the index of a sample."""

    asked: Any
    # The seed of the epoch.
    seed: int
    # How often each index came before in this epoch; None: no index came before.
    before: list[int] | None


class Collated(NamedTuple):
    """A batch that needs no ``collate_fn``."""

    batch: Any


class Through:
    """A ``collate_fn`` that passes on a batch that is already collated."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        return samples.batch if type(samples) is Collated else self.collate_fn(samples)


def _several(dataset: Any) -> Any:
    """The method that returns many records at once, if there is one. A ``Subset`` always has it; its dataset decides."""
    inner = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    return getattr(dataset, "__getitems__", None) if getattr(inner, "__getitems__", None) else None


class Seeded:
    """A dataset whose records' draws depend on index and epoch. Its index is a ``Task``."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        # Takes a batch at once, from datasets that draw nothing. None of what it cannot take.
        self.gather: Callable[[Sequence[Any]], Any] | None = None
        # The generators from which records drew, and whether a record has been checked yet.
        self._used: list[int] = []
        self._looked = False

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, task: Task) -> Any:
        """A single sample, of a loader without batches."""
        return self._made(self.dataset.__getitem__, [task.asked], task)[0]

    def __getitems__(self, task: Task) -> Any:
        if self.gather is not None:
            batch = self.gather(task.asked)
            if batch is not None:
                return Collated(batch)
        several = _several(self.dataset)
        if several:
            # All at once: the draws depend on this list of records.
            return self._made(several, [task.asked], task)[0]
        return self._made(self.dataset.__getitem__, task.asked, task)

    def _made(self, get: Callable[[Any], Any], asked: Sequence[Any], task: Task) -> list[Any]:
        first: list[Any] = []
        if not self._looked and asked:
            # A dataset that draws usually does so in its first record. Checking that record alone avoids making others twice.
            # The script's generators are restored; in a worker process nothing else draws from them.
            self._looked = True
            kept = state() if get_worker_info() is None else None
            found = self._tried(get, asked[:1], task)
            if found is not None:
                first = found
            elif kept is not None:
                restore(kept)
        if not self._used:
            rest = self._tried(get, asked[len(first) :], task)
            if rest is not None:
                return first + rest
        while True:
            made = self._tried(get, asked, task)
            if made is not None:
                return made

    def _tried(self, get: Callable[[Any], Any], asked: Sequence[Any], task: Task) -> list[Any] | None:
        """The samples; None if a record drew from a generator that was not seeded. The next call seeds that generator."""
        others = [at for at in range(len(_GENERATORS)) if at not in self._used]
        at_first = [_GENERATORS[at].seen() for at in others]
        made = self._seeded(get, asked, task) if self._used else [get(index) for index in asked]
        drawn = [at for at, before in zip(others, at_first, strict=True) if _GENERATORS[at].seen() != before]
        if not drawn:
            return made
        self._used += drawn
        return None

    def _seeded(self, get: Callable[[Any], Any], asked: Sequence[Any], task: Task) -> list[Any]:
        used = [_GENERATORS[at] for at in self._used]
        kept = [generator.state() for generator in used] if get_worker_info() is None else None
        try:
            made: list[Any] = []
            for index, nth in zip(asked, task.before or itertools.repeat(0)):
                number = mixed(task.seed, _number(index), nth)
                for generator in used:
                    generator.seed(number)
                made.append(get(index))
            return made
        finally:
            if kept is not None:
                for generator, state in zip(used, kept, strict=True):
                    generator.restore(state)
