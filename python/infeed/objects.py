"""Datasets that are Python's own objects: any with ``__len__`` and ``__getitem__``, torch's, Hugging Face's."""

from __future__ import annotations

import logging
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
    """The engine's dataset of an object, and the transform that the object has, where the engine does it instead.

    What is understood is read without Python: torchvision's ``ImageFolder``, torch's ``Subset`` of such, Hugging Face's
    ``Dataset`` in Arrow memory. All others are asked for each record, by threads of the engine.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        kind = type(dataset).__name__
        raise TypeError(
            f"dataset is a path, a URL, what infeed.open() gives, or an object with __len__ and __getitem__, not {kind}: "
            "what can only be iterated has no records that an order could name"
        )
    of: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    kind, module = of.__name__, of.__module__
    if fields is None and columns is None:
        folder = native(dataset)
        if folder is not None:
            return folder
        if kind == "Subset" and module.startswith("torch.utils.data"):
            inner, transform = wrap(dataset.dataset)
            # What the types of Hugging Face's columns are is known to their own dataset alone.
            if not inner.is_python or type(dataset.dataset).__module__.startswith("datasets."):
                return _native.subset(inner, [int(index) for index in dataset.indices]), transform
    if module.startswith("datasets.") and hasattr(dataset, "features"):
        return _hugging_face(dataset, fields, columns), None
    if columns is not None:
        raise ConfigError("columns: those of tables; a Python dataset gives what its __getitem__ gives")
    return _plain(dataset, fields), None


def native(dataset: Any) -> tuple[_native.Dataset, Any] | None:
    """torchvision's ``ImageFolder``, or torch's ``Subset`` of one, as the engine reads it, and its transform; None of others."""
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
    """``asked`` is what gives the records, where it is not the dataset itself; ``made`` makes this anew."""
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
    """Whether all pictures are as large as those of the first record, as far as that is known without asking for them."""
    of: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    kind, module = of.__name__, of.__module__
    if of in (list, tuple):
        return len({_sizes(item) for item in dataset}) == 1
    if module.startswith("torch.utils.data"):
        return kind == "TensorDataset" or (kind == "Subset" and _one_size(dataset.dataset))
    if module.startswith("torchvision.datasets"):
        # CIFAR, MNIST and others that have all in one array. What a transform makes of it is not known.
        both = getattr(dataset, "transforms", None)
        same = getattr(dataset, "transform", None) is None and type(both).__name__ in ("NoneType", "StandardTransform")
        return same and len(getattr(getattr(dataset, "data", None), "shape", ())) > 2
    # An array or a tensor: its records are alike.
    return hasattr(dataset, "dtype") and len(getattr(dataset, "shape", ())) > 2


def _sizes(item: Any) -> tuple[Any, ...]:
    values: Any = item.values() if hasattr(item, "keys") else item if issubclass(type(item), (list, tuple)) else (item,)
    # Of arrays and tensors, and of Pillow's images.
    return tuple([str(getattr(value, "shape", getattr(value, "size", None))) for value in values])


def _classes(given: Any) -> list[str] | None:
    """Names of classes, where a dataset has some as torchvision's have."""
    if not isinstance(given, (list, tuple)):
        return None
    names: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType]
    return names if all(isinstance(name, str) for name in names) else None


def _unwrapped(dataset: Any, fields: Mapping[str, str] | None, columns: Sequence[str] | None = None) -> _native.Dataset:
    return wrap(dataset, fields, columns)[0]


def _identity(dataset: Any) -> str:
    """What tells a dataset from others of its kind and length, as far as it says so itself."""
    for name in ("fingerprint", "_fingerprint"):
        found: Any = getattr(dataset, name, None)
        if isinstance(found, (str, int)):
            return str(found)
    kind: Any = type(dataset)  # pyright: ignore[reportUnknownVariableType]
    return f"{kind.__module__}.{kind.__qualname__}"


