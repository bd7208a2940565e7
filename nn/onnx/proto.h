// ONNX's messages, as protobuf's compiler has written them.
#pragma once
#include <onnx/onnx_pb.h>

namespace espalier::onnx {

namespace pb = ::onnx;

}  // namespace espalier::onnx
