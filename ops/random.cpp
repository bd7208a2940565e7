// Ops that draw random numbers, and constants in the shape of another Variable.
#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// A constant in the shape of the input.
class FullLike : public Op {
 public:
  explicit FullLike(double value)
      : Op({.reads = InputSet::none(), .gradient_reads = InputSet::none(), .fill = value}), value_(value) {}
  std::string_view name() const override { return "full_like"; }
  Attributes attributes() const override { return {{"value", value_}}; }
  Specs infer(const InputSpecs& in) const override {
    const bool fits = is_real(in[0]->dtype) || visit(in[0]->dtype, [&]<class T>(TypeTag<T>) {
                        return static_cast<double>(scalar::Cast<T>()(value_)) == value_;
                      });
    if (!fits)
      throw TypeError(
          fmt::format("full_like: {} is not a value of {}", value_, espalier::name(in[0]->dtype)));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    visit(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
      std::fill_n(detail::output<T>(call), call.outputs[0]->elements(), scalar::Cast<T>()(value_));
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  double value_;
};

/// 1 / (1 - rate) with probability 1 - rate, and 0 elsewhere, in the shape of the input. Srivastava et al.
/// 2014.
class DropoutMask : public Op {
 public:
  explicit DropoutMask(double rate)
      : Op({.effect = Effect::random, .reads = InputSet::none(), .gradient_reads = InputSet::none()}),
        rate_(rate) {}
  std::string_view name() const override { return "dropout_mask"; }
  Attributes attributes() const override { return {{"rate", rate_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], "dropout");
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const int64_t n = call.outputs[0]->elements();
    const double keep = 1 - rate_;
    if (call.outputs[0]->dtype() == DType::float32)
      fill_bernoulli(call.random, detail::output<float>(call), n, keep, static_cast<float>(1 / keep));
    else
      fill_bernoulli(call.random, detail::output<double>(call), n, keep, 1 / keep);
  }
  std::shared_ptr<const Op> for_inference() const override { return std::make_shared<FullLike>(1.0); }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  double rate_;
};

bool is_dropout_rate(double rate) { return rate >= 0 && rate < 1; }

}  // namespace

Variable full_like(const Operand& x, double value) {
  return apply(std::make_shared<FullLike>(value), {&x.variable()}, x.where());
}
Variable zeros_like(const Operand& x) { return full_like(x, 0); }
Variable ones_like(const Operand& x) { return full_like(x, 1); }

Variable dropout(const Operand& x, double rate) {
  const CallScope scope(x.where());
  if (!is_dropout_rate(rate))
    located(x.where(), [&] { throw Error(fmt::format("dropout: the rate {} is not in [0, 1)", rate)); });
  if (rate == 0) return x.variable();
  const Variable mask = apply(std::make_shared<DropoutMask>(rate), {&x.variable()}, x.where());
  return x.variable() * mask;
}

void add_random_ops(OpRegistry& ops) {
  ops.add("full_like", [](AttributeReader& a) { return std::make_shared<FullLike>(a.real("value")); });
  ops.add("dropout_mask", [](AttributeReader& a) {
    const double rate = a.real("rate");
    if (!is_dropout_rate(rate)) a.refuse("rate");
    return std::make_shared<DropoutMask>(rate);
  });
}

}  // namespace espalier
