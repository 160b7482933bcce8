"""Steps from a decoded image to a row of the batch, in torchvision's words; and torchvision's own objects as they are.

    from infeed import Loader, transforms as T

    train = T.Compose([
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.RandAugment(),
        T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ])
    loader = Loader("train/", batch_size=256, shuffle=True, transform=train)

Names, arguments and defaults are those of ``torchvision.transforms.v2``; what the engine has beyond is by keyword. They
are descriptions: the engine's threads do the work, which one resample does as far as no step needs a picture. Nothing
here imports torchvision, and ``Loader(transform=)`` takes its ``Compose`` too, of v1 and of v2.

- Sizes are ``(height, width)``, or one number for both. ``p`` is a probability, 0 to 1.
- ``fill``, ``threshold`` and ``value`` count as pixels do at their place of the list: 0 to 255 before ``ToFloat``,
  ``ToTensor`` or ``ToDtype``, 0 to 1 behind it. Masks have 0 where an image is filled.
- ``interpolation`` is ``"nearest"``, ``"nearest-exact"``, ``"bilinear"``, ``"bicubic"``, ``"lanczos"`` or ``"box"`` for
  steps that resize, or several of them, of which each sample draws one; ``"nearest"``, ``"bilinear"`` or ``"bicubic"``
  for steps that warp. torchvision's ``InterpolationMode`` and Pillow's numbers are understood.
- ``antialias`` widens the filter where the image is made smaller.

``TypeError``: something that torchvision has and the engine has not. Numbers that cannot be are refused by the loader,
which names the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from enum import Enum
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import Field
    from typing import Any, ClassVar, Literal, TypeAlias, TypeGuard, dataclass_transform

    _Step: TypeAlias = dict[str, Any]
    _Size: TypeAlias = int | Sequence[int]
    _Range: TypeAlias = Sequence[float]
    _Interpolation: TypeAlias = str | int | Enum | Sequence[str | int | Enum]
    _Fill: TypeAlias = float | Sequence[float] | Mapping[Any, Any] | None
    _Axis: TypeAlias = Literal["x", "y", "z"]
    # A step, and whether it is another library's.
    _Flat: TypeAlias = tuple["Transform | Mapping[str, Any]", bool]
else:

    def dataclass_transform(**_):
        return lambda kind: kind


__all__ = [
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "Clamp",
    "ClampBoundingBoxes",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "ConvertImageDtype",
    "Cutout",
    "FixedSizeCrop",
    "FlipAxis",
    "GaussianBlur",
    "Grayscale",
    "Identity",
    "Like",
    "Normalize",
    "PILToTensor",
    "PadOrCrop",
    "PadTo",
    "PadToLargest",
    "Patch",
    "RGB",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ResizeKeepRatio",
    "Rot90",
    "SanitizeBoundingBoxes",
    "Scale",
    "ScaleJitter",
    "ThreeAugment",
    "TimmRandAugment",
    "ToDtype",
    "ToFloat",
    "ToImage",
    "ToPILImage",
    "ToPureTensor",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "Window",
    "mask_dtype",
    "output_dtype",
    "steps",
]

_WHITE = 255.0
_RESAMPLES = ("nearest", "nearest_exact", "bilinear", "bicubic", "lanczos", "box", "random")
_WARPS = ("nearest", "bilinear", "bicubic")
# Pillow's numbers.
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
# Settings that torchvision takes as a number or a sequence of one.
_SINGLE = ("fill", "kernel_size", "padding", "sigma", "size", "value")
# Steps that fold into a resample: none of them sees whether values are bytes or floats.
_FOLDED = (
    "resize_shorter",
    "resize_exact",
    "center_crop",
    "random_crop",
    "random_resized_crop",
    "horizontal_flip",
    "vertical_flip",
)
_INSTEAD = "give a function of yours to Loader(map=) for each sample, or to Loader(batch_transform=) for whole batches"


@dataclass_transform(frozen_default=True)
class Transform:
    """What all steps have in common: they are values, which can be compared, hashed, pickled and printed."""

    # The engine's name of the step.
    _op: ClassVar[str] = ""
    # Which interpolations it may have.
    _kinds: ClassVar[tuple[str, ...]] = _RESAMPLES
    # Arguments of torchvision's that can have this value alone.
    _only: ClassVar[Mapping[str, object]] = {}
    # Arguments that count as pixels do at this place.
    _levels: ClassVar[tuple[str, ...]] = ("fill",)
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, op: str | None = None) -> None:
        if op is not None:
            cls._op = op
        dataclass(frozen=True, repr=False)(cls)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, self._checked(name, _plain(getattr(self, name))))

    def _checked(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self._checked(name, self._of_images(name, value))
        if name in _SINGLE and _several(value) and len(value) == 1:
            value = value[0]
        if name in self._only and value != self._only[name]:
            raise self._refused(name, value, f"there is {name}={self._only[name]!r} alone; {_INSTEAD}")
        if name == "interpolation":
            return self._interpolation(value)
        if name == "antialias" and value is None:
            raise self._refused(name, value, "it is True or False")
        return value

    def _refused(self, name: str, value: object, why: str) -> TypeError:
        return TypeError(f"{type(self).__name__}({name}={value!r}): {why}")

    def _interpolation(self, value: Any) -> Any:
        if _several(value):
            return tuple(self._interpolation(each) for each in value)
        if isinstance(value, int) and 0 <= value < len(_PILLOW):
            value = _PILLOW[value]
        kind = value.replace("-", "_") if isinstance(value, str) else value
        return self._named("interpolation", kind, self._kinds)

    def _named(self, name: str, value: Any, among: Sequence[str]) -> Any:
        if value not in among:
            raise ValueError(f"{type(self).__name__}({name}={value!r}): it is one of {', '.join(among)}")
        return value

    def _of_images(self, name: str, by_type: Any) -> Any:
        """Of torchvision's settings by type that of images."""
        rest: dict[Any, Any] = {getattr(kind, "__name__", kind): value for kind, value in by_type.items()}
        found = next((kind for kind in ("Image", "Tensor", "others") if kind in rest), None)
        value = rest.pop(found, None)
        if found is None or any(other not in (None, 0) for other in rest.values()):
            raise self._refused(name, rest, "what is not an image, a mask for one, is filled by 0")
        return _plain(value)

    def _settings(self, white: float) -> _Step:
        """The arguments as the engine has them."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in [*self._only, "inplace"]:
            told.pop(name, None)
        for name in self._levels:
            if name in told:
                told[name] = _part(told[name], white)
        return {name: list(value) if _several(value) else value for name, value in told.items()}

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        """The engine's steps, where pixels reach up to ``white``; ``nested``: within ``RandomApply`` or its like."""
        return [{"op": self._op, **self._settings(white)}]

    def _parts(self) -> Iterable[object] | None:
        """What stands in its place, if it is a list."""
        return None

    def __repr__(self) -> str:
        said: list[str] = []
        for name, field in self.__dataclass_fields__.items():
            value = getattr(self, name)
            if field.default is MISSING:
                said.append(repr(value))
            elif value != field.default:
                said.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(said)})"


