"""PyTorch: photographs through its DataLoader and torchvision, CIFAR by whole batches.

Photographs: `v2` decodes with torchvision's decode_jpeg and transforms u8 tensors; `pil` is the form of most recipes;
`albumentations` and `kornia-rs` do without torchvision (arrays.py).

For CIFAR the DataLoader's way, one Python call a picture, is far behind anything else here (some ten thousand pictures a
second), so the contestant is what a person can write by hand with tensors alone.
"""

import json
import math
import os
import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch
import torchvision
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.io import ImageReadMode, decode_image, decode_jpeg, read_file
from torchvision.transforms import v2

import measure


def steps(workload):
    """What comes before the conversion to floats, and what after normalising."""
    if workload == "val":
        return [v2.Resize(256, antialias=True), v2.CenterCrop(224)], []
    how = v2.InterpolationMode.BICUBIC if workload == "bicubic" else v2.InterpolationMode.BILINEAR
    size = 176 if workload in ("trivial", "plain-176") else 224
    crop = [v2.RandomResizedCrop(size, interpolation=how, antialias=True), v2.RandomHorizontalFlip()]
    if workload == "trivial":
        return [*crop, v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR)], [v2.RandomErasing(0.1)]
    augment = {
        "randaugment": [v2.RandAugment(2, 9)],
        "jitter": [v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.RandomGrayscale(0.2)],
        "blur": [v2.GaussianBlur(23, (0.1, 2.0))],
    }
    return [*crop, *augment.get(workload, [])], []


class Blur:
    """GaussianBlur(kernel, sigma 0.1 to 2) of floats, down and across apart: a fifth of the time that both at once take."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, image):
        sigma = random.uniform(0.1, 2.0)
        # Beyond four sigma the kernel's weights are next to nothing.
        size = min(self.kernel, 2 * math.ceil(4 * sigma) + 1)
        return v2.functional.gaussian_blur(v2.functional.gaussian_blur(image, [size, 1], [sigma]), [1, size], [sigma])


def pil_blur(image):
    """As DINO does it: Pillow's approximation of a Gaussian. torchvision's takes six times as long, by way of a tensor."""
    return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


def to_floats(pil):
    return [*([v2.PILToTensor()] if pil else []), v2.ToDtype(torch.float32, scale=True)]


def dino(view, pil):
    """Tensors become floats before colours and blur, which are faster so; 0.5 lies between 127 and 128."""
    steps = [
        v2.RandomResizedCrop(view.side, view.area, interpolation=v2.InterpolationMode.BICUBIC, antialias=True),
        v2.RandomHorizontalFlip(),
        *([] if pil else to_floats(pil)),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomApply([pil_blur if pil else Blur(view.kernel)], view.blurred),
        *([v2.RandomSolarize(128 if pil else 0.5, view.solarized)] if view.solarized else []),
        *(to_floats(pil) if pil else []),
        v2.Normalize(measure.IMAGENET_MEAN, measure.IMAGENET_STD),
    ]
    return v2.Compose(steps)


class Views:
    """All views of a picture that was decoded once."""

    def __init__(self, pil):
        self.views = [dino(view, pil) for view in measure.DINO]

    def __call__(self, image):
        return [view(image) for view in self.views]


class Photos(Dataset):
    def __init__(self, folder, workload, variant):
        self.paths, self.labels = measure.photos(folder)
        self.pil = variant == "pil"
        if workload == "dino":
            self.transform = Views(self.pil)
            return
        before, after = steps(workload)
        self.transform = v2.Compose([
            *before,
            *to_floats(self.pil),
            v2.Normalize(measure.IMAGENET_MEAN, measure.IMAGENET_STD),
            *after,
        ])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if self.pil:
            with open(self.paths[index], "rb") as file:
                image = Image.open(file).convert("RGB")
        else:
            decode = decode_image if self.paths[index].endswith(".webp") else decode_jpeg
            image = decode(read_file(self.paths[index]), mode=ImageReadMode.RGB)
        return self.transform(image), self.labels[index]


class FixedSizeCrop(torch.nn.Module):
    """As in torchvision's references for detection: a crop at a random place, padded where the image is smaller."""

    def __init__(self, side):
        super().__init__()
        self.side = side

    def forward(self, image, target):
        height, width = image.shape[-2:]
        part = random.random()
        top, left = (int(max(side - self.side, 0) * part) for side in (height, width))
        window = [top, left, min(height, self.side), min(width, self.side)]
        padding = [0, 0, max(self.side - width, 0), max(self.side - height, 0)]
        move = lambda what: v2.functional.pad(v2.functional.crop(what, *window), padding)
        return move(image), {key: value if key == "labels" else move(value) for key, value in target.items()}


