"""Datasets from Python objects: any object with ``__len__`` and ``__getitem__``, torch's and Hugging Face's datasets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from importlib import import_module

from . import _native
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_logger = logging.getLogger("infeed.objects")


def wrap(
    dataset: Any, fields: Mapping[str, str] | None = None, columns: Sequence[str] | None = None
) -> tuple[_native.Dataset, Any]:
    """The engine's dataset for an object, and the object's transform if the engine is to run it instead.

    The engine reads torchvision's ``ImageFolder``, torch's ``Subset`` of one, and a Hugging Face ``Dataset`` in Arrow memory
    without Python. For all other objects its threads call ``__getitem__`` for each record.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        kind = type(dataset).__name__
        raise TypeError(
            f"dataset must be a path, a URL, a dataset from infeed.open(), or an object with __len__ and __getitem__, not {kind}: "
            "the order needs records by index"
        )
    of: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    kind, module = of.__name__, of.__module__
    if fields is None and columns is None:
        folder = native(dataset)
        if folder is not None:
            return folder
        if kind == "Subset" and module.startswith("torch.utils.data"):
            inner, transform = wrap(dataset.dataset)
            # Only Hugging Face's own dataset has the types of its columns.
            if not inner.is_python or type(dataset.dataset).__module__.startswith("datasets."):
                return _native.subset(inner, [int(index) for index in dataset.indices]), transform
    if module.startswith("datasets.") and hasattr(dataset, "features"):
        return _hugging_face(dataset, fields, columns), None
    if columns is not None:
        raise ConfigError("columns: only for tables; a Python dataset yields what its __getitem__ returns; omit columns")
    return _plain(dataset, fields), None


def native(dataset: Any) -> tuple[_native.Dataset, Any] | None:
    """torchvision's ``ImageFolder``, or torch's ``Subset`` of one, as the engine's dataset, and its transform; otherwise None."""
    of: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    if of.__name__ == "ImageFolder" and of.__module__.startswith("torchvision."):
        return _image_folder(dataset)
    if of.__name__ == "Subset" and of.__module__.startswith("torch.utils.data"):
        inner = native(dataset.dataset)
        if inner is not None:
            return _native.subset(inner[0], [int(index) for index in dataset.indices]), inner[1]
    return None


def _plain(
    dataset: Any, fields: Mapping[str, str] | None, asked: Any = None, made: tuple[Any, tuple[Any, ...]] | None = None
) -> _native.Dataset:
    """``asked``: the object that yields the records, if it is not the dataset itself. ``made``: makes the result again."""
    kind: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    asked = dataset if asked is None else asked
    classes = _classes(getattr(asked, "classes", None))
    return _native.objects(
        asked,
        dict(fields or {}),
        classes,
        _identity(dataset),
        f"{kind.__module__}.{kind.__qualname__}",
        _one_size(asked),
        (_unwrapped, (dataset, fields)) if made is None else made,
    )


def _one_size(dataset: Any) -> bool:
    """Whether all images certainly have the size of those in the first record. Reads no other record."""
    of: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    kind, module = of.__name__, of.__module__
    if of in (list, tuple):
        return len({_sizes(item) for item in dataset}) == 1
    if module.startswith("torch.utils.data"):
        return kind == "TensorDataset" or (kind == "Subset" and _one_size(dataset.dataset))
    if module.startswith("torchvision.datasets"):
        # CIFAR, MNIST and others with all images in one array. A transform may change the sizes.
        both = getattr(dataset, "transforms", None)
        same = getattr(dataset, "transform", None) is None and type(both).__name__ in ("NoneType", "StandardTransform")
        return same and len(getattr(getattr(dataset, "data", None), "shape", ())) > 2
    # An array or a tensor: all records have one shape.
    return hasattr(dataset, "dtype") and len(getattr(dataset, "shape", ())) > 2


def _sizes(item: Any) -> tuple[Any, ...]:
    values: Any = item.values() if hasattr(item, "keys") else item if issubclass(type(item), (list, tuple)) else (item,)
    # `shape` of arrays and tensors, `size` of Pillow images.
    return tuple([str(getattr(value, "shape", getattr(value, "size", None))) for value in values])


def _classes(given: Any) -> list[str] | None:
    """Class names, if a dataset has them in torchvision's form."""
    if not isinstance(given, (list, tuple)):
        return None
    names: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType]
    return names if all(isinstance(name, str) for name in names) else None


