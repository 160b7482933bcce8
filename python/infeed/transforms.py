"""Transforms from a decoded image to a row of the batch, with the names of torchvision.

    from infeed import Loader, transforms as T

    train = T.Compose([
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.RandAugment(),
        T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ])
    loader = Loader("train/", batch_size=256, shuffle=True, transform=train)

Names, arguments and defaults are those of ``torchvision.transforms.v2``; additions of infeed are keyword-only. The objects
only describe steps: the engine's threads execute them, and join consecutive resizes, crops and flips into one resampling.
This module does not import torchvision. ``Loader(transform=)`` also takes torchvision's own ``Compose``, of v1 and v2.

- Sizes are ``(height, width)`` in pixels, or one number for both. ``p`` is a probability from 0 to 1.
- ``fill``, ``threshold`` and ``value`` are on the scale of the pixels at that point of the list: 0 to 255 before
  ``ToFloat``, ``ToTensor`` or ``ToDtype``, 0 to 1 after it. Masks are always filled with 0.
- ``interpolation``, in steps that resize: ``"nearest"``, ``"nearest-exact"``, ``"bilinear"``, ``"bicubic"``,
  ``"lanczos"``, ``"box"``, or a list from which each sample draws one. In steps that warp: ``"nearest"``,
  ``"bilinear"`` or ``"bicubic"``. torchvision's ``InterpolationMode`` and Pillow's numbers work too.
- ``antialias`` (default True) widens the filter if the image is made smaller.

Raises ``TypeError`` for what torchvision has and the engine does not. The loader checks numbers and names the step.
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
    # A step, and whether it is from another library.
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
# By Pillow's numbers.
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
# Settings that torchvision takes as a number or a sequence of one.
_SINGLE = ("fill", "kernel_size", "padding", "sigma", "size", "value")
# Steps that are folded into one resampling. Their result does not depend on whether values are bytes or floats.
_FOLDED = (
    "resize_shorter",
    "resize_exact",
    "center_crop",
    "random_crop",
    "random_resized_crop",
    "horizontal_flip",
    "vertical_flip",
)
_INSTEAD = "use a function of your own: Loader(map=) for single samples, or Loader(batch_transform=) for whole batches"


@dataclass_transform(frozen_default=True)
class Transform:
    """Base class of all steps. Steps are immutable values that can be compared, hashed, pickled and printed."""

    # The engine's name of the step.
    _op: ClassVar[str] = ""
    # The interpolations that it supports.
    _kinds: ClassVar[tuple[str, ...]] = _RESAMPLES
    # Arguments of torchvision that must have this value.
    _only: ClassVar[Mapping[str, object]] = {}
    # Arguments on the scale of the pixels at that point of the list.
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
            raise self._refused(name, value, f"only {name}={self._only[name]!r} is supported; {_INSTEAD}")
        if name == "interpolation":
            return self._interpolation(value)
        if name == "antialias" and value is None:
            raise self._refused(name, value, "must be True or False")
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
            raise ValueError(f"{type(self).__name__}({name}={value!r}): must be one of {', '.join(among)}")
        return value

    def _of_images(self, name: str, by_type: Any) -> Any:
        """The setting for images, from torchvision's settings by type."""
        rest: dict[Any, Any] = {getattr(kind, "__name__", kind): value for kind, value in by_type.items()}
        found = next((kind for kind in ("Image", "Tensor", "others") if kind in rest), None)
        value = rest.pop(found, None)
        if found is None or any(other not in (None, 0) for other in rest.values()):
            raise self._refused(name, rest, "only images can have a fill; masks and all other types are filled with 0")
        return _plain(value)

    def _settings(self, white: float) -> _Step:
        """The arguments in the engine's form."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in [*self._only, "inplace"]:
            told.pop(name, None)
        for name in self._levels:
            if name in told:
                told[name] = _part(told[name], white)
        return {name: list(value) if _several(value) else value for name, value in told.items()}

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        """The engine's steps. ``white``: the largest pixel value here. ``nested``: within ``RandomApply`` or a similar step."""
        return [{"op": self._op, **self._settings(white)}]

    def _parts(self) -> Iterable[object] | None:
        """The steps that replace this one, if it is a list of steps."""
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


# Typed as callables, since torchvision is not imported here.
_Item = Transform | Mapping[str, object] | Callable[..., object]
# The type of `Loader(transform=)`: a preset or a line; or transforms, torchvision's objects and the engine's dicts included.
Like = str | _Item | Sequence[_Item] | None


