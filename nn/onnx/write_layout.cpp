// Views, joins and elements by indices as nodes of ONNX.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "espalier/core/op_names.h"
#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/views/axis_groups.h"

namespace espalier::onnx {

namespace {

std::vector<int64_t> list(const GraphWriter::Call& call, std::string_view name) {
  return attribute<std::vector<int64_t>>(call.op, name);
}

std::vector<int64_t> axes_of(const GraphWriter::Call& call, std::string_view name, size_t rank) {
  std::vector<int64_t> axes = list(call, name);
  for (int64_t& axis : axes)
    if (axis < 0) axis += static_cast<int64_t>(rank);
  return axes;
}

[[noreturn]] void refuse_open(const GraphWriter::Call& call) {
  throw UnsupportedError(fmt::format("'{}' to the size of an open axis cannot be written", call.op.name()));
}

/// An input, with axes of size 1 but for `axis` repeated as the other input has them.
std::string expanded(GraphWriter& w, const GraphWriter::Call& call, size_t input, size_t other,
                     int64_t axis) {
  const Shape &own = call.input(input).shape, &wanted = call.input(other).shape;
  std::vector<int64_t> sizes(own.rank(), 1);  // Expand leaves axes alone for which it is given 1
  for (size_t i = 0; i < own.rank(); ++i)
    if (static_cast<int64_t>(i) != axis && own.dims()[i] == 1) {
      if (call.is_open(other, i)) refuse_open(call);
      sizes[i] = wanted.dims()[i];
    }
  if (std::ranges::all_of(sizes, [](int64_t size) { return size == 1; })) return call.inputs[input];
  return w.add("Expand", {call.inputs[input], w.integers(sizes)});
}

std::string reshaped(GraphWriter& w, const GraphWriter::Call& call, const std::vector<int64_t>& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 0 && call.is_output_open(i)) refuse_open(call);
  return w.add("Reshape", {call.inputs[0], w.integers(sizes)});
}

/// The rows with the leading axes of the other input. If only the first is open, the others are numbers.
std::string unfolded(GraphWriter& w, const GraphWriter::Call& call) {
  const Shape& to = call.output().shape;
  std::vector<int64_t> sizes(to.begin(), to.end());
  bool known = true;
  for (size_t i = 1; i < sizes.size(); ++i) known &= sizes[i] > 0 && !call.is_output_open(i);
  if (known) {
    sizes[0] = -1;
    return reshaped(w, call, sizes);
  }
  const std::string leading = w.add("Slice", {w.shape_of(call.inputs[1]), w.integers({0}), w.integers({-1})});
  pb::NodeProto& node = w.begin("Concat", {leading, w.integers({sizes.back()})});
  w.set(node, "axis", int64_t{0});
  return w.add("Reshape", {call.inputs[0], w.last_output(node)});
}

std::string sliced(GraphWriter& w, const GraphWriter::Call& call, int64_t step) {
  const auto rank = static_cast<int64_t>(call.input(0).shape.rank());
  const int64_t begin = attribute<int64_t>(call.op, "begin"), axis = call.axis("axis", rank);
  int64_t end = attribute<int64_t>(call.op, "end");
  if (end == open_end)
    end = step > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  return w.add("Slice", {call.inputs[0], w.integers({begin}), w.integers({end}), w.integers({axis}),
                         w.integers({step})});
}

/// Sizes of a view of `call`, of which the leading ones that stay in place are copied and one more may be
/// open.
std::string regrouped(GraphWriter& w, const GraphWriter::Call& call) {
  const Shape &from = call.input(0).shape, &to = call.output().shape;
  std::vector<int64_t> sizes(to.begin(), to.end());
  size_t same = 0;
  while (same < std::min(from.rank(), to.rank()) &&
         from[static_cast<int64_t>(same)] == to[static_cast<int64_t>(same)] && sizes[same] != 0)
    sizes[same++] = 0;
  // The first size may be another in each run, and so is what it is merged to.
  if (same < sizes.size() && to.elements() > 0) {
    const bool first = same == 0;
    size_t open = same;
    while (open < sizes.size() && !call.is_output_open(open)) ++open;
    if (open < sizes.size())
      sizes[open] = -1;
    else if (first || std::ranges::count(sizes, -1) == 0)
      sizes[same] = -1;
  }
  return reshaped(w, call, sizes);
}

/// The shape that reshape_by() makes of numbers and sizes of operands: numbers where they are so in each run,
/// and one size that may differ is left open. Several are read from the operands.
std::string reshaped_by(GraphWriter& w, const GraphWriter::Call& call) {
  const std::vector<int64_t> operands = list(call, "operands"), axes = list(call, "axes"),
                             counts = list(call, "counts");
  const Shape& to = call.output().shape;
  std::vector<int64_t> sizes(to.begin(), to.end());
  std::vector<size_t> differing;
  size_t at = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    bool differs = false;
    for (int64_t k = 0; k < counts[i]; ++k, ++at) {
      if (operands[at] == AxisOf::number) {
        differs |= axes[at] == -1;
        continue;
      }
      const auto operand = static_cast<size_t>(operands[at]);
      const auto axis = static_cast<size_t>(axes[at]);
      differs |= call.node.inputs[operand].node()->lazy && (axis == 0 || call.is_open(operand, axis));
    }
    if (differs) differing.push_back(i);
  }
  if (differing.size() == 1) sizes[differing[0]] = -1;
  if (differing.size() <= 1) return reshaped(w, call, sizes);
  GraphWriter::Names parts;
  at = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    std::string size;
    for (int64_t k = 0; k < counts[i]; ++k, ++at) {
      const std::string factor =
          operands[at] == AxisOf::number
              ? w.integers({axes[at]})
              : w.add("Gather",
                      {w.shape_of(call.inputs[static_cast<size_t>(operands[at])]), w.integers({axes[at]})});
      size = size.empty() ? factor : w.add("Mul", {size, factor});
    }
    parts.push_back(size.empty() ? w.integers({1}) : size);
  }
  pb::NodeProto& node = w.begin("Concat", parts);
  w.set(node, "axis", int64_t{0});
  return w.add("Reshape", {call.inputs[0], w.last_output(node)});
}

