#include "espalier/executor/training/batch_readers.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier {

std::shared_ptr<const Feed> FeedShards::get(const std::shared_ptr<Feed>& feed, BatchShard shard) {
  if (shard.pieces() == 1) return feed;
  std::shared_ptr<const Feed>& own = shards_[{feed.get(), shard.piece(), shard.pieces()}];
  if (!own) own = std::make_shared<ShardedFeed>(feed, shard);
  return own;
}

BatchReaders::BatchReaders(const TreeFeeds& feeds, const TreeFeeds& loaded, FeedShards& shards,
                           Replicas& devices, int micro_batches)
    : feeds_(feeds), loaded_(loaded), same_feeds_(&feeds == &loaded) {
  for (size_t i = 0; i < devices.size(); ++i)
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      auto& readers = readers_.emplace_back();
      const BatchShard shard = devices.shard(i, micro_batch, micro_batches);
      const auto allocate = [session = &devices[i]](const Shape& shape, DType dtype) {
        return session->new_batch(shape, dtype);
      };
      for (const auto& feed : feeds.all())
        readers.push_back(std::make_unique<data::Prefetcher>(shards.get(feed, shard), allocate));
    }
}

void BatchReaders::start(int64_t step) {
  for (auto& readers : readers_)
    for (size_t f = 0; f < readers.size(); ++f) readers[f]->start(feeds_[f].epoch(), step);
  step_ = step;
  epochs_ = feeds_.epochs();
}

bool BatchReaders::is_before(int64_t step) const {
  if (step_ != step || epochs_ != feeds_.epochs()) return false;
  // After a step that failed, some readers are ahead.
  for (const auto& readers : readers_)
    for (const auto& reader : readers)
      if (reader->step() + 1 != step) return false;
  return true;
}

void BatchReaders::load(const BoundPlan& plan, Profiler* profiler) {
  const auto timed = [&](const char* name, auto&& f) { return profiler ? profiler->timed(name, f) : f(); };
  Runtime& runtime = *plan.runtime;
  for (size_t f = 0; f < feeds_.size(); ++f) {
    data::Prefetcher& reader = *readers_[plan.index][f];
    if (same_feeds_ && runtime.show(loaded_[f], reader.feed(), feeds_[f].epoch(), step_)) continue;
    const auto batch = timed("wait for data", [&] {
      plan.session->release_batches();
      return reader.next();
    });
    timed("load", [&] { runtime.load(loaded_[f], batch); });
  }
}

namespace {

/// The rows of a placeholder's value. Throws TypeError or ShapeError if it does not fit.
int64_t check_value(const Feed& feed, const Tensor& value) {
  const Spec spec = feed.specs()[0];
  if (!value.defined() || value.dtype() != spec.dtype)
    throw TypeError(fmt::format("run: placeholder '{}' takes {}, not {}", feed.name(), name(spec.dtype),
                                value.defined() ? name(value.dtype()) : "an undefined tensor"));
  Shape shape = value.shape();
  if (shape.rank() && shape.rank() == spec.shape.rank()) shape.dims()[0] = spec.shape.dims()[0];
  if (!(shape == spec.shape))
    throw ShapeError(fmt::format("run: placeholder '{}' of shape {} cannot take {}", feed.name(),
                                 spec.shape.str(), value.shape().str()));
  return shape.rank() ? value.shape()[0] : 1;
}

}  // namespace

GivenBatch::GivenBatch(const TreeFeeds& feeds, const Feeds& given)
    : feeds_(feeds), values_(feeds.size(), nullptr) {
  const auto& all = feeds.all();
  for (const auto& [name, value] : given) {
    const auto feed = std::find_if(all.begin(), all.end(),
                                   [&](const auto& f) { return f->is_placeholder() && f->name() == name; });
    if (feed == all.end()) throw DataError(fmt::format("run: the tree has no placeholder '{}'", name));
    values_[static_cast<size_t>(feed - all.begin())] = &value;
  }
  for (size_t f = 0; f < feeds.size(); ++f) {
    if (!feeds[f].is_placeholder())
      throw DataError("run: the tree is fed by a Distributor; use execute() or step()");
    if (!values_[f])
      throw DataError(fmt::format("run: placeholder '{}' was given no value", feeds[f].name()));
    rows_.push_back(check_value(feeds[f], *values_[f]));
  }
}

void GivenBatch::load(const BoundPlan& plan, Profiler* profiler) {
  for (size_t f = 0; f < feeds_.size(); ++f) {
    const Tensor& whole = *values_[f];
    const int64_t begin = plan.shard.begin(rows_[f]);
    const bool divided = whole.rank() && plan.shard.pieces() > 1;
    const Tensor own = divided ? whole.slice(0, begin, begin + plan.shard.rows(rows_[f])) : whole;
    const auto load = [&] { plan.runtime->load(feeds_[f], {&own, 1}); };
    profiler ? profiler->timed("load", load) : load();
  }
}

}  // namespace espalier