def _plain(value: Any) -> Any:
    """Enums, arrays and tensors become plain values; lists become tuples."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if _several(value) else value


def _dtype(value: object) -> str | None:
    """The name of a type of torch or NumPy."""
    return None if value is None else str(value).removeprefix("torch.")


def _several(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _of_channels(value: Any) -> tuple[Any, ...]:
    """One number per channel, also from arrays shaped for broadcasting, ``[3, 1, 1]``."""
    if not _several(value):
        return (value,)
    if len(value) == 1 and _several(value[0]):
        return _of_channels(value[0])
    return tuple(_of_channels(each)[0] if _several(each) and len(each) == 1 else each for each in value)


def _part(level: Any, white: float) -> Any:
    """Pixel values as fractions of white."""
    if _several(level):
        return tuple(_part(each, white) for each in level)
    return level / white if isinstance(level, (int, float)) else level


# Geometry


class Resize(Transform):
    """Resizes an image.

    - ``size``: an int is the shorter side, and the aspect ratio stays. Height and width: exactly this size.
    - ``max_size``: not supported. ``RandomShortestSize`` limits the longer side.
    """

    _only = {"max_size": None}

    size: _Size
    interpolation: _Interpolation = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        return [{"op": "resize_shorter" if isinstance(self.size, int) else "resize_exact", **self._settings(white)}]


class ResizeKeepRatio(Transform, op="resize_keep_ratio"):
    """timm's ``ResizeKeepRatio``, without its random parts: resizes and keeps the aspect ratio.

    - ``size``: height and width, or one number for both.
    - ``longest``: 0: images cover ``size``; 1: images fit into ``size``; between 0 and 1: between both.
    """

    size: _Size
    longest: float = 0.0
    interpolation: _Interpolation = "bilinear"
    _: KW_ONLY
    antialias: bool = True


class CenterCrop(Transform, op="center_crop"):
    """Crops ``size`` from the centre. A smaller image is padded with black."""

    size: _Size


class RandomCrop(Transform, op="random_crop"):
    """Crops ``size`` at a random place.

    - ``padding``: number of black pixels added on every side before the crop, the same on all sides. None: 0.

    An image that is still smaller than ``size`` is a bad sample.
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
            raise self._refused(name, value, f"all sides must have the same padding; {_INSTEAD}")
        return value[0]

    def _settings(self, white: float) -> _Step:
        return {**super()._settings(white), "padding": self.padding or 0}


class RandomResizedCrop(Transform, op="random_resized_crop"):
    """Crops a random part of the image and resizes it to ``size``.

    - ``scale``: smallest and largest fraction of the image's area.
    - ``ratio``: smallest and largest aspect ratio, width / height.
    """

    size: _Size
    scale: _Range = (0.08, 1.0)
    ratio: _Range = (3 / 4, 4 / 3)
    interpolation: _Interpolation = "bilinear"
    antialias: bool = True


class RandomHorizontalFlip(Transform, op="horizontal_flip"):
    """Mirrors left and right with probability ``p``."""

    p: float = 0.5


class RandomVerticalFlip(Transform, op="vertical_flip"):
    """Mirrors top and bottom with probability ``p``."""

    p: float = 0.5


class _Warp(Transform):
    _kinds = _WARPS


class RandomRotation(_Warp, op="random_rotation"):
    """Rotates images, which keep their size.

    - ``degrees``: counterclockwise; a number ``d`` draws from ``-d`` to ``d``, two numbers are smallest and largest angle.
    - ``center``: centre of the rotation, x and y in pixels. None: the image's centre.
    - ``fill``: value of the empty area, one number or one per channel. None: black, without a seam along the edge.
    """

    _only = {"expand": False}

    degrees: float | _Range
    interpolation: _Interpolation = "nearest"
    expand: bool = False
    center: _Range | None = None
    fill: _Fill = 0


class RandomAffine(_Warp, op="random_affine"):
    """Rotates, moves, scales and shears images.

    - ``degrees``: clockwise; a number ``d`` draws from ``-d`` to ``d``, two numbers are smallest and largest angle.
    - ``translate``: largest shift across and down, as fractions of width and height, 0 to 1. None: no shift.
    - ``scale``: smallest and largest factor, above 0. None: no scaling.
    - ``shear``: degrees along x: a number ``d`` draws from ``-d`` to ``d``, two are the ends. Of four numbers the last two
      are along y. None: no shear.
    - ``fill``, ``center``: as in ``RandomRotation``.
    """

    degrees: float | _Range
    translate: _Range | None = None
    scale: _Range | None = None
    shear: float | _Range | None = None
    interpolation: _Interpolation = "nearest"
    fill: _Fill = 0
    center: _Range | None = None


class RandomPerspective(_Warp, op="random_perspective"):
    """Moves the four corners inwards with probability ``p``.

    - ``distortion_scale``: largest distance, as a fraction of half the image, 0 to 1.
    - ``fill``: as in ``RandomRotation``.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: _Interpolation = "bilinear"
    fill: _Fill = 0


class RandomErasing(Transform, op="random_erasing"):
    """Overwrites a random rectangle with probability ``p``.

    - ``scale``: smallest and largest fraction of the image's area, 0 to 1.
    - ``ratio``: smallest and largest height / width.
    - ``value``: what is written: one number, or one per channel, on the scale of the pixels at this point (after
      ``Normalize``: normalised). ``"random"``: normal noise, drawn for each value; ``"color"``: drawn once per channel.
      Noise needs ``ToFloat`` or ``Normalize`` before it.
    - ``count``: largest number of rectangles; 1 to ``count`` are drawn and share the area.
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
        # torchvision's object stores "random" as None.
        return "random" if name == "value" and value is None else super()._checked(name, value)


