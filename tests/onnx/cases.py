"""The cases of ONNX's backend test suite, as folders: those that its package generates, and those that it brings."""
import os
import pathlib

import numpy
import onnx
import onnx.backend.test
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

TYPES = {onnx.TensorProto.DataType.Value(name)
         for name in ("FLOAT", "DOUBLE", "INT32", "INT64", "BOOL", "FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT16")}


class Case:
    """A model with one set of inputs and outputs. `operator` is what it is counted under."""

    def __init__(self, name, folder, model, group):
        self.name, self.folder, self.group = name, folder, group
        self.foreign = foreign_part(model)
        self.types = {node.op_type if not node.domain else f"{node.domain}.{node.op_type}" for node in model.graph.node}


def foreign_part(model):
    """What a model has that is no tensor of Espalier's types: a reason, or None."""
    values = list(model.graph.input) + list(model.graph.output) + list(model.graph.value_info)
    for value in values:
        if not value.type.HasField("tensor_type"):
            return "sequences, optional values and maps"
    kinds = {value.type.tensor_type.elem_type for value in values}
    kinds |= {tensor.data_type for tensor in model.graph.initializer}
    for kind in sorted(kinds - TYPES - {0}):
        return f"type {onnx.TensorProto.DataType.Name(kind)}"
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") and not any(f.domain == node.domain for f in model.functions):
            return f"domain {node.domain}"
    return None


def write(folder, model, data):
    where = folder / "test_data_set_0"
    where.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for kind, values in zip(("input", "output"), data):
        for i, value in enumerate(values):
            if isinstance(value, onnx.TensorProto):
                tensor = value
            elif isinstance(value, (list, dict)) or value is None:
                return  # no tensor: the case is counted as foreign
            else:
                tensor = numpy_helper.from_array(numpy.asarray(value))
            (where / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def node_cases(folder):
    for case in collect_testcases(None):
        here = folder / case.name
        made = Case(case.name, here, case.model, case.name.removeprefix("test_").removeprefix("cc_"))
        if made.foreign is None:
            write(here, case.model, case.data_sets[0])
        yield made


def stored_cases(folder):
    data = pathlib.Path(onnx.backend.test.__file__).parent / "data"
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for here in sorted((data / kind).iterdir()):
            if (here / "model.onnx").exists():
                yield Case(f"{kind}/{here.name}", here, onnx.load(here / "model.onnx"), kind)
    # The light models have outputs for inputs that count up from 0 within [0, 1).
    for file in sorted((data / "light").glob("*.onnx")):
        model = onnx.load(file)
        here = folder / file.stem
        initial = {tensor.name for tensor in model.graph.initializer}
        inputs = []
        for value in model.graph.input:
            if value.name not in initial:
                shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
                count = int(numpy.prod(shape))
                inputs.append((numpy.arange(count).reshape(shape) / count).astype(numpy.float32))
        output = onnx.TensorProto()
        output.ParseFromString(pathlib.Path(str(file.with_suffix("")) + "_output_0.pb").read_bytes())
        write(here, model, (inputs, [output]))
        yield Case(f"light/{file.stem}", here, model, "light")
