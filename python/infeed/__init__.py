"""A fast data loader for training: exact order, exact resume, no worker processes, no copies.

    import infeed

    loader = infeed.Loader("train/", batch_size=256, shuffle=True, transform="imagenet-train")
    for epoch in range(90):
        for batch in loader:
            images, labels = batch["image"].torch(), batch["label"].torch()

Files are read and decoded by threads of the engine, which never wait for the GIL. ``help(infeed.Loader)`` has the rest.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

from . import errors
from ._native import Batch, Dataset, Tensor, __version__
from .errors import Error
from .loader import Batches, Loader, Report, open

__all__ = ["Batch", "Batches", "Dataset", "Error", "Loader", "Report", "Tensor", "__version__", "errors", "open"]


def __getattr__(name: str) -> Any:
    # What costs as much to import as all the rest, or needs another package, is there when somebody asks.
    if name in ("torch", "transforms"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
