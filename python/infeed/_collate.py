"""Converts the engine's batches to the batches of torch's loader."""
# torch is not fully typed.
# pyright: basic

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        return _as_item(batch, schema, item, value_of)
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


def _as_item(batch: Batch, schema: Sequence[str], item: Any, value_of: Callable[[str], Build]) -> Build:
    """Batches with the structure of an item: a mapping, a named tuple, a list for a tuple or list, or a single value."""

    def typed(field: str, of_item: Any) -> Build:
        """A field's value in the type that ``default_collate`` gives it, taken from one record."""
        views = [name for name in batch if name.partition(".")[0] == field]
        if len(views) > 1:
            several = [value_of(view) for view in views]
            return lambda batch: [value(batch) for value in several]
        value = value_of(field)
        if isinstance(of_item, bool) or (hasattr(of_item, "dtype") and not of_item.shape):
            # The engine's integers all have 64 bits.
            dtype = torch.as_tensor(of_item).dtype

            def narrow(batch: Any) -> Any:
                wide = value(batch)
                typed = wide.to(dtype)
                # A later record may have a larger number, or a number instead of a bool.
                return typed if torch.equal(typed.to(wide.dtype), wide) else wide

            return narrow
        return value

    if isinstance(item, Mapping):
        named = [(key, typed(str(key), item[key])) for key in item]
        return lambda batch: {key: value(batch) for key, value in named}
    if not isinstance(item, (tuple, list)):
        return typed(schema[0], item)
    values = [typed(field, value) for field, value in zip(schema, item, strict=True)]
    if hasattr(item, "_fields"):
        made: Any = type(item)
        return lambda batch: made(*[value(batch) for value in values])
    return lambda batch: [value(batch) for value in values]


def rows(made: Any, size: int) -> list[Any]:
    """Splits a batch from ``builder`` into samples for a ``collate_fn``. Classes are ints, as from a Python dataset."""
    if isinstance(made, Mapping):
        return [{key: _row(value, at) for key, value in made.items()} for at in range(size)]
    if isinstance(made, tuple) or (isinstance(made, list) and any(isinstance(value, torch.Tensor) for value in made)):
        parts = [[_row(value, at) for value in made] for at in range(size)]
        return [type(made)(*part) if hasattr(made, "_fields") else tuple(part) for part in parts]
    return [_row(made, at) for at in range(size)]


def _row(value: Any, at: int) -> Any:
    if isinstance(value, Rows):
        return value[at]
    if isinstance(value, torch.Tensor):
        row = value.unbind()[at] if value.is_nested else value[at]
        return row if row.dim() or row.is_floating_point() else row.item()
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        # The views of an image.
        return [view[at] for view in value]
    return value[at]


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
