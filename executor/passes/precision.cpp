#include <cmath>
#include <map>

#include "espalier/executor/passes/passes.h"
#include "espalier/ops/cast.h"

namespace espalier {

namespace {

/// Writes the graph anew with products, and what may follow them, in a 16-bit type. A value is computed in
/// one type; the other one is made of it where somebody reads it, once for all.
class Lowering {
 public:
  Lowering(Graph& graph, DType low) : graph_(graph), low_(low) {}

  bool run() {
    const std::string before = graph_.str();
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) rewrite(i);
    std::vector<ValueRef> results;
    for (const ValueRef& result : graph_.results)
      results.push_back(as(now_.at(result), graph_.spec(result).dtype));
    graph_.nodes = std::move(out_);
    graph_.results = std::move(results);
    dead_nodes(graph_);
    return graph_.str() != before;
  }

 private:
  const Spec& spec(ValueRef v) const { return out_[v.node].outputs[v.output]; }
  bool is_low(ValueRef v) const { return spec(v).dtype == low_; }

  void rewrite(uint32_t i) {
    const GraphNode& n = graph_.nodes[i];
    // A cast is what its input is, in another type: it comes back for those who need it, and cancels where
    // nobody does.
    if (n.op->name() == "cast") {
      const DType from = graph_.spec(n.inputs[0]).dtype, to = n.outputs[0].dtype;
      if (from == low_ && to == DType::float32) {
        now_[{i, 0}] = now_.at(n.inputs[0]);
        return;
      }
      if (from == DType::float32 && to == low_) {
        now_[{i, 0}] = as(now_.at(n.inputs[0]), low_);
        return;
      }
    }
    const bool lowers = computes_low(n);
    GraphNode copy = n;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueRef value = now_.at(n.inputs[k]);
      const DType was = graph_.spec(n.inputs[k]).dtype;
      const bool free = was == DType::float32 && !n.op->has_side_effects();
      copy.inputs[k] = !free                   ? as(value, was)
                       : !n.op->needs_value(k) ? value
                       : lowers                ? as(value, low_)
                                               : as(value, DType::float32);
    }
    if (!n.inputs.empty()) settle(copy, n, lowers);
    for (uint32_t k = 0; k < copy.outputs.size(); ++k) now_[{i, k}] = {static_cast<uint32_t>(out_.size()), k};
    out_.push_back(std::move(copy));
  }

  /// The outputs of a node with its new inputs. Inputs that are read for their shape alone may give the type,
  /// too.
  void settle(GraphNode& copy, const GraphNode& before, bool lowers) {
    const auto outputs_as_wanted = [&] {
      InputSpecs specs;
      for (const ValueRef& input : copy.inputs) specs.push_back(&spec(input));
      const Specs outputs = copy.op->infer(specs);
      copy.outputs.assign(outputs.begin(), outputs.end());
      for (size_t k = 0; k < outputs.size(); ++k) {
        const DType was = before.outputs[k].dtype;
        if (outputs[k].dtype != (lowers && was == DType::float32 ? low_ : was)) return false;
      }
      return true;
    };
    if (outputs_as_wanted()) return;
    for (size_t k = 0; k < copy.inputs.size(); ++k)
      if (!copy.op->needs_value(k) && graph_.spec(before.inputs[k]).dtype == DType::float32)
        copy.inputs[k] = as(copy.inputs[k], lowers ? low_ : DType::float32);
    (void)outputs_as_wanted();
  }

  bool computes_low(const GraphNode& n) const {
    if (n.tag == Tag::update) return false;
    const OpPrecision precision = n.op->precision();
    if (precision == OpPrecision::full) return false;
    bool any = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const DType was = graph_.spec(n.inputs[k]).dtype;
      if (!n.op->needs_value(k) || !is_real(was)) continue;
      if (was != DType::float32) return false;  // the user has chosen another type
      if (is_low(now_.at(n.inputs[k])))
        any = true;
      else if (precision == OpPrecision::follows && !may_come_along(n.inputs[k]))
        return false;
    }
    return any || precision == OpPrecision::product;
  }

  /// Whether a value may be rounded for the sake of others that are: a parameter, or a number that fits.
  bool may_come_along(ValueRef v) const {
    if (const auto fill = fill_of(graph_, v)) {
      const double rounded = full({}, *fill, low_).item();
      return std::isinf(rounded) == std::isinf(*fill) && (rounded != 0) == (*fill != 0);
    }
    while (graph_.nodes[v.node].op->is_view()) v = graph_.nodes[v.node].inputs[0];
    return graph_.nodes[v.node].leaf.defined() && is_parameter(*graph_.nodes[v.node].op);
  }

  /// A value of the new graph in float32 or the 16-bit type.
  ValueRef as(ValueRef v, DType dtype) {
    if (spec(v).dtype == dtype) return v;
    const auto known = others_.find(v);
    if (known != others_.end()) return known->second;
    const ValueRef other = convert(v, dtype);
    others_[v] = other;
    return other;
  }

  ValueRef convert(ValueRef v, DType dtype) {
    const GraphNode& n = out_[v.node];
    GraphNode result;
    result.tag = n.tag;
    result.where = n.where;
    result.outputs = {{dtype, spec(v).shape}};
    if (n.is_constant()) {
      result.op = n.op;
      result.constant = constant_as(n.constant, dtype);
    } else if (n.op->is_view() && spec(v).shape.elements() >= spec(n.inputs[0]).shape.elements()) {
      result.op = n.op;  // below the view there may be less to convert, and others who want the same
      result.inputs = n.inputs;
      result.inputs[0] = as(n.inputs[0], dtype);
    } else {
      result.op = cast_op(dtype);
      result.inputs = {v};
    }
    out_.push_back(std::move(result));
    return {static_cast<uint32_t>(out_.size() - 1), 0};
  }

  /// One number seen many times stays one.
  static Tensor constant_as(const Tensor& constant, DType dtype) {
    Tensor once = constant;
    for (size_t axis = 0; axis < once.rank(); ++axis)
      if (once.strides()[axis] == 0 && once.shape().dims()[axis] > 1)
        once = once.slice(static_cast<int64_t>(axis), 0, 1);
    const Tensor other = once.to(dtype);
    return Tensor(other.storage(), broadcast_layout(other.layout(), constant.shape()), dtype);
  }

  Graph& graph_;
  const DType low_;
  std::map<ValueRef, ValueRef>
      now_;  // where old values are in the new graph, in the type they are computed in
  std::map<ValueRef, ValueRef> others_;  // values of the new graph in the other type
  std::vector<GraphNode> out_;
};

}  // namespace

bool lower_precision(Graph& graph, Precision precision) {
  if (precision == Precision::bfloat16) return Lowering(graph, DType::bfloat16).run();
  if (precision == Precision::float16) return Lowering(graph, DType::float16).run();
  return false;
}

}  // namespace espalier
