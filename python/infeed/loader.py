"""Loaders, and the loops over them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from . import _native
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Literal, Self, SupportsIndex

    _Dtype = Literal["float32", "float16", "bfloat16", "uint8", "int16"]
    _Url = str | os.PathLike[str]

# Names of types in torch and numpy, and the engine's.
_DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "uint8": "u8",
    "int16": "i16",
}
_BAD = {"raise": "stop", "substitute": "substitute"}
# Keys of the engine's config that have another name or form here.
_RENAMED = {
    "workers": "num_workers",
    "layout": "channels_last",
    "shard": "rank and world_size",
    "last_batch": "drop_last",
}


def open(  # noqa: A001 (the module's name stands before it)
    url: _Url,
    *,
    format: str | None = None,  # noqa: A002
    split: str | None = None,
    labels: str | None = None,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> _native.Dataset:
    """Opens a dataset: a folder, a file or a store's prefix, in any format that infeed reads.

    ``url`` is a path or ``s3://…``, ``gs://…``, ``az://…``, ``https://…``, or ``synthetic://?count=1000`` for made-up
    images. Nothing is started, and what is read are names, indices and headers.

    - ``format``: its name where it is not recognised: ``folder``, ``cifar10``, ``tar``, ``mds``, ``tfrecord``,
      ``parquet``, ``coco``, …
    - ``split``: the part of a dataset that has several: ``train``.
    - ``labels``: a file of labels, inside the dataset or beside it.
    - ``classes``: names of classes in the order of their indices, as another dataset's ``classes``.
    - ``columns``: the columns of tables that are needed.
    - ``options``: ``annotations`` (a COCO file), ``masks`` (bool), ``channels``, ``pattern``, ``samples_per_patient``,
      ``fields`` (a dict from names to lists of files), ``manifests`` (a folder), ``patience`` (seconds a store may take).

    Raises ``NotFoundError``, ``DeniedError``, ``IoError``, ``CorruptError``, ``UnsupportedError``; ``TypeError`` for an
    option that nobody knows. Ctrl-C ends the wait.
    """
    given = {
        "format": format,
        "split": split,
        "labels": labels,
        "classes": None if classes is None else list(classes),
        "columns": None if columns is None else list(columns),
        **options,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return _native.open(os.fspath(url), json.dumps(given, default=os.fspath))


class Batches(Iterator["_native.Batch"], AsyncIterator["_native.Batch"]):
    """The batches of one epoch, for ``for`` and for ``async for``. Made by ``iter(loader)``.

    Leaving the loop early ends reading; so does ``close``, which may be called from another thread, and ``with``.
    """

    __slots__ = ("_epoch", "_loader", "_next", "_stream", "__weakref__")

    def __init__(self, loader: Loader, stream: _native.Stream, epoch: int) -> None:
        self._loader = loader
        self._stream: _native.Stream | None = stream
        self._next = stream.next
        self._epoch = epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _native.Batch:
        """The next batch. Waits without the GIL until there is one; Ctrl-C ends the wait and loses nothing."""
        batch = self._next(self._epoch)
        if batch is None:
            self._end()
            raise StopIteration
        return batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _native.Batch:
        """The next batch, while other tasks run. Cancelling it loses nothing."""
        stream = self._stream
        if stream is None:
            raise StopAsyncIteration
        ready, batch = stream.poll(self._epoch)
        if not ready:
            import asyncio

            loop, descriptor = asyncio.get_running_loop(), stream.fileno()
            while not ready:
                rung: asyncio.Future[None] = loop.create_future()

                def ring(rung: asyncio.Future[None] = rung) -> None:
                    if not rung.done():
                        rung.set_result(None)

                loop.add_reader(descriptor, ring)
                try:
                    await rung
                finally:
                    loop.remove_reader(descriptor)
                ready, batch = stream.poll(self._epoch)
        if batch is None:
            self._end()
            raise StopAsyncIteration
        return batch

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


class Loader:
    """Batches of a dataset, epoch after epoch.

        loader = infeed.Loader("s3://bucket/train", batch_size=256, shuffle=True, transform="imagenet-train")
        for epoch in range(90):
            for batch in loader:
                loss = step(batch["image"].torch(), batch["label"].torch())

    Each ``iter`` is the next epoch. Which record is in which row of which batch is a function of dataset, order, seed,
    epoch, rank, world size and batch size alone; threads and read-ahead change nothing.

    **Data**

    - ``dataset``: a path, a URL, or what ``infeed.open`` gave.
    - ``transform``: from decoded image to row. The name of a preset (``imagenet-train``, ``imagenet-val``,
      ``cifar10-train``, ``torchvision-v2-train``, ``simclr``, ``dino``, …), steps in a line
      (``"random_resized_crop:224;horizontal_flip;normalize"``), or a list of dicts
      (``[{"op": "random_resized_crop", "size": 224}, …]``). None: pixels as they are.
    - ``dtype``, ``channels_last``: type and axes of images: ``[N, C, H, W]``, or ``[N, H, W, C]``.
    - ``device``: ``cpu``, ``cuda``, ``cuda:1``, …; None takes a GPU where there is one.

    **Order**

    - ``batch_size``: rows of a batch, on each rank.
    - ``shuffle``: another order in each epoch; a number is its seed. True takes ``seed``, or 0.
    - ``order``: ``"sequential"``, ``"random"``, ``"blocks"`` (shuffled so that near records stay near, for shards and
      tables), or a dict of the engine's: ``{"repeated": {"seed": 1, "times": 3}}``. In place of ``shuffle``.
    - ``seed``: of the order where it has none, and of augmentation.
    - ``drop_last``: leaves out what does not fill a batch on every rank. Otherwise the last batch is shorter in one
      process; in several it is filled up, and ``batch.valid`` says how many rows are samples.
    - ``rank``, ``world_size``: this process among all. None: as an initialised ``torch.distributed`` says, or the
      launcher's variables (torchrun, Slurm, MPI, SageMaker, …).

    **Resources**, all chosen and followed during the run where they are None

    - ``num_workers``: decoding threads.
    - ``prefetch``: batches that are ready or in work ahead of the loop.
    - ``memory_budget``: bytes of host memory.
    - ``cache``: keeps what was read from a store near: ``"/mnt/nvme/cache:100GB"``, ``"ram:8GB"``.

    **Bad samples**: ``on_bad_sample="raise"`` ends the epoch with an error; ``"substitute"`` puts the nearest good row of
    the batch in its place; ``{"skip": {"at_most": 100}}`` leaves them out, and ends above so many.

    **More** keyword arguments are the engine's own settings, under its names: ``views``, ``mix``, ``device_budget``,
    ``io_concurrency``, ``verify``, ``max_image_bytes``, … ``loader.config`` shows all that are in force.

    A loader may be pickled: the copy has the arguments and the place, and starts where it is first used. After a fork it
    raises ``RuntimeError``: make loaders in the process that uses them.

    Raises ``ConfigError`` (a ``ValueError``) for settings that cannot be, ``TypeError`` for those that nobody knows, and
    what ``infeed.open`` raises.
    """

    def __init__(
        self,
        dataset: _Url | _native.Dataset,
        *,
        batch_size: int = 1,
        transform: str | Sequence[Mapping[str, Any]] | None = None,
        shuffle: bool | int = False,
        order: str | Mapping[str, Any] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        num_workers: int | None = None,
        prefetch: int | None = None,
        memory_budget: int | None = None,
        device: str | None = "cpu",
        dtype: _Dtype = "float32",
        channels_last: bool = False,
        on_bad_sample: Literal["raise", "substitute"] | Mapping[str, Any] = "raise",
        cache: str | None = None,
        **more: Any,
    ) -> None:
        for name in more:
            if name in _RENAMED:
                raise TypeError(f"Loader(): {name} is said by {_RENAMED[name]} here")
        if isinstance(dataset, (str, os.PathLike)):
            dataset = open(dataset)
        if not isinstance(dataset, _native.Dataset):
            kind = type(dataset).__name__
            raise TypeError(f"dataset is a path, a URL or what infeed.open() gives, not {kind}")
        if dtype not in _DTYPES:
            raise ConfigError(f"dtype {dtype!r}: images come as {', '.join(_DTYPES)}")
        config: dict[str, Any] = {
            "batch_size": batch_size,
            "order": _order(shuffle, order, seed),
            "seed": seed,
            "dtype": _DTYPES[dtype],
            "layout": "nhwc" if channels_last else "nchw",
            "device": device,
            "workers": num_workers,
            "prefetch": prefetch,
            "memory_budget": memory_budget,
            "cache": cache,
            "on_bad_sample": _bad(on_bad_sample),
            **more,
        }
        line: str | None = None
        if isinstance(transform, str):
            line = transform
        elif transform is not None:
            config["transform"] = [dict(step) for step in transform]
        self._args = (dataset, config, line, drop_last, rank, world_size)
        self._reset()
        self._engine()

    def _reset(self) -> None:
        self._native: _native.Loader | None = None
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
            dataset, config, line, drop_last, rank, world_size = self._args
            shard = _shard(rank, world_size)
            last = "drop" if drop_last else "partial" if shard["world"] == 1 else "pad"
            config = {**config, "shard": shard, "last_batch": last}
            try:
                text = json.dumps(config)
            except TypeError as error:
                raise TypeError(f"Loader(): {error}: settings are numbers, texts, lists and dicts") from None
            self._native = _native.Loader(dataset, text, line)
            if self._state is not None:
                state, self._state = self._state, None
                self._resume(self._native, state)
        return self._native

    def _park(self, epoch: int, stream: _native.Stream) -> None:
        if epoch == self._epoch and not self._closed:
            self._parked = stream

    def _resume(self, native: _native.Loader, state: str) -> None:
        stream = native.stream_behind(state)
        self._drop_parked()
        self._parked, self._place, self._epoch = stream, stream.place, stream.place.epoch()

    def _drop_parked(self) -> None:
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.close()

    def __iter__(self) -> Batches:
        """The batches of the next epoch, or of what is left of the one that a loaded state stands in."""
        native = self._engine()
        epoch, stream = self._epoch, self._parked
        if stream is None:
            stream = native.stream_of(epoch)
        self._epoch, self._parked, self._place = epoch + 1, None, stream.place
        return Batches(self, stream, epoch)

    def __aiter__(self) -> Batches:
        """As ``iter``, for ``async for``."""
        return self.__iter__()

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank, also after a resume."""
        return len(self._engine())

    def set_epoch(self, epoch: SupportsIndex, /) -> None:
        """The epoch of the next ``iter``, where the count of ``iter`` is not what is meant.

        The epoch of a state that was just loaded keeps its place.
        """
        number = epoch.__index__()
        if number < 0:
            raise ConfigError(f"epoch {number}: epochs are counted from 0")
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

    def report(self) -> dict[str, Any]:
        """What the loader did since its stream began: rates, waits, stages, memory, bad samples; times in seconds.

        The keys are those of ``infeed run --json``. Empty before the first ``iter``.
        """
        self._engine()
        if self._place is None:
            return {}
        report: dict[str, Any] = json.loads(self._place.report())
        return report

    @property
    def dataset(self) -> _native.Dataset:
        """What the batches are made of."""
        return self._args[0]

    @property
    def config(self) -> dict[str, Any]:
        """The settings in force under the engine's names, with those that were chosen."""
        config: dict[str, Any] = json.loads(self._engine().config())
        return config

    def close(self) -> None:
        """Ends reading and threads. Tensors that are still held stay as they are."""
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
        return {"args": self._args, "state": None if self._native is None or untouched else self._state_json()}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self._args = saved["args"]
        self._reset()
        self._state = saved["state"]

    def __repr__(self) -> str:
        dataset, config = self._args[0], self._args[1]
        return f"<infeed.Loader of {dataset!r}: batches of {config['batch_size']}, next epoch {self._epoch}>"


