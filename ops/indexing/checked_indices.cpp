#include "espalier/ops/indexing/checked_indices.h"

#include <string>

#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

class CheckedIndices : public Op {
 public:
  CheckedIndices(int64_t axis, bool from_end, std::string function)
      : Op({.reads = InputSet::only(0),
            .in_place = InputSet::only(0),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}),
        axis_(axis),
        from_end_(from_end),
        function_(std::move(function)) {}
  std::string_view name() const override { return "checked_indices"; }
  Attributes attributes() const override {
    return {{"axis", axis_}, {"from_end", from_end_}, {"function", function_}};
  }
  /// The size of a shard of the axis is not that of the axis.
  bool mixes(size_t input, size_t, const InputSpecs&) const override { return input == 1; }
  Specs infer(const InputSpecs& in) const override {
    check_indices(*in[0], function_);
    (void)resolve_axis(axis_, in[1]->shape.rank(), function_);
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor &given = *call.inputs[0], &like = *call.inputs[1];
    const int64_t size = like.shape().dims()[resolve_axis(axis_, like.rank(), function_)];
    with_indices(given, size, function_, from_end_, [](auto, int64_t) {});
    if (given.address() != call.outputs[0]->address()) copy_elements(given, *call.outputs[0]);
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }

 private:
  int64_t axis_;
  bool from_end_;
  std::string function_;  // that the user called, for errors
};

}  // namespace

Variable checked_indices(const Variable& indices, const Variable& like, int64_t axis, bool from_end,
                         std::string_view function) {
  return apply(std::make_shared<CheckedIndices>(axis, from_end, std::string(function)), {&indices, &like},
               std::source_location::current());
}

void add_checked_indices_op(OpRegistry& ops) {
  ops.add("checked_indices", 2, [](AttributeReader& a) {
    const int64_t axis = a.integer("axis");
    const bool from_end = a.flag("from_end");
    return std::make_shared<CheckedIndices>(axis, from_end, a.text("function"));
  });
}

}  // namespace espalier
