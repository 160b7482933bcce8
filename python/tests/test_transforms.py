"""Transforms are the engine's steps in torchvision's words, and torchvision's own objects are the same steps."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import infeed
import pytest
from conftest import png
from infeed import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PICTURES = "synthetic://?count=6&height=60&width=80"


def loader(transform: Any, data: Any = PICTURES, **more: Any) -> infeed.Loader:
    return infeed.Loader(data, batch_size=3, transform=T.steps(transform), seed=5, **more)


def shown(transform: Any, data: Any = PICTURES, **more: Any) -> Any:
    """The images of all records."""
    numpy = pytest.importorskip("numpy")
    return numpy.concatenate([batch["image"].numpy() for batch in loader(transform, data, **more)])


def lowered(transform: Any) -> list[dict[str, Any]]:
    steps = T.steps(transform)
    assert isinstance(steps, list)
    return steps


def names(transform: Any) -> list[str]:
    return [step["op"] for step in lowered(transform)]


@pytest.fixture(scope="session")
def v1() -> Any:
    return pytest.importorskip("torchvision.transforms")


@pytest.fixture(scope="session")
def v2() -> Any:
    return pytest.importorskip("torchvision.transforms.v2")


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four pictures with a box each."""
    root = tmp_path_factory.mktemp("boxes")
    for i in range(4):
        (root / f"{i}.png").write_bytes(png(i, i, i))
    coco = {
        "images": [{"id": i, "file_name": f"{i}.png", "width": 24, "height": 24} for i in range(4)],
        "annotations": [
            {"id": i, "image_id": i, "bbox": [2, 3, 12, 9], "category_id": 1, "area": 108, "iscrowd": 0}
            for i in range(4)
        ],
        "categories": [{"id": 1, "name": "thing"}],
    }
    (root / "_annotations.coco.json").write_text(json.dumps(coco))
    return str(root)


