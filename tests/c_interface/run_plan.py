"""Runs a plan in Python by ctypes and NumPy alone: run_plan.py libespalier.so PLAN, whose input is x [-1, 6]."""
import ctypes, sys
import numpy

library = ctypes.CDLL(sys.argv[1])
library.esp_load.restype = ctypes.c_void_p
library.esp_last_error.restype = ctypes.c_char_p
library.esp_release.argtypes = [ctypes.c_void_p]

class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]

def run(plan, array):
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    given = DLTensor(array.ctypes.data, 1, 0, array.ndim, 2, 32, 1, shape)
    inputs, output = (ctypes.POINTER(DLTensor) * 1)(ctypes.pointer(given)), ctypes.POINTER(DLTensor)()
    if library.esp_run(ctypes.c_void_p(plan), inputs, ctypes.c_size_t(1), ctypes.byref(output), ctypes.c_size_t(1)):
        raise RuntimeError(library.esp_last_error().decode())
    result = output.contents
    sizes = result.shape[: result.ndim]
    floats = ctypes.cast(result.data + result.byte_offset, ctypes.POINTER(ctypes.c_float))
    copy = numpy.ctypeslib.as_array(floats, sizes).copy()
    result.deleter(ctypes.cast(output, ctypes.c_void_p))
    return copy

plan = library.esp_load(sys.argv[2].encode(), 0, None)
assert plan, library.esp_last_error().decode()
rows = run(plan, numpy.ones((5, 6), numpy.float32))
assert rows.shape == (5, 3) and numpy.allclose(rows.sum(1), 1, atol=1e-5)
try:
    run(plan, numpy.ones((5, 4), numpy.float32))
    raise SystemExit("another shape was taken")
except RuntimeError as error:
    assert "[5, 4]" in str(error), error
library.esp_release(plan)