def _image_folder(dataset: Any) -> tuple[_native.Dataset, Any] | None:
    """The same folder, read by the engine; None where that would be something else."""
    if getattr(dataset.loader, "__name__", "") != "default_loader" or dataset.target_transform is not None:
        return None
    if dataset.transform is not None:
        from .transforms import steps

        try:
            steps(dataset.transform)
        except TypeError as error:
            _logger.warning("ImageFolder: records are made by Python's own transform: %s", error)
            return None
    root = str(dataset.root)
    opened = _native.open(root, '{"format": "folder"}')
    # Which files are images is told by their endings, and it may be said otherwise there; and samples may have been edited.
    if opened.classes != list(dataset.classes) or not opened.has_samples(root, dataset.samples):
        _logger.warning("ImageFolder: its samples are not all those of %s: they are read by Python", root)
        return None
    return opened, dataset.transform


def _hugging_face(
    dataset: Any, fields: Mapping[str, str] | None, columns: Sequence[str] | None
) -> _native.Dataset:
    """Columns of Arrow as they lie in memory; where that cannot be, rows by Python, images not decoded."""
    form: Mapping[str, Any] = getattr(dataset, "format", None) or {}
    if form.get("type") == "custom":
        # Of with_transform: what it gives is the dataset.
        if columns is not None:
            raise ConfigError("columns: the dataset has a transform (with_transform), and gives what that gives")
        return _plain(dataset, fields)
    made = (_unwrapped, (dataset, fields, columns))
    features: dict[str, Any] = dict(dataset.features)
    names = list(features) if columns is None else list(columns)
    for name in names:
        if name not in features:
            raise ConfigError(f"columns: there is no {name!r}, but {', '.join(features)}")
    if columns is None and form.get("columns") is not None and not form.get("output_all_columns"):
        # Of with_format.
        names = [name for name in names if name in form["columns"]]
    if len(names) < len(features):
        dataset = dataset.select_columns(names)
    table = dataset.data.table if hasattr(dataset.data, "table") else dataset.data
    found: list[tuple[str, str, Any]] = []
    for name in names:
        _refuse_times(name, table.column(name).type)
    for name in names:
        # What the user says of a field is looked at value by value.
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
    """What they count from, and in which unit, would be lost."""
    types: Any = import_module("pyarrow").types
    inner = kind
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner = inner.value_type
    if types.is_temporal(inner):
        raise ConfigError(
            f"column {name!r} holds times ({inner}), which are no numbers: leave it out by columns=[…], or say that their "
            f"count is meant: dataset.cast_column({name!r}, Value('int64')), from timestamp, time64 and duration"
        )


def _rows(
    dataset: Any, features: Mapping[str, Any], fields: Mapping[str, str] | None, made: tuple[Any, tuple[Any, ...]]
) -> _native.Dataset:
    types: dict[str, str] = {}
    for name, feature in features.items():
        if type(feature).__name__ == "Image":
            mode = _mode(name, feature)
            if mode is None:
                dataset = dataset.cast_column(name, type(feature)(decode=False))
            else:
                _logger.warning("column %r: Image(mode=%r) is decoded by Pillow, in Python", name, mode)
                types[name] = "uint8"
        else:
            dtype = _dtype(feature)
            if dtype is not None:
                types[name] = dtype
    dataset = dataset.with_format(None)
    names = [names for feature in features.values() if (names := getattr(feature, "names", None)) is not None]
    return _plain(dataset, fields, _Rows(dataset, types, names[0] if len(names) == 1 else None), made)


class _Rows:
    """Rows of Hugging Face's whose numbers have the types of their columns: Python's have none."""

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
                # Of several lengths: it is told what that is.
                continue
            # Of objects where something is null.
            if values.dtype != object:
                row[name] = values.astype(dtype, copy=False)
        return row


def _mode(name: str, feature: Any) -> str | None:
    """The mode that an image is to be converted to; None where that is as images are read anyway."""
    mode: str | None = getattr(feature, "mode", None)
    if mode is None or mode == "RGB" or not getattr(feature, "decode", True):
        return None
    if mode not in ("L", "LA", "RGBA"):
        raise ConfigError(f"column {name!r}: Image(mode={mode!r}): images come as RGB, RGBA, L or LA, or as they are without")
    return mode