class Marked(Dataset):
    """Photographs with COCO's JSON beside their folder."""

    def __init__(self, folder, workload):
        with open(os.path.join(os.path.dirname(folder), "annotations.json")) as file:
            found = json.load(file)
        self.folder, self.images, self.masks = folder, found["images"], workload == "lsj"
        self.marks = {image["id"]: [] for image in self.images}
        for mark in found["annotations"]:
            self.marks[mark["image_id"]].append(mark)
        floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(measure.IMAGENET_MEAN, measure.IMAGENET_STD)]
        if workload == "ssd":
            steps = [
                v2.RandomPhotometricDistort(),
                v2.RandomZoomOut(fill=115),
                v2.RandomIoUCrop(),
                v2.RandomHorizontalFlip(),
                v2.Resize((300, 300), antialias=True),
                *floats,
            ]
        else:
            steps = [v2.ScaleJitter((512, 512), antialias=True), v2.RandomHorizontalFlip(), FixedSizeCrop(512), *floats]
        self.transform = v2.Compose([*steps, v2.SanitizeBoundingBoxes()])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        record = self.images[index]
        path = os.path.join(self.folder, record["file_name"])
        image = tv_tensors.Image(decode_jpeg(read_file(path), mode=ImageReadMode.RGB))
        marks, size = self.marks[record["id"]], (record["height"], record["width"])
        boxes = torch.tensor([[x, y, x + w, y + h] for x, y, w, h in (mark["bbox"] for mark in marks)])
        target = {
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size),
            "labels": torch.tensor([mark["category_id"] - 1 for mark in marks]),
        }
        if self.masks:
            # Of this workload alone.
            from pycocotools import mask

            runs = [mask.merge(mask.frPyObjects(mark["segmentation"], *size)) for mark in marks]
            target["masks"] = tv_tensors.Mask(torch.from_numpy(mask.decode(runs)).permute(2, 0, 1).contiguous())
        return self.transform(image, target)


def marked(samples):
    """Images of one size become a tensor, all else stays a list."""
    images, targets = zip(*samples)
    return torch.stack(images), targets


class Cells(Dataset):
    def __init__(self, folder, resize):
        # Of this workload alone.
        import tifffile

        self.read = tifffile.imread
        self.paths, self.labels = measure.photos(folder)
        self.transform = resize and v2.Compose([
            v2.Resize((220, 224), antialias=True),
            v2.CenterCrop(220),
            v2.ToDtype(torch.float32, scale=True),
        ])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = torch.from_numpy(self.read(self.paths[index]))
        if self.transform:
            image = self.transform(image.permute(2, 0, 1))
        return image, self.labels[index]


class Cifar:
    """Batches made by indexing, on threads: tensor operations release Python's lock.

    All pictures lie in memory padded, once as they are and once mirrored, seen through a sliding window:
    crop and flip of a whole batch are then one gather. It was the fastest of six ways tried, by 1.6x to 6x.
    """

    def __init__(self, folder, batch_size, threads):
        images, labels = measure.cifar(folder)
        padded = torch.nn.functional.pad(torch.from_numpy(images), (4, 4, 4, 4))
        windows = torch.stack([padded, padded.flip(-1)]).unfold(3, 32, 1).unfold(4, 32, 1)
        # [flip, record, top, left, channel, row, column]
        self.windows = windows.permute(0, 1, 3, 4, 2, 5, 6)
        self.labels = torch.from_numpy(labels)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (measure.CIFAR_MEAN, measure.CIFAR_STD))
        self.scale, self.bias = 1 / (255 * std), -mean / std
        self.batch_size, self.threads = batch_size, threads
        self.pool = ThreadPoolExecutor(threads)

    def batch(self, rows):
        top, left = torch.randint(0, 9, (2, len(rows)))
        flip = torch.randint(0, 2, (len(rows),))
        images = self.windows[flip, rows, top, left].float().mul_(self.scale).add_(self.bias)
        return images, self.labels[rows]

    def epoch(self):
        order = torch.randperm(len(self.labels))
        ahead = deque()
        for rows in order.split(self.batch_size):
            if len(rows) == self.batch_size:
                ahead.append(self.pool.submit(self.batch, rows))
            if len(ahead) > 2 * self.threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def main():
    args = measure.arguments(__doc__, ("v2", "pil", "albumentations", "kornia-rs"))
    # The cores are taken by workers that each make a batch; threads inside an operation would only fight them.
    torch.set_num_threads(1)
    dtype = numpy.float32
    version = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    if args.workload != "cifar":
        collate = begin = None
        if args.workload in ("ssd", "lsj"):
            side = 300 if args.workload == "ssd" else 512
            data, shape, collate = Marked(args.folder, args.workload), (3, side, side), marked
        elif args.workload not in ("cells", "cells-read"):
            side = 176 if args.workload in ("trivial", "plain-176") else 224
            shape = (3, side, side)
            if args.variant in ("v2", "pil"):
                data = Photos(args.folder, args.workload, args.variant)
            else:
                # Of these variants alone.
                import arrays

                data, begin = arrays.Photos(args.folder, args.workload, args.variant, side), arrays.begin
                version = f"torch {torch.__version__}, {data.versions}"
        elif args.workload == "cells":
            data, shape = Cells(args.folder, True), (5, 220, 220)
        else:
            data, shape, dtype = Cells(args.folder, False), (50, 50, 5), numpy.uint8
        loader = DataLoader(
            data,
            batch_size=args.batch_size,
            shuffle=args.workload != "val",
            drop_last=True,
            num_workers=args.threads,
            persistent_workers=True,
            collate_fn=collate,
            worker_init_fn=begin,
        )
        epoch = lambda: iter(loader)
    else:
        shape = (3, 32, 32)
        epoch = Cifar(args.folder, args.batch_size, args.threads).epoch
    shape = measure.dino_shapes(args.batch_size) if args.workload == "dino" else (args.batch_size, *shape)
    measure.run(version, epoch, args.epochs, shape, dtype)


if __name__ == "__main__":
    main()
