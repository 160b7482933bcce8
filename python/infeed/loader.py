"""Loaders, and the loops over them."""

from __future__ import annotations

import atexit
import json
import os
import sys
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, Literal, TypedDict

from . import _native
from .errors import ConfigError, DeviceError, EmptyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType
    from typing import NoReturn, Protocol, Self, SupportsIndex, Unpack

    from .transforms import Like

    # In truth it gives whatever it likes, and so does the loop then.
    _Then = Callable[[_native.Batch], _native.Batch]

    class _NamedDtype(Protocol):
        """numpy's."""

        @property
        def name(self) -> str: ...

    class _SizedDtype(Protocol):
        """torch's."""

        @property
        def itemsize(self) -> int: ...

    class _Device(Protocol):
        """torch's."""

        @property
        def type(self) -> str: ...

    _Dtype = Literal["float32", "float16", "bfloat16", "uint8", "int16"] | _NamedDtype | _SizedDtype | type[Any]
    _Url = str | os.PathLike[str]

# Whoever is in a call from Rust to Python must be out of it when the interpreter ends.
atexit.register(_native.end_calls)

# Names of types in torch and numpy, and the engine's.
_DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "uint8": "u8",
    "int16": "i16",
}
_BAD = {"raise": "stop", "substitute": "substitute"}
_SKIPS = ("skip", "skip-padded")
# Names of the engine's config, of the command line and of torch's loader that are others here.
_RENAMED = {
    "workers": "num_workers",
    "layout": "channels_last",
    "shard": "rank and world_size",
    "world": "world_size",
    "last_batch": "drop_last",
    "gpu_split": "split",
    "collate_fn": "batch_transform, for whole batches, or map, for each sample",
    "generator": "seed",
    "prefetch_factor": "prefetch",
}


class Settings(TypedDict, total=False):
    """The engine's own settings, which ``Loader`` takes beside its arguments. None: the engine chooses."""

    views: Sequence[Mapping[str, Any]]
    """Several rows of each image: ``[{"name": "local", "count": 5, "transform": [{"op": …}, …]}, …]``."""
    mix: Mapping[str, Any] | None
    """MixUp, CutMix and label smoothing of whole batches: ``{"mixup": 0.2, "cutmix": 1.0, "num_classes": 1000}``; also
    ``prob``, ``switch_prob``, ``per`` (``"batch"``, ``"pair"``) and ``label_smoothing``."""
    autotune: bool
    """Whether ``num_workers`` and ``prefetch`` that are None follow the run. True unless said."""
    device_budget: int | None
    """Bytes of a GPU's memory."""
    decode_cut: bool
    """Whether the JPEG engines of a GPU get files that end with the crop's last row. True unless said."""
    streams: int | None
    """CUDA streams that decode beside the JPEG engines. None: none."""
    split: Literal["adaptive", "fixed"]
    """How decoders share images on a GPU; ``"fixed"`` gives equal bytes in each run."""
    numa: bool
    """Whether threads of a GPU stay on the processors near it. True unless said."""
    max_image_bytes: int | None
    """The largest decoded image, in bytes; larger ones are bad samples."""
    max_record_bytes: int | None
    """The largest record as it is stored, in bytes; larger ones are bad samples."""
    decode_index_bytes: int | None
    """Memory for what is learned of JPEGs; 0: nothing is kept."""
    io_concurrency: int | None
    """Requests in flight to a store, at most; or calls of a Python dataset at a time, each by a
    thread. None: as the store bears it, or one call."""
    verify: Literal["auto", "checksums", "never"]
    """What is compared with the checksums of a store."""
    decoded_cache: str | None
    """Where decoded pixels are kept from epoch to epoch: ``"ram:8GB"``, ``"/mnt/nvme/decoded:100GB"``."""
    max_unreadable: int | None
    """Samples that may be unreadable before the run ends. None: 16, or one in a hundred."""
    accounting: bool
    """Whether streams write down where their time goes. True unless said."""


class Options(TypedDict, total=False):
    """What ``open`` takes beside its arguments; ``help(infeed.open)`` has the words for it. None: not said."""

    labels_only: bool | None
    label_column: str | None
    annotations: str | os.PathLike[str] | None
    masks: bool | str | None
    channels: str | None
    pattern: str | None
    samples_per_patient: int | None
    fields: Mapping[str, str | Sequence[str]] | None
    manifests: str | os.PathLike[str] | None
    patience: float | None
    listing: str | os.PathLike[str] | None
    rank: int | None
    allow_incomplete: bool | None
    filters: Sequence[str] | None
    records: str | os.PathLike[str] | None


