#include "espalier/executor/sharding/batch_sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier {

namespace {

/// The axes along which a value of the part is shorter than one of the whole.
struct BatchAxes {
  int count = 0;
  size_t axis = 0;
  bool in_proportion = true;
};

class Roles {
 public:
  Roles(const Graph& part, const Graph& other, BatchSizes sizes, bool local_statistics)
      : part_(part), other_(other), sizes_(sizes), local_statistics_(local_statistics) {}

  std::vector<std::vector<BatchValue>> find() {
    roles_.resize(part_.nodes.size());
    for (uint32_t i = 0; i < part_.nodes.size(); ++i) {
      const GraphNode& n = part_.nodes[i];
      for (uint32_t k = 0; k < n.outputs.size(); ++k) {
        BatchValue value;
        if (n.tag != Tag::update && !n.op->is_leaf()) value = role_of(i, k);
        if (value.role == BatchSharding::unshardable && !caused_) value.cause = i;
        caused_ = false;
        roles_[i].push_back(std::move(value));
      }
    }
    return std::move(roles_);
  }

 private:
  const BatchValue& role(ValueRef v) const { return roles_[v.node][v.output]; }

  BatchAxes axes_of(ValueRef v) const {
    const Shape &few = part_.spec(v).shape, &all = other_.spec(v).shape;
    BatchAxes axes;
    for (size_t i = 0; i < few.rank(); ++i) {
      if (few.dims()[i] == all.dims()[i]) continue;
      ++axes.count;
      axes.axis = i;
      axes.in_proportion &= few.dims()[i] * sizes_.other == all.dims()[i] * sizes_.part;
    }
    return axes;
  }

  BatchValue role_of(uint32_t i, uint32_t output) {
    const GraphNode& n = part_.nodes[i];
    const BatchAxes axes = axes_of({i, output});
    if (n.op->feed()) return axes.count ? BatchValue{BatchSharding::rows} : BatchValue{};
    bool from_rows = false, from_whole = false, shapes = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const BatchValue& in = role(n.inputs[k]);
      if (!n.op->reads_elements(k)) {
        const bool varies = axes_of(n.inputs[k]).count > 0;
        if (varies && in.role == BatchSharding::unshardable) return inherited(in);
        shapes |= varies;
        continue;
      }
      if (in.role == BatchSharding::unshardable) return inherited(in);
      from_rows |= in.role == BatchSharding::rows;
      from_whole |= in.role == BatchSharding::mean || in.role == BatchSharding::sum;
    }
    if (axes.count > 1 || !axes.in_proportion) return {BatchSharding::unshardable};
    if (axes.count == 1) {
      if (from_whole && !local_statistics_) return {BatchSharding::unshardable};
      return rows_of(i, output, axes.axis);
    }
    if (from_rows) return from_whole ? BatchValue{BatchSharding::unshardable} : taken_over_rows(n);
    if (from_whole) return taken_from_whole(n);
    return shapes ? BatchValue{BatchSharding::unshardable} : BatchValue{};
  }
  BatchValue inherited(const BatchValue& from) {
    caused_ = true;
    return from;
  }

