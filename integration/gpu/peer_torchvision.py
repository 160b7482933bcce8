#!/usr/bin/env python3
"""torchvision on the GPU: batched CUDA decode, RandomResizedCrop, flip, normalise to f16; files read by threads.

    peer_torchvision.py FOLDER [--seconds S] [--runs N] [--quick]

Tries several batch sizes and numbers of decoding threads, each with a CUDA stream of its own, and prints a line of JSON
for each. Warm files, whole batches; shuffled anew each epoch.
"""

import argparse
import json
import os
import queue
import random
import statistics
import threading
import time

import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.v2 import functional as F

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def paths_of(folder):
    found = []
    for where, _, names in os.walk(folder):
        found += [os.path.join(where, name) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    return sorted(found)


class Loader:
    """Reader threads feed decoding threads, which hand over finished batches."""

    def __init__(self, paths, batch, decoders, readers, crop):
        self.paths, self.batch, self.crop = paths, batch, crop
        self.stop = threading.Event()
        self.failure = None
        self.orders, self.files, self.done = queue.Queue(8), queue.Queue(8), queue.Queue(4)
        self.mean = torch.tensor(MEAN, device="cuda").view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device="cuda").view(1, 3, 1, 1) * 255
        work = [self.order] + [self.read] * readers + [self.decode] * decoders
        self.threads = [threading.Thread(target=self.guarded, args=(step,), daemon=True) for step in work]
        for thread in self.threads:
            thread.start()

    def guarded(self, step):
        try:
            step()
        except Exception as error:  # handed to whoever waits for batches
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
            self.put(self.files, [read_file(self.paths[row]) for row in rows])

    def decode(self):
        stream = torch.cuda.Stream()
        while (files := self.get(self.files)) is not None:
            with torch.cuda.stream(stream):
                images = decode_jpeg(files, mode=ImageReadMode.RGB, device="cuda")
                rows = images
                if self.crop:
                    rows = torch.stack([self.row(image) for image in images])
                    rows = rows.float().sub_(self.mean).div_(self.std).half()
                stream.synchronize()
            self.put(self.done, rows)

    def row(self, image):
        top, left, height, width = RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3))
        row = F.resized_crop(image, top, left, height, width, [224, 224], InterpolationMode.BILINEAR, antialias=True)
        return F.horizontal_flip(row) if random.random() < 0.5 else row

    def next(self):
        while True:
            try:
                return self.done.get(timeout=0.2)
            except queue.Empty:
                if self.failure:
                    raise self.failure

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(5)


def measure(paths, batch, decoders, readers, crop, seconds, runs):
    loader = Loader(paths, batch, decoders, readers, crop)
    try:
        begin = time.perf_counter()
        taken = 0
        # More than what the queues hold.
        while taken < 8 or time.perf_counter() - begin < seconds / 2:
            rows = loader.next()
            taken += 1
        if crop:
            assert rows.shape == (batch, 3, 224, 224) and rows.dtype == torch.float16 and rows.is_cuda
        rates = []
        for _ in range(runs):
            begin, images = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                images += len(loader.next())
            rates.append(images / (time.perf_counter() - begin))
        return rates
    finally:
        loader.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    paths = paths_of(args.folder)
    torch.set_num_threads(1)
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    print(json.dumps({"section": "torchvision", "name": "versions", "note": versions}), flush=True)
    cores = len(os.sched_getaffinity(0))
    settings = [(64, 1), (256, 1), (128, 4), (256, 4)] if args.quick else [
        (batch, threads) for batch in (32, 64, 128, 256, 512) for threads in (1, 2, 4, 8)]
    cases = [(batch, threads, True) for batch, threads in settings] + [(256, 1, False), (128, 4, False)]
    for batch, decoders, crop in cases:
        if len(paths) < batch:
            continue
        what = "decode, crop, normalise" if crop else "decode alone"
        name = f"{what} batch={batch} decoding threads={decoders}"
        try:
            rates = measure(paths, batch, decoders, max(2, cores // 2), crop, args.seconds, args.runs)
            line = {"unit": "images/s", "median": statistics.median(rates), "low": min(rates), "high": max(rates),
                    "runs": len(rates), "more": {"crop": crop}}
        except Exception as error:  # the other settings may work
            line = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"section": "torchvision", "name": name, **line}), flush=True)


if __name__ == "__main__":
    main()
