"""The part of torch that the kit's scripts use. Tensors have a shape, a type and a place; those that infeed made have values."""

import contextlib
import time

from . import cuda, nn, optim, utils

__version__ = "0 (fake)"
uint8, float16, bfloat16, float32, float64, int64 = "uint8", "float16", "bfloat16", "float32", "float64", "int64"
channels_last = "channels_last"


class backends:
    class cudnn:
        benchmark = False


class Tensor:
    def __init__(self, shape, dtype=float32, is_cuda=True, data=None, values=None):
        self.shape, self.dtype, self.is_cuda, self.data, self.values = tuple(shape), dtype, is_cuda, data, values
        self.device = "cuda:0" if is_cuda else "cpu"

    def _like(self, **other):
        return Tensor(**{**{name: getattr(self, name) for name in ("shape", "dtype", "is_cuda", "data", "values")}, **other})

    def __len__(self):
        return self.shape[0]

    def __mul__(self, _number):
        return self

    def view(self, *shape):
        return self._like(shape=shape)

    def flip(self, axis):
        assert -len(self.shape) <= axis < len(self.shape)
        return self

    def permute(self, *axes):
        assert sorted(axes) == list(range(len(self.shape)))
        return self._like(shape=[self.shape[axis] for axis in axes])

    def _with(self, other):
        assert self.is_cuda == other.is_cuda and len(self.shape) == len(other.shape), (self.shape, other.shape)
        assert all(b in (1, a) for a, b in zip(self.shape, other.shape)), (self.shape, other.shape)
        assert self.dtype != uint8, "arithmetic in place on bytes"
        return self

    sub_ = div_ = _with

    def float(self):
        return self._like(dtype=float32)

    def double(self):
        return self._like(dtype=float64)

    def half(self):
        return self._like(dtype=float16)

    def to(self, device=None, *, non_blocking=False, memory_format=None):
        assert device in (None, "cuda", "cuda:0") and memory_format in (None, channels_last)
        return self if device is None else self._like(is_cuda=True)

    def cpu(self):
        # A copy, as of a GPU.
        return self._like(is_cuda=False, values=self.values.copy())

    def numpy(self):
        assert not self.is_cuda
        return self.values

    def clone(self):
        return self._like()

    def copy_(self, other):
        assert self.is_cuda == other.is_cuda and self.shape == other.shape
        return self

    def sum(self):
        return float(self.values.astype("f8").sum())

    def backward(self):
        pass


def tensor(values, *, device):
    return Tensor([len(values)], float32, device == "cuda")


def frombuffer(data, *, dtype):
    memoryview(data)[0:1] = memoryview(data)[0:1].tobytes()  # torch warns of memory that can't be written
    return Tensor([len(data)], dtype, False, bytes(data))


def stack(tensors):
    assert len({tensor.shape for tensor in tensors}) == 1, [tensor.shape for tensor in tensors]
    return Tensor([len(tensors), *tensors[0].shape], tensors[0].dtype, tensors[0].is_cuda)


def from_dlpack(source):
    assert hasattr(source, "__dlpack__")
    return Tensor(source.shape, uint8, source.on_gpu)


def randn(*shape, device, dtype):
    return Tensor(shape, dtype, device == "cuda")


def randint(low, high, shape, *, device):
    assert low < high
    return Tensor(shape, "int64", device == "cuda")


def set_num_threads(count):
    assert count > 0


@contextlib.contextmanager
def autocast(device, *, dtype):
    assert (device, dtype) == ("cuda", bfloat16)
    yield


def size_of_jpeg(data):
    """Height and width."""
    at = 2
    while not 0xC0 <= data[at + 1] <= 0xCF or data[at + 1] in (0xC4, 0xC8, 0xCC):
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")


def decode_jpegs(files):
    """What all decoders here do: u8, CHW, after a while."""
    assert isinstance(files, list) and all(file.dtype == uint8 and not file.is_cuda for file in files)
    time.sleep(0.0005 * len(files))
    return [Tensor([3, *size_of_jpeg(file.data)], uint8) for file in files]