# torchvision's objects are callables to who does not import it.
_Item = Transform | Mapping[str, object] | Callable[..., object]
# What `Loader(transform=)` takes: a preset or a line, or transforms, torchvision's and the engine's dicts among them.
Like = str | _Item | Sequence[_Item] | None


def _plain(value: Any) -> Any:
    """Enums, arrays and tensors as what they hold; lists as tuples."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if _several(value) else value


def _dtype(value: object) -> str | None:
    """The name of one of torch's types, or of NumPy's."""
    return None if value is None else str(value).removeprefix("torch.")


def _several(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _of_channels(value: Any) -> tuple[Any, ...]:
    """Numbers of channels, also where they have been shaped to be broadcast: ``[3, 1, 1]``."""
    if not _several(value):
        return (value,)
    if len(value) == 1 and _several(value[0]):
        return _of_channels(value[0])
    return tuple(_of_channels(each)[0] if _several(each) and len(each) == 1 else each for each in value)


def _part(level: Any, white: float) -> Any:
    """Pixels' values as parts of white."""
    if _several(level):
        return tuple(_part(each, white) for each in level)
    return level / white if isinstance(level, (int, float)) else level


# Geometry


class Resize(Transform):
    """Makes images larger or smaller.

    - ``size``: of the shorter side, the longer one keeps the proportion; or height and width, whatever the proportion.
    - ``max_size``: not here. ``RandomShortestSize`` bounds the longer side.
    """

    _only = {"max_size": None}

    size: _Size
    interpolation: _Interpolation = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        return [{"op": "resize_shorter" if isinstance(self.size, int) else "resize_exact", **self._settings(white)}]


class ResizeKeepRatio(Transform, op="resize_keep_ratio"):
    """Makes images larger or smaller, which keep their proportion: timm's, which draws nothing here.

    - ``size``: height and width, or one number for both.
    - ``longest``: 0: images cover ``size``; 1: they fit into it; what is between lies between.
    """

    size: _Size
    longest: float = 0.0
    interpolation: _Interpolation = "bilinear"
    _: KW_ONLY
    antialias: bool = True


class CenterCrop(Transform, op="center_crop"):
    """Cuts ``size`` out of the middle. Black stands where the image is smaller."""

    size: _Size


class RandomCrop(Transform, op="random_crop"):
    """Cuts ``size`` out at a random place.

    - ``padding``: black pixels added on each side before, as many on all. None: none.

    An image that is smaller even so is a bad sample.
    """

    _only = {"pad_if_needed": False, "fill": 0, "padding_mode": "constant"}

    size: _Size
    padding: _Size | None = None
    pad_if_needed: bool = False
    fill: _Fill = 0
    padding_mode: str = "constant"

    def _checked(self, name: str, value: Any) -> Any:
        if name != "padding":
            return super()._checked(name, value)
        if not _several(value):
            return value
        if len(set(value)) != 1:
            raise self._refused(name, value, f"all sides are padded alike; {_INSTEAD}")
        return value[0]

    def _settings(self, white: float) -> _Step:
        return {**super()._settings(white), "padding": self.padding or 0}


class RandomResizedCrop(Transform, op="random_resized_crop"):
    """Cuts a random part out, and resizes it to ``size``.

    - ``scale``: least and most part of the image's area.
    - ``ratio``: least and most width over height.
    """

    size: _Size
    scale: _Range = (0.08, 1.0)
    ratio: _Range = (3 / 4, 4 / 3)
    interpolation: _Interpolation = "bilinear"
    antialias: bool = True


class RandomHorizontalFlip(Transform, op="horizontal_flip"):
    """Swaps left and right."""

    p: float = 0.5


class RandomVerticalFlip(Transform, op="vertical_flip"):
    """Swaps top and bottom."""

    p: float = 0.5


class _Warp(Transform):
    _kinds = _WARPS


class RandomRotation(_Warp, op="random_rotation"):
    """Turns images, which keep their size.

    - ``degrees``: against the clock; as far as this to both sides, or from the least to the most.
    - ``center``: the point that stays, x and y in pixels. None: the middle.
    - ``fill``: what is left empty, one number or one for each channel; None is black without a seam.
    """

    _only = {"expand": False}

    degrees: float | _Range
    interpolation: _Interpolation = "nearest"
    expand: bool = False
    center: _Range | None = None
    fill: _Fill = 0


class RandomAffine(_Warp, op="random_affine"):
    """Turns, moves, scales and shears images.

    - ``degrees``: with the clock; as far as this to both sides, or from the least to the most.
    - ``translate``: most distance across and down, as parts of width and height, 0 to 1.
    - ``scale``: least and most factor, above 0.
    - ``shear``: degrees along x, to both sides or from the least to the most; of four numbers the last two are along y.
    - ``fill``, ``center``: as ``RandomRotation`` has them.
    """

    degrees: float | _Range
    translate: _Range | None = None
    scale: _Range | None = None
    shear: float | _Range | None = None
    interpolation: _Interpolation = "nearest"
    fill: _Fill = 0
    center: _Range | None = None


