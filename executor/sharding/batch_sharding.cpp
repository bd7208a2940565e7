#include "espalier/executor/sharding/batch_sharding.h"

#include <algorithm>

#include "espalier/core/op_names.h"
#include "espalier/executor/sharding/loop_graph.h"
#include "espalier/executor/sharding/row_growth.h"
#include "espalier/executor/sharding/row_order.h"
#include "espalier/executor/sharding/shape_values.h"
#include "espalier/ops/loop/scan_op.h"
#include "espalier/ops/reductions/sample_correction.h"

namespace espalier {

namespace {

/// The axes along which a value of the part is shorter than one of the whole.
struct BatchAxes {
  int count = 0;
  size_t axis = 0;
  bool in_proportion = true;
};

class Shardings {
 public:
  /// With `whole`, values of the whole batch can be had: see ExchangedSharding.
  Shardings(const Graph& part, const Graph& other, BatchSizes sizes, bool local_statistics,
            const Graph* whole)
      : part_(part), other_(other), sizes_(sizes), local_statistics_(local_statistics), whole_(whole) {}

  /// The first nodes of the graphs may have known shardings.
  ExchangedSharding find(const std::vector<BatchValue>& known = {}) {
    for (const BatchValue& value : known) shardings_.push_back({value});
    shardings_.resize(part_.nodes.size());
    made_of_shapes_.resize(part_.nodes.size(), false);
    for (auto i = static_cast<uint32_t>(known.size()); i < part_.nodes.size(); ++i) {
      in_.clear();
      for (const ValueRef& input : part_.nodes[i].inputs) in_.push_back(shardings_[input.node][input.output]);
      shardings_[i] = shardings_of(i);
      made_of_shapes_[i] = is_made_of_shapes(i);
      if (whole_ && is_known(i)) make_constant(i);
      if (whole_ && is_cause(i)) exchange(i);
    }
    result_.shardings = std::move(shardings_);
    return std::move(result_);
  }

 private:
  std::vector<BatchValue> shardings_of(uint32_t i) {
    const GraphNode& n = part_.nodes[i];
    if (const LoopBodyPtr body = loop_body_of(*n.op)) return shardings_of_loop(i, *body);
    std::vector<BatchValue> values;
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      BatchValue value;
      if (n.tag != Tag::update && !n.op->is_leaf()) value = sharding_of(i, k);
      if (value.is_refused() && value.cause == no_node) {
        value.cause = i;
        value.obstacle = obstacle_to(i, k, value);
      }
      values.push_back(std::move(value));
    }
    return values;
  }
  bool is_cause(uint32_t i) const {
    return std::ranges::any_of(shardings_[i], [&](const BatchValue& value) {
      return value.sharding == BatchSharding::unshardable && value.cause == i;
    });
  }

  /// Whether shapes alone decide what it computes, such as a sum of ones.
  bool is_made_of_shapes(uint32_t i) const {
    const GraphNode& n = part_.nodes[i];
    if (n.op->is_leaf() || n.op->feed() || n.op->effect() != Effect::none || n.outputs.size() != 1)
      return false;
    for (uint32_t k = 0; k < n.inputs.size(); ++k)
      if (n.op->reads_elements(k) && !made_of_shapes_[n.inputs[k].node]) return false;
    return true;
  }
  /// Whether its value for the whole batch needs no batch: one of few numbers.
  bool is_known(uint32_t i) const {
    const BatchSharding sharding = shardings_[i][0].sharding;
    return made_of_shapes_[i] && (sharding == BatchSharding::sum || sharding == BatchSharding::mean) &&
           is_cheap_to_know(*whole_, i);
  }
  void make_constant(uint32_t i) {
    result_.constants.emplace_back(i, value_of_shapes(*whole_, i));
    shardings_[i] = {BatchValue{}};
  }

