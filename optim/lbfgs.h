// L-BFGS, for functions whose every gradient is exact, such as losses over all data.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <source_location>

#include "espalier/core/variable.h"
#include "espalier/optim/parameter_list.h"

namespace espalier::optim {

struct LbfgsOptions {
  double lr = 1;                ///< the first step that is tried along a direction
  int64_t max_iterations = 20;  ///< directions in one call of `step`
  int64_t max_evaluations = 0;  ///< of the loss in one call of `step`; 0: five quarters of `max_iterations`
  double tolerance_gradient = 1e-7;  ///< stops where no element of the gradient is larger
  double tolerance_change = 1e-9;    ///< stops where neither an element nor the loss changes by more
  int64_t history = 100;             ///< pairs of changes from which the curvature is estimated
  bool line_search = true;  ///< steps fulfil the strong Wolfe conditions; false: all are of length `lr`
};

/// L-BFGS (Nocedal 1980; Nocedal and Wright, Numerical optimization, 2006, algorithm 7.5, in PyTorch's form).
/// It evaluates the loss several times in a step, so it is no Optimizer but has a loop of its own:
///
///     optim::Lbfgs lbfgs(net.parameters());
///     for (int i = 0; i < 10; ++i) lbfgs.step([&] { return mean(square(net(x) - y)); });
///
/// The parameters must be on one device. Frozen ones, and those that the loss is not made of, stay as they
/// are.
class Lbfgs {
 public:
  /// Throws Error for invalid options, and if there are no parameters; DeviceError if they are on several
  /// devices.
  Lbfgs(const ParameterList& parameters, const LbfgsOptions& options = {},
        std::source_location where = std::source_location::current());

  /// Writes the loss anew at each call: a scalar over the present values of the parameters. Downstream of a
  /// feed it must be at one batch during a step.
  using Closure = std::function<Variable()>;
  /// Takes up to `max_iterations` steps and returns the loss before them. Throws Error if the closure's
  /// result is no scalar or made of none of the parameters, and NumericError if loss or gradient are not
  /// finite where a step begins; the line search keeps away from such points. If it throws, the parameters
  /// and this are as they were.
  double step(const Closure& closure, std::source_location where = std::source_location::current());

  /// The number of directions so far, and of evaluations of the loss.
  int64_t iterations() const;
  int64_t evaluations() const;
  double learning_rate() const { return options_.lr; }
  /// Throws Error if it is negative or not finite.
  void set_learning_rate(double lr, std::source_location where = std::source_location::current());

  /// Writes the state as safetensors; `load` goes on with it bit by bit, if the parameters have the values of
  /// then. Throws FileError; `load`, also if it is no such file, or for parameters of other sizes. Nothing
  /// has changed then.
  void save(const std::filesystem::path& file,
            std::source_location where = std::source_location::current()) const;
  void load(const std::filesystem::path& file, std::source_location where = std::source_location::current());

 private:
  struct Memory;
  struct Run;

  std::vector<Variable> parameters_;
  LbfgsOptions options_;
  std::shared_ptr<const Memory> memory_;
};

}  // namespace espalier::optim
