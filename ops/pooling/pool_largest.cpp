// The largest elements of windows, and where they are.
#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/pooling/largest_by_rows.h"
#include "espalier/ops/pooling/pool.h"
#include "espalier/ops/pooling/pool_op.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// Fewer windows in a row are searched one by one, and integers, which are rarely pooled.
constexpr int64_t fewest_side_by_side = 6;

/// Not a window that is mostly padding, of which a row would look at each place.
bool suits_rows(const PoolAxis& axis) {
  return axis.count >= fewest_side_by_side && axis.kernel > 0 && axis.kernel <= axis.size;
}

class LargestOp : public PoolOp {
 public:
  using PoolOp::PoolOp;

 protected:
  /// Throws ShapeError if a window has all of its elements in the padding.
  void check_windows(const Shape& x) const {
    const PoolAxes axes = form().windows(x, name());
    for (const PoolAxis& axis : axes.at) {
      // Without a dilation, it is enough to look at both ends.
      const int64_t step = axis.before > 0 && axis.dilation > 1 ? 1 : std::max<int64_t>(axis.count - 1, 1);
      for (int64_t window = 0; window < axis.count; window += step)
        if (range_of(axis, window).count == 0)
          throw ShapeError(fmt::format(
              "max_pool: a window of {} elements with dilation {} and padding {} reads nothing of an "
              "axis of {} (shape {})",
              axis.kernel, axis.dilation, axis.before, size_text(axis.size), x.str()));
    }
  }
  template <Largest what>
  void find(const KernelCall& call) const {
    const Tensor x = call.inputs[0]->contiguous_copy();
    if (call.outputs[0]->elements() == 0) return;
    const PoolAxes axes = form().windows(x.shape(), name());
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        using To = std::conditional_t<what == Largest::place, int64_t, T>;
        const T* from = static_cast<const T*>(x.address());
        To* to = static_cast<To*>(call.outputs[0]->address());
        const int64_t width = width_of(x.shape()), planes = pooled_planes(x.shape(), form());
        if constexpr (std::is_floating_point_v<T>) {
          using Place = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
          if (!form().channels_last && suits_rows(axes.at[2]) &&
              axes.elements() <= std::numeric_limits<Place>::max())
            return each_plane_by(axes, planes, width, [&] {
              return [from, to, rows = LargestByRows<what, Place, T>(axes)](
                         int64_t element, int64_t window) mutable { rows.find(from + element, to + window); };
            });
        }
        each_plane(axes, planes, width, [&](int64_t element, int64_t window) {
          if (form().channels_last)
            find_largest_of_windows<what>(axes, width, from + element, to + window);
          else
            find_largest_one_by_one<what>(axes, from + element, to + window);
        });
      }
    });
  }
};

struct PoolArgmax : LargestOp {
  explicit PoolArgmax(PoolForm form)
      : LargestOp(std::move(form), {.takes_any_values = true,
                                    .finds_indices = true,
                                    .gradient_reads = InputSet::none(),
                                    .passes_no_gradient = true}) {}
  std::string_view name() const override { return "pool_argmax"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_windows(in[0]->shape);
    return {{DType::int64, form().output(in[0]->shape, name())}};
  }
  void run_cpu(const KernelCall& call) const override { find<Largest::place>(call); }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
};

struct PoolMax : LargestOp {
  explicit PoolMax(PoolForm form)
      : LargestOp(std::move(form), {.takes_any_values = true, .gradient_reads = InputSet::only(0)}) {}
  std::string_view name() const override { return "pool_max"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_windows(in[0]->shape);
    return {{in[0]->dtype, form().output(in[0]->shape, name())}};
  }
  void run_cpu(const KernelCall& call) const override { find<Largest::value>(call); }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable()};
    const Variable& x = rule.input(0);
    return {
        pool_add_like(rule.output_gradient(), pool_argmax(x, form(), rule.where()), x, form(), rule.where())};
  }
};

}  // namespace

Variable pool_argmax(const Variable& x, const PoolForm& form, const std::source_location& where) {
  return apply(std::make_shared<PoolArgmax>(form), {&x}, where);
}
Variable pool_max(const Variable& x, const PoolForm& form, const std::source_location& where) {
  return apply(std::make_shared<PoolMax>(form), {&x}, where);
}

void add_pool_largest_ops(OpRegistry& ops) {
  ops.add("pool_argmax", 1,
          [](AttributeReader& a) { return std::make_shared<PoolArgmax>(PoolForm::read(a)); });
  ops.add("pool_max", 1, [](AttributeReader& a) { return std::make_shared<PoolMax>(PoolForm::read(a)); });
}

}  // namespace espalier
