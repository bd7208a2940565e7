#include "espalier/executor/training/batch_readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/executor/training/row_buckets.h"

namespace espalier {

std::shared_ptr<const Feed> FeedShards::get(const std::shared_ptr<Feed>& feed, BatchShard shard) {
  if (shard.pieces() == 1) return feed;
  std::shared_ptr<const Feed>& own = shards_[{feed.get(), shard.piece(), shard.pieces()}];
  if (!own) own = std::make_shared<ShardedFeed>(feed, shard);
  return own;
}

namespace {

/// Loads the rows of a placeholder's value that a plan computes.
void load_value(const BoundPlan& plan, const Feed& feed, const Tensor& whole, bool shows_rows,
                Profiler* profiler) {
  const bool divided = shows_rows && plan.shard.pieces() > 1;
  const int64_t rows = divided ? whole.shape()[0] : 0, begin = divided ? plan.shard.begin(rows) : 0;
  const Tensor own = divided ? whole.slice(0, begin, begin + plan.shard.rows(rows)) : whole;
  const auto load = [&] { plan.runtime->load(feed, {&own, 1}); };
  profiler ? profiler->timed("load", load) : load();
}

}  // namespace

BatchReaders::BatchReaders(const TreeFeeds& feeds, const TreeFeeds& loaded, const GivenValues& given,
                           FeedShards& shards, Replicas& devices, int micro_batches)
    : feeds_(feeds), loaded_(loaded), given_(given), same_feeds_(&feeds == &loaded) {
  for (size_t i = 0; i < devices.size(); ++i)
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      auto& readers = readers_.emplace_back();
      const BatchShard shard = devices.shard(i, micro_batch, micro_batches);
      const auto allocate = [session = &devices[i]](const Shape& shape, DType dtype) {
        return session->new_batch(shape, dtype);
      };
      for (const auto& feed : feeds.all())
        readers.push_back({feed->is_placeholder()
                               ? nullptr
                               : std::make_unique<data::Prefetcher>(shards.get(feed, shard), allocate)});
    }
}

void BatchReaders::start(int64_t step) {
  for (auto& readers : readers_)
    for (size_t f = 0; f < readers.size(); ++f)
      if (readers[f].batches) readers[f].batches->start(feeds_[f].epoch(), step);
  step_ = step;
  epochs_ = feeds_.epochs();
}

bool BatchReaders::is_before(int64_t step) const {
  if (step_ != step || epochs_ != feeds_.epochs()) return false;
  // After a step that failed, some readers are ahead.
  for (const auto& readers : readers_)
    for (const Reader& reader : readers)
      if (reader.batches && !reader.on_device && reader.batches->step() + 1 != step) return false;
  return true;
}

void BatchReaders::load(const BoundPlan& plan, Profiler* profiler) {
  const auto timed = [&](const char* name, auto&& f) { return profiler ? profiler->timed(name, f) : f(); };
  Runtime& runtime = *plan.runtime;
  BatchSignature sizes;
  if (feeds_.has_placeholders()) feeds_.read_sizes(step_, given_, sizes);
  for (size_t f = 0; f < feeds_.size(); ++f) {
    if (feeds_[f].is_placeholder()) {
      load_value(plan, loaded_[f], given_[f], feeds_.shows_rows(f, sizes), profiler);
      continue;
    }
    Reader& reader = readers_[plan.index][f];
    data::Prefetcher& batches = *reader.batches;
    const int64_t epoch = feeds_[f].epoch();
    const bool shown = same_feeds_ && runtime.show(loaded_[f], batches.feed(), epoch, step_);
    if (std::exchange(reader.on_device, shown) && !shown) batches.start(epoch, step_);
    if (shown) continue;
    const auto batch = timed("wait for data", [&] {
      plan.session->release_batches(loaded_[f]);
      return batches.next();
    });
    timed("load", [&] { runtime.load(loaded_[f], batch); });
  }
}

