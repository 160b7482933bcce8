"""Photographs of a folder of class folders in another format: WebP (quality 85), or TIFF with LZW.

recode.py FOLDER OUT webp|tiff
"""

import os
import sys

from PIL import Image

import measure

OPTIONS = {"webp": {"quality": 85}, "tiff": {"compression": "tiff_lzw"}}


def main():
    folder, out, kind = sys.argv[1:]
    for path in measure.photos(folder)[0]:
        target = os.path.join(out, os.path.basename(os.path.dirname(path)), f"{os.path.splitext(os.path.basename(path))[0]}.{kind}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Image.open(path).convert("RGB").save(target, **OPTIONS[kind])


if __name__ == "__main__":
    main()
