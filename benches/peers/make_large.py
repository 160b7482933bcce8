"""Photographs of 12 megapixels (4000x3000, quality 90, 4:2:0), each of sixteen of a folder of class folders, enlarged to 1000x750.

make_large.py FOLDER OUT COUNT. The same files from the same folder, whenever it runs.
"""

import os
import random
import sys

from PIL import Image

import measure

ROWS = COLUMNS = 4
WIDTH, HEIGHT = 1000, 750


def main():
    folder, out, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    paths = measure.photos(folder)[0]
    rng = random.Random(0)
    tiles = {}
    for number in range(count):
        image = Image.new("RGB", (COLUMNS * WIDTH, ROWS * HEIGHT))
        for place in range(ROWS * COLUMNS):
            path = rng.choice(paths)
            if path not in tiles:
                tiles[path] = Image.open(path).convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
            image.paste(tiles[path], (place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT))
        # Two class folders: a folder of images is known by them.
        target = os.path.join(out, f"class{number % 2}", f"{number:04}.jpg")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        image.save(target, quality=90, subsampling=2)


if __name__ == "__main__":
    main()