  /// Finds out what lets a node have what it needs: first what takes no communication.
  void exchange(uint32_t i) {
    const GraphNode& n = part_.nodes[i];
    const std::vector<BatchValue> before = in_;
    if (reads_shapes_alone(n) && n.outputs[0] == whole_->nodes[i].outputs[0]) {
      make_constant(i);
    } else if (!change_inputs(i, InputChange::Kind::weigh)) {
      in_ = before;
      change_inputs(i, InputChange::Kind::reduce);
    }
  }
  /// Whether it has a sharding when its inputs are changed so. Weighed means, and values that all have, are
  /// sums.
  bool change_inputs(uint32_t i, InputChange::Kind kind) {
    const GraphNode& n = part_.nodes[i];
    std::vector<InputChange> changes;
    for (uint32_t k = 0; k < n.inputs.size(); ++k) {
      const BatchSharding sharding = in_[k].sharding;
      const bool partial = sharding == BatchSharding::mean || sharding == BatchSharding::sum;
      const bool changed = kind == InputChange::Kind::reduce
                               ? partial
                               : sharding == BatchSharding::replicated || sharding == BatchSharding::mean;
      if (!changed || !n.op->reads_elements(k)) continue;
      if (!is_real(part_.spec(n.inputs[k]).dtype)) return false;
      in_[k] = {kind == InputChange::Kind::reduce ? BatchSharding::replicated : BatchSharding::sum};
      changes.push_back({i, k, kind});
    }
    const std::vector<BatchValue> shardings = shardings_of(i);
    for (const BatchValue& value : shardings)
      if (value.sharding == BatchSharding::unshardable) return false;
    shardings_[i] = shardings;
    result_.changes.insert(result_.changes.end(), changes.begin(), changes.end());
    return true;
  }

  /// Outputs of a scan are what the step makes of its operands. States are the same before each step as
  /// behind it: gradients of what all steps use begin with zeros, and become sums.
  std::vector<BatchValue> shardings_of_loop(uint32_t i, const LoopBody& body) const {
    const GraphNode& n = part_.nodes[i];
    const std::vector<BatchValue> refused(n.outputs.size(),
                                          {.sharding = BatchSharding::unshardable, .cause = i});
    std::vector<BatchValue> in = in_;
    for (size_t k = 0; k < in.size(); ++k) {
      if (in[k].sharding == BatchSharding::unshardable)
        return std::vector<BatchValue>(n.outputs.size(), in[k]);
      if (in[k].sharding == BatchSharding::local && axes_of(n.inputs[k]).count > 0) return refused;
      if (k < body.states || k >= body.states + body.sequences || in[k].sharding != BatchSharding::rows)
        continue;
      if (in[k].axis == 0) return refused;  // its steps are those of other rows
      --in[k].axis;
    }
    const Graph part = graph_of_step(body, operands(part_, i), n.tag),
                other = graph_of_step(body, operands(other_, i), n.tag);
    const auto is_zero = [&](size_t k) { return part_.nodes[n.inputs[k].node].op->traits().fill == 0.0; };
    std::vector<BatchValue> out;
    for (bool settled = false; !settled;) {
      const BatchShardings all =
          Shardings(part, other, sizes_, local_statistics_, nullptr).find(in).shardings;
      out.clear();
      for (const ValueRef& y : part.results) out.push_back(all[y.node][y.output]);
      settled = true;
      for (size_t k = 0; k < body.states; ++k) {
        if (same_sharding(in[k], out[k])) continue;
        // What all have may become a mean, or a statistic of some; zeros are also a sum.
        const bool made = out[k].sharding == BatchSharding::mean || out[k].sharding == BatchSharding::local;
        if (in[k].sharding != BatchSharding::replicated || !(made || is_zero(k))) return refused;
        in[k] = made ? out[k] : BatchValue{BatchSharding::sum};
        settled = false;
      }
    }
    for (size_t k = 0; k < body.states; ++k) out[k] = in[k];
    for (size_t k = body.outputs.size(); k < n.outputs.size(); ++k)
      out.push_back(in[k - body.outputs.size()]);
    for (size_t k = 0; k < out.size(); ++k) {
      if (out[k].sharding == BatchSharding::unshardable) return refused;
      if (k >= body.states) ++out[k].axis;
      if (out[k].is_refused()) out[k].cause = i;
    }
    return out;
  }
  static InputSpecs operands(const Graph& graph, uint32_t i) {
    InputSpecs specs;
    for (const ValueRef& input : graph.nodes[i].inputs) specs.push_back(&graph.spec(input));
    return specs;
  }
  static bool same_sharding(const BatchValue& a, const BatchValue& b) {
    return a.sharding == b.sharding &&
           (a.sharding != BatchSharding::rows || (a.axis == b.axis && same_order(a, b)));
  }

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

