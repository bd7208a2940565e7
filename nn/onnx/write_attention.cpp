// Scaled dot-product attention, as the products, masks and softmax that it is made of.
#include <fmt/format.h>

#include <limits>

#include "espalier/core/op_names.h"
#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/ops/attention/form.h"

namespace espalier::onnx {

namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// [..., a, b] as [..., b, a].
std::string swapped(GraphWriter& w, const std::string& x, size_t rank) {
  std::vector<int64_t> order;
  for (size_t axis = 0; axis < rank; ++axis) order.push_back(static_cast<int64_t>(axis));
  std::swap(order[rank - 1], order[rank - 2]);
  pb::NodeProto& node = w.begin("Transpose", {x});
  w.set(node, "perm", order);
  return w.last_output(node);
}

/// [..., key heads, keys, width], each head as often as query heads share it.
std::string for_each_head(GraphWriter& w, const std::string& x, const Shape& shape, int64_t group) {
  if (group == 1) return x;
  const auto rank = static_cast<int64_t>(shape.rank());
  const std::string repeated =
      w.add("Expand", {w.add("Unsqueeze", {x, w.integers({rank - 2})}), w.integers({group, 1, 1})});
  std::vector<int64_t> sizes(shape.rank(), 0);
  sizes[shape.rank() - 3] = shape[-3] * group;
  sizes[shape.rank() - 2] = -1;
  sizes[shape.rank() - 1] = shape[-1];
  return w.add("Reshape", {repeated, w.integers(sizes)});
}

/// Which keys the queries of a causal attention see, [queries, keys].
std::string causal_mask(GraphWriter& w, const GraphWriter::Call& call, const AttentionSizes& sizes,
                        int64_t past) {
  if (call.is_open(0, call.input(0).shape.rank() - 2) || call.is_open(1, call.input(1).shape.rank() - 2))
    throw UnsupportedError("causal attention over an open axis cannot be written");
  Tensor seen = zeros({sizes.queries, sizes.keys}, boolean);
  for (int64_t i = 0; i < sizes.queries; ++i)
    for (int64_t k = 0; k < sizes.keys && k <= i + past; ++k) seen.at<bool>({i, k}) = true;
  return w.constant(seen);
}

}  // namespace

std::string write_attention(GraphWriter& w, const GraphWriter::Call& call) {
  if (!is_op(call.op, "attention")) return {};
  const AttentionForm form = AttentionForm::of(call.op);
  const Shape &q = call.input(0).shape, &k = call.input(1).shape, &v = call.input(2).shape;
  const AttentionSizes sizes(q, k, v);
  const DType dtype = call.output().dtype;
  const std::string keys = for_each_head(w, call.inputs[1], k, sizes.group()),
                    values = for_each_head(w, call.inputs[2], v, sizes.group());
  std::string scores = w.add(
      "Mul", {w.add("MatMul", {call.inputs[0], swapped(w, keys, k.rank())}), w.number(form.scale, dtype)});
  const auto keep = [&](const std::string& seen) {
    scores = w.add("Where", {seen, scores, w.number(minus_infinity, dtype)});
  };
  if (form.causal) keep(causal_mask(w, call, sizes, form.past));
  if (form.masked) {
    const std::string& mask = call.inputs[form.mask_at(3)];
    if (call.input(form.mask_at(3)).dtype == boolean)
      keep(mask);
    else
      scores = w.add("Add", {scores, mask});
  }
  if (form.keys_masked) {  // [..., keys], for all heads and queries
    std::vector<int64_t> axes{static_cast<int64_t>(q.rank()) - 2};
    if (q.rank() > 2) axes.insert(axes.begin(), static_cast<int64_t>(q.rank()) - 3);
    keep(w.add("Unsqueeze", {call.inputs[form.key_mask_at(3)], w.integers(axes)}));
  }
  pb::NodeProto& softmax = w.begin("Softmax", {scores});
  w.set(softmax, "axis", int64_t{-1});
  std::string weights = w.last_output(softmax);
  if (form.causal || form.masked || form.keys_masked) {  // a query that sees no key has weights of 0
    const std::string most = w.add("ReduceMax", {scores, w.integers({-1})});
    weights = w.add("Where",
                    {w.add("Equal", {most, w.number(minus_infinity, dtype)}), w.number(0, dtype), weights});
  }
  return w.add("MatMul", {weights, values});
}

}  // namespace espalier::onnx
