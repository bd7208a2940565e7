"""Espalier's operations, called through the C interface of bridge.cpp."""
import ctypes

import torch

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16)
NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}
MOST_AXES = 12


class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("sizes", ctypes.c_int64 * MOST_AXES), ("strides", ctypes.c_int64 * MOST_AXES)]


class Request(ctypes.Structure):
    """A case: cotangents are those of the outputs that are real, directions those of the differentiable inputs."""
    _fields_ = [("op", ctypes.c_char_p), ("attributes", ctypes.c_char_p), ("inputs", ctypes.POINTER(Array)),
                ("cotangents", ctypes.POINTER(Array)), ("directions", ctypes.POINTER(Array)),
                ("input_count", ctypes.c_int32), ("cotangent_count", ctypes.c_int32),
                ("direction_count", ctypes.c_int32), ("frozen", ctypes.c_int32)]


class Refused(Exception):
    """An exception of Espalier; `kind` is its class."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def as_array(tensor, array):
    array.data, array.dtype, array.rank = tensor.data_ptr(), NUMBERS[tensor.dtype], tensor.dim()
    for axis in range(tensor.dim()):
        array.sizes[axis], array.strides[axis] = tensor.size(axis), tensor.stride(axis)


def as_arrays(tensors):
    arrays = (Array * max(1, len(tensors)))()
    for tensor, array in zip(tensors, arrays):
        as_array(tensor, array)
    return arrays


def as_tensor(array):
    if array.rank < 0:
        return None
    shape = array.sizes[:array.rank]
    dtype = DTYPES[array.dtype]
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(array.data)
    return torch.frombuffer(buffer, dtype=dtype).clone().reshape(shape)


def as_text(attributes):
    def text(value):
        if isinstance(value, (list, tuple)):
            return ",".join(text(each) for each in value)
        return str(int(value)) if isinstance(value, bool) else str(value)

    return ";".join(f"{name}={text(value)}" for name, value in attributes.items() if value is not None)


class Espalier:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.espalier_run.argtypes = [ctypes.POINTER(Request), ctypes.POINTER(ctypes.POINTER(Array))]
        self.library.espalier_error.restype = ctypes.c_char_p
        self.library.espalier_names.restype = ctypes.c_char_p

    def names(self):
        return self.library.espalier_names().decode().split()

    def run(self, op, attributes, inputs, cotangents=(), directions=(), frozen=False):
        """The outputs; with cotangents also the gradients of the real inputs, with directions also the gradients of
        the sum of their products with these. A gradient that is none is None."""
        request = Request(op.encode(), as_text(attributes).encode(), as_arrays(inputs), as_arrays(cotangents),
                          as_arrays(directions), len(inputs), len(cotangents), len(directions), frozen)
        results = ctypes.POINTER(Array)()
        count = self.library.espalier_run(ctypes.byref(request), ctypes.byref(results))
        if count < 0:
            kind, message = self.library.espalier_error().decode(errors="replace").split(": ", 1)
            raise Refused(kind, message)
        return [as_tensor(results[i]) for i in range(count)]
