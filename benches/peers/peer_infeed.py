"""infeed from Python: the loop of a trainer, which takes every field as torch's tensors, without a copy.

It is asked for what `infeed run` is asked for, in the same words.
"""

import infeed
import torch

import measure

# Types as `infeed run` and as the package calls them.
DTYPES = {"f32": "float32", "u8": "uint8"}


def shape_of(workload, batch_size):
    """Of the images of a batch; a list where they are several arrays."""
    if workload == "dino":
        return measure.dino_shapes(batch_size)
    shapes = {
        **{"trivial": (3, 176, 176), "plain-176": (3, 176, 176), "ssd": (3, 300, 300), "lsj": (3, 512, 512)},
        **{"cifar": (3, 32, 32), "cells": (5, 220, 220), "cells-read": (50, 50, 5)},
    }
    return (batch_size, *shapes.get(workload, (3, 224, 224)))


def in_torch(batch):
    """Images, or a list of each of several views, and the rest of a batch."""
    fields = {name: tensors(value) for name, value in batch.items()}
    images = [fields.pop(name) for name in batch if name == "image" or name.startswith("image.")]
    return images[0] if len(images) == 1 else images, fields


def tensors(value):
    """Boxes come as several arrays, masks as lists of runs."""
    if isinstance(value, dict):
        return {name: tensors(one) for name, one in value.items()}
    return value.torch() if isinstance(value, infeed.Tensor) else value


def images_and_label(batch):
    return batch["image"].torch(), batch["label"].torch()


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--transform", required=True)
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    parser.add_argument("--layout", choices=("nchw", "nhwc"), required=True)
    parser.add_argument("--shuffle", required=True, help="a seed, or none")
    parser.add_argument("--annotations")
    parser.add_argument("--masks", action="store_true")
    args = parser.parse_args()
    marks = {"annotations": args.annotations, "masks": args.masks} if args.annotations else {}
    loader = infeed.Loader(
        infeed.open(args.folder, **marks),
        batch_size=args.batch_size,
        transform=args.transform,
        shuffle=args.shuffle != "none" and int(args.shuffle),
        drop_last=True,
        rank=0,
        world_size=1,
        num_workers=args.threads,
        dtype=DTYPES[args.dtype],
        channels_last=args.layout == "nhwc",
    )
    convert = in_torch if marks or args.workload == "dino" else images_and_label

    def epoch():
        for batch in loader:
            yield convert(batch)

    version = f"infeed {infeed.__version__}, torch {torch.__version__}"
    dtype = DTYPES[args.dtype]
    measure.run(version, epoch, args.epochs, shape_of(args.workload, args.batch_size), dtype)


if __name__ == "__main__":
    main()
