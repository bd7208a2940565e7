// What a run leaves behind, and what it tells while it goes on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <limits>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct EpochRecord {
  double loss_sum = 0;   ///< over the steps
  double loss_mean = 0;  ///< over the samples: a short last batch weighs less
  double validation_loss =
      std::numeric_limits<double>::quiet_NaN();  ///< mean over its samples, if there is any
  int64_t samples = 0;
  double seconds = 0;  ///< of training, validation left out
  /// `ExecutorOptions::outputs` that are scalars, as means over the samples, and those that are Metrics, in
  /// training and validation.
  std::map<std::string, double> outputs = {}, validation_outputs = {};

  /// "loss" (its mean), "validation_loss", an output by its name, or in validation "validation_" and its
  /// name; none if the record has no such figure.
  std::optional<double> figure(std::string_view name) const;
};

struct History {
  std::vector<EpochRecord> epochs;  ///< whole ones; last, what was done of one that Executor::stop ended
  /// SIGINT came while it ran. What was done of the epoch under way is in no record here, but in the
  /// checkpoint.
  bool interrupted = false;

  /// Writes a table with a row for each epoch: epoch (from 1), loss, validation_loss, samples, seconds, and a
  /// column for each output, in validation with the prefix "validation_". Columns without any value are left
  /// out, and numbers can be read back without loss. Throws FileError.
  void write_csv(const std::filesystem::path& file,
                 std::source_location where = std::source_location::current()) const;
  /// Writes a chart: the loss of training and validation over the epochs, and below it the outputs, if there
  /// are any. Throws FileError.
  void write_svg(const std::filesystem::path& file,
                 std::source_location where = std::source_location::current()) const;
};

/// The table of write_csv in aligned columns, with numbers as the stream writes them, and "interrupted" below
/// it if that is so.
std::ostream& operator<<(std::ostream& out, const History& history);

enum class Event : uint8_t {
  initialize,  ///< `execute` begins
  epoch_start,
  step_start,
  step_finish,
  validation_start,
  validation_finish,
  epoch_finish,
  teardown,  ///< `execute` ends, also by an exception; what a callback throws then is dropped
};
constexpr size_t event_count = 8;

/// What a callback is told.
struct StepInfo {
  int64_t epoch = 0;    ///< of the run, from 0: `execute` begins one, unless it goes on after `resume`; for
                        ///< `step`, the feed's
  int64_t step = 0;     ///< in the epoch; at its end, their number
  int64_t steps = 0;    ///< in an epoch
  int64_t samples = 0;  ///< in this step, or in the epoch
  double loss = 0;      ///< of this step, or the mean over the epoch's samples
  double validation_loss = std::numeric_limits<double>::quiet_NaN();  ///< behind the validation of an epoch
  double seconds = 0;                                                 ///< since the epoch began
};

}  // namespace espalier
