#!/usr/bin/env python3
"""Lists from Parquet or JSON: infeed beside torch's DataLoader over Hugging Face's `datasets`, in turns.

    python3 benches/peers/lists.py --infeed target/release/infeed --python VENV/bin/python
    python3 benches/peers/lists.py --infeed target/release/infeed --python VENV/bin/python --photos FOLDER [--named]

VENV has torch, torchvision, datasets and pyarrow. `datasets` memory-maps Arrow files that it has made before; they are not
counted. torch has a process for each core; its first epoch, in which they start, is counted as infeed's is.

Without --photos, both shuffle 100,000 rows of 1 to 1,023 tokens (int32), make batches of 256 rows and fill short rows with 0.
With it, both shuffle 400 rows of one to four photographs and make batches of 32 rows, each photograph cropped at random to
224 x 224, flipped and normalised: one tensor for all photographs of a batch, and the number of each row. With --named, a JSON
list of 2,000 rows names the photographs of FOLDER, and torch's DataLoader opens them with Pillow.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

EPOCHS = 3

MAKE_TOKENS = """
import numpy, pyarrow, pyarrow.parquet, sys
draws = numpy.random.default_rng(1)
rows = [draws.integers(0, 50_000, draws.integers(1, 1024), dtype="int32") for _ in range(100_000)]
pyarrow.parquet.write_table(pyarrow.table({"tokens": rows}), sys.argv[1], row_group_size=10_000)
"""

MAKE_IMAGES = """
import datasets, pathlib, random, sys
files = sorted(file for file in pathlib.Path(sys.argv[2]).rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
draws = random.Random(1)
rows = [[{"bytes": draws.choice(files).read_bytes(), "path": None} for _ in range(draws.randint(1, 4))] for _ in range(400)]
features = datasets.Features({"images": [datasets.Image()]})
datasets.Dataset.from_dict({"images": rows}, features=features).to_parquet(sys.argv[1], batch_size=50)
"""

MAKE_NAMES = """
import json, pathlib, random, sys
root = pathlib.Path(sys.argv[2])
files = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
draws = random.Random(1)
rows = [{"images": [draws.choice(files) for _ in range(draws.randint(1, 4))], "messages": [{"n": n}]} for n in range(2_000)]
json.dump(rows, open(sys.argv[1], "w"))
"""

PEER = """
import json, os, sys, time
import datasets, torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
file, cache, work, batch, epochs = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
if work == "names":
    from PIL import Image
    class Named(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = json.load(open(file))
        def __len__(self):
            return len(self.rows)
        def __getitem__(self, n):
            images = [Image.open(os.path.join(cache, name)) for name in self.rows[n]["images"]]
            return {"images": torch.stack([steps(image.convert("RGB")) for image in images])}
    data = Named()
else:
    data = datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=cache)
if work == "tokens":
    data = data.with_format("torch")
    def collate(rows):
        tokens = [row["tokens"] for row in rows]
        return pad_sequence(tokens, batch_first=True), torch.tensor([len(row) for row in tokens])
else:
    from torchvision.transforms import v2
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    steps = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor(),
                        v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
    def prepared(rows):
        return {"images": [torch.stack([steps(image.convert("RGB")) for image in row]) for row in rows["images"]]}
    data = data if work == "names" else data.with_transform(prepared)
    def collate(rows):
        counts = torch.tensor([len(row["images"]) for row in rows])
        return torch.cat([row["images"] for row in rows]), counts
if epochs:
    loader = DataLoader(data, batch, shuffle=True, collate_fn=collate, num_workers=len(os.sched_getaffinity(0)), drop_last=True,
                        persistent_workers=True)
    began, samples = time.perf_counter(), 0
    for epoch in range(epochs):
        for values, lengths in loader:
            samples += len(lengths)
    print(json.dumps({"samples": samples, "seconds": time.perf_counter() - began}))
"""


def timed(command):
    """Samples a second, and microseconds of CPU a sample with all processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report = json.loads(found.strip().splitlines()[-1])
    return report["samples"] / report["seconds"], cpu / report["samples"] * 1e6


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--photos")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, cache = str(Path(folder) / "rows.parquet"), str(Path(folder) / "cache")
        if args.photos is None:
            work, batch, make, how = "tokens", "256", [MAKE_TOKENS, file], ["--pad", "tokens=0", "--transform", "none"]
        else:
            work, batch, make, how = "images", "32", [MAKE_IMAGES, file, args.photos], ["--transform", "imagenet-train"]
        if args.named:
            file, cache = str(Path(folder) / "rows.json"), args.photos
            work, make = "names", [MAKE_NAMES, file, args.photos]
            how += ["--format", "jsonl", "--image-root", args.photos]
        subprocess.run([args.python, "-c", *make], check=True, capture_output=True)
        peer = [args.python, "-c", PEER, file, cache, work, batch]
        subprocess.run([*peer, "0"], check=True, capture_output=True)
        ours = [args.infeed, "run", file, "--batch-size", batch, "--last-batch", "drop", "--shuffle", "1", *how]
        ours += ["--device", "cpu", "--epochs", str(EPOCHS), "--json", "-"]
        other = "torch + Pillow" if args.named else "torch + datasets"
        found = {"infeed": [], other: []}
        for number in range(args.rounds):
            turns = [("infeed", ours), (other, [*peer, str(EPOCHS)])]
            for name, command in turns if number % 2 == 0 else reversed(turns):
                found[name].append(timed(command))
        print(f"{len(os.sched_getaffinity(0))} cores, {args.rounds} rounds in turns, medians (least-most)")
        for name, runs in found.items():
            rates, cpu = zip(*runs, strict=True)
            print(f"{name:18} {spread(rates, ',.0f')} rows/s, {spread(cpu, '.1f')} µs CPU a row")
        ratios = [ours[0] / theirs[0] for ours, theirs in zip(*found.values(), strict=True)]
        print(f"infeed is {spread(ratios, '.2f')} times as fast")


main()
