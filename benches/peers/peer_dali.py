"""NVIDIA DALI on the CPU, in the fastest settings found for each workload.

Batches are views into DALI's own buffers, good until the next one: the consumer of a real training loop may have to copy.
"""

import numpy
import nvidia.dali
from nvidia.dali import fn, math, pipeline_def, types
from nvidia.dali.auto_aug import rand_augment, trivial_augment

import measure

VARIANTS = ("antialias", "no-antialias", "fast-idct")


def scaled(values):
    return [255 * value for value in values]


def crops(folder, size, antialias=True, fast_idct=False, how=types.INTERP_LINEAR):
    """Random resized crops of the photographs, and labels."""
    paths, labels = measure.photos(folder)
    files, labels = fn.readers.file(files=paths, labels=labels, random_shuffle=True, initial_fill=1024)
    # Decoding only the crop is faster than decoding all and cropping afterwards.
    images = fn.decoders.image_random_crop(
        files,
        random_area=(0.08, 1.0),
        random_aspect_ratio=(3 / 4, 4 / 3),
        num_attempts=10,
        use_fast_idct=fast_idct,
    )
    return fn.resize(images, size=(size, size), interp_type=how, antialias=antialias), labels


@pipeline_def
def photos(folder, variant):
    images, labels = crops(folder, 224, antialias=variant == "antialias", fast_idct=variant == "fast-idct")
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=scaled(measure.IMAGENET_MEAN),
        std=scaled(measure.IMAGENET_STD),
    )
    return images, labels


@pipeline_def(enable_conditionals=True)
def recipe(folder, workload):
    """Photographs with antialias and what the recipe adds; DALI's policies are its own, of the same papers."""
    size = 176 if workload in ("trivial", "plain-176") else 224
    how = types.INTERP_CUBIC if workload == "bicubic" else types.INTERP_LINEAR
    images, labels = crops(folder, size, how=how)
    if workload == "trivial":
        images = trivial_augment.trivial_augment_wide(images, shape=[size, size], fill_value=0)
    elif workload == "randaugment":
        images = rand_augment.rand_augment(images, n=2, m=9, shape=[size, size], fill_value=0)
    elif workload == "jitter":
        # Gray is no saturation.
        gray = fn.cast(fn.random.coin_flip(probability=0.2), dtype=types.FLOAT)
        images = fn.color_twist(
            images,
            brightness=fn.random.uniform(range=(0.6, 1.4)),
            contrast=fn.random.uniform(range=(0.6, 1.4)),
            saturation=fn.random.uniform(range=(0.6, 1.4)) * (1 - gray),
            hue=fn.random.uniform(range=(-36.0, 36.0)),
        )
    elif workload == "blur":
        images = fn.gaussian_blur(images, window_size=23, sigma=fn.random.uniform(range=(0.1, 2.0)))
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=scaled(measure.IMAGENET_MEAN),
        std=scaled(measure.IMAGENET_STD),
    )
    if workload == "trivial":
        # About the mean area of RandomErasing's rectangles, where one is erased.
        erased = fn.cast(fn.random.coin_flip(probability=0.1), dtype=types.FLOAT)
        anchor = fn.random.uniform(range=(0.0, 0.6), shape=(2,))
        shape = fn.stack(erased * 0.4, erased * 0.4)
        images = fn.erase(images, anchor=anchor, shape=shape, axis_names="HW", normalized=True, fill_value=0.0)
    return images, labels


@pipeline_def(enable_conditionals=True)
def dino(folder):
    """Ten views of a photograph that is decoded once.

    A view takes most of a picture or is one of many: to decode each crop apart takes half as long again. A branch for the
    pictures without jitter is no faster than neutral factors, and 1 or 3 batches ahead are no faster than 2.
    """
    paths, labels = measure.photos(folder)
    files, labels = fn.readers.file(files=paths, labels=labels, random_shuffle=True, initial_fill=1024)
    images = fn.decoders.image(files)
    return *(view_of(images, view) for view in measure.DINO), labels


def view_of(images, view):
    images = fn.random_resized_crop(
        images,
        size=(view.side, view.side),
        random_area=view.area,
        random_aspect_ratio=(3 / 4, 4 / 3),
        interp_type=types.INTERP_CUBIC,
    )
    jitter = fn.cast(fn.random.coin_flip(probability=0.8), dtype=types.FLOAT)
    gray = fn.cast(fn.random.coin_flip(probability=0.2), dtype=types.FLOAT)
    # Floats from here on: a fifth less time than bytes, even with a clamp of their own.
    images = fn.color_twist(
        images,
        brightness=1 + jitter * fn.random.uniform(range=(-0.4, 0.4)),
        contrast=1 + jitter * fn.random.uniform(range=(-0.4, 0.4)),
        saturation=(1 + jitter * fn.random.uniform(range=(-0.2, 0.2))) * (1 - gray),
        hue=jitter * fn.random.uniform(range=(-36.0, 36.0)),
        dtype=types.FLOAT,
    )
    images = math.clamp(images, 0.0, 255.0)
    # A branch blurs those pictures alone that are; a tiny sigma for the others takes longer.
    if fn.random.coin_flip(probability=view.blurred, dtype=types.BOOL):
        sigma = fn.random.uniform(range=(0.1, 2.0))
        # Beyond four sigma the kernel's weights are next to nothing: an eighth of all the time for no visible difference.
        window = math.min(view.kernel, 2 * fn.cast(math.ceil(4 * sigma), dtype=types.INT32) + 1)
        images = fn.gaussian_blur(images, sigma=sigma, window_size=window)
    if view.solarized > 0:
        # Solarize(128) in one step: 255 - x is the smaller one from 128 on.
        if fn.random.coin_flip(probability=view.solarized, dtype=types.BOOL):
            images = math.min(images, 255.0 - images)
    return fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=scaled(measure.IMAGENET_MEAN),
        std=scaled(measure.IMAGENET_STD),
    )


