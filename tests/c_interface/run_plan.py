"""Runs a plan in Python by ctypes alone: run_plan.py libespalier.so PLAN, whose input is x [-1, 6]."""
import ctypes as c, sys

library = c.CDLL(sys.argv[1])
library.esp_load.restype, library.esp_last_error.restype = c.c_void_p, c.c_char_p

class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int), ("device_id", c.c_int), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64), ("context", c.c_void_p),
                ("deleter", c.CFUNCTYPE(None, c.c_void_p))]

def run(plan, height, width):
    numbers = (c.c_float * (height * width))(*[1.0] * (height * width))
    given = DLTensor(c.addressof(numbers), 1, 0, 2, 2, 32, 1, (c.c_int64 * 2)(height, width))
    inputs, output = (c.POINTER(DLTensor) * 1)(c.pointer(given)), c.POINTER(DLTensor)()
    if library.esp_run(c.c_void_p(plan), inputs, c.c_size_t(1), c.byref(output), c.c_size_t(1)):
        return library.esp_last_error().decode()
    result = output.contents
    rows, columns = result.shape[: result.ndim]
    floats = c.cast(result.data + result.byte_offset, c.POINTER(c.c_float))[: rows * columns]
    result.deleter(c.cast(output, c.c_void_p))
    return [sum(floats[row * columns : (row + 1) * columns]) for row in range(rows)]

plan = library.esp_load(sys.argv[2].encode(), 0, None)
assert plan, library.esp_last_error().decode()
assert all(abs(total - 1) < 1e-5 for total in run(plan, 5, 6)) and "[5, 4]" in run(plan, 5, 4)
library.esp_release(c.c_void_p(plan))
