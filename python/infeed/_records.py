"""A torch dataset of the records that the engine reads."""
# torch is not fully typed.
# pyright: basic

from __future__ import annotations

import logging
import operator
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, default_collate, default_convert, get_worker_info

from . import _draws, _native
from ._collate import Build, Output, builder, rows
from .errors import ConfigError, Error
from .loader import Loader, open

# The structure of a record of torchvision's `ImageFolder`.
_OF_FOLDERS = (None, 0)
# Settings that change images.
_OF_IMAGES = {"dtype", "channels_last", "orientation", "map"}
# Steps that draw nothing.
_FIXED = {
    *("resize_exact", "resize_shorter", "resize_keep_ratio", "center_crop", "pad_to", "fixed_size_crop"),
    *("gray_to_rgb", "grayscale", "to_float", "normalize"),
}
_logger = logging.getLogger("infeed.torch")


class Picked:
    """The indices of one epoch, for the engine: flat, or batch by batch."""

    def __init__(self, batch_size: int | None = None) -> None:
        self.indices: Sequence[Any] = ()
        # Size of the largest batch.
        self.batch_size = batch_size

    def __iter__(self) -> Any:
        return iter(self.indices)


class Records(Dataset):  # type: ignore[type-arg,misc,unused-ignore]
    """Records that the engine reads, decodes and transforms. ``DataLoader.dataset`` is this class if the engine reads.

    Indexing returns the same samples as a batch, without read-ahead. So a torch loader made from this loader's parts, as
    accelerate makes one, yields the same samples. Other attributes are those of the given dataset.
    """

    def __init__(
        self,
        given: Any,
        transform: Any,
        output: Output,
        settings: Mapping[str, Any],
        item: Any = None,
        nested: bool = False,
    ) -> None:
        # A Python object, a path, or an opened dataset.
        self.given = given
        self.transform = transform
        self.output: Output = output
        self.settings = dict(settings)
        self._item = item
        self.nested = nested
        self._opened: _native.Dataset | None = given if isinstance(given, _native.Dataset) else None
        # The folder that is looked at again in each epoch, since a script may change it.
        self._watched: Watched | None = None
        # Counts these changes. After one that the engine does not support, torchvision reads.
        self.version = 0
        self._is_left = False
        # The process that opened the dataset.
        self._process = os.getpid()
        # For indexing: process id, largest number of records per batch, indices, loader.
        self._here: tuple[int, int, Picked, Loader] | None = None
        self._build: Build | None = None

    @property
    def is_object(self) -> bool:
        return not isinstance(self.given, (str, os.PathLike, _native.Dataset))

    @property
    def is_watched(self) -> bool:
        """Whether it is a script's ``ImageFolder``, which the engine reads as torchvision would."""
        return self._watched is not None

    @property
    def is_open(self) -> bool:
        """Whether making a loader reads no record."""
        return self._opened is not None or not self.is_object

    @property
    def dealt(self) -> bool:
        """Whether the engine divides the records among ranks: only if ``world_size`` is given."""
        return self.settings.get("world_size") is not None

    @property
    def tells_padding(self) -> bool:
        """Whether ``output`` contains ``"valid"``, the number of rows before the padding."""
        return not isinstance(self.output, str) and "valid" in self.output.values()

    @property
    def opened(self) -> _native.Dataset:
        """The engine's dataset. The first access opens a path, or reads the first record of a Python object."""
        if self._opened is None:
            if self.is_object:
                from .objects import wrap

                kept = _draws.state()
                opened, its_own = wrap(self.given)
                if its_own is not None and self.transform is not None:
                    raise ConfigError("the dataset has a transform, and so has the loader: give one of them")
                if self._item is None:
                    self._item = self._first(opened)
                    arrays = self._unchanged(opened)
                    if arrays:
                        opened = wrap(self.given, arrays)[0]
                _draws.restore(kept)
                self._opened, self.transform = opened, its_own if self.transform is None else self.transform
            else:
                self._opened = open(self.given)
        return self._opened

    def _first(self, opened: _native.Dataset) -> Any:
        """The first record, whose structure batches get."""
        if opened.format not in ("python", "memory"):
            # Without Python the engine reads memory or `ImageFolder`s.
            return _OF_FOLDERS
        before = _draws.seen()
        item = self.given[0]
        if opened.format == "python" and _draws.seen() != before:
            warnings.warn(
                "the dataset draws random numbers in __getitem__, which a thread of infeed's engine calls: other runs draw "
                "other numbers. Draw in the loader's transform=, or in map=, which is called with (sample, seed); or omit "
                "transform= and the other arguments of infeed, so that torch reads",
                stacklevel=5,
            )
        if _is_table(self.given):
            # Its lists are columns of arrays.
            return {name: None if isinstance(value, list) else value for name, value in item.items()}
        return item

    def _unchanged(self, opened: _native.Dataset) -> dict[str, str]:
        """Arrays of pixels that nothing changes, as the kinds of their fields: they keep their shape, as in torch."""
        if self.transform is not None or opened.format != "python" or _OF_IMAGES & self.settings.keys():
            return {}
        images = self._images(opened).items()
        return {name: kind for name, value in images if (kind := _kind_of_unchanged(value)) is not None}

    def _images(self, opened: _native.Dataset) -> dict[str, Any]:
        """The values of the first record that are images, by field."""
        item = self._item
        if item is None or opened.format != "python":
            return {}
        values = item.values() if isinstance(item, Mapping) else item if isinstance(item, (tuple, list)) else [item]
        pairs = zip(opened.fields.items(), values, strict=True)
        return {name: value for (name, kind), value in pairs if kind in ("image", "images")}

    # No method has the name of an attribute of torchvision's or Hugging Face's datasets, which a script may ask for.

    def engine(self, **order: Any) -> Loader:
        """A ``Loader`` of the engine. Raises what ``infeed.Loader`` raises."""
        opened = self.opened
        made: dict[str, Any] = {}
        if self.transform is not None:
            from .transforms import output_dtype

            given = {_dtype(value) for name, value in self._images(opened).items() if name not in opened.masks}
            dtype = output_dtype(self.transform, "uint8" if given == {"uint8"} else None)
            if dtype == "uint8" and "uint16" in given and "dtype" not in self.settings:
                raise ConfigError(
                    "the transform makes bytes of images of 16 bits: add ToDtype(torch.float32, scale=True) to it, or give "
                    'dtype="float32"'
                )
            if dtype is not None:
                made["dtype"] = dtype
        if self._watched is not None:
            # torchvision turns no image, and resizes pixels.
            made |= {"orientation": "ignore", "jpeg_exact": True}
        return Loader(opened, transform=self.transform, **{**made, **self.settings, **order})

    def keep_up(self, in_lists: bool = True) -> bool:
        """Takes over what a script changed of its ``ImageFolder``. False if torchvision has to read it since.

        ``in_lists``: also looks for changes in its lists of samples, which takes 10 ms for a million.
        """
        watched = self._watched
        if watched is not None and watched.has_changed(in_lists):
            self._here = self._build = None
            self.version += 1
            again = recognised(self.given)
            if again is None:
                _logger.warning("the ImageFolder was changed: from now on torchvision reads it, not infeed's engine")
                self._watched, self._is_left = None, True
            else:
                self._opened, self.transform, self._watched = again._opened, again.transform, again._watched
        return not self._is_left

    def collated(self, batch: _native.Batch) -> Any:
        """Converts a batch of the engine as ``output`` says."""
        build = self._build
        if build is None:
            from .transforms import mask_dtype

            last, masks = bool(self.settings.get("channels_last")), mask_dtype(self.transform)
            of_masks = None if masks is None else getattr(torch, masks)
            build = self._build = builder(
                batch, self.opened, self.output, self._item, last, of_masks, self.nested
            )
        return build(batch)

    def one_by_one(self, batch: _native.Batch) -> list[Any]:
        """Splits a batch of the engine into single samples, without padding."""
        return self._split(self.collated(batch), batch.valid)

    def _split(self, made: Any, size: int) -> list[Any]:
        return rows(made, size, self._item if self.output == "auto" else None)

    def numbers(self, indices: Iterable[Any]) -> list[int]:
        """Indices for the engine. Negative indices count from the end. Raises ``IndexError`` as a list does."""
        count = len(self)
        found = [index + count if index < 0 else index for index in map(operator.index, indices)]
        if found and not 0 <= min(found) <= max(found) < count:
            wrong = next(index for index in found if not 0 <= index < count)
            raise IndexError(f"index {wrong if wrong >= 0 else wrong - count} is out of range: the dataset has {count} records")
        return found

    def __len__(self) -> int:
        return len(self.given if self.is_object else self.opened)

    def _batch(self, indices: Sequence[Any]) -> _native.Batch:
        here = self._here
        if here is None or here[0] != os.getpid() or here[1] < len(indices):
            size = len(indices)
            picked = Picked(size)
            opened = self._opened
            if opened is not None and self._process != os.getpid() and "://" in opened.name:
                # Open connections work only in the process that made them.
                self._opened = pickle.loads(pickle.dumps(opened))
                self._process = os.getpid()
            settings: dict[str, Any] = {"rank": None, "world_size": None, "order": None, "pin_memory": False}
            if get_worker_info() is not None:
                settings["num_workers"] = 1
            loader = self.engine(batch_sampler=picked, **settings)
            here = self._here = (os.getpid(), size, picked, loader)
        _, _, picked, loader = here
        picked.indices = [self.numbers(indices)]
        if self._is_random:
            # A random epoch gives new draws each time. It comes from torch's generator, which torch seeds in each worker.
            loader.set_epoch(int(torch.empty((), dtype=torch.int64).random_(2**62)))
        else:
            loader.set_epoch(0)
        return next(iter(loader))

    @property
    def _is_random(self) -> bool:
        """Whether a record may come in several versions."""
        from .transforms import steps

        lowered = steps(self.transform)
        fixed = lowered is None or (isinstance(lowered, list) and all(step.get("op") in _FIXED for step in lowered))
        return not fixed or not {"map", "mix", "views"}.isdisjoint(self.settings)

    def __getitem__(self, index: Any) -> Any:
        return self.one_by_one(self._batch([index]))[0] if self.keep_up(in_lists=False) else self.given[index]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        if not self.keep_up(in_lists=False):
            return [self.given[index] for index in indices]
        batch = self._batch(indices)
        made = self.collated(batch)
        samples = Samples(self._split(made, batch.valid))
        samples.made = made
        return samples

    def __getattr__(self, name: str) -> Any:
        # Unpickling looks up attributes before any are set.
        if name.startswith("__") or "given" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.given if self.is_object else self.opened, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # What a script changes of its dataset, such as `samples`, is for the dataset: `Watched` sees it.
        own = self.__dict__
        is_own = "_build" not in own or name in own or hasattr(type(self), name)
        is_watched = name == "transform" and own.get("_watched") is not None
        is_givens = (is_watched or not is_own) and self.is_object and hasattr(self.given, name)
        if is_givens:
            setattr(self.given, name, value)
        if is_own or not is_givens:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None, "_build": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<records of {self.given!r}, read by infeed>"


