"""The part of torch that the kit's scripts use. Tensors have a shape, a type and a place, and no values."""

import contextlib
import time

from . import cuda, nn, optim

__version__ = "0 (fake)"
uint8, float16, bfloat16, float32 = "uint8", "float16", "bfloat16", "float32"
channels_last = "channels_last"


class backends:
    class cudnn:
        benchmark = False


class Tensor:
    def __init__(self, shape, dtype=float32, is_cuda=True, data=None):
        self.shape, self.dtype, self.is_cuda, self.data = tuple(shape), dtype, is_cuda, data

    def __len__(self):
        return self.shape[0]

    def __mul__(self, _number):
        return self

    def view(self, *shape):
        return Tensor(shape, self.dtype, self.is_cuda)

    def flip(self, axis):
        assert -len(self.shape) <= axis < len(self.shape)
        return self

    def permute(self, *axes):
        assert sorted(axes) == list(range(len(self.shape)))
        return Tensor([self.shape[axis] for axis in axes], self.dtype, self.is_cuda)

    def _with(self, other):
        assert self.is_cuda == other.is_cuda and len(self.shape) == len(other.shape), (self.shape, other.shape)
        assert all(b in (1, a) for a, b in zip(self.shape, other.shape)), (self.shape, other.shape)
        assert self.dtype != uint8, "arithmetic in place on bytes"
        return self

    sub_ = div_ = _with

    def float(self):
        return Tensor(self.shape, float32, self.is_cuda)

    def half(self):
        return Tensor(self.shape, float16, self.is_cuda)

    def contiguous(self, *, memory_format):
        return self

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