def _order(shuffle: bool | int, order: str | Mapping[str, Any] | None, seed: int | None) -> Any:
    if order is not None:
        if shuffle is not False:
            raise ConfigError("shuffle and order say the same: give one of them")
        if not isinstance(order, str):
            return dict(order)
        named = {
            "sequential": "sequential",
            "random": {"random": {"seed": seed or 0}},
            "blocks": {"blocks": {"seed": seed or 0, "window": 4096}},
        }
        if order not in named:
            raise ConfigError(f"order {order!r}: it is one of {', '.join(named)}, or a dict")
        return named[order]
    if shuffle is False:
        return "sequential"
    return {"random": {"seed": (seed or 0) if shuffle is True else shuffle}}


def _bad(policy: str | Mapping[str, Any]) -> Any:
    if not isinstance(policy, str):
        return dict(policy)
    if policy == "skip":
        raise ConfigError('on_bad_sample="skip": say how many may be: {"skip": {"at_most": 100}}')
    if policy not in _BAD:
        raise ConfigError(f'on_bad_sample {policy!r}: it is {", ".join(_BAD)}, or {{"skip": {{"at_most": 100}}}}')
    return _BAD[policy]


def _shard(rank: int | None, world_size: int | None) -> dict[str, int]:
    if (rank is None) != (world_size is None):
        raise ConfigError("rank and world_size go together: give both, or neither")
    if rank is not None and world_size is not None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"rank {rank} of {world_size}: ranks are counted from 0, below the world size")
        return {"rank": rank, "world": world_size}
    distributed = sys.modules.get("torch.distributed")
    here, world, local_rank, local_world = _native.launcher()
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        it: tuple[int, int] = (distributed.get_rank(), distributed.get_world_size())
        # The launcher knows the places on a machine; of processes that were started otherwise nobody does.
        if it != (here, world):
            return {"rank": it[0], "world": it[1]}
    return {"rank": here, "world": world, "local_rank": local_rank, "local_world": local_world}