def _unwrapped(dataset: Any, fields: Mapping[str, str] | None, columns: Sequence[str] | None = None) -> _native.Dataset:
    return wrap(dataset, fields, columns)[0]


def _identity(dataset: Any) -> str:
    """A text that tells a dataset from others: its fingerprint if it has one, otherwise its class."""
    for name in ("fingerprint", "_fingerprint"):
        found: Any = getattr(dataset, name, None)
        if isinstance(found, (str, int)):
            return str(found)
    kind: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    return f"{kind.__module__}.{kind.__qualname__}"


def _image_folder(dataset: Any) -> tuple[_native.Dataset, Any] | None:
    """The same folder as the engine's dataset; None if its records would differ."""
    of_torchvision = getattr(sys.modules.get("torchvision.datasets.folder"), "default_loader", None)
    if dataset.loader is not of_torchvision or dataset.target_transform is not None:
        return None
    # Of TIFFs the engine keeps channels and types, and Pillow turns them by their tag.
    if any(str(path)[-5:].lower().endswith((".tif", ".tiff")) for path, _ in dataset.samples):
        return None
    if dataset.transform is not None:
        from .transforms import steps

        try:
            steps(dataset.transform)
        except TypeError as error:
            _logger.warning("ImageFolder: its transform runs in Python: %s", error)
            return None
    root = str(dataset.root)
    opened = _native.open(root, '{"format": "folder"}')
    # The folder may accept other file extensions than the engine, and a script may have edited its samples.
    if opened.classes != list(dataset.classes) or not opened.has_samples(root, dataset.samples):
        _logger.warning("ImageFolder: its samples differ from the images in %s: Python reads them", root)
        return None
    return opened, dataset.transform


def _hugging_face(
    dataset: Any, fields: Mapping[str, str] | None, columns: Sequence[str] | None
) -> _native.Dataset:
    """A dataset of the Arrow columns in memory; if that is not possible, of Python rows with undecoded images."""
    form: Mapping[str, Any] = getattr(dataset, "format", None) or {}
    if form.get("type") == "custom":
        # After with_transform the records are what the transform returns.
        if columns is not None:
            raise ConfigError("columns: the dataset has a transform (with_transform), which sets its columns; omit columns")
        return _plain(dataset, fields)
    made = (_unwrapped, (dataset, fields, columns))
    features: dict[str, Any] = dict(dataset.features)
    names = list(features) if columns is None else list(columns)
    for name in names:
        if name not in features:
            raise ConfigError(f"columns: there is no {name!r}, but {', '.join(features)}")
    if columns is None and form.get("columns") is not None and not form.get("output_all_columns"):
        # Set by with_format.
        names = [name for name in names if name in form["columns"]]
    if len(names) < len(features):
        dataset = dataset.select_columns(names)
    table = dataset.data.table if hasattr(dataset.data, "table") else dataset.data
    found: list[tuple[str, str, Any]] = []
    for name in names:
        _refuse_times(name, table.column(name).type)
        if isinstance(features[name], dict) or isinstance(_item(features[name]), dict):
            raise ConfigError(
                f"column {name!r} holds dicts: omit it with columns=[…], or make a column of each key with dataset.flatten()"
            )
    for name in names:
        # A field whose kind the user gave is read value by value.
        said = fields is not None and name in fields
        column = None if said else _column(name, features[name], table.column(name))
        if column is None:
            return _rows(dataset, {name: features[name] for name in names}, fields, made)
        found.append(column)
    opened = _native.columns(found, f"huggingface {getattr(dataset, '_fingerprint', '')}", "huggingface", made)
    indices = getattr(dataset, "_indices", None)
    if indices is None:
        return opened
    return _native.subset(opened, indices.column(0).to_pylist(), made)


def _refuse_times(name: str, kind: Any) -> None:
    """Refuses times: as plain numbers they would lose their unit and their start."""
    types: Any = import_module("pyarrow").types
    inner = kind
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner = inner.value_type
    if types.is_temporal(inner):
        raise ConfigError(
            f"column {name!r} holds times ({inner}), not numbers: omit it with columns=[…], or convert it to its count "
            f"with dataset.cast_column({name!r}, Value('int64')) (from timestamp, time64 and duration)"
        )


