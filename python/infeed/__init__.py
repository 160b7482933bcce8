"""A fast data loader for training: exact order, exact resume, no worker processes, no copies.

    import infeed

    loader = infeed.Loader("train/", batch_size=256, shuffle=True, transform="imagenet-train")
    for epoch in range(90):
        for batch in loader:
            images, labels = batch["image"].torch(), batch["label"].torch()

Files are read and decoded by threads of the engine, which never wait for the GIL. ``help(infeed.Loader)`` has the rest.
"""

from __future__ import annotations

from . import errors
from ._native import Batch, Dataset, Tensor, __version__
from .errors import Error
from .loader import Batches, Loader, open

__all__ = ["Batch", "Batches", "Dataset", "Error", "Loader", "Tensor", "__version__", "errors", "open"]