@pytest.fixture(scope="session")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two patients with a volume of 6 x 8 x 8."""
    root = tmp_path_factory.mktemp("volumes")
    head = b"NRRD0004\ntype: int16\ndimension: 3\nsizes: 8 8 6\nendian: little\nencoding: raw\n\n"
    for patient in range(2):
        (root / f"p{patient}").mkdir()
        (root / f"p{patient}" / "ct.nrrd").write_bytes(head + bytes(6 * 8 * 8 * 2))
    return str(root)


# What stands for a preset, in words of torchvision's that are the module's too.


def recipe(of: Any, *steps: Any) -> Any:
    return of.Compose([*steps, of.Normalize(mean=MEAN, std=STD)])


def dino(of: Any, size: int, scale: tuple[float, float], *more: Any) -> Any:
    jitter = of.RandomApply([of.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
    crop = of.RandomResizedCrop(size, scale=scale, interpolation="bicubic")
    return recipe(of, crop, of.RandomHorizontalFlip(), jitter, of.RandomGrayscale(0.2), *more)


BOTH: dict[str, Callable[[Any], Any]] = {
    "imagenet-train": lambda of: recipe(of, of.RandomResizedCrop(224), of.RandomHorizontalFlip(), of.PILToTensor()),
    "imagenet-val": lambda of: recipe(of, of.Resize(256), of.CenterCrop(224)),
    "caltech": lambda of: recipe(of, of.Resize([256, 256]), of.RandomCrop(224)),
    "cells": lambda of: of.Compose([of.Resize((220, 224)), of.CenterCrop(220), of.ToTensor()]),
    "torchvision-v2-train": lambda of: of.Compose(
        [
            recipe(of, of.RandomResizedCrop(176), of.RandomHorizontalFlip(), of.TrivialAugmentWide(interpolation=2)),
            of.RandomErasing(0.1),
        ]
    ),
    "torchvision-v2-val": lambda of: recipe(of, of.Resize(232), of.CenterCrop(224)),
}
OURS: dict[str, Callable[[], Any]] = {
    "none": lambda: [],
    "cifar-train": lambda: [
        T.RandomCrop(32, padding=4),
        T.RandomHorizontalFlip(),
        T.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    ],
    "deit-train": lambda: [
        recipe(
            T,
            T.RandomResizedCrop(224, interpolation="bicubic"),
            T.RandomHorizontalFlip(),
            T.TimmRandAugment(interpolation="bicubic", fill=(124, 116, 104)),
        ),
        T.RandomErasing(0.25, scale=(0.02, 1 / 3), ratio=(0.3, 1 / 0.3), value="random"),
    ],
    "timm-a1": lambda: recipe(
        T,
        T.RandomResizedCrop(224, interpolation=["bilinear", "bicubic"]),
        T.RandomHorizontalFlip(),
        T.TimmRandAugment(magnitude=7, fill=(124, 116, 104)),
    ),
    "simclr": lambda: [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        T.RandomGrayscale(0.2),
        T.GaussianBlur(23, p=0.5),
        T.ToFloat(),
    ],
    "dino-global-1": lambda: dino(T, 224, (0.4, 1.0), T.GaussianBlur(23)),
    "dino-global-2": lambda: dino(T, 224, (0.4, 1.0), T.GaussianBlur(23, p=0.1), T.RandomSolarize(128, 0.2)),
    "dino-local": lambda: dino(T, 96, (0.05, 0.4), T.GaussianBlur(9, p=0.5)),
}


@pytest.mark.parametrize("preset", [*BOTH, *OURS])
def test_what_is_composed_is_the_preset_of_its_name(preset: str) -> None:
    ours = BOTH[preset](T) if preset in BOTH else OURS[preset]()
    # A few pictures tell nothing of a probability.
    assert loader(ours).config == loader(preset).config
    assert shown(ours).tobytes() == shown(preset).tobytes()


@pytest.mark.parametrize("preset", BOTH)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_torchvisions_compose_is_the_preset_of_its_name(
    preset: str, version: str, request: pytest.FixtureRequest
) -> None:
    theirs = BOTH[preset](request.getfixturevalue(version))
    assert shown(theirs).tobytes() == shown(preset).tobytes()


def test_the_recipe_of_torchvisions_documentation_is_imagenets(v2: Any, torch: Any) -> None:
    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean=MEAN, std=STD)]
    crop = [v2.RandomResizedCrop(size=(224, 224), antialias=True), v2.RandomHorizontalFlip(p=0.5)]
    want = shown("imagenet-train").tobytes()
    assert shown(v2.Compose([*crop, v2.PILToTensor(), *end])).tobytes() == want
    start = [v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)]
    assert shown(v2.Compose([v2.Compose([*start, *crop]), *end, v2.ToPureTensor()])).tobytes() == want
    # Where values become floats says nothing of where pixels come from.
    assert shown(v2.Compose([v2.ToImage(), end[0], *crop, end[1]])).tobytes() == want
    assert shown(torch.nn.Sequential(*crop, *end)).tobytes() == want


def test_weights_bring_their_own(torch: Any, v2: Any) -> None:
    models = pytest.importorskip("torchvision.models")
    weights = models.ResNet50_Weights
    assert shown(weights.IMAGENET1K_V1.transforms()).tobytes() == shown("imagenet-val").tobytes()
    assert shown(weights.IMAGENET1K_V2.transforms()).tobytes() == shown("torchvision-v2-val").tobytes()
    swin = models.Swin_T_Weights.IMAGENET1K_V1.transforms()
    assert lowered(swin)[0] == {"op": "resize_shorter", "size": 232, "interpolation": "bicubic", "antialias": True}
    detection = models.detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1.transforms()
    assert names(detection) == ["to_float"]
    segmentation = models.segmentation.FCN_ResNet50_Weights.COCO_WITH_VOC_LABELS_V1.transforms()
    assert names(segmentation) == ["resize_shorter", "normalize"]
    video = models.video.R3D_18_Weights.KINETICS400_V1.transforms()
    with pytest.raises(TypeError, match="VideoClassification has no equivalent"):
        T.steps(video)


# Pixels.


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory, torch: Any) -> tuple[str, list[Any]]:
    """PNG pictures of two sizes, smooth and with noise, and what is in them as [3, H, W] of bytes."""
    io = pytest.importorskip("torchvision.io")
    root = tmp_path_factory.mktemp("noise")
    generator = torch.Generator().manual_seed(3)
    pictures: list[Any] = []
    for i, (height, width) in enumerate([(61, 97), (97, 61), (61, 97)]):
        coarse = torch.rand(1, 3, 6, 6, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")[0]
        rough = smooth + 0.15 * torch.randn(3, height, width, generator=generator)
        pictures.append((rough.clamp(0, 1) * 255).round().to(torch.uint8))
        (root / "one").mkdir(exist_ok=True)
        io.write_png(pictures[-1], str(root / "one" / f"{i}.png"), compression_level=1)
    return str(root), pictures


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("bytes_first", [False, True])
@pytest.mark.parametrize(
    ("interpolation", "antialias"),
    [
        ("bilinear", True),
        ("bilinear", False),
        ("bicubic", True),
        ("bicubic", False),
        ("nearest", True),
        ("nearest-exact", True),
    ],
)
def test_pixels_of_a_validation_chain_are_torchvisions(
    noise: tuple[str, list[Any]],
    torch: Any,
    version: str,
    interpolation: str,
    antialias: bool,
    bytes_first: bool,
    request: pytest.FixtureRequest,
) -> None:
    of = request.getfixturevalue(version)
    size = of.Resize(40, interpolation=of.InterpolationMode(interpolation), antialias=antialias)
    # One picture is narrower than the crop, and padded.
    chain = [size, of.CenterCrop((36, 48))]
    chain.insert(2 if bytes_first else 0, of.ConvertImageDtype(torch.float32))
    chain.append(of.Normalize(mean=MEAN, std=STD))
    folder, pictures = noise
    want = torch.stack([of.Compose(chain)(picture) for picture in pictures]).numpy()
    # Bicubic filters overshoot: the engine keeps what is bytes within 0 to 255, where torchvision's floats go beyond.
    black, white = ([[[(end - mean) / std]] for mean, std in zip(MEAN, STD, strict=True)] for end in (0, 1))
    want = want.clip(black, white)
    got = shown(of.Compose(chain), folder)
    assert got.shape == want.shape == (3, 3, 36, 48)
    apart = abs(got - want) * min(STD)
    if not bytes_first:
        # The last bits of f32.
        assert apart.max() < 4e-6
    elif interpolation == "bicubic":
        # The engine and v2 keep bytes between across and down; v2's weights, of 16 bits, now and then make another of a half.
        # v1 resizes tensors of bytes as floats, which differs at edges, where the first pass goes beyond 0 to 255.
        assert apart.mean() < 0.5 / 255 and (version == "v1" or apart.max() < 2.001 / 255)
        assert (apart > 2.001 / 255).mean() < 0.02
    else:
        # torchvision rounds to bytes after across and after down.
        assert apart.max() < 1.001 / 255


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("interpolation", "antialias", "bound"),
    [("nearest", True, 0), ("nearest-exact", True, 0), ("bilinear", True, 1), ("bilinear", False, 1)],
)
def test_pixels_of_a_resize_before_the_tensor_are_pillows(
    noise: tuple[str, list[Any]],
    v2: Any,
    version: str,
    interpolation: str,
    antialias: bool,
    bound: int,
    request: pytest.FixtureRequest,
) -> None:
    numpy = pytest.importorskip("numpy")
    of = request.getfixturevalue(version)
    folder, pictures = noise
    size = of.Resize((40, 44), interpolation=of.InterpolationMode(interpolation), antialias=antialias)
    ends = [of.PILToTensor()] if version == "v1" else [of.ToImage(), of.ToPureTensor()]
    chain = of.Compose([size, of.CenterCrop(36), *ends])
    want = numpy.stack([chain(v2.functional.to_pil_image(picture)).numpy() for picture in pictures])
    got = shown(chain, folder, dtype="uint8")
    assert abs(got.astype(int) - want.astype(int)).max() <= bound
    # Behind it they are torch's.
    chain = of.Compose([ends[0], of.CenterCrop(60), size])
    want = numpy.stack([chain(v2.functional.to_pil_image(picture)).numpy() for picture in pictures])
    got = shown(chain, folder, dtype="uint8")
    assert abs(got.astype(int) - want.astype(int)).max() <= bound


def test_a_chain_works_on_pictures_until_it_makes_tensors(v1: Any, v2: Any, torch: Any) -> None:
    nearest = v2.InterpolationMode.NEAREST

    def kinds(*chain: Any) -> list[Any]:
        return [step["interpolation"] for step in lowered(list(chain)) if "antialias" in step]

    floats = v2.ToDtype(torch.float32, scale=True)
    for of in (v1, v2):
        size, crop = of.Resize(9, interpolation=nearest), of.RandomResizedCrop(9, interpolation=nearest)
        assert kinds(size, of.ToTensor(), size) == ["nearest_exact", "nearest"]
        assert kinds(of.Compose([crop, of.PILToTensor()]), size) == ["nearest_exact", "nearest"]
        assert kinds(of.PILToTensor(), size, of.ToPILImage(), size, of.ToTensor()) == ["nearest", "nearest_exact"]
        # Those who want tensors got them.
        assert kinds(size, of.ConvertImageDtype(torch.float32), of.Normalize([0.5], [0.5])) == ["nearest"]
        assert kinds(size) == ["nearest"]
    assert kinds(v2.Resize(9, nearest), v2.ToImage(), floats) == ["nearest_exact"]
    assert kinds(v2.Resize(9, nearest), floats, v2.ToPureTensor()) == ["nearest"]
    jitter = v2.ScaleJitter((9, 9), interpolation=nearest, antialias=False)
    assert lowered([jitter, v2.ToImage()])[0]["antialias"] is True
    assert lowered([v2.ToImage(), jitter])[0]["antialias"] is False
    weights = pytest.importorskip("torchvision.models").ResNet50_Weights.IMAGENET1K_V1
    assert kinds(weights.transforms(interpolation=nearest)) == ["nearest_exact"]
    # The module's own say what they mean.
    assert kinds(T.Resize(9, "nearest"), v2.ToTensor()) == ["nearest"]


# Steps whose draws are fixed, so that pixels can be compared; with the levels by which bytes may differ.
FIXED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "Grayscale": (lambda of: of.Grayscale(3), 1),
    "RandomInvert": (lambda of: of.RandomInvert(p=1), 0),
    "RandomPosterize": (lambda of: of.RandomPosterize(3, p=1), 0),
    "RandomSolarize": (lambda of: of.RandomSolarize(129, p=1), 0),
    "RandomSolarize between": (lambda of: of.RandomSolarize(100.5, p=1), 0),
    "RandomAdjustSharpness": (lambda of: of.RandomAdjustSharpness(2.5, p=1), 1),
    "RandomAutocontrast": (lambda of: of.RandomAutocontrast(p=1), 1),
    "RandomEqualize": (lambda of: of.RandomEqualize(p=1), 0),
    "ColorJitter": (lambda of: of.ColorJitter(brightness=(1.3, 1.3)), 1),
    "GaussianBlur": (lambda of: of.GaussianBlur((3, 7), sigma=1.5), 1),
    "RandomRotation": (lambda of: of.RandomRotation((30, 30), fill=200), 0),
    "RandomRotation around": (lambda of: of.RandomRotation((30, 30), center=(5, 9), fill=(10, 99, 240)), 0),
    "RandomAffine": (lambda of: of.RandomAffine((10, 10), shear=(5, 5, 8, 8), interpolation=2, fill=77), 1),
    "RandomAffine scaled": (lambda of: of.RandomAffine((-20, -20), scale=(0.7, 0.7), interpolation=2), 1),
}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("step", FIXED)
def test_pixels_of_steps_without_chance_are_torchvisions(
    noise: tuple[str, list[Any]], torch: Any, step: str, version: str, request: pytest.FixtureRequest
) -> None:
    make, bound = FIXED[step]
    transform = make(request.getfixturevalue(version))
    folder, pictures = noise
    crop = request.getfixturevalue("v2").CenterCrop(48)
    # One that is cropped only is resampled by nobody.
    want = torch.stack([transform(crop(picture)) for picture in pictures]).numpy()
    got = shown([crop, transform], folder, dtype="uint8")
    assert got.shape == want.shape
    apart = abs(got.astype(int) - want.astype(int))
    # Nearest pixels may fall to either side of an edge.
    few = 0.002 if "Rotation" in step else 0.0
    assert (apart > bound).mean() <= few


def test_what_fills_counts_as_pixels_do_where_it_stands(v2: Any, torch: Any) -> None:
    to_float = v2.ToDtype(torch.float32, scale=True)
    for of in (T, v2):
        before = of.Compose([of.RandomRotation(9, fill=51), of.RandomErasing(value=[51, 102, 0]), of.ToTensor()])
        assert [step.get("fill", step.get("value")) for step in lowered(before)] == [0.2, [0.2, 0.4, 0.0], None]
        behind = of.Compose([of.ToTensor(), of.RandomRotation(9, fill=0.2), of.RandomSolarize(0.3)])
        assert [step.get("fill", step.get("threshold")) for step in lowered(behind)] == [None, 0.2, 0.3]
        erased = of.Compose([of.Normalize(MEAN, STD), of.RandomErasing(value=1.5)])
        assert lowered(erased)[1]["value"] == 1.5
        nested = of.RandomApply([of.RandomChoice([of.RandomPerspective(fill=255)])])
        assert lowered(nested)[0]["transforms"][0]["transforms"][0]["fill"] == 1.0
    # In a list within the list too.
    assert lowered(v2.Compose([v2.Compose([to_float]), v2.RandomRotation(9, fill=0.5)]))[1]["fill"] == 0.5
    assert lowered(T.RandAugment())[0]["fill"] is None
    assert lowered(T.RandomRotation(9))[0]["fill"] == 0.0


def test_settings_by_type_are_those_of_images(v2: Any, torch: Any) -> None:
    tensors = pytest.importorskip("torchvision.tv_tensors")
    out = v2.RandomZoomOut(fill={tensors.Image: (51, 102, 0), "others": 0})
    assert lowered(out)[0]["fill"] == [0.2, 0.4, 0.0]
    assert lowered(v2.RandomRotation(9, fill={"others": 255}))[0]["fill"] == 1.0
    assert names(v2.ToDtype({tensors.Image: torch.float32, "others": None}, scale=True)) == ["to_float"]
    with pytest.raises(TypeError, match="Mask"):
        T.steps(v2.RandomRotation(9, fill={tensors.Image: 0, tensors.Mask: 255}))


def test_types_by_type_are_those_of_images_and_masks(v2: Any, torch: Any) -> None:
    tensors = pytest.importorskip("torchvision.tv_tensors")
    image, mask, boxes = tensors.Image, tensors.Mask, tensors.BoundingBoxes

    def told(dtype: Any) -> tuple[list[str], str | None]:
        """The steps and the type of masks, of a chain as torchvision's tutorials have it."""
        chain = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(dtype, scale=True), v2.ToPureTensor()])
        return names(chain)[1:], T.mask_dtype(chain)

    assert told({image: torch.float32, mask: torch.int64, "others": None}) == (["to_float"], "int64")
    assert told({mask: torch.int64, "others": torch.float32}) == (["to_float"], "int64")
    assert told({image: torch.float32, mask: torch.int64, boxes: torch.float32}) == (["to_float"], "int64")
    assert told({image: torch.float32, boxes: None, "others": torch.int64}) == (["to_float"], "int64")
    assert told({mask: torch.int64, "others": None}) == ([], "int64")
    assert told({"others": torch.float32}) == (["to_float"], "float32")
    # A type alone is that of images.
    assert told(torch.float32) == told({image: torch.float32, "others": None}) == (["to_float"], None)
    ours = T.ToDtype({"Image": "float32", "Mask": "int64"}, scale=True)
    assert ours == T.ToDtype("float32", scale=True, mask="int64") and T.mask_dtype(ours) == "int64"
    assert [T.mask_dtype(other) for other in (None, "imagenet-train", [{"op": "to_float"}])] == [None] * 3
    for bad, words in [
        ({mask: torch.int64}, "no type for images"),
        ({image: torch.float32, boxes: torch.int64, "others": None}, "BoundingBoxes are float32"),
        ({image: torch.float32, "others": torch.int64}, "BoundingBoxes are float32"),
        ({image: torch.float64, "others": None}, r"Loader\(dtype='float64'\)"),
    ]:
        with pytest.raises(TypeError, match=words):
            T.steps(v2.ToDtype(bad, scale=True))