class RandomPerspective(_Warp, op="random_perspective"):
    """Moves the four corners inwards.

    - ``distortion_scale``: how far at most, as a part of half the image, 0 to 1.
    - ``fill``: as ``RandomRotation`` has it.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: _Interpolation = "bilinear"
    fill: _Fill = 0


class RandomErasing(Transform, op="random_erasing"):
    """Writes over a rectangle.

    - ``scale``: least and most part of the image's area, 0 to 1.
    - ``ratio``: least and most height over width.
    - ``value``: what is written: one number, or one for each channel, in the units of this place, which behind
      ``Normalize`` are normalised; ``"random"``: normal noise for each value; ``"color"``: one for each channel. Noise
      needs ``ToFloat`` or ``Normalize`` before it.
    - ``count``: one to so many rectangles, which share the area.
    """

    _levels = ("value",)

    p: float = 0.5
    scale: _Range = (0.02, 0.33)
    ratio: _Range = (0.3, 3.3)
    value: float | str | Sequence[float] = 0.0
    inplace: bool = False
    _: KW_ONLY
    count: int = 1

    def _checked(self, name: str, value: Any) -> Any:
        # So torchvision's object keeps it.
        return "random" if name == "value" and value is None else super()._checked(name, value)


class Cutout(Transform, op="cutout"):
    """Blanks a square of ``size`` pixels around a random place, cut off at the edges.

    It is black; behind ``Normalize`` the mean.
    """

    size: int


# Colour


class ColorJitter(Transform, op="color_jitter"):
    """Changes brightness, contrast, saturation and hue in a random order.

    - ``brightness``, ``contrast``, ``saturation``: a number ``v`` draws a factor from ``max(0, 1 - v)`` to ``1 + v``,
      two are its ends. None: nothing.
    - ``hue``: turns of the colour circle, as far as this to both sides, at most 0.5; or the ends, -0.5 to 0.5.
    """

    brightness: float | _Range | None = None
    contrast: float | _Range | None = None
    saturation: float | _Range | None = None
    hue: float | _Range | None = None

    def _settings(self, white: float) -> _Step:
        return {name: value or 0.0 for name, value in super()._settings(white).items()}


class RandomPhotometricDistort(Transform, op="random_photometric_distort"):
    """SSD's colours: brightness, contrast, saturation, hue and an order of the channels, each with probability ``p``.

    Ends of the factors; ``hue`` in turns of the colour circle, -0.5 to 0.5.
    """

    brightness: _Range = (0.875, 1.125)
    contrast: _Range = (0.5, 1.5)
    saturation: _Range = (0.5, 1.5)
    hue: _Range = (-0.05, 0.05)
    p: float = 0.5


class Grayscale(Transform, op="grayscale"):
    """Makes images gray, of 1 channel or of 3 equal ones."""

    num_output_channels: int = 1

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        # The engine keeps gray images as they are.
        spread: list[_Step] = [{"op": "gray_to_rgb"}] if self.num_output_channels == 3 and not nested else []
        return super()._steps(white, nested) + spread


class RandomGrayscale(Transform, op="random_grayscale"):
    """Makes images gray in as many channels."""

    p: float = 0.1


class RGB(Transform, op="gray_to_rgb"):
    """Repeats the channel of gray images three times."""


class GaussianBlur(Transform, op="gaussian_blur"):
    """Blurs by a Gaussian kernel.

    - ``kernel_size``: odd pixels; one number, or width and height. Images are larger than half of it.
    - ``sigma``: deviation in pixels, above 0, or its ends.
    """

    kernel_size: _Size
    sigma: float | _Range = (0.1, 2.0)
    _: KW_ONLY
    p: float = 1.0

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        if isinstance(self.kernel_size, Sequence):
            # The engine's is height and width.
            told["kernel_size"] = list(reversed(self.kernel_size))
        if isinstance(self.sigma, (int, float)):
            told["sigma"] = [self.sigma] * 2
        return told


class RandomInvert(Transform, op="random_invert"):
    """Makes a negative."""

    p: float = 0.5


class RandomPosterize(Transform, op="random_posterize"):
    """Keeps the first ``bits`` of each byte, 0 to 8."""

    bits: int
    p: float = 0.5


class RandomSolarize(Transform, op="random_solarize"):
    """Inverts values of ``threshold`` or more, which counts as pixels do at this place."""

    threshold: float
    p: float = 0.5

    def _settings(self, white: float) -> _Step:
        # Bytes are compared between two levels, so that no rounding decides.
        level = max(math.ceil(self.threshold) - 0.5, 0.0) if white == _WHITE else self.threshold
        return {"threshold": level / white, "p": self.p}


class RandomAdjustSharpness(Transform, op="random_adjust_sharpness"):
    """Blurs or sharpens: a ``sharpness_factor`` of 0 blurs, 1 changes nothing, 2 sharpens twice."""

    sharpness_factor: float
    p: float = 0.5


class RandomAutocontrast(Transform, op="random_autocontrast"):
    """Stretches each channel from black to white."""

    p: float = 0.5


class RandomEqualize(Transform, op="random_equalize"):
    """Makes the histogram of each channel even."""

    p: float = 0.5


class RandomChannelPermutation(Transform, op="random_channel_permutation"):
    """Brings the channels into a random order."""


# Policies


class RandAugment(_Warp, op="rand_augment"):
    """A few random steps of one magnitude.

    - ``num_ops``: how many.
    - ``magnitude``: which of ``num_magnitude_bins``, from 0 on.
    - ``interpolation``, ``fill``: of those that warp; None is black without a seam.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: _Interpolation = "nearest"
    fill: _Fill = None


class TrivialAugmentWide(_Warp, op="trivial_augment_wide"):
    """One random step of any magnitude, of ``num_magnitude_bins``. The rest is as in ``RandAugment``."""

    num_magnitude_bins: int = 31
    interpolation: _Interpolation = "nearest"
    fill: _Fill = None


