"""torch's ``DataLoader`` with one import changed: same arguments, batches and errors; exact order, random draws and resume.

    from infeed.torch import DataLoader

    loader = DataLoader("train/", batch_size=256, shuffle=True, num_workers=8, transform="imagenet-train")
    for images, labels in loader:
        ...
"""
# torch may not be installed, and not all of it is typed.
# pyright: basic
# mypy: disallow-subclassing-any=False, disallow-any-generics=False

from __future__ import annotations

import inspect
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import torch
from torch._C._autograd import _profiler_enabled
from torch.utils.data import BatchSampler, IterableDataset, MapDataPipe, Subset, TensorDataset, default_collate
from torch.utils.data import DataLoader as _Torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from . import _draws, _native, _places
from ._collate import Output
from ._places import Place
from ._records import Collate, Picked, Records, recognised
from .errors import ConfigError, CorruptError, EmptyError, Error, StateError
from .loader import Batches, Loader, Settings, _distributed, check_settings

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal, Self, Unpack

    from .transforms import Like

__all__ = ["DataLoader"]

# Arguments for torch's worker processes, and why they have no effect if the engine's threads read.
_OF_PROCESSES = {
    "timeout": "infeed.open(url, patience=seconds) limits the wait for a store",
    "worker_init_fn": "it is not called",
    "multiprocessing_context": "threads need none",
    "in_order": "batches come in order, and a slow sample does not delay reading the others",
}


# Indices that are taken at least at once from a sampler, which may be endless.
_WINDOW = 1 << 16

# The type of a sample, as in torch's DataLoader.
_T = TypeVar("_T", covariant=True)
_ARGUMENTS = (
    *inspect.signature(_Torch.__init__).parameters.keys() - {"self"},
    *("transform", "output", "batch_transform", "seed"),
)


class OfLoader(Settings, total=False):
    """Arguments of ``infeed.Loader`` that ``DataLoader`` takes too; ``help(infeed.Loader)`` describes them."""

    order: str | Mapping[str, Any] | None
    rank: int | None
    world_size: int | None
    prefetch: int | None
    memory_budget: int | None
    device: Any
    decode: Literal["auto", "gpu", "cpu"]
    dtype: Any
    channels_last: bool
    orientation: Literal["apply", "ignore", "auto"] | None
    on_bad_sample: Literal["raise", "substitute"] | Mapping[str, Any]
    cache: str | None
    decode_index: str | os.PathLike[str] | None
    map: Callable[..., Any] | None