def test_one_number_of_normalize_is_of_all_channels(v1: Any, v2: Any, torch: Any) -> None:
    numpy = pytest.importorskip("numpy")
    three = [1.0, 2.0, 4.0]
    for of in (T, v1):
        assert lowered(of.Normalize((0.5), (0.25))) == [{"op": "normalize", "mean": [0.5], "std": [0.25]}]
        assert lowered(of.Normalize(0.5, three))[0]["mean"] == [0.5] * 3
        assert lowered(of.Normalize(three, torch.tensor(0.5)))[0]["std"] == [0.5] * 3
    for of in (T, v1, v2):
        # As they are shaped to be broadcast over pixels.
        shaped = of.Normalize(torch.tensor(three).view(3, 1, 1), numpy.array([[[0.5]]]))
        assert lowered(shaped) == lowered(of.Normalize(three, [0.5] * 3))
    assert shown(v1.Normalize(0.5, 0.5)).tobytes() == shown(v1.Normalize([0.5] * 3, [0.5] * 3)).tobytes()


def test_the_type_of_a_chain_is_told(v1: Any, v2: Any, torch: Any) -> None:
    floats = torch.float32
    for of in (v1, v2):
        assert T.output_dtype(of.ToTensor()) == "float32"
        assert T.output_dtype(of.Compose([of.CenterCrop(9), of.PILToTensor()])) == "uint8"
        assert T.output_dtype(of.Compose([of.PILToTensor(), of.ConvertImageDtype(floats)])) == "float32"
        assert T.output_dtype(of.Compose([of.Normalize([0.5], [0.5])])) == "float32"
        # Nothing says what comes out.
        assert T.output_dtype(of.Compose([of.CenterCrop(9)])) is None
        assert T.output_dtype(of.Compose([of.ToTensor(), T.CenterCrop(9)])) is None
    assert T.output_dtype(v2.Compose([v2.ToImage(), v2.RandomInvert(), v2.ToPureTensor()])) == "uint8"
    assert T.output_dtype([v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)]) == "uint8"
    assert T.output_dtype([v2.ToImage(), v2.ToDtype(floats, scale=True), v2.ToImage()]) == "float32"
    assert T.output_dtype(torch.nn.Sequential(v2.PILToTensor(), v2.ToDtype(floats, scale=True))) == "float32"
    weights = pytest.importorskip("torchvision.models").ResNet50_Weights.IMAGENET1K_V1
    assert T.output_dtype(weights.transforms()) == "float32"
    for loaders_affair in (None, "imagenet-train", {"op": "to_float"}, T.ToTensor(), [T.PILToTensor()]):
        assert T.output_dtype(loaders_affair) is None
    with pytest.raises(TypeError, match="Lambda has no equivalent"):
        T.output_dtype(v1.Lambda(abs))