class Watched:
    """An ``ImageFolder``, or a ``Subset`` of one, that the engine reads. A script may change it between epochs."""

    def __init__(self, dataset: Any) -> None:
        self._subsets: list[Any] = []
        while type(dataset) is Subset:
            self._subsets.append(dataset)
            dataset = dataset.dataset
        self._folder = dataset
        self._steps, self._parts = self._current_steps(), self._current_parts()
        # Copies, as a script may change the lists in place.
        self._copies = [list(of) for of in self._lists()]

    def _lists(self) -> list[Any]:
        """What decides which records there are."""
        return [self._folder.samples, *[of.indices for of in self._subsets]]

    def _current_parts(self) -> list[Any]:
        return [*self._lists(), self._folder.loader, self._folder.target_transform]

    def _current_steps(self) -> Any:
        from .transforms import steps

        transform = self._folder.transform
        try:
            return None if transform is None else steps(transform)
        except TypeError:
            # One that only Python can run.
            return transform

    def has_changed(self, in_lists: bool) -> bool:
        """Whether its transform or its records have changed, or what is in its lists."""
        if self._steps != self._current_steps():
            return True
        if any(before is not now for before, now in zip(self._parts, self._current_parts(), strict=True)):
            return True
        return in_lists and any(before != list(now) for before, now in zip(self._copies, self._lists(), strict=True))


