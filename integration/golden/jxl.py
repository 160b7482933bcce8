"""Small JPEG XL files and what libjxl makes of them: python3 integration/golden/jxl.py > integration/golden/jxl.json

Needs pillow, pillow-jxl-plugin (which brings libjxl) and numpy. The files are lossy (VarDCT), lossless (modular), gray, with
alpha, and a JPEG within.
"""

import importlib.metadata
import io
import json

import numpy as np
import pillow_jxl  # noqa: F401 (teaches Pillow the format)
from PIL import Image

HEIGHT, WIDTH = 37, 29


def colours():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    wave = lambda speed, phase: 127.5 + 100 * np.sin(y * speed + x * speed * 0.7 + phase)
    return Image.fromarray(np.stack([wave(0.5, 0), wave(0.31, 2), wave(0.23, 4)], -1).astype(np.uint8))


def file_of(image, **how):
    file = io.BytesIO()
    image.save(file, format="JXL", **how)
    return file.getvalue()


def main():
    rgb = colours()
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray((np.mgrid[0:HEIGHT, 0:WIDTH][1] * 8).astype(np.uint8)))
    jpeg = io.BytesIO()
    rgb.save(jpeg, format="JPEG", quality=90)
    jpeg.seek(0)
    files = {
        "lossy": file_of(rgb, quality=90),
        "lossless": file_of(rgb, lossless=True),
        "gray": file_of(rgb.convert("L"), lossless=True),
        "rgba": file_of(rgba, lossless=True),
        "jpeg": file_of(Image.open(jpeg), lossless_jpeg=True),
    }
    pictures = []
    for name, file in files.items():
        pixels = np.asarray(Image.open(io.BytesIO(file)))
        channels = 1 if pixels.ndim == 2 else pixels.shape[2]
        pictures.append({"name": name, "channels": channels, "file": file.hex(), "pixels": pixels.tobytes().hex()})
    made = {name: importlib.metadata.version(name) for name in ["pillow", "pillow-jxl-plugin"]}
    print(json.dumps({"made_by": made, "height": HEIGHT, "width": WIDTH, "pictures": pictures}, indent=0))


if __name__ == "__main__":
    main()
