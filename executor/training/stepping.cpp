// Single steps: which plan, which batch, and what a step leaves.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/stopwatch.h"
#include "espalier/executor/report/report.h"
#include "espalier/executor/training/executor_impl.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

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

Tensor Executor::Impl::run(const Feeds& given) {
  std::vector<const Tensor*> values(feeds_.size(), nullptr);
  for (const auto& [name, value] : given) {
    const auto feed = std::find_if(feeds_.begin(), feeds_.end(),
                                   [&](const auto& f) { return f->is_placeholder() && f->name() == name; });
    if (feed == feeds_.end()) throw DataError(fmt::format("run: the tree has no placeholder '{}'", name));
    values[static_cast<size_t>(feed - feeds_.begin())] = &value;
  }
  Rows rows;
  for (size_t f = 0; f < feeds_.size(); ++f) {
    if (!feeds_[f]->is_placeholder())
      throw DataError("run: the tree is fed by a Distributor; use execute() or step()");
    if (!values[f])
      throw DataError(fmt::format("run: placeholder '{}' was given no value", feeds_[f]->name()));
    rows.push_back(check_value(*feeds_[f], *values[f]));
  }
  replicas_->begin_after_eager();
  replicas_->update_leaves();
  Bound& bound = plan_for(rows, false);
  check_shown(bound);
  profiler_.begin_step();
  run_plans(bound, [&](size_t replica, size_t part) {
    Runtime& runtime = *bound.parts[replica * bound.parts.size() / replicas_->size() + part].runtime;
    const BatchShard share = replicas_->shard(replica, static_cast<int>(part), parts(false));
    for (size_t f = 0; f < feeds_.size(); ++f) {
      const Tensor& whole = *values[f];
      const int64_t begin = share.begin(rows[f]);
      const Tensor own =
          whole.rank() && shares() ? whole.slice(0, begin, begin + share.rows(rows[f])) : whole;
      const auto load = [&] { runtime.load(*feeds_[f], {&own, 1}); };
      replica == 0 ? profiler_.timed("load", load) : load();
    }
  });
  replicas_->finish_before_eager();
  Tensor result = result_of(bound);
  profiler_.end_step(main_part(bound).data);
  profiler_.write_if_done();
  return result;
}

void Executor::Impl::report(const std::filesystem::path& html) {
  auto plan = main_part(plan_for(rows_at(0), false)).data;
  if (!profiler_.times(*plan) && profiler_.busiest()) plan = profiler_.busiest();
  write_report(html, *plan, profiler_.times(*plan));
}

Tensor Executor::Impl::value() const {
  if (last_) return result_of(*last_);
  if (value_error_) std::rethrow_exception(value_error_);
  if (!last_value_.defined()) throw Error("value: the executor has not run a step yet");
  return last_value_;
}

bool Executor::Impl::placeholders() const {
  return std::any_of(feeds_.begin(), feeds_.end(), [](const auto& feed) { return feed->is_placeholder(); });
}

void Executor::Impl::need_data(std::string_view what) const {
  for (const auto& feed : feeds_)
    if (feed->is_placeholder())
      throw DataError(
          fmt::format("{}: placeholder '{}' has no data of its own; use run()", what, feed->name()));
}

/// Steps in an epoch: as many as all feeds can show; one without any.
int64_t Executor::Impl::steps() const {
  int64_t steps = feeds_.empty() ? 1 : INT64_MAX;
  for (const auto& feed : feeds_) steps = std::min(steps, feed->steps());
  return steps;
}

Executor::Impl::Rows Executor::Impl::rows_at(int64_t step) const {
  Rows rows;
  for (const auto& feed : feeds_) rows.push_back(feed->rows(step));
  return rows;
}

/// The plan for a share of batches of these sizes.
std::shared_ptr<const PlanData> Executor::Impl::compile_for(const Rows& rows, BatchShard share, int parts,
                                                            bool inference) const {
  FeedRows sizes, other;
  int64_t whole = 1;
  for (size_t f = 0; f < feeds_.size(); ++f) {
    if (feeds_[f]->specs()[0].shape.rank() == 0) continue;  // a number for all
    if (!sizes.empty() && shares() && rows[f] != whole)
      throw UnsupportedError(
          fmt::format("get_executor: replicas share out the rows of a batch, and the feeds show {} and {}",
                      whole, rows[f]));
    whole = rows[f];
    sizes[feeds_[f].get()] = share.rows(whole);
  }
  CompileOptions how{.inference = inference,
                     .device = replicas_->first().device().type,
                     .without = options_.without,
                     .dump = options_.dump,
                     .memory_budget = options_.memory_budget,
                     .precision = options_.precision};
  StepTree tree = tree_;
  if (inference) tree.updates.clear();
  if (inference || !(options_.gradient_bucket || shares())) tree.gradients.clear();
  if (shares()) {
    ShardOptions shard{.shard = share, .batch_rows = whole};
    // Only plans of one size surely complete their gradients in one order.
    if (parts == 1 && replicas_->overlaps() && whole % share.replicas == 0)
      shard.bucket_bytes = options_.bucket_bytes;
    shard.local_statistics = options_.local_statistics;
    if (!inference) shard.owners = owners_;
    shard.other_rows = share.rows(whole) == whole ? 2 * whole : whole;
    for (const auto& [feed, size] : sizes) shard.other_feeds[feed] = shard.other_rows;
    how.shard = std::move(shard);
  }
  return compile(tree, sizes, how);
}

