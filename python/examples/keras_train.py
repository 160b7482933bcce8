"""Keras 3: `fit` takes a generator of NumPy arrays, with any backend.

    KERAS_BACKEND=torch python keras_train.py [path or URL]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

os.environ.setdefault("KERAS_BACKEND", "jax")

import infeed  # noqa: E402
import keras  # noqa: E402
import numpy  # noqa: E402

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=200&height=40&width=40&classes=10"


def batches(loader: infeed.Loader) -> Iterator[tuple[numpy.ndarray, numpy.ndarray]]:
    """Batches of all epochs, without end. Keras takes `steps_per_epoch` of them per epoch, and fetches a few in advance."""
    while True:
        for batch in loader:
            yield batch["image"].numpy(), batch["label"].numpy()


def main() -> None:
    keras.utils.set_random_seed(0)
    loader = infeed.Loader(
        DATA, batch_size=16, shuffle=True, channels_last=True, transform="random_resized_crop:32;normalize"
    )
    classes = len(loader.dataset.classes or range(10))
    model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Flatten(), keras.layers.Dense(classes)])
    model.compile(keras.optimizers.SGD(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(batches(loader), steps_per_epoch=len(loader), epochs=3, verbose=2)


if __name__ == "__main__":
    main()
