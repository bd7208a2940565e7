// Convolutions and pooling as nodes of ONNX.
#include <fmt/format.h>

#include "espalier/nn/onnx/graph_writer.h"

namespace espalier::onnx {

namespace {

std::vector<int64_t> list(const Op& op, std::string_view name) {
  return attribute<std::vector<int64_t>>(op, name);
}

void set_windows(pb::NodeProto& node, const Op& op) {
  if (attribute<bool>(op, "channels_last"))
    throw UnsupportedError(fmt::format("'{}' with the channels last cannot be written", op.name()));
  std::vector<int64_t> pads = list(op, "before");
  const std::vector<int64_t> after = list(op, "after");
  pads.insert(pads.end(), after.begin(), after.end());
  GraphWriter::set(node, "strides", list(op, "stride"));
  GraphWriter::set(node, "pads", pads);
  GraphWriter::set(node, "dilations", list(op, "dilation"));
}

/// Axes [batch, channels, sizes…] that are divided into equal parts are pooled by windows side by side.
void set_parts(pb::NodeProto& node, const Op& op, const Shape& x) {
  std::vector<int64_t> kernel;
  const std::vector<int64_t> parts = list(op, "parts");
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t size = x[static_cast<int64_t>(i) + 2];
    if (size % nominal_size == 0 || size % parts[i])
      throw UnsupportedError(
          fmt::format("'{}' of {} parts of {} cannot be written", op.name(), parts[i], x.str()));
    kernel.push_back(size / parts[i]);
  }
  GraphWriter::set(node, "kernel_shape", kernel);
  GraphWriter::set(node, "strides", kernel);
}

void set_pooling(pb::NodeProto& node, const Op& op, const Shape& x) {
  if (!list(op, "parts").empty()) return set_parts(node, op, x);
  set_windows(node, op);
  GraphWriter::set(node, "kernel_shape", list(op, "kernel"));
  GraphWriter::set(node, "ceil_mode", int64_t{attribute<bool>(op, "ceil")});
}

}  // namespace

std::string write_windows(GraphWriter& w, const GraphWriter::Call& call) {
  const std::string_view op = call.op.name();
  if (op == "conv" || op == "conv_transpose") {
    pb::NodeProto& node = w.begin(op == "conv" ? "Conv" : "ConvTranspose", call.inputs);
    set_windows(node, call.op);
    w.set(node, "group", attribute<int64_t>(call.op, "groups"));
    if (op == "conv_transpose") w.set(node, "output_padding", list(call.op, "more"));
    return w.last_output(node);
  }
  if (op == "pool_argmax") {
    // Values, by which max_pool's places in each plane are replaced; places by themselves are not those of
    // ONNX.
    pb::NodeProto& node = w.begin("MaxPool", call.inputs);
    node.set_output(0, node.output(0) + ".values");
    set_pooling(node, call.op, call.input(0).shape);
    const std::string values = node.output(0);
    const std::string places = values.substr(0, values.size() - std::string_view(".values").size());
    w.refuse(places, "the places of a max_pool_with_indices cannot be written");
    return places;
  }
  if (op == "divide") {  // write_elementwise leaves pool_sum / pool_count
    const Node &sum = *call.node.inputs[0].node(), &count = *call.node.inputs[1].node();
    pb::NodeProto& node = w.begin("AveragePool", {w.name_of(sum.inputs[0])});
    set_pooling(node, sum.op(), sum.inputs[0].spec().shape);
    w.set(node, "count_include_pad", int64_t{attribute<bool>(count.op(), "with_padding")});
    return w.last_output(node);
  }
  return {};
}

}  // namespace espalier::onnx
