"""What the engine reads, as a dataset of torch's."""
# torch's types are not all known.
# pyright: basic

from __future__ import annotations

import logging
import operator
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, default_collate, get_worker_info

from . import _draws, _native
from ._collate import Build, Output, builder, rows
from .errors import ConfigError, UnsupportedError
from .loader import Loader, open

# A record of torchvision's `ImageFolder`, as far as its structure goes.
_OF_FOLDERS = (None, 0)
_logger = logging.getLogger("infeed.torch")


class Picked:
    """The indices of one epoch, for the engine: flat, or batch by batch."""

    def __init__(self, batch_size: int | None = None) -> None:
        self.indices: Sequence[Any] = ()
        # The most of a batch.
        self.batch_size = batch_size

    def __iter__(self) -> Any:
        return iter(self.indices)


class Records(Dataset):  # type: ignore[type-arg,misc,unused-ignore]
    """Records that the engine reads, decodes and transforms. ``DataLoader.dataset``, where it does.

    Indexed, they give what a batch of them holds, without read-ahead: so those who make a torch loader of this one's parts, as
    accelerate does, get the same samples. Other attributes are those of the dataset that was given.
    """

    def __init__(self, given: Any, transform: Any, output: Output, settings: Mapping[str, Any], item: Any = None) -> None:
        # An object of Python's, a path, or what was opened.
        self.given = given
        self.transform = transform
        self.output: Output = output
        self.settings = dict(settings)
        self._item = item
        self._opened: _native.Dataset | None = given if isinstance(given, _native.Dataset) else None
        # What its transform is taken from anew, where that is another object's.
        self._watched: Watched | None = None
        # That opened it.
        self._process = os.getpid()
        # In this process, for so many records at once.
        self._here: tuple[int, int, Picked, Loader] | None = None
        self._build: Build | None = None

    @property
    def is_object(self) -> bool:
        return not isinstance(self.given, (str, os.PathLike, _native.Dataset))

    @property
    def is_open(self) -> bool:
        """Whether a loader of it reads no record."""
        return self._opened is not None or not self.is_object

    @property
    def dealt(self) -> bool:
        """Whether the engine shares records among ranks: only where it is told so."""
        return self.settings.get("world_size") is not None

    @property
    def tells_padding(self) -> bool:
        """Whether a batch says how many of its rows are none."""
        return not isinstance(self.output, str) and "valid" in self.output.values()

    @property
    def opened(self) -> _native.Dataset:
        """As the engine has it. A path is opened, and of an object of Python's the first record is read."""
        if self._opened is None:
            if self.is_object:
                from .objects import wrap

                kept = _draws.state()
                opened, its_own = wrap(self.given)
                if its_own is not None and self.transform is not None:
                    raise ConfigError("the dataset has a transform, and so has the loader: give one of them")
                if self._item is None:
                    # Of what is read without Python only `ImageFolder`s are not in memory.
                    self._item = self.given[0] if opened.format in ("python", "memory") else _OF_FOLDERS
                _draws.restore(kept)
                self._opened, self.transform = opened, its_own if self.transform is None else self.transform
            else:
                self._opened = open(self.given)
        return self._opened

    def loader(self, **order: Any) -> Loader:
        """A loader of the engine's. Raises what ``infeed.Loader`` raises."""
        opened = self.opened
        made: dict[str, Any] = {}
        if self.transform is not None:
            from .transforms import output_dtype

            dtype = output_dtype(self.transform)
            if dtype is not None:
                made["dtype"] = dtype
        return Loader(opened, transform=self.transform, **{**made, **self.settings, **order})

    def renewed(self) -> bool:
        """Whether the dataset has another transform than the engine; the engine's next loader has it too."""
        if self._watched is None or not self._watched.changed():
            return False
        self.transform, self._here, self._build = self._watched.transform, None, None
        return True

    def collated(self, batch: _native.Batch) -> Any:
        """A batch of the engine's as ``output`` says."""
        build = self._build
        if build is None:
            from .transforms import mask_dtype

            last, masks = bool(self.settings.get("channels_last")), mask_dtype(self.transform)
            of_masks = None if masks is None else getattr(torch, masks)
            build = self._build = builder(batch, self.opened, self.output, self._item, last, of_masks)
        return build(batch)

    def samples(self, batch: _native.Batch) -> list[Any]:
        """The same as single samples, without padding."""
        return rows(self.collated(batch), batch.valid)

    def numbers(self, indices: Iterable[Any]) -> list[int]:
        """Indices as the engine has them. Negative ones count from the end."""
        count = len(self)
        return [index + count if index < 0 else index for index in map(operator.index, indices)]

    def __len__(self) -> int:
        return len(self.given if self.is_object else self.opened)

    def _batch(self, indices: Sequence[Any]) -> _native.Batch:
        here = self._here
        if here is None or here[0] != os.getpid() or here[1] < len(indices):
            size = len(indices)
            picked = Picked(size)
            opened = self._opened
            if opened is not None and self._process != os.getpid() and "://" in opened.name:
                # Connections are those of the process that opened it.
                self._opened = pickle.loads(pickle.dumps(opened))
                self._process = os.getpid()
            settings: dict[str, Any] = {"rank": None, "world_size": None, "order": None, "pin_memory": False}
            if get_worker_info() is not None:
                settings["num_workers"] = 1
            loader = self.loader(batch_sampler=picked, **settings)
            here = self._here = (os.getpid(), size, picked, loader)
        _, _, picked, loader = here
        picked.indices = [self.numbers(indices)]
        # Other draws each time, and those of torch's generator, which a worker process has seeded.
        loader.set_epoch(int(torch.empty((), dtype=torch.int64).random_(2**62)))
        return next(iter(loader))

    def __getitem__(self, index: Any) -> Any:
        return self.samples(self._batch([index]))[0]

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        return _draws.Collated(self._batch(indices))

    def __getattr__(self, name: str) -> Any:
        # Not of pickles, which ask before anything is there.
        if name.startswith("__") or "given" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.given if self.is_object else self.opened, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None, "_build": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<records of {self.given!r}, read by infeed>"


