// RunLog: the position of a run in its epoch, the losses of its steps, and the epochs before.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/executor/training/checkpoint.h"
#include "espalier/executor/training/epoch_figure.h"
#include "espalier/executor/training/tree_feeds.h"

namespace espalier {

/// Sums over the steps of a validation, weighted by samples: of the loss, and of the numbers behind it.
class StepSums {
 public:
  explicit StepSums(const std::vector<EpochFigure>& figures)
      : figures_(figures), sums_(1 + count_numbers(figures)) {}

  void add(std::span<const double> numbers, int64_t samples) {
    const auto weight = static_cast<double>(samples);
    sums_[0] += numbers[0] * weight;
    add_step(figures_, std::span(sums_).subspan(1), static_cast<double>(samples_), numbers.subspan(1),
             weight);
    samples_ += samples;
  }
  const std::vector<double>& sums() const { return sums_; }
  std::vector<double> means() const {
    std::vector<double> means = sums_;
    for (double& mean : means) mean /= static_cast<double>(samples_);
    return means;
  }

 private:
  const std::vector<EpochFigure>& figures_;
  std::vector<double> sums_;
  int64_t samples_ = 0;
};

class RunLog {
 public:
  /// The numbers of `figures` come with each loss.
  RunLog(const TreeFeeds& feeds, const std::vector<EpochFigure>& figures)
      : feeds_(feeds), figures_(figures), epochs_(feeds.epochs()) {
    state_.weighted_outputs.assign(count_numbers(figures_), 0);
  }

  const RunState& state() const { return state_; }
  int64_t step() const { return state_.step; }
  /// Epochs that were finished in this run.
  int64_t epoch() const { return static_cast<int64_t>(state_.history.epochs.size()); }
  /// What a checkpoint holds: the position is the beginning of the epoch if a feed was reset.
  RunState state_now() const;

  /// Begins a run, unless the position of a checkpoint was set since the last one.
  void begin_run();
  void resume(RunState state);
  /// Whether the next run goes on with the position of a checkpoint.
  bool resumes() const { return resumed_; }
  /// The same position without a run that goes on: the next one begins anew.
  void place(RunState state) {
    resume(std::move(state));
    resumed_ = false;
  }
  /// Goes to the beginning of the epoch if a feed was reset.
  void follow_feeds();
  /// Whether the epoch has begun already; from now on it has.
  bool begin_epoch() {
    validation_.clear();
    return std::exchange(state_.begun, true);
  }
  /// Notes a step, whose loss becomes known later.
  void add_step(int64_t samples);
  bool has_all_losses() const { return samples_.empty(); }
  /// Notes the losses of all steps since the last call, in their order, each followed by its numbers.
  void add_losses(std::span<const double> losses);
  /// How many numbers each step has: the loss and those of the figures.
  size_t numbers() const { return 1 + state_.weighted_outputs.size(); }
  void forget_losses() { samples_.clear(); }
  void set_seconds(double seconds) { state_.record.seconds = seconds; }
  /// Sets the mean loss over the validation feed, and the figures.
  void set_validation(const StepSums& sums);
  /// The sums over samples of the numbers of a figure: of the epoch under way, behind its end of that epoch,
  /// or of its validation; empty if there are none.
  std::vector<double> sums_of(std::string_view name, bool in_validation) const;
  /// The epoch under way as a record of its steps so far, of which all losses are known.
  EpochRecord record_now() const;
  /// Adds the epoch to the history, and goes to the beginning of the next one.
  const EpochRecord& finish_epoch();

 private:
  void reset_epoch();
  /// Adds what these means of the numbers amount to.
  void add_figures(std::map<std::string, double>& outputs, std::span<const double> means) const;

  TreeFeeds feeds_;
  std::vector<EpochFigure> figures_;
  RunState state_;
  int64_t epochs_;                             // TreeFeeds::epochs() of the epoch under way
  bool resumed_ = false;                       // the next run goes on with `state_`
  std::vector<int64_t> samples_;               // of the steps whose losses are not known yet
  std::vector<double> finished_, validation_;  // sums of the numbers: of the last epoch, of its validation
};

}  // namespace espalier