class Cutout(Transform, op="cutout"):
    """Blanks a square of ``size`` pixels around a random place; the image's edges may cut it off.

    The square is black, or after ``Normalize`` the mean.
    """

    size: int


# Colour


class ColorJitter(Transform, op="color_jitter"):
    """Changes brightness, contrast, saturation and hue in a random order.

    - ``brightness``, ``contrast``, ``saturation``: a number ``v`` draws a factor from ``max(0, 1 - v)`` to ``1 + v``;
      two numbers are smallest and largest factor. None: no change.
    - ``hue``: shift in turns of the colour circle: a number ``h`` up to 0.5 draws from ``-h`` to ``h``; two numbers are the
      ends, -0.5 to 0.5. None: no change.
    """

    brightness: float | _Range | None = None
    contrast: float | _Range | None = None
    saturation: float | _Range | None = None
    hue: float | _Range | None = None

    def _settings(self, white: float) -> _Step:
        return {name: value or 0.0 for name, value in super()._settings(white).items()}


class RandomPhotometricDistort(Transform, op="random_photometric_distort"):
    """SSD's colour changes: brightness, contrast, saturation, hue and order of the channels, each with probability ``p``.

    ``brightness``, ``contrast`` and ``saturation`` are smallest and largest factor, ``hue`` the ends of the shift in turns of
    the colour circle, -0.5 to 0.5.
    """

    brightness: _Range = (0.875, 1.125)
    contrast: _Range = (0.5, 1.5)
    saturation: _Range = (0.5, 1.5)
    hue: _Range = (-0.05, 0.05)
    p: float = 0.5


class Grayscale(Transform, op="grayscale"):
    """Converts images to gray, with 1 channel or 3 equal channels."""

    num_output_channels: int = 1

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        # The engine keeps gray images as they are.
        spread: list[_Step] = [{"op": "gray_to_rgb"}] if self.num_output_channels == 3 and not nested else []
        return super()._steps(white, nested) + spread


class RandomGrayscale(Transform, op="random_grayscale"):
    """Converts images to gray with probability ``p``; the number of channels stays."""

    p: float = 0.1


class RGB(Transform, op="gray_to_rgb"):
    """Repeats the channel of gray images, to get 3 channels."""


class GaussianBlur(Transform, op="gaussian_blur"):
    """Blurs with a Gaussian kernel, with probability ``p``.

    - ``kernel_size``: odd number of pixels; one number, or width and height. Images must be larger than half of it.
    - ``sigma``: standard deviation in pixels, above 0; two numbers are the smallest and largest.
    """

    kernel_size: _Size
    sigma: float | _Range = (0.1, 2.0)
    _: KW_ONLY
    p: float = 1.0

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        if isinstance(self.kernel_size, Sequence):
            # The engine takes height and width.
            told["kernel_size"] = list(reversed(self.kernel_size))
        if isinstance(self.sigma, (int, float)):
            told["sigma"] = [self.sigma] * 2
        return told


class RandomInvert(Transform, op="random_invert"):
    """Makes a negative with probability ``p``."""

    p: float = 0.5


class RandomPosterize(Transform, op="random_posterize"):
    """Keeps the highest ``bits`` (0 to 8) of each byte, with probability ``p``."""

    bits: int
    p: float = 0.5


class RandomSolarize(Transform, op="random_solarize"):
    """Inverts values of ``threshold`` or more, with probability ``p``.

    ``threshold`` is on the scale of the pixels at this point: 0 to 255, or 0 to 1 after ``ToFloat``.
    """

    threshold: float
    p: float = 0.5

    def _settings(self, white: float) -> _Step:
        # For bytes, a threshold halfway between two levels, so that rounding cannot change the comparison.
        level = max(math.ceil(self.threshold) - 0.5, 0.0) if white == _WHITE else self.threshold
        return {"threshold": level / white, "p": self.p}


class RandomAdjustSharpness(Transform, op="random_adjust_sharpness"):
    """Blurs or sharpens with probability ``p``. ``sharpness_factor``: 0 blurs, 1 changes nothing, 2 doubles the sharpness."""

    sharpness_factor: float
    p: float = 0.5


class RandomAutocontrast(Transform, op="random_autocontrast"):
    """Stretches each channel to the range from black to white, with probability ``p``."""

    p: float = 0.5


class RandomEqualize(Transform, op="random_equalize"):
    """Equalizes the histogram of each channel, with probability ``p``."""

    p: float = 0.5


