#include "espalier/executor/kit/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier {

namespace {

const optim::Optimizer& optimizer_of_run(const TrainingRun& run, std::string_view caller) {
  if (const optim::Optimizer* optimizer = run.optimizer()) return *optimizer;
  throw Error(
      fmt::format("{}: the executor was made without an optimizer; name it: get_executor({{.optimizer "
                  "= …}})",
                  caller));
}

void check_plateau(const ReduceLROnPlateauOptions& o) {
  if (!(o.factor > 0 && o.factor < 1))
    throw Error(fmt::format("ReduceLROnPlateau: the factor is {}; it must be between 0 and 1", o.factor));
  if (o.patience < 1)
    throw Error(fmt::format("ReduceLROnPlateau: the patience is {}; it must be at least 1", o.patience));
  if (o.cooldown < 0 || !(o.minimum >= 0))
    throw Error("ReduceLROnPlateau: neither .cooldown nor .minimum can be negative");
}

}  // namespace

void LearningRateLog::initialize(TrainingRun& run) {
  const optim::Optimizer& optimizer = optimizer_of_run(run, "LearningRateLog");
  const size_t groups = optimizer.learning_rates().size();
  if (groups == 0) throw Error(fmt::format("LearningRateLog: {} has no setting 'lr'", optimizer.name()));
  rates_->assign(groups, {});
  epoch_finish(run);
}
void LearningRateLog::epoch_finish(TrainingRun& run) {
  const optim::Optimizer& optimizer = *run.optimizer();
  const std::vector<std::string> settings = optimizer.learning_rates();
  for (size_t i = 0; i < settings.size(); ++i)
    (*rates_)[i].push_back(optimizer.scheduled_learning_rate(settings[i]));
}
const std::vector<double>& LearningRateLog::rates(size_t group, Where where) const {
  return located(where, [&]() -> const std::vector<double>& {
    if (group < rates_->size()) return (*rates_)[group];
    throw IndexError(
        fmt::format("LearningRateLog: there is no group {}; the last run has {}", group, rates_->size()));
  });
}

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options, Where where)
    : options_(options), best_(located(where, [&] {
        check_plateau(options);
        return BestFigure("ReduceLROnPlateau", {options.monitor, options.minimum_delta, options.maximize});
      })) {}

void ReduceLROnPlateau::initialize(TrainingRun& run) {
  (void)optimizer_of_run(run, "ReduceLROnPlateau");
  best_.begin(run, BestFigure::Past::ignored);
  cooling_ = 0;
  // Reductions behind epochs that were done before are in the optimizer's settings already.
  for (const EpochRecord& epoch : run.history().epochs) (void)add(epoch);
}

void ReduceLROnPlateau::epoch_finish(TrainingRun& run) {
  if (!add(run.epoch())) return;
  optim::Optimizer optimizer = *run.optimizer();
  for (const std::string& setting : optimizer.learning_rates()) {
    const double rate = optimizer.setting(setting);
    const double next = std::max(rate * options_.factor, options_.minimum);
    if (next < rate) optimizer.set(setting, next);
  }
}

bool ReduceLROnPlateau::add(const EpochRecord& epoch) {
  (void)best_.add(epoch);
  if (cooling_ > 0) {
    --cooling_;
    best_.restart_count();
  }
  if (best_.epochs_since() < options_.patience) return false;
  cooling_ = options_.cooldown;
  best_.restart_count();
  return true;
}

}  // namespace espalier
