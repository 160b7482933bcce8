"""Grain with OpenCV, without antialias, on Grain's threads (its worker processes are slower)."""

import importlib.metadata

import cv2
import grain
import numpy

import measure

SIDE = 224
SCALE = [numpy.float32(1 / (255 * v)) for v in measure.IMAGENET_STD]
BIAS = [numpy.float32(m / v) for m, v in zip(measure.IMAGENET_MEAN, measure.IMAGENET_STD)]


class Files:
    def __init__(self, folder):
        self.records = list(zip(*measure.photos(folder)))

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]


def planes(image):
    out = numpy.empty((3, SIDE, SIDE), numpy.float32)
    for c in range(3):
        numpy.multiply(image[..., c], SCALE[c], out=out[c], dtype=numpy.float32, casting="unsafe")
        out[c] -= BIAS[c]
    return out


def crop(record, rng):
    image = cv2.imread(record[0], cv2.IMREAD_COLOR_RGB)
    x, y, w, h = measure.random_box(image.shape[1], image.shape[0], rng)
    image = cv2.resize(image[y : y + h, x : x + w], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    if rng.random() < 0.5:
        image = cv2.flip(image, 1)
    return planes(image), numpy.int64(record[1])


def middle(record):
    image = cv2.imread(record[0], cv2.IMREAD_COLOR_RGB)
    width, height, x, y = measure.shorter_256(image.shape[1], image.shape[0])
    image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return planes(image[y : y + SIDE, x : x + SIDE]), numpy.int64(record[1])


def main():
    args = measure.arguments(__doc__)
    cv2.setNumThreads(0)
    data = grain.MapDataset.source(Files(args.folder))
    data = data.shuffle(seed=0).random_map(crop, seed=1) if args.workload == "photos" else data.map(middle)
    reading = grain.ReadOptions(num_threads=args.threads, prefetch_buffer_size=2 * args.batch_size)
    data = data.to_iter_dataset(reading).batch(args.batch_size, drop_remainder=True)
    version = f"Grain {importlib.metadata.version('grain')}, OpenCV {cv2.__version__}"
    measure.run(version, lambda: iter(data), args.epochs, (args.batch_size, 3, SIDE, SIDE))


if __name__ == "__main__":
    main()
