// The progress bar on the terminal.
#pragma once
#include <cstdint>

#include "espalier/core/stopwatch.h"

namespace espalier {

class Progress {
 public:
  /// Draws only if `wanted` and standard error is a terminal. `done_before` is the part of the epochs that an
  /// earlier run has done.
  explicit Progress(bool wanted, double done_before = 0);
  /// Whether `step` would draw.
  bool due() const;
  void step(int64_t epoch, int64_t epochs, int64_t step, int64_t steps, double loss,
            double samples_per_second);
  /// Draws the line of a finished epoch, and goes to the next line.
  void finish_epoch(int64_t epoch, int64_t epochs, double loss, double validation_loss,
                    double samples_per_second);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  bool on_;
  double done_before_;
  bool open_line_ = false;
  Stopwatch begin_, shown_;
};

}  // namespace espalier
