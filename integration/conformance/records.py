"""The data: records that say which they are, and pictures that do."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

DAMAGED = "is damaged"
# Pictures in the folder, and the one that is cut. The grey of a picture is its number, times this.
PICTURES, CUT, GREY = 60, 25, 4


class Records:
    """A map-style dataset: a record is three numbers and its index."""

    def __init__(self, count: int, damaged: int | None = None, draws: bool = False) -> None:
        self.count, self.damaged, self.draws = count, damaged, draws

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import numpy

        index = int(index)
        if not 0 <= index < self.count:
            raise IndexError(index)
        check(index, self.damaged)
        return numpy.array(drawn() if self.draws else [0.0, 0.0, 0.0]), index


def check(index: int, damaged: int | None) -> None:
    if index == damaged:
        raise OSError(f"record {index} {DAMAGED}")


def drawn() -> list[float]:
    """A number of each of the global generators, as augmentations in Python take them."""
    import numpy

    # Not imported for its own sake: Grain's scripts have none.
    torch = sys.modules.get("torch")
    of_torch = 0.0 if torch is None else float(torch.rand((), dtype=torch.float64))
    return [of_torch, float(numpy.random.rand()), random.random()]


def seed_all(seed: int) -> None:
    """As a training script begins."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def write_pictures(folder: str) -> None:
    """JPEG files of one class. One ends in the middle of its pixels, as an upload that broke off."""
    import numpy
    from PIL import Image

    place = os.path.join(folder, "pictures", "all")
    os.makedirs(place)
    for number in range(PICTURES):
        path = os.path.join(place, f"{number:03}.jpg")
        Image.fromarray(numpy.full((64, 64, 3), number * GREY, numpy.uint8)).save(path, quality=95)
        if number == CUT:
            with open(path, "rb") as file:
                whole = file.read()
            # Where the pixels begin: behind the header of the scan.
            start = whole.rindex(b"\xff\xda") + 14
            with open(path, "wb") as file:
                file.write(whole[: start + (len(whole) - start) // 2])


def seen(pixels: Any) -> tuple[int, bool]:
    """Which picture it is (`[H, W, C]` or `[C, H, W]`, 0 to 255), and whether its end is wrong."""
    if pixels.shape[0] == 3:
        pixels = pixels.transpose(1, 2, 0)
    top, bottom = float(pixels[:8, :8].mean()), float(pixels[-8:, -8:].mean())
    return round(top / GREY), abs(top - bottom) > GREY