def test_to_float_stands_only_where_it_is_needed(v2: Any, torch: Any) -> None:
    to_float, normalize = v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)
    assert names([to_float]) == ["to_float"]
    assert names([to_float, normalize]) == ["normalize"]
    assert names([to_float, v2.CenterCrop(9), normalize]) == ["center_crop", "normalize"]
    assert names([to_float, v2.Resize((9, 9)), normalize]) == ["resize_exact", "normalize"]
    # A bicubic resize of floats does not round between its passes.
    cubic = v2.Resize((9, 9), interpolation=v2.InterpolationMode.BICUBIC)
    assert names([to_float, cubic, normalize]) == ["to_float", "resize_exact", "normalize"]
    # Colours of floats are not rounded: it is not the same without it.
    assert names([to_float, v2.ColorJitter(0.5), normalize]) == ["to_float", "color_jitter", "normalize"]
    assert names([to_float, to_float, v2.ConvertImageDtype()]) == ["to_float"]
    assert names([v2.ToDtype(torch.uint8), v2.ConvertImageDtype(torch.uint8), v2.ToPILImage()]) == []
    # What is the engine's already stays as it is.
    raw = [{"op": "to_float"}, {"op": "normalize", "mean": [0.5], "std": [0.5]}]
    assert lowered(raw) == raw


def test_gray_images_get_three_channels() -> None:
    gray = "synthetic://?count=3&height=24&width=24&channels=1"
    assert shown([T.Grayscale(3)], gray).shape == (3, 3, 24, 24)
    assert shown([T.RGB()], gray).shape == (3, 3, 24, 24)
    assert shown([T.Grayscale()], PICTURES).shape == (6, 1, 60, 80)


def test_lists_within_lists_are_one_step_each(v2: Any) -> None:
    for of in (T, v2):
        jitter, flat = of.ColorJitter(0.5), of.Compose([of.RandomInvert(), of.RandomEqualize()])
        choice = lowered(of.RandomChoice([jitter, flat, of.Identity()]))[0]
        assert [step["op"] for step in choice["transforms"]] == ["color_jitter", "random_apply", "random_invert"]
        assert choice["transforms"][1]["p"] == 1.0 and choice["transforms"][2]["p"] == 0.0
        assert choice["p"] is None
        assert lowered(of.RandomChoice([jitter, flat], p=[1, 3]))[0]["p"] in ([0.25, 0.75], [1, 3])
        order = lowered(of.RandomOrder([jitter, flat]))[0]
        assert [step["op"] for step in order["transforms"]] == ["color_jitter", "random_apply"]
        assert lowered(of.RandomApply([of.Identity()])) == []
        assert shown(of.Compose([of.RandomChoice([jitter, flat, of.Identity()])])).shape == (6, 3, 60, 80)


def test_lists_of_torch_are_lists(v2: Any, torch: Any) -> None:
    modules = torch.nn.ModuleList([v2.RandomInvert(), v2.RandomEqualize()])
    inner = lowered(v2.RandomApply(modules, p=0.3))[0]
    assert [step["op"] for step in inner["transforms"]] == ["random_invert", "random_equalize"] and inner["p"] == 0.3


# Every class of torchvision's, and what makes one.
SIZE = 16
SAME: dict[str, Callable[[Any], Any]] = {
    "AugMix": lambda of: of.AugMix(),
    "AutoAugment": lambda of: of.AutoAugment(),
    "CenterCrop": lambda of: of.CenterCrop(SIZE),
    "ColorJitter": lambda of: of.ColorJitter(0.4, (0.5, 1.5), hue=0.1),
    "Compose": lambda of: of.Compose([of.RandomInvert()]),
    "ConvertImageDtype": lambda of: of.ConvertImageDtype(pytest.importorskip("torch").float32),
    "ElasticTransform": lambda of: of.ElasticTransform(),
    "FiveCrop": lambda of: of.FiveCrop(SIZE),
    "GaussianBlur": lambda of: of.GaussianBlur([3, 5], sigma=(0.5, 1.0)),
    "Grayscale": lambda of: of.Grayscale(1),
    "Lambda": lambda of: of.Lambda(abs),
    "LinearTransformation": lambda of: of.LinearTransformation(*[pytest.importorskip("torch").eye(3)] * 2),
    "Normalize": lambda of: of.Normalize([0.5], [0.5], inplace=True),
    "PILToTensor": lambda of: of.PILToTensor(),
    "Pad": lambda of: of.Pad(4),
    "RandAugment": lambda of: of.RandAugment(1, magnitude=5, fill=[1.0, 2.0, 3.0]),
    "RandomAdjustSharpness": lambda of: of.RandomAdjustSharpness(2),
    "RandomAffine": lambda of: of.RandomAffine(9, (0.1, 0.2), (0.5, 2.0), 7, interpolation=2, center=[3, 4]),
    "RandomApply": lambda of: of.RandomApply([of.RandomInvert()]),
    "RandomAutocontrast": lambda of: of.RandomAutocontrast(),
    "RandomChoice": lambda of: of.RandomChoice([of.RandomInvert()]),
    "RandomCrop": lambda of: of.RandomCrop(SIZE, padding=[2, 2]),
    "RandomEqualize": lambda of: of.RandomEqualize(),
    "RandomErasing": lambda of: of.RandomErasing(value=3, inplace=True),
    "RandomGrayscale": lambda of: of.RandomGrayscale(),
    "RandomHorizontalFlip": lambda of: of.RandomHorizontalFlip(),
    "RandomInvert": lambda of: of.RandomInvert(),
    "RandomOrder": lambda of: of.RandomOrder([of.RandomInvert()]),
    "RandomPerspective": lambda of: of.RandomPerspective(fill=9),
    "RandomPosterize": lambda of: of.RandomPosterize(4),
    "RandomResizedCrop": lambda of: of.RandomResizedCrop([SIZE], interpolation=3, antialias=False),
    "RandomRotation": lambda of: of.RandomRotation(9, interpolation=2, center=[3, 4]),
    "RandomSolarize": lambda of: of.RandomSolarize(128),
    "RandomVerticalFlip": lambda of: of.RandomVerticalFlip(),
    "Resize": lambda of: of.Resize((SIZE, 9), interpolation=1),
    "TenCrop": lambda of: of.TenCrop(SIZE),
    "ToPILImage": lambda of: of.ToPILImage(),
    "ToTensor": lambda of: of.ToTensor(),
    "TrivialAugmentWide": lambda of: of.TrivialAugmentWide(),
}
ONLY_V2: dict[str, Callable[[Any], Any]] = {
    "ClampBoundingBoxes": lambda of: of.ClampBoundingBoxes(),
    "ClampKeyPoints": lambda of: of.ClampKeyPoints(),
    "ConvertBoundingBoxFormat": lambda of: of.ConvertBoundingBoxFormat("CXCYWH"),
    "CutMix": lambda of: of.CutMix(num_classes=10),
    "GaussianNoise": lambda of: of.GaussianNoise(),
    "Identity": lambda of: of.Identity(),
    "JPEG": lambda of: of.JPEG(50),
    "MixUp": lambda of: of.MixUp(alpha=0.2),
    "RGB": lambda of: of.RGB(),
    "RandomChannelPermutation": lambda of: of.RandomChannelPermutation(),
    "RandomIoUCrop": lambda of: of.RandomIoUCrop(sampler_options=[0.1, 1.0]),
    "RandomPhotometricDistort": lambda of: of.RandomPhotometricDistort(p=0.3),
    "RandomResize": lambda of: of.RandomResize(9, 20),
    "RandomShortestSize": lambda of: of.RandomShortestSize([9, 12], max_size=30),
    "RandomZoomOut": lambda of: of.RandomZoomOut(side_range=(1.0, 2.0)),
    "SanitizeBoundingBoxes": lambda of: of.SanitizeBoundingBoxes(min_size=2),
    "SanitizeKeyPoints": lambda of: of.SanitizeKeyPoints(),
    "ScaleJitter": lambda of: of.ScaleJitter((9, 18)),
    "SetClampingMode": lambda of: of.SetClampingMode("hard"),
    "ToDtype": lambda of: of.ToDtype(pytest.importorskip("torch").float32, scale=True),
    "ToImage": lambda of: of.ToImage(),
    "ToPureTensor": lambda of: of.ToPureTensor(),
    "Transform": lambda of: of.Transform(),
    "UniformTemporalSubsample": lambda of: of.UniformTemporalSubsample(2),
}
REFUSED = {
    *("ClampKeyPoints", "CutMix", "ElasticTransform", "FiveCrop", "GaussianNoise", "JPEG", "Lambda"),
    *("LinearTransformation", "MixUp", "Pad", "RandomResize", "SanitizeKeyPoints", "SetClampingMode", "TenCrop"),
    *("Transform", "UniformTemporalSubsample"),
}
# Rows must come out in one size.
DETECTION = {
    *("RandomIoUCrop", "RandomShortestSize", "RandomZoomOut", "ScaleJitter", "SanitizeBoundingBoxes"),
    "ConvertBoundingBoxFormat",
}


