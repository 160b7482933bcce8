"""``Loader``, ``open`` and the iterator over batches."""

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

    # The function may return any type, and the loop then yields that type. Typed as Batch to keep `for batch in loader` typed.
    _Then = Callable[[_native.Batch], _native.Batch]

    class _NamedDtype(Protocol):
        """numpy's dtype."""

        @property
        def name(self) -> str: ...

    class _SizedDtype(Protocol):
        """torch's dtype."""

        @property
        def itemsize(self) -> int: ...

    class _Device(Protocol):
        """torch's device."""

        @property
        def type(self) -> str: ...

    _Dtype = Literal["float32", "float16", "bfloat16", "uint8", "int16"] | _NamedDtype | _SizedDtype | type[Any]
    _Url = str | os.PathLike[str]

# All calls from Rust into Python must have returned before the interpreter ends.
atexit.register(_native.end_calls)

# Type names of torch and numpy, and the engine's names for them.
_DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "uint8": "u8",
    "int16": "i16",
}
_BAD = {"raise": "stop", "substitute": "substitute"}
_SKIPS = ("skip", "skip-padded")
# Names from the engine's config, the command line and torch's loader, and the arguments that replace them here.
_RENAMED = {
    "workers": "num_workers",
    "layout": "channels_last",
    "shard": "rank and world_size",
    "world": "world_size",
    "last_batch": "drop_last",
    "collate_fn": "batch_transform, for whole batches, or map, for each sample",
    "generator": "seed",
    "prefetch_factor": "prefetch",
}


class Settings(TypedDict, total=False):
    """Further keyword arguments of ``Loader``: the engine's own settings. None lets the engine choose."""

    views: Sequence[Mapping[str, Any]]
    """Several rows per image: ``[{"name": "local", "count": 5, "transform": [{"op": …}, …]}, …]``. Default: none."""
    mix: Mapping[str, Any] | None
    """MixUp, CutMix and label smoothing of whole batches: ``{"mixup": 0.2, "cutmix": 1.0, "num_classes": 1000}``. Further
    keys: ``prob``, ``switch_prob``, ``per`` (``"batch"`` or ``"pair"``) and ``label_smoothing``. Default None: no mixing."""
    pad: Mapping[str, float]
    """Fields of lists that become a tensor of equally long rows, and the number that fills short rows: ``{"tokens": 0}``. The
    field ``tokens.lengths`` then has the length of each row. Default: none."""
    autotune: bool
    """Adjust ``num_workers`` and ``prefetch`` during the run if they are None. Default True."""
    device_budget: int | None
    """GPU memory in bytes. Default None: what the settings can use, at most half of the free memory."""
    decode_cut: bool
    """Pass the JPEG engines of a GPU files that end with the last row of the crop. Default True."""
    streams: int | None
    """Number of CUDA streams that decode in addition to the JPEG engines. Default None: no streams."""
    gpu_split: Literal["adaptive", "fixed"]
    """How the decoders of a GPU share images. ``"adaptive"`` (default): the next idle decoder takes the next image.
    ``"fixed"``: by file header and record, so each run yields the same bytes."""
    jpeg_exact: bool
    """Make 8-bit RGB of JPEGs on the CPU before they are resized, as torchvision and Pillow do. Pixels are then theirs to
    within a level, for 6 % more processor time. Default False: 0.8 % of the values differ by more than a level."""
    numa: bool
    """Keep the threads of a GPU on the processors near it. Default True."""
    max_image_bytes: int | None
    """Largest decoded image in bytes; a larger one is a bad sample. Default None: what the budget allows, at most 320 MiB."""
    max_record_bytes: int | None
    """Largest stored (encoded) record in bytes; a larger one is a bad sample. Default None: the engine chooses."""
    decode_index_bytes: int | None
    """Memory in bytes for the index of row positions in JPEG files; 0: no index. Default None: an eighth of the machine's
    memory, shared by its ranks, at most 1 GiB."""
    io_concurrency: int | None
    """Most requests in flight to a store, or most concurrent calls of a Python dataset (one thread each). Default None: as
    many requests as the store sustains, or 1 call."""
    verify: Literal["auto", "checksums", "never"]
    """Which checksums of a store are compared with the bytes read. ``"auto"`` (default): CRCs; over plain ``http`` as
    ``"checksums"``: all that the store sends, MD5s included. ``"never"``: none."""
    decoded_cache: str | None
    """Where decoded pixels are kept for later epochs: ``"ram:8GB"``, ``"/mnt/nvme/decoded:100GB"``. Default None: nowhere."""
    max_unreadable: int | None
    """Number of unreadable samples that a run tolerates; one more ends it. Default None: 16 or 1 % of the samples so far,
    whichever is more."""
    accounting: bool
    """Measure where the time goes, for ``report()``. Default True."""


