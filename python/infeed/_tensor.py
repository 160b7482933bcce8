"""Conversions of a tensor to torch, numpy and JAX.

These methods are in Python because their first call imports the library. If the interpreter ends during the import, CPython ends
a daemon thread by unwinding its stack; Rust frames on that stack would abort the process.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ._native import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import torch as _torch
    from numpy.typing import NDArray

# DLPack's number of the CPU device.
_CPU = 1


@cache
def _function(package: str, module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{package} is not installed here: pip install {package}") from error


def torch(self: Tensor) -> _torch.Tensor:
    """A torch tensor of the same memory, without a copy. You may write to it.

    Raises ``ImportError`` if torch is not installed.
    """
    lent = _function("torch", "torch.utils.dlpack", "from_dlpack")
    # On the CPU pass the capsule itself, in the form that every torch version reads: given an object, torch makes more calls,
    # which doubles the cost. On a GPU torch must call `__dlpack__` itself, to name the stream on which it reads.
    tensor: _torch.Tensor = lent(self.__dlpack__() if self.__dlpack_device__()[0] == _CPU else self)
    return tensor


def numpy(self: Tensor) -> NDArray[Any]:
    """A numpy array of the same memory, without a copy.

    Raises ``ImportError`` if numpy is not installed, ``TypeError`` for bfloat16 (which numpy does not have) and for values
    on a GPU.
    """
    if self.__dlpack_device__()[0] != _CPU:
        raise TypeError(f"the values are on {self.device}, and numpy needs host memory: use .torch().cpu()")
    if self.dtype == "bfloat16":
        raise TypeError('numpy has no bfloat16: use .torch() or .jax(), or give the loader dtype="float32"')
    array: NDArray[Any] = _function("numpy", "numpy", "from_dlpack")(self)
    return array


def jax(self: Tensor) -> Any:
    """A JAX array of the same memory if JAX accepts it.

    Raises ``ImportError`` if JAX is not installed.
    """
    return _function("jax", "jax.dlpack", "from_dlpack")(self)


def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
    """Called by numpy: the same memory, or a copy if numpy requests another type or a copy."""
    array = self.numpy()
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(f"{self.dtype} as another type needs a copy, which copy=False forbids")
    return array.astype(dtype)


for _method in (torch, numpy, jax, __array__):
    setattr(Tensor, _method.__name__, _method)
