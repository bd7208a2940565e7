// Prefetcher: reads the batches of an epoch ahead of who uses them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "espalier/core/op.h"

namespace espalier::data {

/// Hands out the batches of one epoch after the other, and is used by one thread. While its user computes, a
/// thread of its own reads the next batches, if that is worth it: waking it costs some microseconds, so what
/// is read faster than that is read in place. It finds out by timing the first two batches, and stays alone
/// on a machine with one core.
///
/// A buffer is filled again once its batch has been followed by another and nobody else holds its tensors:
/// who wants to keep a batch copies the Tensors, which copies no elements.
class Prefetcher {
 public:
  /// Makes the buffers of batches, on the CPU.
  using Allocate = std::function<Tensor(const Shape&, DType)>;

  explicit Prefetcher(std::shared_ptr<const Feed> feed, Allocate allocate = {});
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The following `next()` gives that step of that epoch. May be called at any time.
  void start(int64_t epoch, int64_t first_step = 0);
  /// The next batch, valid until the following call. Throws EndOfData after the last one, and what reading
  /// throws; the call after an error tries the same step again.
  std::span<const Tensor> next();
  bool at_end() const { return step_ >= steps_; }
  const Feed& feed() const { return *feed_; }
  /// The step of the batch that `next()` gave last.
  int64_t step() const { return step_ - 1; }
  /// How often `next()` had to wait for its batch to be read, or read it itself.
  int64_t waits() const { return waits_; }

 private:
  struct Slot;
  struct Reader;
  void read_ahead();
  std::span<const Tensor> read_in_place();
  void fill(std::vector<Tensor>& batch, int64_t step) const;

  std::shared_ptr<const Feed> feed_;
  Allocate allocate_;
  std::vector<Spec> specs_;
  std::vector<Slot> slots_;
  std::unique_ptr<Reader> reader_;
  int64_t epoch_ = 0;
  int64_t step_ = 0;  // the next to hand out
  int64_t steps_ = 0;
  int64_t timed_ = 0;
  int64_t quickest_ = 0;  // nanoseconds
  int64_t waits_ = 0;
};

}  // namespace espalier::data