/// The plans for batches of these sizes, made when they are first needed.
Executor::Impl::Bound& Executor::Impl::plan_for(const Rows& rows, bool inference) {
  Bound& bound = plans_[{inference, rows}];
  if (!bound.parts.empty()) return bound;
  try {
    const bool calm = inference || !training();
    const int parts = this->parts(calm);
    // By what they differ in.
    std::map<std::tuple<int64_t, bool, size_t>, std::shared_ptr<const PlanData>> made;
    for (size_t i = 0; i < replicas_->size(); ++i)
      for (int part = 0; part < parts; ++part) {
        const BatchShard share = replicas_->shard(i, part, parts);
        auto& data = made[{rows.empty() ? 1 : share.rows(*std::ranges::max_element(rows)), part + 1 == parts,
                           owners_ && !calm ? i : 0}];
        if (!data) data = compile_for(rows, share, parts, calm);
        bound.parts.push_back({data, nullptr});
      }
    bound.rows = rows;
    bound.samples = rows.empty() ? 1 : *std::max_element(rows.begin(), rows.end());
    if (replicas_->simulated()) return bound;
    const bool tf32 = options_.precision == Precision::tf32;
    const MatmulPrecision precision = tf32 ? MatmulPrecision::tf32 : matmul_precision();
    replicas_->run_in_turn([&](size_t i) {
      const MatmulPrecisionScope scope(precision);
      for (int part = 0; part < parts; ++part) {
        Part& own = bound.parts[i * static_cast<size_t>(parts) + static_cast<size_t>(part)];
        own.runtime = (*replicas_)[i].bind(own.data, replicas_->shard(i, part, parts));
      }
    });
  } catch (...) {
    plans_.erase({inference, rows});
    throw;
  }
  return bound;
}

/// The plan for these sizes among those of an epoch; others, should there be any, are looked up.
Executor::Impl::Bound& Executor::Impl::resolve(StepPlans& plans, const Rows& rows, bool inference) {
  for (Bound* known : plans.known)
    if (known && known->rows == rows) return *known;
  Bound& bound = plan_for(rows, inference);
  for (Bound*& known : plans.known)
    if (!known) {
      known = &bound;
      break;
    }
  return bound;
}

/// Makes the plans of an epoch.
void Executor::Impl::prepare_epoch() {
  resolve(training_plans_, rows_at(0), false);
  if (!placeholders() && steps() > 0) resolve(training_plans_, rows_at(steps() - 1), false);
}

/// The same one each time: sessions keep what they know of it.
std::shared_ptr<const Feed> Executor::Impl::share_of(const std::shared_ptr<Feed>& feed, BatchShard share) {
  if (share.pieces() == 1) return feed;
  std::shared_ptr<const Feed>& own = feed_shares_[{feed.get(), share.piece(), share.pieces()}];
  if (!own) own = std::make_shared<ShardedFeed>(feed, share);
  return own;
}

std::vector<Executor::Impl::Readers> Executor::Impl::make_readers(
    const std::vector<std::shared_ptr<Feed>>& feeds, int parts) {
  std::vector<Readers> all;
  for (size_t i = 0; i < replicas_->size(); ++i)
    for (int part = 0; part < parts; ++part) {
      Readers& readers = all.emplace_back();
      const BatchShard share = replicas_->shard(i, part, parts);
      for (const auto& feed : feeds) {
        const auto allocate = [session = &(*replicas_)[i]](const Shape& shape, DType dtype) {
          return session->new_batch(shape, dtype);
        };
        readers.push_back(std::make_unique<data::Prefetcher>(share_of(feed, share), allocate));
      }
    }
  return all;
}

/// Lets them begin at the step that comes next.
void Executor::Impl::start(std::vector<Readers>& readers) const {
  for (Readers& own : readers)
    for (size_t f = 0; f < feeds_.size(); ++f) own[f]->start(feeds_[f]->epoch(), run_.step);
}

void Executor::Impl::load(Runtime& runtime, Session& session, size_t feed, data::Prefetcher& reader,
                          Profiler* profiler) {
  const auto timed = [&](const char* name, auto&& f) { return profiler ? profiler->timed(name, f) : f(); };
  const auto batch = timed("wait for data", [&] {
    session.release_batches();
    return reader.next();
  });
  timed("load", [&] { runtime.load(*feeds_[feed], batch); });
}