def _rows(
    dataset: Any, features: Mapping[str, Any], fields: Mapping[str, str] | None, made: tuple[Any, tuple[Any, ...]]
) -> _native.Dataset:
    types: dict[str, str] = {}
    for name, feature in features.items():
        image = _image(feature)
        if image is not None:
            mode = _mode(name, image)
            if mode is None:
                undecoded = type(image)(decode=False)
                # A list has one feature for all its images.
                kind = undecoded if image is feature else [undecoded]
                dataset = dataset.cast_column(name, kind)
            else:
                _logger.warning("column %r: Image(mode=%r) is decoded by Pillow, in Python", name, mode)
                if image is feature:
                    types[name] = "uint8"
        else:
            dtype = _dtype(feature)
            if dtype is not None:
                types[name] = dtype
    dataset = dataset.with_format(None)
    names = [names for feature in features.values() if (names := getattr(feature, "names", None)) is not None]
    return _plain(dataset, fields, _Rows(dataset, types, names[0] if len(names) == 1 else None), made)


class _Rows:
    """Rows of a Hugging Face dataset, with numbers in the types of their columns instead of Python's types."""

    def __init__(self, dataset: Any, types: Mapping[str, str], classes: Any) -> None:
        self._dataset = dataset
        self._types = types
        self._numpy: Any = import_module("numpy")
        self.classes = classes

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, record: int) -> dict[str, Any]:
        row: dict[str, Any] = dict(self._dataset[record])
        for name, dtype in self._types.items():
            try:
                values = self._numpy.asarray(row[name])
            except ValueError:
                # Lists of several lengths: the engine raises the error.
                continue
            # An array of objects contains a null.
            if values.dtype != object:
                row[name] = values.astype(dtype, copy=False)
        return row


def _mode(name: str, feature: Any) -> str | None:
    """The Pillow mode to which images are converted; None if the engine's result is the same."""
    mode: str | None = getattr(feature, "mode", None)
    if mode is None or mode == "RGB" or not getattr(feature, "decode", True):
        return None
    if mode not in ("L", "LA", "RGBA"):
        raise ConfigError(f"column {name!r}: Image(mode={mode!r}): use RGB, RGBA, L, LA or no mode")
    return mode


def _item(feature: Any) -> Any:
    """The feature of a list's items; None for another feature."""
    return feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)


def _image(feature: Any) -> Any:
    """The feature of images: of the column itself, or of the items of its lists. Otherwise None."""
    for found in (feature, _item(feature)):
        if type(found).__name__ == "Image":
            return found
    return None


def _dtype(feature: Any, listed: bool = False) -> str | None:
    """The type of a column's numbers or lists of numbers. None: labels, or not numbers."""
    inner: Any = _item(feature)
    if inner is not None:
        return _dtype(inner, True)
    dtype = str(getattr(feature, "dtype", ""))
    listed = listed or type(feature).__name__.startswith("Array")
    if dtype.startswith("float") or (listed and dtype.startswith(("int", "uint", "bool"))):
        return dtype
    return None


def _column(name: str, feature: Any, column: Any) -> tuple[str, str, Any] | None:
    """A column for the engine: chunks of bytes with their offsets, or numbers. None: it must be read row by row in Python."""
    arrow: Any = import_module("pyarrow")
    types = arrow.types
    if type(feature).__name__ == "Image":
        if _mode(name, feature) is not None:
            return None
        chunks = [chunk.field("bytes") for chunk in _plain_chunks(column)]
        if any(chunk.null_count for chunk in chunks):
            return None
        return name, "image", [_binary(chunk, types) for chunk in chunks]
    if _image(feature) is not None:
        return None if _mode(name, _image(feature)) is not None else _nested(name, "images", column)
    if column.null_count:
        words = f"column {name!r}: {column.null_count} of its values are null"
        raise ConfigError(f"{words}; fill them, or omit the column with columns=[…]")
    if any(is_kind(column.type) for is_kind in (types.is_string, types.is_binary, types.is_large_string)):
        kind = "bytes" if types.is_binary(column.type) else "text"
        return name, kind, [_binary(chunk, types) for chunk in _plain_chunks(column)]
    if types.is_integer(column.type) or types.is_boolean(column.type):
        try:
            values = column.cast(arrow.int64()).to_numpy()
        except arrow.ArrowInvalid:
            # 2^63 or more: not a class index. Only uint64 holds it.
            values = column.to_numpy()
            return name, "array", (str(values.dtype), [], memoryview(values.view("uint8")).cast("B"))
        return name, "label", (memoryview(values).cast("B"), getattr(feature, "names", None))
    if types.is_floating(column.type):
        values = column.to_numpy()
        return name, "array", (str(values.dtype), [], memoryview(values.view("uint8")).cast("B"))
    return _lists(name, column)


