// Feed: what fills the source Variables of a tree.
#pragma once
#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

/// An axis of an output whose size differs from batch to batch.
struct OpenAxis {
  size_t output = 0;
  size_t axis = 0;
};

/// A Distributor or a placeholder. All outputs show the same step.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual std::string name() const = 0;
  /// dtype and shape of each output in a full batch; open axes have the nominal size.
  virtual std::vector<Spec> specs() const = 0;
  /// Batches in an epoch.
  virtual int64_t steps() const = 0;
  /// The size of the first axis in that step.
  virtual int64_t rows(int64_t step) const = 0;
  /// The open axes; the first axis of a batch need not be one to have another size in each step.
  virtual std::vector<OpenAxis> open_axes() const { return {}; }
  /// Appends the sizes of the open axes in that batch.
  virtual void add_open_sizes(int64_t /*epoch*/, int64_t /*step*/, std::vector<int64_t>& /*sizes*/) const {}
  /// Writes the batch of that step into `outputs`, which have its shapes. May be called from several threads.
  virtual void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const = 0;
  /// The same for those rows of the batch which begin at `first`: as many as `outputs` have room for. The
  /// default reads the whole batch.
  virtual void read_part(int64_t epoch, int64_t step, int64_t first, std::span<Tensor> outputs) const;
  /// The shapes of the batch of that step.
  std::vector<Shape> shapes(int64_t epoch, int64_t step) const;
  /// New buffers with the batch of that step.
  std::vector<Tensor> batch(int64_t epoch, int64_t step) const;

  /// If batches are rows of tensors in memory: these tensors, one for each output; else empty.
  virtual std::vector<Tensor> columns() const { return {}; }
  /// For such feeds: the row numbers in the order in which the batches of an epoch show them.
  virtual void order(int64_t /*epoch*/, std::span<int64_t> /*rows*/) const {}

  /// Whether it has no data and Executor::run supplies its values.
  virtual bool is_placeholder() const { return false; }

  /// The epoch that is being shown, and the start of the next.
  int64_t epoch() const { return epoch_.load(); }
  void next_epoch() { epoch_.fetch_add(1); }
  /// Shows that epoch, from its beginning.
  void set_epoch(int64_t epoch) { epoch_.store(epoch); }

 private:
  friend class FeedUse;
  std::atomic<int64_t> epoch_{0};
  std::atomic<const void*> user_{nullptr};  // what tells the thread that is evaluating
};

/// While it lives, the calling thread evaluates trees below these feeds. The constructor throws Error where
/// another thread does: of what both compute, values of two steps would be mixed.
class FeedUse {
 public:
  explicit FeedUse(std::span<Feed* const> feeds);
  ~FeedUse();
  FeedUse(const FeedUse&) = delete;
  FeedUse& operator=(const FeedUse&) = delete;

 private:
  void release();

  std::vector<Feed*> taken_;  // but those that an evaluation around this one has
};

}  // namespace espalier