def steps_of(module: ModuleType) -> set[str]:
    """The public classes that are steps."""
    classes = {name for name in dir(module) if name[0] != "_" and inspect.isclass(getattr(module, name))}
    return classes - {"AutoAugmentPolicy", "InterpolationMode"}


def test_all_classes_of_torchvision_are_known(v1: Any, v2: Any) -> None:
    assert steps_of(v1) - {*SAME} == steps_of(v2) - {*SAME, *ONLY_V2} == set()


@pytest.mark.parametrize(
    ("version", "name"), [("v1", name) for name in SAME] + [("v2", name) for name in [*SAME, *ONLY_V2]]
)
def test_every_class_of_torchvision_is_taken_or_refused_by_name(
    name: str, version: str, boxes: str, request: pytest.FixtureRequest
) -> None:
    make = {**SAME, **ONLY_V2}[name]
    it = make(request.getfixturevalue(version))
    if name in REFUSED:
        # Within lists too.
        for transform in (it, [it], [T.RandomApply([it])]):
            with pytest.raises(TypeError, match=f"torchvision's {name} has no equivalent"):
                T.steps(transform)
        return
    assert T.steps(it) == T.steps([it]) == T.steps(T.Compose([it]))
    if name in DETECTION:
        batch = next(iter(loader([it, T.FixedSizeCrop(SIZE)], boxes)))
        assert batch["image"].shape == (3, 3, SIZE, SIZE) and "boxes" in batch["instances"]
        assert T.steps(it) == T.steps(make(T))
        return
    # The module's own of the same words is the same.
    assert shown(it).tobytes() == shown(make(T)).tobytes()


# Another value than the default for every argument of torchvision's.
OTHER: dict[str, Any] = {
    **{"all_ops": False, "alpha": 0.5, "antialias": False, "bits": 2, "brightness": (0.1, 0.2), "center": [1, 2]},
    **{"chain_depth": 2, "contrast": (0.1, 0.2), "degrees": 33, "distortion_scale": 0.1, "expand": True, "fill": 7},
    **{"format": "XYWH", "hue": (0.1, 0.2), "interpolation": 3, "kernel_size": 5, "labels_getter": None},
    **{"magnitude": 3, "max_aspect_ratio": 3.0, "max_scale": 0.9, "max_size": 90, "mean": [0.1], "min_area": 5.0},
    **{"min_aspect_ratio": 0.2, "min_scale": 0.2, "min_size": 17, "mixture_width": 2, "mode": "L", "num_ops": 1},
    **{"num_magnitude_bins": 20, "num_output_channels": 3, "p": 0.25, "pad_if_needed": True, "padding": 3},
    **{"padding_mode": "edge", "ratio": (0.5, 0.6), "sampler_options": [0.5], "saturation": (0.1, 0.2)},
    **{"scale": (0.2, 0.4), "scale_range": (0.3, 0.4), "severity": 2, "sharpness_factor": 0.5, "shear": 3},
    **{"side_range": (2.0, 3.0), "sigma": (0.3, 0.4), "size": 11, "std": [0.1], "target_size": (7, 8)},
    **{"threshold": 77, "translate": (0.3, 0.4), "trials": 7, "value": 0.7},
}
NEEDED: dict[str, dict[str, Any]] = {
    **{name: {"size": 9} for name in ("CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize")},
    **{name: {"degrees": 9} for name in ("RandomAffine", "RandomRotation")},
    "ConvertBoundingBoxFormat": {"format": "XYXY"},
    "GaussianBlur": {"kernel_size": 3},
    "Normalize": {"mean": [0.5], "std": [0.5]},
    "RandomAdjustSharpness": {"sharpness_factor": 2},
    "RandomPosterize": {"bits": 4},
    "RandomShortestSize": {"min_size": 9},
    "RandomSolarize": {"threshold": 128},
    "ScaleJitter": {"target_size": (9, 9)},
}
# Torch's types and lists of transforms, which other tests are about; and what says nothing here: boxes are always cut.
ELSEWHERE = {"dtype", "transforms", "inplace", "clamping_mode"}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_no_argument_of_torchvisions_is_overlooked(version: str, request: pytest.FixtureRequest) -> None:
    of = request.getfixturevalue(version)
    seen: set[str] = set()
    for name in sorted(steps_of(of) - REFUSED - {"Compose", "RandomChoice", "RandomOrder", "RandomApply", "ToDtype"}):
        kind, needed = getattr(of, name), NEEDED.get(name, {})
        for argument, parameter in inspect.signature(kind).parameters.items():
            if argument in ELSEWHERE or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            other = of.AutoAugmentPolicy.SVHN if argument == "policy" else OTHER[argument]
            it = kind(**{**needed, argument: other})
            seen.add(argument)
            try:
                told = T.steps(it)
            except TypeError as error:
                assert f"{name}({argument}=" in str(error)
            else:
                assert told != T.steps(kind(**needed)), f"{name}({argument}=)"
    assert len(seen) > 30


@pytest.mark.parametrize("name", sorted({*SAME, *ONLY_V2} - REFUSED))
def test_arguments_and_defaults_are_torchvisions(name: str, v2: Any) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, (list, tuple)):
            return tuple(map(plain, value))
        return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value

    def arguments(kind: type) -> Iterator[tuple[str, Any, bool]]:
        for parameter in inspect.signature(kind).parameters.values():
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                yield parameter.name, plain(parameter.default), parameter.kind is parameter.KEYWORD_ONLY

    ours, theirs = list(arguments(getattr(T, name))), list(arguments(getattr(v2, name)))
    assert ours[: len(theirs)] == theirs
    # What is the engine's own comes by keyword.
    assert all(by_keyword and default is not inspect.Parameter.empty for _, default, by_keyword in ours[len(theirs) :])


def test_detection_trains_as_torchvisions_references_do(boxes: str, v2: Any, torch: Any) -> None:
    tensors = pytest.importorskip("torchvision.tv_tensors")
    ssd = [
        v2.ToImage(),
        v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill={tensors.Image: 123.0, "others": 0}),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(p=0.5),
        v2.Resize((30, 30)),
        v2.ToDtype(torch.float32, scale=True),
        v2.ConvertBoundingBoxFormat(tensors.BoundingBoxFormat.XYWH),
        v2.ClampBoundingBoxes(),
        v2.SanitizeBoundingBoxes(),
        v2.ToPureTensor(),
    ]
    for batch in loader(v2.Compose(ssd), boxes):
        assert batch["image"].shape[1:] == (3, 30, 30)
    # Width before height.
    jitter = v2.ScaleJitter((9, 18))
    assert lowered(jitter)[0]["target_size"] == [18, 9] == lowered(T.ScaleJitter((9, 18)))[0]["target_size"]


