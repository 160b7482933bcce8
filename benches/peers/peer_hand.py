"""No product: the fastest that a person writes in Python, on threads that each make a whole batch.

`jpeg` decodes with libjpeg-turbo (simplejpeg) and resizes with OpenCV, without antialias; `dct` lets libjpeg-turbo shrink while it
decodes, as far as the crop allows. `raw` is a stand-in for FFCV on files converted to raw pixels, with FFCV's steps in fewer passes: a memory map
of pixels (longer side at most 500), OpenCV's INTER_AREA from the crop into the batch, and one compiled loop over the batch that
flips, normalises by table and writes NCHW. All of it leaves Python's lock.
"""

import math
import os
import queue
import random
import threading

import cv2
import numba
import numpy
import simplejpeg

import measure

SIDE = 224
MEAN, STD = (numpy.array(values, numpy.float32) for values in (measure.IMAGENET_MEAN, measure.IMAGENET_STD))
TABLE = numpy.ascontiguousarray((numpy.arange(256, dtype=numpy.float32)[None] / 255 - MEAN[:, None]) / STD[:, None])


@numba.njit(nogil=True, fastmath=True)
def finish(images, flips, out):
    """u8 NHWC to normalised f32 NCHW, mirrored where asked."""
    scale = numpy.empty(3, numpy.float32)
    bias = numpy.empty(3, numpy.float32)
    for c in range(3):
        scale[c], bias[c] = (TABLE[c, 255] - TABLE[c, 0]) / numpy.float32(255), TABLE[c, 0]
    for n in range(images.shape[0]):
        for y in range(SIDE):
            row = images[n, y]
            for c in range(3):
                line = out[n, c, y]
                if flips[n]:
                    for x in range(SIDE):
                        line[x] = row[SIDE - 1 - x, c] * scale[c] + bias[c]
                else:
                    for x in range(SIDE):
                        line[x] = row[x, c] * scale[c] + bias[c]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def window(image, size, train, rng):
    """The part of an image that is to be resized. `size` is that of the file; the image may be smaller."""
    if not train:
        return image
    return scaled(image, size, measure.random_box(*size, rng))


def scaled(image, size, box):
    """A box, in pixels of the file, cut out of an image that may be smaller."""
    kx, ky = image.shape[1] / size[0], image.shape[0] / size[1]
    x, y, w, h = int(box[0] * kx), int(box[1] * ky), max(1, round(box[2] * kx)), max(1, round(box[3] * ky))
    return image[y : y + h, x : x + w]


def whole(data, train, rng):
    image = simplejpeg.decode_jpeg(data, "RGB")
    return window(image, image.shape[1::-1], train, rng)


def shrunk(data, train, rng):
    """The same, decoded no larger than the crop needs."""
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    box = measure.random_box(width, height, rng) if train else (0, 0, width, height)
    least = min(1, (SIDE if train else 256) / min(box[2:]))
    # 0 and 0 ask for all pixels.
    size = {"min_width": math.ceil(width * least), "min_height": math.ceil(height * least)} if least < 1 else {}
    return scaled(simplejpeg.decode_jpeg(data, "RGB", **size), (width, height), box)


def resized(image, train, out, how):
    if train:
        cv2.resize(image, (SIDE, SIDE), dst=out, interpolation=how)
        return
    width, height, x, y = measure.shorter_256(image.shape[1], image.shape[0])
    out[:] = cv2.resize(image, (width, height), interpolation=how)[y : y + SIDE, x : x + SIDE]


def ready(workload, folder, variant):
    """A function that gives the crop of a record, and the labels."""
    paths, labels = measure.photos(folder)
    train = workload == "photos"
    if variant == "raw":
        pixels = numpy.memmap(os.path.join(folder, "..", "raw", "pixels"), numpy.uint8, "r")
        at = numpy.load(os.path.join(folder, "..", "raw", "at.npy"))

        def crop(n, rng):
            start, width, height = at[n]
            image = pixels[start : start + width * height * 3].reshape(height, width, 3)
            return window(image, (int(width), int(height)), train, rng)

        return crop, labels
    decode = {"jpeg": whole, "dct": shrunk}[variant]
    return (lambda n, rng: decode(read(paths[n]), train, rng)), labels


def convert(folder, out):
    """All photographs as raw pixels in one file, the longer side at most 500, as FFCV's writer does with max_resolution."""
    os.makedirs(out)
    at, end = [], 0
    with open(os.path.join(out, "pixels"), "wb") as file:
        for path in measure.photos(folder)[0]:
            image = simplejpeg.decode_jpeg(read(path), "RGB")
            most = max(image.shape[:2])
            if most > 500:
                size = (round(image.shape[1] * 500 / most), round(image.shape[0] * 500 / most))
                image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            at.append((end, image.shape[1], image.shape[0]))
            end += file.write(image.tobytes())
    numpy.save(os.path.join(out, "at.npy"), numpy.array(at))


def main():
    args = measure.arguments(__doc__, ("jpeg", "dct", "raw", "convert"))
    cv2.setNumThreads(0)
    if args.variant == "convert":
        convert(args.folder, os.path.join(args.folder, "..", "raw"))
        return
    crop, labels = ready(args.workload, args.folder, args.variant)
    labels = numpy.array(labels)
    train = args.workload == "photos"
    how = cv2.INTER_AREA if args.variant == "raw" else cv2.INTER_LINEAR
    rng = random.Random(0)

    def epoch():
        order = list(range(len(labels)))
        if train:
            rng.shuffle(order)
        size = args.batch_size
        jobs = iter([order[i : i + size] for i in range(0, len(order) - size + 1, size)])
        lock, done = threading.Lock(), queue.Queue(2)

        def work():
            own = random.Random()
            images = numpy.empty((size, SIDE, SIDE, 3), numpy.uint8)
            while True:
                with lock:
                    rows = next(jobs, None)
                if rows is None:
                    done.put(None)
                    return
                for row, n in enumerate(rows):
                    resized(crop(n, own), train, images[row], how)
                flips = numpy.array([train and own.random() < 0.5 for _ in rows])
                out = numpy.empty((size, 3, SIDE, SIDE), numpy.float32)
                finish(images, flips, out)
                done.put((out, labels[rows]))

        for _ in range(args.threads):
            threading.Thread(target=work, daemon=True).start()
        left = args.threads
        while left:
            batch = done.get()
            if batch is None:
                left -= 1
            else:
                yield batch

    # Compiled before the clock starts.
    finish(numpy.zeros((1, SIDE, SIDE, 3), numpy.uint8), numpy.array([True]), numpy.zeros((1, 3, SIDE, SIDE), numpy.float32))
    version = f"simplejpeg {simplejpeg.__version__}, OpenCV {cv2.__version__}, numba {numba.__version__}"
    measure.run(version, epoch, args.epochs, (args.batch_size, 3, SIDE, SIDE))


if __name__ == "__main__":
    main()
