"""Writes detection.json: what pycocotools and torchvision make of outlines, boxes and masks, for steps on what is marked in an image.

Meaning: outlines become runs as pycocotools' `frPyObjects` and `merge` have it; boxes and masks are moved by
torchvision.transforms.v2.functional on tv_tensors (xyxy, float32; uint8). Draws are given, never random: `torch.rand` and `torch.randint`
are replaced while a transform chooses. The same versions on the same kind of CPU write the same bytes.

    python detection.py [detection.json]        # needs torch, torchvision and pycocotools; versions are written into the file

Of what `RandomIoUCrop.make_params` draws, in its order, until a crop is accepted:

1. `randint(0, len(sampler_options))`, once for up to `trials` tries: the smallest IoU; 1.0 and above leave the image as it is.
2. `rand(2)` for each try: of the width, then of the height, each `min_scale + (max_scale - min_scale) * draw`.
3. `rand(2)`, only if the shape of 2. is allowed: where of the room that is left, from the left, then from the top.

`RandomZoomOut` draws `rand(1)` (whether at all), `rand(1)` for the scale, then `rand(2)`: from the left, from the top.
`ScaleJitter` draws `rand(1)`, `RandomShortestSize` `randint(len(min_size), ())`.
"""

import importlib.metadata
import inspect
import itertools
import json
import math
import random
import sys
from unittest import mock

import numpy as np
import torch
import torchvision
from pycocotools import mask as coco
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import generate

torch.set_num_threads(1)


def short(values):
    """Nested lists of the shortest decimals that read back as the same float32."""
    return [short(v) for v in values] if isinstance(values, list) else generate.short(values)


def f32(x): return float(np.float32(x))


# ---- runs ------------------------------------------------------------------------------------------------------

def runs(picture):
    """Lengths of runs of 0 and 1 in turn, down each column, columns from left to right; the first is of 0."""
    counts, last, length = [], 0, 0
    for value in np.asarray(picture).flatten(order="F").tolist():
        if value != last:
            counts, last, length = [*counts, length], value, 0
        length += 1
    return [*counts, length]


# ---- outlines --------------------------------------------------------------------------------------------------

def outline(size, polygons):
    height, width = size
    flat = [[float(v) for corner in polygon for v in corner] for polygon in polygons]
    merged = coco.merge(coco.frPyObjects(flat, height, width))
    return dict(size=size, polygons=flat, counts=runs(coco.decode(merged)))


def star(corners, x, y, outer, inner):
    def at(i):
        r, angle = (outer, inner)[i % 2], i * 2 * math.pi / corners
        return [round(x + r * math.cos(angle), 3), round(y + r * math.sin(angle), 3)]
    return [at(i) for i in range(corners)]