# Everything that the engine has.
ENGINES: list[tuple[str, Any]] = [
    ("pictures", [T.Cutout(5)]),
    ("pictures", [T.ThreeAugment()]),
    ("pictures", [T.TimmRandAugment(interpolation="nearest")]),
    ("pictures", [T.FixedSizeCrop((9, 12))]),
    ("pictures", [T.ResizeKeepRatio((30, 20), 0.5, "bicubic"), T.CenterCrop(20)]),
    ("pictures", [T.PadTo(90)]),
    ("boxes", [T.PadToLargest(128, multiple_of=32)]),
    ("pictures", [T.ToFloat(), T.RandomErasing(value="color", count=3)]),
    ("pictures", [T.RandomShortestSize(range(20, 40, 4)), T.CenterCrop(20)]),
    ("boxes", [T.ConvertBoundingBoxFormat("xywh", normalized=True), T.PadTo(30)]),
    ("volumes", [T.FlipAxis("z"), T.Rot90(("y", "x")), T.Window(-100, 300)]),
    ("volumes", [T.PadOrCrop((8, 8, 8), value=-1000), T.Patch(4, foreground=0.5), T.Scale(0.1, 1.0)]),
    ("volumes", [T.PadOrCrop(8), T.Clamp(-1, 1)]),
]


@pytest.mark.parametrize(("data", "transform"), ENGINES, ids=lambda value: repr(value))
def test_steps_of_the_engines_own_have_classes(data: str, transform: Any, request: pytest.FixtureRequest) -> None:
    dataset = PICTURES if data == "pictures" else request.getfixturevalue(data)
    assert len(list(loader(transform, dataset))) > 0


def test_every_step_of_the_engine_has_a_class() -> None:
    with pytest.raises(ValueError, match="must be one of") as told:
        infeed.Loader(PICTURES, transform=[{"op": "no_such_step"}])
    all_of_them = str(told.value).split("must be one of ")[1].split("'")[1::2]
    assert len(all_of_them) > 50
    # `inspect` would parse the module for each class.
    body = ast.parse(inspect.getsource(T)).body
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name in T.__all__]
    said = {it.value for node in classes for it in ast.walk(node) if isinstance(it, ast.Constant)}
    assert [name for name in all_of_them if name not in said] == []


# Objects that apply others.


class PresetTrain:
    """As torchvision's references have it."""

    def __init__(self, of: Any, crop_size: int, hflip_prob: float = 0.5, random_erase_prob: float = 0.0) -> None:
        transforms = [of.RandomResizedCrop(crop_size, antialias=True)]
        if hflip_prob > 0:
            transforms.append(of.RandomHorizontalFlip(hflip_prob))
        transforms.append(of.PILToTensor())
        floats = pytest.importorskip("torch").float32
        transforms.extend([of.ConvertImageDtype(floats), of.Normalize(mean=MEAN, std=STD)])
        if random_erase_prob > 0:
            transforms.append(of.RandomErasing(p=random_erase_prob))
        self.transforms = of.Compose(transforms)

    def __call__(self, img: Any) -> Any:
        """Documented."""
        return self.transforms(img)


def modules(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """Classes of torch's modules, each of one transform."""

    class Forward(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, within: Any) -> None:
            super().__init__()
            self.size, self.steps = 224, within

        def forward(self, x: Any) -> Any:
            return self.steps(x)

    class Two(Forward):
        def forward(self, image: Any, target: Any) -> Any:  # type: ignore[override]
            return self.steps(image, target)

    class All(Forward):
        def forward(self, *inputs: Any) -> Any:
            return self.steps(*inputs)

    class Listed(torch.nn.Sequential):  # type: ignore[misc]
        def __init__(self, within: Any) -> None:
            super().__init__(torch.nn.Identity(), within)

    return {"Forward": Forward, "Two": Two, "All": All, "Listed": Listed}


def test_objects_that_do_nothing_but_apply_a_transform_are_that_transform(v1: Any, v2: Any, torch: Any) -> None:
    for of in (v1, v2):
        preset = PresetTrain(of, 224)
        assert shown(preset).tobytes() == shown("imagenet-train").tobytes()
        assert T.steps(preset) == T.steps(preset.transforms) == T.steps(T.Compose([preset]))
        assert T.output_dtype(preset) == "float32"
        assert names(PresetTrain(of, 9, 0, 0.1)) == ["random_resized_crop", "normalize", "random_erasing"]
        kinds = modules(torch)
        module = kinds["Forward"](preset)
        for make in kinds.values():
            assert T.steps(make(module)) == T.steps(preset)
            assert T.steps(make(torch.nn.Sequential(kinds["Forward"](of.RandomInvert())))) == T.steps(of.RandomInvert())


def test_objects_that_may_do_more_are_refused(v2: Any, torch: Any) -> None:
    inner = v2.Compose([v2.CenterCrop(9)])

    class More(PresetTrain):
        def __call__(self, img: Any) -> Any:
            return self.transforms(img) * 2

    class Default(PresetTrain):
        def __call__(self, img: Any, target: Any = None) -> Any:
            return self.transforms(img, target)

    class Swapped(PresetTrain):
        def __call__(self, img: Any, target: Any) -> Any:  # type: ignore[override]
            return self.transforms(target, img)

    class Named(PresetTrain):
        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name)

    class Computed(PresetTrain):
        @property
        def transforms(self) -> Any:
            return inner

        @transforms.setter
        def transforms(self, value: Any) -> None:
            self.steps = value

    class Later(PresetTrain):
        async def __call__(self, img: Any) -> Any:
            return self.transforms(img)

    for kind in (More, Default, Swapped, Named, Computed, Later):
        with pytest.raises(TypeError, match=rf"{kind.__name__}.*no more than apply its \.(transforms|steps), give"):
            T.steps(kind(v2, 9))
    hooked = modules(torch)["Forward"](inner)
    hooked.register_forward_hook(abs)
    lazy = modules(torch)["Forward"](inner)
    lazy.forward = abs
    for module in (hooked, lazy):
        with pytest.raises(TypeError, match=r"apply its \.steps, give that"):
            T.steps(module)
    # What is applied is refused by its own name.
    with pytest.raises(TypeError, match="built-in function abs"):
        T.steps(modules(torch)["Forward"](v2.Compose([abs])))
    with pytest.raises(TypeError, match="function.*is not a transform.*map="):
        T.steps(lambda img: inner(img))


# timm's.


@pytest.fixture(scope="session")
def timm(torch: Any) -> Any:
    return pytest.importorskip("timm.data")


def test_what_timm_creates_is_the_preset_of_its_recipe(timm: Any) -> None:
    deit = timm.create_transform(
        224, True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25, re_mode="pixel", interpolation="bicubic"
    )
    a1 = timm.create_transform(224, True, auto_augment="rand-m7-mstd0.5-inc1", interpolation="random")
    val = timm.create_transform(224, crop_pct=0.875)
    for ours, preset in ((deit, "deit-train"), (a1, "timm-a1"), (val, "imagenet-val")):
        assert T.output_dtype(ours) == "float32"
        apart = abs(shown(ours) - shown(preset))
        # Ends of ranges that it keeps as logarithms differ by a last bit.
        assert apart.max() < 1e-5
    parts = timm.create_transform(224, True, auto_augment="rand-m7-mstd0.5-inc1", interpolation="random", separate=True)
    assert T.steps(parts) == T.steps(a1)


