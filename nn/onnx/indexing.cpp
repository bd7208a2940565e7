// Elements chosen by indices, and written at them.
#include <fmt/format.h>

#include "espalier/nn/onnx/host_unique.h"
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

/// Negative indices count from the end.
Variable from_front(const Variable& indices, int64_t size) {
  return where(less(indices, 0), indices + size, indices);
}

Outputs gathered(FileNode& node) {
  const Variable& x = node[0];
  const int64_t axis = axis_of(node, x, node.integer("axis", 0));
  if (is_open_axis(x, axis)) return {gather(x, node[1], axis)};
  return {gather(x, from_front(node[1], x.shape()[axis]), axis)};
}

/// The first elements along all axes but one, as many as `indices` has there.
Variable beside(const Variable& x, const Variable& indices, int64_t axis) {
  Variable part = x;
  for (int64_t i = 0; i < rank_of(x); ++i)
    if (i != axis && indices.shape()[i] != x.shape()[i]) part = slice(part, i, 0, indices.shape()[i]);
  return part;
}

void check_same_rank(const FileNode& node) {
  if (node[0].rank() != node[1].rank())
    node.fail(
        fmt::format("indices {} have other axes than {}", node[1].shape().str(), node[0].shape().str()));
}

Outputs gathered_elements(FileNode& node) {
  check_same_rank(node);
  const int64_t axis = axis_of(node, node[0], node.integer("axis", 0));
  return {take_along_axis(beside(node[0], node[1], axis), node[1], axis)};
}

/// `whole` with `part`, which begins at the front, in place of its own elements.
Variable with_front(const Variable& whole, const Variable& part, int64_t axis) {
  if (axis == rank_of(whole)) return part;
  const int64_t size = part.shape()[axis];
  if (size == whole.shape()[axis]) return with_front(whole, part, axis + 1);
  const Variable inner = with_front(slice(whole, axis, 0, size), part, axis + 1);
  return slice_scatter(whole, inner, axis, 0, size);
}

using Combine = Variable (*)(const Operand&, const Operand&);
/// How a value joins what is at its place; null for no reduction that there is.
Combine combine_of(const std::string& reduction) {
  return reduction == "mul"   ? Combine(multiply)
         : reduction == "max" ? Combine(maximum)
         : reduction == "min" ? Combine(minimum)
                              : nullptr;
}

/// `x` with the values of one index after the other, since several may name a place.
Variable combined_elements(const FileNode& node, Variable x, int64_t axis, Combine combine) {
  const int64_t count = node[1].shape()[axis];
  if (is_open_axis(node[1], axis)) node.refuse("the axis of its indices is open");
  node.check_steps(count);
  for (int64_t i = 0; i < count; ++i) {
    const Variable at = slice(node[1], axis, i, i + 1), value = slice(node[2], axis, i, i + 1);
    x = put_along_axis(x, at, computed(combine, take_along_axis(x, at, axis), value), axis);
  }
  return x;
}

Outputs scattered_elements(FileNode& node) {
  check_same_rank(node);
  const int64_t axis = axis_of(node, node[0], node.integer("axis", 0));
  const std::string reduction = node.text("reduction", "none");
  const Variable part = beside(node[0], node[1], axis);
  if (reduction == "none") return {with_front(node[0], put_along_axis(part, node[1], node[2], axis), 0)};
  if (reduction == "add") return {with_front(node[0], add_along_axis(part, node[1], node[2], axis), 0)};
  if (reduction == "max" || reduction == "min") {
    const auto extreme = reduction == "max" ? max_along_axis : min_along_axis;
    const auto put = [&](const Variable& x, const Variable& values) {
      return extreme(x, node[1], values, axis);
    };
    return {with_front(node[0], computed(put, part, node[2]), 0)};
  }
  if (const Combine combine = combine_of(reduction))
    return {with_front(node[0], combined_elements(node, part, axis, combine), 0)};
  node.refuse(fmt::format("reduction '{}' is not supported", reduction));
}

Outputs gathered_nd(FileNode& node) {
  const Variable& x = node[0];
  const int64_t batches = node.integer("batch_dims", 0);
  if (batches == 0) return {gather_nd(x, node[1])};
  const Variable indices = cast(node[1], int64);
  if (batches < 0 || batches >= rank_of(x) || batches >= rank_of(indices))
    node.fail(fmt::format("it has {} batch_dims", batches));
  // In front of the indices, those of the batch.
  std::vector<Variable> all;
  Shape leading = indices.shape();
  leading.dims().back() = 1;
  for (int64_t axis = 0; axis < batches; ++axis) {
    if (is_open_axis(x, axis)) node.refuse("its batch has an open axis");
    node.check_constant({x.shape()[axis]}, int64);
    Shape shape;
    for (int64_t i = 0; i < rank_of(indices); ++i) shape.dims().push_back(i == axis ? x.shape()[axis] : 1);
    all.push_back(broadcast_to(reshape(Variable(arange(x.shape()[axis], int64)), shape), leading));
  }
  all.push_back(indices);
  return {gather_nd(x, concat(all, -1))};
}

/// The same for slices.
Variable combined_slices(const FileNode& node, Combine combine) {
  Variable x = node[0];
  const int64_t rank = rank_of(node[1]), parts = rank - 1;
  for (int64_t axis = 0; axis < rank; ++axis)
    if (is_open_axis(node[1], axis)) node.refuse("its indices have an open axis");
  const Shape& values = node[2].shape();
  if (parts < 0 || rank_of(node[2]) < parts) node.fail("its indices and values differ in axes");
  const Variable indices = reshape(node[1], {-1, node[1].shape()[-1]});
  Shape rows({indices.shape()[0]});
  rows.dims().append(values.begin() + parts, values.end());
  const Variable updates = reshape(node[2], rows);
  node.check_steps(rows[0]);
  for (int64_t i = 0; i < rows[0]; ++i) {
    const Variable at = slice(indices, 0, i, i + 1);
    x = scatter_nd(x, at, computed(combine, gather_nd(x, at), slice(updates, 0, i, i + 1)));
  }
  return x;
}