namespace {

/// The shape of a placeholder as it was written.
Shape written_shape(const Feed& feed) {
  Shape shape = feed.specs()[0].shape;
  for (const OpenAxis& open : feed.open_axes()) shape.dims()[open.axis] = -1;
  return shape;
}

/// Throws ShapeError unless a placeholder takes values of this shape; adds its sizes to the signature.
void add_sizes(const Feed& feed, const Shape& value, const char* what, BatchSignature& batch) {
  const Shape written = written_shape(feed);
  bool fits = value.rank() == written.rank();
  for (size_t i = 1; fits && i < value.rank(); ++i)
    fits = written.dims()[i] == -1 || written.dims()[i] == value.dims()[i];
  if (!fits)
    throw ShapeError(fmt::format("{}: placeholder '{}' of shape {} cannot take {}", what, feed.name(),
                                 written.str(), value.str()));
  batch.rows.push_back(value.rank() ? value.dims()[0] : 1);
  for (const OpenAxis& open : feed.open_axes()) batch.open.push_back(value.dims()[open.axis]);
}

void check_type(const Feed& feed, const Tensor& value, const char* what) {
  const DType dtype = feed.specs()[0].dtype;
  if (!value.defined() || value.dtype() != dtype)
    throw TypeError(fmt::format("{}: placeholder '{}' takes {}, not {}", what, feed.name(), name(dtype),
                                value.defined() ? name(value.dtype()) : "an undefined tensor"));
}

/// "; it has 'x' and 'y'", as the end of a message.
std::string known_names(const TreeFeeds& feeds) {
  std::vector<std::string> names;
  for (const auto& f : feeds.all())
    if (f->is_placeholder()) names.push_back(fmt::format("'{}'", f->name()));
  return names.empty() ? "" : fmt::format("; it has {}", fmt::join(names, ", "));
}

/// For each placeholder of a tree, what was given by its name. Throws DataError unless all were given, each
/// once, and nothing else.
template <class T>
std::vector<const T*> by_feed(const TreeFeeds& feeds, const std::vector<std::pair<std::string, T>>& given,
                              const char* what) {
  std::vector<const T*> values(feeds.size(), nullptr);
  const auto& all = feeds.all();
  for (const auto& [name, value] : given) {
    const auto named = [&name = name](const auto& f) { return f->is_placeholder() && f->name() == name; };
    const auto feed = std::ranges::find_if(all, named);
    if (feed == all.end())
      throw DataError(fmt::format("{}: the tree has no placeholder '{}'{}", what, name, known_names(feeds)));
    const T*& known = values[static_cast<size_t>(feed - all.begin())];
    if (known) throw DataError(fmt::format("{}: placeholder '{}' was given twice", what, name));
    known = &value;
  }
  for (size_t f = 0; f < feeds.size(); ++f)
    if (feeds[f].is_placeholder() && !values[f])
      throw DataError(fmt::format("{}: placeholder '{}' was given no value", what, feeds[f].name()));
  return values;
}

void need_placeholders_only(const TreeFeeds& feeds, const char* what) {
  for (const auto& feed : feeds.all())
    if (!feed->is_placeholder())
      throw DataError(fmt::format("{}: the tree is fed by a Distributor; use execute() or step()", what));
}

}  // namespace

BatchSignature signature_of(const TreeFeeds& feeds, const FeedShapes& shapes, const char* what) {
  need_placeholders_only(feeds, what);
  BatchSignature batch;
  const std::vector<const Shape*> values = by_feed(feeds, shapes, what);
  for (size_t f = 0; f < feeds.size(); ++f) {
    (void)values[f]->elements();  // throws on negative sizes
    add_sizes(feeds[f], *values[f], what, batch);
  }
  return batch;
}

GivenValues given_beside(const TreeFeeds& feeds, const Feeds& given, const char* what) {
  if (feeds.has_placeholders_only())
    throw DataError(
        fmt::format("{}: placeholder '{}' has no data of its own, and nothing else feeds the tree; use run()",
                    what, feeds[0].name()));
  const std::vector<const Tensor*> found = by_feed(feeds, given, what);
  GivenValues values(feeds.size());
  BatchSignature sizes;
  for (size_t f = 0; f < feeds.size(); ++f) {
    if (!found[f]) continue;
    check_type(feeds[f], *found[f], what);
    add_sizes(feeds[f], found[f]->shape(), what, sizes);
    values[f] = *found[f];
  }
  return values;
}

GivenBatch::GivenBatch(const TreeFeeds& feeds, const Feeds& given, const std::vector<int64_t>& buckets)
    : feeds_(feeds) {
  need_placeholders_only(feeds, "run");
  values_ = by_feed(feeds, given, "run");
  for (size_t f = 0; f < feeds.size(); ++f) {
    check_type(feeds[f], *values_[f], "run");
    add_sizes(feeds[f], values_[f]->shape(), "run", signature_);
  }
  rows_ = feeds.batch_rows(signature_);
  if (buckets.empty()) return;
  signature_ = in_bucket(signature_, feeds, buckets);
  const int64_t bucket = feeds.batch_rows(signature_);
  if (bucket == rows_) return;
  filled_.resize(feeds.size());
  for (size_t f = 0; f < feeds.size(); ++f)
    if (feeds.shows_rows(f, signature_))
      values_[f] = &(filled_[f] = with_last_row_repeated(*values_[f], bucket));
}

void GivenBatch::load(const BoundPlan& plan, Profiler* profiler) {
  for (size_t f = 0; f < feeds_.size(); ++f)
    load_value(plan, feeds_[f], *values_[f], feeds_.shows_rows(f, signature_), profiler);
}

}  // namespace espalier
