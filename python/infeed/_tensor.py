"""A tensor in other libraries.

These methods are Python's, and not beside the others in Rust, for the sake of the first call, which imports the library. Where the
interpreter ends meanwhile, a daemon thread is ended by unwinding its stack, and frames of Rust in it would end the process instead.
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

# Of DLPack.
_CPU = 1


@cache
def _function(package: str, module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{package} is not installed here: pip install {package}") from error


def torch(self: Tensor) -> _torch.Tensor:
    """A torch tensor of the same memory. It may be written to.

    Raises ImportError where torch is not installed.
    """
    lent = _function("torch", "torch.utils.dlpack", "from_dlpack")
    # The capsule itself, in the form that every torch knows: of an object it asks more, which costs as much again. On a GPU it
    # names the stream on which it will read.
    tensor: _torch.Tensor = lent(self.__dlpack__() if self.__dlpack_device__()[0] == _CPU else self)
    return tensor


def numpy(self: Tensor) -> NDArray[Any]:
    """A numpy array of the same memory.

    Raises ImportError where numpy is not installed, TypeError for bfloat16 (which numpy has not) and for what lies on
    a GPU.
    """
    if self.__dlpack_device__()[0] != _CPU:
        raise TypeError(f"the values lie on {self.device}, and numpy's in host memory: .torch().cpu()")
    if self.dtype == "bfloat16":
        raise TypeError('numpy has no bfloat16: take .torch() or .jax(), or dtype="float32"')
    array: NDArray[Any] = _function("numpy", "numpy", "from_dlpack")(self)
    return array


def jax(self: Tensor) -> Any:
    """A JAX array of the same memory, where JAX takes it as it is.

    Raises ImportError where JAX is not installed.
    """
    return _function("jax", "jax.dlpack", "from_dlpack")(self)


def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
    """As numpy asks: the same memory, or a copy where another type or a copy is asked for."""
    array = self.numpy()
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(f"{self.dtype} as another type is a copy, which copy=False forbids")
    return array.astype(dtype)


for _method in (torch, numpy, jax, __array__):
    setattr(Tensor, _method.__name__, _method)