def _whole(name: str, value: Any, below: int = 1 << 64) -> int:
    """A number that is an index or a seed, also one of numpy's."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: must be a whole number, not negative")
    if not 0 <= number < below:
        raise ConfigError(f"{name}={value!r}: must be a whole number, not negative and below {below}")
    return number


def _flag(name: str, value: Any) -> bool:
    # numpy has bools of its own.
    if isinstance(value, (bool, int)) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError(f"{name}={value!r}: must be True or False")


def _path(name: str, value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        # Those of bytes are none that the engine takes.
        path: object = os.fspath(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if isinstance(path, str):
            return path
    raise TypeError(f"{name}={value!r}: must be a path")


def _names(name: str, value: Any) -> list[Any]:
    """A text would be its letters."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}={value!r}: must be a list of names")
    return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _dtype(dtype: Any) -> str:
    """By the name that it has in torch and numpy."""
    name = dtype if isinstance(dtype, str) else str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(f"dtype={dtype!r}: images come as {', '.join(_DTYPES)}")
    return name


def _device(device: Any) -> str | None:
    if device is None or isinstance(device, str):
        return device
    # torch.device
    if type(device).__name__ == "device":
        return str(device)
    raise TypeError(f"device={device!r}: must be 'cpu', 'cuda', 'cuda:1', …, or None")