  /// What all parts cannot make up together may be computed from a part's rows instead of the batch's.
  BatchValue sharding_of(uint32_t i, uint32_t output) const {
    BatchValue value = found_sharding(i, output);
    const bool own =
        value.sharding == BatchSharding::unshardable && local_statistics_ && value.cause == no_node;
    return own ? of_part(i, output) : value;
  }
  /// Local: what a node computes from the rows of a part.
  BatchValue of_part(uint32_t i, uint32_t output) const {
    const GraphNode& n = part_.nodes[i];
    if (takes_positions(i, output)) return {BatchSharding::unshardable};
    BatchValue value{BatchSharding::local};
    if (axes_of({i, output}).count > 0) {
      value.growth = joint_growth(*n.op, growths(n));
    } else if (reads_shapes_alone(n)) {
      value.growth = growth_of_shapes(part_, other_, i, sizes_);
    } else {
      InputSpecs specs;
      int axes = 0;  // of rows, that it is taken over
      for (const ValueRef& input : n.inputs) {
        specs.push_back(&part_.spec(input));
        if (n.op->reads_elements(specs.size() - 1)) axes = std::max(axes, axes_of(input).count);
      }
      value.growth = sum_of_growths(joint_growth(*n.op, growths(n)), growth_over_rows(*n.op, specs, axes));
    }
    take_cause(n, value);
    return value;
  }
  /// What grows does so because an operand does, first of all one that has axes of rows.
  void take_cause(const GraphNode& n, BatchValue& value) const {
    for (const bool of_rows : {true, false})
      for (size_t k = 0; k < n.inputs.size() && value.cause == no_node; ++k) {
        const BatchValue& in = in_[k];
        if (!counts(n, k) || in.sharding != BatchSharding::local || (in.growth == 0) != (value.growth == 0) ||
            (of_rows && axes_of(n.inputs[k]).count == 0))
          continue;
        value.cause = in.cause;
        value.obstacle = in.obstacle;
      }
  }
  /// Why the parts of a batch cannot make up what a node computes from what it reads.
  Obstacle obstacle_to(uint32_t i, uint32_t output, const BatchValue& value) const {
    if (value.sharding == BatchSharding::local && value.growth != 0) return Obstacle::grows;
    if (takes_positions(i, output)) return Obstacle::positions;
    for (size_t k = 0; k < in_.size(); ++k)
      if (part_.nodes[i].op->reads_elements(k) &&
          (in_[k].sharding == BatchSharding::mean || in_[k].sharding == BatchSharding::sum))
        return axes_of({i, output}).count > 0 ? Obstacle::whole_in_rows : Obstacle::function_of_whole;
    return Obstacle::mixed_rows;
  }