class DataLoader(_Torch[_T]):  # type: ignore[misc,unused-ignore]
    """A subclass of torch's ``DataLoader``: same arguments in the same order, same batches, same errors.

        loader = DataLoader(ImageFolder("train/", transform), batch_size=256, shuffle=True, num_workers=8)
        for epoch in range(90):
            for images, labels in loader:
                loss = step(images, labels)

    **Which part reads**

    - infeed's engine, in threads: a path, a URL, a dataset from ``infeed.open``; torchvision's ``ImageFolder`` (or a
      ``Subset`` of one) if the engine supports its transform; any dataset with ``transform=`` or another argument of infeed.
      ``loader.loader`` is then the engine's ``Loader``.
    - torch: all other datasets, by ``__getitem__``, in the thread of the loop or in ``num_workers`` processes.

    **In both cases**

    - A batch is what ``default_collate`` returns: dicts stay dicts, tuples become lists, named tuples stay. Any
      ``collate_fn`` works. It gets single samples, also from the engine, and then runs in the thread of the loop.
    - ``state_dict()`` is the place of the loop; ``load_state_dict()`` resumes there, with the same order and the same random
      draws.
    - The order comes from torch's generator, or from ``generator`` or ``seed``.
    - Without a ``DistributedSampler`` each rank reads all records, as in torch, and a warning says so. With one, a state may
      be loaded in another world size.

    **If torch reads**

    - Draws from torch, NumPy or ``random`` in ``__getitem__`` depend only on the epoch, the record and how often the epoch
      has yielded that record already. With ``__getitems__`` they depend on the list of records.
    - A dataset that draws nothing is not seeded. The first record that draws is made twice.
    - An ``IterableDataset`` draws as in torch. It resumes by its own ``state_dict`` if it has one and ``num_workers`` is 0,
      otherwise by reading again, and discarding, what the loop already got.

    **If the engine reads**

    - ``num_workers`` threads decode (0: the engine chooses), and ``prefetch_factor × num_workers`` batches are read ahead.
    - ``worker_init_fn``, ``timeout``, ``multiprocessing_context`` and ``in_order`` have no effect, and a warning says so.
    - Tensors share the engine's memory without a copy. You may keep them and write to them.

    **Arguments of infeed**

    - ``transform``: as in ``infeed.Loader``.
    - ``output`` (default ``"auto"``): the structure of a batch.

      - ``"auto"``: for a Python object, what ``default_collate`` makes of its records. For files: a tuple if there are two
        fields, such as images and labels, otherwise a dict.
      - ``"tuple"``: the values of all fields in their order. ``"dict"``: the values by name.
      - a mapping from your names to fields: ``{"pixel_values": "image", "labels": "label"}``. It may also name ``"records"``
        (int64 ``[N]``, each row's index in the dataset) and ``"valid"`` (int, number of rows before the padding).

    - ``nested`` (default False): whether lists of different lengths are nested tensors (``torch.nested``, jagged) instead of a
      list with one tensor for each row. ``pad={"tokens": 0}`` makes one tensor of equally long rows instead.
    - ``batch_transform`` (default None): called with each batch in the thread of the loop, which gets the returned value:
      ``batch_transform=torchvision.transforms.v2.MixUp(num_classes=1000)``.
    - ``seed`` (int, default None): in place of ``generator``.
    - ``rank`` and ``world_size`` (int, default None): if given, the engine divides the records among the ranks. All ranks have
      the same number of steps; the last batch is padded with rows that come twice. ``output={…, "valid": "valid"}`` gives the
      number of rows before the padding.
    - Other keyword arguments of ``infeed.Loader``: ``map``, ``dtype``, ``channels_last`` (torch's memory format: the shape
      stays ``[N, C, H, W]``), ``device``, ``memory_budget``, ``cache``, ``on_bad_sample``, …

    From files, a field of bytes is a list of ``bytes``, a field of text a list of ``str``, a field of texts a list of lists of
    them. A field of several images a record is a list with a tensor ``[n, C, H, W]`` for each row. Boxes have the form of
    torchvision's detection references: a list with one dict per image, with ``boxes`` (float32 ``[K, 4]``), ``labels`` (int64
    ``[K]``, from 0; torchvision's detectors reserve 0 for the background), ``ids``, ``iscrowd``, ``image_id`` (int; the record
    index if the dataset has no such field), ``size`` (height and width of the image in its row), if outlines were read,
    ``masks`` (uint8 ``[K, H, W]``) and, if the annotations have key points, ``keypoints`` (float32 ``[K, points, 3]``: x, y,
    visibility).

    ``dataset``, samplers and ``collate_fn`` of this loader also work in a loader of torch, as accelerate makes one. The engine
    then reads each batch on request in the worker processes, and not ahead of the loop.

    Raises what torch's loader raises and, if the engine reads, what ``infeed.Loader`` raises. An exception of the dataset's own
    code is raised unchanged. ``StateError``: the state belongs to other data.
    """

    dataset: Any
    sampler: Any
    batch_sampler: Any
    collate_fn: Any

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Like = None,
        output: Output = "auto",
        nested: bool = False,
        batch_transform: Callable[[Any], Any] | None = None,
        seed: int | None = None,
        **more: Unpack[OfLoader],
    ) -> None:
        own = OfLoader.__annotations__
        check_settings("DataLoader", [name for name in more if name not in own], [*_ARGUMENTS, *own])
        if isinstance(output, str) and output not in ("auto", "tuple", "dict"):
            raise ConfigError(f"output={output!r}: must be 'auto', 'tuple', 'dict', or a mapping from names to fields")
        if seed is not None and generator is not None:
            raise TypeError("DataLoader(): seed and generator both set the seed: give one of them")
        if isinstance(collate_fn, Collate):
            # This loader is made from the parts of another one, as Lightning does.
            collate_fn = collate_fn.collate_fn
        self._records: Records | None = None
        is_recognised = False
        if isinstance(dataset, Records):
            self._records, is_recognised = dataset, dataset.is_watched
        elif isinstance(dataset, (str, os.PathLike, _native.Dataset)) or transform is not None or output != "auto" or nested or more:
            if isinstance(dataset, IterableDataset):
                raise TypeError(
                    "DataLoader(): an IterableDataset is always read by torch: transform, output and the engine's settings "
                    "work only for datasets with records by index; omit them"
                )
            self._records = Records(
                dataset, transform, output, more if seed is None else {**more, "seed": seed}, nested=nested
            )
        elif collate_fn in (None, default_collate) and batch_size is not None:
            self._records = recognised(dataset)
            is_recognised = self._records is not None
        self._has_default_sampler = sampler is None and batch_sampler is None
        if seed is not None and (self._records is None or is_recognised):
            generator = torch.Generator().manual_seed(seed)
        read: Any = dataset if self._records is None else self._records
        made: Any = batch_sampler
        super().__init__(
            read,
            batch_size,
            shuffle,
            sampler,
            made,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self.batch_transform = batch_transform
        self._shuffle = bool(shuffle)
        # Without a sampler the engine makes the order, unless a script's `ImageFolder` is shuffled: that order is torch's.
        self._default_order = _order_of(self) if self._has_default_sampler and not (is_recognised and shuffle) else None
        self._prefetch = prefetch_factor
        self._picked = Picked()
        # The engine's loader. `_ready` is the same one while it is at a loaded state.
        self._engine: Loader | None = None
        self._ready: Loader | None = None
        # The records and the settings of the samplers with which the engine's loader was made.
        self._engine_order: Any = None
        # Seed of order and augmentation, once drawn or loaded, and whether an `iter` has drawn.
        self._seed: int | None = None
        self._is_drawn = False
        # The epoch of the next `iter`, the state where it resumes, and the place of the last `iter`.
        self._epoch = 0
        self._resume: dict[str, Any] | None = None
        self._place: Place | None = None
        self._sampler_epoch = _places.epoch_of(self)
        # The wrapper of a dataset that torch reads; it records whether records draw at random.
        self._seeded: _draws.Seeded | None = None
        if self._records is not None:
            self._check_engine(self._records)

    # If the engine reads.

    def _check_engine(self, records: Records) -> None:
        """Checks the settings early if that takes reading no record."""
        given = {"timeout": self.timeout != 0, "worker_init_fn": self.worker_init_fn is not None}
        given |= {"multiprocessing_context": self.multiprocessing_context is not None, "in_order": not self.in_order}
        words = [f"{name}: {_OF_PROCESSES[name]}" for name, is_given in given.items() if is_given]
        if words:
            warnings.warn(f"infeed's threads read this dataset, not worker processes: {'; '.join(words)}", stacklevel=3)
        if records.is_open:
            try:
                self._made(records, 0, None)
            except EmptyError:
                # As in torch: an empty loop.
                pass

    def _made(self, records: Records, seed: int, size: int | None) -> Loader:
        order: dict[str, Any] = {"drop_last": self.drop_last, "batch_size": self.batch_size or 1, "seed": seed}
        if self._own_order:
            order["shuffle"] = self._shuffle
            if not records.dealt:
                order |= {"rank": 0, "world_size": 1}
        elif _places.source(self) is not None:
            order["sampler"] = self._picked
            if self.batch_sampler is not None:
                order |= {"batch_size": self.batch_sampler.batch_size, "drop_last": self.batch_sampler.drop_last}
        else:
            self._picked.batch_size = size or 1
            order |= {"batch_sampler": self._picked, "batch_size": 1, "drop_last": False}
        if self._prefetch is not None and self.num_workers:
            if "prefetch" in records.settings:
                raise TypeError("DataLoader(): prefetch and prefetch_factor both set the read-ahead: give one of them")
            order["prefetch"] = self._prefetch * self.num_workers
        return records.engine(num_workers=self.num_workers or None, pin_memory=self.pin_memory, **order)

    @property
    def _own_order(self) -> bool:
        """Whether the engine makes the order: no sampler was given, and none was set or changed since."""
        made, now = self._default_order, _order_of(self)
        is_same = made is not None and made[0] is now[0] and made[1] is now[1] and made[2:] == now[2:]
        return self._records is not None and is_same

    def _loader(self, records: Records, size: int | None = None) -> Loader:
        order = (records.version, self._own_order, *_order_of(self)[2:])
        if self._engine is None or order != self._engine_order or (size is not None and size > self._engine.batch_size):
            if self._seed is None:
                # The number that the first `iter` draws.
                generator = torch.default_generator if self.generator is None else self.generator
                kept = generator.get_state()
                self._seed = self._first_seed(records)
                generator.set_state(kept)
            self._engine, self._engine_order = self._made(records, self._seed, size), order
        return self._engine

    def _first_seed(self, records: Records) -> int:
        said: int | None = records.settings.get("seed")
        if said is not None:
            return said
        # Ranks that share records must draw the same order.
        if records.dealt and self.generator is None:
            return 0
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())

    def _draw_seed(self, records: Records, place: Place) -> None:
        """Draws a number at each ``iter``, before any sampler does, as torch does for its workers. The first is the seed."""
        is_drawn, self._is_drawn = self._is_drawn, True
        if place.base_seed is not None or (self.persistent_workers and is_drawn):
            # Persistent workers keep the number of the first `iter`.
            place.base_seed = 0
            return
        seed = self._first_seed(records)
        if self._seed is None:
            self._seed = seed

    @property
    def loader(self) -> Loader:
        """The engine's ``Loader``, for example for its ``report()``. ``AttributeError`` if torch reads the dataset."""
        if self._records is None:
            raise AttributeError(f"{type(self.dataset).__name__} is read by its own __getitem__, not by infeed's engine")
        return self._loader(self._records)

    def _batches(
        self, records: Records, place: Place, rng: tuple[Any, ...] | None
    ) -> tuple[Iterator[_native.Batch], Iterator[Any] | None]:
        """The engine's batches of an epoch, or of the rest of it, and the indices behind them.

        ``rng``: the generators' states in which samplers draw if the place is resumed.
        """
        behind = place.behind
        indices: Iterator[Any] | None = None
        place.has_begun = True
        if self._own_order:
            loader = self._loader(records)
        else:
            indices, loader = self._first_indices(records, place, rng)
            if _places.distributed(self) is not None:
                # The rest of the epoch was divided among the ranks again.
                behind = None
        if behind is None:
            loader.set_epoch(place.engine_epoch)
        elif behind["epoch"] != place.engine_epoch:
            # The state is after the last of these batches.
            return iter(()), indices
        elif loader is not self._ready:
            loader.load_state_dict(behind)
        self._ready = None
        return iter(loader), indices

    def _first_indices(
        self, records: Records, place: Place, rng: tuple[Any, ...] | None
    ) -> tuple[Iterator[Any] | None, Loader]:
        """Takes the first indices from the samplers, or those at the place that is resumed."""
        kept = None if rng is None else _draws.state()
        if rng is not None:
            _draws.restore(rng)
        keeper = _places.stateful_sampler(self)
        if keeper is not None:
            # The state before the epoch, since many of its indices are taken at once.
            if place.sampler_state is None:
                place.sampler_state = (keeper.state_dict(), False)
            keeper.load_state_dict(place.sampler_state[0])
        try:
            dealer, sampler = _places.distributed(self), _places.source(self)
            if dealer is not None:
                indices = iter(_places.dealt(dealer, place.consumed))
            else:
                indices = iter(self.batch_sampler if sampler is None else sampler)
            for _ in range(place.window + 1):
                size, has_more = self._take(records, indices)
        finally:
            if kept is not None:
                _draws.restore(kept)
        return indices if has_more else None, self._loader(records, size)

    def _take(self, records: Records, indices: Iterator[Any]) -> tuple[int | None, bool]:
        """Takes the next indices for the engine: all, or of an endless sampler those of some epochs. Returns the size of the
        largest batch, if a batch sampler makes them, and whether there may be more."""
        most, sampler = 2 * len(records) + _WINDOW, _places.source(self)
        if sampler is not None:
            size = 1 if self.batch_sampler is None else self.batch_sampler.batch_size
            # Whole batches. Of torch's samplers not the end, at which `RandomSampler` draws once more.
            most = len(sampler) if type(sampler) in _places.OF_TORCH else most + -most % size
            self._picked.indices = records.numbers(itertools.islice(indices, most))
            return None, len(self._picked.indices) == most
        lists: list[list[int]] = []
        rows = 0
        while rows < most and (batch := next(indices, None)) is not None:
            lists.append(records.numbers(batch))
            rows += len(lists[-1])
        self._picked.indices = lists
        return max(map(len, lists), default=1), rows >= most

    def _more(self, records: Records, place: Place, indices: Iterator[Any]) -> tuple[Iterator[_native.Batch], bool]:
        """The engine's batches of the next indices, and whether there may be more."""
        size, has_more = self._take(records, indices)
        if not self._picked.indices:
            return iter(()), False
        place.window += 1
        loader = self._loader(records, size)
        loader.set_epoch(place.engine_epoch)
        return iter(loader), has_more

    # If torch reads.

    def _get_iterator(self) -> Any:
        self.check_worker_number_rationality()
        return (_InProcess if self.num_workers == 0 else _Processes)(_View(self))

    def _view_of_dataset(self) -> Any:
        if isinstance(self.dataset, (IterableDataset, MapDataPipe)):
            return self.dataset
        if self._seeded is None:
            self._seeded = _draws.Seeded(self.dataset)
        # Again in each epoch: a script may have changed tensors, indices or the `collate_fn`.
        self._seeded.gather = _gather(self.dataset, self.collate_fn, self._auto_collation)
        return self._seeded

    # In both cases.

    def __setattr__(self, name: str, value: Any) -> None:
        records: Records | None = self.__dict__.get("_records")
        if name == "collate_fn" and records is not None and not isinstance(value, Collate):
            value = Collate(records, value)
        super().__setattr__(name, value)

    def _begin(self) -> tuple[Place, dict[str, Any] | None]:
        epoch = _places.epoch_of(self)
        if epoch is not None and epoch != self._sampler_epoch:
            # The script called the sampler's `set_epoch`.
            self._epoch = epoch
        resume, self._resume = self._resume, None
        if resume is not None and resume["epoch"] != self._epoch:
            resume = None
        self._place = place = Place(self, self._epoch)
        if resume is not None:
            place.resume(resume)
        self._sampler_epoch = epoch
        self._epoch += 1
        return place, resume

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override,unused-ignore]
        """The batches of the next epoch; after ``load_state_dict``, the rest of the state's epoch."""
        self._warn_of_ranks()
        if self._records is not None and not self._records.keep_up():
            self._leave_engine(self._records)
        place, resume = self._begin()
        if self._records is not None:
            return _OfEngine(self, self._records, place, resume)
        iterator: Iterator[Any]
        if resume is None:
            iterator = super().__iter__()
            return iterator
        kept = _draws.state()
        # Persistent workers begin anew: the draws of an iterator's first epoch are others.
        self._iterator = None
        try:
            _places.replay(self, resume["rng"])
            iterator = super().__iter__()
            if place.base_seed is not None and isinstance(iterator, _InProcess):
                iterator.as_persistent(self)
            place.replay = _draws.state()
        finally:
            _draws.restore(kept)
        return iterator

    def _leave_engine(self, records: Records) -> None:
        """Lets torch read from now on."""
        self._records = self._seeded = None
        self.collate_fn = self.collate_fn.collate_fn or default_collate
        # torch's own setter refuses a dataset after the constructor.
        object.__setattr__(self, "dataset", records.given)

    def _warn_of_ranks(self) -> None:
        if not self._has_default_sampler or (self._records is not None and self._records.dealt):
            return
        known = _distributed()
        world = known[1] if known is not None else _world_size()
        if world > 1:
            warnings.warn(
                f"this is one of {world} ranks, and each rank reads all records, as with torch's DataLoader: give "
                "sampler=DistributedSampler(dataset) to divide them, or use infeed.Loader, which divides them by itself",
                stacklevel=3,
            )

    def __len__(self) -> int:
        """Number of batches in a whole epoch, also after a resume."""
        if self._records is not None and self._own_order and self._records.dealt:
            return len(self._loader(self._records))
        length: int = super().__len__()
        return length

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Sets the epoch of the next ``iter`` (counted from 0), also for given samplers.

        If that is the epoch of a loaded state, the place within the epoch is kept.
        """
        number = epoch.__index__()
        if number < 0:
            raise ConfigError(f"epoch {number}: epochs are counted from 0")
        self._epoch = number
        self._tell_samplers(number)

    def _tell_samplers(self, epoch: int) -> None:
        for sampler in (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            tell = getattr(sampler, "set_epoch", None)
            if tell is not None:
                tell(epoch)
        self._sampler_epoch = _places.epoch_of(self)

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that the loop got. JSON-compatible, about 4 kB.

        Taken after the last batch, but before the loop has ended, the state is at the end of the epoch: the first ``iter``
        after loading it is empty. Taken after the loop, it is at the start of the next epoch.

        The number of workers and the batch size may differ when it is loaded. The world size may differ with a
        ``DistributedSampler``, or if the engine divides the records. Raises ``StateError`` for ``in_order=False`` within an
        epoch that worker processes read.
        """
        if self._resume is not None:
            return dict(self._resume)
        place, state = self._place, None
        if place is not None and place.epoch + 1 == self._epoch and not place.ended:
            if self._records is None and self.num_workers > 0 and not self.in_order:
                raise StateError("in_order=False: unknown which batches the loop got; set in_order=True to resume exactly")
            state = place.state_dict()
            if self._records is not None:
                # The engine's own order and draws.
                state["engine"] = self._engine.state_dict() if place.has_begun and self._engine is not None else place.behind
        if state is None:
            state = Place(self, self._epoch).state_dict()
            state["rng"] = None
        sampler, dataset = self._keepers()
        if sampler is not None and "sampler" not in state:
            state["sampler"] = (sampler.state_dict(), False)
        if dataset is not None and "dataset" not in state:
            state["dataset"] = dataset.state_dict()
        if self._seed is not None:
            state["seed"] = self._seed
        if not isinstance(self.dataset, IterableDataset):
            state["records"] = len(self.dataset)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resumes at ``state_dict`` at the next ``iter``. Raises ``StateError`` if it is from other data or another order."""
        records = None if isinstance(self.dataset, IterableDataset) else len(self.dataset)
        state = _places.checked(state_dict, records)
        if state["rng"] is not None and ("engine" in state) != (self._records is not None):
            reads = ["torch reads this dataset", "infeed's engine reads this dataset"]
            raise StateError(
                f"{reads[self._records is not None]}, but not in the loader that saved the state: give the arguments of that "
                "loader"
            )
        seed = state.get("seed")
        if seed is not None and seed != self._seed:
            said = None if self._records is None else self._records.settings.get("seed")
            if said not in (None, seed):
                raise StateError(f"the state was saved with seed {seed}: give this loader that seed, not {said}")
            self._seed, self._engine = seed, None
        if self._records is not None and self._own_order and state.get("engine") is not None:
            # Raises now if the state does not fit.
            self._ready = self._loader(self._records)
            self._ready.load_state_dict(state["engine"])
        self._epoch = state["epoch"]
        self._tell_samplers(self._epoch if state["sampler_epoch"] is None else state["sampler_epoch"])
        self._place = None
        self._resume = state if state["rng"] is not None else None
        if self._resume is None:
            sampler, dataset = self._keepers()
            if sampler is not None and "sampler" in state:
                sampler.load_state_dict(state["sampler"][0])
            if dataset is not None and "dataset" in state:
                dataset.load_state_dict(state["dataset"])

    def _keepers(self) -> tuple[Any, Any]:
        """Sampler and iterable dataset, if they have states of their own that are used."""
        has_dataset = isinstance(self.dataset, IterableDataset) and self.num_workers == 0
        return _places.stateful_sampler(self), _places.stateful(self.dataset) if has_dataset else None

    def close(self) -> None:
        """Ends reading, threads and worker processes. Tensors that you hold stay valid."""
        if self._engine is not None:
            self._engine.close()
        self._iterator = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        begun = self._place is not None or self._resume is not None
        state: dict[str, Any] = {"_engine": None, "_ready": None, "_iterator": None, "_place": None, "_resume": None}
        state["_is_drawn"] = False
        if begun:
            here = self.state_dict()
            state["_resume"] = here if here["rng"] is not None else None
            state["_epoch"] = here["epoch"]
        return {**self.__dict__, **state}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        of = self.dataset.given if isinstance(self.dataset, Records) else type(self.dataset).__name__
        return f"<infeed.torch.DataLoader of {of}: batches of {self.batch_size}, next epoch {self._epoch}>"


def _order_of(loader: Any) -> tuple[Any, ...]:
    """What sets a loader's order and batches: its batch sampler and sampler, batch size and ``drop_last``."""
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return batches, loader.sampler, None, None
    return batches, batches.sampler, batches.batch_size, batches.drop_last


