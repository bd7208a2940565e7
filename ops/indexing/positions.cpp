#include "espalier/ops/indexing/positions.h"

#include <memory>
#include <numeric>

#include "espalier/core/countable.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

class PositionsLike : public Op {
 public:
  explicit PositionsLike(int64_t axis)
      : Op({.takes_any_values = true,
            .reads = InputSet::none(),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}),
        axis_(axis) {}
  std::string_view name() const override { return "positions_like"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  /// Positions along the rows of a batch begin elsewhere for each part of them.
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    const size_t axis = resolve_axis(axis_, in[0]->shape.rank(), name());
    return {{DType::int64, Shape{in[0]->shape.dims()[axis]}}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    auto* to = static_cast<int64_t*>(out.address());
    std::iota(to, to + out.elements(), int64_t{0});
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  int64_t axis_;
};

struct PairPositionsLike : Op {
  PairPositionsLike()
      : Op({.takes_any_values = true,
            .reads = InputSet::none(),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}) {}
  std::string_view name() const override { return "pair_positions_like"; }
  bool mixes(size_t, size_t axis, const InputSpecs&) const override { return axis == 0; }
  Specs infer(const InputSpecs& in) const override {
    if (in[0]->shape.rank() == 0) throw ShapeError("pair_positions_like: a scalar has no axis");
    const int64_t n = in[0]->shape[0];
    check_countable({n, n}, name());
    return {{DType::int64, Shape{n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n}}};
  }
  void run_cpu(const KernelCall& call) const override {
    auto* to = static_cast<int64_t*>(call.outputs[0]->address());
    const int64_t n = call.inputs[0]->shape()[0];
    for (int64_t i = 0; i < n; ++i) {
      std::iota(to, to + (n - 1 - i), i * n + i + 1);
      to += n - 1 - i;
    }
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
};

}  // namespace

Variable pair_positions_like(const Variable& like) {
  return apply(shared_op<PairPositionsLike>(), {&like}, std::source_location::current());
}
Variable positions_like(const Variable& like, int64_t axis) {
  return apply(std::make_shared<PositionsLike>(axis), {&like}, std::source_location::current());
}

void add_position_ops(OpRegistry& ops) {
  ops.add<PairPositionsLike>(1);
  ops.add("positions_like", 1,
          [](AttributeReader& a) { return std::make_shared<PositionsLike>(a.integer("axis")); });
}

}  // namespace espalier