class RandomChannelPermutation(Transform, op="random_channel_permutation"):
    """Puts the channels into a random order."""


# Policies


class RandAugment(_Warp, op="rand_augment"):
    """Applies a few random steps of the same magnitude.

    - ``num_ops``: number of steps.
    - ``magnitude``: index of the magnitude among ``num_magnitude_bins``, from 0.
    - ``interpolation``, ``fill``: for steps that warp. ``fill`` None: black, without a seam along the edge.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: _Interpolation = "nearest"
    fill: _Fill = None


class TrivialAugmentWide(_Warp, op="trivial_augment_wide"):
    """Applies one random step of a random magnitude, one of ``num_magnitude_bins``. Otherwise as ``RandAugment``."""

    num_magnitude_bins: int = 31
    interpolation: _Interpolation = "nearest"
    fill: _Fill = None


class AutoAugment(_Warp, op="auto_augment"):
    """Applies one of 25 learned pairs of steps.

    ``policy`` is the dataset on which they were learned: ``"imagenet"``, ``"cifar10"`` or ``"svhn"``. Otherwise as
    ``RandAugment``.
    """

    policy: str | Enum = "imagenet"
    interpolation: _Interpolation = "nearest"
    fill: _Fill = None

    def _checked(self, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        return self._named(name, value, ("imagenet", "cifar10", "svhn")) if name == "policy" else value


class AugMix(_Warp, op="aug_mix"):
    """Blends the image with the results of several chains of random steps. Not for records with masks.

    - ``severity``: magnitudes are drawn from the first ``severity`` of ten.
    - ``mixture_width``: number of chains.
    - ``chain_depth``: steps per chain. 0 or less: drawn, 1 to 3.
    - ``alpha``: parameter of the distributions of the blend's weights, above 0.
    - ``all_ops``: include brightness, colour, contrast and sharpness.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: _Interpolation = "bilinear"
    fill: _Fill = None


class TimmRandAugment(_Warp, op="timm_rand_augment"):
    """timm's RandAugment. The defaults are ``rand-m9-mstd0.5-inc1``.

    - ``magnitude``, ``magnitude_std``, ``magnitude_max``: mean, standard deviation and upper limit of a normal
      distribution; the lower limit is 0. With a deviation above 100 the magnitude is uniform from 0 to ``magnitude``.
    - ``increasing``: every step changes the image more as the magnitude grows (timm's ``inc1``).
    - ``num_ops``: number of steps. ``p``: probability of each.
    - ``interpolation``: one for all steps that warp, or several, from which each step draws one.
    - ``fill``: value of the empty area; timm's recipes use the mean.
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
    """Makes the image gray, solarized or blurred, one of the three at random. DeiT III's augmentation without colour jitter."""


# Lists


class _Group(Transform):
    transforms: Sequence[_Item]

    def _checked(self, name: str, value: Any) -> Any:
        if name != "transforms":
            return super()._checked(name, value)
        # Lists of torch.nn are not of the type Sequence.
        if isinstance(value, (str, Mapping, Transform)) or not hasattr(value, "__len__"):
            raise TypeError(f"{type(self).__name__}(transforms={value!r}): must be a list of transforms")
        if not len(value):
            raise ValueError(f"{type(self).__name__}(transforms={value!r}): give at least one transform")
        return tuple(value)

    def _each(self, white: float) -> list[_Step]:
        """Each of the transforms as one step."""
        return [_one(_lowered([transform], white, nested=True)) for transform in self.transforms]


def _one(steps: list[_Step]) -> _Step:
    if len(steps) == 1:
        return steps[0]
    return {"op": "random_apply", "transforms": steps, "p": 1.0} if steps else {"op": "random_invert", "p": 0.0}


class Compose(_Group):
    """Applies one step after another. ``Loader(transform=)`` also takes the plain list."""

    def _parts(self) -> Iterable[object]:
        return self.transforms


class RandomApply(_Group):
    """Applies all of its steps with probability ``p``, otherwise none. Steps must keep the image's size."""

    p: float = 0.5

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        inner = _lowered(self.transforms, white, nested=True)
        return [{"op": "random_apply", "transforms": inner, "p": self.p}] if inner else []


class RandomChoice(_Group):
    """Applies one of its steps, by the weights ``p`` (None: equal weights). Steps must keep the image's size."""

    p: Sequence[float] | None = None

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        # Equal weights give the same draws as no weights.
        p = list(self.p) if self.p is not None and len(set(self.p)) > 1 else None
        return [{"op": "random_choice", "transforms": self._each(white), "p": p}]


class RandomOrder(_Group):
    """Applies all of its steps in a random order. Steps must keep the image's size."""

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        return [{"op": "random_order", "transforms": self._each(white)}]


# Values