def test_all_of_timms_settings_are_taken(timm: Any) -> None:
    def train(**settings: Any) -> dict[str, dict[str, Any]]:
        return {step["op"]: step for step in lowered(timm.create_transform(32, True, **settings))}

    policy = "timm_rand_augment"
    even = train(auto_augment="rand-m7-n3-p0.3-mstd101-mmax20", mean=(0.1, 0.2, 0.3), interpolation="random")[policy]
    assert even == {
        **{"op": policy, "magnitude": 7, "magnitude_std": 101.0, "magnitude_max": 20, "increasing": False},
        **{"num_ops": 3, "p": 0.3, "interpolation": ["bilinear", "bicubic"]},
        "fill": [pytest.approx(round(255 * part) / 255) for part in (0.1, 0.2, 0.3)],
    }
    assert train(auto_augment="rand-m15-inc1", interpolation="bilinear")[policy]["magnitude"] == 10.0
    assert train(auto_augment="rand-m15-inc1", interpolation="bilinear")[policy]["interpolation"] == ["bilinear"]
    crop = train(scale=(0.2, 0.9), ratio=(0.5, 2.0), interpolation="nearest")["random_resized_crop"]
    assert (crop["size"], crop["scale"], crop["ratio"]) == ([32, 32], [0.2, 0.9], [0.5, 2.0])
    assert crop["interpolation"] == "nearest_exact"
    erasing = train(re_prob=0.3, re_mode="rand", re_count=3)["random_erasing"]
    assert erasing["ratio"] == pytest.approx([0.3, 1 / 0.3])
    assert (erasing["p"], erasing["value"], erasing["count"]) == (0.3, "color", 3)
    assert train(re_prob=0.3)["random_erasing"]["value"] == 0.0
    simclr = train(color_jitter_prob=0.8, grayscale_prob=0.2, gaussian_blur_prob=0.5, vflip=0.1)
    assert [*simclr][2:] == ["vertical_flip", "random_apply", "random_grayscale", "normalize"]
    # Bytes, as its prefetcher wants them.
    for bytes_of in ({"use_prefetcher": True}, {"normalize": False}):
        chain = timm.create_transform(32, True, **bytes_of)
        assert T.output_dtype(chain) == "uint8" and "to_float" not in names(chain)
    assert names(timm.create_transform(32, True, no_aug=True)) == ["resize_shorter", "center_crop", "normalize"]
    assert names(timm.create_transform(32, crop_mode="squash"))[0] == "resize_exact"
    transforms = pytest.importorskip("timm.data.transforms")
    assert T.steps([transforms.CenterCropOrPad(9), transforms.ToNumpy()]) == T.steps(T.CenterCrop((9, 9)))


def test_what_timm_validates_is_what_it_sees(noise: tuple[str, list[Any]], timm: Any, v2: Any) -> None:
    numpy = pytest.importorskip("numpy")
    folder, pictures = noise
    for size, interpolation in (36, "bilinear"), (36, "nearest"), ((3, 48, 32), "bilinear"):
        chain = timm.create_transform(size, crop_pct=0.9, interpolation=interpolation)
        want = numpy.stack([chain(v2.functional.to_pil_image(picture)).numpy() for picture in pictures])
        # Pillow rounds to bytes after across and after down.
        assert (abs(shown(chain, folder) - want) * min(STD)).max() < 1.001 / 255


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"auto_augment": "rand-m9-tweights"}, "RandAugment has weights of its steps"),
        ({"auto_augment": "rand-m9-inc1-t3a"}, "RandAugment has the steps SolarizeIncreasing, Desaturate"),
        ({"auto_augment": "rand-m9-inc1", "interpolation": "lanczos"}, "RandAugment.*'lanczos'.*bicubic"),
        ({"auto_augment": "original"}, "AutoAugment has no equivalent.*infeed.transforms.AutoAugment"),
        ({"auto_augment": "augmix-m5"}, "AugMixAugment has no equivalent.*infeed.transforms.AugMix"),
        ({"train_crop_mode": "rkrc"}, r"ResizeKeepRatio\(random_scale_prob=0.5\)"),
        ({"is_training": False, "crop_mode": "border"}, r"CenterCropOrPad\(fill="),
        ({"is_training": False, "crop_border_pixels": 4}, "TrimBorder has no equivalent.*map="),
        ({"is_training": False, "patchify": True}, "Patchify has no equivalent"),
        ({"is_training": False, "interpolation": "hamming"}, "Resize.*'hamming'"),
    ],
)
def test_what_timm_has_beyond_is_refused(settings: dict[str, Any], words: str, timm: Any) -> None:
    chain = timm.create_transform(**{"input_size": 32, "is_training": True, **settings})
    with pytest.raises(TypeError, match=words):
        T.steps(chain)


def test_settings_of_timms_without_an_equal_are_refused(timm: Any) -> None:
    transforms, augment = pytest.importorskip("timm.data.transforms"), pytest.importorskip("timm.data.auto_augment")
    erasing = pytest.importorskip("timm.data.random_erasing").RandomErasing
    uneven = augment.rand_augment_transform("rand-m9-mstd0.5-inc1", {})
    uneven.ops[3].prob = 0.9
    far = augment.rand_augment_transform("rand-m9-mstd0.5-inc1", {"translate_pct": 0.3})
    wide = augment.rand_augment_transform("rand-m9-inc1", {"magnitude_std": 200.0})
    for it, words in [
        (uneven, "steps that differ in prob"),
        (far, "translate_pct=0.3"),
        (wide, "magnitude_std=200.0"),
        (erasing(min_count=2, max_count=3), "min_count=2"),
        (transforms.CenterCropOrPad(9, fill=(1, 2, 3)), r"CenterCropOrPad\(fill=\(1, 2, 3\)\)"),
        (transforms.CenterCropOrPad(9, padding_mode="reflect"), "padding_mode='reflect'"),
        (transforms.RandomCropOrPad(9), "RandomCropOrPad has no equivalent"),
        (transforms.ToTensor(), "ToTensor has no equivalent.*dtype='float32'"),
    ]:
        with pytest.raises(TypeError, match=f"timm's .*{words}"):
            T.steps(it)
    to_tensor = transforms.MaybeToTensor()
    to_tensor.slant = 0.5
    with pytest.raises(TypeError, match="MaybeToTensor has slant"):
        T.steps(to_tensor)


# Refusals.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda of: of.Resize(9, max_size=12), r"Resize\(max_size=12\).*batch_transform="),
        (lambda of: of.Resize(9, antialias=None), r"Resize\(antialias=None\)"),
        (lambda of: of.Resize(9, interpolation=5), "hamming|bilinear"),
        (lambda of: of.RandomCrop(9, pad_if_needed=True), r"RandomCrop\(pad_if_needed=True\)"),
        (lambda of: of.RandomCrop(9, padding=4, padding_mode="reflect"), r"padding_mode='reflect'"),
        (lambda of: of.RandomCrop(9, padding=4, fill=255), r"RandomCrop\(fill=255\)"),
        (lambda of: of.RandomCrop(9, padding=(1, 2, 3, 4)), r"RandomCrop\(padding="),
        (lambda of: of.RandomRotation(9, expand=True), r"RandomRotation\(expand=True\)"),
        (lambda of: of.RandomRotation(9, interpolation=of.InterpolationMode.NEAREST_EXACT), "nearest, bilinear"),
        (lambda of: of.ToPILImage(mode="L"), r"ToPILImage\(mode='L'\)"),
        (lambda of: of.Compose([of.ToTensor(), of.ToPILImage()]), "ToPILImage"),
        (lambda of: of.Compose([abs]), "built-in function abs.*map="),
        (lambda of: of.RandomApply([abs]), "built-in function abs"),
        (lambda of: of.CenterCrop, "is not a transform"),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_arguments_without_an_equal_are_refused(
    make: Callable[[Any], Any], words: str, version: str, request: pytest.FixtureRequest
) -> None:
    it = make(request.getfixturevalue(version))
    with pytest.raises(TypeError, match=words):
        T.steps(it)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda v2, torch: v2.ToDtype(torch.float32), "set scale=True"),
        (lambda v2, torch: v2.ToDtype(torch.float16, scale=True), r"Loader\(dtype='float16'\)"),
        (lambda v2, torch: v2.ConvertImageDtype(torch.bfloat16), r"Loader\(dtype='bfloat16'\)"),
        (lambda v2, torch: v2.Compose([v2.ToTensor(), v2.ToDtype(torch.uint8)]), r"Loader\(dtype='uint8'\)"),
        (lambda v2, torch: v2.SanitizeBoundingBoxes(labels_getter=None), "labels_getter=None"),
        (lambda v2, torch: v2.SanitizeBoundingBoxes(labels_getter=abs), "labels_getter="),
        (lambda v2, torch: v2.ClampBoundingBoxes(clamping_mode=None), "clamping_mode=None"),
        (lambda v2, torch: v2.ConvertBoundingBoxFormat("XYWHR"), "XYXY, XYWH, CXCYWH"),
        (lambda v2, torch: v2.Resize(None, max_size=9), r"Resize\("),
        (lambda v2, torch: v2.RandomResize(9, 20), "RandomShortestSize"),
        (lambda v2, torch: v2.Pad(9), "PadTo"),
        (lambda v2, torch: v2.MixUp(alpha=0.2, num_classes=9), r"mix=\{'mixup': 0.2, 'num_classes': 9\}"),
        (lambda v2, torch: v2.RandomChoice([v2.CutMix(), v2.MixUp()]), r"mix=\{'cutmix': 1.0\}"),
        (lambda v2, torch: [torch.nn.ReLU()], "ReLU"),
    ],
)
def test_what_v2_has_beyond_is_refused(make: Callable[[Any, Any], Any], words: str, v2: Any, torch: Any) -> None:
    it = make(v2, torch)
    with pytest.raises(TypeError, match=words):
        T.steps(it)


