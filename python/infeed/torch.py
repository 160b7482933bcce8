"""A loader with the arguments of ``torch.utils.data.DataLoader``, so that a training script changes one import.

    from infeed.torch import DataLoader

    loader = DataLoader("train/", batch_size=256, shuffle=True, num_workers=8, transform="imagenet-train")
    for images, labels in loader:
        ...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter, itemgetter

from ._native import Batch, Tensor
from .errors import ConfigError
from .loader import Loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any, Literal, Protocol, Self, SupportsIndex

    from .transforms import Like

    class _Generator(Protocol):
        def initial_seed(self) -> int: ...

    _Output = Literal["auto", "tuple", "dict"] | Mapping[str, str]

__all__ = ["DataLoader"]

# What torch has and this loader has not, and what to use.
_INSTEAD = {
    "collate_fn": (
        "samples are collated by the engine; batch_transform= is called with each batch, map= with each sample"
    ),
    "worker_init_fn": "there are no worker processes; seed= is that of all draws",
    "multiprocessing_context": "there are no worker processes",
    "timeout": "infeed.open(url, patience=seconds) bounds the waits for a store",
    "in_order=False": "batches come in order, and a slow sample holds no other up",
    "an IterableDataset": (
        "exact order and resume need records that can be asked for by index; give the path or URL of its data, "
        "or a dataset with __len__ and __getitem__"
    ),
    "batch_size=None": "samples come in batches; batch_size=1 has one in each",
}


class DataLoader:
    """Batches of torch tensors, with the arguments of ``torch.utils.data.DataLoader`` in its order.

        loader = DataLoader("train/", batch_size=256, shuffle=True, num_workers=8, transform="imagenet-train")
        for epoch in range(90):
            for images, labels in loader:
                loss = step(images, labels)

    Tensors share the memory of the engine's rows: nothing is copied, a tensor that is kept never changes, and it may
    be written to. It is no subclass of torch's loader, which accelerate and Lightning would rebuild with worker
    processes.

    **As in torch**: ``batch_size``, ``shuffle``, ``sampler``, ``batch_sampler``, ``drop_last``, ``pin_memory``.

    - ``dataset``: a path, a URL, what ``infeed.open`` gives, or a map-style dataset: a torch ``Dataset``, a Hugging
      Face ``Dataset``, or what else has ``__len__`` and ``__getitem__``.
    - ``sampler``, ``batch_sampler``: this rank's indices, as a ``DistributedSampler`` gives them. They are taken at
      each ``iter``. Call this loader's ``set_epoch``, which calls theirs; or theirs alone, as with torch's loader.
      ``batch_size`` is the most that a batch of a ``batch_sampler`` may have, where it has no ``batch_size`` of its
      own.
    - Without them **the ranks share the dataset**, as Lightning and accelerate arrange it for torch's loader: no
      ``DistributedSampler`` is needed. Each rank has the same number of steps. With ``drop_last=False`` the last batch
      is filled up with rows that come twice, and ``output={…, "valid": "valid"}`` says how many do not. ``rank=0,
      world_size=1`` gives the whole dataset to each.

    **By other means**

    - ``num_workers``: threads that decode, in this process. 0 lets the engine choose, and follow what the run needs.
    - ``prefetch_factor``: ``prefetch_factor × num_workers`` batches are read ahead. None: as many as the budget of
      memory and the loop ask for.
    - ``generator``: its ``initial_seed()`` is ``seed``, from which order and augmentation are drawn. Otherwise the
      seed is 0, as a ``DistributedSampler``'s, and not that of ``torch.manual_seed``, which may differ between ranks.
    - ``persistent_workers``: threads stay between epochs, whatever it says.
    - ``pin_memory_device``: memory is pinned for CUDA; other devices are refused.

    **Refused** with a ``TypeError`` that says what to use instead: ``collate_fn``, ``worker_init_fn``,
    ``multiprocessing_context``, ``timeout``, ``in_order=False``, ``batch_size=None``, and an ``IterableDataset``.

    **Of infeed**

    - ``transform``: as of ``infeed.Loader``.
    - ``output``: what a batch is. ``"tuple"``: the values of all fields, in their order; ``"dict"``: by name;
      ``"auto"``: a tuple where the fields are two, as images and labels or images and targets, else a dict. A mapping
      chooses and names: ``{"pixel_values": "image", "labels": "label"}``. Beside the fields it may name ``"records"``
      (int64 ``[N]``, the index in the dataset of each row) and ``"valid"`` (int, how many rows at the start are no
      padding).
    - ``batch_transform``: called with each batch, as ``output`` says, on the caller's thread; the loop is given what
      it returns: ``batch_transform=torchvision.transforms.v2.MixUp(num_classes=1000)``.
    - More keyword arguments are those of ``infeed.Loader``: ``seed``, ``map``, ``dtype``, ``channels_last``,
      ``device``, ``memory_budget``, ``cache``, ``on_bad_sample``, ``rank``, ``world_size``, …

    Values are tensors with a row for each sample; fields of bytes are lists of bytes. Boxes come as torchvision's
    detection references have them: a list with a dict for each image, of ``boxes`` (float32 ``[K, 4]``), ``labels``
    (int64 ``[K]``, from 0; torchvision's detectors keep 0 for the background), ``ids``, ``iscrowd``, ``image_id``
    (int; the record where the dataset has no such field), ``size`` (height and width of the image in its row) and,
    where there are outlines, ``masks`` (uint8 ``[K, H, W]``).

    Raises what ``infeed.Loader`` raises.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: None = None,
        multiprocessing_context: None = None,
        generator: _Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Like = None,
        output: _Output = "auto",
        batch_transform: Callable[[Any], Any] | None = None,
        **more: Any,
    ) -> None:
        refused = {
            "collate_fn": collate_fn is not None,
            "worker_init_fn": worker_init_fn is not None,
            "multiprocessing_context": multiprocessing_context is not None,
            "timeout": timeout != 0,
            "in_order=False": not in_order,
            "an IterableDataset": _is_iterable(dataset),
        }
        for argument, given in refused.items():
            if given:
                raise _no_equal(argument)
        if batch_size is None:
            raise _no_equal("batch_size=None")
        if pin_memory_device.partition(":")[0] not in ("", "cuda"):
            raise ConfigError(f"pin_memory_device {pin_memory_device!r}: memory is pinned for cuda alone")
        if prefetch_factor is not None:
            if num_workers == 0:
                raise ConfigError("prefetch_factor counts batches for each worker: give num_workers too, or prefetch=")
            _say(more, "prefetch", prefetch_factor * num_workers, "prefetch_factor")
        if generator is not None:
            _say(more, "seed", generator.initial_seed(), "generator")
        if isinstance(output, str) and output not in ("auto", "tuple", "dict"):
            raise ConfigError(f"output {output!r}: it is auto, tuple, dict, or a mapping from names to fields")

        self.loader = Loader(
            dataset,
            batch_size=batch_size,
            transform=transform,
            shuffle=bool(shuffle),
            sampler=None if sampler is None else _Indices(sampler),
            batch_sampler=None if batch_sampler is None else _Indices(batch_sampler),
            drop_last=drop_last,
            num_workers=num_workers or None,
            pin_memory=pin_memory,
            **more,
        )
        self.dataset: Any = self.loader.dataset if isinstance(dataset, (str, os.PathLike)) else dataset
        self.batch_size = None if batch_sampler is not None else batch_size
        self.sampler: Any = _Epochs(self.loader.set_epoch) if sampler is None else sampler
        if batch_sampler is not None:
            # Not there otherwise: who asks would rebuild this loader from it.
            self.batch_sampler: Any = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.output: _Output = output
        self.batch_transform = batch_transform
        # From a batch to what the loop is given; made for the first.
        self._build: Callable[[Batch], Any] | None = None

    def _hand_out(self, batch: Batch) -> Any:
        build = self._build
        if build is None:
            build = self._build = _builder(batch, list(self.loader.dataset.fields), self.output)
        made = build(batch)
        return made if self.batch_transform is None else self.batch_transform(made)

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, or of what is left of the one that a loaded state stands in."""
        return map(self._hand_out, self.loader)

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank, also after a resume."""
        return len(self.loader)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """The epoch of the next ``iter``, also for samplers that were given. That of a loaded state keeps its place."""
        self.loader.set_epoch(epoch)
        self._tell_samplers(epoch.__index__())

    def _tell_samplers(self, epoch: int) -> None:
        batch_sampler = getattr(self, "batch_sampler", None)
        for sampler in (self.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
            tell = None if isinstance(sampler, _Epochs) else getattr(sampler, "set_epoch", None)
            if tell is not None:
                tell(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where to go on: behind the last batch that the loop was given. As of ``infeed.Loader``."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on behind ``state_dict`` at the next ``iter``. Raises ``StateError`` for one of other data or order."""
        epoch = state_dict.get("epoch")
        if isinstance(epoch, int):
            # Before: what is left of the epoch is taken from them now.
            self._tell_samplers(epoch)
        self.loader.load_state_dict(state_dict)

    def close(self) -> None:
        """Ends reading and threads. Tensors that are still held stay as they are."""
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_build": None}

    def __repr__(self) -> str:
        return f"<infeed.torch.DataLoader over {self.loader!r}>"


class _Epochs:
    """The ``sampler`` of a loader that was given none: trainers call its ``set_epoch``."""

    def __init__(self, set_epoch: Callable[[SupportsIndex], None]) -> None:
        self.set_epoch = set_epoch


class _Indices:
    """A sampler's indices, as torch takes them: it never calls ``set_epoch``, the script does."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        # Of a batch sampler.
        self.batch_size = getattr(sampler, "batch_size", None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sampler)

    def __len__(self) -> int:
        sampler: Any = self._sampler
        return len(sampler)


def _is_iterable(dataset: object) -> bool:
    # Who has such a dataset has imported torch.
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(dataset, data.IterableDataset)


def _no_equal(argument: str) -> TypeError:
    return TypeError(f"DataLoader(): {argument} has no equal here: {_INSTEAD[argument]}")


def _say(more: dict[str, Any], name: str, value: Any, argument: str) -> None:
    if name in more:
        raise TypeError(f"DataLoader(): {name} and {argument} say the same: give one of them")
    more[name] = value


def _builder(batch: Batch, schema: list[str], output: _Output) -> Callable[[Batch], Any]:
    """How batches like this one become what ``output`` says. Decided once, since all batches have the same fields."""
    if isinstance(output, str):
        # In the dataset's order; the views of an image are where it would be.
        places = {field: place for place, field in enumerate(schema)}
        fields = sorted(batch, key=lambda field: places.get(field.partition(".")[0], len(places)))
        if output == "auto":
            if any(isinstance(batch[field], Mapping) for field in fields):
                # It stands in the targets.
                fields = [field for field in fields if field != "image_id"]
            output = "tuple" if len(fields) == 2 else "dict"
        if output == "tuple":
            values = [_value(batch, field) for field in fields]
            return lambda batch: tuple([value(batch) for value in values])
        output = {field: field for field in fields}
    named = [(name, _value(batch, field)) for name, field in output.items()]
    return lambda batch: {name: value(batch) for name, value in named}


def _value(batch: Batch, field: str) -> Callable[[Batch], Any]:
    """How a field's value becomes torch's."""
    if field in batch:
        found = batch[field]
        if isinstance(found, Tensor):
            return lambda batch: batch[field].torch()
        return _targets(field) if isinstance(found, Mapping) else itemgetter(field)
    if field == "valid":
        return attrgetter("valid")
    if field == "records":
        tensor = import_module("torch").tensor
        return lambda batch: tensor(batch.records)
    raise ConfigError(f"output: there is no field {field!r}: there are {', '.join(batch)}, and records and valid")


def _targets(field: str) -> Callable[[Batch], list[dict[str, Any]]]:
    torch: Any = import_module("torch")

    def mask(runs: Mapping[str, Sequence[int]]) -> Any:
        """One outline in pixels: its runs go down the columns, and the first is of what is outside."""
        height, width = runs["size"]
        inside = (torch.arange(len(runs["counts"])) % 2).to(torch.uint8)
        return inside.repeat_interleave(torch.tensor(runs["counts"])).view(width, height).T

    def targets(batch: Batch) -> list[dict[str, Any]]:
        marked = batch[field]
        names = {"boxes": "boxes", "labels": "labels", "ids": "ids", "iscrowd": "crowd"}
        values = {name: marked[theirs].torch() for name, theirs in names.items()}
        sizes, outlines = marked["sizes"].torch(), marked.get("masks")
        offsets: list[int] = marked["offsets"].torch().tolist()
        images: list[int] = batch["image_id"].torch().tolist() if "image_id" in batch else batch.records
        made: list[dict[str, Any]] = []
        for row, image in enumerate(images):
            start, end = offsets[row], offsets[row + 1]
            target = {name: value[start:end] for name, value in values.items()}
            target.update(image_id=image, size=sizes[row])
            if outlines is not None:
                masks = [mask(runs) for runs in outlines[start:end]]
                # Those of a batch have one size.
                none = outlines[0]["size"] if outlines else sizes[row].tolist()
                target["masks"] = torch.stack(masks) if masks else torch.zeros(0, *none, dtype=torch.uint8)
            made.append(target)
        return made

    return targets