Outputs scattered_nd(FileNode& node) {
  const std::string reduction = node.text("reduction", "none");
  if (reduction == "none") return {scatter_nd(node[0], node[1], node[2])};
  if (reduction == "add") return {scatter_nd_add(node[0], node[1], node[2])};
  if (const Combine combine = combine_of(reduction)) return {combined_slices(node, combine)};
  node.refuse(fmt::format("reduction '{}' is not supported", reduction));
}

Outputs compressed(FileNode& node) {
  const Tensor keep = node.tensor(1);
  if (keep.dtype() != boolean || keep.rank() != 1) node.fail("its condition is no vector of bool");
  std::vector<int64_t> places;
  for (int64_t i = 0; i < keep.elements(); ++i)
    if (keep.at<bool>({i})) places.push_back(i);
  const Variable indices(tensor_from(places, {static_cast<int64_t>(places.size())}));
  if (!node.has("axis")) return {gather(flatten(node[0], 0), indices, 0)};
  return {gather(node[0], indices, axis_of(node, node[0], node.integer("axis", 0)))};
}

Outputs places_of_nonzeros(FileNode& node) {
  const Variable& x = node[0];
  return {transpose(nonzero(computable(x)))};
}

Outputs hot_places(FileNode& node) {
  const double number = node.number(1);
  if (!(number >= 1 && number <= 1e15)) node.fail(fmt::format("its depth is {}", number));
  const auto depth = static_cast<int64_t>(number);
  node.check_constant({depth}, int64);
  const Variable places = cast(computable(node[0]), int64);
  int64_t axis = node.integer("axis", -1);
  const int64_t rank = rank_of(places) + 1;
  if (axis < -rank || axis >= rank) node.fail(fmt::format("the result has no axis {}", axis));
  if (axis < 0) axis += rank;
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) shape.dims().push_back(i == axis ? depth : 1);
  const Variable classes = reshape(Variable(arange(depth, int64)), shape);
  const Variable hot = equal(unsqueeze(from_front(places, depth), axis), classes);
  const Variable off = reshape(slice(node[2], 0, 0, 1), {}), on = reshape(slice(node[2], 0, 1, 2), {});
  return {where(hot, on, off)};
}

Outputs largest(FileNode& node) {
  const Variable& x = node[0];
  const int64_t axis = axis_of(node, x, node.integer("axis", -1));
  const int64_t k = node.opset() >= 10 ? node.integer(1) : node.integer("k");
  node.ignore("sorted");
  const auto found = topk(computable(x), k, axis, node.integer("largest", 1) != 0);
  return {cast(found.values, x.dtype()), found.indices};
}

Outputs triangle(FileNode& node) {
  const int64_t k = node.has(1) ? node.integer(1) : 0;
  if (node.integer("upper", 1)) return {triu(node[0], k)};
  return {tril(node[0], k)};
}

Outputs reversed_sequences(FileNode& node) {
  return {reverse_sequence(node[0], node[1], node.integer("time_axis", 0), node.integer("batch_axis", 1))};
}

Outputs unique_elements(FileNode& node) {
  const Tensor x = node.tensor(0);
  std::optional<int64_t> axis;
  if (node.has("axis")) axis = axis_of(node, node[0], node.integer("axis", 0));
  const UniqueSlices found = unique_slices(x, axis, node.integer("sorted", 1) != 0);
  return {Variable(found.values), Variable(found.first), Variable(found.inverse), Variable(found.counts)};
}

/// Rows of a cache are written from an index of each batch on.
Outputs cache_written(FileNode& node) {
  const Variable &cache = node[0], &update = node[1];
  const bool circular = node.text("mode", "linear") == "circular";
  const int64_t axis = axis_of(node, cache, node.integer("axis", -2)), size = cache.shape()[axis];
  if (is_open_axis(update, axis) || is_open_axis(cache, axis)) node.refuse("its axis is open");
  const int64_t rows = update.shape()[axis];
  node.check_constant({rows}, int64);
  Shape along;
  for (int64_t i = 0; i < rank_of(cache); ++i) along.dims().push_back(i == axis ? rows : 1);
  Variable indices = reshape(Variable(arange(rows, int64)), along);
  if (node.has(2)) {
    Shape batch;
    for (int64_t i = 0; i < rank_of(cache); ++i) batch.dims().push_back(i == 0 ? -1 : 1);
    indices = indices + reshape(cast(node[2], int64), batch);
  }
  if (circular) indices = remainder(indices, size);
  return {put_along_axis(cache, indices, update, axis)};
}

}  // namespace

void add_indexing(Registry& all) {
  all.add("Gather", 1, gathered);
  all.add("GatherElements", 11, gathered_elements);
  all.add("GatherND", 11, gathered_nd);
  all.add("Scatter", 9, scattered_elements);
  all.add("ScatterElements", 11, scattered_elements);
  all.add("ScatterND", 11, scattered_nd);
  all.add("TensorScatter", 24, cache_written);
  all.add("Compress", 9, compressed);
  all.add("NonZero", 9, places_of_nonzeros);
  all.add("OneHot", 9, hot_places);
  all.add("TopK", 1, largest);
  all.add("Trilu", 14, triangle);
  all.add("ReverseSequence", 10, reversed_sequences);
  all.add("Unique", 11, unique_elements);
}

}  // namespace espalier::onnx
