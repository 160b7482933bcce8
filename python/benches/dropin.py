"""Compares `infeed.torch.DataLoader` with torch's on Python datasets, and with `infeed.Loader` on photographs.

    python dropin.py [--photos FOLDER] [--rounds 7] [--workers 0 2] [--only KIND...] [--json FILE]

Both loaders read each kind in turn, round by round, in this process. The figures are ratios of wall time, and of CPU time of this
process and its workers: the other loader's time divided by that of `infeed.torch.DataLoader`, median of the rounds; above 1 it is
faster. Kinds: `bytes` (returns 10 kB), `pil` (decodes a JPEG with Pillow), `numpy` (arithmetic on 64 kB), `sleep` (5 ms), `h5py`
(reads a row), `draws` (draws a crop with torch), `tensors` (a TensorDataset of 3 x 32 x 32), `photos` (a folder, read by the engine),
`folder` (four epochs of torchvision's ImageFolder with the chain of its training reference; also against the engine without
`jpeg_exact`).
"""

from __future__ import annotations

import argparse
import io
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import infeed
import numpy as np
import torch
import torch.utils.data as data
from infeed.torch import DataLoader

BATCH = 32


class Kind(data.Dataset[Any]):  # type: ignore[misc,unused-ignore]
    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def jpeg() -> bytes:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def kinds(folder: str) -> dict[str, Any]:
    """Datasets whose epochs take similar times."""
    encoded, values = jpeg(), np.random.default_rng(0).random(8192)
    image = torch.zeros(3, 40, 40)

    def pil(index: int) -> Any:
        from PIL import Image

        return torch.from_numpy(np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).copy()), index

    def sleep(index: int) -> int:
        time.sleep(0.005)
        return index

    def draws(index: int) -> Any:
        top, left = torch.randint(0, 9, (2,)).tolist()
        return image[:, top : top + 32, left : left + 32], index

    made: dict[str, Any] = {
        "bytes": Kind(lambda index: b"x" * 10_000, 20_000),
        "pil": Kind(pil, 640),
        "numpy": Kind(lambda index: (np.sqrt(values + index) * 2.0).astype(np.float32), 8_000),
        "sleep": Kind(sleep, 160),
        "draws": Kind(draws, 4_000),
        "tensors": data.TensorDataset(torch.zeros(20_000, 3, 32, 32), torch.arange(20_000)),
    }
    try:
        import h5py
    except ImportError:
        return made
    path = f"{folder}/rows.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = np.zeros((4_000, 1024), np.float32)
    opened: list[Any] = []

    def row(index: int) -> Any:
        if not opened:
            opened.append(h5py.File(path, "r")["rows"])
        return opened[0][index]

    made["h5py"] = Kind(row, 4_000)
    return made


def training(folder: str) -> Any:
    """An ImageFolder with the chain of torchvision's training reference."""
    from torchvision import datasets, transforms  # type: ignore[import-not-found,unused-ignore]

    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.TrivialAugmentWide()]
    steps += [transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float), normalize, transforms.RandomErasing(0.1)]
    return datasets.ImageFolder(folder, transforms.Compose(steps))


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(it.ru_utime + it.ru_stime for it in used)


def epoch(loader: Any) -> tuple[float, float]:
    """Wall and CPU seconds of an epoch."""
    began, used = time.perf_counter(), cpu()
    for _ in loader:
        pass
    return time.perf_counter() - began, cpu() - used


def compare(name: str, mine: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> dict[str, Any]:
    epoch(mine()), epoch(theirs())
    taken: list[list[tuple[float, float]]] = [[], []]
    for at in range(rounds):
        for which in (0, 1) if at % 2 else (1, 0):
            taken[which].append(epoch((mine, theirs)[which]()))
    told: dict[str, Any] = {"kind": name}
    for what, place in (("wall", 0), ("cpu", 1)):
        ratios = sorted(other[place] / own[place] for own, other in zip(*taken, strict=True))
        told[what] = [round(it, 3) for it in (statistics.median(ratios), ratios[0], ratios[-1])]
    print(f"{name:14} wall {told['wall'][0]:.3f} ({told['wall'][1]}-{told['wall'][2]})  cpu {told['cpu'][0]:.3f} ({told['cpu'][1]}-{told['cpu'][2]})", flush=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    told: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, dataset in kinds(folder).items():
            for workers in given.workers:
                if given.only and name not in given.only:
                    continue

                def of(kind: Any, dataset: Any = dataset, workers: int = workers) -> Callable[[], Any]:
                    return lambda: kind(dataset, BATCH, num_workers=workers)

                told.append(compare(f"{name}, {workers}", of(DataLoader), of(data.DataLoader), given.rounds))
    if given.photos and (not given.only or "photos" in given.only):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            files = common.photos(given.photos, 2_000, Path(folder))
            arguments: dict[str, Any] = {"batch_size": 64, "transform": "imagenet-val", "seed": 1}

            def read(kind: Any, value: Callable[[Any], Any]) -> Any:
                # Closed after the epoch: otherwise it would read the next epoch while the other loader is measured.
                with kind(files, **arguments) as loader:
                    for batch in loader:
                        yield value(batch)

            def ours() -> Any:
                return read(DataLoader, tuple)

            def plain() -> Any:
                return read(infeed.Loader, lambda batch: (batch["image"].torch(), batch["label"].torch()))

            told.append(compare("photos", ours, plain, given.rounds))
    if given.photos and (not given.only or "folder" in given.only):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            dataset = training(str(common.photos(given.photos, 250, Path(folder))))

            def epochs(kind: Any, **more: Any) -> Callable[[], Any]:
                def batches() -> Any:
                    loader = kind(dataset, BATCH, shuffle=True, num_workers=2, **more)
                    for _ in range(4):
                        yield from loader
                    if kind is DataLoader:
                        loader.close()

                return batches

            told.append(compare("folder, 2", epochs(DataLoader), epochs(data.DataLoader), given.rounds))
            told.append(compare("folder, exact", epochs(DataLoader), epochs(DataLoader, jpeg_exact=False), given.rounds))
    if given.json:
        common.save(given.json, {**common.about(common.hold(2)), "torch": torch.__version__, "kinds": told})


if __name__ == "__main__":
    main()
