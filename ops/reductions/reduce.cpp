// Reductions along axes.
#include <algorithm>
#include <limits>

#include "espalier/core/channels_last.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/reductions/sum_mapped.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// The shape after the reduction; with `keep`, reduced axes have size 1.
Shape reduced_shape(const Shape& shape, const Dims& axes, bool keep, std::string_view op) {
  const auto gone = Axes(axes).mask(shape.rank(), op);
  Dims dims;
  for (size_t i = 0; i < shape.rank(); ++i)
    if (!gone[i])
      dims.push_back(shape.dims()[i]);
    else if (keep)
      dims.push_back(1);
  return Shape(std::move(dims));
}

/// The axes in `gone`, as they are numbered with the channels last.
template <class Mask>
std::vector<int64_t> moved_axes(const Mask& gone) {
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < gone.size(); ++axis)
    if (gone[axis]) axes.push_back(channels_last_axis(axis, gone.size()));
  std::sort(axes.begin(), axes.end());
  return axes;
}

class ReduceOp : public Op {
 public:
  ReduceOp(Dims axes, bool keep_dims, OpTraits traits = {})
      : Op(reduction(traits)), axes_(std::move(axes)), keep_dims_(keep_dims) {}
  Attributes attributes() const override {
    return {{"axes", std::vector<int64_t>(axes_.begin(), axes_.end())}, {"keep_dims", keep_dims_}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    return {{in[0]->dtype, reduced_shape(in[0]->shape, axes_, keep_dims_, name())}};
  }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return *in.specs[0] == out && out.shape.rank() == 0 ? std::optional<size_t>(0) : std::nullopt;
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec&) const override {
    const size_t rank = in[0]->shape.rank();
    if (rank < 3) return {};
    const auto gone = Axes(axes_).mask(rank, name());
    const bool sizes_left = std::find(gone.begin() + 2, gone.end(), false) != gone.end();
    // Without the reduced axes, the others are [channels, sizes…] or have one order only.
    const bool both_left = !keep_dims_ && !gone[1] && sizes_left;
    if (both_left && gone[0]) return {};
    return {.op = with_attribute(*this, "axes", moved_axes(gone)), .moves_output = keep_dims_ || both_left};
  }

 protected:
  std::optional<Folding> folding_as(Fold fold, const InputSpecs& in) const {
    Folding f{fold, {}};
    const auto gone = Axes(axes_).mask(in[0]->shape.rank(), name());
    for (size_t i = 0; i < in[0]->shape.rank(); ++i)
      if (gone[i]) f.axes.push_back(static_cast<int64_t>(i));
    return f;
  }
  /// The output broadcast to the input's shape: strides of 0 along the reduced axes.
  Layout seen_from_input(const KernelCall& call) const {
    const Shape kept = reduced_shape(call.inputs[0]->shape(), axes_, true, name());
    return broadcast_layout(Layout(kept), call.inputs[0]->shape());
  }
  /// `v`, of the output's shape, with the reduced axes as axes of size 1.
  Variable with_axes(const Variable& v, size_t rank) const {
    if (keep_dims_ || rank == 0) return v;
    Dims axes = axes_;
    if (axes.empty())
      for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
    for (int64_t& axis : axes) axis = static_cast<int64_t>(resolve_axis(axis, rank, name()));
    return unsqueeze_axes(v, axes);
  }

  /// As Batchable::row_inputs.
  InputSet rows_left(const InputSpecs& in) const {
    const size_t rank = in[0]->shape.rank();
    return rank > 1 && !Axes(axes_).mask(rank, name())[0] ? InputSet::all() : InputSet::none();
  }
  /// The axes that are reduced of each node's first input, in the stacked one.
  Axes stacked_axes(const Stacked& in) const {
    const auto gone = Axes(axes_).mask(in.rank(0), name());
    Dims axes;
    for (size_t i = 0; i < in.rank(0); ++i)
      if (gone[i]) axes.push_back(static_cast<int64_t>(i) + 1);
    return Axes(std::move(axes));
  }
  /// `f(x, axes, keep_dims)` of the stacked input; a scalar is its own reduction.
  template <class F>
  Gradients batched_by(const Stacked& in, F&& f) const {
    const Variable x = in.stacked(0);
    return {in.rank(0) == 0 ? x : f(x, stacked_axes(in), keep_dims_)};
  }

  Dims axes_;
  bool keep_dims_;

 private:
  static OpTraits reduction(OpTraits traits) {
    traits.kind = OpKind::reduction;
    return traits;
  }
};

