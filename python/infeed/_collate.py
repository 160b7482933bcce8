"""Converts the engine's batches to the batches of torch's loader."""
# torch is not fully typed.
# pyright: basic

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Literal

import torch

from ._native import Batch, Dataset, Tensor
from .errors import ConfigError

Output = Literal["auto", "tuple", "dict"] | Mapping[str, str]
Build = Callable[[Batch], Any]


def builder(
    batch: Batch,
    dataset: Dataset,
    output: Output,
    item: Any,
    channels_last: bool,
    masks: torch.dtype | None,
    nested: bool = False,
) -> Build:
    """A function that converts batches like this one as ``output`` says. Made once, since all batches have the same fields.

    ``item``: one record of a dataset that is a Python object; ``"auto"`` then returns what ``default_collate`` makes of such
    records. ``channels_last``: whether images have their channels last. ``masks``: the type of masks if the transform sets it.
    ``nested``: whether lists are torch's nested tensors.
    """
    schema = list(dataset.fields)
    images = {field for field, kind in dataset.fields.items() if channels_last and kind in ("image", "images")}
    of_masks = dataset.masks

    def value_of(field: str) -> Build:
        whose = field.partition(".")[0]
        value = _value(batch, field, nested, whose in images)
        if masks is not None and whose in of_masks:
            kept = value
            value = lambda batch: kept(batch).to(masks)  # noqa: E731
        return value

    if output == "auto" and item is not None:
        return _as_item(batch, dataset, item, value_of, masks is not None)
    if isinstance(output, str):
        # In the dataset's order; the views of an image take its position.
        places = {field: place for place, field in enumerate(schema)}
        fields = sorted(batch, key=lambda field: places.get(field.partition(".")[0], len(places)))
        if output == "auto":
            if any(isinstance(batch[field], Mapping) and "boxes" in batch[field] for field in fields):
                # The targets contain it.
                fields = [field for field in fields if field != "image_id"]
            output = "tuple" if len(fields) == 2 else "dict"
        if output == "tuple":
            values = [value_of(field) for field in fields]
            return lambda batch: tuple([value(batch) for value in values])
        output = {field: field for field in fields}
    named = [(name, value_of(field)) for name, field in output.items()]
    return lambda batch: {name: value(batch) for name, value in named}


def _as_item(
    batch: Batch, dataset: Dataset, item: Any, value_of: Callable[[str], Build], is_typed: bool
) -> Build:
    """Batches with the structure of an item: a mapping, a named tuple, a list for a tuple or list, or a single value.

    ``is_typed``: whether the transform sets the type of masks.
    """
    schema, of_masks = list(dataset.fields), dataset.masks

    def typed(field: str, of_item: Any) -> Build:
        """A field's value in the type that ``default_collate`` gives it, taken from one record."""
        views = [name for name in batch if name.partition(".")[0] == field]
        if len(views) > 1:
            several = [value_of(view) for view in views]
            return lambda batch: [value(batch) for value in several]
        value = value_of(field)
        if isinstance(of_item, (list, tuple)) and field in batch:
            if isinstance(batch[field], Tensor):
                return lambda batch: _unzipped(value(batch), of_item)
            if isinstance(batch[field], list):
                return lambda batch: _unzipped_texts(field, value(batch))
        if isinstance(of_item, (str, bytes)):
            is_column = is_sequence and isinstance(batch.get(field), list)
            return (lambda batch: tuple(value(batch))) if is_column else value
        if isinstance(of_item, bool) or (hasattr(of_item, "dtype") and not of_item.shape):
            # The engine's integers all have 64 bits.
            return lambda batch: _narrowed(value(batch), of_item)
        if field in of_masks and hasattr(of_item, "dtype"):
            # Labels that are numbers, not a picture: their type and shape stay.
            dtype = None if is_typed else torch.as_tensor(of_item).dtype
            flat = len(of_item.shape) == 2
            return lambda batch: _labels(value(batch), dtype, flat)
        return value

    is_sequence = isinstance(item, (tuple, list))
    if isinstance(item, Mapping):
        named = [(key, typed(str(key), item[key])) for key in item]
        if type(item) is dict:
            return lambda batch: {key: value(batch) for key, value in named}
        return lambda batch: _like(item, {key: value(batch) for key, value in named})
    if not is_sequence:
        return typed(schema[0], item)
    values = [typed(field, value) for field, value in zip(schema, item, strict=True)]
    if hasattr(item, "_fields"):
        made: Any = type(item)
        return lambda batch: made(*[value(batch) for value in values])
    return lambda batch: [value(batch) for value in values]


def _like(item: Any, values: dict[Any, Any]) -> Any:
    """The values in a mapping of the item's kind, such as ``OrderedDict``."""
    made = copy.copy(item)
    if not isinstance(made, MutableMapping):
        return values
    made.update(values)
    return made


def _labels(masks: torch.Tensor, dtype: torch.dtype | None, flat: bool) -> torch.Tensor:
    typed = masks if dtype is None else masks.to(dtype)
    return typed.squeeze(1) if flat else typed


def _narrowed(wide: torch.Tensor, of_item: Any) -> torch.Tensor:
    """Values in the type of a record's number. A later record may have a larger number, or a number instead of a bool."""
    dtype = torch.float64 if isinstance(of_item, float) else torch.as_tensor(of_item).dtype
    typed = wide.to(dtype)
    return typed if torch.equal(typed.to(wide.dtype), wide) else wide