class Samples(list[Any]):
    """The samples of a batch of the engine, and the batch that they make."""

    made: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class Collate:
    """The ``collate_fn`` of loaders over ``Records``."""

    def __init__(self, records: Records, collate_fn: Callable[[Any], Any] | None) -> None:
        self.records = records
        # The user's function.
        self.collate_fn = None if collate_fn is default_collate else collate_fn

    def __call__(self, samples: Any) -> Any:
        if type(samples) is Samples:
            if self.collate_fn is None:
                return samples.made
            samples = list(samples)
        return default_collate(samples) if self.collate_fn is None else self.collate_fn(samples)

    def whole(self, batch: _native.Batch) -> Any:
        """A batch that the engine made."""
        return self.records.collated(batch) if self.collate_fn is None else self.collate_fn(self.records.one_by_one(batch))

    def alone(self, batch: _native.Batch) -> Any:
        """The single sample of a loader without batches."""
        sample = self.records.one_by_one(batch)[0]
        return default_convert(sample) if self.collate_fn in (None, default_convert) else self.collate_fn(sample)


def _dtype(image: Any) -> str:
    """The type of an array, a tensor or a Pillow image of 16 bits; of others an empty text."""
    return "uint16" if getattr(image, "mode", None) == "I;16" else str(getattr(image, "dtype", "")).rpartition(".")[2]