def _dtype(feature: Any, listed: bool = False) -> str | None:
    """The type of the numbers in a column, in lists or not; None: they are labels, or none at all."""
    inner: Any = feature[0] if issubclass(type(feature), list) else getattr(feature, "feature", None)
    if inner is not None:
        return _dtype(inner, True)
    dtype = str(getattr(feature, "dtype", ""))
    listed = listed or type(feature).__name__.startswith("Array")
    if dtype.startswith("float") or (listed and dtype.startswith(("int", "uint", "bool"))):
        return dtype
    return None


def _column(name: str, feature: Any, column: Any) -> tuple[str, str, Any] | None:
    """A column as the engine takes it: chunks of bytes with their offsets, or numbers. None: it must be asked row by row."""
    arrow: Any = import_module("pyarrow")
    types = arrow.types
    if type(feature).__name__ == "Image":
        if _mode(name, feature) is not None:
            return None
        chunks = [chunk.field("bytes") for chunk in _plain_chunks(column)]
        if any(chunk.null_count for chunk in chunks):
            return None
        return name, "image", [_binary(chunk, types) for chunk in chunks]
    if column.null_count:
        words = f"column {name!r}: {column.null_count} of its values are null"
        raise ConfigError(f"{words}; fill them, or leave the column out by columns=[…]")
    if any(is_kind(column.type) for is_kind in (types.is_string, types.is_binary, types.is_large_string)):
        return name, "bytes", [_binary(chunk, types) for chunk in _plain_chunks(column)]
    if types.is_integer(column.type) or types.is_boolean(column.type):
        try:
            values = column.cast(arrow.int64()).to_numpy()
        except arrow.ArrowInvalid:
            # Beyond 2^63: no class, and no other type holds it.
            values = column.to_numpy()
            return name, "array", (str(values.dtype), [], memoryview(values.view("uint8")).cast("B"))
        return name, "label", (memoryview(values).cast("B"), getattr(feature, "names", None))
    if types.is_floating(column.type):
        values = column.to_numpy()
        return name, "array", (str(values.dtype), [], memoryview(values.view("uint8")).cast("B"))
    return _lists(name, column)


def _lists(name: str, column: Any) -> tuple[str, str, Any] | None:
    """Lists of numbers, in lists or not, that have one shape in all rows: as Arrow has them, in their own type."""
    arrow: Any = import_module("pyarrow")
    numpy: Any = import_module("numpy")
    compute: Any = import_module("pyarrow.compute")
    types = arrow.types
    shapes: set[tuple[int, ...]] = set()
    parts: list[Any] = []
    for chunk in _plain_chunks(column):
        shape: list[int] = []
        while types.is_list(chunk.type) or types.is_large_list(chunk.type) or types.is_fixed_size_list(chunk.type):
            lengths = compute.unique(compute.list_value_length(chunk)).to_pylist()
            if chunk.null_count or len(lengths) != 1 or not lengths[0]:
                return None
            shape.append(lengths[0])
            chunk = chunk.flatten()
        is_number = types.is_integer(chunk.type) or types.is_floating(chunk.type) or types.is_boolean(chunk.type)
        if not shape or not is_number or chunk.null_count:
            return None
        shapes.add(tuple(shape))
        parts.append(chunk.to_numpy(zero_copy_only=False))
    if len(shapes) != 1:
        return None
    values = parts[0] if len(parts) == 1 else numpy.concatenate(parts)
    values = numpy.ascontiguousarray(values)
    return name, "array", (str(values.dtype), list(shapes.pop()), memoryview(values.view("uint8")).cast("B"))


def _plain_chunks(column: Any) -> list[Any]:
    return [chunk.storage if hasattr(chunk, "storage") else chunk for chunk in column.chunks]


def _binary(chunk: Any, types: Any) -> tuple[Any, int, Any, int, int]:
    """Offsets, bytes of one of them, values, first and number of an array of binaries or strings."""
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
