#include "espalier/ops/axis_groups.h"

#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

OpTraits axis_group_traits() {
  return {.kind = OpKind::view,
          .precision = OpPrecision::follows,
          .only_copies = true,
          .reads = InputSet::only(0),
          .gradient_reads = InputSet::none()};
}

class ReshapeBy : public Op {
 public:
  explicit ReshapeBy(std::vector<std::vector<AxisOf>> groups)
      : Op(axis_group_traits()), groups_(std::move(groups)) {}
  std::string_view name() const override { return "reshape_by"; }
  Attributes attributes() const override {
    std::vector<int64_t> operands, axes, counts;
    for (const auto& group : groups_) {
      counts.push_back(static_cast<int64_t>(group.size()));
      for (const AxisOf& size : group) {
        operands.push_back(size.operand);
        axes.push_back(size.axis);
      }
    }
    return {{"operands", operands}, {"axes", axes}, {"counts", counts}};
  }
  Specs infer(const InputSpecs& in) const override {
    Dims dims;
    for (const auto& group : groups_) {
      Dims sizes;
      for (const AxisOf& of : group) {
        if (of.operand < 0 || static_cast<size_t>(of.operand) >= in.size())
          throw Error(fmt::format("reshape_by: there is no operand {}", of.operand));
        sizes.push_back(in[static_cast<size_t>(of.operand)]->shape[of.axis]);
      }
      dims.push_back(Shape(std::move(sizes)).elements());
    }
    return {{in[0]->dtype, resolve(Shape(std::move(dims)), in[0]->shape.elements(), name())}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout;
    if (!reshape_layout(in, out.shape, layout)) return std::nullopt;
    return layout;
  }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return *in.specs[0] == out ? std::optional<size_t>(0) : std::nullopt;
  }
  void run_cpu(const KernelCall& call) const override {
    Layout layout(call.inputs[0]->shape());  // the output in the shape of the input
    layout.offset = call.outputs[0]->layout().offset;
    Tensor same(call.outputs[0]->storage(), std::move(layout), call.outputs[0]->dtype());
    copy_elements(*call.inputs[0], same);
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    if (rule.wants(0)) result[0] = reshape_like(rule.output_gradient(), rule.input(0));
    return result;
  }

 private:
  std::vector<std::vector<AxisOf>> groups_;
};

}  // namespace

Variable reshape_by(const Variable& x, const std::vector<Variable>& like,
                    const std::vector<std::vector<AxisOf>>& groups) {
  SmallVector<const Variable*, 8> inputs{&x};
  for (const Variable& v : like) inputs.push_back(&v);
  return apply(std::make_shared<ReshapeBy>(groups), {inputs.data(), inputs.size()},
               std::source_location::current());
}
void add_axis_group_ops(OpRegistry& ops) {
  ops.add("reshape_by", [](AttributeReader& a) {
    const Dims operands = a.integers("operands"), axes = a.integers("axes"), counts = a.integers("counts");
    std::vector<std::vector<AxisOf>> groups;
    size_t at = 0;
    for (const int64_t count : counts) {
      groups.emplace_back();
      for (int64_t i = 0; i < count; ++i, ++at) {
        if (at >= operands.size() || at >= axes.size()) a.refuse("counts");
        groups.back().push_back({operands[at], axes[at]});
      }
    }
    return std::make_shared<ReshapeBy>(std::move(groups));
  });
}

}  // namespace espalier