def outlines():
    small, middle, large = [7, 5], [40, 31], [120, 97]
    square = lambda x, y, side: [[x, y], [x + side, y], [x + side, y + side], [x, y + side]]
    fixed = [
        # triangles, both ways round
        (small, [[[0, 0], [5, 0], [0, 7]]]),
        (small, [[[0, 7], [5, 0], [0, 0]]]),
        (middle, [[[3, 3], [27.5, 8.25], [11.1, 36.9]]]),
        (middle, [[[30.999, 0.001], [0.001, 20], [30.999, 39.999]]]),
        # convex
        (small, [square(1, 1, 3)]),
        (middle, [[[10, 2], [20, 2], [28, 12], [28, 25], [20, 36], [10, 36], [2, 25], [2, 12]]]),
        (middle, [square(0.5, 0.5, 20)]),
        (middle, [square(0.4, 0.6, 20.2)]),
        (large, [square(10.1, 20.3, 55.5)]),
        (middle, [[[0, 0], [31, 0], [31, 40], [0, 40]]]),
        # concave
        (middle, [[[2, 2], [28, 2], [28, 37], [15, 10], [2, 37]]]),
        (middle, [[[2, 2], [28, 2], [28, 10], [10, 10], [10, 30], [28, 30], [28, 38], [2, 38]]]),
        (large, [[[5.5, 5.5], [90.5, 60], [5.5, 110.5], [40, 60]]]),
        # crossing itself, and a corner that comes twice
        (middle, [[[3, 3], [28, 36], [28, 3], [3, 36]]]),
        (middle, [[[15, 2], [24, 36], [2, 14], [29, 14], [6, 36]]]),
        (middle, [[[5, 5], [25, 5], [25, 25], [5, 25], [5, 5], [25, 5], [25, 25], [5, 25]]]),
        (middle, [[[5, 5], [5, 5], [25, 5.01], [25, 25], [25.02, 25.01], [5, 25]]]),
        (large, [[[60, 20], [20, 20], [20, 80], [80, 80], [80, 20], [40, 20], [40, 100], [60, 100]]]),
        # halves of pixels, and many decimals
        (small, [[[0.5, 0.5], [4.5, 0.5], [4.5, 6.5], [0.5, 6.5]]]),
        (small, [[[0.49, 0.5], [4.51, 0.5], [4.5, 6.49], [0.5, 6.51]]]),
        (middle, [[[1.123456789, 2.987654321], [29.314159265, 7.271828182], [14.141421356, 38.577215664]]]),
        (large, [[[511.1234 / 7, 13.3337], [3.00001, 57.77777777], [90.99999, 118.5]]]),
        # slivers
        (middle, [[[2, 2], [29, 2.1], [29, 2.2], [2, 2.15]]]),
        (middle, [[[5, 1], [5.3, 1], [5.3, 39], [5, 39]]]),
        (middle, [[[5.5, 1], [6.6, 1], [6.6, 39], [5.5, 39]]]),
        (large, [[[1, 1], [96, 119], [96, 118]]]),
        (large, [[[0, 60], [97, 60.4], [97, 61.2]]]),
        (large, [[[48.2, 0], [49.1, 120], [48.9, 120]]]),
        # partly outside
        (small, [[[-3, -3], [8, 2], [2, 12]]]),
        (middle, [square(-10, -10, 30)]),
        (middle, [square(20, 25, 30)]),
        (middle, [[[-5.5, 20.25], [15.5, -9.75], [36.5, 20.25], [15.5, 50.25]]]),
        (middle, [[[-1000, -1000], [1000, -900], [900, 1000], [-1100, 900]]]),
        (middle, [[[15, 5], [999999.5, 20], [15, 35]]]),
        (middle, [[[-999999, 20], [15, 1], [15.2, 39]]]),
        (middle, [[[-0.3, -0.3], [3.3, -0.7], [5.1, 8.8], [-0.9, 7.7]]]),
        # wholly outside: left, above, right, below
        (middle, [square(-20, 5, 10)]),
        (middle, [square(5, -20, 10)]),
        (middle, [square(35, 5, 10)]),
        (middle, [square(5, 45, 10)]),
        (middle, [square(31, 40, 10)]),
        # one pixel, or none
        (small, [square(2, 3, 1)]),
        (small, [square(2.4, 3.4, 0.2)]),
        (small, [square(2.6, 3.6, 0.2)]),
        ([1, 1], [[[0, 0], [1, 0], [1, 1], [0, 1]]]),
        ([1, 1], [square(-4, -4, 9)]),
        ([1, 9], [[[1, -1], [8, -1], [6, 2], [2, 2]]]),
        ([9, 1], [[[-1, 1], [-1, 8], [2, 6], [2, 2]]]),
        (small, [[[3, 3], [3, 3], [3, 3]]]),
        # several: apart, overlapping, one in another, with one that has only two corners
        (middle, [square(2, 2, 8), square(18, 20, 10)]),
        (middle, [square(2, 2, 18), square(10, 12, 18)]),
        (middle, [square(2, 2, 25), square(8, 8, 6), square(20, 20, 16)]),
        (middle, [square(2, 2, 8), [[12, 12], [28, 30]]]),
        (large, [star(10, 30, 30, 28, 11), star(10, 60, 80, 35, 12), star(14, 50, 60, 40, 30)]),
        (middle, [[[0, 0], [15, 0], [15, 40], [0, 40]], [[15, 0], [31, 0], [31, 40], [15, 40]]]),
        # stars of 50 corners
        (large, [star(50, 48.3, 60.7, 46, 20)]),
        (large, [star(50, 90.1, 110.2, 60, 15)]),
        (middle, [star(50, 15.5, 20, 19, 4)]),
    ]
    yield from (outline(size, polygons) for size, polygons in fixed)
    draw = random.Random(20)
    for size, corners, count in itertools.product((small, middle, large), (3, 5, 11), (1, 3)):
        height, width = size
        some = lambda: [round(draw.uniform(-0.2, 1.2) * width, 2), round(draw.uniform(-0.2, 1.2) * height, 2)]
        yield outline(size, [[some() for _ in range(corners)] for _ in range(count)])


