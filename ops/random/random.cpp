// Ops that draw random numbers, and constants in the shape of another Variable.
#include <algorithm>
#include <bit>
#include <cmath>

#include "espalier/core/countable.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/device.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/element_bits.h"
#include "espalier/ops/elementwise/random_slopes.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/random/random_op.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// A constant in the shape of the input.
class FullLike : public Op, public Batchable {
 public:
  explicit FullLike(double value)
      : Op({.takes_halves = true,
            .reads = InputSet::none(),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true,
            .fill = value}),
        value_(value) {}
  std::string_view name() const override { return "full_like"; }
  Attributes attributes() const override { return {{"value", value_}}; }
  Specs infer(const InputSpecs& in) const override {
    const DType dtype = in[0]->dtype;
    if (!is_real(dtype) && !has_number(dtype, value_))
      throw TypeError(
          fmt::format("full_like: {} is not a value of {}", value_, espalier::name(in[0]->dtype)));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    visit_size(out.dtype(), [&]<class T>(TypeTag<T>) {
      std::fill_n(detail::output<T>(call), out.elements(), element_bits<T>(value_, out.dtype()));
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
  Gradients batched(const Stacked& in) const override {
    const Variable x = in.stacked(0);
    return {apply(in.op(), {&x}, std::source_location::current())};
  }
  bool equals(const Op& other) const override {  // −0 is another number than 0
    const auto* like = dynamic_cast<const FullLike*>(&other);
    return like && std::bit_cast<uint64_t>(like->value_) == std::bit_cast<uint64_t>(value_);
  }

 private:
  double value_;
};

OpPtr full_like_op(double value) {
  if (std::isnan(value) || (value == 0 && std::signbit(value))) return std::make_shared<FullLike>(value);
  return kept_op<FullLike>(value);
}

/// Calls `f` with the elements of the output, floats or doubles, and their number.
template <class F>
void visit_output(const KernelCall& call, F&& f) {
  const int64_t n = call.outputs[0]->elements();
  if (call.outputs[0]->dtype() == DType::float32)
    f(detail::output<float>(call), n);
  else
    f(detail::output<double>(call), n);
}

struct StandardNormal {
  static constexpr std::string_view name = "normal", like_name = "randn_like";
  template <class T>
  static void fill(const RandomStream& random, T* out, int64_t n) {
    fill_normal(random, out, n, 0, 1);
  }
};
struct UnitUniform {
  static constexpr std::string_view name = "uniform", like_name = "rand_like";
  template <class T>
  static void fill(const RandomStream& random, T* out, int64_t n) {
    fill_uniform(random, out, n, 0, 1);
  }
};

/// Numbers in the shape of the input.
template <class Distribution>
struct DrawLike : RandomOp {
  std::string_view name() const override { return Distribution::like_name; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    visit_output(call, [&](auto* out, int64_t n) { Distribution::fill(call.random, out, n); });
  }
};

/// Numbers of training alone: in inference their mean stands for them.
struct DrawInTraining : DrawLike<UnitUniform> {
  std::string_view name() const override { return "rand_in_training_like"; }
  std::shared_ptr<const Op> for_inference() const override { return std::make_shared<FullLike>(0.5); }
};

/// Numbers in a shape of its own.
template <class Distribution>
class Draw : public RandomOp {
 public:
  Draw(Spec spec, Device device)
      : RandomOp(InputSet::none(), device), spec_(std::move(spec)), device_(device) {}
  std::string_view name() const override { return Distribution::name; }
  Attributes attributes() const override {
    return {{"shape", std::vector<int64_t>(spec_.shape.begin(), spec_.shape.end())},
            {"dtype", std::string(espalier::name(spec_.dtype))},
            {"device", device_.str()}};
  }
  Specs infer(const InputSpecs&) const override {
    check_countable(spec_.shape, name());
    check_dtype<Reals>(spec_, name());
    return {spec_};
  }
  void run_cpu(const KernelCall& call) const override {
    visit_output(call, [&](auto* out, int64_t n) { Distribution::fill(call.random, out, n); });
  }

 private:
  Spec spec_;
  Device device_;
};

template <class T>
void check_probabilities(const Tensor& p) {
  const T* at = static_cast<const T*>(p.address());
  const StridedLoop<1> loop(p.shape(), {&p.strides()});
  loop.run([&](int64_t n, std::array<int64_t, 1> from, std::array<int64_t, 1> step) {
    const T* row = at + from[0];
    int64_t outside = 0;
    for (int64_t i = 0; i < n; ++i) outside += !(row[i * step[0]] >= 0 && row[i * step[0]] <= 1);
    if (outside == 0) return;
    for (int64_t i = 0; i < n; ++i)
      if (const T x = row[i * step[0]]; !(x >= 0 && x <= 1))
        throw Error(fmt::format("bernoulli: {} is not a probability, from 0 to 1", x));
  });
}

/// 1 where a uniform number is below the probability.
struct Bernoulli : RandomOp {
  Bernoulli() : RandomOp(InputSet::all()) {}
  std::string_view name() const override { return "bernoulli"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    visit_output(call, [&]<class T>(T* out, int64_t n) {
      check_probabilities<T>(*call.inputs[0]);
      fill_uniform(call.random, out, n, 0, 1);
      KernelCall compare;
      compare.inputs = {call.outputs[0], call.inputs[0]};
      compare.outputs = {call.outputs[0]};
      run_rows(compare, detail::binary_row<Below, T, T>);
    });
  }

 private:
  struct Below {
    template <class T>
    ESPALIER_HD T operator()(T number, T probability) const {
      return number < probability ? T(1) : T(0);
    }
  };
};

/// 1 / (1 - rate) with probability 1 - rate, and 0 elsewhere, in the shape of the input. Srivastava et al.
/// 2014.
class DropoutMask : public RandomOp {
 public:
  explicit DropoutMask(double rate) : rate_(rate) {}
  std::string_view name() const override { return "dropout_mask"; }
  Attributes attributes() const override { return {{"rate", rate_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], "dropout");
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const double keep = 1 - rate_;
    visit_output(call, [&]<class T>(T* out, int64_t n) {
      fill_bernoulli(call.random, out, n, keep, static_cast<T>(1 / keep));
    });
  }
  std::shared_ptr<const Op> for_inference() const override { return std::make_shared<FullLike>(1.0); }

 private:
  double rate_;
};

bool is_dropout_rate(double rate) { return rate >= 0 && rate < 1; }

template <class Distribution>
Variable draw(const Shape& shape, DType dtype, Device device, const std::source_location& where) {
  return located(where, [&] {
    (void)backend(device);  // throws where there is none
    return apply(std::make_shared<Draw<Distribution>>(Spec{dtype, shape}, device),
                 std::span<const Variable* const>(), where);
  });
}

template <class Distribution>
void add_draws(OpRegistry& ops) {
  ops.add<DrawLike<Distribution>>(1);
  ops.add(Distribution::name, 0, [](AttributeReader& a) {
    Spec spec{a.dtype("dtype"), a.shape("shape")};
    return std::make_shared<Draw<Distribution>>(std::move(spec), a.device("device"));
  });
}

}  // namespace

Variable full_like(const Operand& x, const Operand& value) {
  if (value.is_number() && !(std::abs(value.number()) >= 0x1p53))
    return apply(full_like_op(value.number()), {&x.variable()}, x.where());
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& like = x.defined("full_like");
    // A double does not have all integers from 2^53 on: they are repeated.
    const bool repeats = like.dtype() == DType::int64 && std::abs(value.number()) <= 0x1p63;
    if (value.is_number() && !repeats) return apply(full_like_op(value.number()), {&like}, x.where());
    const Variable& scalar = value.is_number() ? value.like(like) : value.defined("full_like");
    check_same_dtype({like.dtype(), like.shape()}, {scalar.dtype(), scalar.shape()}, "full_like");
    if (scalar.rank() > 0)
      throw ShapeError(
          fmt::format("full_like: the value is a scalar, not of shape {}", scalar.shape().str()));
    return broadcast_like(scalar, like);
  });
}
Variable zeros_like(const Operand& x) { return full_like(x, 0); }
Variable ones_like(const Operand& x) { return full_like(x, 1); }