def _json(settings: Mapping[str, Any]) -> str:
    """Numbers and arrays of numpy and torch are Python's."""

    def plain(value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        tolist = getattr(value, "tolist", None)
        if tolist is not None:
            return tolist()
        return dict(value) if isinstance(value, Mapping) else list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    try:
        return json.dumps(settings, default=plain, allow_nan=False)
    except (TypeError, ValueError):
        for name, value in settings.items():
            try:
                json.dumps(value, default=plain, allow_nan=False)
            except TypeError:
                words = f"{name}={value!r}: settings are numbers, texts, lists and dicts"
                raise TypeError(words) from None
            except ValueError:
                raise ConfigError(f"{name}={value!r}: numbers must be finite") from None
        raise


def check_settings(where: str, more: Iterable[str], known_arguments: Iterable[str]) -> None:
    """Raises TypeError where a name of ``more`` is no setting: with that which was meant, as far as it can be told.

    ``where`` is what was called, and ``known_arguments`` are those that it has itself.
    """
    settings = Settings.__annotations__
    unknown = [name for name in more if name not in settings]
    if not unknown:
        return
    own = set(known_arguments)
    raise TypeError(f"{where}(): there is no argument {unknown[0]!r}: {_meant(where, unknown[0], {*own, *settings}, own)}")


def _meant(where: str, name: str, known: Iterable[str], own: Iterable[str]) -> str:
    import difflib
    import inspect

    if name in _RENAMED and where != "open":
        return f"use {_RENAMED[name]}"
    of_open = {*inspect.signature(open).parameters, *Options.__annotations__} - {"url", "options"}
    if where != "open" and name in of_open:
        return f"it is one of infeed.open(): {where}(infeed.open(…, {name}=…))"
    near = difflib.get_close_matches(name.lower(), sorted(known), 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(sorted(own))}"


def open(  # noqa: A001 (the module's name stands before it)
    url: _Url | Any,
    *,
    format: str | None = None,  # noqa: A002
    split: str | None = None,
    labels: str | None = None,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> _native.Dataset:
    """Opens a dataset: a folder, a file or a store's prefix, in any format that infeed reads; or an object of Python's.

    ``url`` is a path or ``s3://…``, ``gs://…``, ``az://…``, ``https://…``,
    ``hf://datasets/OWNER/NAME`` (Hugging Face's hub), or ``synthetic://?count=1000`` for made-up images. Nothing is
    started, and what is read are names, indices and headers.

    Or it is any object with ``__len__`` and ``__getitem__``: torch's ``Dataset``, Hugging Face's, a list. torchvision's
    ``ImageFolder`` and Hugging Face's columns of images, texts and numbers are read without Python. Others are asked
    for one item at a time, ahead of the threads that decode (``Loader(io_concurrency=4)``: for 4 at a time, each by a
    thread, where ``__getitem__`` waits for disks or networks and may run in several threads at once: it shares no open
    file and no buffer between calls, unless under a lock). Their items are tuples, dicts or single values
    of encoded images (``bytes``), pictures of Pillow, arrays and tensors (u8 ``[H, W]``, ``[H, W, C]``, ``[C, H, W]``
    are images), integers (labels), texts. Integers and bools of Hugging Face's columns are labels (int64), other numbers
    keep the type of their column; a dataset with ``with_transform`` gives what that gives. ``fields`` says what else they are:
    ``{"depth": "mask16", "meta": "bytes", "x": "array"}`` (``image``, ``mask``, ``mask16``, ``label``, ``array``, ``bytes``). A
    transform that such a dataset has is its own affair and runs in Python: better give it to the loader. What tells
    the dataset from others of its class and length is its attribute ``fingerprint``, where it has one.

    - ``format``: its name where it is not recognised: ``folder``, ``cifar10``, ``tar``, ``mds``, ``tfrecord``,
      ``parquet``, ``zarr``, ``hdf5``, ``coco``, …
    - ``split``: the part of a dataset that has several: ``train``.
    - ``labels``: a table of files and labels, inside the dataset or beside it: CSV, TSV, text with blanks between them,
      JSON, JSON lines.
    - ``classes``: names of classes in the order of their indices, as another dataset's ``classes``.
    - ``columns``: the columns of tables that are needed.
    - ``options``: ``labels_only`` (bool: only the images that the table of labels lists), ``label_column`` (that of the
      labels, of a table with several), ``annotations`` (a COCO file), ``masks`` (True: outlines of COCO and YOLO too; or
      how files of masks are named, ``"masks/{stem}_mask.png"``), ``channels``, ``pattern``, ``samples_per_patient``,
      ``fields`` (what fields are where their names do not say it: ``{"gt": "mask"}``, or ``mask16``, ``image``, ``label``,
      ``bytes``; images called ``mask``, ``label``, ``seg_map``, ``tumor_mask`` or ``annotation`` are masks. Of volumes
      a dict from names to lists of files), ``manifests`` (a folder where listings
      are kept, of local folders too), ``patience`` (seconds a store may take),
      ``listing`` (a file that all ranks reach: rank 0 lists and writes it, the others read it; ``rank`` where neither
      torch nor the launcher says which this is), ``allow_incomplete`` (shards of ``prepare`` of which others are missing).
      ``filters`` (a list: ``["label=cat,dog", "width>=256"]``; records that pass all), ``records`` (a file that lists those
      to take, by number or by object, one a line). Of an object of Python's: ``fields``, and ``columns`` of a table.

    Raises ``NotFoundError``, ``DeniedError``, ``IoError``, ``CorruptError``, ``UnsupportedError``; ``TypeError`` for an
    option that nobody knows, or of another type; ``ConfigError`` for values that cannot be. Ctrl-C ends the wait.
    """
    own = {*Options.__annotations__, "format", "split", "labels", "classes", "columns"}
    for name in options:
        if name not in own:
            raise TypeError(f"open(): there is no argument {name!r}: {_meant('open', name, own, own)}")
    given: dict[str, Any] = {
        "format": format,
        "split": split,
        "labels": labels,
        "classes": None if classes is None else _names("classes", classes),
        "columns": None if columns is None else _names("columns", columns),
        **options,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(url, (str, os.PathLike)):
        from .objects import wrap

        more = given.keys() - {"fields", "columns"}
        if more:
            raise TypeError(f"open(): {', '.join(sorted(more))} is for files, not for an object of Python's")
        fields = options.get("fields")
        if fields is not None and not isinstance(fields, Mapping):
            raise TypeError(f"fields={fields!r}: must be a dict from names to kinds")
        kinds = None if fields is None else {name: kind for name, kind in fields.items() if isinstance(kind, str)}
        if fields is not None and kinds != fields:
            raise TypeError(f"fields={fields!r}: those of Python's objects are image, mask, mask16, label, array or bytes")
        return wrap(url, kinds, columns)[0]
    if "listing" in given:
        given.setdefault("rank", _shard(None, None)["rank"])
    return _native.open(_path("url", url), _json(given))


def _of_hugging_face(dataset: _native.Dataset) -> bool:
    """Whether it is an object of ``datasets``, which turns images when it decodes them."""
    name = dataset.name.rpartition(" records of ")[2]
    return dataset.format in ("memory", "python") and (name == "huggingface" or name.startswith("datasets."))


def _nothing(_epoch: int) -> None:
    """The batches of an epoch that has none."""


class Batches(Iterator["_native.Batch"], AsyncIterator["_native.Batch"]):
    """The batches of one epoch, for ``for`` and for ``async for``. Made by ``iter(loader)``.

    Leaving the loop early ends reading; so does ``close``, which may be called from another thread, and ``with``. Tasks of one
    event loop may share it: each batch goes to one of them.
    """

    __slots__ = ("_epoch", "_loader", "_next", "_stream", "_then", "_waiting", "__weakref__")

    def __init__(self, loader: Loader, stream: _native.Stream | None, epoch: int, then: _Then | None) -> None:
        self._loader = loader
        self._then = then
        self._stream = stream
        self._next = _nothing if stream is None else stream.next
        self._epoch = epoch
        # Tasks that wait, in the order in which they came.
        self._waiting: list[asyncio.Future[None]] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _native.Batch:
        """The next batch. Waits without the GIL until there is one; Ctrl-C ends the wait and loses nothing."""
        if self._waiting:
            raise RuntimeError("tasks wait in this iterator: give each thread a loader of its own")
        batch = self._next(self._epoch)
        if batch is None:
            self._end()
            raise StopIteration
        return batch if self._then is None else self._then(batch)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _native.Batch:
        """The next batch, while other tasks run. Cancelling it loses nothing."""
        while True:
            stream = self._stream
            if stream is None:
                raise StopAsyncIteration
            if self._waiting:
                self._check_loop()
            try:
                ready, batch = stream.poll(self._epoch)
            except BaseException:
                self._wake(stream)
                raise
            if ready:
                break
            await self._rung(stream)
        # This may have been the ring that others wait for.
        self._wake(stream)
        if batch is None:
            self._end()
            raise StopAsyncIteration
        return batch if self._then is None else self._then(batch)

    def _check_loop(self) -> None:
        import asyncio

        if self._waiting[0].get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("another event loop waits in this iterator: give each event loop a loader of its own")

    async def _rung(self, stream: _native.Stream) -> None:
        """Waits until it is worth asking again."""
        import asyncio

        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.add_reader(stream.fileno(), self._wake, stream)
        rung = loop.create_future()
        self._waiting.append(rung)
        try:
            await rung
        finally:
            # Cancelled.
            if rung in self._waiting:
                self._waiting.remove(rung)
                if not self._waiting:
                    loop.remove_reader(stream.fileno())

    def _wake(self, stream: _native.Stream) -> None:
        """All that wait ask again, as somebody may have had what rang."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            # Now, as the next epoch may wait for the same stream before they run.
            waiting[0].get_loop().remove_reader(stream.fileno())
        for rung in waiting:
            if not rung.done():
                rung.set_result(None)

    def _end(self) -> None:
        """Gives the stream back: the loader has read ahead for its next epoch."""
        stream, self._stream = self._stream, None
        if stream is not None and not stream.closed:
            self._loader._park(self._epoch + 1, stream)

    def close(self) -> None:
        """Ends reading. The iterator has ended; the loader can be used."""
        stream = self._stream
        if stream is not None:
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "the batches of an epoch are read once and have no copies: copy the loader, whose copy goes on at the same place, "
            "or keep its state_dict()"
        )


class Loader:
    """Batches of a dataset, epoch after epoch.

        loader = infeed.Loader("s3://bucket/train", batch_size=256, shuffle=True, transform="imagenet-train")
        for epoch in range(90):
            for batch in loader:
                loss = step(batch["image"].torch(), batch["label"].torch())

    Each ``iter`` is the next epoch. Which record is in which row of which batch is a function of dataset, order, seed,
    epoch, rank, world size and batch size alone; threads and read-ahead change nothing.

    **Data**

    - ``dataset``: a path, a URL, what ``infeed.open`` gave, or what it takes: any object with ``__len__`` and
      ``__getitem__``.
    - ``transform``: from decoded image to row. The name of a preset (``imagenet-train``, ``imagenet-val``,
      ``cifar-train``, ``torchvision-v2-train``, ``simclr``, ``dino``, …), steps in a line
      (``"random_resized_crop:224;horizontal_flip;normalize"``), steps of ``infeed.transforms``, a list of dicts
      (``[{"op": "random_resized_crop", "size": [224, 224]}, …]``), or a ``Compose`` of torchvision's as it is. None:
      pixels as they are.
    - ``map``: a function that threads of the engine call for each sample, ``map(sample)``: a dict of numpy arrays, copies
      of the sample's rows, labels as arrays of no axes. It changes them in place, or gives back a dict of others of the
      same types and shapes. With a second parameter, ``map(sample, seed)``: a number of the sample's own, the same
      whenever seed, epoch and record are. An exception makes it a bad sample.
    - ``batch_transform``: a function that makes of each batch what the loop gets, on the loop's own thread.
    - ``orientation``: ``"apply"`` turns and mirrors images as their files say (EXIF of JPEG, WebP and PNG, the tag
      Orientation of TIFF), ``"ignore"`` takes pixels as they are stored. None: as those do from whom the dataset is:
      Hugging Face's objects are turned, torchvision's folders and all files are not.
    - ``dtype``, ``channels_last``: type and axes of images: ``[N, C, H, W]``, or ``[N, H, W, C]``. The type by name, as
      numpy's or as torch's.
    - ``device``: ``cpu``, ``cuda``, ``cuda:1``, …; None takes the GPU of this rank where there is one. ``cuda`` is torch's
      current device where torch is imported and has begun to use GPUs, else the GPU of this process's rank on its
      machine, as the launcher says (``LOCAL_RANK``, …).
    - ``decode``: who decodes JPEGs where batches are made on a GPU. ``"auto"``: CPU threads, and its JPEG engines and
      streams while the loop waits; ``"gpu"``: the engines first, for a fifth of the CPU time, and a ``DeviceError`` that says
      what is missing where there are none; ``"cpu"``: CPU threads alone. ``report()["decoded_by"]`` tells who did how many.

    **Order**

    - ``batch_size``: rows of a batch, on each rank.
    - ``shuffle``: another order in each epoch; a number is its seed. True takes ``seed``, or 0.
    - ``order``: ``"sequential"``, ``"random"``, ``"blocks"`` (shuffled so that near records stay near, for shards and
      tables), or a dict of the engine's: ``{"repeated": {"seed": 1, "times": 3}}``. In place of ``shuffle``.
    - ``sampler``: an iterable of records of this rank, as torch's samplers are: nobody deals them to ranks once more. It
      is asked at each ``iter``, after its ``set_epoch`` where it has one; so the next epoch is not read ahead. To go on
      in the middle of an epoch it must give the same again.
    - ``batch_sampler``: an iterable of lists of records, of any lengths; ``batch_size`` is the most that they may have
      (as if not said, its own ``batch_size``).
    - ``seed``: of the order where it has none, and of augmentation.
    - ``drop_last``: leaves out what does not fill a batch on every rank. Otherwise the last batch is shorter in one
      process; in several it is filled up, and ``batch.valid`` says how many rows are samples.
    - ``rank``, ``world_size``: this process among all. None: as an initialised ``torch.distributed`` says, or the
      launcher's variables (torchrun, Slurm, MPI, SageMaker, …).

    **Resources**, all chosen and followed during the run where they are None

    - ``num_workers``: decoding threads.
    - ``prefetch``: batches that are ready or in work ahead of the loop.
    - ``memory_budget``: bytes of host memory.
    - ``pin_memory``: batches lie in page-locked memory, so that a copy to a GPU runs beside the trainer
      (``.torch().to("cuda", non_blocking=True)``). Without a GPU: a warning, and memory as ever.
    - ``cache``: keeps what was read from a store near: ``"/mnt/nvme/cache:100GB"``, ``"ram:8GB"``.
    - ``decoded_cache``: keeps decoded pixels, so that later epochs neither read nor decode: ``"ram:8GB"``, or a folder for
      all processes and runs of a machine. ``infeed doctor`` says what it brings and how much there is.
    - ``decode_index``: a file that knows where the rows of JPEGs begin, so that only what a crop needs is decoded, from the
      first epoch on: ``infeed inspect DATASET --decode-index FILE`` makes it. Processes of a machine share it. What this
      loader learns beside it is added by ``save_decode_index``, and by ``close``. Without a file each run learns anew.

    **Bad samples**: ``on_bad_sample="raise"`` ends the epoch with an error; ``"substitute"`` puts the nearest good row of
    the batch in its place; ``{"skip": {"at_most": 100}}`` leaves them out, and ends above so many.

    **More** keyword arguments are the engine's own settings, under its names: ``infeed.loader.Settings`` has them all,
    with what each is (``views``, ``mix``, ``device_budget``, ``decode_cut``, ``io_concurrency``, ``verify``,
    ``max_image_bytes``, …). ``loader.config`` shows what is in force.

    A loader may be pickled: the copy has the arguments and the place, and starts where it is first used. After a fork it
    raises ``RuntimeError``: make loaders in the process that uses them.

    Raises ``ConfigError`` (a ``ValueError``) for values that cannot be, ``TypeError`` for those of another type and for
    arguments that nobody knows, and what ``infeed.open`` raises.
    """

    def __init__(
        self,
        dataset: _Url | _native.Dataset | Any,
        *,
        batch_size: int = 1,
        transform: Like = None,
        shuffle: bool | int = False,
        order: str | Mapping[str, Any] | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        num_workers: int | None = None,
        prefetch: int | None = None,
        memory_budget: int | None = None,
        device: str | _Device | None = "cpu",
        decode: Literal["auto", "gpu", "cpu"] = "auto",
        pin_memory: bool = False,
        dtype: _Dtype = "float32",
        channels_last: bool = False,
        orientation: Literal["apply", "ignore"] | None = None,
        on_bad_sample: Literal["raise", "substitute"] | Mapping[str, Any] = "raise",
        cache: str | None = None,
        decode_index: _Url | None = None,
        map: Callable[..., Any] | None = None,  # noqa: A002
        batch_transform: Callable[[_native.Batch], Any] | None = None,
        **more: Unpack[Settings],
    ) -> None:
        check_settings("Loader", more, Loader.__init__.__kwdefaults__ or ())
        if isinstance(dataset, (str, os.PathLike)):
            dataset = open(dataset)  # pyright: ignore[reportUnknownArgumentType]
        elif not isinstance(dataset, _native.Dataset):
            from .objects import wrap

            dataset, its_own = wrap(dataset)
            if its_own is not None:
                if transform is not None:
                    raise ConfigError("the dataset has a transform, and so has the loader: give one of them")
                transform = its_own
        if orientation is None:
            orientation = "apply" if _of_hugging_face(dataset) else "ignore"
        picked = _picked(sampler, batch_sampler, batch_size)
        if picked is not None:
            if shuffle is not False or order is not None:
                raise ConfigError("a sampler is the order: leave shuffle and order out")
            if rank is not None or world_size is not None:
                raise ConfigError("a sampler has the records of its rank: leave rank and world_size out")
            rank, world_size, batch_size = 0, 1, picked.batch_size
            if picked.lists and drop_last:
                raise ConfigError("batch_sampler says which batches there are: leave drop_last out")
        kind = _dtype(dtype)
        seed = None if seed is None else _whole("seed", seed)
        drop_last = _flag("drop_last", drop_last)
        config: dict[str, Any] = {
            "batch_size": batch_size,
            "order": _order(shuffle, order, seed),
            "seed": seed,
            "dtype": _DTYPES[kind],
            "layout": "nhwc" if _flag("channels_last", channels_last) else "nchw",
            "orientation": orientation,
            "device": _device(device),
            "decode": decode,
            "workers": num_workers,
            "prefetch": prefetch,
            "memory_budget": memory_budget,
            "cache": cache,
            "on_bad_sample": _bad(on_bad_sample),
            **more,
        }
        if _flag("pin_memory", pin_memory):
            config["pin_memory"] = True
        line: str | None = None
        lowered = _steps(transform)
        if isinstance(lowered, str):
            line = lowered
        elif lowered is not None:
            config["transform"] = lowered
        if map is not None and kind == "bfloat16":
            raise ConfigError("map: numpy has no bfloat16: take float32, or batch_transform")
        if batch_transform is not None and not callable(batch_transform):
            raise TypeError(f"batch_transform={batch_transform!r}: must be a function of a batch")
        index_file = None if decode_index is None else _path("decode_index", decode_index)
        self._args = (dataset, config, line, drop_last, rank, world_size, index_file)
        self._picked = picked
        self._map = None if map is None else _mapped(map)
        self._then: _Then | None = batch_transform
        self._reset()
        self._engine()

    def _reset(self) -> None:
        self._native: _native.Loader | None = None
        self._shard: Mapping[str, int] = {}
        self._closed = False
        # The epoch of the next `iter`, and the stream that has read ahead for it.
        self._epoch = 0
        self._parked: _native.Stream | None = None
        # Of the stream that was used last.
        self._place: _native.Place | None = None
        # Of a pickle, until the engine is there.
        self._state: str | None = None

    def _engine(self) -> _native.Loader:
        if self._closed:
            raise RuntimeError("this loader is closed: make another one")
        if self._native is None:
            dataset, config, line, drop_last, rank, world_size, index = self._args
            shard = self._shard = _shard(rank, world_size)
            last = "drop" if drop_last else "partial" if shard["world"] == 1 else "pad"
            config = {**config, "shard": shard, "last_batch": last}
            if config["device"] == "cuda":
                config["device"] = f"cuda:{_current_gpu(shard)}"
            self._native = self._built(dataset, config, _json(config), line, index)
            if self._state is not None:
                state, self._state = self._state, None
                self._resume(self._native, state)
        return self._native

    def _built(
        self, dataset: _native.Dataset, config: Mapping[str, Any], text: str, line: str | None, index: str | None
    ) -> _native.Loader:
        if config["device"] != "cpu":
            from .libraries import nvjpeg_folders

            # Each time: what `sys.path` has may have changed, and it is some dozen questions to the file system.
            _native.look_for_nvjpeg(nvjpeg_folders())
        try:
            return _native.Loader(dataset, text, line, self._map, index)
        except DeviceError as error:
            if "pin_memory" not in config or config["device"] != "cpu":
                raise
            import warnings

            # As torch does: the same script runs on machines without a GPU.
            warnings.warn(f"pin_memory: {error}; batches lie in ordinary memory", RuntimeWarning, stacklevel=4)
            return _native.Loader(dataset, _json({**config, "pin_memory": False}), line, self._map, index)

    def _ordered(self, epoch: int) -> _native.Loader:
        """The engine, in the order of an epoch."""
        native = self._engine()
        return native if self._picked is None else self._picked.listed(native, epoch)

    def _park(self, epoch: int, stream: _native.Stream) -> None:
        if epoch == self._epoch and not self._closed and self._picked is None:
            self._parked = stream

    def _resume(self, native: _native.Loader, state: str) -> None:
        if self._picked is not None:
            native = self._picked.listed(native, _epoch_of(state))
        stream = native.stream_behind(state, self._picked is not None)
        self._drop_parked()
        self._parked, self._place, self._epoch = stream, stream.place, stream.place.epoch()

    def _drop_parked(self) -> None:
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.close()

    def __iter__(self) -> Batches:
        """The batches of the next epoch, or of what is left of the one that a loaded state stands in."""
        self._engine()
        self._check_rank()
        epoch, stream = self._epoch, self._parked
        if stream is None:
            try:
                stream = self._ordered(epoch).stream_of(epoch, self._picked is not None)
            except EmptyError:
                # A sampler may have nothing for an epoch, or less than a batch.
                self._epoch, self._place = epoch + 1, None
                return Batches(self, None, epoch, self._then)
        self._epoch, self._parked, self._place = epoch + 1, None, stream.place
        return Batches(self, stream, epoch, self._then)

    def _check_rank(self) -> None:
        """A loader that was made before the processes knew each other would give each of them everything."""
        now = _distributed()
        if now is None or self._args[4] is not None or self._picked is not None:
            return
        made = (self._shard["rank"], self._shard["world"])
        if now != made:
            raise ConfigError(
                f"this loader was made as rank {made[0]} of {made[1]}, and torch.distributed says rank {now[0]} of "
                f"{now[1]}: make it when that is initialised (with Lightning, in train_dataloader), or give rank and world_size"
            )

    def __aiter__(self) -> Batches:
        """As ``iter``, for ``async for``."""
        return self.__iter__()

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank, also after a resume.

        Of a sampler, as many as its own length makes; TypeError where it has none.
        """
        native = self._engine()
        if self._picked is None:
            return len(native)
        records, drop_last = len(self._picked), self._args[3]
        if self._picked.lists:
            return records
        return records // self._picked.batch_size if drop_last else -(-records // self._picked.batch_size)

    def set_epoch(self, epoch: SupportsIndex, /) -> None:
        """The epoch of the next ``iter``, where the count of ``iter`` is not what is meant.

        The epoch of a state that was just loaded keeps its place.
        """
        number = _whole("epoch", epoch)
        self._engine()
        if number != self._epoch:
            self._drop_parked()
            self._epoch, self._place = number, None

    def state_dict(self) -> dict[str, Any]:
        """Where to go on: behind the last batch that the loop was handed, however far was read ahead. Less than a kilobyte.

        It belongs to dataset, order and seed; batch size, threads, rank and world size may differ when it is loaded. The
        same on every rank, so one may save it for all.
        """
        state: dict[str, Any] = json.loads(self._state_json())
        return state

    def _state_json(self) -> str:
        native = self._engine()
        return self._place.state() if self._place is not None else native.state_before(self._epoch)

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Goes on behind ``state`` at the next ``iter``, which then is what is left of its epoch.

        Raises ``StateError`` when it is of another dataset, order, seed or version, with what differs.
        """
        self._resume(self._engine(), json.dumps(dict(state)))

    def report(self) -> Report:
        """What the loader did since its stream began: rates, waits, stages, memory, bad samples; times in seconds.

        A dict whose keys are those of ``infeed run --json``, and a page in notebooks. Empty before the first ``iter``.
        """
        native = self._engine()
        if self._place is None:
            return Report()
        place, dataset = self._place, self._args[0]
        return Report(json.loads(place.report()), lambda: place.page(dataset, dataset.name, native.config()))

    @property
    def dataset(self) -> _native.Dataset:
        """What the batches are made of."""
        return self._args[0]

    @property
    def batch_size(self) -> int:
        """Rows of a batch on each rank; of a batch sampler's, the most."""
        size: int = self._args[1]["batch_size"]
        return size

    @property
    def config(self) -> dict[str, Any]:
        """The settings in force under the engine's names, with those that were chosen."""
        config: dict[str, Any] = json.loads(self._engine().config())
        return config

    def save_decode_index(self) -> None:
        """Adds what was learned of JPEGs to the file of ``decode_index``; without one there is nothing to do.

        Other processes may save to the same file: what they have added stays. Raises ``CorruptError`` when the file is no
        decode index (any more), ``OSError`` when it can't be written.
        """
        if self._native is not None:
            self._native.save_index()

    def close(self) -> None:
        """Ends reading and threads, and adds what was learned to the file of ``decode_index``. Tensors that are still held
        stay as they are."""
        if self._args[6] is not None:
            self.save_decode_index()
        self._closed = True
        self._drop_parked()
        self._native = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        untouched = self._place is None and self._epoch == 0
        state = None if self._native is None or untouched else self._state_json()
        return {"args": self._args, "more": (self._picked, self._map, self._then), "state": state}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self._args = saved["args"]
        self._picked, self._map, self._then = saved["more"]
        self._reset()
        self._state = saved["state"]

    def __repr__(self) -> str:
        dataset, config = self._args[0], self._args[1]
        return f"<infeed.Loader of {dataset!r}: batches of {config['batch_size']}, next epoch {self._epoch}>"


def _steps(transform: Like) -> str | list[dict[str, Any]] | None:
    if transform is None or isinstance(transform, str):
        return transform
    # Its classes cost as much to import as all the rest.
    from .transforms import steps

    return steps(transform)


class Report(dict[str, "Any"]):
    """What a loader did, see ``Loader.report``: a dict."""

    def __init__(self, figures: Mapping[str, Any] | None = None, page: Callable[[], str] | None = None) -> None:
        super().__init__(figures or {})
        self._page = page

    @property
    def page(self) -> str:
        """The same as a page of HTML with charts, which notebooks show; of the time when it is asked for."""
        return "" if self._page is None else self._page()

    def __reduce__(self) -> tuple[type[Report], tuple[dict[str, Any]]]:
        return Report, (dict(self),)

    def _repr_html_(self) -> str:
        import html

        return f'<iframe style="width:100%;height:40em;border:0" srcdoc="{html.escape(self.page)}"></iframe>'


class _Picked:
    """Records as a sampler picks them, epoch by epoch."""

    def __init__(self, sampler: Any, lists: bool, batch_size: int) -> None:
        self._sampler = sampler
        self.lists = lists
        self.batch_size = batch_size

    def listed(self, native: _native.Loader, epoch: int) -> _native.Loader:
        """The engine's loader in the order of an epoch."""
        set_epoch = getattr(self._sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        if not self.lists:
            return native.listed(_numbers("sampler", self._sampler), None)
        records, sizes = array("q"), array("q")
        for batch in self._sampler:
            few = _numbers("batch_sampler", batch)
            records += few
            sizes.append(len(few))
        return native.listed(records, sizes)

    def __len__(self) -> int:
        return len(self._sampler)


def _numbers(name: str, records: Iterable[int]) -> array[int]:
    try:
        return array("q", records)
    except TypeError as error:
        raise TypeError(f"{name}: {error}: it gives indices of records") from None


def _picked(sampler: Any, batch_sampler: Any, batch_size: int) -> _Picked | None:
    if sampler is None and batch_sampler is None:
        return None
    if sampler is not None and batch_sampler is not None:
        raise ConfigError("sampler and batch_sampler say the same: give one of them")
    for name, given in {"sampler": sampler, "batch_sampler": batch_sampler}.items():
        if given is not None and not hasattr(given, "__iter__"):
            raise TypeError(f"{name}={given!r}: must be an iterable of records")
    if sampler is not None:
        return _Picked(sampler, False, batch_size)
    if batch_size == 1:
        its_own: int | None = getattr(batch_sampler, "batch_size", None)
        if its_own is None:
            raise ConfigError("batch_sampler: give batch_size, the most records that a batch may have")
        batch_size = its_own
    return _Picked(batch_sampler, True, batch_size)


def _mapped(function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """The function, and whether it takes a seed."""
    import inspect
    from importlib import import_module

    # Its arrays are numpy's: told now, not by a thread.
    import_module("numpy")

    if not callable(function):
        raise TypeError(f"map={function!r}: must be a function of a sample")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # A builtin that does not say what it takes.
        return function, False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [it for it in parameters if it.kind in by_place and it.default is inspect.Parameter.empty]
    if len(needed) > 2:
        raise TypeError(f"map: the function takes a sample, or a sample and a seed, not {len(needed)} arguments")
    return function, len(needed) == 2


def _epoch_of(state: str) -> int:
    epoch = json.loads(state).get("epoch", 0)
    return epoch if isinstance(epoch, int) and epoch >= 0 else 0


def _order(shuffle: bool | int, order: str | Mapping[str, Any] | None, seed: int | None) -> Any:
    if order is not None:
        if shuffle is not False:
            raise ConfigError("shuffle and order say the same: give one of them")
        if not isinstance(order, str):
            if not isinstance(order, Mapping):
                raise TypeError(f"order={order!r}: must be 'sequential', 'random', 'blocks', or a dict")
            return dict(order)
        named = {
            "sequential": "sequential",
            "random": {"random": {"seed": seed or 0}},
            "blocks": {"blocks": {"seed": seed or 0, "window": 4096}},
        }
        if order not in named:
            raise ConfigError(f"order={order!r}: must be one of {', '.join(map(repr, named))}, or a dict")
        return named[order]
    if shuffle is False:
        return "sequential"
    if shuffle is True:
        return {"random": {"seed": seed or 0}}
    try:
        return {"random": {"seed": _whole("shuffle", shuffle)}}
    except TypeError:
        raise TypeError(f"shuffle={shuffle!r}: must be True, False, or a number, the seed") from None


def _bad(policy: str | Mapping[str, Any]) -> Any:
    if isinstance(policy, Mapping) and len(policy) == 1 and policy.keys() <= set(_SKIPS):
        return dict(policy)
    if isinstance(policy, str) and policy in _SKIPS:
        raise ConfigError(f'on_bad_sample={policy!r}: say how many may be: {{"{policy}": {{"at_most": 100}}}}')
    if isinstance(policy, str) and policy in _BAD:
        return _BAD[policy]
    kind = ConfigError if isinstance(policy, (str, Mapping)) else TypeError
    skips = ", ".join(f'{{"{skip}": {{"at_most": 100}}}}' for skip in _SKIPS)
    raise kind(f"on_bad_sample={policy!r}: must be one of {', '.join(map(repr, _BAD))}, {skips}")


def _distributed() -> tuple[int, int] | None:
    """Rank and world size of torch's processes, where they know each other."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _current_gpu(shard: Mapping[str, int]) -> int:
    """The GPU that ``cuda`` means in this process: torch's current one, or that of the rank."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    # Asked earlier, torch would begin to use the GPU 0, whatever the script chooses afterwards.
    if cuda is not None and cuda.is_initialized():
        current: int = cuda.current_device()
        return current
    return _native.gpu_of_rank(shard.get("local_rank", 0))


def _shard(rank: int | None, world_size: int | None) -> dict[str, int]:
    if (rank is None) != (world_size is None):
        raise ConfigError("rank and world_size go together: give both, or neither")
    if rank is not None and world_size is not None:
        rank, world_size = _whole("rank", rank), _whole("world_size", world_size, 1 << 32)
        if world_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"rank {rank} of {world_size}: ranks are counted from 0, below the world size")
        return {"rank": rank, "world": world_size}
    it = _distributed()
    try:
        here, world, local_rank, local_world = _native.launcher()
    except ConfigError:
        # torch knows better than half of a launcher's variables.
        if it is None:
            raise
        return {"rank": it[0], "world": it[1]}
    # The launcher knows the places on a machine; of processes that were started otherwise nobody does.
    if it is not None and it != (here, world):
        return {"rank": it[0], "world": it[1]}
    return {"rank": here, "world": world, "local_rank": local_rank, "local_world": local_world}
