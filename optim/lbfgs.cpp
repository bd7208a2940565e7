#include "espalier/optim/lbfgs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/lbfgs_state.h"
#include "espalier/optim/rule.h"
#include "espalier/optim/strong_wolfe.h"

namespace espalier::optim {

namespace {

double product_of(const Variable& a, const Variable& b) { return sum(a * b).item(); }
double largest_element(const Variable& x) { return max(abs(x)).item(); }

Variable flat(const Variable& x, DType dtype) {
  const Variable row = reshape(x, {x.shape().elements()});
  return row.dtype() == dtype ? row : cast(row, dtype);
}

}  // namespace

/// One call of `step`.
struct Lbfgs::Run {
  const std::vector<Variable>& parameters;
  const LbfgsOptions& options;
  const Closure& closure;
  const std::source_location& where;
  Memory memory;
  DType dtype = DType::float32;

  /// The gradient at some lengths of the present step.
  std::vector<std::pair<double, Variable>> gradients;

  /// What the closure returned last, and the batch that it was evaluated for.
  Variable last;
  std::shared_ptr<const FeedSnapshot> last_batch;

  Run(const std::vector<Variable>& all, const LbfgsOptions& how, const Closure& loss, const Memory& before,
      const std::source_location& line)
      : parameters(all), options(how), closure(loss), where(line), memory(before) {
    if (std::ranges::any_of(all, [](const Variable& p) { return p.dtype() == DType::float64; }))
      dtype = DType::float64;
  }

  Variable position() const {
    const NoGrad none;
    std::vector<Variable> parts;
    for (const Variable& p : parameters) parts.push_back(flat(Variable(p.value()), dtype));
    return concat(parts);
  }
  void move_to(const Variable& position) const {
    int64_t begin = 0;
    for (const Variable& p : parameters) {
      const int64_t end = begin + p.shape().elements();
      set_value(p, position.value().slice(0, begin, end).reshape(p.shape()).to(p.dtype()));
      begin = end;
    }
  }

  /// The loss and its gradient where the parameters are.
  std::pair<double, Variable> evaluate() {
    ++memory.evaluations;
    const Variable loss = closure();
    if (!loss.defined() || loss.rank() != 0 || !is_real(loss.dtype()))
      throw Error(fmt::format("Lbfgs: the closure must return a loss, a real scalar, not {}",
                              loss.defined() ? fmt::format("{} {}", name(loss.dtype()), loss.shape().str())
                                             : "an undefined Variable"));
    const auto batch_of = [](const Variable& v) {
      return v.node()->lazy ? v.node()->rare().snapshot : std::shared_ptr<const FeedSnapshot>();
    };
    if (last.defined() && last.node() == loss.node() && batch_of(loss) == last_batch)
      throw Error(
          "Lbfgs: the closure returned the loss that it returned before, whose value belongs to the "
          "parameters of then: write the loss anew in the closure");
    const double value = loss.item();
    last = loss;
    last_batch = batch_of(loss);
    loss.backward({}, where);
    const auto known = parameter_gradients(loss);
    const NoGrad none;
    std::vector<Variable> parts;
    bool depends = false;
    for (const Variable& p : parameters) {
      const auto own =
          std::ranges::find_if(known, [&](const auto& pair) { return pair.first.node() == p.node(); });
      depends = depends || own != known.end();
      const Variable gradient =
          own == known.end() ? zeros_like(Variable(p.value())) : Variable(own->second.value());
      parts.push_back(flat(gradient, dtype));
    }
    if (!depends)
      throw Error(
          "Lbfgs: the loss is made of none of the parameters, or only of frozen ones, or was written under "
          "NoGrad");
    return {value, concat(parts)};
  }
  /// The same where a step begins, which must be finite.
  std::pair<double, Variable> evaluate_finite() {
    auto [value, gradient] = evaluate();
    const double largest = [&gradient = gradient] {
      const NoGrad none;
      return largest_element(gradient);
    }();
    if (!std::isfinite(value) || !std::isfinite(largest))
      throw NumericError(
          fmt::format("Lbfgs: in evaluation {} the loss is {}, and the largest element of its "
                      "gradient {}; the parameters are as before the step",
                      memory.evaluations, value, largest));
    return {value, gradient};
  }

  /// The direction −Hg, where H estimates the inverse Hessian from pairs of changes (the two-loop recursion).
  Variable next_direction(const Variable& gradient) {
    if (!memory.direction.defined()) return -gradient;
    const Variable y = gradient - memory.gradient, s = memory.direction * memory.length;
    const double product = product_of(y, s);
    if (product > 1e-10) {
      if (static_cast<int64_t>(memory.pairs.size()) == options.history)
        memory.pairs.erase(memory.pairs.begin());
      memory.pairs.push_back({y, s, 1 / product});
      memory.curvature_scale = product / product_of(y, y);
    }
    Variable q = -gradient;
    std::vector<double> factors(memory.pairs.size());
    for (size_t i = memory.pairs.size(); i-- > 0;) {
      const Memory::Pair& pair = memory.pairs[i];
      factors[i] = product_of(pair.change, q) * pair.inverse;
      q = q - pair.gradient_change * factors[i];
    }
    Variable direction = q * memory.curvature_scale;
    for (size_t i = 0; i < memory.pairs.size(); ++i) {
      const Memory::Pair& pair = memory.pairs[i];
      const double factor = product_of(pair.gradient_change, direction) * pair.inverse;
      direction = direction + pair.change * (factors[i] - factor);
    }
    return direction;
  }