def compressed():
    def case(size, picture):
        text = coco.encode(np.asfortranarray(picture.astype(np.uint8)))
        assert text["size"] == size
        return dict(size=size, counts=runs(picture), text=text["counts"].decode())

    def of(size, counts):
        flat = np.concatenate([np.full(n, i % 2, np.uint8) for i, n in enumerate(counts)])
        return case(size, flat.reshape(size, order="F"))

    yield of([7, 5], [35])                      # empty
    yield of([7, 5], [0, 35])                   # full
    yield of([1, 1], [0, 1])
    yield of([1, 1], [1])
    yield of([400, 300], [120_000])
    yield of([400, 300], [0, 120_000])
    yield of([1000, 2000], [40_000, 70_000, 33_000, 1, 1_000_000, 3, 500_000, 356_996])
    yield of([1000, 2000], [0, 1, 1_900_000, 40_000, 2, 59_997])
    yield of([300, 500], [15, 16, 17, 31, 32, 33, 511, 512, 513, 1023, 1024, 1025, 16_383, 16_384, 16_385, 32_767, 32_768, 30_561])
    yield of([6, 6], [1] * 36)
    yield of([6, 6], [0] + [1] * 36)
    draw = np.random.RandomState(5)
    for height, width, share in ((7, 5, 0.5), (24, 17, 0.1), (24, 17, 0.9), (33, 40, 0.02)):
        yield case([height, width], draw.uniform(size=(height, width)) < share)
    y, x = np.mgrid[:90, :120]
    yield case([90, 120], (x - 60) ** 2 + (y - 45) ** 2 < 1600)
    yield case([90, 120], (x * y) % 97 < 40)


# ---- boxes and masks -------------------------------------------------------------------------------------------

CORNERS = lambda height, width: [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]


def move(thing, case):
    """The functional op on a tensor that knows what it is."""
    # `size` is that of the picture before, in this file.
    given = {"size" if k == "to" else k: v for k, v in case.items() if k != "op"}
    return getattr(F, case["op"])(thing, **given)


def affine(angle, translate, scale, shear, center=None):
    return dict(op="affine", angle=angle, translate=translate, scale=scale, shear=shear, center=center)


def some_boxes(height, width):
    h, w = float(height), float(width)
    return [
        [0.3 * w, 0.25 * h, 0.6 * w, 0.55 * h], [0.0, 0.0, w, h], [0.0, 0.1 * h, 0.2 * w, 0.4 * h], [0.8 * w, 0.5 * h, w, h],
        [0.1 * w, 0.0, 0.9 * w, 0.05 * h], [0.45 * w, 0.45 * h, 0.55 * w, 0.9 * h], [3.25, 4.5, 3.75, 5.125], [w - 1.0, h - 1.0, w, h],
        [0.02 * w, 0.9 * h, 0.3 * w, 0.97 * h], [0.4 * w + 0.1, 0.2 * h + 0.7, 0.8 * w - 0.3, 0.3 * h + 0.2], [1.0, 1.0, 2.0, 2.0],
        [0.7 * w, 0.05 * h, 0.7 * w, 0.2 * h],
    ]