  /// Whether it takes or writes what is at fixed positions along an axis of rows: a slice, or indices that
  /// are the same for all parts. A part has other rows there than the batch.
  bool takes_positions(uint32_t i, uint32_t output) const {
    const GraphNode& n = part_.nodes[i];
    if (n.inputs.empty() || n.op->is_pointwise() || n.op->traits().matmul_form) return false;
    const auto has_rows = [&](ValueRef v) { return axes_of(v).count > 0; };
    if (!has_rows({i, output}) && std::ranges::none_of(n.inputs, has_rows)) return false;
    const auto elements = [](const Graph& graph, ValueRef v) {
      return static_cast<double>(graph.spec(v).shape.elements());
    };
    const ValueRef from = n.inputs[0], to{i, output};
    // A diagonal of pairs of rows pairs each with itself.
    if (is_op(*n.op, "diagonal") && attribute<int64_t>(*n.op, "offset") == 0 && axes_of(from).count == 2)
      return false;
    if (n.op->is_view() && elements(part_, to) < elements(part_, from) &&
        elements(part_, to) * elements(other_, from) != elements(other_, to) * elements(part_, from))
      return true;
    for (size_t k = 1; k < n.inputs.size(); ++k)
      if (n.op->reads_elements(k) && in_[k].sharding == BatchSharding::replicated &&
          !is_real(part_.spec(n.inputs[k]).dtype))
        return true;
    return false;
  }
  /// Whether how much an operand is decides how much the result is: not where it guards another one, or says
  /// where something is.
  bool counts(const GraphNode& n, size_t k) const {
    if (!n.op->reads_elements(k)) return false;
    const DType dtype = part_.spec(n.inputs[k]).dtype;
    const bool index = !is_real(dtype) && is_real(n.outputs[0].dtype) && !is_op(*n.op, "cast");
    const Op& from = *part_.nodes[n.inputs[k].node].op;
    const bool guard = takes_guards(*n.op) && (is_constant(from) || from.traits().fill);
    return dtype != DType::boolean && !index && !guard;
  }
  int8_t growth_of(size_t k) const {
    return in_[k].sharding == BatchSharding::sum ? growth_of_sum : in_[k].growth;
  }
  /// How what a node reads grows with the number of rows.
  std::vector<int8_t> growths(const GraphNode& n) const {
    std::vector<int8_t> all;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (counts(n, k)) all.push_back(growth_of(k));
    return all;
  }

  BatchValue found_sharding(uint32_t i, uint32_t output) const {
    const GraphNode& n = part_.nodes[i];
    const BatchAxes axes = axes_of({i, output});
    if (n.op->feed()) return axes.count ? BatchValue{BatchSharding::rows} : BatchValue{};
    bool own = false;  // an input is of the part's rows, and has their axes
    bool from_rows = false, from_whole = false, from_local = false, grows = false, shapes = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const BatchValue& in = in_[k];
      if (!n.op->reads_elements(k)) {
        const bool varies = axes_of(n.inputs[k]).count > 0;
        if (varies && in.sharding == BatchSharding::unshardable) return in;
        shapes |= varies;
        continue;
      }
      if (in.sharding == BatchSharding::unshardable) return in;
      own |= in.sharding == BatchSharding::local && axes_of(n.inputs[k]).count > 0;
      from_rows |= in.sharding == BatchSharding::rows;
      // A part's mean may stand for that of the batch, but its sum is smaller. Gradients of means are sums,
      // too.
      const bool gradient = in.sharding == BatchSharding::sum && n.tag != Tag::forward;
      grows |= counts(n, k) && growth_of(k) != 0 && !gradient;
      from_local |= in.sharding == BatchSharding::local;
      from_whole |= from_local || in.sharding == BatchSharding::mean || in.sharding == BatchSharding::sum;
    }
    if (own) return of_part(i, output);
    if (n.op->traits().sums_products && axes.count == 0)
      return from_local ? of_part(i, output) : summed_products(in_);
    if (axes.count > 1 || !axes.in_proportion) return {BatchSharding::unshardable};
    if (axes.count == 1) {
      if (from_whole && (!local_statistics_ || grows)) return {BatchSharding::unshardable};
      return rows_of(i, output, axes.axis);
    }
    if (from_rows) return from_whole ? BatchValue{BatchSharding::unshardable} : taken_over_rows(n);
    if (from_local) return of_part(i, output);
    if (from_whole) return taken_from_whole(n);
    if (shapes && local_statistics_ && is_sample_correction(*n.op)) return {BatchSharding::mean};
    return shapes && !is_same_for_all_sizes(part_, other_, i) ? BatchValue{BatchSharding::unshardable}
                                                              : BatchValue{};
  }

