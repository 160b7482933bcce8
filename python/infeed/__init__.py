"""A fast data loader for training: exact order, exact resume, no worker processes, no copies.

    import infeed

    loader = infeed.Loader("train/", batch_size=256, shuffle=True, transform="imagenet-train")
    for epoch in range(90):
        for batch in loader:
            images, labels = batch["image"].torch(), batch["label"].torch()

A Rust engine reads and decodes files in its own threads, which never wait for the GIL.

- ``Loader``: batches of a dataset. ``help(infeed.Loader)`` lists its arguments.
- ``open``: a dataset from a path, a URL or a Python object, with options for formats, labels, fields and filters.
- ``infeed.torch.DataLoader``: torch's ``DataLoader``, with one import changed.
- ``infeed.transforms``: transforms under torchvision's names. ``infeed.errors``: the exceptions.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any



def _check_interpreter() -> None:
    from importlib import import_module

    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            # The engine's types would belong to the interpreter that imported them first.
            raise ImportError("infeed cannot be used in subinterpreters: import it in the main interpreter of a process")
        return


_check_interpreter()

from . import _tensor as _tensor  # noqa: E402 (adds methods to Tensor)
from . import errors  # noqa: E402
from ._native import Batch, Dataset, Tensor, __version__  # noqa: E402
from .errors import Error  # noqa: E402
from .loader import Batches, Loader, Report, open  # noqa: E402

__all__ = ["Batch", "Batches", "Dataset", "Error", "Loader", "Report", "Tensor", "__version__", "errors", "open"]


def __getattr__(name: str) -> Any:
    # Imported at first use: they take as long to import as the rest of the package, or need torch.
    if name in ("torch", "transforms"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