struct Sum : ReduceOp, Batchable {
  Sum(Dims axes, bool keep_dims)
      : ReduceOp(std::move(axes), keep_dims,
                 {.linearity = Linearity::together, .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "sum"; }
  std::optional<Folding> folding(const InputSpecs& in) const override { return folding_as(Fold::sum, in); }
  void run_cpu(const KernelCall& call) const override {
    reduce_sum(*call.inputs[0], seen_from_input(call), *call.outputs[0]);
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input();
    return {broadcast_like(with_axes(rule.output_gradient(), x.rank()), x)};
  }
  InputSet row_inputs(const InputSpecs& in) const override { return rows_left(in); }
  Gradients batched(const Stacked& in) const override {
    return batched_by(in, [](auto&&... a) { return sum(a...); });
  }
};

struct Mean : ReduceOp, Batchable {
  Mean(Dims axes, bool keep_dims)
      : ReduceOp(std::move(axes), keep_dims,
                 {.linearity = Linearity::together, .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "mean"; }
  std::optional<Folding> folding(const InputSpecs& in) const override { return folding_as(Fold::mean, in); }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    return ReduceOp::infer(in);
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    reduce_sum(*call.inputs[0], seen_from_input(call), out);
    const double count =
        static_cast<double>(call.inputs[0]->elements()) / static_cast<double>(out.elements());
    visit(out.dtype(), [&]<class T>(TypeTag<T>) {
      for (T& x : out.span<T>()) x = static_cast<T>(static_cast<double>(x) / count);
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input();
    const Variable& g = rule.output_gradient();
    return {broadcast_like(with_axes(g * count_ratio(g, x), x.rank()), x)};
  }
  InputSet row_inputs(const InputSpecs& in) const override { return rows_left(in); }
  Gradients batched(const Stacked& in) const override {
    return batched_by(in, [](auto&&... a) { return mean(a...); });
  }
};

/// max and min: `Pick` selects one of two elements.
template <class Pick>
struct Extreme : ReduceOp {
  Extreme(Dims axes, bool keep_dims)
      : ReduceOp(std::move(axes), keep_dims, {.gradient_reads_output = true}) {}
  Specs infer(const InputSpecs& in) const override {
    Specs out = ReduceOp::infer(in);
    if (in[0]->shape.elements() == 0 && out[0].shape.elements() > 0)
      throw ShapeError(fmt::format("{}: a reduced axis is empty (shape {})", name(), in[0]->shape.str()));
    return out;
  }
  void run_cpu(const KernelCall& call) const override {
    reduce_with<Pick>(*call.inputs[0], seen_from_input(call), *call.outputs[0]);
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input(), y = with_axes(rule.output(), x.rank());
    const Variable best = cast(equal(x, y), x.dtype());
    Dims axes = axes_;
    return {with_axes(rule.output_gradient(), x.rank()) * (best / sum(best, Axes(axes), true))};
  }
};
struct Max : Extreme<scalar::Maximum>, Batchable {
  using Extreme::Extreme;
  std::string_view name() const override { return "max"; }
  std::optional<Folding> folding(const InputSpecs& in) const override { return folding_as(Fold::max, in); }
  InputSet row_inputs(const InputSpecs& in) const override { return rows_left(in); }
  Gradients batched(const Stacked& in) const override {
    return batched_by(in, [](auto&&... a) { return max(a...); });
  }
};
struct Min : Extreme<scalar::Minimum>, Batchable {
  using Extreme::Extreme;
  std::string_view name() const override { return "min"; }
  std::optional<Folding> folding(const InputSpecs& in) const override { return folding_as(Fold::min, in); }
  InputSet row_inputs(const InputSpecs& in) const override { return rows_left(in); }
  Gradients batched(const Stacked& in) const override {
    return batched_by(in, [](auto&&... a) { return min(a...); });
  }
};

struct SumToLike : Op {
  SumToLike()
      : Op({.kind = OpKind::reduction,
            .linearity = Linearity::first,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "sum_to_like"; }
  std::optional<Folding> folding(const InputSpecs& in) const override {
    Folding f{Fold::sum, {}};
    const Shape &from = in[0]->shape, &to = in[1]->shape;
    const size_t added = from.rank() - to.rank();
    for (size_t i = 0; i < from.rank(); ++i)
      if (i < added || to.dims()[i - added] != from.dims()[i]) f.axes.push_back(static_cast<int64_t>(i));
    return f;
  }
  /// A sum that keeps all axes.
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec&) const override {
    std::vector<bool> gone(in[0]->shape.rank(), false);
    const Folding summed = *folding(in);
    if (summed.axes.empty()) return {};
    for (const int64_t axis : summed.axes) gone[static_cast<size_t>(axis)] = true;
    return {.op = make_op("sum", {{"axes", moved_axes(gone)}, {"keep_dims", true}}), .inputs = 1};
  }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return *in.specs[0] == out ? std::optional<size_t>(0) : std::nullopt;
  }
  Specs infer(const InputSpecs& in) const override {
    if (in[1]->shape.rank() > in[0]->shape.rank() ||
        !(broadcast(in[1]->shape, in[0]->shape, name()) == in[0]->shape))
      throw ShapeError(
          fmt::format("sum_to_like: {} cannot be broadcast from {}", in[0]->shape.str(), in[1]->shape.str()));
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    reduce_sum(*call.inputs[0], broadcast_layout(Layout(out.shape()), call.inputs[0]->shape()), out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {broadcast_like(rule.output_gradient(), rule.input(0)), Variable()};
  }
};

struct CountRatio : Op {
  CountRatio() : Op({.reads = InputSet::none(), .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "count_ratio"; }
  Specs infer(const InputSpecs& in) const override { return {{in[0]->dtype, Shape()}}; }
  void run_cpu(const KernelCall& call) const override {
    const double ratio = ratio_of(call);
    visit(call.outputs[0]->dtype(),
          [&]<class T>(TypeTag<T>) { *detail::output<T>(call) = static_cast<T>(ratio); });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }

 private:
  static double ratio_of(const KernelCall& call) {
    return static_cast<double>(call.inputs[0]->elements()) / static_cast<double>(call.inputs[1]->elements());
  }
};

struct NumberOrZero {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return x == x ? x : T(0);
  }
};

template <class T>
OpPtr remade(AttributeReader& a) {
  return std::make_shared<T>(a.integers("axes"), a.flag("keep_dims"));
}

template <class T>
Variable reduce(const Operand& x, const Axes& axes, bool keep_dims) {
  return apply(kept_op<T>(axes.list(), keep_dims), {&x.variable()}, x.where());
}

}  // namespace

Variable sum(const Operand& x, const Axes& axes, bool keep_dims) { return reduce<Sum>(x, axes, keep_dims); }
Variable mean(const Operand& x, const Axes& axes, bool keep_dims) { return reduce<Mean>(x, axes, keep_dims); }
Variable max(const Operand& x, const Axes& axes, bool keep_dims) { return reduce<Max>(x, axes, keep_dims); }
Variable min(const Operand& x, const Axes& axes, bool keep_dims) { return reduce<Min>(x, axes, keep_dims); }
Variable sum_mapped(Mapping mapping, FunctionRef<Variable(const Variable&)> f, const Variable& x,
                    const Axes& axes, bool keep_dims) {
  if (!is_eager_on_cpu(x)) return sum(f(x), axes, keep_dims);
  const Variable mapped = [&] {
    const ValuesLater later;
    return f(x);
  }();
  const auto compute = [&](Tensor& out) {
    const Tensor in = x.value();
    const Layout seen =
        broadcast_layout(Layout(reduced_shape(in.shape(), axes.list(), true, "sum")), in.shape());
    visit(in.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) switch (mapping) {
          case Mapping::square: return reduce_sum_of<T, scalar::Square>(in, seen, out);
          case Mapping::magnitude: return reduce_sum_of<T, scalar::Abs>(in, seen, out);
          case Mapping::number: return reduce_sum_of<T, NumberOrZero>(in, seen, out);
        }
    });
  };
  return apply_by(compute, std::make_shared<Sum>(axes.list(), keep_dims), {&mapped},
                  std::source_location::current());
}
Variable sum_of_pairs(const Variable& x, const Variable& y, const Axes& axes) {
  const size_t rank = x.rank();
  const auto gone = axes.mask(std::max(rank, y.rank()), "sum");
  const auto summed = static_cast<size_t>(std::count(gone.begin(), gone.end(), true));
  const bool all = summed == rank, last = summed == 1 && rank > 0 && gone[rank - 1];
  if (!(x.shape() == y.shape()) || !(all || last) || !is_eager_on_cpu(x) || !is_eager_on_cpu(y) ||
      (x.dtype() != float32 && x.dtype() != float64))
    return sum(x * y, axes);
  const Variable products = [&] {
    const ValuesLater later;
    return x * y;
  }();
  const auto compute = [&](Tensor& out) {
    const Tensor a = x.value().contiguous_copy(), b = y.value().contiguous_copy();
    const int64_t rows = out.elements(), n = a.elements() / std::max<int64_t>(rows, 1);
    visit(a.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (std::is_floating_point_v<T>)
        detail::sum_products(static_cast<const T*>(a.address()), static_cast<const T*>(b.address()), rows, n,
                             static_cast<T*>(out.address()));
    });
  };
  return apply_by(compute, std::make_shared<Sum>(axes.list(), false), {&products},
                  std::source_location::current());
}
Variable sum_to_like(const Variable& x, const Variable& like) {
  return apply(shared_op<SumToLike>(), {&x, &like}, std::source_location::current());
}
Variable count_ratio(const Variable& a, const Variable& b) {
  return apply(shared_op<CountRatio>(), {&a, &b}, std::source_location::current());
}

void add_reduce_ops(OpRegistry& ops) {
  ops.add<SumToLike, CountRatio>(2);
  ops.add("sum", 1, remade<Sum>);
  ops.add("mean", 1, remade<Mean>);
  ops.add("max", 1, remade<Max>);
  ops.add("min", 1, remade<Min>);
}

}  // namespace espalier