def _kind_of_unchanged(value: Any) -> str | None:
    """The kind of field that keeps a value as it is. None for a Pillow image, which no batch holds as it is."""
    if isinstance(value, (list, tuple)):
        return "array" if all(hasattr(each, "dtype") for each in value) else None
    return "bytes" if isinstance(value, (bytes, bytearray)) else "array" if hasattr(value, "dtype") else None


def _is_table(dataset: Any) -> bool:
    """Whether it is Hugging Face's dataset, or a ``Subset`` of one, whose columns the engine reads."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    of_arrow = type(dataset).__module__.startswith("datasets.") and hasattr(dataset, "features")
    return of_arrow and (getattr(dataset, "format", None) or {}).get("type") != "custom"


def _may_differ(transform: Any) -> str | None:
    """Why a chain that the engine supports may give other results than torchvision, or None."""
    from .transforms import steps

    lowered = steps(transform)
    if not isinstance(lowered, list):
        return None
    ops = [step.get("op") for step in lowered]
    floats = next((at for at, op in enumerate(ops) if op in ("to_float", "normalize")), len(ops))
    filtered = repr(lowered[floats:])
    if "bicubic" in filtered or "lanczos" in filtered:
        return "torchvision keeps what filters overshoot behind ToTensor"
    resizes = [at for at, step in enumerate(lowered) if "antialias" in step]
    crop = next((at for at, op in enumerate(ops) if op in ("center_crop", "random_crop")), len(ops))
    if resizes and crop < resizes[0]:
        return "torchvision pads images that are smaller than the crop before a resize"
    return None


def recognised(dataset: Any) -> Records | None:
    """Records of a torchvision object that the engine reads like torch, with pixels that differ by at most one level."""
    from .objects import native

    try:
        found = native(dataset)
        if found is None or getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False):
            return None
        opened, transform = found
        why = _may_differ(transform)
        if why is not None:
            _logger.info("ImageFolder is read by torchvision: %s", why)
            return None
        records = Records(dataset, transform, "auto", {}, _OF_FOLDERS)
        records._opened, records._watched = opened, Watched(dataset)
        # Making a loader checks whether all rows get one size.
        records.engine().close()
    except (Error, TypeError, OverflowError) as error:
        # Whatever stops the engine: torchvision may still read it, or has an error of its own.
        _logger.info("%s is read by its own __getitem__: %s", type(dataset).__name__, error)
        return None
    return records
