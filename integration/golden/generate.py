"""Writes transforms.json: what torchvision makes of small computed pictures, for `integration/golden`.

Meaning: torchvision.transforms.v2.functional on contiguous [C, H, W] float32 tensors on the CPU, bilinear,
antialias=True unless an op says otherwise; box and Lanczos, which torchvision has not, from Pillow. Nothing is random: the same versions on the same kind of CPU write the same bytes.

    python generate.py [transforms.json]        # needs torch, torchvision and Pillow; versions are written into the file
"""

import json
import math
import sys
from unittest import mock

import numpy as np
import PIL
import PIL.Image
import torch
import torchvision
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F
from torchvision.transforms.v2.functional import _geometry

torch.set_num_threads(1)
SAMPLES = 64
IMAGENET = dict(op="normalize", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
CIFAR = dict(op="normalize", mean=[0.4914, 0.4822, 0.4465], std=[0.247, 0.2435, 0.2616])
FLIP = dict(op="horizontal_flip")


# ---- source pictures -------------------------------------------------------------------------------------------

def picture(height, width, channels, kind):
    """[C, H, W] int64. Integer arithmetic only, `//` rounds down, so any language can repeat it."""
    c, y, x = np.mgrid[:channels, :height, :width].astype(np.int64)
    if kind in ("u8", "f32"):
        return (11 + 29 * c + 3 * y * y + 7 * x * (c + 1) + (y * x * (c + 2)) // 5) % 256
    if kind == "soft":      # no weight below 0 leads out of 0..255 from here
        return 60 + picture(height, width, channels, "u8") // 2
    return (1009 + 5003 * c + 311 * y * y + 1021 * x * (c + 1) + (y * x * (c + 2)) // 5) % 65536   # u16


def tensor(source, unit, dtype):
    """unit: the values are divided by the type's largest one, as ToDtype(float32, scale=True) does."""
    t = torch.from_numpy(picture(**source))
    if not unit:
        return t.to(dtype)
    if dtype == torch.float64:
        return t.to(dtype) / (255 if source["kind"] == "u8" else 65535)
    return F.to_dtype(t.to(torch.uint8 if source["kind"] == "u8" else torch.uint16), dtype, scale=True)


# ---- ops -------------------------------------------------------------------------------------------------------

def apply(t, op):
    name, mode = op["op"], InterpolationMode(op.get("interpolation", "bilinear"))
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    how = dict(interpolation=mode, antialias=op.get("antialias", smooth))
    if name == "resize_shorter":
        return F.resize(t, [op["size"]], **how)
    if name == "resize":
        return F.resize(t, [op["height"], op["width"]], **how)
    if name == "center_crop":
        return F.center_crop(t, [op["height"], op["width"]])
    if name == "crop":
        return F.crop(t, op["top"], op["left"], op["height"], op["width"])
    if name == "resized_crop":
        return F.resized_crop(t, op["top"], op["left"], op["height"], op["width"], [op["out_height"], op["out_width"]], **how)
    if name == "pad":
        return F.pad(t, [op["left"], op["top"], op["right"], op["bottom"]], fill=op["fill"])
    if name == "horizontal_flip":
        return F.horizontal_flip(t)
    if name == "vertical_flip":
        return F.vertical_flip(t)
    if name == "normalize":
        return F.normalize(t, op["mean"], op["std"])
    raise ValueError(name)


def shorter(size): return dict(op="resize_shorter", size=size)
def exact(height, width): return dict(op="resize", height=height, width=width)
def center(height, width=None): return dict(op="center_crop", height=height, width=width or height)
def crop(top, left, height, width): return dict(op="crop", top=top, left=left, height=height, width=width)
def pad(all_sides, fill=0.0): return dict(op="pad", left=all_sides, top=all_sides, right=all_sides, bottom=all_sides, fill=fill)
def pad4(left, top, right, bottom, fill): return dict(op="pad", left=left, top=top, right=right, bottom=bottom, fill=fill)
def boxed(top, left, height, width, out_height, out_width=None):
    return dict(op="resized_crop", top=top, left=left, height=height, width=width, out_height=out_height, out_width=out_width or out_height)
def nearest(op, kind): return dict(op, interpolation=kind)
def plain(op, kind): return dict(op, interpolation=kind, antialias=False)


# ---- one case --------------------------------------------------------------------------------------------------

def places(channels, height, width, samples=SAMPLES):
    """Flat [C, H, W] indices: every corner of every channel first, then a linear congruential walk, no doubles."""
    total = channels * height * width
    if total <= samples:
        return list(range(total))
    at = {}
    for c in range(channels):
        for y in (0, height - 1):
            for x in (0, width - 1):
                at[(c * height + y) * width + x] = None
    state = 12345
    while len(at) < samples:
        state = (1664525 * state + 1013904223) % 2**32
        at[(state >> 8) % total] = None
    return sorted(at)


def short(x):
    """Shortest decimal that reads back as the same float32."""
    return float(np.format_float_scientific(np.float32(x), unique=True))


def case(name, source, ops, unit=False):
    height, width, channels, *kind = source
    source = dict(height=height, width=width, channels=channels, kind=kind[0] if kind else "u8")
    out, wide = tensor(source, unit, torch.float32), tensor(source, unit, torch.float64)
    for op in ops:
        out, wide = apply(out, op), apply(wide, op)
    assert out.dtype == torch.float32 and wide.dtype == torch.float64 and out.shape == wide.shape
    c, h, w = out.shape
    values, at = out.contiguous().view(-1), places(c, h, w)
    return dict(
        name=name, source=source, range="0..1" if unit else "raw", ops=ops, channels=c, height=h, width=w,
        at=at, values=[short(values[i]) for i in at], means=[float(f"{m:.9g}") for m in out.double().mean((1, 2))],
        # How far torch's own f32 result lies from its f64 result, over all values: a bound below this asks for torch's rounding.
        f32_error=float(f"{(out.double() - wide).abs().max().item():.3g}"),
    )


def cases():
    # shorter side, down and up
    yield case("shorter_down_37x53_to_16", (37, 53, 3), [shorter(16)])
    yield case("shorter_down_100x75_to_32", (100, 75, 3), [shorter(32)])
    yield case("shorter_down_256x340_to_64", (256, 340, 3), [shorter(64)])
    yield case("shorter_down_300x200_to_33", (300, 200, 1), [shorter(33)])
    yield case("shorter_down_7x500_to_5", (7, 500, 3), [shorter(5)])
    yield case("shorter_up_37x53_to_64", (37, 53, 3), [shorter(64)])
    yield case("shorter_up_7x500_to_8", (7, 500, 1), [shorter(8)])
    yield case("shorter_up_37x53_to_111_thrice", (37, 53, 5), [shorter(111)])
    yield case("shorter_same_37x53_is_a_copy", (37, 53, 3), [shorter(37)])
    yield case("shorter_1x1_to_8", (1, 1, 3), [shorter(8)])
    yield case("shorter_300x200_to_256", (300, 200, 3), [shorter(256)])
    yield case("shorter_256x340_to_1", (256, 340, 3), [shorter(1)])
    # exact size: up, down, and one of each
    yield case("exact_37x53_to_8x8", (37, 53, 3), [exact(8, 8)])
    yield case("exact_37x53_to_64x16", (37, 53, 3), [exact(64, 16)])
    yield case("exact_37x53_to_16x64", (37, 53, 3), [exact(16, 64)])
    yield case("exact_37x53_to_37x20_height_kept", (37, 53, 3), [exact(37, 20)])
    yield case("exact_37x53_to_20x53_width_kept", (37, 53, 3), [exact(20, 53)])
    yield case("exact_100x75_to_50x25_half_and_third", (100, 75, 3), [exact(50, 25)])
    yield case("exact_100x75_to_1x1", (100, 75, 3), [exact(1, 1)])
    yield case("exact_1x1_to_5x9", (1, 1, 5), [exact(5, 9)])
    yield case("exact_7x500_to_64x7", (7, 500, 3), [exact(64, 7)])
    yield case("exact_100x75_to_99x76_by_one_pixel", (100, 75, 3), [exact(99, 76)])
    yield case("exact_100x75_unit_range", (100, 75, 3), [exact(32, 48)], unit=True)
    yield case("exact_50x50x5_to_220x224", (50, 50, 5), [exact(220, 224), center(220)])
    yield case("exact_50x50x5_to_220x224_u16", (50, 50, 5, "u16"), [exact(220, 224), center(220)])
    yield case("exact_100x75_u16_unit_down", (100, 75, 1, "u16"), [exact(24, 24)], unit=True)
    # centre crop: offsets that round down, up, and not at all
    yield case("center_37x53_to_36x52_odd_by_1", (37, 53, 3), [center(36, 52)])
    yield case("center_37x53_to_34x50_odd_by_3", (37, 53, 3), [center(34, 50)])
    yield case("center_37x53_to_32x48_odd_by_5", (37, 53, 3), [center(32, 48)])
    yield case("center_37x53_to_31x47_even", (37, 53, 3), [center(31, 47)])
    yield case("center_37x53_to_64_all_sides_padded", (37, 53, 3), [center(64)])
    yield case("center_37x53_to_40_height_padded_width_cut", (37, 53, 3), [center(40)])
    yield case("center_100x75_to_48x80_height_cut_width_padded", (100, 75, 1), [center(48, 80)])
    yield case("center_1x1_to_8", (1, 1, 3), [center(8)])
    # shorter side, then centre crop
    yield case("val_300x200_256_224", (300, 200, 3), [shorter(256), center(224)])
    yield case("val_256x340_256_224", (256, 340, 3), [shorter(256), center(224)])
    yield case("val_100x75_64_56", (100, 75, 3), [shorter(64), center(56)])
    yield case("val_37x53_33_32_odd", (37, 53, 3), [shorter(33), center(32)])
    yield case("val_37x53_35_32_odd_by_3", (37, 53, 3), [shorter(35), center(32)])
    yield case("val_7x500_8_64_taller_than_picture", (7, 500, 3), [shorter(8), center(64)])
    yield case("val_37x53_16_64_larger_than_picture", (37, 53, 3), [shorter(16), center(64)])
    yield case("val_37x53_20_24x23_one_side_larger", (37, 53, 3), [shorter(20), center(24, 23)])
    yield case("val_100x75_64_56_normalized", (100, 75, 3), [shorter(64), center(56), IMAGENET], unit=True)
    yield case("val_37x53_16_33_padded_normalized", (37, 53, 3), [shorter(16), center(33), IMAGENET], unit=True)
    # resized crop: reads nothing outside its box
    yield case("boxed_256x340_to_224", (256, 340, 3), [boxed(13, 57, 201, 243, 224)])
    yield case("boxed_256x340_down_to_64", (256, 340, 3), [boxed(13, 57, 201, 243, 64)])
    yield case("boxed_300x200_to_32", (300, 200, 3), [boxed(100, 0, 131, 97, 32)])
    yield case("boxed_300x200_corner_to_32", (300, 200, 3), [boxed(237, 151, 63, 49, 32)])
    yield case("boxed_37x53_whole_to_24", (37, 53, 3), [boxed(0, 0, 37, 53, 24)])
    yield case("boxed_37x53_small_up_to_32", (37, 53, 3), [boxed(5, 9, 6, 7, 32)])
    yield case("boxed_37x53_one_pixel_to_8", (37, 53, 3), [boxed(20, 30, 1, 1, 8)])
    yield case("boxed_37x53_one_row_to_8x16", (37, 53, 3), [boxed(20, 3, 1, 40, 8, 16)])
    yield case("boxed_37x53_same_size_is_a_copy", (37, 53, 3), [boxed(4, 6, 24, 24, 24)])
    yield case("boxed_37x53_width_kept", (37, 53, 3), [boxed(4, 6, 31, 24, 24)])
    yield case("boxed_100x75x5_to_40", (100, 75, 5), [boxed(11, 3, 71, 65, 40)])
    yield case("boxed_100x75x1_to_40", (100, 75, 1), [boxed(11, 3, 71, 65, 40)])
    yield case("boxed_7x500_to_16", (7, 500, 3), [boxed(1, 250, 5, 6, 16)])
    # resized crop and flip
    yield case("boxed_flip_256x340_to_224", (256, 340, 3), [boxed(13, 57, 201, 243, 224), FLIP])
    yield case("boxed_flip_100x75_to_33", (100, 75, 3), [boxed(11, 3, 71, 65, 33), FLIP])
    yield case("boxed_flip_100x75_up_to_64", (100, 75, 3), [boxed(40, 30, 21, 17, 64), FLIP])
    yield case("boxed_vertical_flip_100x75_to_33", (100, 75, 3), [boxed(11, 3, 71, 65, 33), dict(op="vertical_flip")])
    yield case("boxed_both_flips_100x75_to_33", (100, 75, 3), [boxed(11, 3, 71, 65, 33), FLIP, dict(op="vertical_flip")])
    yield case("train_256x340_to_224", (256, 340, 3), [boxed(29, 71, 180, 160, 224), FLIP, IMAGENET], unit=True)
    yield case("train_300x200_to_48", (300, 200, 3), [boxed(17, 5, 150, 190, 48), FLIP, IMAGENET], unit=True)
    yield case("train_300x200_to_48_unflipped", (300, 200, 3), [boxed(17, 5, 150, 190, 48), IMAGENET], unit=True)
    # pad, crop, flip
    yield case("cifar_top_left", (32, 32, 3), [pad(4), crop(0, 0, 32, 32)])
    yield case("cifar_bottom_right_flip", (32, 32, 3), [pad(4), crop(8, 8, 32, 32), FLIP])
    yield case("cifar_middle_flip", (32, 32, 3), [pad(4), crop(4, 4, 32, 32), FLIP])
    yield case("cifar_off_middle_flip_normalized", (32, 32, 3), [pad(4), crop(1, 7, 32, 32), FLIP, CIFAR], unit=True)
    yield case("cifar_off_middle_normalized", (32, 32, 3), [pad(4), crop(6, 2, 32, 32), CIFAR], unit=True)
    yield case("pad_fill_128", (37, 53, 3), [pad(4, 128.0), crop(2, 1, 32, 32)])
    yield case("pad_fill_per_channel_flip", (37, 53, 3), [pad(4, [10.0, 20.0, 30.0]), crop(0, 29, 32, 32), FLIP])
    yield case("pad_uneven_sides", (37, 53, 3), [pad4(1, 2, 3, 5, 7.0)])
    yield case("pad_half_unit_normalized", (32, 32, 3), [pad(4, 0.5), crop(0, 5, 32, 32), CIFAR], unit=True)
    # plain flip and normalise
    yield case("flip_37x53", (37, 53, 3), [FLIP])
    yield case("normalize_unit_37x53", (37, 53, 3), [IMAGENET], unit=True)
    yield case("normalize_raw_37x53", (37, 53, 3), [dict(op="normalize", mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])])
    yield case("normalize_five_channels", (37, 53, 5), [dict(op="normalize", mean=[0.1, 0.2, 0.3, 0.4, 0.5], std=[0.5, 0.4, 0.3, 0.2, 0.1])], unit=True)
    yield case("normalize_one_channel", (100, 75, 1), [dict(op="normalize", mean=[0.1307], std=[0.3081])], unit=True)


def mask_cases():
    # A tv_tensors.Mask is resized by `nearest`, whatever the transform asks of pictures.
    for kind in ("nearest", "nearest-exact"):
        yield case(f"{kind}_37x53_down", (37, 53, 1), [nearest(exact(16, 24), kind)])
        yield case(f"{kind}_37x53_up", (37, 53, 1), [nearest(exact(64, 61), kind)])
        yield case(f"{kind}_100x75_half_and_third", (100, 75, 1), [nearest(exact(50, 25), kind)])
        yield case(f"{kind}_boxed_flip", (100, 75, 1), [nearest(boxed(11, 3, 71, 65, 33), kind), FLIP])
        yield case(f"{kind}_val", (100, 75, 1), [nearest(shorter(64), kind), center(56)])


def filter_cases():
    # Pixels of f32: results beyond 0..255 stay.
    ways = [("bicubic", lambda op: nearest(op, "bicubic")), ("bicubic_plain", lambda op: plain(op, "bicubic")),
            ("bilinear_plain", lambda op: plain(op, "bilinear")), ("nearest_picture", lambda op: nearest(op, "nearest")),
            ("nearest_exact_picture", lambda op: nearest(op, "nearest-exact"))]
    for kind, way in ways:
        f32 = lambda *shape: (*shape, "f32")
        yield case(f"{kind}_37x53_to_16x24", f32(37, 53, 3), [way(exact(16, 24))])
        yield case(f"{kind}_37x53_to_64x61", f32(37, 53, 3), [way(exact(64, 61))])
        yield case(f"{kind}_37x53_to_16x64", f32(37, 53, 3), [way(exact(16, 64))])
        yield case(f"{kind}_100x75_to_99x76_by_one_pixel", f32(100, 75, 3), [way(exact(99, 76))])
        yield case(f"{kind}_256x340_to_64x64", f32(256, 340, 3), [way(exact(64, 64))])
        yield case(f"{kind}_50x50x5_to_220x224", f32(50, 50, 5), [way(exact(220, 224))])
        yield case(f"{kind}_1x1_to_8", f32(1, 1, 3), [way(exact(8, 8))])
        yield case(f"{kind}_2x3_to_9x7", f32(2, 3, 1), [way(exact(9, 7))])
        yield case(f"{kind}_7x500_to_16x7", f32(7, 500, 1), [way(exact(16, 7))])
        yield case(f"{kind}_37x53_kept", f32(37, 53, 3), [way(exact(37, 53))])
        yield case(f"{kind}_shorter_100x75_to_64", f32(100, 75, 3), [way(shorter(64))])
        yield case(f"{kind}_boxed_256x340_to_33", f32(256, 340, 3), [way(boxed(13, 57, 201, 243, 33)), FLIP])
        yield case(f"{kind}_boxed_256x340_up_to_64", f32(256, 340, 3), [way(boxed(101, 57, 31, 43, 64)), FLIP])
        yield case(f"{kind}_boxed_37x53_one_pixel_to_8", f32(37, 53, 3), [way(boxed(20, 30, 1, 1, 8))])


# ---- Pillow ----------------------------------------------------------------------------------------------------

def pillow_case(name, source, op):
    height, width, channels = source
    source = dict(height=height, width=width, channels=channels, kind="soft")
    image = picture(**source).astype(np.uint8)
    top, left, h, w = (op.get(k) for k in ("top", "left", "height", "width")) if op["op"] == "resized_crop" else (0, 0, height, width)
    out_h, out_w = (op["out_height"], op["out_width"]) if op["op"] == "resized_crop" else (op["height"], op["width"])
    how = PIL.Image.Resampling[op["interpolation"].upper()]
    planes = [PIL.Image.fromarray(np.ascontiguousarray(p[top:top + h, left:left + w])).resize((out_w, out_h), how) for p in image]
    values = np.stack([np.asarray(p) for p in planes])
    flat, at = values.reshape(-1), places(channels, out_h, out_w)
    return dict(name=name, source=source, range="raw", ops=[op], channels=channels, height=out_h, width=out_w, at=at,
                values=[int(flat[i]) for i in at], means=[float(f"{m:.9g}") for m in values.astype(np.float64).mean((1, 2))])


def pillow_cases():
    # Sizes whose quotients have no halves: where a pixel's middle lies on the edge of two boxes, the last bit of a double
    # decides in Pillow whether one of them has it, both or neither.
    for kind in ("box", "lanczos", "bicubic", "bilinear"):
        way = lambda op: nearest(op, kind)
        yield pillow_case(f"pillow_{kind}_37x53_to_16x24", (37, 53, 3), way(exact(16, 24)))
        yield pillow_case(f"pillow_{kind}_37x53_to_64x61", (37, 53, 3), way(exact(64, 61)))
        yield pillow_case(f"pillow_{kind}_375x500_to_225", (375, 500, 3), way(exact(225, 225)))
        yield pillow_case(f"pillow_{kind}_256x340_to_30x201", (256, 340, 1), way(exact(30, 201)))
        yield pillow_case(f"pillow_{kind}_100x75_half_and_third", (100, 75, 3), way(exact(50, 25)))
        yield pillow_case(f"pillow_{kind}_7x500_to_16x7", (7, 500, 1), way(exact(16, 7)))
        yield pillow_case(f"pillow_{kind}_2x3_to_9x7", (2, 3, 1), way(exact(9, 7)))
        yield pillow_case(f"pillow_{kind}_boxed_256x340_to_33", (256, 340, 3), way(boxed(13, 57, 201, 243, 33)))
        yield pillow_case(f"pillow_{kind}_boxed_256x340_up_to_64", (256, 340, 3), way(boxed(101, 57, 31, 43, 64)))


# ---- sizes and offsets -----------------------------------------------------------------------------------------

SIZES = [(256, 256), (256, 340), (340, 256), (300, 200), (200, 300), (375, 500), (500, 375), (333, 500), (500, 333), (37, 53),
         (53, 37), (375, 501), (499, 374), (257, 255), (255, 257), (1, 1), (1, 7), (7, 1), (1, 500), (500, 1), (3, 10), (10, 3),
         (7, 500), (2, 3), (3, 2), (224, 224), (1200, 1600), (2848, 4288), (4288, 2848), (4999, 3333), (65535, 3)]


def resized_sizes():
    for size in (256, 224, 232, 33, 7, 1):
        yield dict(size=size, of=[[h, w, *_geometry._compute_resized_output_size((h, w), [size])] for h, w in SIZES])


def center_crops():
    """[height, width, crop height, crop width, top, left, pad left, pad top, pad right, pad bottom]; padding comes first."""
    pairs = [(h, h, c, c) for c in (224, 225) for h in range(c - 6, c + 9)]
    pairs += [(256, 341, 224, 224), (341, 256, 224, 224), (256, 343, 224, 224), (256, 383, 224, 224), (220, 224, 220, 220), (37, 53, 40, 40),
              (53, 37, 40, 40), (1, 1, 224, 224), (1, 500, 224, 224), (7, 1, 1, 1), (2, 4, 1, 1), (6, 8, 1, 1), (223, 300, 224, 223)]
    for h, w, ch, cw in pairs:
        padding, ph, pw = [0, 0, 0, 0], h, w
        if ch > h or cw > w:
            padding = _geometry._center_crop_compute_padding(ch, cw, h, w)
            ph, pw = h + padding[1] + padding[3], w + padding[0] + padding[2]
        top, left = _geometry._center_crop_compute_crop_anchor(ch, cw, ph, pw)
        # the helpers must say what the op does: look where the numbered pixels went
        t = torch.arange(1, h * w + 1, dtype=torch.float64).view(1, h, w)
        assert torch.equal(F.center_crop(t, [ch, cw]), F.crop(F.pad(t, padding), top, left, ch, cw))
        yield [h, w, ch, cw, top, left, *padding]


def crop_fallbacks():
    """RandomResizedCrop when none of its ten draws fits: [height, width, top, left, crop height, crop width]."""
    for ratio in ((3 / 4, 4 / 3), (0.8, 1.25), (1.0, 1.0), (1.5, 2.5)):
        op, of = v2.RandomResizedCrop(8, scale=(1e6, 1e6), ratio=ratio), []      # a million times the area never fits
        for h, w in SIZES + [(100, 1000), (1000, 100), (101, 1001), (1001, 101), (10, 11), (2, 9), (6, 99), (9, 2), (75, 100), (74, 100)]:
            p = op.make_params([torch.empty(1, h, w, device="meta")])
            of.append([h, w, p["top"], p["left"], p["height"], p["width"]])
        yield dict(ratio=list(ratio), of=of)


def crop_draws():
    """RandomResizedCrop, one draw: [height, width, part of the area, width / height, crop height, crop width]; the last two null when it does not fit."""
    op = v2.RandomResizedCrop(8)
    for h, w in ((375, 500), (500, 333), (37, 53), (7, 500), (1, 1), (256, 256)):
        for part in (0.08, 0.25, 0.5, 0.77, 1.0):
            for log_ratio in (math.log(3 / 4), -0.1, 0.0, 0.2, math.log(4 / 3)):
                part32 = torch.tensor([part]).item()
                ratio32 = torch.exp(torch.tensor([log_ratio])).item()      # torchvision draws and exponentiates in f32, then goes on in f64
                draws = iter([part, log_ratio] * 10)
                # a fitting draw asks for its corner; one that does not fit is repeated ten times and never asks
                with mock.patch.object(torch.Tensor, "uniform_", lambda t, *_: t.fill_(next(draws))), \
                     mock.patch.object(torch, "randint", return_value=torch.tensor([0])) as corner:
                    p = op.make_params([torch.empty(1, h, w, device="meta")])
                yield [h, w, part32, ratio32, *((p["height"], p["width"]) if corner.called else (None, None))]


# ---- the file --------------------------------------------------------------------------------------------------

ABOUT = {
    "what": "torchvision.transforms.v2.functional on contiguous [C, H, W] float32 tensors, CPU, bilinear, antialias=True unless an op says otherwise",
    "picture u8": "(11 + 29*c + 3*y*y + 7*x*(c+1) + (y*x*(c+2))/5) mod 256, integer division rounds down, y x c from 0",
    "picture f32": "the numbers of u8",
    "picture soft": "60 + u8 / 2, rounded down",
    "picture u16": "(1009 + 5003*c + 311*y*y + 1021*x*(c+1) + (y*x*(c+2))/5) mod 65536",
    "range": "raw: the integers as f32; 0..1: as f32 times f32(1/255) (u16: f32(1/65535)), before the first op; pad's fill is in this range",
    "at": "flat index into [channels, height, width] of the result; values beside it; means per channel over the whole result (f64 sum of f32 values)",
    "f32_error": "largest distance of torch's f32 result from its f64 result: f32 rounding of the window moves values by this much",
    "pillow_cases": "Pillow's resize of u8 planes, cropped before; it rounds and cuts to 0..255 between its passes",
    "resized_sizes": "size = the shorter side asked for; of = [height, width, out height, out width]",
    "center_crops": "[height, width, crop height, crop width, top, left, pad left, top, right, bottom]; zero padding first, then top and left in the padded picture",
    "crop_fallbacks": "RandomResizedCrop after ten draws that do not fit; of = [height, width, top, left, crop height, crop width]",
    "crop_draws": "[height, width, part of area, aspect ratio (w/h), crop height, crop width], null: does not fit",
}


def main():
    parts = dict(cases=list(cases()), mask_cases=list(mask_cases()), filter_cases=list(filter_cases()), pillow_cases=list(pillow_cases()),
                 resized_sizes=list(resized_sizes()), center_crops=list(center_crops()),
                 crop_fallbacks=list(crop_fallbacks()), crop_draws=list(crop_draws()))
    names = [c["name"] for k in ("cases", "mask_cases", "filter_cases", "pillow_cases") for c in parts[k]]
    assert len(set(names)) == len(names)
    versions = dict(torch=torch.__version__, torchvision=torchvision.__version__, pillow=PIL.__version__, numpy=np.__version__, python=sys.version.split()[0],
                    cpu=torch.backends.cpu.get_cpu_capability())
    line = lambda x: json.dumps(x, separators=(",", ":"))
    # One item a line, so that a regenerated file shows which case moved.
    blocks = [f'"about":{json.dumps(ABOUT, indent=1)}', f'"versions":{line(versions)}']
    blocks += [f'"{k}":[\n' + ",\n".join(map(line, v)) + "\n]" for k, v in parts.items()]
    path = sys.argv[1] if len(sys.argv) > 1 else "transforms.json"
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(blocks) + "\n}\n")
    print(f"{path}: {len(names)} cases")


if __name__ == "__main__":
    main()
