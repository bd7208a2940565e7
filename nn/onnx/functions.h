// Functions that a file defines.
#pragma once
#include "espalier/nn/onnx/proto.h"

namespace espalier::onnx {

/// The function that the node calls; null if the file defines none of this name.
const pb::FunctionProto* find_function(const pb::ModelProto& model, const pb::NodeProto& node);
/// A node of a function as the calling node has it: with the attributes that it refers to.
pb::NodeProto with_attributes(const pb::NodeProto& inner, const pb::NodeProto& calling);

}  // namespace espalier::onnx
