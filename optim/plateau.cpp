#include "espalier/optim/plateau.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

ReduceOnPlateau::ReduceOnPlateau(const Optimizer& optimizer, const PlateauOptions& o,
                                 std::source_location where)
    : optimizer_(optimizer), options_(o) {
  SettingChecks("ReduceOnPlateau", where)
      .below_one("factor", o.factor)
      .check(o.patience >= 0, "patience", static_cast<double>(o.patience))
      .not_negative("threshold", o.threshold)
      .check(o.cooldown >= 0, "cooldown", static_cast<double>(o.cooldown))
      .not_negative("min_lr", o.min_lr);
  if (optimizer.learning_rates().empty())
    located(where,
            [&] { throw Error(fmt::format("ReduceOnPlateau: {} has no setting 'lr'", optimizer.name())); });
}

bool ReduceOnPlateau::is_better(double metric) const {
  if (std::isnan(state_.best)) return !std::isnan(metric);
  const double sign = options_.maximize ? 1 : -1;
  const double least = options_.relative ? std::abs(state_.best) * options_.threshold : options_.threshold;
  const double bound = state_.best + sign * least;
  return options_.maximize ? metric > bound : metric < bound;
}

bool ReduceOnPlateau::step(double metric) {
  if (is_better(metric)) {
    state_.best = metric;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad = 0;
  }
  if (state_.bad <= options_.patience) return false;
  state_.cooldown = options_.cooldown;
  state_.bad = 0;
  return reduce();
}

bool ReduceOnPlateau::reduce() {
  bool reduced = false;
  for (const std::string& setting : optimizer_.learning_rates()) {
    const double rate = optimizer_.setting(setting);
    const double next = std::max(rate * options_.factor, options_.min_lr);
    if (next >= rate) continue;
    optimizer_.set(setting, next);
    reduced = true;
  }
  return reduced;
}

}  // namespace espalier::optim
