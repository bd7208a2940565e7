#include "espalier/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "espalier/core/op_registry.h"
#include "espalier/ops/indices.h"
#include "espalier/ops/reduce.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

constexpr int64_t exponential_grain = detail::grain / 4;  // elements; each costs an exponential

class LogSoftmaxPick : public Op {
 public:
  explicit LogSoftmaxPick(std::string function) : function_(std::move(function)) {}
  std::string_view name() const override { return "log_softmax_pick"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    check_indices(*in[1], function_);
    // In 16 bits the logarithm of the sum would scale gradients wrongly by percents.
    const DType figures = is_half(in[0]->dtype) ? DType::float32 : in[0]->dtype;
    return {{in[0]->dtype, in[1]->shape}, {figures, Shape{in[1]->shape.elements(), 2}}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    with_indices(*call.inputs[1], n, function_, false, [&](auto label, int64_t rows) {
      visit(x.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Reals::accepts<T>) {
          const T* in = static_cast<const T*>(x.address());
          T *out = detail::output<T>(call), *figures = detail::output<T>(call, 1);
          parallel_for(rows, std::max<int64_t>(1, exponential_grain / n), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
              const T* row = in + r * n;
              const T largest = detail::extreme_row<scalar::Maximum>(row, n);
              const T log_sum = std::log(sum_of_exponentials(row, n, largest));
              out[r] = row[label(r)] - largest - log_sum;
              figures[2 * r] = largest;
              figures[2 * r + 1] = log_sum;
            }
          });
        }
      });
    });
  }

 private:
  template <class T>
  static T sum_of_exponentials(const T* row, int64_t n, T largest) {
    constexpr int64_t block = 512;
    T part[block];
    T total{};
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t count = std::min(block, n - begin);
      T* to = part;
      const T* from = row + begin;
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i) to[i] = scalar::Exp()(from[i] - largest);
      });
      total += detail::sum_row(part, count, 1);
    }
    return total;
  }

  std::string function_;
};

class LogSoftmaxPickGradient : public Op {
 public:
  explicit LogSoftmaxPickGradient(std::string function)
      : Op({.in_place = InputSet::only(0)}), function_(std::move(function)) {}
  std::string_view name() const override { return "log_softmax_pick_gradient"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy(), all = *call.inputs[3];
    const bool one =
        std::all_of(all.strides().begin(), all.strides().end(), [](int64_t s) { return s == 0; });
    const Tensor g = one ? all : all.contiguous_copy();  // the gradient of the mean is one value for all rows
    const int64_t n = x.shape()[-1];
    with_indices(*call.inputs[2], n, function_, false, [&](auto label, int64_t rows) {
      visit(x.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Reals::accepts<T>) {
          const T* in = static_cast<const T*>(x.address());
          const T *figures = detail::input<T>(call, 1), *slopes = static_cast<const T*>(g.address());
          T* out = detail::output<T>(call);
          parallel_for(rows, std::max<int64_t>(1, exponential_grain / n), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
              const T *from = in + r * n, largest = figures[2 * r], log_sum = figures[2 * r + 1];
              const T slope = slopes[one ? 0 : r];
              T* to = out + r * n;
              vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
                for (int64_t i = 0; i < n; ++i) to[i] = -slope * scalar::Exp()(from[i] - largest - log_sum);
              });
              to[label(r)] += slope;
            }
          });
        }
      });
    });
  }

 private:
  std::string function_;
};

}  // namespace

OpPtr log_softmax_pick(std::string function) { return std::make_shared<LogSoftmaxPick>(std::move(function)); }
OpPtr log_softmax_pick_gradient(std::string function) {
  return std::make_shared<LogSoftmaxPickGradient>(std::move(function));
}

void add_cross_entropy_ops(OpRegistry& ops) {
  ops.add("log_softmax_pick", Arity::passes_only(),
          [](AttributeReader& a) { return log_softmax_pick(a.text("function")); });
  ops.add("log_softmax_pick_gradient", Arity::passes_only(),
          [](AttributeReader& a) { return log_softmax_pick_gradient(a.text("function")); });
}

}  // namespace espalier
