"""Random numbers that records draw of torch, NumPy and ``random``: seeded for each record, and found out cheaply.

A record's draws depend on the epoch, the record and how often it came before, whichever process asks for it. Seeding costs
some 8 µs a record, so nothing is seeded for a dataset that draws nothing: whether one did is seen at the generators' memory.
"""
# torch's types are not all known.
# pyright: basic

from __future__ import annotations

import ctypes
import random
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import Subset, get_worker_info

# The generator behind ``random.random``, and what its class has in memory beside an object's head.
_python: Any = random.random.__self__  # type: ignore[attr-defined]
_HEAD = object.__basicsize__
_BODY = type(_python).__mro__[1].__basicsize__ - _HEAD
# 624 words and a place in them.
_NUMPY_BYTES = 2500
_U64 = (1 << 64) - 1


def _numpy() -> Any:
    """NumPy's global generator, where NumPy is loaded and it is the one that can be seeded."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    generator = numpy.get_bit_generator()
    return generator if type(generator).__name__ == "MT19937" else None


def _fingerprint() -> tuple[Any, ...]:
    """Other bytes after any draw. Of the generators' memory, since asking for NumPy's state costs 30 µs."""
    state = torch.default_generator.get_state()
    numpy = _numpy()
    return (
        ctypes.string_at(state.data_ptr(), state.nbytes),
        None if numpy is None else ctypes.string_at(numpy.ctypes.state_address, _NUMPY_BYTES),
        ctypes.string_at(id(_python) + _HEAD, _BODY),
        _python.gauss_next,
    )


def state() -> tuple[Any, ...]:
    """Where the three generators stand."""
    numpy = _numpy()
    here = None if numpy is None else sys.modules["numpy.random"].get_state()
    return torch.default_generator.get_state(), here, random.getstate()


def restore(kept: tuple[Any, ...]) -> None:
    """The generators as ``state`` found them."""
    of_torch, of_numpy, of_python = kept
    torch.default_generator.set_state(of_torch)
    if of_numpy is not None:
        sys.modules["numpy.random"].set_state(of_numpy)
    random.setstate(of_python)


def _seed(number: int) -> None:
    # Not `torch.manual_seed`, which seeds GPUs too.
    torch.default_generator.manual_seed(number >> 1)
    random.seed(number)
    if _numpy() is not None:
        sys.modules["numpy.random"].seed(number & 0xFFFFFFFF)


def mixed(*numbers: int) -> int:
    """64 bits of some numbers, by SplitMix64."""
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
    """What is asked of a dataset: the indices of a batch, or the index of a sample."""

    asked: Any
    # Of an epoch.
    seed: int
    # How often each index came before in this epoch; None: none did.
    before: list[int] | None


class Collated(NamedTuple):
    """A batch that needs no ``collate_fn``."""

    batch: Any


class Through:
    """A ``collate_fn`` that lets pass what is a batch already."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        return samples.batch if type(samples) is Collated else self.collate_fn(samples)


def _several(dataset: Any) -> Any:
    """The method that gives many records at once, if there is one. A ``Subset`` has it, and asks one by one as a rule."""
    inner = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    return getattr(dataset, "__getitems__", None) if getattr(inner, "__getitems__", None) else None


class Seeded:
    """A dataset whose records draw what their place in the data and the epoch say. Asked with a ``Task``."""

    def __init__(self, dataset: Any, gather: Callable[[Sequence[Any]], Any] | None) -> None:
        self.dataset = dataset
        # How a batch is had at once, of datasets that draw nothing.
        self.gather = gather
        # Whether records are known to draw.
        self.draws = False
        self._looked = False

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, task: Task) -> Any:
        """A single sample, of a loader without batches."""
        return self._made(lambda index: self.dataset[index], [task.asked], task)[0]

    def __getitems__(self, task: Task) -> Any:
        if self.gather is not None:
            return Collated(self.gather(task.asked))
        several = _several(self.dataset)
        if several:
            # All at once: they draw as this list of them does.
            return self._made(several, [task.asked], task)[0]
        return self._made(self.dataset.__getitem__, list(task.asked), task)

    def _made(self, get: Callable[[Any], Any], asked: list[Any], task: Task) -> list[Any]:
        if not self.draws and asked:
            unseeded = self._unseeded(get, asked)
            if unseeded is not None:
                return unseeded
            self.draws = True
        # A worker process draws for nobody else.
        kept = state() if get_worker_info() is None else None
        try:
            before = task.before or [0] * len(asked)
            made: list[Any] = []
            for index, nth in zip(asked, before, strict=False):
                _seed(mixed(task.seed, _number(index), nth))
                made.append(get(index))
            return made
        finally:
            if kept is not None:
                restore(kept)

    def _unseeded(self, get: Callable[[Any], Any], asked: list[Any]) -> list[Any] | None:
        """The samples, if none of them draws. Which does shows at the first as a rule: the others are not made in vain."""
        kept = None if self._looked else state()
        at_first = _fingerprint()
        made = [get(asked[0])]
        if not self._looked and _fingerprint() != at_first:
            assert kept is not None
            restore(kept)
            return None
        self._looked = True
        made.extend(map(get, asked[1:]))
        return made if _fingerprint() == at_first else None
