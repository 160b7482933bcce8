"""Tensors of others by DLPack. The mock GPU's memory is the host's, so that its values can be looked at."""

import ctypes
import weakref

CPU, CUDA = 1, 2
TYPES = {(0, 64): "int64", (1, 8): "uint8", (2, 16): "float16", (2, 32): "float32"}


class Managed(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int), ("number", ctypes.c_int), ("axes", ctypes.c_int),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


def from_dlpack(source):
    import numpy
    import torch

    capsule = source if type(source).__name__ == "PyCapsule" else source.__dlpack__(stream=1)
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, USED)
    managed = Managed.from_address(address)
    assert managed.device in (CPU, CUDA) and managed.lanes == 1, (managed.device, managed.lanes)
    shape, dtype = tuple(managed.shape[: managed.axes]), TYPES[managed.code, managed.bits]
    values = numpy.frombuffer((ctypes.c_uint8 * (numpy.prod(shape) * managed.bits // 8)).from_address(managed.data + managed.offset), dtype)
    tensor = torch.Tensor(shape, dtype, managed.device == CUDA, values=values.reshape(shape))
    if managed.deleter:
        weakref.finalize(tensor, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter), address)
    return tensor


USED = b"used_dltensor"