  /// Searches along the direction, and leaves the parameters at `from`.
  LinePoint search(const Variable& from, const Variable& direction, const LinePoint& start,
                   const Variable& gradient) {
    gradients = {{0.0, gradient}};
    const auto at = [&](double t) {
      {
        const NoGrad none;
        move_to(from + direction * t);
      }
      const auto [value, gradient_there] = evaluate();
      gradients.emplace_back(t, gradient_there);
      const NoGrad none;
      return LinePoint{t, value, product_of(gradient_there, direction)};
    };
    const double largest = [&] {
      const NoGrad none;
      return largest_element(direction);
    }();
    return strong_wolfe(at, start, memory.length, largest, {.tolerance = options.tolerance_change});
  }

  double operator()() {
    double value = 0;
    Variable gradient;
    std::tie(value, gradient) = evaluate_finite();
    const double first = value;
    const int64_t most =
        options.max_evaluations > 0 ? options.max_evaluations : options.max_iterations * 5 / 4;
    const int64_t before = memory.evaluations - 1;
    const auto done = [&] {
      const NoGrad none;
      return largest_element(gradient) <= options.tolerance_gradient;
    };
    if (done()) return first;
    for (int64_t i = 1;; ++i) {
      ++memory.iterations;
      Variable direction, from = position();
      double slope = 0;
      {
        const NoGrad none;
        direction = next_direction(gradient);
        memory.length = options.lr;
        if (memory.iterations == 1) memory.length *= std::min(1.0, 1 / sum(abs(gradient)).item());
        slope = product_of(gradient, direction);
      }
      memory.direction = direction;
      memory.gradient = gradient;
      if (slope > -options.tolerance_change) break;
      const double value_before = value;
      if (options.line_search) {
        const LinePoint found = search(from, direction, {0, value, slope}, gradient);
        memory.length = found.t;
        value = found.value;
        gradient = std::ranges::find(gradients, found.t, [](const auto& pair) { return pair.first; })->second;
      }
      {
        const NoGrad none;
        move_to(from + direction * memory.length);
      }
      if (!options.line_search && i < options.max_iterations) std::tie(value, gradient) = evaluate_finite();
      if (i == options.max_iterations || memory.evaluations - before >= most || done()) break;
      const NoGrad none;
      if (largest_element(direction) * memory.length <= options.tolerance_change ||
          std::abs(value - value_before) < options.tolerance_change)
        break;
    }
    return first;
  }
};

Lbfgs::Lbfgs(const ParameterList& parameters, const LbfgsOptions& o, std::source_location where)
    : parameters_(parameters.parameters()), options_(o), memory_(std::make_shared<Memory>()) {
  located(where, [&] {
    parameters.check("Lbfgs");
    for (const Variable& p : parameters_)
      if (p.device() != parameters_[0].device())
        throw DeviceError(
            fmt::format("Lbfgs: the parameter '{}' is on {}, and '{}' on {}; all must be on one device",
                        p.node()->op().name(), p.device().str(), parameters_[0].node()->op().name(),
                        parameters_[0].device().str()));
  });
  SettingChecks("Lbfgs", where)
      .not_negative("lr", o.lr)
      .check(o.max_iterations >= 1, "max_iterations", static_cast<double>(o.max_iterations))
      .check(o.max_evaluations >= 0, "max_evaluations", static_cast<double>(o.max_evaluations))
      .not_negative("tolerance_gradient", o.tolerance_gradient)
      .not_negative("tolerance_change", o.tolerance_change)
      .check(o.history >= 1, "history", static_cast<double>(o.history));
}

double Lbfgs::step(const Closure& closure, std::source_location where) {
  return located(where, [&] {
    if (!closure) throw Error("Lbfgs: the closure is empty");
    Run run(parameters_, options_, closure, *memory_, where);
    const Variable before = run.position();
    try {
      const double loss = run();
      memory_ = std::make_shared<Memory>(std::move(run.memory));
      return loss;
    } catch (...) {
      run.move_to(before);
      throw;
    }
  });
}

int64_t Lbfgs::iterations() const { return memory_->iterations; }
int64_t Lbfgs::evaluations() const { return memory_->evaluations; }

void Lbfgs::set_learning_rate(double lr, std::source_location where) {
  SettingChecks("Lbfgs", where).not_negative("lr", lr);
  options_.lr = lr;
}

}  // namespace espalier::optim
