// The largest or smallest of what is at a place and of all values that indices bring there.
#include <algorithm>
#include <memory>
#include <string_view>
#include <type_traits>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/indexing/choosing_op.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/indexing/pick_elements.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// Inputs: x, indices, values. `Pick` selects one of two elements.
template <class Pick>
class PutExtreme : public ChoosingOp {
 public:
  explicit PutExtreme(const Chosen& form)
      : ChoosingOp(form, {.in_place = InputSet::only(0), .gradient_reads_output = true}) {}
  std::string_view name() const override { return name_of(form_.along); }
  static std::string_view name_of(bool along) {
    if constexpr (std::is_same_v<Pick, scalar::Maximum>) return along ? "max_along_axis" : "scatter_max";
    return along ? "min_along_axis" : "scatter_min";
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_values(in);
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    write_values(call, [&](auto at, const Tensor& values, const AxisBlocks& b, int64_t count) {
      visit(out.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Numbers::accepts<T>)
          fold(static_cast<T*>(out.address()), static_cast<const T*>(values.address()), b, at, count);
      });
    });
  }
  /// The gradient of a place is divided among all that equal its result.
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input(0), indices = rule.input(1), values = rule.input(2), y = rule.output();
    const int64_t axis = form_.axis;
    const auto chosen = [&](const Variable& of) {
      return form_.along ? take_along_axis(of, indices, axis) : gather(of, indices, axis);
    };
    const Variable own = cast(equal(x, y), x.dtype()), given = cast(equal(values, chosen(y)), x.dtype());
    const Variable others = form_.along ? add_along_axis_like(given, indices, x, axis, name())
                                        : scatter_add_like(given, indices, x, axis, name());
    const Variable share = rule.output_gradient() / (own + others);
    return {rule.wants(0) ? own * share : Variable(), Variable(),
            rule.wants(2) ? given * chosen(share) : Variable()};
  }

 private:
  /// One thread writes to each line.
  template <class T, class At>
  void fold(T* to, const T* from, const AxisBlocks& b, At at, int64_t count) const {
    const bool along = form_.along;
    parallel_for(b.lines(), std::max<int64_t>(64, detail::grain / count), [=](int64_t begin, int64_t end) {
      detail::each_block(begin, end, b.inner, [=](int64_t o, int64_t first, int64_t last) {
        T* block = to + o * b.size * b.inner;
        const T* put = from + o * count * b.inner;
        const int64_t before = along ? o * count * b.inner : 0;
        if (b.inner == 1)
          detail::each_place(
              block, b.size, [=](int64_t i) { return at(before + i); }, count,
              [=](int64_t c, int64_t place) { block[place] = Pick()(block[place], put[c]); });
        else if (along)
          for (int64_t c = 0; c < count * b.inner; c += b.inner)
            for (int64_t i = first; i < last; ++i) {
              T& held = block[at(before + c + i) * b.inner + i];
              held = Pick()(held, put[c + i]);
            }
        else
          for (int64_t c = 0; c < count; ++c) {
            T* held = block + at(c) * b.inner + first;
            detail::binary_row<Pick, T, T>(last - first, held, held, 1, put + c * b.inner + first, 1);
          }
      });
    });
  }
};

template <class Pick>
Variable put_extreme(const Chosen& form, const Operand& x, const Operand& indices, const Operand& values) {
  const auto op = std::make_shared<PutExtreme<Pick>>(form);
  const Variable &to = x.defined(op->name()), &at = indices.defined(op->name());
  const Variable put = chosen_values(form, op->name(), x, indices, values);
  return apply(op, {&to, &at, &put}, x.where(), x.is_last());
}

template <class Pick>
void add_extreme(OpRegistry& ops) {
  for (const bool along : {false, true})
    ops.add(PutExtreme<Pick>::name_of(along), 3, [](AttributeReader& a) {
      const int64_t axis = a.integer("axis");
      return std::make_shared<PutExtreme<Pick>>(Chosen{axis, a.flag("along")});
    });
}

}  // namespace

Variable scatter_max(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return put_extreme<scalar::Maximum>({axis, false}, x, indices, values);
}
Variable scatter_min(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return put_extreme<scalar::Minimum>({axis, false}, x, indices, values);
}
Variable max_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return put_extreme<scalar::Maximum>({axis, true}, x, indices, values);
}
Variable min_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return put_extreme<scalar::Minimum>({axis, true}, x, indices, values);
}

void add_scatter_extreme_ops(OpRegistry& ops) {
  add_extreme<scalar::Maximum>(ops);
  add_extreme<scalar::Minimum>(ops);
}

}  // namespace espalier
