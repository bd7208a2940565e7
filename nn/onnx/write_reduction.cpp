// Reductions and softmax as nodes of ONNX.
#include <map>

#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/nn/onnx/tensors.h"

namespace espalier::onnx {

std::string write_reduction(GraphWriter& w, const GraphWriter::Call& call) {
  static const std::map<std::string_view, std::string_view> reductions = {
      {"sum", "ReduceSum"}, {"mean", "ReduceMean"}, {"max", "ReduceMax"}, {"min", "ReduceMin"}};
  const std::string_view op = call.op.name();
  if (const auto known = reductions.find(op); known != reductions.end()) {
    std::vector<int64_t> axes = attribute<std::vector<int64_t>>(call.op, "axes");
    GraphWriter::Names inputs{call.inputs[0]};
    if (!axes.empty()) inputs.push_back(w.integers(axes));
    pb::NodeProto& node = w.begin(known->second, inputs);
    w.set(node, "keepdims", int64_t{attribute<bool>(call.op, "keep_dims")});
    return w.last_output(node);
  }
  if (op == "prod")  // which keeps the axis
    return w.add("ReduceProd", {call.inputs[0], w.integers({attribute<int64_t>(call.op, "axis")})});
  if (op == "argmax" || op == "argmin") {
    pb::NodeProto& node = w.begin(op == "argmax" ? "ArgMax" : "ArgMin", call.inputs);
    w.set(node, "axis", attribute<int64_t>(call.op, "axis"));
    w.set(node, "keepdims", int64_t{0});
    return w.last_output(node);
  }
  if (op == "cumsum") {
    const int64_t axis = call.axis("axis", static_cast<int64_t>(call.input(0).shape.rank()));
    pb::NodeProto& node = w.begin("CumSum", {call.inputs[0], w.number(static_cast<double>(axis), int64)});
    w.set(node, "reverse", int64_t{attribute<bool>(call.op, "reverse")});
    return w.last_output(node);
  }
  if (op == "count_ratio" || op == "sample_correction") {
    const auto count = [&](size_t i) {
      pb::NodeProto& node = w.begin("Cast", {w.add("Size", {call.inputs[i]})});
      w.set(node, "to", int64_t{type_in_file(call.output().dtype)});
      return w.last_output(node);
    };
    const std::string n = w.add("Div", {count(0), count(1)}), one = w.number(1, call.output().dtype);
    if (op == "count_ratio") return n;
    // n / (n - 1), where n elements are one of the variance
    return w.add("Where", {w.add("Greater", {n, one}), w.add("Div", {n, w.add("Sub", {n, one})}), one});
  }
  if (op == "softmax" || op == "log_softmax") {
    pb::NodeProto& node = w.begin(op == "softmax" ? "Softmax" : "LogSoftmax", call.inputs);
    w.set(node, "axis", int64_t{-1});
    return w.last_output(node);
  }
  return {};
}

}  // namespace espalier::onnx
