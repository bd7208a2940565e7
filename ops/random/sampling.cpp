// Ops that draw from further distributions, one number an element.
#include "espalier/core/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/cpu/philox_words.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/creation.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/math.h"
#include "espalier/ops/functions/random.h"
#include "espalier/ops/functions/reduction.h"
#include "espalier/ops/functions/sampling.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/random/random_op.h"
#include "espalier/ops/random/sampling_ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

constexpr int64_t samples_for_a_thread = 1024;

/// Calls `f(i, words)` for each element, on several threads.
template <class F>
void each_sample(const RandomStream& random, int64_t n, F&& f) {
  parallel_for(n, samples_for_a_thread, [&](int64_t begin, int64_t end) {
    constexpr int64_t most = 128;  // blocks at a time
    uint32_t blocks[4 * most];
    for (int64_t i = begin; i < end;) {
      const int64_t of_run = random.run ? random.run - i % random.run : most;
      const int64_t count = std::min({most, end - i, of_run});
      const auto number =
          static_cast<unsigned long long>(sampling::number_of(i, random.first, random.run, random.stride));
      detail::philox_words(random, number, count, blocks);
      for (int64_t k = 0; k < count; ++k, ++i) {
        sampling::ElementWords words(random.seed, random.stream, number + static_cast<uint64_t>(k),
                                     blocks + 4 * k);
        f(i, words);
      }
    }
  });
}

/// Calls `f(elements)` with those of the output, floats or doubles.
template <class F>
void with_real_output(const KernelCall& call, F&& f) {
  if (call.outputs[0]->dtype() == DType::float32)
    f(detail::output<float>(call));
  else
    f(detail::output<double>(call));
}

/// A distribution with one parameter for each element.
template <class Distribution>
struct DrawBy : RandomOp {
  DrawBy() : RandomOp(InputSet::all()) {}
  std::string_view name() const override { return sampling_name<Distribution>; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor parameters = call.inputs[0]->contiguous_copy();
    with_real_output(call, [&]<class T>(T* out) {
      const T* parameter = static_cast<const T*>(parameters.address());
      each_sample(call.random, parameters.elements(), [&](int64_t i, sampling::ElementWords& words) {
        const auto value = static_cast<double>(parameter[i]);
        if (!Distribution::accepts(value))
          throw Error(fmt::format("{}: {} is no parameter of this distribution", name(), value));
        out[i] = static_cast<T>(Distribution()(value, words));
      });
    });
  }
};

class TruncatedNormalLike : public RandomOp {
 public:
  TruncatedNormalLike(double low, double high) : low_(low), high_(high) {}
  std::string_view name() const override { return "truncated_normal_like"; }
  Attributes attributes() const override { return {{"low", low_}, {"high", high_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    if (const auto d = truncated_normal(low_, high_); !(d.width > 0) || !(low_ < high_))
      throw Error(
          fmt::format("truncated_normal_like: the interval from {} to {} has no probability", low_, high_));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const sampling::TruncatedNormal draw = truncated_normal(low_, high_);
    with_real_output(call, [&]<class T>(T* out) {
      each_sample(call.random, call.outputs[0]->elements(),
                  [&](int64_t i, sampling::ElementWords& words) { out[i] = static_cast<T>(draw(words)); });
    });
  }

 private:
  double low_, high_;
};

class RandintLike : public RandomOp {
 public:
  RandintLike(int64_t low, int64_t high) : low_(low), high_(high) {}
  std::string_view name() const override { return "randint_like"; }
  Attributes attributes() const override { return {{"low", low_}, {"high", high_}}; }
  Specs infer(const InputSpecs& in) const override {
    if (low_ >= high_)
      throw Error(fmt::format("randint_like: there is no integer from {} to below {}", low_, high_));
    return {{DType::int64, in[0]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    const sampling::UniformInteger draw = uniform_integer(low_, high_);
    int64_t* out = detail::output<int64_t>(call);
    each_sample(call.random, call.outputs[0]->elements(),
                [&](int64_t i, sampling::ElementWords& words) { out[i] = draw(words); });
  }

 private:
  int64_t low_, high_;
};

/// In 32 bits at least, and back.
template <class F>
Variable in_single(const Variable& x, F&& f) {
  return is_half(x.dtype()) ? cast(f(cast(x, float32)), x.dtype()) : f(x);
}

Variable exponential_numbers(const Variable& x) {
  // Where the uniform number is 0, the mean of those that are rounded to it.
  const double least = x.dtype() == float64 ? 0x1p-54 : 0x1p-25;
  return maximum(negative(log(1.0 - rand_like(x))), least);
}

void check_real_operand(const Variable& x, std::string_view op) {
  check_dtype<Reals>(Spec{x.dtype(), x.shape()}, op);
}

}  // namespace

sampling::TruncatedNormal truncated_normal(double low, double high) {
  const bool mirrored = low > 0;
  if (mirrored) {
    const double end = -low;
    low = -high;
    high = end;
  }
  const auto below = [](double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); };
  return {low, high, below(low), below(high) - below(low), mirrored};
}
sampling::UniformInteger uniform_integer(int64_t low, int64_t high) {
  return {low, static_cast<unsigned long long>(high) - static_cast<unsigned long long>(low)};
}

Variable randint_like(const Operand& x, int64_t low, int64_t high) {
  return apply(std::make_shared<RandintLike>(low, high), {&x.variable()}, x.where());
}
Variable truncated_normal_like(const Operand& x, double low, double high) {
  return apply(std::make_shared<TruncatedNormalLike>(low, high), {&x.variable()}, x.where());
}
Variable poisson(const Operand& mean) { return apply_unary<DrawBy<sampling::Poisson>>(mean); }
Variable gamma(const Operand& concentration) { return apply_unary<DrawBy<sampling::Gamma>>(concentration); }

Variable exponential_like(const Operand& x) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& like = x.defined("exponential_like");
    check_real_operand(like, "exponential_like");
    return in_single(like, exponential_numbers);
  });
}

Variable categorical(const Operand& logits) {
  const CallScope scope(logits.where());
  return located(logits.where(), [&] {
    const Variable& given = logits.defined("categorical");
    check_real_operand(given, "categorical");
    if (given.rank() == 0) throw ShapeError("categorical: takes logits along the last axis, not a scalar");
    if (given.shape()[-1] == 0)
      throw ShapeError(
          fmt::format("categorical: logits of shape {} have no class to draw", given.shape().str()));
    const Variable x = is_half(given.dtype()) ? cast(given, float32) : given;
    // Of exponential numbers with the rates exp(logits), each is the smallest with its probability.
    return argmax(x - log(exponential_numbers(x)), -1);
  });
}

void add_sampling_ops(OpRegistry& ops) {
  ops.add<DrawBy<sampling::Poisson>, DrawBy<sampling::Gamma>>(1);
  ops.add("truncated_normal_like", 1, [](AttributeReader& a) {
    return std::make_shared<TruncatedNormalLike>(a.real("low"), a.real("high"));
  });
  ops.add("randint_like", 1, [](AttributeReader& a) {
    return std::make_shared<RandintLike>(a.integer("low"), a.integer("high"));
  });
  ops.add("multinomial", 1, [](AttributeReader& a) {
    const int64_t count = a.integer("count", 0);
    return multinomial_op(count, a.flag("replacement"));
  });
}

}  // namespace espalier
