"""PyTorch's DataLoader and NVIDIA DALI on patients of four NRRD files, read by pynrrd.

`torch-files` reads files for each sample, as the study of this workload does; `torch-cache` keeps the patients that a worker has seen,
each worker its own. `dali` hands over patients kept in memory without a copy; DALI has no reader for NRRD. Its batches are views,
good until the next one.
"""

import functools
import os
import random

import nrrd
import numpy

import measure

VARIANTS = ("torch-files", "torch-cache", "dali")
SAMPLES, PATCH = 15, 96


def read(path):
    return nrrd.read(path)[0]


def patient(folder):
    """image [2, ...] f32 and mask [2, ...] u8, contiguous: as pynrrd returns them, every later copy takes twice as long."""
    image = numpy.stack([read(f"{folder}/{name}.nrrd").astype(numpy.float32) for name in ("ct", "pet")])
    mask = numpy.stack([read(f"{folder}/{name}.nrrd") for name in ("mask", "mask2")])
    return numpy.ascontiguousarray(image), numpy.ascontiguousarray(mask)


def cut(image, mask):
    starts = [random.randint(0, side - PATCH) for side in image.shape[1:]]
    box = (slice(None), *(slice(start, start + PATCH) for start in starts))
    return numpy.ascontiguousarray(image[box]), numpy.ascontiguousarray(mask[box])


def torch_epochs(args, folders, keep):
    import torch

    get = functools.lru_cache(maxsize=len(folders))(patient) if keep else patient

    class Patients(torch.utils.data.Dataset):
        def __len__(self):
            return len(folders) * SAMPLES

        def __getitem__(self, index):
            image, mask = get(folders[index % len(folders)])
            if args.workload == "patches":
                image, mask = cut(image, mask)
            return torch.from_numpy(image), torch.from_numpy(mask)

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Patients(), batch_size=args.batch_size, shuffle=True, num_workers=args.threads, persistent_workers=True, drop_last=True
    )
    return f"torch {torch.__version__}", lambda: iter(loader)


def dali_epochs(args, folders):
    import nvidia.dali
    from nvidia.dali import fn, pipeline_def, types

    get = functools.lru_cache(maxsize=len(folders))(patient)

    @pipeline_def(batch_size=args.batch_size, num_threads=args.threads, device_id=None, prefetch_queue_depth=2)
    def pipeline():
        source = lambda info: get(folders[info.idx_in_epoch % len(folders)])
        image, mask = fn.external_source(
            source=source, num_outputs=2, batch=False, no_copy=True, dtype=[types.FLOAT, types.UINT8]
        )
        if args.workload == "patches":
            spare = get(folders[0])[0].shape[1] - PATCH
            start = fn.cast(fn.random.uniform(range=(0, spare), shape=3), dtype=types.INT32)
            image, mask = (fn.slice(field, start=start, shape=(PATCH,) * 3, axes=(1, 2, 3)) for field in (image, mask))
        return image, mask

    pipe = pipeline()
    pipe.build()

    def epoch():
        for _ in range(len(folders) * SAMPLES // args.batch_size):
            image, mask = pipe.run()
            yield numpy.asarray(image.as_tensor()), numpy.asarray(mask.as_tensor())

    return f"DALI {nvidia.dali.__version__}", epoch


def main():
    args = measure.arguments(__doc__, VARIANTS)
    folders = [entry.path for entry in sorted(os.scandir(args.folder), key=lambda entry: entry.name)]
    side = nrrd.read_header(f"{folders[0]}/ct.nrrd")["sizes"][0]
    side = PATCH if args.workload == "patches" else int(side)
    if args.variant == "dali":
        version, epoch = dali_epochs(args, folders)
    else:
        version, epoch = torch_epochs(args, folders, args.variant == "torch-cache")
    measure.run(version, epoch, args.epochs, (args.batch_size, 2, side, side, side))


if __name__ == "__main__":
    main()