class Normalize(Transform, op="normalize"):
    """Scales values to 0 to 1 (if ``ToFloat`` did not), subtracts ``mean`` and divides by ``std``.

    ``mean`` and ``std``: one number per channel, or one for all channels.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]
    inplace: bool = False

    def _checked(self, name: str, value: Any) -> Any:
        value = super()._checked(name, value)
        return value if name == "inplace" else _of_channels(value)

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        # One may be a single number while the other has one per channel.
        most = max(len(told["mean"]), len(told["std"]))
        return {name: values * most if len(values) == 1 else values for name, values in told.items()}


class ToFloat(Transform, op="to_float"):
    """Scales values to floats from 0 to 1. Later steps work on floats. Not needed before ``Normalize``, which scales too."""


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
            why = "Loader(dtype='float32') gives values 0 to 255 without it: omit it, or set scale=True for 0 to 1"
        elif wanted == "uint8":
            why = "values are 0 to 1 here: omit the steps that scale them, and give Loader(dtype='uint8')"
        else:
            why = f"use float32 with scale=True here, and set the type of rows with Loader(dtype={wanted!r})"
        raise self._refused("dtype", wanted, why)


class ToDtype(_Dtype):
    """With ``float32`` and ``scale=True``: as ``ToFloat``. With ``uint8`` while values are bytes: no effect.

    The loader sets the type of rows: ``Loader(dtype="bfloat16")``.

    - ``dtype``: type of images, ``torch.float32`` or ``"float32"``; or a dict by type as in torchvision, whose ``Mask`` entry
      becomes ``mask``.
    - ``mask``: type of masks, which ``mask_dtype`` returns. None: masks stay bytes.
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
        """The types of images and of masks, from torchvision's types by type."""
        named: dict[str, Any] = {getattr(kind, "__name__", kind): dtype for kind, dtype in dtypes.items()}
        found = next((kind for kind in ("Image", "Tensor", "others") if kind in named), None)
        if found is None:
            raise self._refused("dtype", dtypes, "it has no type for images: add one for Image")
        if _dtype(named.get("BoundingBoxes", named.get("others"))) not in (None, "float32"):
            raise self._refused("dtype", dtypes, "BoundingBoxes are float32: give None for them")
        return named[found], named.get("Mask", named.get("others"))

    def _checked(self, name: str, value: Any) -> Any:
        return _dtype(value) if name == "mask" else super()._checked(name, value)

    def _scales(self) -> bool:
        return self.scale


class ConvertImageDtype(_Dtype):
    """As ``ToDtype`` with ``scale=True``."""

    dtype: object = "float32"


class _Nothing(Transform):
    def _steps(self, white: float, nested: bool) -> list[_Step]:
        return []


class Identity(_Nothing):
    """No effect."""


class ToImage(_Nothing):
    """No effect, taken for torchvision's sake."""


class PILToTensor(_Nothing):
    """No effect, taken for torchvision's sake."""


class ToPureTensor(_Nothing):
    """No effect, taken for torchvision's sake."""


class ToPILImage(_Nothing):
    """No effect while values are bytes. ``TypeError`` after ``ToFloat``, ``ToTensor`` or ``Normalize``."""

    _only = {"mode": None}

    mode: str | None = None

    def _steps(self, white: float, nested: bool) -> list[_Step]:
        if white != _WHITE:
            raise TypeError(f"ToPILImage(): values are floats here: omit the steps that make them floats; or {_INSTEAD}")
        return []


# Detection


class RandomShortestSize(Transform, op="random_shortest_size"):
    """Resizes the shorter side to one of ``min_size``, drawn uniformly; the longer side stays at or below ``max_size``.

    The results differ in size: follow with a crop or ``PadTo``.
    """

    min_size: _Size
    max_size: int | None = None
    interpolation: _Interpolation = "bilinear"
    antialias: bool = True


class ScaleJitter(Transform, op="scale_jitter"):
    """Resizes images to fit into ``target_size``, times a random factor from ``scale_range``.

    The results differ in size. ``target_size`` is width and height, in torchvision's order, or one number for both.
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
    """Puts the image at a random place on a larger canvas, with probability ``p``.

    - ``fill``: value of the canvas, one number or one per channel.
    - ``side_range``: smallest and largest side of the canvas, as a multiple of the image's side, at least 1.
    """

    fill: _Fill = 0
    side_range: _Range = (1.0, 4.0)
    p: float = 0.5

    def _settings(self, white: float) -> _Step:
        told = super()._settings(white)
        return {**told, "fill": told["fill"] or 0.0}


class RandomIoUCrop(Transform, op="random_iou_crop"):
    """SSD's random crop, which must contain enough of a box. For records with boxes.

    Boxes whose centre is outside the crop get size 0; ``SanitizeBoundingBoxes`` drops them.

    - ``min_scale``, ``max_scale``: limits of the crop's sides, as fractions of the image's sides, above 0 up to 1.
    - ``min_aspect_ratio``, ``max_aspect_ratio``: limits of width / height.
    - ``sampler_options``: smallest overlaps (IoU), from which one is drawn. 1 or more: no crop. None: SSD's seven.
    - ``trials``: number of tries with the drawn overlap.
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
    """Crops ``size`` at a random place. A smaller image is padded with black at the right and bottom."""

    size: _Size


