// Tensors of ONNX files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "espalier/core/tensor.h"
#include "espalier/nn/onnx/proto.h"

namespace espalier::onnx {

/// "FLOAT", "INT4", …, as ONNX names an element type.
std::string type_text(int32_t type);
/// The DType of an element type of ONNX; none for those that Espalier does not have.
std::optional<DType> dtype_of_file(int32_t type);
/// The same. Throws UnsupportedError: `what`, and the type.
DType need_dtype(int32_t type, const std::string& what);
/// ONNX's number of a DType.
int32_t type_in_file(DType dtype);

/// The tensor of a file `model`; elements may lie in a file of their own in its folder or below it, or, as
/// links may lead out of there, in that of the file that `model` is a link to. Throws FileError for sizes
/// that contradict the data, and for a file elsewhere; UnsupportedError for other types.
Tensor read_tensor(const pb::TensorProto& proto, const std::filesystem::path& model);
/// The reverse, with the elements inside.
void write_tensor(const Tensor& tensor, const std::string& name, pb::TensorProto& proto);

}  // namespace espalier::onnx
