// Slices with steps.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/view_op.h"

namespace espalier {

namespace {

/// Positions begin, begin + step, … of one axis, as a user names them.
struct Steps {
  int64_t axis, begin, end, step;

  /// The positions in rising order: count times, from `first` on, `apart`.
  struct Rising {
    int64_t first, count, apart;
  };
  Rising of(const Shape& shape) const {
    const int64_t size = shape.dims()[resolve_axis(axis, shape.rank(), "slice")];
    const auto from_start = [&](int64_t position) { return position < 0 ? position + size : position; };
    const int64_t from = from_start(begin), open = step > 0 ? size : -1;
    const int64_t to = end == open_end ? open : from_start(end);
    const bool empty = size == 0 && end == open_end && (begin == 0 || begin == -1);
    const bool fits =
        step > 0 ? from >= 0 && from <= to && to <= size : from < size && to <= from && to >= -1 && from >= 0;
    const bool leads_away =
        step > 0 ? 0 <= to && to < from && from <= size : 0 <= from && from < to && to <= size;
    if (leads_away && !empty)
      throw IndexError(
          fmt::format("slice: no steps of {} lead from {} to {} on axis {} of shape {}; steps of "
                      "the other sign do",
                      step, begin, end, axis, shape.str()));
    if (!fits && !empty)
      throw IndexError(fmt::format("slice: {} to {} in steps of {} is outside axis {} of shape {}", begin,
                                   end == open_end ? "the end" : std::to_string(end), step, axis,
                                   shape.str()));
    if (from == to || empty) return {0, 0, 1};
    const int64_t apart = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
    const int64_t count = ((step > 0 ? to - from : from - to) - 1) / apart + 1;
    return {step > 0 ? from : from - (count - 1) * apart, count, count == 1 ? 1 : apart};
  }
  Layout layout(const Layout& in) const {
    const size_t a = resolve_axis(axis, in.shape.rank(), "slice");
    const Rising rising = of(in.shape);
    Layout out = in;
    out.shape.dims()[a] = rising.count;
    out.offset += rising.first * in.strides[a];
    out.strides[a] *= rising.apart;
    return out;
  }
  /// The shape of the elements at these positions.
  Shape shape(Shape of_all) const {
    const int64_t count = of(of_all).count;
    of_all.dims()[resolve_axis(axis, of_all.rank(), "slice")] = count;
    return of_all;
  }
  Attributes attributes() const { return {{"axis", axis}, {"begin", begin}, {"end", end}, {"step", step}}; }
};

Variable pad_steps_like(const Variable& x, const Variable& like, const Steps& steps);

/// The elements at these positions, in rising order: negative steps are turned round by flip.
struct SliceSteps : ViewOp {
  explicit SliceSteps(const Steps& steps) : steps_(steps) {}
  std::string_view name() const override { return "slice_steps"; }
  Attributes attributes() const override { return steps_.attributes(); }
  Specs infer(const InputSpecs& in) const override { return {{in[0]->dtype, steps_.shape(in[0]->shape)}}; }
  std::optional<Layout> view(const Layout& in, const Spec&) const override { return steps_.layout(in); }
  Gradients gradient(const GradientRule& rule) const override {
    return {pad_steps_like(rule.output_gradient(), rule.input(0), steps_)};
  }

 private:
  Steps steps_;
};

/// The transpose of SliceSteps: zeros in the shape of the second input, but at these positions.
class PadStepsLike : public Op {
 public:
  explicit PadStepsLike(const Steps& steps)
      : Op({.linearity = Linearity::first,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::none()}),
        steps_(steps) {}
  std::string_view name() const override { return "pad_steps_like"; }
  Attributes attributes() const override { return steps_.attributes(); }
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis == resolve_axis(steps_.axis, in[1]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    if (const Shape part = steps_.shape(in[1]->shape); !(in[0]->shape == part))
      throw ShapeError(fmt::format("{}: {} in place of {} within {}", name(), in[0]->shape.str(), part.str(),
                                   in[1]->shape.str()));
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    Tensor part(out.storage(), steps_.layout(out.layout()), out.dtype());
    copy_elements(*call.inputs[0], part);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {apply(std::make_shared<SliceSteps>(steps_), {&rule.output_gradient()},
                  std::source_location::current()),
            Variable()};
  }

 private:
  Steps steps_;
};

Variable pad_steps_like(const Variable& x, const Variable& like, const Steps& steps) {
  return apply(std::make_shared<PadStepsLike>(steps), {&x, &like}, std::source_location::current());
}

}  // namespace

Variable slice(const Operand& x, int64_t axis, int64_t begin, int64_t end, int64_t step) {
  if (step == 1) return slice(x, axis, begin, end);
  if (step == 0) located(x.where(), [] { throw Error("slice: a step of 0 goes nowhere"); });
  const Variable rising =
      apply(std::make_shared<SliceSteps>(Steps{axis, begin, end, step}), {&x.variable()}, x.where());
  return step > 0 ? rising : flip({rising, x.where()}, axis);
}

Variable slice_scatter(const Operand& x, const Operand& values, int64_t axis, int64_t begin, int64_t end,
                       int64_t step) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    if (step == 0) throw Error("slice_scatter: a step of 0 goes nowhere");
    const Variable& to = x.defined("slice_scatter");
    const Variable& given = values.is_number() ? values.like(to) : values.defined("slice_scatter");
    if (given.dtype() != to.dtype())
      throw TypeError(fmt::format("slice_scatter: values of {} for x of {}; use cast", name(given.dtype()),
                                  name(to.dtype())));
    const Steps steps{axis, begin, end, step};
    const Variable places = apply(std::make_shared<SliceSteps>(steps), {&to}, x.where());
    const Variable in_order = broadcast_like(given, places),
                   rising = step > 0 ? in_order : flip(in_order, axis);
    const Variable chosen = pad_steps_like(cast(ones_like(places), boolean), to, steps);
    return where(chosen, pad_steps_like(rising, to, steps), to);
  });
}

void add_slice_steps_ops(OpRegistry& ops) {
  const auto steps = [](AttributeReader& a) {
    Steps read{a.integer("axis"), a.integer("begin"), a.integer("end"), a.integer("step")};
    if (read.step == 0 || read.step == std::numeric_limits<int64_t>::min()) a.refuse("step");
    return read;
  };
  ops.add("slice_steps", 1, [=](AttributeReader& a) { return std::make_shared<SliceSteps>(steps(a)); });
  ops.add("pad_steps_like", 2, [=](AttributeReader& a) { return std::make_shared<PadStepsLike>(steps(a)); });
}

}  // namespace espalier