@pipeline_def
def val(folder, variant):
    paths, labels = measure.photos(folder)
    files, labels = fn.readers.file(files=paths, labels=labels)
    images = fn.decoders.image(files, use_fast_idct=variant == "fast-idct")
    images = fn.resize(images, resize_shorter=256, interp_type=types.INTERP_LINEAR, antialias=variant == "antialias")
    images = fn.crop_mirror_normalize(
        images,
        crop=(224, 224),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=scaled(measure.IMAGENET_MEAN),
        std=scaled(measure.IMAGENET_STD),
    )
    return images, labels


@pipeline_def
def cells(folder, resize):
    paths, labels = measure.photos(folder)
    files, labels = fn.readers.file(files=paths, labels=labels, random_shuffle=True, initial_fill=1024)
    images = fn.decoders.image(files, output_type=types.ANY_DATA)
    if resize:
        images = fn.resize(images, size=(220, 224), interp_type=types.INTERP_LINEAR, antialias=True)
        # Cuts the middle out, and brings values to 0..1.
        images = fn.crop_mirror_normalize(
            images, crop=(220, 220), dtype=types.FLOAT, output_layout="CHW", mean=[0.0] * 5, std=[255.0] * 5
        )
    return images, labels


@pipeline_def
def cifar(source):
    images, labels = fn.external_source(source=source, num_outputs=2, batch=True, layout=["CHW", ""], no_copy=True)
    # A slice that reaches outside pads and crops at once; a padded picture of 40x40 in between is slower.
    start = fn.random.uniform(values=list(range(-4, 5)), shape=(2,), dtype=types.INT32)
    images = fn.slice(
        images, start=start, shape=(32, 32), axis_names="HW", out_of_bounds_policy="pad", fill_values=0
    )
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=scaled(measure.CIFAR_MEAN),
        std=scaled(measure.CIFAR_STD),
    )
    return images, labels


def batches_of(images, labels, batch_size):
    """Shuffled batches of raw pictures, without end. DALI has no reader for the binary files."""
    rng = numpy.random.default_rng(0)
    while True:
        order = rng.permutation(len(images))
        for at in range(0, len(order) - batch_size + 1, batch_size):
            rows = order[at : at + batch_size]
            yield images[rows], labels[rows]


def main():
    args = measure.arguments(__doc__, VARIANTS)
    # The static executor: on CIFAR the dynamic one is slower, on photographs there is no difference, and with DINO it takes a
    # twentieth more time and a tenth more memory.
    settings = dict(
        batch_size=args.batch_size, num_threads=args.threads, device_id=None, prefetch_queue_depth=2, exec_dynamic=False
    )
    if args.workload in ("photos", "val"):
        pipe = {"photos": photos, "val": val}[args.workload](args.folder, args.variant, **settings)
        shape, records = (3, 224, 224), len(measure.photos(args.folder)[0])
    elif args.workload == "dino":
        pipe = dino(args.folder, **settings)
        shape, records = measure.dino_shapes(args.batch_size), len(measure.photos(args.folder)[0])
    elif args.workload not in ("cifar", "cells", "cells-read"):
        pipe = recipe(args.folder, args.workload, **settings)
        side = 176 if args.workload in ("trivial", "plain-176") else 224
        shape, records = (3, side, side), len(measure.photos(args.folder)[0])
    elif args.workload != "cifar":
        resize = args.workload == "cells"
        pipe = cells(args.folder, resize, **settings)
        shape, records = (5, 220, 220) if resize else (50, 50, 5), len(measure.photos(args.folder)[0])
    else:
        images, labels = measure.cifar(args.folder)
        pipe = cifar(batches_of(images, labels, args.batch_size), **settings)
        shape, records = (3, 32, 32), len(images)
    pipe.build()

    def epoch():
        # The readers go on from epoch to epoch by themselves, so there is no gap between them.
        for _ in range(records // args.batch_size):
            *images, labels = pipe.run()
            images = [numpy.asarray(one.as_tensor()) for one in images]
            yield images if len(images) > 1 else images[0], labels

    dtype = numpy.uint8 if args.workload == "cells-read" else numpy.float32
    shape = shape if isinstance(shape, list) else (args.batch_size, *shape)
    measure.run(f"DALI {nvidia.dali.__version__}", epoch, args.epochs, shape, dtype)


if __name__ == "__main__":
    main()
