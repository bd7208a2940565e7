// BatchShard: the rows of each batch that one plan takes.
#pragma once
#include <algorithm>
#include <memory>

#include "espalier/core/feed.h"

namespace espalier {

/// Replicas share the rows of a batch, and each may take its own in several micro-batches, one after the
/// other. All of these pieces have the same number of rows, or one more. A batch with fewer rows than pieces
/// leaves some without; these take a row of another, and count for nothing.
struct BatchShard {
  int replica = 0;
  int replicas = 1;
  int micro_batch = 0;
  int micro_batches = 1;

  int64_t begin(int64_t rows) const { return std::max<int64_t>(0, std::min(cut(rows, piece()), rows - 1)); }
  int64_t rows(int64_t rows) const { return std::max(std::min<int64_t>(rows, 1), counted(rows)); }
  /// How many of them no other piece has.
  int64_t counted(int64_t rows) const { return cut(rows, piece() + 1) - cut(rows, piece()); }

  /// All micro-batches of all replicas, and which of them this is.
  int pieces() const { return replicas * micro_batches; }
  int piece() const { return replica * micro_batches + micro_batch; }
  bool is_last_micro_batch() const { return micro_batch + 1 == micro_batches; }

 private:
  int64_t cut(int64_t rows, int64_t before) const {
    return rows / pieces() * before + rows % pieces() * before / pieces();
  }
};

/// A feed that shows one piece of each batch of another, whose epochs it has.
class ShardedFeed : public Feed {
 public:
  ShardedFeed(std::shared_ptr<const Feed> whole, BatchShard shard)
      : whole_(std::move(whole)), shard_(shard) {}

  std::string name() const override { return whole_->name(); }
  std::vector<Spec> specs() const override;
  int64_t steps() const override { return whole_->steps(); }
  int64_t rows(int64_t step) const override { return shard_.rows(whole_->rows(step)); }
  std::vector<OpenAxis> open_axes() const override { return whole_->open_axes(); }
  /// Those of the whole batch.
  void add_open_sizes(int64_t epoch, int64_t step, std::vector<int64_t>& sizes) const override {
    whole_->add_open_sizes(epoch, step, sizes);
  }
  void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const override {
    whole_->read_part(epoch, step, shard_.begin(whole_->rows(step)), outputs);
  }
  std::vector<Tensor> columns() const override { return whole_->columns(); }
  /// The rows behind those that are shown are 0.
  void order(int64_t epoch, std::span<int64_t> rows) const override;
  bool is_placeholder() const override { return whole_->is_placeholder(); }

 private:
  std::shared_ptr<const Feed> whole_;
  BatchShard shard_;
};

}  // namespace espalier