/// The axes from the last element to the first.
std::string flipped(GraphWriter& w, const GraphWriter::Call& call, std::vector<int64_t> axes) {
  if (axes.empty())
    for (size_t axis = 0; axis < call.input(0).shape.rank(); ++axis)
      axes.push_back(static_cast<int64_t>(axis));
  const std::vector<int64_t> backwards(axes.size(), -1),
      ends(axes.size(), std::numeric_limits<int64_t>::min());
  return w.add("Slice", {call.inputs[0], w.integers(backwards), w.integers(ends), w.integers(axes),
                         w.integers(backwards)});
}

/// The last elements of an axis in front of the others.
std::string rolled(GraphWriter& w, const GraphWriter::Call& call, int64_t axis) {
  if (call.is_open(0, static_cast<size_t>(axis))) refuse_open(call);
  const int64_t size = call.input(0).shape[axis];
  const int64_t shift = size ? (attribute<int64_t>(call.op, "shift") % size + size) % size : 0;
  if (shift == 0) return call.inputs[0];
  const auto part = [&](int64_t begin, int64_t end) {
    return w.add("Slice", {call.inputs[0], w.integers({begin}), w.integers({end}), w.integers({axis})});
  };
  pb::NodeProto& node = w.begin("Concat", {part(size - shift, size), part(0, size - shift)});
  w.set(node, "axis", axis);
  return w.last_output(node);
}

/// Ones within a band around the diagonal of a matrix of that shape.
std::string band(GraphWriter& w, const GraphWriter::Call& call) {
  const Shape& shape = call.output().shape;
  if (call.is_output_open(0) || call.is_output_open(1)) refuse_open(call);
  const int64_t below = attribute<int64_t>(call.op, "below"), above = attribute<int64_t>(call.op, "above");
  const double diagonal = attribute<double>(call.op, "diagonal");
  Tensor ones_there = zeros(shape, float64);
  for (int64_t i = 0; i < shape[0]; ++i)
    for (int64_t k = 0; k < shape[1]; ++k) {
      const int64_t limit = k > i ? above : below;
      const bool inside = limit < 0 || std::abs(k - i) <= limit;
      ones_there.at<double>({i, k}) = k == i ? diagonal : inside ? 1 : 0;
    }
  return w.constant(ones_there.to(call.output().dtype));
}

/// An axis that is repeated from a size of 1.
std::string repeated(GraphWriter& w, const GraphWriter::Call& call) {
  const auto rank = static_cast<int64_t>(call.output().shape.rank());
  const int64_t axis = call.axis("axis", rank);
  std::vector<int64_t> sizes(static_cast<size_t>(rank - axis), 1);
  sizes[0] = attribute<int64_t>(call.op, "count");
  return w.add("Expand", {w.add("Unsqueeze", {call.inputs[0], w.integers({axis})}), w.integers(sizes)});
}

/// Elements of the axis in front of it and behind it.
std::string padded_from_axis(GraphWriter& w, const GraphWriter::Call& call, int64_t axis) {
  const std::string& mode = attribute<std::string>(call.op, "mode");
  pb::NodeProto& node = w.begin(
      "Pad", {call.inputs[0],
              w.integers({attribute<int64_t>(call.op, "before"), attribute<int64_t>(call.op, "after")}), "",
              w.integers({axis})});
  w.set_text(node, "mode", mode == "replicate" ? "edge" : mode == "circular" ? "wrap" : mode);
  return w.last_output(node);
}

}  // namespace

