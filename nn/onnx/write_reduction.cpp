// Reductions and softmax as nodes of ONNX.
#include <map>

#include "espalier/nn/onnx/graph_writer.h"

namespace espalier::onnx {

std::string write_reduction(GraphWriter& w, const GraphWriter::Call& call) {
  static const std::map<std::string_view, std::string_view> reductions = {{"sum", "ReduceSum"},
                                                                          {"mean", "ReduceMean"},
                                                                          {"max", "ReduceMax"},
                                                                          {"min", "ReduceMin"},
                                                                          {"prod", "ReduceProd"}};
  const std::string_view op = call.op.name();
  if (const auto known = reductions.find(op); known != reductions.end()) {
    std::vector<int64_t> axes = attribute<std::vector<int64_t>>(call.op, "axes");
    GraphWriter::Names inputs{call.inputs[0]};
    if (!axes.empty()) inputs.push_back(w.integers(axes));
    pb::NodeProto& node = w.begin(known->second, inputs);
    w.set(node, "keepdims", int64_t{attribute<bool>(call.op, "keep_dims")});
    return w.last_output(node);
  }
  if (op == "argmax" || op == "argmin") {
    pb::NodeProto& node = w.begin(op == "argmax" ? "ArgMax" : "ArgMin", call.inputs);
    w.set(node, "axis", attribute<int64_t>(call.op, "axis"));
    w.set(node, "keepdims", int64_t{0});
    return w.last_output(node);
  }
  if (op == "softmax" || op == "log_softmax") {
    pb::NodeProto& node = w.begin(op == "softmax" ? "Softmax" : "LogSoftmax", call.inputs);
    w.set(node, "axis", int64_t{-1});
    return w.last_output(node);
  }
  return {};
}

}  // namespace espalier::onnx