def _world_size() -> int:
    """From torchrun's variable."""
    said = os.environ.get("WORLD_SIZE", "")
    return int(said) if said.isdecimal() else 1


class _OfEngine(Iterator[Any]):
    """Iterator over the rest of an epoch that the engine reads, in torch's structure."""

    def __init__(self, loader: DataLoader[Any], records: Records, place: Place, resume: Mapping[str, Any] | None) -> None:
        self._loader, self._records, self._place = loader, records, place
        self._batches: Iterator[_native.Batch] = iter(())
        # What the samplers still hold.
        self._indices: Iterator[Any] | None = None
        place.behind = None if resume is None else resume.get("engine")
        kept = None if resume is None else _draws.state()
        if resume is not None:
            _places.replay(loader, resume["rng"])
        loader._draw_seed(records, place)
        # The generators' states in which samplers draw after a resume.
        self._rng: tuple[Any, ...] | None = None
        if kept is not None:
            self._rng = _draws.state()
            _draws.restore(kept)
        # Without workers, torch asks its samplers at the first `next`.
        if loader.num_workers > 0 or loader._own_order:
            self._begin()

    def _begin(self) -> None:
        if len(self._records) == 0:
            self._place.has_begun = True
            return
        try:
            self._batches, self._indices = self._loader._batches(self._records, self._place, self._rng)
        except EmptyError:
            pass

    def _next_batch(self) -> _native.Batch:
        while True:
            try:
                return next(self._batches)
            except StopIteration:
                if self._indices is None:
                    self._place.ended = True
                    raise
                self._batches, has_more = self._loader._more(self._records, self._place, self._indices)
                if not has_more:
                    self._indices = None

    def __next__(self) -> Any:
        loader, records, place = self._loader, self._records, self._place
        if not place.has_begun:
            self._begin()
        try:
            batch = self._next_batch()
        except Error as error:
            if error.record is not None:
                self._pass_over()
            cause = error.__cause__
            if records.is_object and isinstance(error, CorruptError) and cause is not None:
                # The exception of the dataset's own code.
                raise cause
            raise
        place.batches += 1
        place.samples += batch.valid
        if batch.valid < batch.size and not records.tells_padding:
            warnings.warn(
                f"the last {batch.size - batch.valid} rows of this batch come twice, so that all ranks have equally many steps: "
                'name "valid" in output= for the number of rows that do not, or give drop_last=True',
                stacklevel=2,
            )
        if loader.batch_size is None and loader.batch_sampler is None:
            made = loader.collate_fn.alone(batch)
        else:
            made = loader.collate_fn.whole(batch)
        return made if loader.batch_transform is None else loader.batch_transform(made)

    def _pass_over(self) -> None:
        """Skips the batch that failed, as torch's loop does. Not if ranks must have equally many steps."""
        loader, place, engine = self._loader, self._place, self._loader._engine
        if engine is None or self._records.dealt:
            return
        state, rows = engine.state_dict(), engine.batch_size
        if loader.batch_sampler is not None and _places.source(loader) is None:
            ends = itertools.accumulate(map(len, loader._picked.indices))
            rows = next((end for end in ends if end > state["position"]), state["position"]) - state["position"]
        state["position"] = min(state["position"] + rows, state["identity"]["positions"])
        # It is the checksum of the place before.
        del state["checksum"]
        engine.load_state_dict(state)
        self._batches = iter(engine)
        place.batches += 1
        place.samples += rows

    def __len__(self) -> int:
        return len(self._loader)

    def close(self) -> None:
        """Ends reading and this iterator. The loader can still be used."""
        if isinstance(self._batches, Batches):
            self._batches.close()