std::string write_layout(GraphWriter& w, const GraphWriter::Call& call) {
  const std::string_view op = call.op.name();
  const auto& in = call.inputs;
  const size_t rank = call.node.inputs.empty() ? 0 : call.input(0).shape.rank();
  if (op == "reshape") return reshaped(w, call, list(call, "shape"));
  if (op == "flatten" || op == "merge_axes" || op == "unflatten" || op == "fold_rows")
    return regrouped(w, call);
  if (op == "reshape_by") return reshaped_by(w, call);
  if (op == "flip") return flipped(w, call, axes_of(call, "axes", rank));
  if (op == "roll") return rolled(w, call, call.axis("axis", static_cast<int64_t>(rank)));
  if (op == "band_like") return band(w, call);
  if (op == "repeat_on_axis") return repeated(w, call);
  if (op == "pad_from_axis") return padded_from_axis(w, call, call.axis("axis", static_cast<int64_t>(rank)));
  if (op == "broadcast_together") {
    std::string y = in[0];
    for (size_t i = 1; i < in.size(); ++i) y = w.add("Expand", {y, w.shape_of(in[i])});
    return y;
  }
  if (op == "reshape_like") return w.add("Reshape", {in[0], w.shape_of(in[1])});
  if (op == "unfold_like") return unfolded(w, call);
  if (op == "broadcast_like") return w.add("Expand", {in[0], w.shape_of(in[1])});
  if (op == "broadcast_to") {
    return w.add("Expand", {in[0], w.integers(list(call, "shape"))});
  }
  if (op == "unsqueeze")
    return w.add("Unsqueeze", {in[0], w.integers(axes_of(call, "axes", call.output().shape.rank()))});
  if (op == "squeeze") {
    const std::vector<int64_t> axes = axes_of(call, "axes", rank);
    return axes.empty() ? w.add("Squeeze", {in[0]}) : w.add("Squeeze", {in[0], w.integers(axes)});
  }
  if (op == "transpose") {
    pb::NodeProto& node = w.begin("Transpose", in);
    w.set(node, "perm", axes_of(call, "order", rank));
    return w.last_output(node);
  }
  if (op == "slice") return sliced(w, call, 1);
  if (op == "slice_steps") return sliced(w, call, attribute<int64_t>(call.op, "step"));
  if (op == "concat") {
    pb::NodeProto& node = w.begin("Concat", in);
    w.set(node, "axis", call.axis("axis", static_cast<int64_t>(rank)));
    return w.last_output(node);
  }
  if (op == "stack") {
    const int64_t axis = call.axis("axis", static_cast<int64_t>(rank) + 1);
    std::vector<std::string> parts;
    for (const std::string& part : in) parts.push_back(w.add("Unsqueeze", {part, w.integers({axis})}));
    pb::NodeProto& node = w.begin("Concat", parts);
    w.set(node, "axis", axis);
    return w.last_output(node);
  }
  if (op == "gather") {
    pb::NodeProto& node = w.begin("Gather", in);
    w.set(node, "axis", call.axis("axis", static_cast<int64_t>(rank)));
    return w.last_output(node);
  }
  if (op == "look_up") return w.add("Gather", in);
  if (op == "take_along_axis" && call.input(0).shape.rank() == call.input(1).shape.rank()) {
    const int64_t axis = call.axis("axis", static_cast<int64_t>(rank));
    // GatherElements does not broadcast the other axes.
    const std::string x = expanded(w, call, 0, 1, axis), indices = expanded(w, call, 1, 0, axis);
    pb::NodeProto& node = w.begin("GatherElements", {x, indices});
    w.set(node, "axis", axis);
    return w.last_output(node);
  }
  if (op == "full_like") {
    pb::NodeProto& node = w.begin("ConstantOfShape", {w.shape_of(in[0])});
    pb::AttributeProto& value = *node.add_attribute();
    value.set_name("value");
    value.set_type(pb::AttributeProto::TENSOR);
    write_tensor(full({1}, attribute<double>(call.op, "value"), call.output().dtype), "", *value.mutable_t());
    return w.last_output(node);
  }
  if (op == "pad_constant") {
    const int64_t axis = call.axis("axis", static_cast<int64_t>(rank));
    return w.add(
        "Pad",
        {in[0], w.integers({attribute<int64_t>(call.op, "before"), attribute<int64_t>(call.op, "after")}),
         in[1], w.integers({axis})});
  }
  return {};
}

}  // namespace espalier::onnx
