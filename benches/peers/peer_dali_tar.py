"""NVIDIA DALI's webdataset reader on the CPU: the photographs of peer_dali.py, out of tar shards.

peer_dali_tar.py photos FOLDER_OF_TARS --batch-size 64 --epochs 2 --threads 2
"""

import glob
import os

import numpy
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types

import measure
from peer_dali import scaled


@pipeline_def
def shards(tars):
    files, labels = fn.readers.webdataset(paths=tars, ext=["jpg", "cls"], random_shuffle=True, initial_fill=1024, name="tar")
    images = fn.decoders.image_random_crop(
        files, random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3), num_attempts=10
    )
    images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=scaled(measure.IMAGENET_MEAN),
        std=scaled(measure.IMAGENET_STD),
    )
    return images, labels


def main():
    args = measure.arguments(__doc__)
    pipe = shards(
        sorted(glob.glob(os.path.join(args.folder, "*.tar"))),
        batch_size=args.batch_size,
        num_threads=args.threads,
        device_id=None,
        prefetch_queue_depth=2,
        exec_dynamic=False,
    )
    pipe.build()
    records = pipe.epoch_size("tar")

    def epoch():
        for _ in range(records // args.batch_size):
            images, labels = pipe.run()
            yield numpy.asarray(images.as_tensor()), labels

    measure.run(f"DALI {nvidia.dali.__version__}", epoch, args.epochs, (args.batch_size, 3, 224, 224))


if __name__ == "__main__":
    main()