class PadTo(Transform, op="pad_to"):
    """Pads with black at the right and bottom, up to ``size``. A larger image is a bad sample."""

    size: _Size


class PadToLargest(Transform, op="pad_to_largest"):
    """Pads with black at the right and bottom, up to the largest image of the batch. Batches then differ in size.

    - ``max_size``: largest height and width; a larger image is a bad sample.
    - ``multiple_of``: heights and widths are rounded up to a multiple of this.
    """

    max_size: _Size
    multiple_of: int = 1


class SanitizeBoundingBoxes(Transform, op="sanitize_bounding_boxes"):
    """Drops boxes narrower or lower than ``min_size`` pixels, or smaller than ``min_area`` square pixels.

    Their labels and masks are dropped too.
    """

    _only = {"labels_getter": "default"}

    min_size: float = 1.0
    min_area: float = 1.0
    labels_getter: str = "default"


class ClampBoundingBoxes(_Nothing):
    """No effect: boxes are always clipped to their image."""

    clamping_mode: Literal["auto", "soft", "hard"] = "auto"

    def _checked(self, name: str, value: Any) -> Any:
        if value is None:
            raise self._refused(name, value, "boxes are always clipped to their image: omit it")
        return super()._checked(name, value)


class ConvertBoundingBoxFormat(Transform, op="convert_bounding_box_format"):
    """Sets the format of boxes in batches, from any position in the list.

    - ``format``: ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``.
    - ``normalized``: True: fractions of the row's width and height, 0 to 1. False: pixels.
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
    """Mirrors a volume along ``axis``, ``"z"`` (slices), ``"y"`` (lines) or ``"x"``, with probability ``p``."""

    axis: _Axis
    p: float = 0.5


class Rot90(Transform, op="rot90"):
    """Rotates a volume by 90, 180 or 270 degrees in ``plane``, from its first axis to its second, with probability ``p``.

    Both axes must have the same length.
    """

    plane: Sequence[_Axis] = ("y", "x")
    p: float = 0.5


class PadOrCrop(Transform, op="pad_or_crop"):
    """Crops or pads a volume around its centre to ``size`` (depth, height, width, or one number); ``value`` is the padding."""

    size: _Size
    value: float = 0.0


class Patch(Transform, op="patch"):
    """Crops a box of ``size`` (depth, height, width, or one number) from a volume at a random place.

    ``foreground``: probability that the box is placed around a voxel that is not 0 in the record's first mask.
    """

    size: _Size
    foreground: float = 0.0


class Window(Transform, op="window"):
    """Maps the intensities of a volume from ``low`` … ``high`` to 0 … 1, and clips values outside."""

    low: float
    high: float


class Scale(Transform, op="scale"):
    """Multiplies the intensities of a volume by ``scale`` and adds ``bias``."""

    scale: float
    bias: float = 0.0


class Clamp(Transform, op="clamp"):
    """Clips the intensities of a volume to ``low`` … ``high``."""

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


# By torchvision's names.
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
# Hints for some steps without an equivalent.
_OTHERWISE = {
    "Pad": "use RandomCrop(size, padding=), which pads and then crops, or infeed.transforms.PadTo, which pads up to a size",
    "RandomResize": "use RandomShortestSize(list(range(min_size, max_size))), which draws the shorter side from a list",
    "SetClampingMode": "boxes are always clipped to their image: omit it",
}
# Attributes whose name is not that of their argument.
_KEPT_AS = {"sampler_options": "options"}
# Attributes that follow from others or do not matter: torch's, and the steps of a policy.
_DERIVED = {"training", "policies"}


def _of_torchvision(it: object) -> Transform:
    name = type(it).__name__
    kind = _TORCHVISION.get(name)
    if kind is None:
        raise TypeError(f"torchvision's {name} has no equivalent in infeed: {_otherwise(name, it)}")
    arguments = {argument: _KEPT_AS.get(argument, argument) for argument in kind.__dataclass_fields__}
    unknown = {attribute for attribute in vars(it) if attribute[0] != "_"} - _DERIVED - {*arguments.values()}
    if unknown:
        what = f"torchvision's {name} has {', '.join(sorted(unknown))}"
        raise TypeError(f"{what}, which this release of infeed does not support; {_INSTEAD}")
    try:
        given = {argument: getattr(it, kept) for argument, kept in arguments.items() if hasattr(it, kept)}
        return kind(**given)
    except ValueError as error:
        raise TypeError(f"torchvision's {error}; or {_INSTEAD}") from None


def _otherwise(name: str, it: Any) -> str:
    if name in ("MixUp", "CutMix"):
        mix = {name.lower(): it.alpha} | ({} if it.num_classes is None else {"num_classes": it.num_classes})
        return f"use Loader(mix={mix}), which mixes whole batches"
    return _OTHERWISE.get(name, _INSTEAD)


# timm's objects


def _timm_erasing(it: Any) -> Transform:
    if it.min_count != 1:
        raise TypeError(f"timm's RandomErasing(min_count={it.min_count}): only min_count=1 is supported; {_INSTEAD}")
    least, most = map(math.exp, it.log_aspect_ratio)
    value = {"rand": "color", "pixel": "random"}.get(it.mode, 0.0)
    # Its num_splits is for whole batches; erasing here is image by image.
    return RandomErasing(
        it.probability, scale=(it.min_area, it.max_area), ratio=(least, most), value=value, count=it.max_count
    )


# The steps of timm's RandAugment. With `inc1` some are replaced by their "Increasing" variant.
_TIMM_STEPS = [
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
]
_TIMM_INCREASING = {"Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness"}


def _timm_rand_augment(it: Any) -> Transform:
    def refused(why: str) -> TypeError:
        return TypeError(f"timm's RandAugment has {why}; {_INSTEAD}")

    if it.choice_weights is not None:
        raise refused("weights of its steps, and here all steps are equally likely")
    names = [op.name for op in it.ops]
    increasing = names == [name + "Increasing" * (name in _TIMM_INCREASING) for name in _TIMM_STEPS]
    if not increasing and names != _TIMM_STEPS:
        raise refused(f"the steps {', '.join(names)}: only the steps of rand-m9 or rand-m9-inc1 are supported")
    first = it.ops[0]
    for said in ("prob", "magnitude", "magnitude_std", "magnitude_max", "hparams", "kwargs"):
        if any(getattr(op, said) != getattr(first, said) for op in it.ops):
            raise refused(f"steps that differ in {said}")
    if (reach := first.hparams.get("translate_pct", 0.45)) != 0.45:
        raise refused(f"translate_pct={reach}, and here it is always 0.45")
    deviation, most = first.magnitude_std, first.magnitude_max or 10.0
    if deviation == math.inf:
        # The engine draws uniformly if the deviation is above 100.
        deviation = 101.0
    elif deviation > 100:
        raise refused(f"magnitude_std={deviation}, and here magnitudes are uniform if it is above 100")
    return TimmRandAugment(
        # A magnitude that is not drawn is limited here.
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
            raise TypeError(f"timm's ResizeKeepRatio({name}={p}): its random parts are not supported; {_INSTEAD}")
    return ResizeKeepRatio(it.size, it.longest, it.interpolation)


def _timm_center_crop(it: Any) -> Transform:
    for name, only in (("fill", (0, (0, 0, 0))), ("padding_mode", ("constant",))):
        value = _plain(getattr(it, name))
        if value not in only:
            raise TypeError(f"timm's CenterCropOrPad({name}={value!r}): a smaller image is always padded with black")
    return CenterCrop(it.size)


# By timm's names: the known attributes, and a function that makes the equivalent.
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
    "ToTensor": "omit it: Loader(dtype='float32') gives values 0 to 255 without it",
}


def _of_timm(it: object) -> Transform:
    name = type(it).__name__
    if name not in _TIMM:
        raise TypeError(f"timm's {name} has no equivalent in infeed: {_TIMM_OTHERWISE.get(name, _INSTEAD)}")
    known, make = _TIMM[name]
    unknown = {attribute for attribute in vars(it) if attribute[0] != "_"} - _DERIVED - {*known.split()}
    if unknown:
        what = f"timm's {name} has {', '.join(sorted(unknown))}"
        raise TypeError(f"{what}, which this release of infeed does not support; {_INSTEAD}")
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
# A function's flags for `*` and `**`, and for generators and coroutines.
_KIND_OF_CODE = 0x04 | 0x08 | 0x20 | 0x80 | 0x200


def _applied_by(method: object) -> str | None:
    """The name of the attribute that a method applies to its arguments, if it does nothing else; otherwise None."""
    if not isinstance(method, FunctionType) or method.__defaults__ or method.__kwdefaults__:
        return None
    code = method.__code__
    for same in _APPLIES:
        # The byte code refers to names by index, so it is the same for every name.
        if (
            (code.co_code, code.co_argcount, code.co_kwonlyargcount, code.co_flags & _KIND_OF_CODE)
            == (same.co_code, same.co_argcount, same.co_kwonlyargcount, same.co_flags & _KIND_OF_CODE)
        ) and len(code.co_names) == 1:
            return code.co_names[0]
    return None


def _written(kind: type, name: str) -> Any:
    """A class's attribute as written in the class or a base, without calling a descriptor."""
    return next((vars(of)[name] for of in kind.__mro__ if name in vars(of)), None)