def boxes():
    def case(size, op):
        of = short(torch.tensor(some_boxes(*size), dtype=torch.float32).tolist())
        out = move(tv_tensors.BoundingBoxes(of, format="XYXY", canvas_size=tuple(size), dtype=torch.float32), op)
        assert out.dtype == torch.float32
        return dict(**op, size=size, boxes=of, out=short(out.tolist()), out_size=list(out.canvas_size))

    crop = lambda top, left, height, width: dict(op="crop", top=top, left=left, height=height, width=width)
    ops = [
        lambda h, w: crop(0, 0, h, w), lambda h, w: crop(h // 4, w // 3, h // 2, w // 2), lambda h, w: crop(h // 2, 0, h - h // 2, w),
        lambda h, w: crop(-5, -7, h + 12, w + 9), lambda h, w: crop(-20, w // 2, h, w), lambda h, w: crop(h // 3, -11, 13, 40), lambda h, w: crop(3, 2, 1, 1),
        lambda h, w: dict(op="resize", to=[h, w]), lambda h, w: dict(op="resize", to=[64, 64]), lambda h, w: dict(op="resize", to=[h * 2, w * 3]),
        lambda h, w: dict(op="resize", to=[33, 71]), lambda h, w: dict(op="resize", to=[50]),
        lambda h, w: dict(op="horizontal_flip"), lambda h, w: dict(op="vertical_flip"),
        *(lambda h, w, a=a: affine(a, [0, 0], 1.0, [0.0, 0.0]) for a in (0.0, 90.0, 180.0, 13.7, -45.0, 200.0)),
        lambda h, w: affine(0.0, [7, -9], 1.0, [0.0, 0.0]), lambda h, w: affine(0.0, [0, 0], 0.6, [0.0, 0.0]), lambda h, w: affine(0.0, [0, 0], 1.7, [0.0, 0.0]),
        lambda h, w: affine(0.0, [0, 0], 1.0, [12.0, 0.0]), lambda h, w: affine(0.0, [0, 0], 1.0, [0.0, -17.0]),
        lambda h, w: affine(-31.0, [3, 5], 0.7, [5.0, 9.0]), lambda h, w: affine(13.7, [-4, 2], 1.2, [-8.0, 3.0], [10.0, 20.5]),
        lambda h, w: affine(90.0, [0, 0], 1.0, [0.0, 0.0], [0.0, 0.0]),
        *(lambda h, w, a=a: dict(op="rotate", angle=a, expand=False, center=None) for a in (0.0, 90.0, 180.0, 13.7, -45.0, 200.0)),
        lambda h, w: dict(op="rotate", angle=13.7, expand=False, center=[5.0, 9.5]), lambda h, w: dict(op="rotate", angle=-90.0, expand=False, center=[w / 2, 0.0]),
        *(lambda h, w, e=e: dict(op="perspective", startpoints=CORNERS(h, w), endpoints=e(h, w)) for e in (
            CORNERS, lambda h, w: [[3, 5], [w - 3, 1], [w - 6, h - 7], [6, h - 2]],
            lambda h, w: [[w // 4, h // 4], [w * 3 // 4, 0], [w - 1, h * 3 // 4], [0, h - 1]], lambda h, w: [[0, 0], [w - 1, 0], [w - 12, h // 2], [12, h // 2]])),
        lambda h, w: dict(op="resized_crop", top=h // 5, left=w // 4, height=h // 2, width=w // 3, to=[48, 40]),
        lambda h, w: dict(op="resized_crop", top=-4, left=w // 2, height=h // 2, width=w, to=[100, 90]),
        lambda h, w: dict(op="resized_crop", top=1, left=2, height=32, width=33, to=[32, 33]),
    ]
    yield from (case(size, op(*size)) for size in ([48, 64], [101, 73]) for op in ops)


def masks():
    size = [24, 17]
    y, x = np.mgrid[:24, :17]
    pictures = [(x - 8) ** 2 + (y - 10) ** 2 < 40, (3 * x + 5 * y) % 11 < 4, (x < 9) & (y > 4)]
    ops = [
        dict(op="crop", top=3, left=2, height=15, width=9), dict(op="crop", top=-3, left=5, height=24, width=17), dict(op="crop", top=9, left=-6, height=31, width=40),
        dict(op="horizontal_flip"), dict(op="vertical_flip"),
        *(dict(op="resize", to=s) for s in ([24, 17], [12, 17], [12, 8], [48, 51], [31, 10], [7, 40], [23, 18])),
        *(affine(a, [0, 0], 1.0, [0.0, 0.0]) for a in (0.0, 90.0, 13.7, -45.0)),
        affine(0.0, [3, -2], 1.0, [0.0, 0.0]), affine(0.0, [0, 0], 0.6, [0.0, 0.0]), affine(-31.0, [2, 1], 1.3, [5.0, 9.0]), affine(13.7, [0, 0], 1.0, [11.0, 0.0], [4.0, 6.5]),
        *(dict(op="rotate", angle=a, expand=False, center=None) for a in (0.0, 90.0, 180.0, 13.7, -45.0, 200.0)),
        dict(op="rotate", angle=20.0, expand=False, center=[3.0, 4.0]),
    ]
    for op, (i, picture) in itertools.product(ops, enumerate(pictures)):
        if i == 2 and op["op"] in ("affine", "rotate"):
            continue
        mask = tv_tensors.Mask(torch.from_numpy(picture.astype(np.uint8))[None])
        out = move(mask, op)
        assert out.dtype == torch.uint8
        yield dict(**op, size=size, mask=runs(picture), out=runs(out[0].numpy()), out_size=list(out.shape[-2:]))


# ---- choices ---------------------------------------------------------------------------------------------------

class Rejected(Exception):
    """More is drawn than was given."""


def drawing(*given):
    """`torch.rand` gives these lists in turn, `torch.randint` 0 once."""
    left, options = list(given), [0]

    def rand(n):
        if not left:
            raise Rejected
        values = left.pop(0)
        assert len(values) == n
        return torch.tensor(values, dtype=torch.float32)

    def randint(*_, size=None, **__):
        if not options:
            raise Rejected
        return torch.tensor([options.pop()] if size else 0)

    return mock.patch.multiple(torch, rand=rand, randint=randint)


def image(size): return tv_tensors.Image(torch.zeros(1, *size, dtype=torch.uint8))


SIZES = [[480, 640], [640, 480], [427, 640], [375, 500], [500, 333], [612, 612], [1, 1], [3, 1000], [1000, 3], [281, 499], [768, 1366], [2160, 4096]]


def sizes():
    for size, (least, most) in itertools.product(SIZES, ((800, 1333), (480, None), (640, 640), (333, 500))):
        with drawing():
            out = v2.RandomShortestSize(least, most).make_params([image(size)])["size"]
        yield dict(kind="shortest", size=size, min_size=least, max_size=most, out=list(out))
    # Sides that a float's rounding leaves one below what was asked for.
    lost = [(n, least) for n in range(1, 700) for least in (480, 800, 223) if int(n * (least / n)) < least]
    for n, least in lost[:: max(1, len(lost) // 8)]:
        with drawing():
            out = v2.RandomShortestSize(least, 1333).make_params([image([n, n + 57])])["size"]
        yield dict(kind="shortest", size=[n, n + 57], min_size=least, max_size=1333, out=list(out))
    for size, (target, scale) in itertools.product(SIZES, (([1024, 1024], 0.1), ([1024, 1024], 2.0), ([640, 480], 0.77), ([333, 777], 1.3))):
        with drawing([0.25]):
            out = v2.ScaleJitter(tuple(target), (scale, scale)).make_params([image(size)])["size"]
        yield dict(kind="jitter", size=size, target=target, scale=short(f32(scale)), out=list(out))


def zooms():
    draw = random.Random(7)
    for size, r in itertools.product(SIZES, (1.0, 1.37, 2.999, 4.0)):
        u, v = f32(draw.random()), f32(draw.random())
        with drawing([0.5], [u, v]):
            padding = v2.RandomZoomOut(side_range=(r, r)).make_params([image(size)])["padding"]
        yield dict(size=size, r=short(f32(r)), u=short(u), v=short(v), padding=padding)


def sanitised():
    size = [60, 80]
    of = [
        [10, 10, 30, 30], [0, 0, 80, 60], [0, 0, 1, 1], [0, 0, 0.999, 5], [0, 0, 5, 0.999], [10, 10, 10, 30], [10, 10, 30, 10], [30, 10, 10, 30],
        [-0.001, 5, 10, 20], [5, -0.001, 10, 20], [5, 5, 80.001, 20], [5, 5, 20, 60.001], [79, 59, 80, 60], [79.5, 59, 80, 60], [90, 5, 95, 20], [5, 70, 20, 75],
        [0, 0, 0, 0], [20, 20, 22, 22.5], [20, 20, 23, 23], [20, 20, 24, 22.4], [1.1, 1.1, 2.1, 2.1], [20.3, 20.3, 21.3, 40.3], [-0.0, 0, 5, 5],
    ]
    boxes = short(torch.tensor(of, dtype=torch.float32).tolist())
    thing = tv_tensors.BoundingBoxes(torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4), format="XYXY", canvas_size=tuple(size))
    for min_size, min_area in ((1.0, 1.0), (2.0, 1.0), (1.0, 9.0), (2.5, 5.0), (1.0, 5.0), (25.0, 1.0)):
        transform = v2.SanitizeBoundingBoxes(min_size=min_size, min_area=min_area, labels_getter=lambda sample: sample["labels"])
        labels = transform(dict(boxes=thing, labels=torch.arange(len(of))))["labels"].tolist()
        yield dict(size=size, boxes=boxes, min_size=min_size, min_area=min_area, keep=[i in labels for i in range(len(of))])


def iou_crops():
    def case(size, boxes, r_h, r_w, u, v, least):
        r_h, r_w, u, v = (short(f32(x)) for x in (r_h, r_w, u, v))
        boxes = short(torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4).tolist())
        thing = tv_tensors.BoundingBoxes(torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4), format="XYXY", canvas_size=tuple(size))
        # A scale of 0 to 1 is the draw itself.
        transform = v2.RandomIoUCrop(min_scale=0.0, max_scale=1.0, sampler_options=[least], trials=1)
        try:
            with drawing([r_w, r_h], [u, v]):
                got = transform.make_params([image(size), thing])
        except Rejected:
            got = None
        crop = got and [got["left"], got["top"], got["width"], got["height"]]
        within = got and got["is_within_crop_area"].tolist()
        return dict(size=size, boxes=boxes, r_h=r_h, r_w=r_w, u=u, v=v, min_jaccard=least, accepted=got is not None, crop=crop, within=within)

    size = [100, 120]
    one = [[20, 20, 60, 60]]
    three = [[10, 10, 30, 40], [50, 30, 110, 90], [0, 60, 20, 100]]
    # Crops of 60x60: its left and top are 60 and 40 times u and v.
    for u, v in ((0.0, 0.0), (0.334, 0.5), (2 / 3, 0.2), (0.67, 0.2), (0.2, 0.99), (1 - 2**-24, 1 - 2**-24)):
        for least in (0.0, 0.3):
            yield case(size, one, 0.6, 0.5, u, v, least)
    # A centre on an edge is not within: left 40, right 40, top 40, bottom 40.
    yield case(size, one, 0.5, 0.5, 40 / 60, 0.2, 0.0)
    yield case(size, one, 0.5, 1 / 3 + 1e-6, 0.0, 0.2, 0.0)
    yield case(size, one, 0.6, 0.5, 0.2, 1 - 2**-24, 0.0)
    yield case(size, one, 0.4, 0.5, 0.2, 0.0, 0.0)
    # The shape: 0.5 and 2 are allowed, what lies beyond is not.
    for r_h, r_w in ((0.6, 1.0), (0.59, 1.0), (1.0, 0.417), (1.0, 0.416), (0.999, 0.4167), (0.3, 0.5), (0.3, 0.51)):
        yield case(size, three, r_h, r_w, 0.0, 0.5, 0.0)
    # IoU that is met to the last bit: the box itself 0.5 of the crop; halves and thirds.
    for least in (0.25, 0.5, 0.500001, 0.7):
        yield case([100, 100], [[0, 0, 50, 25]], 0.5, 0.5, 0.0, 0.0, least)
    for least in (0.3, 0.1, 0.9):
        share = least * 100
        yield case([100, 100], [[0, 0, 100, share]], 1.0, 1.0, 0.0, 0.0, least)
    # One box of several is enough; a box that reaches outside counts whole.
    for least in (0.1, 0.3, 0.5, 0.7):
        yield case(size, three, 0.7, 0.6, 0.8, 0.9, least)
        yield case(size, three, 0.9, 0.9, 0.1, 0.2, least)
        yield case(size, [[-40, -40, 60, 60], [100, 80, 140, 120]], 0.8, 0.7, 0.0, 0.0, least)
    yield case(size, [], 0.8, 0.8, 0.5, 0.5, 0.0)
    yield case(size, [[30, 30, 30, 30]], 0.8, 0.8, 0.5, 0.5, 0.0)
    yield case(size, [[30, 30, 30, 30]], 0.8, 0.8, 0.5, 0.5, 0.1)
    draw = random.Random(11)
    for i in range(16):
        size = [draw.randint(30, 600), draw.randint(30, 600)]
        ends = lambda n: sorted(round(draw.uniform(0, n), 2) for _ in range(2))
        boxes = []
        for _ in range(draw.randint(1, 6)):
            (x0, x1), (y0, y1) = ends(size[1]), ends(size[0])
            boxes.append([x0, y0, x1, y1])
        yield case(size, boxes, draw.uniform(0.4, 1), draw.uniform(0.4, 1), draw.random(), draw.random(), (0.0, 0.1, 0.3, 0.5)[i % 4])


# ---- the file --------------------------------------------------------------------------------------------------

ABOUT = {
    "runs": runs.__doc__,
    "polygons": "corners x0, y0, x1, y1, … of each; counts are of all of them together, as runs",
    "compressed": "text is pycocotools' for the runs",
    "boxes": "xyxy in float32; affine, rotate and perspective go through matrix products in float32, whose last bits are the CPU's",
    "masks": "uint8 [1, h, w]; resize is NEAREST (not NEAREST_EXACT), warps are nearest, outside is 0",
    "sizes": "shortest: RandomShortestSize with one min_size; jitter: ScaleJitter with this scale; target is width, height as torchvision divides by them",
    "zooms": "RandomZoomOut with r drawn, u and v for left and top; padding is left, top, right, bottom",
    "sanitize": "SanitizeBoundingBoxes: which are kept",
    "iou_crops": "RandomIoUCrop, one try with these draws, shapes from 0.5 to 2; crop is left, top, width, height; null where it is not accepted",
}


def main():
    parts = dict(polygons=list(outlines()), compressed=list(compressed()), boxes=list(boxes()), masks=list(masks()), sizes=list(sizes()),
                 zooms=list(zooms()), sanitize=list(sanitised()), iou_crops=list(iou_crops()))
    versions = dict(torch=torch.__version__, torchvision=torchvision.__version__, pycocotools=importlib.metadata.version("pycocotools"), numpy=np.__version__,
                    python=sys.version.split()[0], cpu=torch.backends.cpu.get_cpu_capability(),
                    clamping_mode=inspect.signature(tv_tensors.BoundingBoxes.__new__).parameters["clamping_mode"].default)
    line = lambda x: json.dumps(x, separators=(",", ":"))
    # One item a line, so that a regenerated file shows which case moved.
    blocks = [f'"about":{json.dumps(ABOUT, indent=1)}', f'"versions":{line(versions)}']
    blocks += [f'"{k}":[\n' + ",\n".join(map(line, v)) + "\n]" for k, v in parts.items()]
    path = sys.argv[1] if len(sys.argv) > 1 else "detection.json"
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(blocks) + "\n}\n")
    print(path, {k: len(v) for k, v in parts.items()})


if __name__ == "__main__":
    main()
