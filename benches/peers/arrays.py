"""albumentations and kornia-rs, for the DataLoader of peer_torch.py: from the bytes of a JPEG to a normalised tensor.

Each is imported only where it is measured. Neither resizes with antialias here: OpenCV, which albumentations calls, has it only
as INTER_AREA at four times the time, kornia-rs only for bicubic.
"""

import importlib
import importlib.metadata
import os
import random

import cv2
import numpy
import torch
from torch.utils.data import Dataset, get_worker_info

import measure

SCALE = [numpy.float32(1 / (255 * std)) for std in measure.IMAGENET_STD]
BIAS = [numpy.float32(mean / std) for mean, std in zip(measure.IMAGENET_MEAN, measure.IMAGENET_STD)]


def planes(image):
    """u8 HWC to normalised f32 CHW, in half the time of A.Normalize and A.ToTensorV2, which leave the pixels as HWC."""
    out = numpy.empty((3, *image.shape[:2]), numpy.float32)
    for plane, channel, scale, bias in zip(out, cv2.split(image), SCALE, BIAS):
        numpy.multiply(channel, scale, out=plane, dtype=numpy.float32, casting="unsafe")
        plane -= bias
    return torch.from_numpy(out)


def albumentations(workload, side):
    import albumentations as A
    import simplejpeg

    how = cv2.INTER_CUBIC if workload == "bicubic" else cv2.INTER_LINEAR
    augment = {
        "jitter": [A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1), A.ToGray(p=0.2)],
        # 0: a kernel of 3.5 sigma to each side. It takes half the time of 23 and differs by one of 256 levels at most.
        "blur": [A.GaussianBlur(0, (0.1, 2.0), p=1)],
    }
    crop = [A.RandomResizedCrop((side, side), interpolation=how), A.HorizontalFlip(p=0.5)]
    transform = A.Compose([*crop, *augment.get(workload, [])])
    return lambda data: planes(transform(image=simplejpeg.decode_jpeg(data, "RGB"))["image"])


def kornia(workload, side):
    from kornia_rs import augmentations, image as images, imgproc, io, pipeline

    colours = augmentations.ColorJitter(0.4, 0.4, 0.4, 0.1)

    def jitter(image):
        image = colours(images.Image.fromarray(image)).numpy()
        return imgproc.rgb_from_gray(imgproc.gray_from_rgb(image)) if random.random() < 0.2 else image

    def blur(image):
        sigma = random.uniform(0.1, 2.0)
        # As large as albumentations' own; with 23 it takes several times as long.
        size = 2 * int(3.5 * sigma) + 1
        return imgproc.gaussian_blur(image, (size, size), (sigma, sigma))

    def picture(data):
        image = io.decode_image_jpegturbo(data, "rgb")
        image = imgproc.crop(image, *measure.random_box(image.shape[1], image.shape[0], random))
        flip = random.random() < 0.5
        if workload in ("photos", "plain-176"):
            # One pass. It knows no bicubic, and no step may come between.
            mean, std = measure.IMAGENET_MEAN, measure.IMAGENET_STD
            tensor = torch.from_numpy(pipeline.resize_normalize_to_tensor(image, (side, side), mean, std))
            return tensor.flip(-1) if flip else tensor
        image = imgproc.resize(image, (side, side), "bicubic" if workload == "bicubic" else "bilinear", antialias=False)
        image = imgproc.horizontal_flip(image) if flip else image
        return planes({"jitter": jitter, "blur": blur}.get(workload, lambda image: image)(image))

    return picture


# By variant: what is imported, what is called, and whose versions are told.
LIBRARIES = {
    "albumentations": ("albumentations", albumentations, ("albumentations", "simplejpeg", "opencv-python-headless")),
    "kornia-rs": ("kornia_rs", kornia, ("kornia-rs", "opencv-python-headless")),
}


class Photos(Dataset):
    def __init__(self, folder, workload, variant, side):
        # Else each import asks PyPI for a newer version.
        os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
        # kornia-rs has threads of its own, and a worker has one core.
        os.environ["RAYON_NUM_THREADS"] = "1"
        module, self.ready, packages = LIBRARIES[variant]
        # Before the workers, which then share it.
        importlib.import_module(module)
        self.versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
        self.paths, self.labels = measure.photos(folder)
        self.workload, self.side = workload, side

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return self.picture(file.read()), self.labels[index]


def begin(_):
    """In each worker. albumentations has random generators of its own: made before, they would draw the same in all workers."""
    cv2.setNumThreads(0)
    data = get_worker_info().dataset
    data.picture = data.ready(data.workload, data.side)
