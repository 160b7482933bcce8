"""What the peers that decode on the GPU from Python share: threads that read, threads that decode, the crop, the clock.

    peer_….py FOLDER [--seconds S] [--runs N] [--quick]

Several batch sizes and numbers of decoding threads, each with a CUDA stream and a decoder of its own; a line of JSON for
each. Warm files, whole batches, shuffled anew each epoch. A setting that fails is a line too, and costs itself only.
"""

import argparse
import json
import math
import os
import queue
import random
import statistics
import sys
import threading
import time

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# A batch that takes longer than this will never come.
PATIENCE = 20.0


def say(section, name, **fields):
    print(json.dumps({"section": section, "name": name, **fields}), flush=True)


def paths_of(folder):
    found = []
    for where, _, names in os.walk(folder):
        found += [os.path.join(where, name) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    return sorted(found)


def read(path):
    """A file's bytes in a tensor that no one else has."""
    data = bytearray(os.path.getsize(path))
    with open(path, "rb", buffering=0) as file:
        file.readinto(data)
    return torch.frombuffer(data, dtype=torch.uint8)


def crop_of(height, width):
    """RandomResizedCrop's window: top, left, height, width."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


class Finish:
    """Images to rows of a batch: RandomResizedCrop, flip, normalise, f16."""

    def __init__(self):
        self.mean = torch.tensor(MEAN, device="cuda").view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device="cuda").view(1, 3, 1, 1) * 255

    def __call__(self, images, cropped=False):
        """`images`: u8, CHW, on the GPU; `cropped`: they are the crops already."""
        rows = [self.row(image, cropped) for image in images]
        rows = torch.stack([row.flip(-1) if random.random() < 0.5 else row for row in rows])
        return rows.float().sub_(self.mean).div_(self.std).half()

    def row(self, image, cropped):
        if cropped:
            return F.resize(image, [224, 224], InterpolationMode.BILINEAR, antialias=True)
        window = crop_of(*image.shape[-2:])
        return F.resized_crop(image, *window, [224, 224], InterpolationMode.BILINEAR, antialias=True)


class Pipeline:
    """Reader threads feed decoding threads, which hand over finished batches.

    `make(stream)` is called on each decoding thread and gives a function from a list of what `read` gave to a batch.
    """

    def __init__(self, paths, batch, make, read, decoders, readers):
        self.paths, self.batch, self.make, self.read_file = paths, batch, make, read
        self.stop = threading.Event()
        self.failure = None
        self.orders, self.files, self.done = queue.Queue(8), queue.Queue(8), queue.Queue(4)
        work = [self.order] + [self.read] * readers + [self.decode] * decoders
        self.threads = [threading.Thread(target=self.guarded, args=(step,), daemon=True) for step in work]
        for thread in self.threads:
            thread.start()

    def guarded(self, step):
        try:
            step()
        except BaseException as error:  # handed to whoever waits for batches
            self.failure = error
            self.stop.set()

    def put(self, to, item):
        while not self.stop.is_set():
            try:
                return to.put(item, timeout=0.1)
            except queue.Full:
                continue

    def get(self, source):
        while not self.stop.is_set():
            try:
                return source.get(timeout=0.1)
            except queue.Empty:
                continue

    def order(self):
        while not self.stop.is_set():
            order = random.sample(range(len(self.paths)), len(self.paths))
            for at in range(0, len(order) - self.batch + 1, self.batch):
                self.put(self.orders, order[at : at + self.batch])

    def read(self):
        while (rows := self.get(self.orders)) is not None:
            self.put(self.files, [self.read_file(self.paths[row]) for row in rows])

    def decode(self):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            decode = self.make(stream)
        while (files := self.get(self.files)) is not None:
            with torch.cuda.stream(stream):
                rows = decode(files)
                stream.synchronize()
            self.put(self.done, rows)

    def next(self):
        end = time.perf_counter() + PATIENCE
        while time.perf_counter() < end:
            if self.failure:
                raise self.failure
            try:
                return self.done.get(timeout=0.2)
            except queue.Empty:
                continue
        raise TimeoutError(f"no batch came for {PATIENCE:.0f} s")

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(5)


def measure(pipeline, crop, seconds, runs):
    try:
        begin, taken = time.perf_counter(), 0
        # More than what the queues hold.
        while taken < 8 or time.perf_counter() - begin < seconds / 2:
            rows = pipeline.next()
            taken += 1
        if crop and (tuple(rows.shape) != (pipeline.batch, 3, 224, 224) or rows.dtype != torch.float16 or not rows.is_cuda):
            raise ValueError(f"batches are {tuple(rows.shape)} {rows.dtype}")
        rates = []
        for _ in range(runs):
            begin, images = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                images += len(pipeline.next())
            rates.append(images / (time.perf_counter() - begin))
        return rates
    finally:
        pipeline.close()


def main(section, versions, cases, read=read, doc=__doc__):
    """Measures `cases(cores, quick)`: (name, batch, decoding threads, whether it makes crops, `make` of `Pipeline`)."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    say(section, "versions", note=versions)
    paths, cores = paths_of(args.folder), len(os.sched_getaffinity(0))
    for what, batch, decoders, crop, make in cases(cores, args.quick):
        # Few files, as in a test.
        batch = min(batch, len(paths))
        name = f"{what} batch={batch} decoding threads={decoders}"
        try:
            pipeline = Pipeline(paths, batch, make, read, decoders, max(2, cores // 2))
            rates = measure(pipeline, crop, args.seconds, args.runs)
            say(section, name, unit="images/s", median=statistics.median(rates), low=min(rates), high=max(rates),
                runs=len(rates), more={"crop": crop, "batch": batch, "decoders": decoders})
        except Exception as error:  # the other settings may work
            say(section, name, error=f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    # Libraries with threads of their own may take forever to end, or crash on the way.
    os._exit(0)
