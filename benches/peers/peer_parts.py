"""One cold epoch over Parquet of photographs by others: Hugging Face's `datasets`, and a DataLoader over pyarrow.

`datasets` streams, as its documentation shows; `pyarrow` is what one writes by hand: row groups in random order, dealt out to
workers, each read whole and shuffled. Both decode and transform by Pillow and torchvision. Row groups are all that is read
in another order: none of them reads in random order over all records. Prints one line of JSON, as `infeed run --json -` has it.
"""

import argparse
import io
import json
import resource
import time

import datasets
import fsspec
import numpy
import pyarrow.parquet
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

import measure
from peer_torch import steps, to_floats

TRANSFORM = v2.Compose([*steps("photos")[0], *to_floats(True), v2.Normalize(measure.IMAGENET_MEAN, measure.IMAGENET_STD)])


class RowGroups(IterableDataset):
    def __init__(self, urls, window):
        self.urls, self.window = urls, window

    def __iter__(self):
        files = [opened(url) for url in self.urls]
        groups = [(file, group) for file in files for group in range(file.num_row_groups)]
        # The same order in each worker, which takes its part of it.
        rng, worker = numpy.random.default_rng(1), get_worker_info()
        mine = rng.permutation(len(groups))[worker.id :: worker.num_workers] if worker else rng.permutation(len(groups))
        held = []
        for number in mine:
            file, group = groups[number]
            held += file.read_row_group(group, columns=["image", "label"]).to_pylist()
            while len(held) >= self.window:
                yield from drawn(held, len(held) - self.window + 1, rng)
        yield from drawn(held, len(held), rng)


def opened(url):
    # A request for each range: fsspec's own read-ahead would read what is not asked for.
    file = fsspec.open(url, cache_type="none").open() if "://" in url else url
    return pyarrow.parquet.ParquetFile(file, pre_buffer=True)


def drawn(held, count, rng):
    for _ in range(count):
        at = rng.integers(len(held))
        held[at], held[-1] = held[-1], held[at]
        row = held.pop()
        yield {"image": row["image"]["bytes"], "label": row["label"]}


def collate(rows):
    images = torch.stack([TRANSFORM(picture(row["image"])) for row in rows])
    return images, torch.tensor([row["label"] for row in rows])


def picture(image):
    if isinstance(image, bytes):
        image = Image.open(io.BytesIO(image))
    return image.convert("RGB")


def streamed(urls, window):
    rows = datasets.load_dataset("parquet", data_files=urls, split="train", streaming=True)
    return rows.shuffle(seed=1, buffer_size=window)


def cpu_seconds():
    """Of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=["datasets", "pyarrow"])
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--step", type=float, default=0.0, help="seconds that the trainer takes for a batch")
    args = parser.parse_args()
    torch.set_num_threads(1)

    start = time.perf_counter()
    rows = (streamed if args.variant == "datasets" else RowGroups)(args.urls, args.window)
    loader = DataLoader(rows, args.batch_size, num_workers=args.workers, collate_fn=collate)
    opened = time.perf_counter() - start

    cpu, start = cpu_seconds(), time.perf_counter()
    waits, samples, asked = [], 0, start
    for images, _ in loader:
        waits.append(time.perf_counter() - asked)
        if not samples:
            measure.check(images, (args.batch_size, 3, 224, 224), numpy.float32)
        samples += len(images)
        if args.step:
            time.sleep(args.step)
        asked = time.perf_counter()
    seconds = time.perf_counter() - start
    print(json.dumps({
        "samples": samples,
        "seconds": seconds,
        "samples_per_second": samples / seconds,
        "open_seconds": opened,
        "first_batch_seconds": waits[0],
        "cpu_seconds": cpu_seconds() - cpu,
        # After the first batch, as `infeed run` counts them.
        "batches": len(waits),
        "data_wait": {"sum": sum(waits[1:])},
        "wait_buckets": [{"at_most": most, "batches": sum(wait <= most for wait in waits[1:])} for most in (0.001, 0.01, 0.1, 1.0)],
    }))


if __name__ == "__main__":
    main()