def _torchs(kind: type, name: str) -> type | None:
    """The class `name` of `torch.nn`, if `kind` is it or derives from it."""
    return next((of for of in kind.__mro__ if of.__name__ == name and of.__module__.startswith("torch.nn.")), None)


def _wrapped(it: object) -> list[Any] | None:
    """The transforms that calling the object applies in order, if it certainly does nothing else; otherwise None."""
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
    # In Python's lookup order.
    found = next((of[name] for of in (held, {name: of_class}, modules) if of.get(name) is not None), None)
    return None if found is None else [found]


def _foreign(it: object) -> Callable[[object], Transform] | None:
    """The converter for an object of torchvision or timm, chosen by the module of its class."""
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
    raise TypeError(f"{it!r} is not a transform of infeed.transforms, torchvision or timm; {instead}")


def _flat(transforms: Iterable[object], *, foreign: bool = False) -> Iterator[_Flat]:
    """The steps without nested lists, each with a flag: whether it is from another library."""
    for it in transforms:
        if isinstance(it, Mapping):
            yield it, False
            continue
        transform = _taken(it)
        parts, whose = transform._parts(), foreign or transform is not it
        if parts is None:
            yield transform, whose
        else:
            # Steps of a list keep their own origin; steps of a preset have the preset's.
            yield from _flat(parts, foreign=whose and not isinstance(transform, Compose))