class _Parts:
    """The parts of a loader that torch's iterators need after their start. The iterators hold no loader, since the loader may
    hold them: in a reference cycle, worker processes would live until the garbage collector runs."""

    def __init__(self, loader: DataLoader[Any], place: Place) -> None:
        self.dataset, self.generator = loader.dataset, loader.generator
        self.sampler, self.batch_sampler = loader.sampler, loader.batch_sampler
        # The batch sampler, or the sampler of a loader without batches.
        self.index_sampler: Any = loader._index_sampler
        self.batched: bool = loader._auto_collation
        self.num_workers: int = loader.num_workers
        self.batch_transform = loader.batch_transform
        # The place in the epoch that is read.
        self.place = place


class _View:
    """A loader as torch's iterators see it: with the wrapped dataset, and only the rest of the indices."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self.dataset = loader._view_of_dataset()
        self.collate_fn = _draws.Through(loader.collate_fn)
        self.worker_init_fn = _Begin(loader.worker_init_fn)
        assert loader._place is not None
        self.parts = _Parts(loader, loader._place)
        self._index_sampler = _Left(self.parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Left:
    """The rest of an epoch's indices, for each epoch."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Any]:
        parts = self._parts
        if isinstance(parts.dataset, IterableDataset):
            return iter(parts.index_sampler)
        return _places.left_of_epoch(parts, parts.place)

    def __len__(self) -> int:
        return len(self._parts.index_sampler)


