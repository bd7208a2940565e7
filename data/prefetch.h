// Prefetcher: reads the batches of an epoch ahead of their use.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "espalier/core/feed.h"

namespace espalier::data {

/// Returns the batches of one epoch after the other to one thread. A background thread reads the next batches
/// meanwhile if that pays: waking it costs some microseconds, so batches that are read faster are read in
/// place. The first two batches are timed to decide; with one core there is no background thread.
///
/// A buffer is reused once the next batch has been returned and no other handle holds its tensors. To keep a
/// batch, copy the Tensors; that copies no elements. In a forked child, which does not have the thread, it
/// goes on with the next batch and a thread of its own.
class Prefetcher {
 public:
  /// Allocates the buffers of batches, on the CPU.
  using Allocate = std::function<Tensor(const Shape&, DType)>;

  explicit Prefetcher(std::shared_ptr<const Feed> feed, Allocate allocate = {});
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The following `next()` returns that step of that epoch. May be called at any time.
  void start(int64_t epoch, int64_t first_step = 0);
  /// The next batch, valid until the following call. Throws EndOfData after the last one, and what reading
  /// throws; the call after an error tries the same step again.
  std::span<const Tensor> next();
  bool at_end() const { return step_ >= steps_; }
  const Feed& feed() const { return *feed_; }
  /// The step of the batch that `next()` returned last.
  int64_t step() const { return step_ - 1; }
  /// How often `next()` had to wait for its batch to be read, or read it itself.
  int64_t waits() const { return waits_; }

 private:
  struct Slot;
  struct Reader;
  void read_ahead();
  void end_reader();
  std::span<const Tensor> read_in_place();
  void fill(std::vector<Tensor>& batch, int64_t step) const;

  std::shared_ptr<const Feed> feed_;
  Allocate allocate_;
  std::vector<Spec> specs_;
  std::vector<OpenAxis> open_;
  std::vector<Slot> slots_;
  std::unique_ptr<Reader> reader_;
  int64_t epoch_ = 0;
  int64_t step_ = 0;  // of the next batch
  int64_t steps_ = 0;
  int64_t timed_ = 0;
  int64_t quickest_ = 0;  // nanoseconds
  int64_t waits_ = 0;
};

}  // namespace espalier::data
