#include "espalier/ops/views/axis_groups.h"

#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/view_op.h"

namespace espalier {

namespace {

class ReshapeBy : public ReshapeView {
 public:
  explicit ReshapeBy(std::vector<std::vector<AxisOf>> groups) : groups_(std::move(groups)) {}
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
      if (group.size() == 1 && group[0].operand == AxisOf::number) {
        dims.push_back(group[0].axis);
        continue;
      }
      Dims sizes;
      for (const AxisOf& of : group) {
        if (of.operand == AxisOf::number) {
          sizes.push_back(of.axis);
          continue;
        }
        if (of.operand < 0 || static_cast<size_t>(of.operand) >= in.size())
          throw Error(fmt::format("reshape_by: there is no operand {}", of.operand));
        sizes.push_back(in[static_cast<size_t>(of.operand)]->shape[of.axis]);
      }
      dims.push_back(Shape(std::move(sizes)).elements());
    }
    return {{in[0]->dtype, resolve(Shape(std::move(dims)), in[0]->shape.elements(), name())}};
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
  ops.add("reshape_by", Arity::at_least(1), [](AttributeReader& a) {
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
