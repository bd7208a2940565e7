// GradientSync: how one replica adds up values with the others during a step.
#pragma once
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "espalier/core/op.h"

namespace espalier {

class Communicator;

class GradientSync {
 public:
  virtual ~GradientSync() = default;
  /// The values become the sum over all replicas of weights[r] times those of replica r; with `bounds` each
  /// replica receives its part alone (see Communicator::reduce_parts). May return before that; values, bounds
  /// and weights must stay where they are until `finish` has returned.
  virtual void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
                     const std::source_location& where) = 0;
  /// Completes everything started; on a GPU the stream waits for that. Throws the first error.
  virtual void finish() = 0;
  /// The values of every replica become the parts of those of all replicas (see Communicator::gather_parts).
  /// Called after `finish`. On a GPU the stream waits for the result.
  virtual void gather(const Tensor& values, std::span<const int64_t> bounds,
                      const std::source_location& where) = 0;
  /// Drops what was started and not finished, after a step that failed.
  virtual void forget() {}
  /// Switches to a new communicator after the previous one failed.
  virtual void connect(std::shared_ptr<Communicator>) {}
  /// On a GPU: whether `start` and `finish` only launch.
  virtual bool can_be_captured() const { return false; }
  /// During a capture: whether something was started that must be finished before the capture ends.
  virtual bool is_open() const { return false; }
};

/// For one replica, which adds up its micro-batches itself: nothing is sent.
std::unique_ptr<GradientSync> make_local_sync();
/// Sends all values in `finish`.
std::unique_ptr<GradientSync> make_deferred_sync(std::shared_ptr<Communicator> communicator);
/// Sends values in a second thread as soon as they are complete.
std::unique_ptr<GradientSync> make_overlapped_sync(std::shared_ptr<Communicator> communicator);

}  // namespace espalier
