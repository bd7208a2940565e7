#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "espalier/core/op_names.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/elementwise/cast.h"

namespace espalier {

namespace {

/// Lowers matrix products, and ops that may follow them, to a 16-bit type. Each value is computed in one type
/// and converted at most once, for all readers in the other type.
class Lowering {
 public:
  Lowering(Graph& graph, DType low) : graph_(graph), before_(graph), rewriter_(graph), low_(low) {}

  bool run() {
    for (uint32_t i = 0; i < before_.nodes.size(); ++i) {
      here_ = i;
      rewrite(i);
    }
    here_.reset();
    for (ValueRef& result : graph_.results)
      result = as(rewriter_.resolve(result), before_.spec(result).dtype);
    rewriter_.finish();
    dead_nodes(graph_);
    return graph_.str() != before_.str();
  }

 private:
  const Spec& spec(ValueRef v) { return rewriter_.spec(v); }
  bool is_low(ValueRef v) { return spec(v).dtype == low_; }

  void rewrite(uint32_t i) {
    const GraphNode& before = before_.nodes[i];
    // An existing cast is removed; readers that need the other type get a conversion of its input.
    if (is_op(*before.op, "cast")) {
      const DType from = before_.spec(before.inputs[0]).dtype, to = before.outputs[0].dtype;
      const ValueRef value = rewriter_.resolve(before.inputs[0]);
      const bool widens = from == low_ && to == DType::float32;
      if (widens || (from == DType::float32 && to == low_)) {
        rewriter_.replace({i, 0}, widens ? value : as(value, low_));
        rewriter_.remove(i);
        return;
      }
    }
    const bool lowers = computes_low(before);
    GraphNode& n = rewriter_.node(i);
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueRef value = rewriter_.resolve(before.inputs[k]);
      const DType was = before_.spec(before.inputs[k]).dtype;
      const bool free = was == DType::float32 && n.op->effect() != Effect::writes_leaf;
      n.inputs[k] = !free                      ? as(value, was)
                    : !n.op->reads_elements(k) ? value
                    : lowers                   ? (kept_.contains(value) ? value : as(value, low_))
                                               : as(value, DType::float32);
    }
    if (!n.inputs.empty()) settle(n, before, lowers);
    // Statistics that an op gives in float32 beside a result in 16 bits stay so for all readers.
    for (uint32_t k = 0; lowers && k < n.outputs.size(); ++k)
      if (n.outputs[k].dtype == DType::float32) kept_.insert({i, k});
  }

  /// Infers the outputs from the new inputs. If a dtype is not the wanted one, converts inputs that are read
  /// only for their shape, since they may determine it.
  void settle(GraphNode& n, const GraphNode& before, bool lowers) {
    const auto outputs_as_wanted = [&] {
      InputSpecs specs;
      for (const ValueRef& input : n.inputs) specs.push_back(&spec(input));
      n.outputs = n.op->infer(specs);
      for (size_t k = 0; k < n.outputs.size(); ++k) {
        const DType was = before.outputs[k].dtype;
        if (n.outputs[k].dtype != (lowers && was == DType::float32 ? low_ : was)) return false;
      }
      return true;
    };
    if (outputs_as_wanted()) return;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (!n.op->reads_elements(k) && before_.spec(before.inputs[k]).dtype == DType::float32)
        n.inputs[k] = as(n.inputs[k], lowers ? low_ : DType::float32);
    (void)outputs_as_wanted();
  }

  bool computes_low(const GraphNode& n) {
    if (n.tag == Tag::update) return false;
    const OpPrecision precision = n.op->traits().precision;
    if (precision == OpPrecision::full) return false;
    bool any = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const DType was = before_.spec(n.inputs[k]).dtype;
      if (!n.op->reads_elements(k) || !is_real(was)) continue;
      if (was != DType::float32) return false;  // the user chose another type
      if (is_low(rewriter_.resolve(n.inputs[k])))
        any = true;
      else if (precision == OpPrecision::follows && !may_come_along(n.inputs[k]))
        return false;
    }
    return any || precision == OpPrecision::product;
  }

  /// Returns true if a value may be rounded because other operands are: a parameter, or a constant that the
  /// 16-bit type can represent.
  bool may_come_along(ValueRef v) const {
    if (const auto fill = fill_of(before_, v)) {
      const Tensor number = full({}, *fill, DType::float64);
      const double rounded = number.to(low_).to(DType::float64).item();
      return std::isinf(rounded) == std::isinf(*fill) && (rounded != 0) == (*fill != 0);
    }
    while (before_.nodes[v.node].op->is_view()) v = before_.nodes[v.node].inputs[0];
    return before_.nodes[v.node].leaf.defined() && is_parameter(*before_.nodes[v.node].op);
  }

  /// The value in `dtype`, converted if it is computed in the other type.
  ValueRef as(ValueRef v, DType dtype) {
    if (spec(v).dtype == dtype) return v;
    const auto known = others_.find(v);
    if (known != others_.end()) return known->second;
    const ValueRef other = convert(v, dtype);
    others_[v] = other;
    return other;
  }

  ValueRef convert(ValueRef v, DType dtype) {
    const GraphNode& n = rewriter_.node(v.node);
    GraphNode result;
    result.tag = n.tag;
    result.where = n.where;
    result.outputs = {{dtype, spec(v).shape}};
    if (n.is_constant()) {
      result.op = n.op;
      result.constant = std::make_shared<Tensor>(constant_as(*n.constant, dtype));
    } else if (n.op->is_view() && spec(v).shape.elements() >= spec(n.inputs[0]).shape.elements()) {
      result.op = n.op;  // below the view, fewer elements are converted, and the conversion can be shared
      result.inputs = n.inputs;
      result.inputs[0] = as(n.inputs[0], dtype);
    } else {
      result.op = cast_op(dtype);
      result.inputs = {v};
    }
    return {here_ ? rewriter_.add_before(*here_, std::move(result)) : rewriter_.add_last(std::move(result)),
            0};
  }

  /// Converts a constant; broadcast elements are converted and stored once.
  static Tensor constant_as(const Tensor& constant, DType dtype) {
    Tensor once = constant;
    for (size_t axis = 0; axis < once.rank(); ++axis)
      if (once.strides()[axis] == 0 && once.shape().dims()[axis] > 1)
        once = once.slice(static_cast<int64_t>(axis), 0, 1);
    const Tensor other = once.to(dtype);
    return Tensor(other.storage(), broadcast_layout(other.layout(), constant.shape()), dtype);
  }

  Graph& graph_;
  const Graph before_;
  GraphRewriter rewriter_;
  const DType low_;
  std::optional<uint32_t> here_;  // conversions are inserted before this node; none: at the end
  std::set<ValueRef> kept_;
  std::map<ValueRef, ValueRef> others_;  // values converted to the type they are not computed in
};

}  // namespace

bool lower_precision(Graph& graph, Precision precision) {
  if (precision == Precision::bfloat16) return Lowering(graph, DType::bfloat16).run();
  if (precision == Precision::float16) return Lowering(graph, DType::float16).run();
  return false;
}

bool lower_precision(Graph& graph, const CompileOptions& options) {
  return lower_precision(graph, options.precision);
}

}  // namespace espalier
