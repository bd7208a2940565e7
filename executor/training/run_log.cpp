#include "espalier/executor/training/run_log.h"

namespace espalier {

RunState RunLog::state_now() const {
  RunLog now = *this;
  now.follow_feeds();
  return now.state_;
}

void RunLog::begin_run() {
  if (!std::exchange(resumed_, false)) {
    // Rows of an epoch that was ended midway have been seen: the next one has another order.
    if (state_.step > 0 && epochs_ == feeds_.epochs()) feeds_.next_epoch();
    state_ = {};
    reset_epoch();
  }
  follow_feeds();
}

void RunLog::resume(RunState state) {
  state_ = std::move(state);
  epochs_ = feeds_.epochs();
  resumed_ = true;
}

void RunLog::follow_feeds() {
  if (epochs_ != feeds_.epochs()) reset_epoch();
}

void RunLog::add_step(int64_t samples) {
  samples_.push_back(samples);
  ++state_.step;
  state_.record.samples += samples;
}

void RunLog::add_losses(std::span<const double> losses) {
  for (size_t i = 0; i < samples_.size(); ++i) {
    const auto samples = static_cast<double>(samples_[i]);
    const double* numbers_of_step = &losses[i * numbers()];
    state_.record.loss_sum += *numbers_of_step;
    state_.weighted += *numbers_of_step * samples;
    for (size_t k = 0; k < state_.weighted_outputs.size(); ++k)
      state_.weighted_outputs[k] += numbers_of_step[1 + k] * samples;
  }
  samples_.clear();
}

void RunLog::set_validation(std::span<const double> means) {
  state_.record.validation_loss = means[0];
  add_figures(state_.record.validation_outputs, means.subspan(1));
}

EpochRecord RunLog::record_now() const {
  EpochRecord record = state_.record;
  record.loss_mean = record.samples ? state_.weighted / static_cast<double>(record.samples) : 0;
  std::vector<double> means = state_.weighted_outputs;
  for (double& mean : means) mean = record.samples ? mean / static_cast<double>(record.samples) : 0;
  add_figures(record.outputs, means);
  return record;
}

void RunLog::add_figures(std::map<std::string, double>& outputs, std::span<const double> means) const {
  for (const EpochFigure& figure : figures_) {
    outputs[figure.name] = figure.of(means.first(figure.numbers));
    means = means.subspan(figure.numbers);
  }
}

const EpochRecord& RunLog::finish_epoch() {
  state_.history.epochs.push_back(record_now());
  feeds_.next_epoch();
  reset_epoch();
  return state_.history.epochs.back();
}

void RunLog::reset_epoch() {
  state_.record = {};
  state_.weighted = 0;
  state_.weighted_outputs.assign(count_numbers(figures_), 0);
  state_.step = 0;
  state_.begun = false;
  epochs_ = feeds_.epochs();
}

}  // namespace espalier