# Steps that make a tensor from a Pillow image, and steps that need a tensor.
_OF_PICTURES = (ToTensor, PILToTensor, ToImage, ToFloat)
_OF_TENSORS = (ToDtype, ConvertImageDtype, Normalize, RandomErasing, ToPILImage)


def _on_pictures(flat: Sequence[_Flat]) -> list[bool]:
    """For each step: whether it is from another library and works on a Pillow image, not on a tensor.

    The chain starts with Pillow images if a step that makes tensors comes before any step that needs tensors.
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
    """A resize as Pillow does it: nearest is torch's ``nearest-exact``, and filters are always antialiased."""
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
    """Removes ``to_float`` before ``normalize``, which scales too. Draws depend on a step's position in the shortened list.

    It stays before a bicubic or Lanczos resize, which rounds bytes between its passes, but not floats.
    """
    for place in reversed(range(len(lowered))):
        step = lowered[place]
        if step.get("op") == "to_float":
            del lowered[place]
            return
        kinds = step.get("interpolation", ())
        if step.get("op") not in _FOLDED or {"bicubic", "lanczos"} & {*([kinds] if isinstance(kinds, str) else kinds)}:
            return


def steps(transform: Like) -> str | list[dict[str, Any]] | None:
    """Converts a value of ``Loader(transform=)`` into the engine's steps.

    - None, the name of a preset, or steps in one line: returned unchanged.
    - A transform of this module, of torchvision (v1, v2, and ``weights.transforms()``) or of timm, a
      ``torch.nn.Sequential`` of them, or a dict of the engine; or a sequence of these. Dicts have the engine's names and
      units: levels are fractions of white, 0 to 1, at every point of the list.
    - An object whose ``__call__`` or ``forward`` only does ``return self.transforms(img)`` (with any attribute name), such
      as torchvision's ``ClassificationPresetTrain``.

    ``ToTensor``, ``ToDtype`` and similar steps are removed before ``Normalize``, which also scales values to 0 to 1, unless a
    bicubic or Lanczos resize is between them.

    A resize of torchvision before ``ToTensor``, ``PILToTensor`` or ``ToImage`` is Pillow's: ``NEAREST`` means
    ``"nearest-exact"``, and it is antialiased even with ``antialias=False``. Elsewhere it is torch's, on tensors.

    Raises ``TypeError`` for a step without an equivalent; the message has its name, the argument, and what to do.
    """
    if transform is None or isinstance(transform, str):
        return transform
    return _lowered(transform if _several(transform) else [transform], _WHITE)


def _listed(transform: Like) -> list[_Flat]:
    if transform is None or isinstance(transform, str):
        return []
    return list(_flat(transform if _several(transform) else [transform]))


def output_dtype(transform: Like, given: str | None = None) -> str | None:
    """The type of the tensors that a chain of torchvision or timm returns: ``"uint8"`` or ``"float32"``.

    ``PILToTensor`` and ``ToImage`` return bytes, ``ToTensor`` and ``Normalize`` floats. A chain without such a step returns
    the type of the tensors that it is ``given``. None if the chain does not determine it: no chain, the name of a preset, a
    line, or a chain with steps of this module or dicts.

    Raises ``TypeError`` as ``steps`` does.
    """
    flat = _listed(transform)
    found = given if flat else None
    for it, foreign in flat:
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
    """The type that a chain gives to masks, by torch's name, such as ``"int64"``. None: masks keep their type.

    ``ToDtype`` sets it: ``v2.ToDtype({tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None},
    scale=True)``.

    Raises ``TypeError`` as ``steps`` does.
    """
    said = [it.mask for it, _ in _listed(transform) if isinstance(it, ToDtype) and it.mask is not None]
    return _dtype(said[-1]) if said else None
