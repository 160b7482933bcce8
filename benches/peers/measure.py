"""What a contestant prints: one warm-up epoch, then the measured ones, as one line of JSON.

Nothing touches the pixels of a measured batch. `infeed run` does not either, and every loader here
hands a batch over only when it is finished, so there is nothing left to be done by looking at it.
"""

import argparse
import json
import math
import os
import time
from typing import NamedTuple

import numpy

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class View(NamedTuple):
    """One of DINO's views: a crop, and how it is blurred and solarized. Flip, colours and normalising are as in the others."""

    side: int
    area: tuple
    kernel: int
    blurred: float
    solarized: float = 0.0


# Two global views and eight local ones, as facebookresearch/dino's DataAugmentationDINO draws them.
DINO = (
    View(224, (0.4, 1.0), 23, 1.0),
    View(224, (0.4, 1.0), 23, 0.1, 0.2),
    *[View(96, (0.05, 0.4), 9, 0.5)] * 8,
)


def dino_shapes(batch_size):
    return [(batch_size, 3, view.side, view.side) for view in DINO]


def parser(description, variants=()):
    """Of the arguments compare.py gives to every contestant."""
    parser = argparse.ArgumentParser(description=description)
    recipes = ("trivial", "randaugment", "jitter", "blur", "bicubic", "plain-176", "dino", "ssd", "lsj")
    known = ("photos", "val", "decode", "cifar", "cells", "cells-read", "volumes", "patches", *recipes)
    parser.add_argument("workload", choices=known)
    parser.add_argument("folder", help="class folders, or CIFAR-10's binary files")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True, help="after one to warm up")
    parser.add_argument("--threads", type=int, required=True)
    if variants:
        parser.add_argument("--variant", choices=variants, default=variants[0])
    return parser


def arguments(description, variants=()):
    return parser(description, variants).parse_args()


def photos(folder):
    """Paths and labels of a folder of class folders, in the order of their names."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    labelled = [
        (os.path.join(folder, name, file), label)
        for label, name in enumerate(classes)
        for file in sorted(os.listdir(os.path.join(folder, name)))
    ]
    paths, labels = zip(*labelled)
    return list(paths), list(labels)


def random_box(width, height, rng):
    """The crop of RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)), drawn as torchvision does: x, y, width, height."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.uniform(0, width - w + 1)), int(rng.uniform(0, height - h + 1)), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def shorter_256(width, height):
    """Size with the shorter side 256, as torchvision rounds it, and the corner of the middle 224x224."""
    short = min(width, height)
    width, height = 256 * width // short, 256 * height // short
    return width, height, round((width - 224) / 2), round((height - 224) / 2)


def cifar(folder):
    """All training pictures of CIFAR-10's binary files: u8 [N, 3, 32, 32], labels [N]."""
    files = sorted(f for f in os.listdir(folder) if f.startswith("data_batch_") and f.endswith(".bin"))
    rows = [numpy.fromfile(os.path.join(folder, f), numpy.uint8).reshape(-1, 1 + 3 * 32 * 32) for f in files]
    rows = numpy.concatenate(rows)
    return numpy.ascontiguousarray(rows[:, 1:]).reshape(-1, 3, 32, 32), rows[:, 0].astype(numpy.int64)


def run(version, epoch, epochs, shape, dtype=numpy.float32):
    """Measures `epoch()`, which gives an iterator over (images, labels), and prints the line.

    `shape` is that of every batch of images, or a list where a batch is several arrays; a loader that gives anything else is
    not doing the same work.
    """
    batch_size = shape[0][0] if isinstance(shape, list) else shape[0]
    called = time.perf_counter()
    first, warm, looked = None, 0, 0
    for images, _ in epoch():
        warm += 1
        if first is None:
            first = time.perf_counter() - called
            mean, std = check(images, shape, dtype)
            looked = time.perf_counter() - called - first
    warmed = time.perf_counter() - called - looked

    processes = tree()
    cpu, start = cpu_seconds(processes), time.perf_counter()
    batches = 0
    for _ in range(epochs):
        for _ in epoch():
            batches += 1
    seconds, cpu = time.perf_counter() - start, cpu_seconds(processes) - cpu

    print(json.dumps({
        "version": version,
        "images": batches * batch_size,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "first_batch_seconds": first,
        "from_start": {"images": (warm + batches) * batch_size, "seconds": warmed + seconds},
        # The sum over processes counts pages they share once for each; the proportional size splits them.
        "peak_rss_bytes": sum(kib(pid, "status", "VmHWM:") for pid in processes) * 1024,
        "end_pss_bytes": sum(kib(pid, "smaps_rollup", "Pss:") for pid in processes) * 1024,
        "processes": len(processes),
        "first_batch": {"mean": mean, "std": std},
    }), flush=True)


def check(images, shape, dtype):
    """Mean and deviation; of several arrays, a list of each."""
    if isinstance(shape, list):
        if len(images) != len(shape):
            raise SystemExit(f"a batch is {len(images)} arrays (wanted: {len(shape)})")
        return tuple(zip(*(check(one, its, dtype) for one, its in zip(images, shape))))
    pixels = numpy.asarray(images)
    if pixels.shape != shape or pixels.dtype != dtype or not pixels.flags.c_contiguous:
        raise SystemExit(f"a batch is {pixels.dtype} {pixels.shape} (wanted: contiguous {numpy.dtype(dtype)} {shape})")
    return float(pixels.mean()), float(pixels.std())


def tree():
    """This process and all its descendants."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(pid)] = int(stat(pid)[1])
        except OSError:
            pass  # ended while we looked
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds(pids):
    """User and system time of living processes, to the nearest 10 ms each."""
    return sum(int(tick) for pid in pids for tick in stat(pid)[11:13]) / os.sysconf("SC_CLK_TCK")


def stat(pid):
    # The name comes second and may hold anything; what follows its parenthesis is state, parent, …
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def kib(pid, file, key):
    with open(f"/proc/{pid}/{file}") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key))