class _Begin:
    """The first call in a worker process: makes ``get_worker_info().dataset`` the script's own dataset."""

    def __init__(self, init: Callable[[int], None] | None) -> None:
        self._init = init

    def __call__(self, worker: int) -> None:
        info: Any = torch.utils.data.get_worker_info()
        if isinstance(info.dataset, _draws.Seeded):
            # Its own `__setattr__` raises.
            object.__setattr__(info, "dataset", info.dataset.dataset)
        if self._init is not None:
            self._init(worker)


class _Exact:
    """Added to torch's iterators: passes seeds with the indices, and moves the loader's place with the batches."""

    _base_seed: int
    _num_yielded: int
    # Number of batches that arrived or failed.
    _had: Callable[[], int]

    def __init__(self, view: Any) -> None:
        self._owner: _Parts = view.parts
        self._iterates = isinstance(view.dataset, IterableDataset)
        self._seeds = isinstance(view.dataset, _draws.Seeded)
        self._skip = self._asked = 0
        # Sampler and dataset, if they have a state of their own.
        self._sampler = _places.stateful_sampler(self._owner)
        self._dataset_keeper = _places.stateful(self._owner.dataset) if self._owner.num_workers == 0 else None
        self._start()
        super().__init__(view)  # type: ignore[call-arg]

    def _start(self) -> None:
        place = self._owner.place
        if not self._iterates:
            return
        keeper = self._dataset_keeper
        if keeper is not None and place.dataset_state is not None:
            keeper.load_state_dict(place.dataset_state)
        else:
            self._skip = place.skipped_batches

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        # Called for each epoch of persistent workers, and in the start of those.
        place = self._owner.place = loader._place
        if not first_iter:
            place.base_seed = self._base_seed
        elif place.base_seed is not None:
            self.as_persistent(loader)
        self._start()
        super()._reset(loader, first_iter)  # type: ignore[misc]

    def as_persistent(self, loader: Any) -> None:
        """Undoes torch's draw of a base seed, which a later epoch of persistent workers does not have."""
        place = self._owner.place
        assert place.base_seed is not None
        self._base_seed = place.base_seed
        _places.replay(loader, place.rng)

    def _next_index(self) -> Any:
        asked = super()._next_index()  # type: ignore[misc]
        if self._iterates:
            return asked
        several = self._owner.batched
        if several and not isinstance(asked, (list, tuple)):
            asked = list(asked)
        place = self._owner.place
        owner, keeper, state = self._owner, self._sampler, None
        if keeper is not None:
            # A short batch means that the sampler has ended.
            spent = several and _places.source(owner) is not None and len(asked) < owner.batch_sampler.batch_size
            state = (keeper.state_dict(), spent)
        place.drew(len(asked) if several else 1, state)
        self._asked += 1
        before = place.before(asked if several else [asked])
        if not self._seeds:
            return asked
        if place.seed is None:
            place.seed = _draws.mixed(self._base_seed, place.epoch)
        return _draws.Task(asked, place.seed, before)

    def __next__(self) -> Any:
        place, owner = self._owner.place, self._owner
        while self._skip > 0:
            self._skip -= 1
            try:
                self._next_data()  # type: ignore[attr-defined]
            except StopIteration:
                place.ended = True
                raise
        had = self._had()
        try:
            if self._iterates or _profiler_enabled():
                batch = super().__next__()  # type: ignore[misc]
            else:
                # Without the label for a profiler, which costs 8 µs.
                batch = self._next_data()  # type: ignore[attr-defined]
                self._num_yielded += 1
        except StopIteration:
            place.ended = True
            raise
        except Exception:
            # The loop may go on with the next batch, unless a worker process died or timed out.
            if self._had() != had:
                place.gave()
            raise
        place.gave()
        if self._dataset_keeper is not None:
            place.dataset_state = self._dataset_keeper.state_dict()
        return batch if owner.batch_transform is None else owner.batch_transform(batch)