def _lists(name: str, column: Any) -> tuple[str, str, Any] | None:
    """Lists of numbers, possibly nested, in their own type: arrays if all rows have one shape, lists if only their lengths
    differ. Lists of texts. Otherwise None."""
    arrow: Any = import_module("pyarrow")
    numpy: Any = import_module("numpy")
    types = arrow.types
    chunks = _plain_chunks(column)
    if types.is_list(column.type) or types.is_large_list(column.type):
        item = column.type.value_type
        if types.is_string(item) or types.is_large_string(item):
            return _nested(name, "texts", column)
    flat = [_flattened(chunk) for chunk in chunks]
    shapes = {None if part is None else part[1] for part in flat}
    if len(shapes) != 1 or None in shapes or () in shapes:
        return _ragged(name, chunks)
    parts = [part[0] for part in flat if part is not None]
    values = numpy.ascontiguousarray(parts[0] if len(parts) == 1 else numpy.concatenate(parts))
    return name, "array", (str(values.dtype), list(shapes.pop() or ()), memoryview(values.view("uint8")).cast("B"))


def _flattened(values: Any) -> tuple[Any, tuple[int, ...]] | None:
    """The numbers in nested lists of equal lengths, and these lengths. None: other lengths, other values, or nulls."""
    arrow: Any = import_module("pyarrow")
    compute: Any = import_module("pyarrow.compute")
    types = arrow.types
    shape: list[int] = []
    while types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type):
        lengths = compute.unique(compute.list_value_length(values)).to_pylist()
        if values.null_count or len(lengths) != 1 or not lengths[0]:
            return None
        shape.append(lengths[0])
        values = values.flatten()
    is_number = types.is_integer(values.type) or types.is_floating(values.type) or types.is_boolean(values.type)
    if not is_number or values.null_count:
        return None
    return values.to_numpy(zero_copy_only=False), tuple(shape)


def _ragged(name: str, given: list[Any]) -> tuple[str, str, Any] | None:
    """Lists whose length differs between rows, of numbers or of lists that have one length. Otherwise None."""
    types = import_module("pyarrow").types
    found: set[tuple[str, tuple[int, ...]]] = set()
    chunks: list[Any] = []
    for chunk in given:
        if not (types.is_list(chunk.type) or types.is_large_list(chunk.type)) or chunk.null_count:
            return None
        offsets = chunk.offsets.to_numpy()
        if offsets[0] == offsets[-1]:
            # Without numbers it has no shape.
            chunks.append((memoryview(bytes(offsets.nbytes)), offsets.itemsize, memoryview(b""), 0, len(chunk)))
            continue
        flat = _flattened(chunk.values)
        if flat is None:
            return None
        numbers, item = flat
        found.add((str(numbers.dtype), item))
        values = memoryview(numbers.view("uint8")).cast("B")
        chunks.append((memoryview(offsets.view("uint8")).cast("B"), offsets.itemsize, values, 0, len(chunk)))
    if len(found) != 1:
        return None
    dtype, shape = found.pop()
    return name, "list", (dtype, list(shape), chunks)


def _nested(name: str, kind: str, column: Any) -> tuple[str, str, Any] | None:
    """Lists of image files or of texts. None if some are null, or are images by their paths."""
    types = import_module("pyarrow").types
    chunks: list[Any] = []
    for chunk in _plain_chunks(column):
        if not (types.is_list(chunk.type) or types.is_large_list(chunk.type)) or chunk.null_count:
            return None
        values = chunk.values.field("bytes") if kind == "images" else chunk.values
        if values.null_count:
            return None
        offsets = chunk.offsets.to_numpy()
        view = memoryview(offsets.view("uint8")).cast("B")
        chunks.append((view, offsets.itemsize, _binary(values, types)))
    return name, kind, chunks


def _plain_chunks(column: Any) -> list[Any]:
    return [chunk.storage if hasattr(chunk, "storage") else chunk for chunk in column.chunks]


def _binary(chunk: Any, types: Any) -> tuple[Any, int, Any, int, int]:
    """Of an Arrow array of binaries or strings: offsets, bytes per offset, values, first index, number of values."""
    _, offsets, values = chunk.buffers()
    wide = types.is_large_binary(chunk.type) or types.is_large_string(chunk.type)
    empty = memoryview(b"")
    return (
        empty if offsets is None else memoryview(offsets).cast("B"),
        8 if wide else 4,
        empty if values is None else memoryview(values).cast("B"),
        chunk.offset,
        len(chunk),
    )
