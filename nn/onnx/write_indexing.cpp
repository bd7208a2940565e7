// Elements chosen, ordered and written by indices as nodes of ONNX.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/nn/onnx/tensors.h"

namespace espalier::onnx {

namespace {

/// Indices as int64, which every node takes.
std::string wide_indices(GraphWriter& w, const GraphWriter::Call& call, size_t i) {
  if (call.input(i).dtype == int64) return call.inputs[i];
  pb::NodeProto& node = w.begin("Cast", {call.inputs[i]});
  w.set(node, "to", int64_t{type_in_file(int64)});
  return w.last_output(node);
}

/// The size of an axis that is a number.
int64_t size_of_axis(const GraphWriter::Call& call, size_t input, int64_t axis) {
  const int64_t size = call.input(input).shape[axis];
  if (call.is_open(input, static_cast<size_t>(axis)))
    throw UnsupportedError(fmt::format("'{}' along an open axis cannot be written", call.op.name()));
  return size;
}

std::string scattered(GraphWriter& w, const GraphWriter::Names& inputs, int64_t axis, const char* reduction) {
  pb::NodeProto& node = w.begin("ScatterElements", inputs);
  w.set(node, "axis", axis);
  w.set_text(node, "reduction", reduction);
  return w.last_output(node);
}

/// Indices of slices as those of each element of `values`.
std::string of_elements(GraphWriter& w, const GraphWriter::Call& call, size_t indices,
                        const std::string& values, size_t values_rank, int64_t axis) {
  if (call.input(indices).shape.rank() != 1)
    throw UnsupportedError(fmt::format("'{}' with indices of shape {} cannot be written", call.op.name(),
                                       call.input(indices).shape.str()));
  std::vector<int64_t> sizes(values_rank, 1);
  sizes[static_cast<size_t>(axis)] = -1;
  return w.add("Expand",
               {w.add("Reshape", {wide_indices(w, call, indices), w.integers(sizes)}), w.shape_of(values)});
}

/// The k largest or smallest elements of rows. Returns their values; the places are output 1.
pb::NodeProto& selected(GraphWriter& w, const GraphWriter::Call& call, int64_t k, bool largest) {
  pb::NodeProto& node = w.begin("TopK", {call.inputs[0], w.integers({k})}, 2);
  w.set(node, "axis", int64_t{-1});
  w.set(node, "largest", int64_t{largest});
  return node;
}

/// The values of `call` broadcast to the shape of input 1, but along an axis.
std::string broadcast_beside(GraphWriter& w, const GraphWriter::Call& call) {
  const auto rank = static_cast<int64_t>(call.output().shape.rank());
  const int64_t axis = call.axis("axis", static_cast<int64_t>(call.input(0).shape.rank()));
  Tensor own = zeros({rank}, boolean);
  own.at<bool>({axis}) = true;
  return w.add("Expand", {call.inputs[0],
                          w.add("Where", {w.constant(own), w.integers({1}), w.shape_of(call.inputs[1])})});
}

std::string hot_places(GraphWriter& w, const GraphWriter::Call& call) {
  const DType dtype = call.output().dtype;
  const Tensor values = tensor_from(std::vector<int64_t>{0, 1}, {2}).to(dtype);
  return w.add("OneHot", {wide_indices(w, call, 0), w.integers({attribute<int64_t>(call.op, "classes")}),
                          w.constant(values)});
}

/// Windows of an axis, whose elements get a last axis.
std::string sliding(GraphWriter& w, const GraphWriter::Call& call) {
  const auto rank = static_cast<int64_t>(call.input(0).shape.rank());
  const int64_t axis = call.axis("axis", rank), size = attribute<int64_t>(call.op, "size"),
                step = attribute<int64_t>(call.op, "step"),
                dilation = attribute<int64_t>(call.op, "dilation");
  (void)size_of_axis(call, 0, axis);
  const int64_t count = call.output().shape[axis];
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < size; ++k) places.push_back(i * step + k * dilation);
  pb::NodeProto& gathered =
      w.begin("Gather", {call.inputs[0], w.constant(tensor_from(places, {count, size}))});
  w.set(gathered, "axis", axis);
  const std::string windows = w.last_output(gathered);
  std::vector<int64_t> order;
  for (int64_t i = 0; i <= rank; ++i)
    if (i != axis + 1) order.push_back(i);
  order.push_back(axis + 1);
  pb::NodeProto& moved = w.begin("Transpose", {windows});
  w.set(moved, "perm", order);
  return w.last_output(moved);
}

/// The element of each row of x that the indices, input 1, name.
std::string of_labels(GraphWriter& w, const GraphWriter::Call& call, const std::string& x) {
  const std::string places = w.add("Unsqueeze", {wide_indices(w, call, 1), w.integers({-1})});
  pb::NodeProto& node = w.begin("GatherElements", {x, places});
  w.set(node, "axis", int64_t{-1});
  return w.add("Squeeze", {w.last_output(node), w.integers({-1})});
}

/// Elements in steps along an axis of zeros, which have the shape of input 1.
std::string put_in_steps(GraphWriter& w, const GraphWriter::Call& call) {
  const auto rank = static_cast<int64_t>(call.output().shape.rank());
  const int64_t axis = call.axis("axis", rank), size = size_of_axis(call, 1, axis);
  const int64_t begin = attribute<int64_t>(call.op, "begin"), step = attribute<int64_t>(call.op, "step"),
                count = call.input(0).shape[axis];
  // Steps backwards lie in rising order.
  const int64_t from = begin < 0 ? begin + size : begin, first = step > 0 ? from : from + (count - 1) * step;
  std::vector<int64_t> places, sizes(static_cast<size_t>(rank), 1);
  for (int64_t i = 0; i < count; ++i) places.push_back(first + i * std::abs(step));
  sizes[static_cast<size_t>(axis)] = count;
  const std::string zeros_there =
      w.add("Expand", {w.number(0, call.output().dtype), w.shape_of(call.inputs[1])});
  const std::string everywhere =
      w.add("Expand", {w.constant(tensor_from(places, Shape(sizes))), w.shape_of(call.inputs[0])});
  return scattered(w, {zeros_there, everywhere, call.inputs[0]}, axis, "none");
}

std::string chosen(GraphWriter& w, const GraphWriter::Call& call) {
  const std::string_view op = call.op.name();
  const auto& in = call.inputs;
  if (op == "pick") return of_labels(w, call, in[0]);
  if (op == "log_softmax_pick") {
    pb::NodeProto& logs = w.begin("LogSoftmax", {in[0]});
    w.set(logs, "axis", int64_t{-1});
    const std::string picked = of_labels(w, call, w.last_output(logs));
    if (!attribute<bool>(call.op, "loss")) return picked;
    return w.add("Squeeze", {w.add("Neg", {picked}), w.integers({-1})});
  }
  const auto rank = static_cast<int64_t>(call.output().shape.rank());
  for (const auto& [along, slices, reduction] : {std::array{"put_along_axis", "scatter", "none"},
                                                 {"max_along_axis", "scatter_max", "max"},
                                                 {"min_along_axis", "scatter_min", "min"}}) {
    const int64_t axis = op == along || op == slices ? call.axis("axis", rank) : 0;
    if (op == along) return scattered(w, {in[0], wide_indices(w, call, 1), in[2]}, axis, reduction);
    if (op != slices) continue;
    const std::string places = of_elements(w, call, 1, in[2], call.input(2).shape.rank(), axis);
    return scattered(w, {in[0], places, in[2]}, axis, reduction);
  }
  const auto nothing = [&] { return w.add("Expand", {w.number(0, call.output().dtype), w.shape_of(in[2])}); };
  if (op == "add_along_axis_like")
    return scattered(w, {nothing(), wide_indices(w, call, 1), in[0]}, call.axis("axis", rank), "add");
  if (op == "scatter_add_like") {
    const int64_t axis = call.axis("axis", rank);
    const std::string places = of_elements(w, call, 1, in[0], call.input(0).shape.rank(), axis);
    return scattered(w, {nothing(), places, in[0]}, axis, "add");
  }
  return {};
}

}  // namespace