  /// A value that has the rows of its inputs, if those are in one order and are not mixed.
  BatchValue rows_of(uint32_t i, uint32_t output, size_t axis) const {
    const GraphNode& n = part_.nodes[i];
    const int64_t size = other_.spec({i, output}).shape.dims()[axis];
    if (joins_rows(n, size)) return joined(n, axis);
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&part_.spec(input));
    std::optional<BatchValue> value;
    for (const bool by_value : {true, false})  // what has a shape from rows is in their order, too
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const BatchValue& in = role(n.inputs[k]);
        if (in.role != BatchSharding::rows || n.op->reads_elements(k) != by_value || (value && !by_value))
          continue;
        if (by_value && n.op->mixes(k, in.axis, specs)) return {BatchSharding::unshardable};
        const bool seen = by_value && n.op->is_view();
        if (!seen && size_of(n.inputs[k], in.axis) != size) return {BatchSharding::unshardable};
        BatchValue own = seen ? seen_rows(i, axis) : in;
        own.axis = axis;
        if (own.role == BatchSharding::unshardable || (value && !same_order(*value, own)))
          return {BatchSharding::unshardable};
        value = std::move(own);
      }
    return value ? *value : BatchValue{BatchSharding::unshardable};
  }
  int64_t size_of(ValueRef v, size_t axis) const { return other_.spec(v).shape.dims()[axis]; }
  static bool same_order(const BatchValue& a, const BatchValue& b) {
    return a.repeats == b.repeats && a.block_sizes == b.block_sizes;
  }

  /// Whether several inputs are put behind each other along their rows.
  bool joins_rows(const GraphNode& n, int64_t size) const {
    if (n.op->kind() != OpKind::other || !n.op->traits().only_copies || n.inputs.size() < 2) return false;
    for (const ValueRef& input : n.inputs)
      if (const BatchValue& in = role(input);
          in.role != BatchSharding::rows || size_of(input, in.axis) >= size)
        return false;
    return true;
  }
  /// Their order: that of the first, then that of the second, and so on, as repetitions of what comes first.
  BatchValue joined(const GraphNode& n, size_t axis) const {
    constexpr int64_t most = 4096;  // block sizes; real trees have far fewer
    BatchValue value{BatchSharding::rows, axis, 0, role(n.inputs[0]).block_sizes};
    bool alike = true;
    for (const ValueRef& input : n.inputs) {
      alike &= role(input).block_sizes == value.block_sizes;
      value.repeats += role(input).repeats;
    }
    if (alike) return value;
    Dims all;
    for (const ValueRef& input : n.inputs) {
      const BatchValue& in = role(input);
      if (in.repeats * static_cast<int64_t>(in.block_sizes.size()) + static_cast<int64_t>(all.size()) > most)
        return {BatchSharding::unshardable};
      for (int64_t turn = 0; turn < in.repeats; ++turn)
        all.append(in.block_sizes.begin(), in.block_sizes.end());
    }
    size_t period = 1;
    while (all.size() % period || !std::equal(all.begin() + period, all.end(), all.begin())) ++period;
    value.repeats = static_cast<int64_t>(all.size() / period);
    value.block_sizes = Dims(all.begin(), all.begin() + period);
    return value;
  }

  /// The rows that a view of rows has along an axis: mixed where one position would be of several.
  BatchValue seen_rows(uint32_t i, size_t axis) const {
    const GraphNode& n = part_.nodes[i];
    BatchValue value = role(n.inputs[0]);
    const BatchValue unshardable{BatchSharding::unshardable};
    const Layout from(other_.spec(n.inputs[0]).shape);
    const auto to = n.op->view(from, other_.nodes[i].outputs[0]);
    if (!to) return unshardable;
    // In elements: from one position to the next, and until the rows begin anew.
    const int64_t step = from.strides[value.axis], span = step * from.shape.dims()[value.axis],
                  new_step = to->strides[axis], new_span = new_step * to->shape.dims()[axis];
    if (step <= 0 || new_step <= 0 || span <= 0 || (value.repeats * new_span) % span != 0) return unshardable;
    value.repeats = value.repeats * new_span / span;
    for (int64_t& width : value.block_sizes) {
      if (width * step % new_step != 0) return unshardable;
      width = width * step / new_step;
    }
    return value.repeats > 0 ? value : unshardable;
  }

  BatchValue taken_over_rows(const GraphNode& n) const {
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&part_.spec(input));
    if (const auto folding = n.op->folding(specs)) {
      if (folding->fold == Fold::mean) return {BatchSharding::mean};
      return {folding->fold == Fold::sum ? BatchSharding::sum : BatchSharding::unshardable};
    }
    if (!n.op->traits().matmul_form) return {BatchSharding::unshardable};
    const BatchValue &a = role(n.inputs[0]), &b = role(n.inputs[1]);  // each row must meet itself
    const bool meet = a.role == BatchSharding::rows && b.role == BatchSharding::rows && same_order(a, b);
    return {meet ? BatchSharding::sum : BatchSharding::unshardable};
  }

  /// What becomes of means and sums over the batch.
  BatchValue taken_from_whole(const GraphNode& n) const {
    const Linearity linearity = n.op->is_view() ? Linearity::together : n.op->traits().linearity;
    int whole = 0, same = 0;
    bool means = false, sums = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      if (!n.op->reads_elements(k)) continue;
      const BatchSharding in = role(n.inputs[k]).role;
      means |= in == BatchSharding::mean;
      sums |= in == BatchSharding::sum;
      (in == BatchSharding::replicated ? same : whole) += 1;
    }
    const BatchSharding kept = means ? BatchSharding::mean : BatchSharding::sum;
    bool keeps = !(means && sums);
    switch (linearity) {
      case Linearity::none: keeps = false; break;
      // A constant is the mean of itself, but not the sum.
      case Linearity::together: keeps = keeps && (means || same == 0); break;
      case Linearity::each: keeps = keeps && whole == 1; break;
      case Linearity::first: keeps = keeps && whole == 1 && role(n.inputs[0]).role == kept; break;
    }
    return {keeps ? kept : BatchSharding::unshardable};
  }

  const Graph &part_, &other_;
  BatchSizes sizes_;
  bool local_statistics_;
  bool caused_ = false;  // the role at hand is an input's, with its cause
  std::vector<std::vector<BatchValue>> roles_;
};

}  // namespace

std::vector<std::vector<BatchValue>> batch_sharding(const Graph& part, const Graph& other, BatchSizes sizes,
                                                    bool local_statistics) {
  return Roles(part, other, sizes, local_statistics).find();
}

void mark_random_rows(Graph& part, const std::vector<std::vector<BatchValue>>& roles) {
  for (uint32_t i = 0; i < part.nodes.size(); ++i) {
    GraphNode& n = part.nodes[i];
    if (!n.op->is_random()) continue;
    const BatchValue& value = roles[i][0];
    if (value.role == BatchSharding::replicated) continue;
    if (value.role != BatchSharding::rows || !value.in_order())
      throw UnsupportedError(fmt::format(
          "get_executor: replicas cannot share out the random numbers of '{}' ({}): the rows of the batch do "
          "not lie in their order along one of its axes",
          n.op->name(), line_of(n.where)));
    n.row_runs = value.repeats;
    for (size_t axis = 0; axis < value.axis; ++axis) n.row_runs *= n.outputs[0].shape.dims()[axis];
  }
}

}  // namespace espalier