  /// A value that has the rows of its inputs, if those are in one order and are not mixed.
  BatchValue rows_of(uint32_t i, uint32_t output, size_t axis) const {
    const GraphNode& n = part_.nodes[i];
    const int64_t size = other_.spec({i, output}).shape.dims()[axis];
    if (joins_rows(n, size)) return joined_rows(in_, axis);
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&part_.spec(input));
    std::optional<BatchValue> value;
    for (const bool by_value : {true, false})  // what has a shape from rows is in their order, too
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const BatchValue& in = in_[k];
        if (in.sharding != BatchSharding::rows || n.op->reads_elements(k) != by_value || (value && !by_value))
          continue;
        if (n.op->mixes(k, in.axis, specs)) return {BatchSharding::unshardable};
        const bool seen = by_value && n.op->is_view();
        // Broadcasting aligns the last axes. Another axis may have the size of the batch by chance.
        const size_t rank = part_.spec({i, output}).shape.rank();
        if (n.op->is_pointwise() && in.axis + rank != axis + specs[k]->shape.rank())
          return {BatchSharding::unshardable};
        if (!seen && size_of(n.inputs[k], in.axis) != size) return {BatchSharding::unshardable};
        BatchValue own = seen ? seen_rows(i, axis) : in;
        own.axis = axis;
        if (own.sharding == BatchSharding::unshardable || (value && !same_order(*value, own)))
          return {BatchSharding::unshardable};
        value = std::move(own);
      }
    return value ? *value : BatchValue{BatchSharding::unshardable};
  }
  int64_t size_of(ValueRef v, size_t axis) const { return other_.spec(v).shape.dims()[axis]; }
  /// Whether several inputs are put behind each other along their rows.
  bool joins_rows(const GraphNode& n, int64_t size) const {
    if (n.op->kind() != OpKind::other || !n.op->traits().only_copies || n.inputs.size() < 2) return false;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (in_[k].sharding != BatchSharding::rows || size_of(n.inputs[k], in_[k].axis) >= size) return false;
    return true;
  }
  /// The rows that a view of rows has along an axis.
  BatchValue seen_rows(uint32_t i, size_t axis) const {
    const GraphNode& n = part_.nodes[i];
    const Layout from(other_.spec(n.inputs[0]).shape);
    const auto to = n.op->view(from, other_.nodes[i].outputs[0]);
    return to ? rows_in_view(in_[0], from, *to, axis) : BatchValue{BatchSharding::unshardable};
  }

  BatchValue taken_over_rows(const GraphNode& n) const {
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&part_.spec(input));
    if (const auto folding = n.op->folding(specs)) {
      if (folding->fold == Fold::mean) return {BatchSharding::mean};
      return {folding->fold == Fold::sum ? BatchSharding::sum : BatchSharding::unshardable};
    }
    if (!n.op->traits().matmul_form && !n.op->traits().sums_over_rows) return {BatchSharding::unshardable};
    const BatchValue &a = in_[0], &b = in_[1];  // each row must meet itself
    const bool meet =
        a.sharding == BatchSharding::rows && b.sharding == BatchSharding::rows && same_order(a, b);
    return {meet ? BatchSharding::sum : BatchSharding::unshardable};
  }

  /// What becomes of means and sums over the batch.
  BatchValue taken_from_whole(const GraphNode& n) const {
    const Linearity linearity = n.op->is_view() ? Linearity::together : n.op->traits().linearity;
    int whole = 0, same = 0;
    bool means = false, sums = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      if (!n.op->reads_elements(k)) continue;
      const BatchSharding in = in_[k].sharding;
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
      case Linearity::first: keeps = keeps && whole == 1 && in_[0].sharding == kept; break;
    }
    return {keeps ? kept : BatchSharding::unshardable};
  }

  const Graph &part_, &other_;
  BatchSizes sizes_;
  bool local_statistics_;
  const Graph* whole_;
  std::vector<BatchValue> in_;  // the shardings of the inputs of the node at hand
  BatchShardings shardings_;
  std::vector<bool> made_of_shapes_;
  ExchangedSharding result_;
};

}  // namespace

BatchShardings batch_sharding(const Graph& part, const Graph& other, BatchSizes sizes,
                              bool local_statistics) {
  return Shardings(part, other, sizes, local_statistics, nullptr).find().shardings;
}

ExchangedSharding exchanged_sharding(const Graph& part, const Graph& other, BatchSizes sizes,
                                     const Graph& whole) {
  return Shardings(part, other, sizes, false, &whole).find();
}

bool ExchangedSharding::reduces() const {
  return std::ranges::any_of(
      changes, [](const InputChange& change) { return change.kind == InputChange::Kind::reduce; });
}

}  // namespace espalier
