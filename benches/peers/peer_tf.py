"""tf.data on the CPU in the fastest settings found: crop and decode in one step, a pool of its own, no autotune, any order,
normalised by whole batches. `antialias` does infeed's work, `plain` is TensorFlow's default and does less. `cache` and
`cache-plain` keep decoded photographs in memory, by `Dataset.cache()`, and draw crops of those."""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow as tf

import measure

SIDE = 224


def main():
    args = measure.arguments(__doc__, ("antialias", "plain", "cache", "cache-plain"))
    antialias, train = args.variant in ("antialias", "cache"), args.workload == "photos"
    keep = args.variant.startswith("cache")
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    mean = tf.constant([255 * v for v in measure.IMAGENET_MEAN])
    scale = tf.constant([1 / (255 * v) for v in measure.IMAGENET_STD])

    def crop(path, label):
        data = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(data),
            tf.zeros([0, 0, 4]),
            min_object_covered=0,
            aspect_ratio_range=[3 / 4, 4 / 3],
            area_range=[0.08, 1.0],
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        image = tf.image.resize(image, [SIDE, SIDE], "bilinear", antialias=antialias)
        return tf.image.random_flip_left_right(image), label

    def whole(path, label):
        return tf.image.decode_jpeg(tf.io.read_file(path), channels=3), label

    def cut(image, label):
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image),
            tf.zeros([0, 0, 4]),
            min_object_covered=0,
            aspect_ratio_range=[3 / 4, 4 / 3],
            area_range=[0.08, 1.0],
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        image = tf.image.resize(tf.slice(image, begin, size), [SIDE, SIDE], "bilinear", antialias=antialias)
        return tf.image.random_flip_left_right(image), label

    def middle(path, label):
        image = tf.image.decode_jpeg(tf.io.read_file(path), channels=3)
        shape = tf.shape(image)[:2]
        short = tf.reduce_min(shape)
        size = 256 * shape // short
        image = tf.image.resize(image, size, "bilinear", antialias=antialias)
        at = (size - SIDE + 1) // 2
        return tf.image.crop_to_bounding_box(image, at[0], at[1], SIDE, SIDE), label

    def finish(images, labels):
        return tf.transpose((images - mean) * scale, [0, 3, 1, 2]), labels

    if keep and not train:
        raise SystemExit("cache is for train")
    paths, labels = measure.photos(args.folder)
    data = tf.data.Dataset.from_tensor_slices((paths, labels))
    if keep:
        data = data.map(whole, num_parallel_calls=args.threads).cache()
    if train:
        data = data.shuffle(len(paths))
    step = middle if not train else cut if keep else crop
    data = data.map(step, num_parallel_calls=args.threads)
    data = data.batch(args.batch_size, drop_remainder=True).map(finish, num_parallel_calls=args.threads).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = args.threads
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    options.autotune.enabled = False
    data = data.with_options(options)

    def epoch():
        for images, labels in data:
            yield images.numpy(), labels

    measure.run(f"TensorFlow {tf.__version__}", epoch, args.epochs, (args.batch_size, 3, SIDE, SIDE))


if __name__ == "__main__":
    main()