def test_what_is_said_of_mixup_is_what_the_loader_takes(v2: Any) -> None:
    with pytest.raises(TypeError) as told:
        T.steps(v2.MixUp(alpha=0.2, num_classes=10))
    mix: dict[str, Any] = eval(str(told.value).split("mix=")[1].split(")")[0])  # noqa: S307 (a literal of ours)
    batch = next(iter(infeed.Loader(PICTURES, batch_size=3, transform=[{"op": "to_float"}], mix=mix)))
    assert batch["label"].shape == (3, 10)


def test_attributes_that_nobody_knows_are_refused(v2: Any) -> None:
    crop = v2.CenterCrop(9)
    crop.slant = 0.5
    with pytest.raises(TypeError, match="CenterCrop has slant"):
        T.steps(crop)


def test_classes_of_others_are_refused_though_they_derive_from_torchvisions(v2: Any) -> None:
    kind = type("CenterCrop", (v2.CenterCrop,), {"__module__": "mine"})
    with pytest.raises(TypeError, match="is not a transform of .*map="):
        T.steps(kind(9))


def test_names_that_are_not_there_are_told_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="Resize.*'cubic'.*nearest, nearest_exact, bilinear, bicubic, lanczos, box"):
        T.Resize(9, interpolation="cubic")
    with pytest.raises(ValueError, match="RandomAffine.*'lanczos'.*nearest, bilinear, bicubic"):
        T.RandomAffine(9, interpolation="lanczos")
    with pytest.raises(ValueError, match="AutoAugment.*'imagenets'.*imagenet, cifar10, svhn"):
        T.AutoAugment("imagenets")
    with pytest.raises(ValueError, match="at least one"):
        T.RandomApply([])
    with pytest.raises(TypeError, match="list of transforms"):
        T.Compose("imagenet-train")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list of transforms"):
        T.RandomApply(T.RandomInvert())  # type: ignore[arg-type]
    # Numbers are the engine's matter.
    with pytest.raises(ValueError, match="horizontal_flip has probability 2"):
        loader(T.RandomHorizontalFlip(2))


# Values.

SAMPLES: list[Any] = [
    T.RandomResizedCrop(224, scale=(0.5, 1.0), interpolation="bicubic"),
    T.Compose([T.Resize([32, 48]), T.RandomApply([T.ColorJitter(0.4, hue=(-0.1, 0.1))], p=0.3), T.ToFloat()]),
    T.Normalize(mean=list(MEAN), std=STD),
    T.Normalize(0.5, 0.5),
    T.GaussianBlur([3, 5], p=0.2),
    T.RandomErasing(value=(1, 2, 3), count=2),
    T.ToDtype("float32", scale=True),
    T.ToDtype({"Mask": "int64", "others": None}),
    T.ThreeAugment(),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
def test_transforms_are_values(sample: T.Transform) -> None:
    copy = pickle.loads(pickle.dumps(sample))
    assert copy == sample and hash(copy) == hash(sample) and T.steps(copy) == T.steps(sample)
    assert eval(repr(sample), vars(T)) == sample  # noqa: S307 (what it prints is what makes it)
    assert sample != T.Identity() and T.steps(T.Compose([sample])) == T.steps(sample)


def test_printing_leaves_out_what_goes_without_saying() -> None:
    assert repr(T.RandomResizedCrop(224)) == "RandomResizedCrop(224)"
    assert repr(T.RandomCrop(32, padding=[4])) == "RandomCrop(32, padding=4)"
    assert repr(T.Compose([T.RandomHorizontalFlip(0.2)])) == "Compose((RandomHorizontalFlip(p=0.2),))"


def test_a_transform_does_not_change() -> None:
    flip = T.RandomHorizontalFlip()
    with pytest.raises(AttributeError):
        flip.p = 0.3  # type: ignore[misc]
    sizes = [9, 12]
    crop = T.CenterCrop(sizes)
    sizes[0] = 10
    assert crop.size == (9, 12)


def test_one_is_derived_by_its_defaults() -> None:
    class Tall(T.RandomResizedCrop):
        """Twice as high as wide."""

        ratio: Any = (0.5, 0.5)

    assert lowered(Tall(9)) == lowered(T.RandomResizedCrop(9, ratio=(0.5, 0.5)))


def test_numbers_may_be_arrays_and_tensors(torch: Any) -> None:
    numpy = pytest.importorskip("numpy")
    want = lowered(T.Normalize([0.5, 0.25, 0.125], [1.0, 2.0, 4.0]))
    assert lowered(T.Normalize(numpy.array([0.5, 0.25, 0.125]), torch.tensor([1.0, 2.0, 4.0]))) == want
    assert lowered(T.Normalize([numpy.float32(v) for v in (0.5, 0.25, 0.125)], [1.0, 2.0, 4.0])) == want
    assert json.loads(json.dumps(want)) == want


def test_names_lines_and_dicts_are_what_they_were() -> None:
    assert T.steps(None) is None
    assert T.steps("imagenet-train;random_erasing:0.1") == "imagenet-train;random_erasing:0.1"
    raw = {"op": "center_crop", "size": [8, 9]}
    assert T.steps(raw) == T.steps([raw]) == T.steps(T.Compose([raw])) == [raw]
    mixed = [raw, T.RandomHorizontalFlip(), {"op": "to_float"}, T.RandomSolarize(0.25)]
    assert [step["op"] for step in lowered(mixed)] == ["center_crop", "horizontal_flip", "to_float", "random_solarize"]
    # A dict says too that values are floats.
    assert lowered(mixed)[3]["threshold"] == 0.25


def test_nobody_is_imported_for_it() -> None:
    body = """
        import sys
        from infeed import transforms as T
        print(len(T.steps(T.Compose([T.RandomResizedCrop(8), T.RandAugment(), T.ToDtype("float32", scale=True)]))))
        print([name for name in ("torch", "torchvision", "numpy", "PIL") if name in sys.modules])
    """
    run = [sys.executable, "-c", inspect.cleandoc(body)]
    told = subprocess.run(run, capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[:2] == ["3", "[]"]
