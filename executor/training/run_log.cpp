#include "espalier/executor/training/run_log.h"

namespace espalier {

RunState RunLog::state_now() const {
  RunLog now = *this;
  now.follow_feeds();
  return now.state_;
}

void RunLog::begin_run() {
  if (!std::exchange(resumed_, false)) {
    state_ = {};
    epochs_ = feeds_.epochs();
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
  for (size_t i = 0; i < losses.size(); ++i) {
    state_.record.loss_sum += losses[i];
    state_.weighted += losses[i] * static_cast<double>(samples_[i]);
  }
  samples_.clear();
}

const EpochRecord& RunLog::finish_epoch() {
  EpochRecord& record = state_.record;
  record.loss_mean = record.samples ? state_.weighted / static_cast<double>(record.samples) : 0;
  state_.history.epochs.push_back(record);
  feeds_.next_epoch();
  reset_epoch();
  return state_.history.epochs.back();
}

void RunLog::reset_epoch() {
  state_.record = {};
  state_.weighted = 0;
  state_.step = 0;
  state_.begun = false;
  epochs_ = feeds_.epochs();
}

}  // namespace espalier
