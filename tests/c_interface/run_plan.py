"""Runs a plan in Python by ctypes alone: run_plan.py libespalier.so PLAN, whose input is x [-1, 6]."""
import ctypes, sys

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

def run(plan, rows):
    numbers = (ctypes.c_float * (len(rows) * len(rows[0])))(*sum(rows, []))
    shape = (ctypes.c_int64 * 2)(len(rows), len(rows[0]))
    given = DLTensor(ctypes.addressof(numbers), 1, 0, 2, 2, 32, 1, shape)
    inputs, output = (ctypes.POINTER(DLTensor) * 1)(ctypes.pointer(given)), ctypes.POINTER(DLTensor)()
    if library.esp_run(ctypes.c_void_p(plan), inputs, ctypes.c_size_t(1), ctypes.byref(output), ctypes.c_size_t(1)):
        raise RuntimeError(library.esp_last_error().decode())
    result = output.contents
    height, width = result.shape[: result.ndim]
    floats = ctypes.cast(result.data + result.byte_offset, ctypes.POINTER(ctypes.c_float))
    copy = [floats[row * width : (row + 1) * width] for row in range(height)]
    result.deleter(ctypes.cast(output, ctypes.c_void_p))
    return copy

plan = library.esp_load(sys.argv[2].encode(), 0, None)
assert plan, library.esp_last_error().decode()
rows = run(plan, [[1.0] * 6] * 5)
assert len(rows) == 5 and all(len(row) == 3 and abs(sum(row) - 1) < 1e-5 for row in rows), rows
try:
    run(plan, [[1.0] * 4] * 5)
    raise SystemExit("another shape was taken")
except RuntimeError as error:
    assert "[5, 4]" in str(error), error
library.esp_release(plan)