class AutoAugment(_Warp, op="auto_augment"):
    """One of 25 learned pairs of steps.

    ``policy`` says on what they were learned: ``"imagenet"``, ``"cifar10"`` or ``"svhn"``. The rest is as in
    ``RandAugment``.
    """

    policy: str | Enum = "imagenet"
    interpolation: _Interpolation = "nearest"
    fill: _Fill = None

    def _checked(self, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        return self._named(name, value, ("imagenet", "cifar10", "svhn")) if name == "policy" else value


class AugMix(_Warp, op="aug_mix"):
    """The image blended with what chains of random steps make of it. Not for records with masks.

    - ``severity``: the first so many of ten magnitudes.
    - ``mixture_width``: chains.
    - ``chain_depth``: steps of a chain; 0 or less: 1 to 3, drawn.
    - ``alpha``: of the distributions of the weights, above 0.
    - ``all_ops``: brightness, colour, contrast and sharpness too.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: _Interpolation = "bilinear"
    fill: _Fill = None


class TimmRandAugment(_Warp, op="timm_rand_augment"):
    """timm's RandAugment: as it stands here ``rand-m9-mstd0.5-inc1``.

    - ``magnitude``, ``magnitude_std``, ``magnitude_max``: of a normal distribution, cut at 0 and the most; evenly from
      0 to ``magnitude`` where the deviation is above 100.
    - ``increasing``: all steps change more as magnitudes grow.
    - ``num_ops``, ``p``: steps, and how probable each of them is.
    - ``interpolation``: one for all that warp, or several of which each draws one.
    - ``fill``: what they leave empty; the mean in timm's recipes.
    """

    magnitude: float = 9.0
    magnitude_std: float = 0.5
    magnitude_max: float = 10.0
    increasing: bool = True
    num_ops: int = 2
    p: float = 0.5
    interpolation: _Interpolation = ("bilinear", "bicubic")
    fill: _Fill = 128

    def _settings(self, white: float) -> _Step:
        kinds = self.interpolation
        return {**super()._settings(white), "interpolation": list(kinds) if _several(kinds) else [kinds]}


class ThreeAugment(Transform, op="three_augment"):
    """Gray, solarized or blurred, one of the three: DeiT III's, without its colour jitter."""


# Lists


class _Group(Transform):
    transforms: Sequence[_Item]

    def _checked(self, name: str, value: Any) -> Any:
        if name != "transforms":
            return super()._checked(name, value)
        # Lists of torch.nn are no sequences.
        if isinstance(value, (str, Mapping, Transform)) or not hasattr(value, "__len__"):
            raise TypeError(f"{type(self).__name__}(transforms={value!r}): it is a list of transforms")
        if not len(value):
            raise ValueError(f"{type(self).__name__}(transforms={value!r}): give it at least one")
        return tuple(value)

    def _each(self, white: float) -> list[_Step]:
        """Each of the transforms as one step."""
        return [_one(_lowered([transform], white, nested=True)) for transform in self.transforms]


def _one(steps: list[_Step]) -> _Step:
    if len(steps) == 1:
        return steps[0]
    return {"op": "random_apply", "transforms": steps, "p": 1.0} if steps else {"op": "random_invert", "p": 0.0}


class Compose(_Group):
    """One step after another. ``Loader(transform=)`` takes the list as well."""

    def _parts(self) -> Iterable[object]:
        return self.transforms


class RandomApply(_Group):
    """All of its steps with probability ``p``, or none. They may change pixels, and keep the size."""

    p: float = 0.5

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        inner = _lowered(self.transforms, white, nested=True)
        return [{"op": "random_apply", "transforms": inner, "p": self.p}] if inner else []


class RandomChoice(_Group):
    """One of its steps, by the weights ``p`` or evenly. They may change pixels, and keep the size."""

    p: Sequence[float] | None = None

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        # Weights that are equal draw as none do.
        p = list(self.p) if self.p is not None and len(set(self.p)) > 1 else None
        return [{"op": "random_choice", "transforms": self._each(white), "p": p}]


class RandomOrder(_Group):
    """All of its steps in a random order. They may change pixels, and keep the size."""

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        return [{"op": "random_order", "transforms": self._each(white)}]


# Values


class Normalize(Transform, op="normalize"):
    """Brings values to 0 to 1, subtracts ``mean`` and divides by ``std``.

    Each has a number for each channel, or one for all.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]
    inplace: bool = False

    def _checked(self, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        return value if name == "inplace" else _of_channels(value)

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        # One for all beside one for each.
        most = max(len(told["mean"]), len(told["std"]))
        return {name: values * most if len(values) == 1 else values for name, values in told.items()}


class ToFloat(Transform, op="to_float"):
    """Brings values to 0 to 1, as ``Normalize`` does too. Steps behind it work on floats."""


class ToTensor(Transform, op="to_float"):
    """As ``ToFloat``."""


class _Dtype(Transform, op="to_float"):
    dtype: object

    def _checked(self, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        return _dtype(value) if name == "dtype" else value

    def _scales(self) -> bool:
        return True

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        wanted, floats = self.dtype, white != _WHITE
        if wanted in (None, "float32" if floats else "uint8"):
            return []
        if wanted == "float32" and self._scales():
            return [{"op": self._op}]
        if wanted == "float32":
            why = "rows of dtype='float32' hold 0 to 255 unasked: leave it out, or say scale=True for 0 to 1"
        elif wanted == "uint8":
            why = "values are 0 to 1 here: leave out what makes them so, and give Loader(dtype='uint8')"
        else:
            why = f"say float32 with scale=True here, and the type of rows by Loader(dtype={wanted!r})"
        raise self._refused("dtype", wanted, why)


class ToDtype(_Dtype):
    """As ``ToFloat``, of ``torch.float32`` or ``"float32"`` with ``scale``. ``uint8`` of bytes is nothing.

    The type of rows is the loader's: ``Loader(dtype="bfloat16")``.

    - ``dtype``: of images; or a dict by type, as torchvision has it, of which ``Mask`` is kept as ``mask``.
    - ``mask``: what masks become, which ``mask_dtype`` tells; None: they stay bytes.
    """

    scale: bool = False
    _: KW_ONLY
    mask: object = None

    def __post_init__(self) -> None:
        dtypes: Any = self.dtype
        if isinstance(dtypes, Mapping):
            of_images, of_masks = self._by_type(dtypes)
            object.__setattr__(self, "dtype", of_images)
            object.__setattr__(self, "mask", of_masks)
        super().__post_init__()

    def _by_type(self, dtypes: Any) -> tuple[object, object]:
        """Of torchvision's types by type those of images and of masks."""
        named: dict[str, Any] = {getattr(kind, "__name__", kind): dtype for kind, dtype in dtypes.items()}
        found = next((kind for kind in ("Image", "Tensor", "others") if kind in named), None)
        if found is None:
            raise self._refused("dtype", dtypes, "it says nothing of images")
        if _dtype(named.get("BoundingBoxes", named.get("others"))) not in (None, "float32"):
            raise self._refused("dtype", dtypes, "BoundingBoxes are float32: give None for them")
        return named[found], named.get("Mask", named.get("others"))

    def _checked(self, name: str, value: Any) -> Any:
        return _dtype(value) if name == "mask" else super()._checked(name, value)

    def _scales(self) -> bool:
        return self.scale


class ConvertImageDtype(_Dtype):
    """As ``ToDtype`` with ``scale``."""

    dtype: object = "float32"


class _Nothing(Transform):
    def _steps(self, white: float, nested: bool) -> list[_Step]:
        return []


class Identity(_Nothing):
    """Nothing."""


class ToImage(_Nothing):
    """Nothing: images are what they are."""


class PILToTensor(_Nothing):
    """Nothing: images are what they are."""


class ToPureTensor(_Nothing):
    """Nothing: images are what they are."""


class ToPILImage(_Nothing):
    """Nothing, before values are floats."""

    _only = {"mode": None}

    mode: str | None = None

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        if white != _WHITE:
            raise TypeError(f"ToPILImage() makes bytes of floats: leave out what makes floats before it; or {_INSTEAD}")
        return []


# Detection


class RandomShortestSize(Transform, op="random_shortest_size"):
    """Brings the shorter side to one of ``min_size``, drawn evenly, with at most ``max_size`` of the longer one.

    Images come out in different sizes: a crop or ``PadTo`` makes rows of them.
    """

    min_size: _Size
    max_size: int | None = None
    interpolation: _Interpolation = "bilinear"
    antialias: bool = True


class ScaleJitter(Transform, op="scale_jitter"):
    """Fits images into ``target_size``, and scales that by a factor of ``scale_range``.

    They come out in different sizes. ``target_size`` is width and height, as torchvision counts it, or one number.
    """

    target_size: _Size
    scale_range: _Range = (0.1, 2.0)
    interpolation: _Interpolation = "bilinear"
    antialias: bool = True

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        if isinstance(self.target_size, Sequence):
            told["target_size"] = list(reversed(self.target_size))
        return told


class RandomZoomOut(Transform, op="random_zoom_out"):
    """Puts the image somewhere on a larger canvas.

    - ``fill``: what is around it, one number or one for each channel.
    - ``side_range``: least and most side of the canvas, in sides of the image, from 1 on.
    """

    fill: _Fill = 0
    side_range: _Range = (1.0, 4.0)
    p: float = 0.5

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        return {**told, "fill": told["fill"] or 0.0}


class RandomIoUCrop(Transform, op="random_iou_crop"):
    """A random crop that has enough of a box in it: SSD's. For records with boxes.

    Boxes whose middle is outside come out with no size; ``SanitizeBoundingBoxes`` drops them.

    - ``min_scale``, ``max_scale``: parts of each side, above 0 to 1.
    - ``min_aspect_ratio``, ``max_aspect_ratio``: width over height.
    - ``sampler_options``: least overlaps, one of which is drawn; 1 or more: no crop. None: SSD's seven.
    - ``trials``: with one of them.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    def _settings(self, white: float) -> _Step:
        options = self.sampler_options
        seven = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
        return {**super()._settings(white), "sampler_options": list(seven if options is None else options)}


class FixedSizeCrop(Transform, op="fixed_size_crop"):
    """Cuts ``size`` out at a random place. Black is on the right and at the bottom where the image is smaller."""

    size: _Size


class PadTo(Transform, op="pad_to"):
    """Adds black on the right and at the bottom, up to ``size``. A larger image is a bad sample."""

    size: _Size


class PadToLargest(Transform, op="pad_to_largest"):
    """Adds black on the right and at the bottom, up to the largest image of the batch: batches differ in size.

    - ``max_size``: the most; a larger image is a bad sample.
    - ``multiple_of``: heights and widths are multiples of this.
    """

    max_size: _Size
    multiple_of: int = 1


class SanitizeBoundingBoxes(Transform, op="sanitize_bounding_boxes"):
    """Drops boxes of less than ``min_size`` pixels across or down, or less than ``min_area`` square pixels.

    Their labels and masks go with them.
    """

    _only = {"labels_getter": "default"}

    min_size: float = 1.0
    min_area: float = 1.0
    labels_getter: str = "default"


class ClampBoundingBoxes(_Nothing):
    """Nothing: boxes are always cut to their image."""

    clamping_mode: Literal["auto", "soft", "hard"] = "auto"

    def _checked(self, name: str, value: Any) -> Any:
        if value is None:
            raise self._refused(name, value, "boxes are always cut to their image")
        return super()._checked(name, value)


class ConvertBoundingBoxFormat(Transform, op="convert_bounding_box_format"):
    """How batches have their boxes, wherever it stands in the list.

    - ``format``: ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``.
    - ``normalized``: in parts of the row's sides, 0 to 1, instead of pixels.
    """

    format: str | Enum
    _: KW_ONLY
    normalized: bool = False

    def _checked(self, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        return self._named(name, str(value).upper(), ("XYXY", "XYWH", "CXCYWH")) if name == "format" else value

    def _settings(self, white: float) -> _Step:
        return {"format": str(self.format).lower(), "normalized": self.normalized}


# Volumes


class FlipAxis(Transform, op="flip_axis"):
    """Mirrors an ``axis`` of a volume: ``"z"`` (slices), ``"y"`` (lines) or ``"x"``."""

    axis: _Axis
    p: float = 0.5


class Rot90(Transform, op="rot90"):
    """Turns a ``plane`` of a volume by one, two or three quarters, from its first axis to its second.

    They are equally long.
    """

    plane: Sequence[_Axis] = ("y", "x")
    p: float = 0.5


class PadOrCrop(Transform, op="pad_or_crop"):
    """Brings a volume to ``size`` (depth, height, width, or one number) around its middle, with ``value`` outside."""

    size: _Size
    value: float = 0.0


class Patch(Transform, op="patch"):
    """Cuts a box of ``size`` (depth, height, width, or one number) out of a volume at a random place.

    ``foreground``: probability that its middle is a voxel that is not 0 in the record's first mask.
    """

    size: _Size
    foreground: float = 0.0


class Window(Transform, op="window"):
    """Maps intensities from ``low`` to ``high`` of a volume to 0 to 1, and what lies beyond to its ends."""

    low: float
    high: float


class Scale(Transform, op="scale"):
    """Multiplies intensities of a volume by ``scale``, and adds ``bias``."""

    scale: float
    bias: float = 0.0


class Clamp(Transform, op="clamp"):
    """Bounds intensities of a volume."""

    low: float
    high: float


# torchvision's objects


class _ImageClassification(Transform):
    crop_size: _Size
    resize_size: _Size
    mean: Sequence[float]
    std: Sequence[float]
    interpolation: _Interpolation
    antialias: bool

    def _parts(self) -> Iterable[object]:
        yield Resize(self.resize_size, self.interpolation, antialias=self.antialias)
        yield CenterCrop(self.crop_size)
        yield PILToTensor()
        yield Normalize(self.mean, self.std)


class _SemanticSegmentation(Transform):
    resize_size: _Size | None
    mean: Sequence[float]
    std: Sequence[float]
    interpolation: _Interpolation
    antialias: bool

    def _parts(self) -> Iterable[object]:
        if self.resize_size is not None:
            yield Resize(self.resize_size, self.interpolation, antialias=self.antialias)
        yield PILToTensor()
        yield Normalize(self.mean, self.std)


# By their names there.
_TORCHVISION: dict[str, type[Transform]] = {
    "ImageClassification": _ImageClassification,
    "ObjectDetection": ToFloat,
    "SemanticSegmentation": _SemanticSegmentation,
    **{
        kind.__name__: kind
        for kind in (
            *(AugMix, AutoAugment, RandAugment, TrivialAugmentWide),
            *(CenterCrop, RandomCrop, RandomResizedCrop, Resize, RandomHorizontalFlip, RandomVerticalFlip),
            *(RandomAffine, RandomPerspective, RandomRotation, RandomErasing),
            *(ColorJitter, GaussianBlur, Grayscale, RGB, RandomAdjustSharpness, RandomAutocontrast),
            *(RandomChannelPermutation, RandomEqualize, RandomGrayscale, RandomInvert, RandomPhotometricDistort),
            *(RandomPosterize, RandomSolarize),
            *(Compose, RandomApply, RandomChoice, RandomOrder),
            *(ConvertImageDtype, Normalize, ToDtype, ToTensor),
            *(Identity, PILToTensor, ToImage, ToPILImage, ToPureTensor),
            *(ClampBoundingBoxes, ConvertBoundingBoxFormat, RandomIoUCrop, RandomShortestSize, RandomZoomOut),
            *(SanitizeBoundingBoxes, ScaleJitter),
        )
    },
}
# What to say for some that have no equal.
_OTHERWISE = {
    "Pad": "RandomCrop(size, padding=) pads before it cuts, infeed.transforms.PadTo up to a size",
    "RandomResize": "RandomShortestSize(list(range(min_size, max_size))) draws the shorter side from a list",
    "SetClampingMode": "boxes are always cut to their image: leave it out",
}
# Attributes that have another name than their argument.
_KEPT_AS = {"sampler_options": "options"}
# Attributes that say nothing of their own: torch's, and the steps of a policy.
_DERIVED = {"training", "policies"}


def _of_torchvision(it: object) -> Transform:
    name = type(it).__name__
    kind = _TORCHVISION.get(name)
    if kind is None:
        raise TypeError(f"torchvision's {name} has no equal here: {_otherwise(name, it)}")
    arguments = {argument: _KEPT_AS.get(argument, argument) for argument in kind.__dataclass_fields__}
    unknown = {attribute for attribute in vars(it) if attribute[0] != "_"} - _DERIVED - {*arguments.values()}
    if unknown:
        what = f"torchvision's {name} has {', '.join(sorted(unknown))}"
        raise TypeError(f"{what}, which this release of infeed does not know; {_INSTEAD}")
    try:
        given = {argument: getattr(it, kept) for argument, kept in arguments.items() if hasattr(it, kept)}
        return kind(**given)
    except ValueError as error:
        raise TypeError(f"torchvision's {error}; or {_INSTEAD}") from None


def _otherwise(name: str, it: Any) -> str:
    if name in ("MixUp", "CutMix"):
        mix = {name.lower(): it.alpha} | ({} if it.num_classes is None else {"num_classes": it.num_classes})
        return f"give Loader(mix={mix}), which mixes whole batches"
    return _OTHERWISE.get(name, _INSTEAD)


# timm's objects


def _timm_erasing(it: Any) -> Transform:
    if it.min_count != 1:
        raise TypeError(f"timm's RandomErasing(min_count={it.min_count}): at least one rectangle is drawn; {_INSTEAD}")
    least, most = map(math.exp, it.log_aspect_ratio)
    value = {"rand": "color", "pixel": "random"}.get(it.mode, 0.0)
    # Its num_splits is of batches: who erases image by image has none.
    return RandomErasing(
        it.probability, scale=(it.min_area, it.max_area), ratio=(least, most), value=value, count=it.max_count
    )


# The steps of its RandAugment; those of `inc1` have another name where they are others.
_TIMM_STEPS = [
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
]
_TIMM_INCREASING = {"Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness"}


def _timm_rand_augment(it: Any) -> Transform:
    def refused(why: str) -> TypeError:
        return TypeError(f"timm's RandAugment has {why}; {_INSTEAD}")

    if it.choice_weights is not None:
        raise refused("weights of its steps, which are drawn evenly here")
    names = [op.name for op in it.ops]
    increasing = names == [name + "Increasing" * (name in _TIMM_INCREASING) for name in _TIMM_STEPS]
    if not increasing and names != _TIMM_STEPS:
        raise refused(f"the steps {', '.join(names)}: those here are all of rand-m9 or rand-m9-inc1")
    first = it.ops[0]
    for said in ("prob", "magnitude", "magnitude_std", "magnitude_max", "hparams", "kwargs"):
        if any(getattr(op, said) != getattr(first, said) for op in it.ops):
            raise refused(f"steps that differ in {said}")
    if (reach := first.hparams.get("translate_pct", 0.45)) != 0.45:
        raise refused(f"translate_pct={reach}, which is 0.45 here")
    deviation, most = first.magnitude_std, first.magnitude_max or 10.0
    if deviation == math.inf:
        # The engine's word for evenly.
        deviation = 101.0
    elif deviation > 100:
        raise refused(f"magnitude_std={deviation}, above which magnitudes are drawn evenly here")
    return TimmRandAugment(
        # What is not drawn is cut at once.
        min(first.magnitude, most) if deviation <= 0 else first.magnitude,
        max(deviation, 0.0),
        most,
        increasing,
        it.num_layers,
        first.prob,
        first.kwargs["resample"],
        first.kwargs["fillcolor"],
    )


def _timm_resize(it: Any) -> Transform:
    for name in ("random_scale_prob", "random_aspect_prob"):
        if (p := getattr(it, name)) > 0:
            raise TypeError(f"timm's ResizeKeepRatio({name}={p}): it draws nothing here; {_INSTEAD}")
    return ResizeKeepRatio(it.size, it.longest, it.interpolation)


def _timm_center_crop(it: Any) -> Transform:
    for name, only in (("fill", (0, (0, 0, 0))), ("padding_mode", ("constant",))):
        value = _plain(getattr(it, name))
        if value not in only:
            raise TypeError(f"timm's CenterCropOrPad({name}={value!r}): an image that is smaller is padded by black")
    return CenterCrop(it.size)


# By their names there: the attributes that they have, and what is their equal.
_TIMM: dict[str, tuple[str, Callable[[Any], Transform]]] = {
    "CenterCropOrPad": ("size fill padding_mode", _timm_center_crop),
    "MaybePILToTensor": ("", lambda it: PILToTensor()),
    "MaybeToTensor": ("", lambda it: ToTensor()),
    "RandAugment": ("ops num_layers choice_weights", _timm_rand_augment),
    "RandomErasing": (
        "probability min_area max_area log_aspect_ratio min_count max_count mode rand_color per_pixel num_splits "
        "device",
        _timm_erasing,
    ),
    "RandomResizedCropAndInterpolation": (
        "size scale ratio interpolation",
        lambda it: RandomResizedCrop(it.size, it.scale, it.ratio, it.interpolation),
    ),
    "ResizeKeepRatio": (
        "size longest interpolation random_scale_prob random_scale_range random_scale_area random_aspect_prob "
        "random_aspect_range",
        _timm_resize,
    ),
    "ToNumpy": ("", lambda it: PILToTensor()),
}
_TIMM_OTHERWISE = {
    "AugMixAugment": "infeed.transforms.AugMix is torchvision's",
    "AutoAugment": "infeed.transforms.AutoAugment has torchvision's policies, TimmRandAugment is timm's rand-…",
    "ToTensor": "leave it out: rows of dtype='float32' hold 0 to 255 unasked",
}


def _of_timm(it: object) -> Transform:
    name = type(it).__name__
    if name not in _TIMM:
        raise TypeError(f"timm's {name} has no equal here: {_TIMM_OTHERWISE.get(name, _INSTEAD)}")
    known, make = _TIMM[name]
    unknown = {attribute for attribute in vars(it) if attribute[0] != "_"} - _DERIVED - {*known.split()}
    if unknown:
        what = f"timm's {name} has {', '.join(sorted(unknown))}"
        raise TypeError(f"{what}, which this release of infeed does not know; {_INSTEAD}")
    try:
        return make(it)
    except ValueError as error:
        raise TypeError(f"timm's {name}: {error}; or {_INSTEAD}") from None


# Objects that apply others


def _applies_one(self: Any, img: Any) -> Any:
    return self.transforms(img)


def _applies_two(self: Any, img: Any, target: Any) -> Any:
    return self.transforms(img, target)


def _applies_all(self: Any, *inputs: Any) -> Any:
    return self.transforms(*inputs)


_APPLIES = [applies.__code__ for applies in (_applies_one, _applies_two, _applies_all)]
# Of a function's flags those of `*` and `**`, and of generators and coroutines.
_KIND_OF_CODE = 0x04 | 0x08 | 0x20 | 0x80 | 0x200


def _applied_by(method: object) -> str | None:
    """The attribute that a method applies to what it is given, if it does nothing else."""
    if not isinstance(method, FunctionType) or method.__defaults__ or method.__kwdefaults__:
        return None
    code = method.__code__
    for same in _APPLIES:
        # A name's place is in the code, the name is not.
        if (
            (code.co_code, code.co_argcount, code.co_kwonlyargcount, code.co_flags & _KIND_OF_CODE)
            == (same.co_code, same.co_argcount, same.co_kwonlyargcount, same.co_flags & _KIND_OF_CODE)
        ) and len(code.co_names) == 1:
            return code.co_names[0]
    return None


def _written(kind: type, name: str) -> Any:
    """A class's attribute as it stands there, in whichever of its bases; no descriptor is asked."""
    return next((vars(of)[name] for of in kind.__mro__ if name in vars(of)), None)


def _torchs(kind: type, name: str) -> type | None:
    """The class of `torch.nn` that it is or derives from."""
    return next((of for of in kind.__mro__ if of.__name__ == name and of.__module__.startswith("torch.nn.")), None)


def _wrapped(it: object) -> list[Any] | None:
    """What calling it does, one after another: of objects that certainly do nothing else."""
    kind, held = type(it), dict(getattr(it, "__dict__", {}))
    if _written(kind, "__getattribute__") is not object.__getattribute__:
        return None
    modules: dict[str, Any] = {}
    method, module = _written(kind, "__call__"), _torchs(kind, "Module")
    if module is not None and method is vars(module).get("__call__"):
        if "forward" in held or any(held.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")):
            return None
        method, modules = _written(kind, "forward"), dict(held.get("_modules", {}))
        for container in ("Sequential", "Identity"):
            base = _torchs(kind, container)
            if base is not None and method is vars(base).get("forward"):
                return [*modules.values()] if container == "Sequential" else [Identity()]
        if _written(kind, "__getattr__") is not vars(module).get("__getattr__"):
            return None
    name = _applied_by(method)
    if name is None:
        return None
    of_class = _written(kind, name)
    if hasattr(of_class, "__get__"):
        return None
    # In the order in which Python looks.
    found = next((of[name] for of in (held, {name: of_class}, modules) if of.get(name) is not None), None)
    return None if found is None else [found]


def _foreign(it: object) -> Callable[[object], Transform] | None:
    """Whose it is, by where its class stands."""
    whose = type(it).__module__
    if whose.startswith("torchvision.transforms."):
        return _of_torchvision
    return _of_timm if whose.startswith("timm.data.") else None


def _taken(it: object) -> Transform:
    if isinstance(it, Transform):
        return it
    of = _foreign(it)
    if of is not None:
        return of(it)
    wrapped = _wrapped(it)
    if wrapped is not None:
        return Compose(wrapped)
    held = getattr(it, "__dict__", {})
    within = [name for name, value in {**held, **held.get("_modules", {})}.items() if _foreign(value) is not None]
    instead = _INSTEAD
    if within:
        instead = f"if calling it does no more than apply its .{within[0]}, give that as the transform; or {instead}"
    raise TypeError(f"{it!r} is no step of a transform: it is one of infeed.transforms, torchvision or timm; {instead}")


def _flat(transforms: Iterable[object], *, foreign: bool = False) -> Iterator[_Flat]:
    """Without lists within lists; and of each whether it is another library's."""
    for it in transforms:
        if isinstance(it, Mapping):
            yield it, False
            continue
        transform = _taken(it)
        parts, whose = transform._parts(), foreign or transform is not it
        if parts is None:
            yield transform, whose
        else:
            # Those of a list are who they are; those of a preset are the preset's.
            yield from _flat(parts, foreign=whose and not isinstance(transform, Compose))


# What makes a tensor of a picture of Pillow's, and what wants a tensor.
_OF_PICTURES = (ToTensor, PILToTensor, ToImage, ToFloat)
_OF_TENSORS = (ToDtype, ConvertImageDtype, Normalize, RandomErasing, ToPILImage)


def _on_pictures(flat: Sequence[_Flat]) -> list[bool]:
    """Of each step whether it is another library's and works on a picture of Pillow's, not on a tensor.

    It begins with pictures where what makes tensors of them comes before what wants tensors.
    """
    kinds = [it for it, foreign in flat if foreign and isinstance(it, (*_OF_PICTURES, *_OF_TENSORS))]
    pictures = bool(kinds) and isinstance(kinds[0], _OF_PICTURES)
    told: list[bool] = []
    for it, foreign in flat:
        told.append(foreign and pictures)
        if foreign and isinstance(it, _OF_PICTURES):
            pictures = False
        elif foreign and isinstance(it, ToPILImage):
            pictures = True
    return told


def _as_pillow(step: _Step) -> _Step:
    """A resize as Pillow does it: its nearest pixel is that under the middle, and its filters always widen."""
    if "antialias" not in step:
        return step
    kinds = step["interpolation"]
    exact = ["nearest_exact" if kind == "nearest" else kind for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return {**step, "interpolation": exact[0] if isinstance(kinds, str) else exact, "antialias": True}


def _lowered(transforms: Iterable[object], white: float, *, nested: bool = False) -> list[_Step]:
    lowered: list[_Step] = []
    flat = list(_flat(transforms))
    for (it, _), picture in zip(flat, _on_pictures(flat), strict=True):
        if isinstance(it, Normalize):
            _leave_out_to_float(lowered)
        own = [dict(it)] if isinstance(it, Mapping) else it._steps(white, nested)
        if any(step.get("op") in ("to_float", "normalize") for step in own):
            white = 1.0
        lowered += map(_as_pillow, own) if picture else own
    return lowered


def _leave_out_to_float(lowered: list[_Step]) -> None:
    """Before ``normalize``, which does it too. Draws go by a step's place: they are those of the list without it."""
    for place in reversed(range(len(lowered))):
        if lowered[place].get("op") == "to_float":
            del lowered[place]
            return
        if lowered[place].get("op") not in _FOLDED:
            return


def steps(transform: Like) -> str | list[dict[str, Any]] | None:
    """The engine's steps of whatever ``Loader(transform=)`` takes.

    - None, the name of a preset, or steps in a line: as they are.
    - A transform of this module, of torchvision (v1 and v2, also what ``weights.transforms()`` gives) or of timm,
      ``torch.nn.Sequential`` of them, or the engine's own dict; or a sequence of those. Dicts have the engine's names
      and units: levels are parts of white, 0 to 1, everywhere.
    - An object whose ``__call__`` or ``forward`` does nothing but ``return self.transforms(img)``, whatever the
      attribute is called: torchvision's ``ClassificationPresetTrain``.

    ``ToTensor``, ``ToDtype`` and their like are left out before ``Normalize``, which brings values to 0 to 1 too.

    A resize of torchvision's that stands before ``ToTensor``, ``PILToTensor`` or ``ToImage`` is Pillow's: its
    ``NEAREST`` is ``"nearest-exact"``, and it is antialiased whatever it says. Elsewhere it is torch's, on tensors.

    Raises ``TypeError`` for what has no equal, with its name, the argument, and what to do.
    """
    if transform is None or isinstance(transform, str):
        return transform
    return _lowered(transform if _several(transform) else [transform], _WHITE)


def _listed(transform: Like) -> list[_Flat]:
    if transform is None or isinstance(transform, str):
        return []
    return list(_flat(transform if _several(transform) else [transform]))


def output_dtype(transform: Like) -> str | None:
    """The type of the tensors that a chain of torchvision's or timm's gives: ``"uint8"`` or ``"float32"``.

    ``PILToTensor`` and ``ToImage`` give bytes, ``ToTensor`` and ``Normalize`` floats. None where the chain does not
    say it: no chain, the name of a preset, a line, one with steps of this module or dicts, or with none of those.

    Raises ``TypeError`` as ``steps`` does.
    """
    found: str | None = None
    for it, foreign in _listed(transform):
        if not foreign:
            return None
        if isinstance(it, (ToTensor, ToFloat, Normalize)):
            found = "float32"
        elif isinstance(it, (PILToTensor, ToImage)):
            found = found or "uint8"
        elif isinstance(it, ToPILImage):
            found = None
        elif isinstance(it, _Dtype):
            found = _dtype(it.dtype) or found
    return found


def mask_dtype(transform: Like) -> str | None:
    """The type that a chain gives to masks, as torch calls it: ``"int64"``. None: they stay as they are.

    ``ToDtype`` says it: ``v2.ToDtype({tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None},
    scale=True)``.

    Raises ``TypeError`` as ``steps`` does.
    """
    said = [it.mask for it, _ in _listed(transform) if isinstance(it, ToDtype) and it.mask is not None]
    return _dtype(said[-1]) if said else None
