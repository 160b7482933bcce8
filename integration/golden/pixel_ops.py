"""Writes pixel_ops.json: what torchvision makes of small computed pictures, for the steps on a tile (`kernels::tile` of `infeed-pixels`).

Meaning: torchvision.transforms.v2.functional on contiguous [C, H, W] tensors on the CPU, uint8 and float32 of 0..1. Nothing is random:
the same versions on the same kind of CPU write the same bytes.

    python pixel_ops.py [pixel_ops.json]        # needs torch and torchvision; versions are written into the file
"""

import json
import sys

import numpy as np
import torch
import torchvision
from torchvision.transforms.v2 import functional as F
from torchvision.transforms.v2.functional import _geometry

import generate

torch.set_num_threads(1)
SAMPLES = 40


# ---- source pictures -------------------------------------------------------------------------------------------

def picture(height, width, channels, kind):
    """[C, H, W] uint8. Integer arithmetic only, `//` rounds down, so any language can repeat it."""
    c, y, x = np.mgrid[:channels, :height, :width].astype(np.int64)
    if kind == "waves":
        values = (11 + 29 * c + 3 * y * y + 7 * x * (c + 1) + (y * x * (c + 2)) // 5) % 256
    elif kind == "slope":
        values = 30 + 20 * c + (120 * y) // height + ((60 + 10 * c) * x) // width
    elif kind == "steps":
        values = (16 * (x // 3 + y // 4) + 9 * c) % 256
    elif kind == "flat":
        values = 77 + 40 * c + 0 * x
    return torch.from_numpy(values.astype(np.uint8))


# ---- ops -------------------------------------------------------------------------------------------------------

def f32(x): return float(np.float32(x))


def of_white(part, t):
    """Of a whole number over 255 that number again: both roundings are to f32."""
    return f32(f32(part) * (255.0 if t.dtype == torch.uint8 else 1.0))


def warp(t, op):
    height, width = t.shape[-2:]
    dtype = torch.float32 if t.dtype == torch.uint8 else t.dtype
    if op["map"] == "affine":
        theta = torch.tensor(op["matrix"], dtype=dtype).reshape(1, 2, 3)
        grid = _geometry._affine_grid(theta, w=width, h=height, ow=width, oh=height)
    else:
        grid = _geometry._perspective_grid(op["matrix"], ow=width, oh=height, dtype=dtype, device="cpu")
    fill = op["fill"] and [of_white(part, t) for part in op["fill"][: t.shape[0]]]
    if op["sampling"] == "bicubic" and t.dtype == torch.uint8:
        # torchvision has no bicubic warps of tensors; what overshoots must not wrap around.
        out = _geometry._apply_grid_transform(t.float(), grid, "bicubic", fill)
        return out.round().clamp(0, 255).to(torch.uint8)
    return _geometry._apply_grid_transform(t, grid, op["sampling"], fill)


def solarize_add(t, op):
    """timm's, which has it for PIL only: a table of `min(255, v + add)` below the threshold."""
    if t.dtype == torch.uint8:
        add, below = int(of_white(op["add"], t)), of_white(op["threshold"], t)
        table = [min(255, max(0, v + add)) if v < below else v for v in range(256)]
        return torch.tensor(table, dtype=torch.uint8)[t.long()]
    add = t + f32(op["add"])
    return torch.where(t < f32(op["threshold"]), add.clamp(0, 1), t)


def erase(t, op):
    top, bottom, left, right = op["area"]
    value = torch.tensor([of_white(part, t) for part in op["value"][: t.shape[0]]], dtype=torch.float64)
    return F.erase(t, top, left, bottom - top, right - left, value.to(t.dtype)[:, None, None])


def mix(t, op):
    """AugMix' own line, with weights given."""
    out = torch.tensor(op["own"], dtype=torch.float32) * t
    for weight, ops in op["chains"]:
        part = t
        for inner in ops:
            part = apply(part, inner)
        out.add_(torch.tensor(weight, dtype=torch.float32) * part)
    return out.to(t.dtype)


def apply(t, op):
    name = op["op"]
    if name in ("brightness", "contrast", "saturation", "hue", "sharpness"):
        return getattr(F, f"adjust_{name}")(t, f32(op["factor"]))
    if name == "grayscale":
        return F.rgb_to_grayscale(t, t.shape[0])
    if name in ("invert", "autocontrast", "equalize"):
        return getattr(F, name)(t)
    if name == "posterize":
        return F.posterize(t, op["bits"])
    if name == "solarize":
        return F.solarize(t, of_white(op["threshold"], t))
    if name == "permute":
        return F.permute_channels(t, op["from"][: t.shape[0]])
    if name == "blur":
        (down, across), (sy, sx) = op["kernel"], op["sigma"]
        return F.gaussian_blur(t, [across, down], [f32(sx), f32(sy)])
    return dict(warp=warp, solarize_add=solarize_add, erase=erase, mix=mix)[name](t, op)


# ---- one case --------------------------------------------------------------------------------------------------

# What gives torch's very values on bytes, wherever arithmetic allows; the others may differ by one.
CLOSE = ("blur",)
# What picks another value when it is done in float64: compared with torch's float32.
PICKS = ("posterize", "solarize", "solarize_add", "equalize", "hue", "mix", "erase", "permute")


def case(source, op):
    t = picture(**source)
    out = apply(t, op)
    assert out.dtype == torch.uint8 and out.shape == t.shape
    between = op["op"] == "warp" and op["sampling"] != "nearest"
    bound = int(op["op"] in CLOSE or between)
    unit = F.to_dtype(t, torch.float32, scale=True)
    got = apply(unit, op)
    picks = op["op"] in PICKS or op["op"] == "warp" and not between
    wide = got.double() if picks else apply(unit.double(), op)
    assert got.dtype == torch.float32 and got.shape == t.shape
    at = generate.places(*t.shape, SAMPLES)
    return dict(source=source, op=op, bytes=out.contiguous().numpy().tobytes().hex(), bound=bound,
                floats=[float(f"{wide.contiguous().view(-1)[i].item():.9g}") for i in at],
                # How far torch's own f32 result lies from its f64 result, over all values.
                f32_error=float(f"{(got.double() - wide).abs().max().item():.3g}"))


def affine(angle, translate, scale, shear):
    return dict(map="affine", matrix=_geometry._get_inverse_affine_matrix([0.0, 0.0], angle, [float(v) for v in translate], scale, shear))


WARPS = [
    affine(0.0, [0, 0], 1.0, [12.0, 0.0]), affine(0.0, [0, 0], 1.0, [0.0, -17.0]), affine(0.0, [3.0, -2.0], 1.0, [0.0, 0.0]),
    affine(0.0, [2.5, -1.5], 1.0, [0.0, 0.0]), affine(17.3, [0, 0], 1.0, [0.0, 0.0]), affine(45.0, [0, 0], 1.0, [0.0, 0.0]),
    affine(-31.0, [3.25, 5.0], 0.7, [5.0, 9.0]), affine(90.0, [0, 0], 1.0, [0.0, 0.0]), affine(5.0, [300.0, 0.0], 1.0, [0.0, 0.0]),
    dict(map="perspective", matrix=[f32(v) for v in (0.9, 0.02, 1.0, -0.03, 1.1, -2.0, 0.004, -0.003)]),
    # The divisor passes 0 within the picture.
    dict(map="perspective", matrix=[f32(v) for v in (1.0, 0.1, 0.0, 0.0, 1.0, 0.0, -0.11, 0.0)]),
]
FILL = [0.5, 200 / 255, 0.1, 1.0]


def ops():
    for name, factors in dict(brightness=(0.0, 0.6, 1.3, 2.7), contrast=(0.0, 0.4, 1.6, 3.0), saturation=(0.0, 0.4, 1.6, 3.0),
                              hue=(-0.5, -0.1, 0.0, 0.37), sharpness=(0.0, 0.4, 1.9, 4.0)).items():
        yield from (dict(op=name, factor=factor) for factor in factors)
    yield from (dict(op=name) for name in ("grayscale", "invert", "autocontrast", "equalize"))
    yield from (dict(op="posterize", bits=bits) for bits in (0, 3, 8))
    yield from (dict(op="solarize", threshold=threshold) for threshold in (0.0, 128 / 255, 0.7, 1.0))
    yield from (dict(op="solarize_add", add=add, threshold=128 / 255) for add in (40 / 255, -0.1))
    yield dict(op="permute", **{"from": [2, 0, 1]})
    yield dict(op="erase", area=[1, 9, 2, 30], value=FILL)
    yield dict(op="mix", own=0.3, chains=[[0.25, [dict(op="invert")]], [0.2, [dict(op="posterize", bits=3), dict(op="solarize", threshold=0.5)]], [0.25, []]])


def blurs(height, width):
    for kernel, sigma in (([3, 3], [0.5, 0.5]), ([5, 3], [1.0, 2.0]), ([1, 9], [0.3, 2.0]), ([23, 23], [1.9, 0.1]), ([23, 25], [4.0, 2.0])):
        if kernel[0] // 2 < height and kernel[1] // 2 < width:
            yield dict(op="blur", kernel=kernel, sigma=sigma)


def cases():
    def all_of(height, width, channels, kind, some):
        source = dict(height=height, width=width, channels=channels, kind=kind)
        yield from (case(source, op) for op in some if not (op["op"] == "permute" and channels == 1))

    def warps(samplings, fills, maps=WARPS):
        return [dict(op="warp", **map, sampling=sampling, fill=fill) for map in maps for sampling in samplings for fill in fills]

    samplings = ("nearest", "bilinear", "bicubic")
    for height, width, channels in ((1, 1, 3), (1, 1, 1), (2, 3, 3), (3, 3, 1), (5, 1, 3), (13, 17, 1)):
        yield from all_of(height, width, channels, "waves", [*ops(), *blurs(height, width)])
        yield from all_of(height, width, channels, "waves", warps(samplings, (FILL,), WARPS[3:7:3] + WARPS[9:10]))
    yield from all_of(13, 17, 3, "waves", [*ops(), *blurs(13, 17), *warps(("nearest",), (None, FILL))])
    yield from all_of(13, 17, 3, "slope", warps(samplings[1:], (None, FILL)))
    yield from all_of(31, 40, 3, "waves", [*list(ops())[2:20:4], *list(ops())[20:24], *blurs(31, 40)])
    yield from all_of(32, 32, 1, "waves", warps(samplings, (FILL,)))
    for kind in ("steps", "flat", "slope"):
        yield from all_of(13, 17, 3, kind, [op for op in ops() if op["op"] in ("autocontrast", "equalize", "hue", "contrast", "sharpness")][2::3])
        yield from all_of(31, 40, 1, kind, [dict(op="autocontrast"), dict(op="equalize")])


# ---- matrices --------------------------------------------------------------------------------------------------

def affines():
    """[angle, translate x, y, scale, shear x, y, centre x, y or null, height, width, six of the inverse matrix]."""
    for angle in (0.0, 30.0, -135.5, 359.0):
        for translate, scale, shear in (([0.0, 0.0], 1.0, [0.0, 0.0]), ([7.0, -3.5], 0.6, [11.0, -20.0])):
            for centre in (None, [0.0, 0.0], [12.5, 100.0]):
                offset = [0.0, 0.0] if centre is None else [c - s * 0.5 for c, s in zip(centre, (53, 37))]
                matrix = _geometry._get_inverse_affine_matrix(offset, angle, translate, scale, shear)
                yield [angle, *translate, scale, *shear, *(centre or [None, None]), 37, 53, *matrix]


def rotations():
    """[angle, height, width, hex of the rotated picture of bytes y * width + x], nearest."""
    for height, width in ((6, 6), (5, 5), (4, 7)):
        t = torch.arange(height * width, dtype=torch.uint8).view(1, height, width)
        for angle in (0.0, 90.0, 180.0, 270.0, -90.0, 360.0, 450.0, 20.0, -20.0, 200.0):
            yield [angle, height, width, F.rotate(t, angle).contiguous().numpy().tobytes().hex()]


def perspectives():
    """[four corners x y, where they go x y, eight coefficients]."""
    corners = [[0, 0], [52, 0], [52, 36], [0, 36]]
    for ends in (corners, [[3, 5], [50, 1], [47, 30], [6, 35]], [[13, 9], [39, 0], [52, 27], [0, 36]], [[0, 0], [52, 0], [40, 20], [12, 20]]):
        yield [sum(corners, []), sum(ends, []), _geometry._perspective_coefficients(corners, ends, None)]


# ---- the file --------------------------------------------------------------------------------------------------

ABOUT = {
    "what": "torchvision.transforms.v2.functional on contiguous [C, H, W] tensors, CPU: uint8, and the same divided by 255 as float32",
    "picture waves": "(11 + 29*c + 3*y*y + 7*x*(c+1) + (y*x*(c+2))/5) mod 256, integer division rounds down, y x c from 0",
    "picture slope": "30 + 20*c + (120*y)/height + ((60 + 10*c)*x)/width",
    "picture steps": "(16*(x/3 + y/4) + 9*c) mod 256",
    "picture flat": "77 + 40*c",
    "ops": "factors are read as f32; threshold, add, fill and value are parts of white; area is top, bottom, left, right; kernel and sigma down, then across",
    "bytes": "hex of the uint8 result; a value may differ by bound from it",
    "floats": "of the result of floats in f64 arithmetic (f32's, where f64 picks other values), at the flat indices `places` gives for channels x height x width",
    "f32_error": "largest distance of torch's f32 result from its f64 result",
    "affines": affines.__doc__, "rotations": rotations.__doc__, "perspectives": perspectives.__doc__,
}


def main():
    parts = dict(cases=list(cases()), affines=list(affines()), rotations=list(rotations()), perspectives=list(perspectives()))
    shapes = {(c["source"]["channels"], c["source"]["height"], c["source"]["width"]) for c in parts["cases"]}
    at = {"x".join(map(str, shape)): generate.places(*shape, SAMPLES) for shape in sorted(shapes)}
    versions = dict(torch=torch.__version__, torchvision=torchvision.__version__, numpy=np.__version__, python=sys.version.split()[0],
                    cpu=torch.backends.cpu.get_cpu_capability())
    line = lambda x: json.dumps(x, separators=(",", ":"))
    # One item a line, so that a regenerated file shows which case moved.
    blocks = [f'"about":{json.dumps(ABOUT, indent=1)}', f'"versions":{line(versions)}', f'"places":{line(at)}']
    blocks += [f'"{k}":[\n' + ",\n".join(map(line, v)) + "\n]" for k, v in parts.items()]
    path = sys.argv[1] if len(sys.argv) > 1 else "pixel_ops.json"
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(blocks) + "\n}\n")
    print(f"{path}: {len(parts['cases'])} cases")


if __name__ == "__main__":
    main()