Variable randn_like(const Operand& x) { return apply_unary<DrawLike<StandardNormal>>(x); }
Variable rand_like(const Operand& x) { return apply_unary<DrawLike<UnitUniform>>(x); }
Variable rand_in_training_like(const Variable& x) { return apply_unary<DrawInTraining>(x); }
Variable bernoulli(const Operand& p) { return apply_unary<Bernoulli>(p); }
Variable normal(const Shape& shape, DType dtype, Device device, std::source_location where) {
  return draw<StandardNormal>(shape, dtype, device, where);
}
Variable uniform(const Shape& shape, DType dtype, Device device, std::source_location where) {
  return draw<UnitUniform>(shape, dtype, device, where);
}
Variable bernoulli(double p, const Shape& shape, DType dtype, Device device, std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    if (!(p >= 0 && p <= 1)) throw Error(fmt::format("bernoulli: the probability {} is not in [0, 1]", p));
    check_countable(shape, "bernoulli");
    const DType drawn = dtype == float64 ? float64 : float32;
    return cast(less(draw<UnitUniform>(shape, drawn, device, where), p), dtype);
  });
}

Variable dropout(const Operand& x, double rate) {
  const CallScope scope(x.where());
  if (!is_dropout_rate(rate))
    located(x.where(), [&] { throw Error(fmt::format("dropout: the rate {} is not in [0, 1)", rate)); });
  if (rate == 0) return x.variable();
  const Variable mask = apply(std::make_shared<DropoutMask>(rate), {&x.variable()}, x.where());
  return x.variable() * mask;
}

void add_random_ops(OpRegistry& ops) {
  add_draws<StandardNormal>(ops);
  add_draws<UnitUniform>(ops);
  ops.add<Bernoulli, DrawInTraining>(1);
  ops.add("full_like", 1, [](AttributeReader& a) { return std::make_shared<FullLike>(a.real("value")); });
  ops.add("dropout_mask", 1, [](AttributeReader& a) {
    const double rate = a.real("rate");
    if (!is_dropout_rate(rate)) a.refuse("rate");
    return std::make_shared<DropoutMask>(rate);
  });
}

}  // namespace espalier
