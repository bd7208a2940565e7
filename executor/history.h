// What a run leaves behind, and what it tells while it goes on.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace espalier {

struct EpochRecord {
  double loss_sum = 0;   ///< over the steps
  double loss_mean = 0;  ///< over the samples: a short last batch weighs less
  double validation_loss =
      std::numeric_limits<double>::quiet_NaN();  ///< mean over its samples, if there is any
  int64_t samples = 0;
  double seconds = 0;  ///< of training, validation left out
  /// The means over the samples of `ExecutorOptions::outputs` that are scalars, in training and validation.
  std::map<std::string, double> outputs = {}, validation_outputs = {};
};

struct History {
  std::vector<EpochRecord> epochs;  ///< whole ones; last, what was done of one that Executor::stop ended
  /// SIGINT came while it ran. What was done of the epoch under way is in no record here, but in the
  /// checkpoint.
  bool interrupted = false;
};

enum class Event : uint8_t { epoch_start, step_finish, epoch_finish };

/// What a callback is told.
struct StepInfo {
  int64_t epoch = 0;    ///< of the run, from 0: `execute` begins one, unless it goes on after `resume`; for
                        ///< `step`, the feed's
  int64_t step = 0;     ///< in the epoch; at its end, their number
  int64_t steps = 0;    ///< in an epoch
  int64_t samples = 0;  ///< in this step, or in the epoch
  double loss = 0;      ///< of this step, or the mean over the epoch's samples
  double validation_loss =
      std::numeric_limits<double>::quiet_NaN();  ///< at the end of an epoch with validation
  double seconds = 0;                            ///< since the epoch began
};

}  // namespace espalier
