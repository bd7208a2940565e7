// Averages of parameters over the steps of training, with which a network often does better than with the
// last values.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/optim/optimizer.h"
#include "espalier/optim/parameter_list.h"

namespace espalier::optim {

struct EmaOptions {
  double decay = 0.999;  ///< of the average
  /// The decay of the first averages is (1 + n) / (10 + n), as long as that is less; n is their number so
  /// far.
  bool warm_up = false;
  int64_t start = 0;  ///< the number of updates before the first that is averaged
  int64_t every = 1;  ///< averages after every so many updates
};

/// An optimizer that also keeps exponential moving averages of the parameters:
///   average ← decay · average + (1 − decay) · p, and p in the first step
/// It goes wherever an Optimizer does, and changes parameters as `optimizer`, with which it shares settings
/// and states, does. Averages are further states ("moving_average") that updates write, so plans, checkpoints
/// and optimizer files have them. UseAverages lets the network compute with them. Throws Error for invalid
/// options, and if `optimizer` averages already.
class Ema : public Optimizer {
 public:
  Ema(const Optimizer& optimizer, const EmaOptions& options = {},
      std::source_location where = std::source_location::current());
};

struct SwaOptions {
  int64_t start = 0;  ///< the number of updates before the first that is averaged
  int64_t every = 1;  ///< averages after every so many updates, such as those of an epoch
};

/// The same with the mean of all values (Izmailov et al., Averaging weights leads to wider optima and better
/// generalization, 2018).
class Swa : public Optimizer {
 public:
  Swa(const Optimizer& optimizer, const SwaOptions& options = {},
      std::source_location where = std::source_location::current());
};

/// While one lives, parameters have their averages for values; then those from before. For evaluation:
///
///     optim::Ema rule(optim::Adam(1e-3));
///     …
///     {
///       const optim::UseAverages scope(rule, net.parameters());
///       std::cout << loss.forward();
///     }
///
/// The optimizer is an Ema, a Swa, Groups of them, or an Asgd. What trains the parameters meanwhile is lost.
/// Parameters that are not trained and have no average keep their values. Throws Error if another has no
/// average yet; then all are as they were.
class UseAverages {
 public:
  UseAverages(const Optimizer& optimizer, const ParameterList& parameters,
              std::source_location where = std::source_location::current());
  ~UseAverages();
  UseAverages(const UseAverages&) = delete;
  UseAverages& operator=(const UseAverages&) = delete;

  /// Keeps the averages: the destructor then changes nothing.
  void keep() { before_.clear(); }

 private:
  std::vector<std::pair<Variable, Tensor>> before_;
};

/// The average of a parameter, in its dtype. Throws Error if there is none yet.
Tensor average_of(const Optimizer& optimizer, const Variable& parameter,
                  std::source_location where = std::source_location::current());

}  // namespace espalier::optim
