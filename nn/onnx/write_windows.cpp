// Convolutions, pooling and regions of images as nodes of ONNX.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/op_names.h"
#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/ops/pooling/pool_windows.h"
#include "espalier/ops/regions/region_bins.h"

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

/// Whether axes are divided into parts that are no windows side by side. Throws UnsupportedError for an open
/// one.
bool is_uneven(const Op& op, const Edge& input) {
  const Shape& x = input.spec().shape;
  const PoolForm form = PoolForm::of(op);
  bool uneven = false;
  for (size_t i = 0; i < form.parts.size(); ++i) {
    const size_t axis = form.first_axis(x) + i;
    const int64_t size = x.dims()[axis];
    if (is_open_axis(*input.node(), input.output(), axis))
      throw UnsupportedError(fmt::format("'{}' of parts of an open axis cannot be written", op.name()));
    uneven |= size % form.parts[i] != 0;
  }
  return uneven;
}

/// Axes that are divided into equal parts are pooled by windows side by side.
void set_parts(pb::NodeProto& node, const PoolForm& form, const Shape& x) {
  std::vector<int64_t> kernel;
  for (size_t i = 0; i < form.parts.size(); ++i)
    kernel.push_back(x.dims()[form.first_axis(x) + i] / form.parts[i]);
  GraphWriter::set(node, "kernel_shape", kernel);
  GraphWriter::set(node, "strides", kernel);
}

/// Sums of shares, or the largest, of parts that differ in size or overlap: one axis after the other.
std::string of_uneven_parts(GraphWriter& w, const Op& op, const Edge& input, bool mean) {
  const Spec& x = input.spec();
  const PoolForm form = PoolForm::of(op);
  const PoolAxes axes = form.windows(x.shape, op.name());
  std::string y = w.name_of(input);
  for (size_t i = 0; i < form.axes(); ++i) {
    const PoolAxis& along = axes.at[most_pooled_axes - form.axes() + i];
    int64_t longest = 0;
    for (int64_t part = 0; part < along.count; ++part) longest = std::max(longest, along.length(part));
    std::vector<int64_t> places;
    std::vector<double> shares;
    for (int64_t part = 0; part < along.count; ++part)
      for (int64_t k = 0; k < longest; ++k) {
        const int64_t length = along.length(part);
        // A short part repeats its first element, whose share is divided: a share of 0 would make infinity
        // NaN.
        const bool repeated = k == 0 || k >= length;
        places.push_back(along.begin(part) + (repeated ? 0 : k));
        shares.push_back(1.0 / static_cast<double>(length * (repeated ? longest - length + 1 : 1)));
      }
    const size_t axis = form.first_axis(x.shape) + i;
    pb::NodeProto& gathered = w.begin("Gather", {y, w.constant(tensor_from(places, {along.count, longest}))});
    w.set(gathered, "axis", static_cast<int64_t>(axis));
    y = w.last_output(gathered);
    if (mean) {
      Shape beside{along.count, longest};
      for (size_t later = axis + 1; later < x.shape.rank(); ++later) beside.dims().push_back(1);
      y = w.add("Mul", {y, w.constant(tensor_from(shares, beside).to(x.dtype))});
    }
    pb::NodeProto& reduced =
        w.begin(mean ? "ReduceSum" : "ReduceMax", {y, w.integers({static_cast<int64_t>(axis) + 1})});
    w.set(reduced, "keepdims", int64_t{0});
    y = w.last_output(reduced);
  }
  return y;
}

void set_pooling(pb::NodeProto& node, const Op& op, const Shape& x) {
  const PoolForm form = PoolForm::of(op);
  if (!form.parts.empty()) return set_parts(node, form, x);
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
  if (op == "roi_align") {
    pb::NodeProto& node = w.begin("RoiAlign", call.inputs);
    const RoiForm form = RoiForm::of(call.op);
    w.set(node, "output_height", form.height);
    w.set(node, "output_width", form.width);
    w.set(node, "spatial_scale", form.scale);
    w.set(node, "sampling_ratio", form.samples);
    w.set_text(node, "coordinate_transformation_mode", form.aligned ? "half_pixel" : "output_half_pixel");
    return w.last_output(node);
  }
  if (op == "pool_max") {
    if (is_uneven(call.op, call.node.inputs[0]))
      return of_uneven_parts(w, call.op, call.node.inputs[0], false);
    pb::NodeProto& node = w.begin("MaxPool", call.inputs);
    set_pooling(node, call.op, call.input(0).shape);
    return w.last_output(node);
  }
  if (op == "pool_argmax") {
    // Values, by which max_pool's places in each plane are replaced; places by themselves are not those of
    // ONNX.
    const bool uneven = is_uneven(call.op, call.node.inputs[0]);
    pb::NodeProto& node = uneven
                              ? w.begin("Identity", {of_uneven_parts(w, call.op, call.node.inputs[0], false)})
                              : w.begin("MaxPool", call.inputs);
    node.set_output(0, node.output(0) + ".values");
    if (!uneven) set_pooling(node, call.op, call.input(0).shape);
    const std::string values = node.output(0);
    const std::string places = values.substr(0, values.size() - std::string_view(".values").size());
    w.refuse(places, "the places of a max_pool_with_indices cannot be written");
    return places;
  }
  if (op == "pool_take") {  // the values of a MaxPool of the same tensor
    const Edge &x = call.node.inputs[0], &places = call.node.inputs[1];
    const bool own = is_op(places.node()->op(), "pool_argmax") &&
                     places.node()->inputs[0].node() == x.node() &&
                     places.node()->inputs[0].output() == x.output() &&
                     places.node()->op().attributes() == call.op.attributes();
    return own ? w.name_of(places) + ".values" : std::string();
  }
  if (op == "divide") {  // write_elementwise leaves pool_sum / pool_count
    const Node &sum = *call.node.inputs[0].node(), &count = *call.node.inputs[1].node();
    if (is_uneven(sum.op(), sum.inputs[0])) return of_uneven_parts(w, sum.op(), sum.inputs[0], true);
    pb::NodeProto& node = w.begin("AveragePool", {w.name_of(sum.inputs[0])});
    set_pooling(node, sum.op(), sum.inputs[0].spec().shape);
    w.set(node, "count_include_pad", int64_t{attribute<bool>(count.op(), "with_padding")});
    return w.last_output(node);
  }
  return {};
}

}  // namespace espalier::onnx
