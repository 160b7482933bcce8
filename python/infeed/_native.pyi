import os
from array import array
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, final

import torch as _torch
from numpy.typing import NDArray

__all__ = [
    "Batch", "Dataset", "Loader", "Place", "Stream", "Tensor", "__version__", "columns", "command", "end_calls", "gpu_of_rank",
    "launcher", "look_for_nvjpeg", "objects", "open", "settings", "subset",
]

__version__: str

def open(url: str, options: str) -> Dataset: ...
def objects(
    dataset: Any,
    kinds: dict[str, str],
    classes: list[str] | None,
    identity: str,
    name: str,
    one_size: bool,
    made: tuple[Callable[..., Dataset], tuple[Any, ...]],
) -> Dataset: ...
def columns(
    columns: list[tuple[str, str, Any]],
    identity: str,
    name: str,
    made: tuple[Callable[..., Dataset], tuple[Any, ...]],
) -> Dataset: ...
def subset(
    dataset: Dataset, records: list[int], made: tuple[Callable[..., Dataset], tuple[Any, ...]] | None = None
) -> Dataset: ...
def end_calls() -> None: ...
def command(starter: list[str], args: list[str]) -> int: ...
def settings() -> list[str]: ...
def gpu_of_rank(local_rank: int) -> int: ...
def launcher() -> tuple[int, int, int, int]: ...
def look_for_nvjpeg(folders: list[str]) -> None: ...
@final
class Dataset:
    """An opened dataset; ``len(dataset)`` is the number of records. It runs no threads. Unpickling opens it again."""

    def __len__(self) -> int: ...
    @property
    def classes(self) -> list[str] | None:
        """Class names in the order of their indices; None if the dataset does not name its classes."""
        ...
    @property
    def keypoints(self) -> list[str] | None:
        """Names of the key points of each box; None if the dataset does not name any."""
        ...
    @property
    def fields(self) -> dict[str, str]:
        """The fields of a record and their kinds: image, images, volume, label, array, bytes, text, texts, list or
        instances."""
        ...
    @property
    def masks(self) -> list[str]:
        """The image fields that are masks."""
        ...
    @property
    def format(self) -> str:
        """The format that was recognised or named."""
        ...
    @property
    def name(self) -> str:
        """The URL it was opened with, or the class of the Python object."""
        ...
    @property
    def is_python(self) -> bool:
        """Whether the engine's threads call Python code for each record."""
        ...
    def object(self, record: int) -> str:
        """The file or object that holds a record. Raises ``IndexError`` beyond the last record."""
        ...
    def has_samples(self, root: str, samples: Any) -> bool:
        """Whether the records are exactly these files below ``root``, in this order and with these classes.

        ``samples``: pairs of path and class index, as torchvision's ``ImageFolder`` has them.
        """
        ...
    def _repr_html_(self) -> str: ...

@final
class Tensor:
    """The values of one field of a batch.

        images, labels = batch["image"].torch(), batch["label"].torch()

    The memory returns to the loader once nothing uses it any more: neither this object, nor any array or tensor made from
    it. It may outlive loader and iterator.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; the first axis counts the rows of the batch."""
        ...
    @property
    def dtype(self) -> str:
        """Element type by the name of torch and numpy: ``"float32"``, ``"uint8"``, ``"int64"``, …"""
        ...
    @property
    def device(self) -> str:
        """The device of the memory: ``"cpu"``, ``"cuda:0"``, …"""
        ...
    def __len__(self) -> int:
        """Number of rows."""
        ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def torch(self) -> _torch.Tensor:
        """A torch tensor of the same memory, without a copy. You may write to it.

        Raises ``ImportError`` if torch is not installed.
        """
        ...
    def numpy(self) -> NDArray[Any]:
        """A numpy array of the same memory, without a copy.

        Raises ``ImportError`` if numpy is not installed, ``TypeError`` for bfloat16 and for values on a GPU.
        """
        ...
    def jax(self) -> Any:
        """A JAX array of the same memory if JAX accepts it.

        Raises ``ImportError`` if JAX is not installed.
        """
        ...

@final
class Batch(Mapping[str, Any]):
    """A batch of rows: a mapping from field names to values.

        images, labels = batch["image"].torch(), batch["label"].torch()

    - Images, labels and arrays are a ``Tensor``, whose first axis counts the rows.
    - A field of bytes is a list of ``bytes``, a field of text a list of ``str``, a field of texts a list of lists of ``str``.
    - A list is a dict: ``values`` ``[T, …]``, the items of all rows, and ``offsets`` (int64 ``[N + 1]``), where each row begins.
      Several images a record are a list, too: ``values`` are ``[T, C, H, W]``.
    - Boxes are a dict of tensors (``boxes``, ``labels``, ``ids``, ``crowd``, ``offsets``, ``sizes``). If the annotations have
      key points, it has ``keypoints`` (float32 ``[T, K, 3]``: x, y, visibility). If outlines were read, it has ``masks``: a list
      of dicts ``{"size": …, "counts": …}``.

    ``len(batch)`` is the number of fields; ``batch.size`` is the number of rows.
    """

    def __getitem__(self, field: str, /) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[Any]: ...
    def items(self) -> ItemsView[str, Any]: ...
    def get(self, field: Any, default: Any = None, /) -> Any: ...
    @property
    def size(self) -> int:
        """Number of rows, including padding."""
        ...
    @property
    def valid(self) -> int:
        """Number of rows that are samples. The rows after them are padding."""
        ...
    @property
    def records(self) -> list[int]:
        """The record of each row: its index in the dataset."""
        ...
    @property
    def epoch(self) -> int:
        """The epoch of this batch, counted from 0."""
        ...
    @property
    def step(self) -> int:
        """The number of this batch in its epoch, counted from the place where reading began in it."""
        ...
    @property
    def bad_samples(self) -> list[dict[str, Any]]:
        """Samples that were omitted or replaced, as dicts with ``epoch``, ``record``, ``object`` and ``error``."""
        ...
    def state_dict(self) -> dict[str, Any]:
        """The place after this batch, regardless of read-ahead. For ``Loader.load_state_dict``."""
        ...
    def _repr_html_(self) -> str: ...

@final
class Place:
    def state(self) -> str: ...
    def epoch(self) -> int: ...
    def report(self) -> str: ...
    def page(self, dataset: Dataset, title: str, config: str) -> str: ...

@final
class Stream:
    @property
    def place(self) -> Place: ...
    @property
    def closed(self) -> bool: ...
    def next(self, epoch: int) -> Batch | None: ...
    def poll(self, epoch: int) -> tuple[bool, Batch | None]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...

@final
class Loader:
    def __new__(
        cls,
        dataset: Dataset,
        config: str,
        transform: str | None,
        map: tuple[Callable[..., Any], bool] | None,
        index: str | os.PathLike[str] | None,
        lengths: tuple[str | array[int], int, int] | None = None,
    ) -> Loader: ...
    def save_index(self) -> None: ...
    def listed(self, records: array[int], sizes: array[int] | None) -> Loader: ...
    def stream_of(self, epoch: int, alone: bool) -> Stream: ...
    def stream_behind(self, state: str, alone: bool) -> Stream: ...
    def state_before(self, epoch: int) -> str: ...
    def __len__(self) -> int: ...
    def config(self) -> str: ...
