#include "espalier/core/check_gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;
/// Variables whose elements, all added up, are the number that is differentiated.
using Terms = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

/// Fixed numbers in ±[0.5, 1.5): none is near zero, so that every element counts.
Tensor weights(const Shape& shape, uint64_t which) {
  Tensor result(shape, float64);
  fill_uniform(RandomStream{0x6573'7061'6c69'6572, which}, result.data<double>(), result.elements(), -1.0,
               1.0);
  for (double& w : result.span<double>()) w += w < 0 ? -0.5 : 0.5;
  return result;
}

std::vector<Variable> leaves(const std::vector<Tensor>& inputs) {
  std::vector<Variable> list;
  for (const Tensor& input : inputs) list.push_back(variable(input));
  return list;
}

bool is_made_of(const Variable& y, const Variable& x) {
  TreeWalk walk(y.node());
  while (const Node* node = walk.next()) {
    if (node == x.node()) return true;
    walk.enter_inputs(*node);
  }
  return false;
}

double total(const std::vector<Variable>& terms) {
  double sum = 0;
  for (const Variable& term : terms) {
    const Tensor value = term.value().to(cpu()).contiguous_copy();
    for (double x : value.span<double>()) sum += x;
  }
  return sum;
}

class Checker {
 public:
  Checker(const CheckGradientOptions& options, std::vector<Tensor> inputs)
      : options_(options), inputs_(std::move(inputs)) {}

  void check(const char* which, const Terms& terms) {
    const double once = total(terms(leaves(inputs_))), again = total(terms(leaves(inputs_)));
    if (once != again && !(std::isnan(once) && std::isnan(again))) {
      record(std::numeric_limits<double>::infinity(),
             fmt::format("{}: the function gives {} and then {} for the same inputs", which, once, again));
      return;
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor by_rule = gradient(terms, i);
      if (!(by_rule.shape() == inputs_[i].shape())) {
        record(std::numeric_limits<double>::infinity(),
               fmt::format("{}: the gradient of input {} has shape {}, not {}", which, i,
                           by_rule.shape().str(), inputs_[i].shape().str()));
        continue;
      }
      for (int64_t k = 0; k < inputs_[i].elements(); ++k)
        compare(which, i, k, by_rule.span<double>()[static_cast<size_t>(k)], difference(terms, i, k));
    }
  }

  CheckResult result() { return std::move(result_); }

 private:
  Tensor gradient(const Terms& terms, size_t i) const {
    const std::vector<Variable> at = leaves(inputs_);
    Tensor sum = zeros(inputs_[i].shape(), float64);
    for (const Variable& term : terms(at)) {
      if (!is_made_of(term, at[i])) continue;
      const Tensor part = term.gradient(at[i]).value().to(cpu()).contiguous_copy();
      if (!(part.shape() == sum.shape())) return part;
      for (int64_t k = 0; k < sum.elements(); ++k) sum.data<double>()[k] += part.data<double>()[k];
    }
    return sum;
  }

  double difference(const Terms& terms, size_t i, int64_t k) {
    auto at = [&](double x) {
      std::vector<Tensor> moved = inputs_;
      moved[i] = moved[i].clone();
      moved[i].data<double>()[k] = x;
      return total(terms(leaves(moved)));
    };
    const double x = inputs_[i].data<double>()[k], step = options_.step * std::max(1.0, std::abs(x));
    const double above = x + step, below = x - step;  // rounded: what they really differ by is above - below
    return (at(above) - at(below)) / (above - below);
  }

  void compare(const char* which, size_t i, int64_t k, double by_rule, double by_difference) {
    double error =
        std::abs(by_rule - by_difference) / (1 + std::max(std::abs(by_rule), std::abs(by_difference)));
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    record(error,
           fmt::format(
               "{}: input {} of shape {}, element {}: the gradient says {:.10g}, differences say {:.10g}",
               which, i, inputs_[i].shape().str(), k, by_rule, by_difference));
  }

  void record(double error, std::string message) {
    if (error > options_.tolerance && (result_.passed || error > result_.max_error)) {
      result_.passed = false;
      result_.message = std::move(message);
    }
    result_.max_error = std::max(result_.max_error, error);
  }

  CheckGradientOptions options_;
  std::vector<Tensor> inputs_;
  CheckResult result_;
};

void validate(const std::vector<Tensor>& inputs, const CheckGradientOptions& options) {
  if (options.order != 1 && options.order != 2)
    throw Error(fmt::format("check_gradient: order is 1 or 2, not {}", options.order));
  if (!(options.step > 0) || !(options.tolerance >= 0))
    throw Error(fmt::format("check_gradient: step {} and tolerance {} must be positive", options.step,
                            options.tolerance));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined() || inputs[i].dtype() != float64)
      throw TypeError(fmt::format("check_gradient: input {} must be float64, not {}", i,
                                  inputs[i].defined() ? name(inputs[i].dtype()) : "undefined"));
}

}  // namespace

CheckResult check_gradient(const Function& f, const std::vector<Tensor>& inputs, CheckGradientOptions options,
                           std::source_location where) {
  return located(where, [&] {
    validate(inputs, options);
    const BuildScope plain{BuildContext{}};  // a NoGrad of the caller's would leave nothing to check
    std::vector<Tensor> host;
    for (const Tensor& input : inputs) host.push_back(input.to(cpu()).contiguous_copy());

    const Terms value = [&](const std::vector<Variable>& x) {
      const Variable y = f(x);
      if (y.dtype() != float64)
        throw TypeError(
            fmt::format("check_gradient: the function must give float64, not {}", name(y.dtype())));
      return std::vector<Variable>{y * weights(y.shape(), 0)};
    };
    const Terms first_derivatives = [&](const std::vector<Variable>& x) {
      std::vector<Variable> terms;
      const Variable y = value(x)[0];
      for (size_t i = 0; i < x.size(); ++i)
        if (is_made_of(y, x[i])) terms.push_back(y.gradient(x[i]) * weights(x[i].shape(), i + 1));
      return terms;
    };
    Checker checker(options, std::move(host));
    checker.check("first derivative", value);
    if (options.order == 2) checker.check("second derivative", first_derivatives);
    return checker.result();
  });
}

}  // namespace espalier