class Watched:
    """An ``ImageFolder`` that the engine reads. A script may give it another transform, or change it, between epochs."""

    def __init__(self, dataset: Any) -> None:
        while type(dataset) is Subset:
            dataset = dataset.dataset
        self._folder = dataset
        self._files = (dataset.samples, len(dataset.samples))
        self._steps = self._current()

    def _current(self) -> Any:
        from .transforms import steps

        return None if self._folder.transform is None else steps(self._folder.transform)

    def changed(self) -> bool:
        """Whether its transform is another since the last time. Raises ``ConfigError`` where the engine can't follow."""
        folder, (samples, count) = self._folder, self._files
        instead = "since the DataLoader was made: make another one"
        if folder.samples is not samples or len(samples) != count or folder.target_transform is not None:
            raise ConfigError(f"the samples or targets of the ImageFolder were changed {instead}")
        try:
            steps = self._current()
        except TypeError as error:
            raise ConfigError(f"the ImageFolder was given a transform that is read by Python alone, {instead} ({error})") from None
        before, self._steps = self._steps, steps
        return bool(before != steps)

    @property
    def transform(self) -> Any:
        return self._folder.transform


class Collate:
    """The ``collate_fn`` of loaders over ``Records``."""

    def __init__(self, records: Records, collate_fn: Callable[[Any], Any] | None) -> None:
        self.records = records
        # The user's.
        self.collate_fn = None if collate_fn is default_collate else collate_fn

    def __call__(self, samples: Any) -> Any:
        if type(samples) is _draws.Collated:
            batch = samples.batch
            if self.collate_fn is None:
                return self.records.collated(batch)
            samples = self.records.samples(batch)
        return default_collate(samples) if self.collate_fn is None else self.collate_fn(samples)

    def alone(self, batch: _native.Batch) -> Any:
        """Of a loader without batches."""
        sample = self.records.samples(batch)[0]
        return sample if self.collate_fn is None else self.collate_fn(sample)


def recognised(dataset: Any) -> Records | None:
    """Records of an object of torchvision's that the engine reads as torch would, pixel for pixel to a level."""
    from .objects import native

    try:
        found = native(dataset)
        if found is None:
            return None
        opened, transform = found
        records = Records(dataset, transform, "auto", {}, _OF_FOLDERS)
        records._opened, records._watched = opened, Watched(dataset)
        # Whether rows have one size is known by who makes them.
        records.loader().close()
    except (ConfigError, UnsupportedError, TypeError) as error:
        _logger.info("%s is read by its own __getitem__: %s", type(dataset).__name__, error)
        return None
    return records
