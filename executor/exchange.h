// Exchange: how one replica adds up values with the others in the midst of a step.
#pragma once
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "espalier/core/op.h"

namespace espalier {

class Communicator;

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The values become the sum over all replicas of weights[r] times those of replica r; with `bounds` each
  /// replica's part alone does (see Communicator::reduce_parts). They may be on their way when it returns;
  /// values, bounds and weights must stay where they are until `finish` has returned.
  virtual void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
                     const std::source_location& where) = 0;
  /// Returns, or on a GPU lets the stream go on, when all that was started is done. Throws what went wrong.
  virtual void finish() = 0;
  /// Everybody's values become the parts of those of all replicas (see Communicator::gather_parts). Nothing
  /// that was started is unfinished. On a GPU the stream goes on when it is done.
  virtual void gather(const Tensor& values, std::span<const int64_t> bounds,
                      const std::source_location& where) = 0;
  /// Forgets what was started and not finished, after a step that failed.
  virtual void forget() {}
  /// From here on it meets the others there, since those it met before have failed.
  virtual void connect(std::shared_ptr<Communicator>) {}
  /// On a GPU: whether both only launch.
  virtual bool can_be_captured() const { return false; }
};

/// One replica alone, which adds up the parts of its own batch: there is nothing to send.
std::unique_ptr<Exchange> make_exchange_alone();
/// Values are sent when they are waited for, all at once.
std::unique_ptr<Exchange> make_exchange_at_end(std::shared_ptr<Communicator> communicator);

/// Values are sent by a thread beside the one that computes, as soon as they are complete.
std::unique_ptr<Exchange> make_exchange_beside(std::shared_ptr<Communicator> communicator);

}  // namespace espalier