def _unzipped(values: torch.Tensor, of_item: Any) -> Any:
    """Of lists of numbers: a tensor for each place in the list."""
    if not isinstance(of_item, (list, tuple)):
        return _narrowed(values, of_item)
    made = [_unzipped(values[:, at].contiguous(), each) for at, each in enumerate(of_item)]
    return type(of_item)(*made) if hasattr(of_item, "_fields") else made


def _unzipped_texts(field: str, texts: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Of lists of texts: a tuple for each place in the list."""
    if len({len(of_row) for of_row in texts}) > 1:
        raise ConfigError(
            f"field {field!r}: its lists have different lengths, which default_collate cannot join: pass infeed.open(dataset) "
            "for a list with the texts of each row"
        )
    return list(zip(*texts, strict=True))


def rows(made: Any, size: int, item: Any) -> list[Any]:
    """Splits a batch from ``builder`` into samples for a ``collate_fn``. Classes are ints, as from a Python dataset.

    ``item``: one record of a Python object, if batches have its structure. What no transform changes then gets its types.
    """
    if isinstance(made, Mapping):
        of_item = item if isinstance(item, Mapping) else {}
        return [{key: _row(value, at, of_item.get(key)) for key, value in made.items()} for at in range(size)]
    if item is not None and not isinstance(item, (tuple, list)):
        return [_row(made, at, item) for at in range(size)]
    of_items = [None] * len(made) if item is None else item
    parts = [[_row(value, at, each) for value, each in zip(made, of_items, strict=True)] for at in range(size)]
    if hasattr(made, "_fields"):
        return [type(made)(*part) for part in parts]
    return parts if isinstance(item, list) else [tuple(part) for part in parts]


def _row(value: Any, at: int, of_item: Any) -> Any:
    if isinstance(value, Rows):
        return value[at]
    if isinstance(value, torch.Tensor):
        row = value.unbind()[at] if value.is_nested else value[at]
        if type(of_item).__module__ == "numpy" and of_item.shape == row.shape:
            return row.numpy()[()]
        is_number = row.dim() == 0 and not isinstance(of_item, torch.Tensor)
        return row.item() if is_number and (not row.is_floating_point() or isinstance(of_item, float)) else row
    if isinstance(value, list) and value and _is_place(value[0]):
        # The views of an image, or the places of a list.
        of_items = of_item if isinstance(of_item, (list, tuple)) else [None] * len(value)
        row = [_row(of_place, at, each) for of_place, each in zip(value, of_items, strict=True)]
        return tuple(row) if isinstance(of_item, tuple) else row
    if isinstance(value, tuple) and isinstance(of_item, tuple):
        return type(of_item)(*[_row(of_place, at, each) for of_place, each in zip(value, of_item, strict=True)])
    return value[at]


def _is_place(value: Any) -> bool:
    """Whether it holds values of all rows: a tensor, a tuple of texts, or a list of these."""
    return isinstance(value, (torch.Tensor, tuple)) or (isinstance(value, list) and bool(value) and _is_place(value[0]))


class Rows(list[torch.Tensor]):
    """A tensor for each row."""


def _value(batch: Batch, field: str, nested: bool, is_image: bool) -> Build:
    """A function that converts a field's value to torch's. ``is_image``: images whose channels are last in memory."""

    def upright(values: torch.Tensor) -> torch.Tensor:
        # Shapes are as in torch's memory format: only the strides differ. The lengths of lists have one axis.
        return values.movedim(-1, -3) if is_image and values.dim() > 1 else values

    if field in batch:
        found = batch[field]
        if isinstance(found, Tensor):
            return lambda batch: upright(batch[field].torch())
        if not isinstance(found, Mapping):
            return itemgetter(field)
        if "boxes" in found:
            return _targets(field)
        return _nested(field, upright) if nested else _rows(field, upright)
    if field == "valid":
        return attrgetter("valid")
    if field == "records":
        return lambda batch: torch.tensor(batch.records)
    raise ConfigError(f"output: there is no field {field!r}: there are {', '.join(batch)}, and records and valid")


def _rows(field: str, upright: Callable[[torch.Tensor], torch.Tensor]) -> Build:
    """Lists as one tensor for each row: views of the batch's memory."""

    def rows(batch: Batch) -> Rows:
        parts = batch[field]
        return Rows(upright(parts["values"].torch()).split(parts["offsets"].torch().diff().tolist()))

    return rows


def _nested(field: str, upright: Callable[[torch.Tensor], torch.Tensor]) -> Build:
    def nested(batch: Batch) -> torch.Tensor:
        parts = batch[field]
        made: torch.Tensor = torch.nested.nested_tensor_from_jagged(upright(parts["values"].torch()), parts["offsets"].torch())
        return made

    return nested


def _targets(field: str) -> Callable[[Batch], list[dict[str, Any]]]:
    def mask(runs: Mapping[str, Sequence[int]]) -> Any:
        """One outline as pixels. Its runs go down the columns, and the first run is outside the object."""
        height, width = runs["size"]
        inside = (torch.arange(len(runs["counts"])) % 2).to(torch.uint8)
        return inside.repeat_interleave(torch.tensor(runs["counts"])).view(width, height).T

    def targets(batch: Batch) -> list[dict[str, Any]]:
        marked = batch[field]
        names = {"boxes": "boxes", "labels": "labels", "ids": "ids", "iscrowd": "crowd"}
        if "keypoints" in marked:
            names["keypoints"] = "keypoints"
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
                # All outlines of a batch have one size.
                none = outlines[0]["size"] if outlines else sizes[row].tolist()
                target["masks"] = torch.stack(masks) if masks else torch.zeros(0, *none, dtype=torch.uint8)
            made.append(target)
        return made

    return targets