class _InProcess(_Exact, _SingleProcessDataLoaderIter):  # type: ignore[misc,unused-ignore]
    """Reads in the thread of the loop."""

    def _had(self) -> int:
        return self._asked


class _Processes(_Exact, _MultiProcessingDataLoaderIter):  # type: ignore[misc,unused-ignore]
    """Reads in torch's worker processes."""

    def _had(self) -> int:
        received: int = self._rcvd_idx
        return received


class _Gather:
    """Takes rows of tensors, by indices into nested subsets."""

    def __init__(self, tensors: Sequence[torch.Tensor], subsets: Sequence[Sequence[int]]) -> None:
        self._tensors, self._subsets = tensors, subsets

    def __call__(self, indices: Sequence[Any]) -> list[Any] | None:
        """None if the indices are no numbers."""
        for subset in self._subsets:
            indices = [subset[index] for index in indices]
        try:
            at = torch.as_tensor(indices)
        except (RuntimeError, TypeError, ValueError):
            return None
        return [tensor[at].contiguous() for tensor in self._tensors]


def _gather(dataset: Any, collate_fn: Any, batched: bool) -> Callable[[Sequence[Any]], Any] | None:
    """A function that takes a batch of tensor rows at once, where ``default_collate`` would stack them one by one; or None."""
    chosen: list[Sequence[int]] = []
    while type(dataset) is Subset:
        chosen.append(dataset.indices)
        dataset = dataset.dataset
    if not batched or collate_fn is not default_collate or type(dataset) is not TensorDataset:
        return None
    tensors = dataset.tensors
    if any(type(tensor) is not torch.Tensor or tensor.layout is not torch.strided for tensor in tensors):
        return None

    return _Gather(tensors, chosen)
