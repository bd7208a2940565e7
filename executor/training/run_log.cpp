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
  auto before = static_cast<double>(state_.record.samples);
  for (const int64_t samples : samples_) before -= static_cast<double>(samples);
  for (size_t i = 0; i < samples_.size(); ++i) {
    const auto samples = static_cast<double>(samples_[i]);
    const std::span<const double> numbers_of_step = losses.subspan(i * numbers(), numbers());
    state_.record.loss_sum += numbers_of_step[0];
    state_.weighted += numbers_of_step[0] * samples;
    espalier::add_step(figures_, state_.weighted_outputs, before, numbers_of_step.subspan(1), samples);
    before += samples;
  }
  samples_.clear();
}

void RunLog::set_validation(const StepSums& sums) {
  const std::vector<double> means = sums.means();
  state_.record.validation_loss = means[0];
  add_figures(state_.record.validation_outputs, std::span(means).subspan(1));
  validation_.assign(sums.sums().begin() + 1, sums.sums().end());
}

std::vector<double> RunLog::sums_of(std::string_view name, bool in_validation) const {
  const std::vector<double>& sums = in_validation  ? validation_
                                    : state_.begun ? state_.weighted_outputs
                                                   : finished_;
  size_t first = 0;
  for (const EpochFigure& figure : figures_) {
    if (figure.name == name && first + figure.numbers <= sums.size())
      return {sums.begin() + static_cast<std::ptrdiff_t>(first),
              sums.begin() + static_cast<std::ptrdiff_t>(first + figure.numbers)};
    first += figure.numbers;
  }
  return {};
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
  finished_ = state_.weighted_outputs;
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
