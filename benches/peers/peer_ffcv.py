"""FFCV on a file of its own. It does not read the photographs: `raw` holds pixels (longer side at most 500), `jpg` JPEGs made smaller
and encoded again at quality 90. FFCV resizes with OpenCV's INTER_AREA. Written before with `write-raw` and `write-jpg`.
"""

import importlib.metadata
import os

import numpy
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

import measure

SIDE = 224


class Photos:
    def __init__(self, folder):
        self.records = list(zip(*measure.photos(folder)))

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        path, label = self.records[index]
        return Image.open(path).convert("RGB"), label


def main():
    args = measure.arguments(__doc__, ("raw", "jpg", "write-raw", "write-jpg"))
    form = args.variant.removeprefix("write-")
    file = os.path.join(args.folder, "..", f"{form}.beton")
    if args.variant != form:
        how = {"raw": {}, "jpg": {"jpeg_quality": 90}}[form]
        image = RGBImageField(write_mode=form, max_resolution=500, **how)
        writer = DatasetWriter(file, {"image": image, "label": IntField()}, num_workers=args.threads)
        writer.from_indexed_dataset(Photos(args.folder), chunksize=100)
        return
    train = args.workload == "photos"
    if train:
        images = [RandomResizedCropRGBImageDecoder((SIDE, SIDE)), RandomHorizontalFlip()]
    else:
        images = [CenterCropRGBImageDecoder((SIDE, SIDE), ratio=SIDE / 256)]
    mean, std = (255 * numpy.array(v, numpy.float32) for v in (measure.IMAGENET_MEAN, measure.IMAGENET_STD))
    images += [NormalizeImage(mean, std, numpy.float32), ToTensor(), ToTorchImage(channels_last=False)]
    torch.set_num_threads(args.threads)
    loader = Loader(
        file,
        batch_size=args.batch_size,
        num_workers=args.threads,
        os_cache=True,
        order=OrderOption.RANDOM if train else OrderOption.SEQUENTIAL,
        drop_last=True,
        batches_ahead=3,
        pipelines={"image": images, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    version = f"FFCV {importlib.metadata.version('ffcv')}"
    measure.run(version, lambda: iter(loader), args.epochs, (args.batch_size, 3, SIDE, SIDE))


if __name__ == "__main__":
    main()