std::string write_indexing(GraphWriter& w, const GraphWriter::Call& call) {
  const std::string_view op = call.op.name();
  if (op == "topk" || op == "sort") {
    const int64_t k = op == "sort" ? size_of_axis(call, 0, -1) : attribute<int64_t>(call.op, "k");
    const bool largest = attribute<bool>(call.op, op == "sort" ? "descending" : "largest");
    const pb::NodeProto& node = selected(w, call, k, largest);
    w.name_output(call, 1, node.output(1));
    return node.output(0);
  }
  if (op == "kthvalue" || op == "median") {
    const int64_t k = op == "median" ? (size_of_axis(call, 0, -1) + 1) / 2 : attribute<int64_t>(call.op, "k");
    const pb::NodeProto& node = selected(w, call, k, false);
    const GraphWriter::Names made(node.output().begin(), node.output().end());
    const auto last = [&](const std::string& list) {
      pb::NodeProto& gathered = w.begin("Gather", {list, w.integers({k - 1})});
      w.set(gathered, "axis", int64_t{-1});
      return w.last_output(gathered);
    };
    w.name_output(call, 1, last(made[1]));
    return last(made[0]);
  }
  if (op == "one_hot") return hot_places(w, call);
  if (op == "positions_like") {
    const int64_t axis = call.axis("axis", static_cast<int64_t>(call.input(0).shape.rank()));
    const std::string size =
        w.add("Gather", {w.shape_of(call.inputs[0]), w.number(static_cast<double>(axis), int64)});
    return w.add("Range", {w.number(0, int64), size, w.number(1, int64)});
  }
  if (op == "sliding_windows") return sliding(w, call);
  if (op == "pad_steps_like") return put_in_steps(w, call);
  if (op == "broadcast_beside") return broadcast_beside(w, call);
  return chosen(w, call);
}

}  // namespace espalier::onnx
