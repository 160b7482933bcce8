"""JAX: batches are JAX arrays of the same memory, without a copy.

    python jax_train.py [path or URL]
"""

from __future__ import annotations

import sys

import infeed
import jax
import jax.numpy as jnp

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=200&height=40&width=40&classes=10"
Params = dict[str, jax.Array]


def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    scores = images.reshape(len(images), -1) @ params["weights"] + params["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()


@jax.jit
def step(params: Params, images: jax.Array, labels: jax.Array) -> tuple[Params, jax.Array]:
    loss, slopes = jax.value_and_grad(loss_of)(params, images, labels)
    return jax.tree.map(lambda value, slope: value - 0.001 * slope, params, slopes), loss


def main() -> None:
    # `drop_last`: batches of one shape, so that `step` is compiled once.
    loader = infeed.Loader(
        DATA, batch_size=16, shuffle=True, drop_last=True, channels_last=True,
        transform="random_resized_crop:32;normalize",
    )  # fmt: skip
    classes = len(loader.dataset.classes or range(10))
    params = {"weights": jnp.zeros((32 * 32 * 3, classes)), "bias": jnp.zeros(classes)}
    for epoch in range(3):
        total, samples = 0.0, 0
        for batch in loader:
            params, loss = step(params, batch["image"].jax(), batch["label"].jax())
            total, samples = total + float(loss) * batch.size, samples + batch.size
        print(f"epoch {epoch}: loss {total / samples:.4f} over {samples} samples", flush=True)


if __name__ == "__main__":
    main()