void Executor::Impl::train_step(std::vector<Readers>& readers, StepInfo& info) {
  replicas_->update_leaves();  // a callback may have set values
  rows_.clear();
  for (const auto& feed : feeds_) rows_.push_back(feed->rows(run_.step));
  Bound& bound = resolve(training_plans_, rows_, false);
  const size_t parts = bound.parts.size() / replicas_->size();
  profiler_.begin_step();
  run_plans(bound, [&](size_t replica, size_t part) {
    const size_t at = replica * parts + part;
    Runtime& runtime = *bound.parts[at].runtime;
    for (size_t f = 0; f < feeds_.size(); ++f)
      if (!runtime.show(*feeds_[f], readers[at][f]->feed(), feeds_[f]->epoch(), run_.step))
        load(runtime, (*replicas_)[replica], f, *readers[at][f], replica == 0 ? &profiler_ : nullptr);
  });
  replicas_->first().note_loss(*main_part(bound).runtime);
  unsettled_.push_back(bound.samples);
  ++run_.step;
  info.samples = bound.samples;
  run_.record.samples += info.samples;
  profiler_.end_step(main_part(bound).data);
}

void Executor::Impl::forget_losses() {
  unsettled_.clear();
  replicas_->forget_losses();
}

double Executor::Impl::settle_losses() {
  if (unsettled_.empty()) return 0;
  losses_.clear();
  try {
    replicas_->take_losses(losses_);
  } catch (...) {
    forget_losses();
    throw;
  }
  for (size_t i = 0; i < losses_.size(); ++i) {
    run_.record.loss_sum += losses_[i];
    run_.weighted += losses_[i] * static_cast<double>(unsettled_[i]);
  }
  unsettled_.clear();
  return losses_.back();
}

StepInfo Executor::Impl::step() {
  need_data("step");
  const Busy busy(busy_, "step");
  replicas_->begin_after_eager();
  replicas_->update_leaves();
  follow_feeds();
  const int64_t epoch = epochs_of_feeds();
  bool ready = !step_readers_.empty() && step_epoch_ == epoch;
  for (const Readers& readers : step_readers_)
    for (const auto& reader : readers) ready &= reader->step() + 1 == run_.step;
  if (!ready) {  // at first; and after a step that failed, for it is taken again
    if (step_readers_.empty()) step_readers_ = make_readers(feeds_, parts(false));
    start(step_readers_);
    step_epoch_ = epoch;
  }
  if (run_.step >= steps()) {
    replicas_->finish_before_eager();
    gather_states();
    finish_epoch();
    throw EndOfData();
  }
  const Stopwatch watch;
  StepInfo info{.epoch = feeds_.empty() ? 0 : feeds_[0]->epoch(), .step = run_.step, .steps = steps()};
  run_.begun = true;
  train_step(step_readers_, info);
  replicas_->finish_before_eager();
  info.loss = settle_losses();
  info.seconds = watch.seconds();
  run_.record.seconds += info.seconds;
  tell(Event::step_finish, info);
  profiler_.write_if_done();
  return info;
}

void Executor::Impl::run_plans(Bound& bound, FunctionRef<void(size_t, size_t)> load) {
  Generator& random = generator();
  const Generator now = random;
  const size_t parts = bound.parts.size() / replicas_->size();
  replicas_->run([&](size_t i) {
    generator() = now;  // this thread's
    for (size_t part = 0; part < parts; ++part) {
      load(i, part);
      const bool timed = i == 0 && part + 1 == parts;
      bound.parts[i * parts + part].runtime->run(now.next_stream, timed ? profiler_.timestamps() : nullptr);
    }
  });
  random.next_stream += static_cast<uint64_t>(bound.parts[0].runtime->random_nodes());
  const std::span<const size_t> assigned = main_part(bound).runtime->assigned();
  replicas_->mark_assigned(assigned);
  states_apart_ = states_apart_ || !assigned.empty();
  last_ = &bound;
}

Tensor Executor::Impl::result_of(const Bound& bound) const {
  const Part& part = main_part(bound);
  const auto& replication = part.data->replication;
  if (replication && replication->row_axis) return gather_rows(bound);
  if (!part.data->value_in_reals || !part.data->sums(*part.data->value_in_reals))
    return at_home(part.runtime->value());
  return at_home(cast(part.runtime->value_in_reals(), root_.dtype()).value());
}

/// Throws UnsupportedError where the tree's value cannot be put together.
void Executor::Impl::check_shown(const Bound& bound) const {
  const auto& replication = bound.parts[0].data->replication;
  if (!replication || !replication->row_axis) return;
  if (replication->micro_batches > 1)
    throw UnsupportedError("value: the batch was taken in parts, of which none kept its rows of the value");
  if (replication->row_repeats < 1)
    throw UnsupportedError("value: the rows of the value are not those of the batch in their order");
}

}  // namespace espalier
