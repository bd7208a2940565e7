// A replica's share of what a feed shows.
#pragma once
#include <algorithm>
#include <memory>

#include "espalier/core/op.h"

namespace espalier::data {

/// Which rows of each batch a replica takes: as many as the others, or one more or less. A batch with fewer
/// rows than there are replicas leaves some without; these take a row of another, and count for nothing.
struct RowShare {
  int replica = 0;
  int replicas = 1;

  int64_t begin(int64_t rows) const { return std::max<int64_t>(0, std::min(cut(rows, replica), rows - 1)); }
  int64_t rows(int64_t rows) const { return std::max(std::min<int64_t>(rows, 1), counted(rows)); }
  /// How many of them are this replica's own, and nobody else's.
  int64_t counted(int64_t rows) const { return cut(rows, replica + 1) - cut(rows, replica); }

 private:
  int64_t cut(int64_t rows, int64_t before) const {
    return rows / replicas * before + rows % replicas * before / replicas;
  }
};

/// A feed that shows a share of each batch of another. Its epochs are named by who reads it.
class FeedShare : public Feed {
 public:
  FeedShare(std::shared_ptr<const Feed> whole, RowShare share) : whole_(std::move(whole)), share_(share) {}

  std::string name() const override { return whole_->name(); }
  std::vector<Spec> specs() const override;
  int64_t steps() const override { return whole_->steps(); }
  int64_t rows(int64_t step) const override { return share_.rows(whole_->rows(step)); }
  void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const override {
    whole_->read_part(epoch, step, share_.begin(whole_->rows(step)), outputs);
  }
  std::vector<Tensor> columns() const override { return whole_->columns(); }
  /// Behind the rows that are shown come others.
  void order(int64_t epoch, std::span<int64_t> rows) const override;
  bool is_placeholder() const override { return whole_->is_placeholder(); }

 private:
  std::shared_ptr<const Feed> whole_;
  RowShare share_;
};

}  // namespace espalier::data
