#include "espalier/executor/kit/early_stopping.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/executor/kit/best_figure.h"

namespace espalier {

struct EarlyStopping::State {
  EarlyStoppingOptions options;
  BestFigure best;
  std::vector<std::pair<Variable, Tensor>> values;  // of the leaves after the best epoch
  std::optional<int64_t> stopped_epoch;
};

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options, Where where) {
  located(where, [&] {
    if (options.patience < 1)
      throw Error(fmt::format("EarlyStopping: the patience is {}; it must be at least 1", options.patience));
    state_ = std::make_shared<State>(
        State{options,
              BestFigure("EarlyStopping", {options.monitor, options.minimum_delta, options.maximize}),
              {},
              {}});
  });
}

void EarlyStopping::initialize(TrainingRun& run) {
  state_->values.clear();
  state_->stopped_epoch.reset();
  state_->best.begin(run);
}

void EarlyStopping::epoch_finish(TrainingRun& run) {
  State& s = *state_;
  if (s.best.add(run.epoch())) {
    if (!s.options.restore_best) return;
    std::vector<std::pair<Variable, Tensor>> values;
    for (const Variable& leaf : run.leaves()) values.emplace_back(leaf, leaf.value().clone());
    s.values = std::move(values);
  } else if (s.best.epochs_since() >= s.options.patience) {
    s.stopped_epoch = run.info().epoch;
    run.stop();
  }
}

void EarlyStopping::teardown(TrainingRun& run) {
  if (!run.failed() && state_->best.epochs_since() > 0)
    for (const auto& [leaf, value] : state_->values) set_value(leaf, value);
  state_->values.clear();
}

std::optional<int64_t> EarlyStopping::stopped_epoch() const { return state_->stopped_epoch; }
std::optional<double> EarlyStopping::best() const { return state_->best.best(); }

}  // namespace espalier