class Options(TypedDict, total=False):
    """Further keyword arguments of ``open``; ``help(infeed.open)`` describes them. None is the same as omitting one."""

    labels_only: bool | None
    label_column: str | None
    image_root: str | os.PathLike[str] | None
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
    """Checks a number that is an index or a seed. Takes numpy's integers too."""
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
    # numpy's bools are not `bool`.
    if isinstance(value, (bool, int)) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError(f"{name}={value!r}: must be True or False")


def _path(name: str, value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        # A PathLike may return bytes, which the engine does not take.
        path: object = os.fspath(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if isinstance(path, str):
            return path
    raise TypeError(f"{name}={value!r}: must be a path")


def _names(name: str, value: Any) -> list[Any]:
    """Refuses a string, which would be read as a list of its letters."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}={value!r}: must be a list of names")
    return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _dtype(dtype: Any) -> str:
    """The type's name in torch and numpy."""
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
    """The settings as JSON. Numbers and arrays of numpy and torch become Python's."""

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
                words = f"{name}={value!r}: must consist of numbers, str, lists and dicts"
                raise TypeError(words) from None
            except ValueError:
                raise ConfigError(f"{name}={value!r}: numbers must be finite") from None
        raise


def check_settings(where: str, more: Iterable[str], known_arguments: Iterable[str]) -> None:
    """Raises TypeError if a name in ``more`` is not a setting. The message suggests the nearest known name.

    ``where`` is the name of the called function, ``known_arguments`` are the function's own arguments.
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
        return f"it is an argument of infeed.open(): use {where}(infeed.open(…, {name}=…))"
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
    """Opens a dataset: a folder, a file, a prefix in a store, or a Python object with ``__len__`` and ``__getitem__``.

        train = infeed.open("s3://bucket/train")
        val = infeed.open("val/", classes=train.classes)
        loader = infeed.Loader(train, batch_size=256)

    Recognises the format by file names. Reads only names, indices and headers, and starts no reading of records.

    - ``url``: a path, ``s3://…``, ``gs://…``, ``az://…``, ``https://…``, ``hf://datasets/OWNER/NAME`` (the Hugging Face
      Hub), ``synthetic://?count=1000`` (generated images), or a Python object, see below.
    - ``format`` (str): name of the format, if it is not recognised: ``folder``, ``cifar10``, ``tar``, ``mds``,
      ``tfrecord``, ``parquet``, ``zarr``, ``hdf5``, ``coco``, …
    - ``split`` (str): one part of a dataset that has several, such as ``"train"``.
    - ``labels`` (path or URL): a table of files and labels, inside or outside the dataset: CSV, TSV, text separated by
      blanks, JSON or JSON lines.
    - ``classes`` (list of str): class names in the order of their indices, for example ``classes`` of the training set.
      Default: as the dataset names them.
    - ``columns`` (list of str): the fields to read from shards and tables. Default: all.

    All of these default to None. Further options, as keyword arguments:

    - ``labels_only`` (bool, default False): take only images that the table of labels lists. Otherwise an image without a
      label is an error.
    - ``label_column`` (str): the column of the labels, if the table has several columns.
    - ``image_root`` (path or URL): where the images are that the records of JSON lines or Parquet name. Default: the folder
      of the table.
    - ``annotations`` (path or URL): a COCO file.
    - ``masks``: True also reads the outlines of COCO and YOLO; a str is the pattern of mask files,
      ``"masks/{stem}_mask.png"``, or one of images and one of masks, ``"{stem}_photo.jpg => {stem}_mask.png"``.
    - ``channels`` (str): the pattern of image files that each hold one channel, ``"{name}_{channel}.tif"``.
    - ``pattern`` (str): the pattern of volume files, ``"{patient}_{field}.nrrd"``.
    - ``samples_per_patient`` (int, default 1): records per patient, each with its own draws.
    - ``fields`` (dict): the kinds of fields whose names do not show it: ``{"gt": "mask"}``. Kinds: ``mask``, ``mask16``,
      ``image``, ``label``, ``list`` (numbers whose count differs between records), ``text``, ``bytes``, ``files`` (texts of
      JSON lines and Parquet that name image files, which are read). ``{"json.boxes": "list"}`` adds the value ``boxes`` in
      the texts of JSON of a field ``json`` (also ``array``, as many numbers in each record). Images called ``mask``,
      ``label``, ``seg_map``, ``tumor_mask`` or ``annotation`` are masks anyway. For volumes: a dict from names to lists of
      files.
    - ``filters`` (list of str): take only records that pass all filters: ``["label=cat,dog", "width>=256"]``.
    - ``records`` (path or URL): take only the records in this file: one record number or object name per line.
    - ``listing`` (path or URL): a file that all ranks can reach. Rank 0 lists the dataset and writes the file; the other
      ranks read it.
    - ``rank`` (int): this process's rank for ``listing``. Default: from ``torch.distributed`` or the launcher.
    - ``manifests`` (path): a folder that keeps for later runs what opening finds out, listings of local folders too.
    - ``patience`` (float, default 60): seconds to wait for a store that does not respond.
    - ``allow_incomplete`` (bool, default False): read shards of ``infeed prepare`` although some of them are missing.

    **Python objects.** ``url`` may be any object with ``__len__`` and ``__getitem__``: a torch or Hugging Face
    ``Dataset``, a list. Of the options they take only ``fields``, and ``columns`` if they are tables.

    - torchvision's ``ImageFolder`` and Hugging Face columns of images, texts and numbers are read without Python.
    - From other objects the engine takes one item at a time, ahead of the decode threads.
      ``Loader(io_concurrency=4)`` calls ``__getitem__`` in 4 threads at once, which helps if it waits for disks or
      networks. It must then not share an open file or a buffer between calls, except under a lock.
    - Numbers of any count in each record need ``fields={"tokens": "list"}``, unless a Hugging Face column holds them. A list
      of encoded or Pillow images is a field of several images, a list of texts one of several texts; of arrays, or if the
      first record has none, with ``fields={"frames": "images", "captions": "texts"}``.
    - An item is a tuple, a dict or a single value. Values may be encoded images (``bytes``), Pillow images, arrays and
      tensors (uint8 and uint16 ``[H, W]``, ``[H, W, C]``, ``[C, H, W]`` are images), integers (labels) and texts. ``fields``
      names other kinds: ``{"depth": "mask16", "meta": "bytes", "x": "array"}`` (``image``, ``images``, ``mask``,
      ``mask16``, ``label``, ``array``, ``list``, ``text``, ``texts``, ``bytes``).
    - Encoded images become RGB. Pillow images keep their channels (L, 1: one; LA: two; RGBA: four; I;16: one of 16 bits); other
      modes become RGB. Next to an image in colours, palettes and bits are masks. All records must have the mode of the first,
      unless that is RGB.
    - Integers and bools in Hugging Face columns become labels (int64); other numbers keep the type of their column. A
      dataset with ``with_transform`` yields what its transform returns.
    - A transform inside such a dataset runs in Python. Give it to the loader instead.
    - A state belongs to a dataset's class, length and field names. The attribute ``fingerprint`` (str or int), if there is
      one, replaces the class: set it to tell datasets of one class apart.

    Raises ``NotFoundError``, ``DeniedError``, ``IoError``, ``CorruptError`` or ``UnsupportedError``; ``TypeError`` for
    an unknown option or a value of the wrong type; ``ConfigError`` for an invalid value. Ctrl-C ends the wait.
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
            raise TypeError(f"open(): {', '.join(sorted(more))}: only for files, not for a Python object; omit it")
        fields = options.get("fields")
        if fields is not None and not isinstance(fields, Mapping):
            raise TypeError(f"fields={fields!r}: must be a dict from names to kinds")
        kinds = None if fields is None else {name: kind for name, kind in fields.items() if isinstance(kind, str)}
        if fields is not None and kinds != fields:
            raise TypeError(
                f"fields={fields!r}: for a Python object each must be image, mask, mask16, label, array, list, text or bytes"
            )
        return wrap(url, kinds, columns)[0]
    if "listing" in given:
        given.setdefault("rank", _shard(None, None)["rank"])
    return _native.open(_path("url", url), _json(given))


def _of_hugging_face(dataset: _native.Dataset) -> bool:
    """Whether it is a Hugging Face ``datasets`` object. That library applies EXIF orientation when it decodes images."""
    name = dataset.name.rpartition(" records of ")[2]
    return dataset.format in ("memory", "python") and (name == "huggingface" or name.startswith("datasets."))


def _nothing(_epoch: int) -> None:
    """The ``next`` of an epoch without batches."""


class Batches(Iterator["_native.Batch"], AsyncIterator["_native.Batch"]):
    """Iterator over the batches of one epoch, for ``for`` and ``async for``. Made by ``iter(loader)``.

    Reading ends when the loop is left early, at the end of a ``with`` block, or by ``close``, which any thread may call.
    Tasks of one event loop may share the iterator: each batch goes to one of them.
    """

    __slots__ = ("_asking", "_epoch", "_loader", "_next", "_stream", "_then", "_waiting", "__weakref__")

    def __init__(self, loader: Loader, stream: _native.Stream | None, epoch: int, then: _Then | None) -> None:
        self._loader = loader
        self._then = then
        self._stream = stream
        self._next = _nothing if stream is None else stream.next
        self._epoch = epoch
        # Waiting tasks, in the order of arrival.
        self._waiting: list[asyncio.Future[None]] = []
        # The event loop of each task that has found no batch, also between two waits.
        self._asking: list[asyncio.AbstractEventLoop] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _native.Batch:
        """The next batch. Releases the GIL while it waits. Ctrl-C ends the wait and loses no batch."""
        if self._asking:
            raise RuntimeError("asyncio tasks wait in this iterator: give each thread a loader of its own")
        batch = self._next(self._epoch)
        if batch is None:
            self._end()
            raise StopIteration
        return batch if self._then is None else self._then(batch)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _native.Batch:
        """The next batch; other tasks run meanwhile. Cancelling the wait loses no batch."""
        if self._asking:
            self._check_loop()
        asks = False
        try:
            while True:
                stream = self._stream
                if stream is None:
                    raise StopAsyncIteration
                try:
                    ready, batch = stream.poll(self._epoch)
                except BaseException:
                    self._wake(stream)
                    raise
                if ready:
                    break
                if not asks:
                    asks = True
                    self._ask()
                await self._rung(stream)
        finally:
            if asks:
                # All are the same loop.
                self._asking.pop()
        # Other tasks may wait for the same wake-up.
        self._wake(stream)
        if batch is None:
            self._end()
            raise StopAsyncIteration
        return batch if self._then is None else self._then(batch)

    def _check_loop(self) -> None:
        import asyncio

        if self._asking[0] is not asyncio.get_running_loop():
            raise RuntimeError("another event loop waits in this iterator: give each event loop a loader of its own")

    def _ask(self) -> None:
        import asyncio

        self._asking.append(asyncio.get_running_loop())

    async def _rung(self, stream: _native.Stream) -> None:
        """Waits until the stream may have a batch."""
        import asyncio

        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.add_reader(stream.fileno(), self._wake, stream)
        rung = loop.create_future()
        self._waiting.append(rung)
        try:
            await rung
        finally:
            # Still listed: the task was cancelled.
            if rung in self._waiting:
                self._waiting.remove(rung)
                if not self._waiting:
                    loop.remove_reader(stream.fileno())

    def _wake(self, stream: _native.Stream) -> None:
        """Wakes all waiting tasks. Each polls again, since another task may have taken the batch."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            # Remove the reader now: the next epoch may wait for the same stream before these tasks run.
            waiting[0].get_loop().remove_reader(stream.fileno())
        for rung in waiting:
            if not rung.done():
                rung.set_result(None)

    def _end(self) -> None:
        """Returns the stream to the loader, which has already read ahead for the next epoch."""
        stream, self._stream = self._stream, None
        if stream is not None and not stream.closed:
            self._loader._park(self._epoch + 1, stream)

    def close(self) -> None:
        """Ends reading and this iterator. The loader can still be used."""
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
            "an iterator over batches cannot be copied or pickled: copy the loader, whose copy goes on at the same place, or "
            "save its state_dict()"
        )


class Loader:
    """Iterates over the batches of a dataset, one epoch per ``for`` loop.

        loader = infeed.Loader("s3://bucket/train", batch_size=256, shuffle=True, transform="imagenet-train")
        for epoch in range(90):
            for batch in loader:
                loss = step(batch["image"].torch(), batch["label"].torch())

    Each ``iter(loader)`` starts the next epoch. Which record is in which row of which batch depends only on dataset, order,
    seed, epoch, rank, world size and batch size. Threads and read-ahead change nothing.

    **Data**

    - ``dataset``: a path, a URL, a dataset from ``infeed.open``, or any object with ``__len__`` and ``__getitem__``.
    - ``batch_size`` (int, default 1): rows of a batch, on each rank.
    - ``transform`` (default None: decoded pixels unchanged): the steps from a decoded image to its row. One of

      - the name of a preset: ``"imagenet-train"``, ``"imagenet-val"``, ``"cifar-train"``, ``"torchvision-v2-train"``,
        ``"simclr"``, ``"dino"``, …
      - steps in one line: ``"random_resized_crop:224;horizontal_flip;normalize"``
      - a step of ``infeed.transforms``, or a list of them
      - a list of dicts: ``[{"op": "random_resized_crop", "size": [224, 224]}, …]``
      - torchvision's own ``Compose``

    - ``map`` (function, default None): called for each sample by the engine's threads, as ``map(sample)``. ``sample`` is a
      dict of numpy arrays, copies of the sample's rows; labels are arrays without axes. Change the arrays in place, or
      return a dict of arrays of the same types and shapes. A function with two parameters, ``map(sample, seed)``, also gets
      an int for its random draws: the same whenever seed, epoch and record are the same. An exception makes the sample a
      bad one.
    - ``batch_transform`` (function, default None): called with each batch in the thread of the loop. The loop gets what it
      returns.
    - ``orientation`` (default None): ``"apply"`` turns and mirrors images as their files say (EXIF of JPEG, WebP and PNG, the
      Orientation tag of TIFF); ``"ignore"`` leaves pixels as stored. None: ``"apply"`` for Hugging Face's objects,
      Parquet and folders with metadata and for YOLO, as their libraries do, ``"ignore"`` for everything else.
    - ``dtype`` (default ``"float32"``): type of images: ``"float32"``, ``"float16"``, ``"bfloat16"``, ``"uint8"``, and for
      volumes ``"int16"``. A name, or a type of numpy or torch.
    - ``channels_last`` (bool, default False): axes of images. False: ``[N, C, H, W]``; True: ``[N, H, W, C]``.
    - ``device`` (default ``"cpu"``): where batches are made: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, … ``"cuda"`` is torch's
      current device if torch has already started to use GPUs, otherwise the GPU of this process's local rank
      (``LOCAL_RANK``, …). None: the GPU of this rank if there is one, otherwise the CPU.
    - ``decode`` (default ``"auto"``): what decodes JPEGs if batches are made on a GPU. ``"auto"``: CPU threads, and the
      GPU's JPEG engines and streams while the loop waits. ``"gpu"``: the engines first, which takes a fifth of the CPU
      time; raises ``DeviceError`` if there are none. ``"cpu"``: only CPU threads. ``report()["decoded_by"]`` counts the
      images of each.

    **Order**

    - ``shuffle`` (bool or int, default False): a new random order in each epoch. An int is its seed; True uses ``seed``, or
      0 if that is None.
    - ``order`` (default None): replaces ``shuffle``. ``"sequential"``, ``"random"``, ``"blocks"`` (random, but neighbouring
      records stay close: for shards and tables), or a dict of the engine: ``{"repeated": {"seed": 1, "times": 3}}``.
    - ``sampler`` (iterable of int, default None): this rank's record indices, as torch's samplers yield them; they are not
      divided among ranks again. Iterated at each ``iter``, after its ``set_epoch`` if it has one, so the next epoch is not
      read ahead. To resume within an epoch it must yield the same indices again.
    - ``batch_sampler`` (iterable of lists of int, default None): the record indices of each batch, of any lengths up to
      ``batch_size`` (if that is 1, up to the sampler's own ``batch_size``).
    - ``max_tokens`` (int) and ``lengths`` (default None): batches of records of similar length, in random order: the number
      of rows times the longest is at most ``max_tokens``, and there are at most ``batch_size`` rows. ``lengths`` has the
      length of each record, or it names a list or text, which is then read once.
    - ``seed`` (int, default None): seed of augmentation, and of a random order that has no seed. None: the order's seed,
      or 0.
    - ``drop_last`` (bool, default False): omit the records that do not fill a batch on every rank. If False, the last batch
      of a single process is shorter; with several ranks it is padded, and ``batch.valid`` counts the rows that are samples.
    - ``rank``, ``world_size`` (int, default None): this process and the number of processes. None: from an initialised
      ``torch.distributed``, or from the launcher's variables (torchrun, Slurm, MPI, SageMaker, …), otherwise 0 of 1.

    **Resources**

    - ``num_workers`` (int, default None): decode threads. None: about one per core at first, then adjusted during the run.
    - ``prefetch`` (int, default None): batches that are finished or in progress ahead of the loop. None: 3 to 16 at first,
      then adjusted during the run (not on a GPU).
    - ``memory_budget`` (int, bytes, default None): host memory. None: what the settings can use, at most a quarter of the
      machine's memory.
    - ``pin_memory`` (bool, default False): put batches into page-locked memory, so that a copy to a GPU
      (``.torch().to("cuda", non_blocking=True)``) runs while the trainer computes. Without a GPU: a warning, and ordinary
      memory.
    - ``cache`` (str, default None): a local copy of what is read from a store: ``"/mnt/nvme/cache:100GB"``, ``"ram:8GB"``.
    - ``decoded_cache`` (str, default None): keeps decoded pixels, so that later epochs neither read nor decode:
      ``"ram:8GB"``, or a folder for all processes and runs of a machine, ``"/mnt/nvme/decoded:100GB"``. ``infeed doctor``
      estimates the gain and the size.
    - ``decode_index`` (path, default None): a file with the positions of rows in JPEG files, so that only the rows of a crop
      are decoded, from the first epoch on. ``infeed inspect DATASET --decode-index FILE`` makes it. Processes of a machine
      share it. ``save_decode_index`` and ``close`` add the positions that this loader found. None: each run finds them anew.

    **Bad samples**

    - ``on_bad_sample`` (default ``"raise"``): what happens to a sample that cannot be read or decoded.

      - ``"raise"``: the epoch ends with the error.
      - ``"substitute"``: the nearest good row of the batch takes its place.
      - ``{"skip": {"at_most": 100}}``: it is omitted, and the batch is shorter. More than 100 of them end the run.
      - ``{"skip-padded": {"at_most": 100}}``: as ``"skip"``, but rows of zeros at the end keep the batch's size, and
        ``batch.valid`` counts the rows before them.

    **More** keyword arguments are the engine's own settings, listed in ``infeed.loader.Settings``: ``views``, ``mix``,
    ``device_budget``, ``decode_cut``, ``io_concurrency``, ``verify``, ``max_image_bytes``, … ``loader.config`` shows the
    values in use.

    A loader can be pickled: the copy has the same arguments and the same place in the data, and starts at its first use.
    After a fork a loader raises ``RuntimeError``: make it in the process that uses it.

    Raises ``ConfigError`` (a ``ValueError``) for an invalid value, ``TypeError`` for a value of the wrong type or an unknown
    argument, and the errors of ``infeed.open``.
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
        max_tokens: int | None = None,
        lengths: str | Iterable[int] | None = None,
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
        orientation: Literal["apply", "ignore", "auto"] | None = None,
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
            orientation = "apply" if _of_hugging_face(dataset) else "auto"
        picked = _picked(sampler, batch_sampler, batch_size)
        if picked is not None:
            if shuffle is not False or order is not None:
                raise ConfigError("a sampler sets the order: omit shuffle and order")
            if rank is not None or world_size is not None:
                raise ConfigError("a sampler yields the records of its own rank: omit rank and world_size")
            rank, world_size, batch_size = 0, 1, picked.batch_size
            if picked.lists and drop_last:
                raise ConfigError("batch_sampler sets the batches: omit drop_last")
        if (max_tokens is None) != (lengths is None):
            raise ConfigError("max_tokens and lengths belong together: give both")
        if max_tokens is not None and (picked is not None or order is not None):
            raise ConfigError("max_tokens sets the batches: omit sampler, batch_sampler and order")
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
            raise ConfigError('map: numpy has no bfloat16: use dtype="float32", or batch_transform instead of map')
        if batch_transform is not None and not callable(batch_transform):
            raise TypeError(f"batch_transform={batch_transform!r}: must be a function of a batch")
        index_file = None if decode_index is None else _path("decode_index", decode_index)
        self._args = (dataset, config, line, drop_last, rank, world_size, index_file)
        self._picked = picked
        self._lengths: tuple[Any, int, int] | None = None
        if max_tokens is not None and lengths is not None:
            field = lengths if isinstance(lengths, str) else _numbers("lengths", lengths)
            order_seed = config["order"]["random"]["seed"] if isinstance(config["order"], dict) else seed or 0
            self._lengths = (field, _whole("max_tokens", max_tokens), order_seed)
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
        # The place of the stream that was used last.
        self._place: _native.Place | None = None
        # The state of an unpickled loader, until its engine is made.
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

            # Each time, since `sys.path` may have changed: it costs about a dozen file system lookups.
            _native.look_for_nvjpeg(nvjpeg_folders())
        try:
            return _native.Loader(dataset, text, line, self._map, index, self._lengths)
        except DeviceError as error:
            if "pin_memory" not in config or config["device"] != "cpu":
                raise
            import warnings

            # As torch does: the same script runs on machines without a GPU.
            warnings.warn(f"pin_memory: {error}; batches are made in ordinary memory", RuntimeWarning, stacklevel=4)
            unpinned = _json({**config, "pin_memory": False})
            return _native.Loader(dataset, unpinned, line, self._map, index, self._lengths)

    def _ordered(self, epoch: int) -> _native.Loader:
        """The engine's loader, in the order of an epoch."""
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
        """The batches of the next epoch; after ``load_state_dict``, the rest of the state's epoch."""
        self._engine()
        self._check_rank()
        epoch, stream = self._epoch, self._parked
        if stream is None:
            try:
                stream = self._ordered(epoch).stream_of(epoch, self._picked is not None)
            except EmptyError:
                # A sampler may yield no records for an epoch, or less than a batch.
                self._epoch, self._place = epoch + 1, None
                return Batches(self, None, epoch, self._then)
        self._epoch, self._parked, self._place = epoch + 1, None, stream.place
        return Batches(self, stream, epoch, self._then)

    def _check_rank(self) -> None:
        """Refuses a loader made before ``torch.distributed`` was initialised: each process would read all records."""
        now = _distributed()
        if now is None or self._args[4] is not None or self._picked is not None:
            return
        made = (self._shard["rank"], self._shard["world"])
        if now != made:
            raise ConfigError(
                f"this loader was made as rank {made[0]} of {made[1]}, and torch.distributed says rank {now[0]} of "
                f"{now[1]}: make it after init_process_group (with Lightning, in train_dataloader), or give rank and world_size"
            )

    def __aiter__(self) -> Batches:
        """As ``iter(loader)``, for ``async for``."""
        return self.__iter__()

    def __len__(self) -> int:
        """Number of batches in a whole epoch, the same on every rank, also after a resume.

        With a sampler, computed from the sampler's length; ``TypeError`` if it has none.
        """
        native = self._engine()
        if self._picked is None:
            return len(native)
        records, drop_last = len(self._picked), self._args[3]
        if self._picked.lists:
            return records
        return records // self._picked.batch_size if drop_last else -(-records // self._picked.batch_size)

    def set_epoch(self, epoch: SupportsIndex, /) -> None:
        """Sets the epoch of the next ``iter`` (counted from 0), which is otherwise one more than the last.

        If that is the epoch of a state that was just loaded, the place within the epoch is kept.
        """
        number = _whole("epoch", epoch)
        self._engine()
        if number != self._epoch:
            self._drop_parked()
            self._epoch, self._place = number, None

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that the loop got, regardless of read-ahead. Less than 1 kB, JSON-compatible.

        The state belongs to dataset, order and seed. Batch size, threads, rank and world size may differ when it is loaded.
        It is the same on every rank, so one rank can save it for all.
        """
        state: dict[str, Any] = json.loads(self._state_json())
        return state

    def _state_json(self) -> str:
        native = self._engine()
        return self._place.state() if self._place is not None else native.state_before(self._epoch)

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Resumes at ``state``: the next ``iter`` yields the rest of its epoch.

        Raises ``StateError`` if the state is from another dataset, order, seed or version; the message names the difference.
        """
        self._resume(self._engine(), json.dumps(dict(state)))

    def report(self) -> Report:
        """Statistics since the start of the current stream: rates, waits, stages, memory, bad samples. Times in seconds.

        A dict with the keys of ``infeed run --json``; notebooks show it as a page. Empty before the first ``iter``.
        """
        native = self._engine()
        if self._place is None:
            return Report()
        place, dataset = self._place, self._args[0]
        return Report(json.loads(place.report()), lambda: place.page(dataset, dataset.name, native.config()))

    @property
    def dataset(self) -> _native.Dataset:
        """The opened dataset."""
        return self._args[0]

    @property
    def batch_size(self) -> int:
        """Rows of a batch on each rank; with a batch sampler, the most rows that a batch may have."""
        size: int = self._args[1]["batch_size"]
        return size

    @property
    def config(self) -> dict[str, Any]:
        """The settings in use, under the engine's names, including those that the engine chose."""
        config: dict[str, Any] = json.loads(self._engine().config())
        return config

    def save_decode_index(self) -> None:
        """Adds the row positions that this loader found in JPEGs to the file ``decode_index``. Without a file: no effect.

        Several processes may save to the same file; each keeps what the others added. Raises ``CorruptError`` if the file is
        not (or no longer) a decode index, ``OSError`` if it cannot be written.
        """
        if self._native is not None:
            self._native.save_index()

    def close(self) -> None:
        """Ends reading and all threads; calls ``save_decode_index`` if there is a file. Tensors that you hold stay valid."""
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
        return {"args": self._args, "more": (self._picked, self._lengths, self._map, self._then), "state": state}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self._args = saved["args"]
        self._picked, self._lengths, self._map, self._then = saved["more"]
        self._reset()
        self._state = saved["state"]

    def __repr__(self) -> str:
        dataset, config = self._args[0], self._args[1]
        return f"<infeed.Loader of {dataset!r}: batches of {config['batch_size']}, next epoch {self._epoch}>"


def _steps(transform: Like) -> str | list[dict[str, Any]] | None:
    if transform is None or isinstance(transform, str):
        return transform
    # Importing its classes takes as long as importing the rest of the package.
    from .transforms import steps

    return steps(transform)


class Report(dict[str, "Any"]):
    """Statistics of a loader, a dict. See ``Loader.report``."""

    def __init__(self, figures: Mapping[str, Any] | None = None, page: Callable[[], str] | None = None) -> None:
        super().__init__(figures or {})
        self._page = page

    @property
    def page(self) -> str:
        """An HTML page with charts, which notebooks show. It covers the time up to this call."""
        return "" if self._page is None else self._page()

    def __reduce__(self) -> tuple[type[Report], tuple[dict[str, Any]]]:
        return Report, (dict(self),)

    def _repr_html_(self) -> str:
        import html

        return f'<iframe style="width:100%;height:40em;border:0" srcdoc="{html.escape(self.page)}"></iframe>'


class _Picked:
    """A sampler or batch sampler, whose records become the engine's order in each epoch."""

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
        raise TypeError(f"{name}: {error}: it must yield indices of records") from None


def _picked(sampler: Any, batch_sampler: Any, batch_size: int) -> _Picked | None:
    if sampler is None and batch_sampler is None:
        return None
    if sampler is not None and batch_sampler is not None:
        raise ConfigError("sampler and batch_sampler both set the order: give one of them")
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

    # The function gets numpy arrays: a missing numpy should raise here, not in a thread.
    import_module("numpy")

    if not callable(function):
        raise TypeError(f"map={function!r}: must be a function of a sample")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # A builtin without a signature.
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
            raise ConfigError("shuffle and order both set the order: give one of them")
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
        raise ConfigError(f'on_bad_sample={policy!r}: give a limit: {{"{policy}": {{"at_most": 100}}}}')
    if isinstance(policy, str) and policy in _BAD:
        return _BAD[policy]
    kind = ConfigError if isinstance(policy, (str, Mapping)) else TypeError
    skips = ", ".join(f'{{"{skip}": {{"at_most": 100}}}}' for skip in _SKIPS)
    raise kind(f"on_bad_sample={policy!r}: must be one of {', '.join(map(repr, _BAD))}, {skips}")


def _distributed() -> tuple[int, int] | None:
    """Rank and world size from ``torch.distributed``; None if it is not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _current_gpu(shard: Mapping[str, int]) -> int:
    """The GPU that ``cuda`` means in this process: torch's current one, or that of the local rank."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    # Only if torch has initialised CUDA: `current_device` would otherwise start GPU 0, whatever the script chooses later.
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
        # Incomplete launcher variables do not matter if torch has the rank.
        if it is None:
            raise
        return {"rank": it[0], "world": it[1]}
    # Only the launcher has local ranks. If its rank differs from torch's, the processes were started in another way.
    if it is not None and it != (here, world):
        return {"rank": it[0], "world": it[1]}
    return {"rank": here, "world": world, "local_rank": local_rank, "local_world": local_world}
