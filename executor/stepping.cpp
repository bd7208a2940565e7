// Single steps: which plan, which batch, and what a step leaves.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/executor/executor_impl.h"
#include "espalier/executor/report.h"
#include "espalier/ops/matmul_precision.h"

namespace espalier {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

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
  session_->enter();
  session_->update_leaves();
  Runtime& runtime = *plan_for(rows, false).runtime;
  profiler_.begin_step();
  for (size_t f = 0; f < feeds_.size(); ++f)
    profiler_.timed("load", [&] { runtime.load(*feeds_[f], {values[f], 1}); });
  run_plan(runtime);
  session_->leave();
  Tensor result = at_home(runtime.result(0));
  profiler_.end_step(runtime.plan());
  profiler_.write_if_done();
  return result;
}

void Executor::Impl::report(const std::filesystem::path& html) {
  auto plan = plan_for(rows_at(0), false).data;
  if (!profiler_.times(*plan) && profiler_.busiest()) plan = profiler_.busiest();
  write_report(html, *plan, profiler_.times(*plan));
}

Tensor Executor::Impl::value() const {
  if (last_) return at_home(last_->result(0));
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

/// The plan for batches of these sizes, made when it is first needed.
Executor::Impl::Bound& Executor::Impl::plan_for(const Rows& rows, bool inference) {
  Bound& bound = plans_[{inference, rows}];
  if (bound.runtime) return bound;
  try {
    FeedRows sizes;
    for (size_t f = 0; f < feeds_.size(); ++f) sizes[feeds_[f].get()] = rows[f];
    const bool calm = inference || !training();
    bound.data = compile({root_}, calm ? std::vector<Variable>() : updates_, sizes,
                         {.inference = calm,
                          .device = session_->device().type,
                          .without = options_.without,
                          .dump = options_.dump,
                          .memory_budget = options_.memory_budget,
                          .gradient_bucket = calm ? decltype(bucket_)() : bucket_,
                          .precision = options_.precision});
    const bool tf32 = options_.precision == Precision::tf32;
    const MatmulPrecisionScope scope(tf32 ? MatmulPrecision::tf32 : matmul_precision());
    bound.runtime = session_->bind(bound.data);
  } catch (...) {
    plans_.erase({inference, rows});
    throw;
  }
  bound.rows = rows;
  bound.samples = rows.empty() ? 1 : *std::max_element(rows.begin(), rows.end());
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

data::Prefetcher::Allocate Executor::Impl::new_batch() const {
  return [session = session_.get()](const Shape& shape, DType dtype) {
    return session->new_batch(shape, dtype);
  };
}

Executor::Impl::Readers Executor::Impl::make_readers() const {
  Readers readers;
  for (const auto& feed : feeds_) readers.push_back(std::make_unique<data::Prefetcher>(feed, new_batch()));
  return readers;
}

/// Lets them begin at the step that comes next.
void Executor::Impl::start(Readers& readers) const {
  for (size_t f = 0; f < feeds_.size(); ++f) readers[f]->start(feeds_[f]->epoch(), run_.step);
}

void Executor::Impl::train_step(Readers& readers, StepInfo& info) {
  session_->update_leaves();  // a callback may have set values
  rows_.clear();
  for (const auto& feed : feeds_) rows_.push_back(feed->rows(run_.step));
  Bound& bound = resolve(training_plans_, rows_, false);
  profiler_.begin_step();
  for (size_t f = 0; f < feeds_.size(); ++f) {
    if (bound.runtime->show(*feeds_[f], feeds_[f]->epoch(), run_.step)) continue;
    const auto batch = profiler_.timed("wait for data", [&] {
      session_->release_batches();
      return readers[f]->next();
    });
    profiler_.timed("load", [&] { bound.runtime->load(*feeds_[f], batch); });
  }
  run_plan(*bound.runtime);
  session_->note_loss(*bound.runtime);
  unsettled_.push_back(bound.samples);
  ++run_.step;
  info.samples = bound.samples;
  run_.record.samples += info.samples;
  profiler_.end_step(bound.runtime->plan());
}

void Executor::Impl::forget_losses() {
  unsettled_.clear();
  session_->forget_losses();
}

double Executor::Impl::settle_losses() {
  if (unsettled_.empty()) return 0;
  losses_.clear();
  try {
    session_->take_losses(losses_);
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
  session_->enter();
  session_->update_leaves();
  follow_feeds();
  const int64_t epoch = epochs_of_feeds();
  bool ready = step_readers_.size() == feeds_.size() && step_epoch_ == epoch;
  for (const auto& reader : step_readers_) ready &= reader->step() + 1 == run_.step;
  if (!ready) {  // at first; and after a step that failed, for it is taken again
    if (step_readers_.size() != feeds_.size()) step_readers_ = make_readers();
    start(step_readers_);
    step_epoch_ = epoch;
  }
  if (run_.step >= steps()) {
    finish_epoch();
    throw EndOfData();
  }
  const auto begin = Clock::now();
  StepInfo info{.epoch = epoch, .step = run_.step, .steps = steps()};
  run_.begun = true;
  train_step(step_readers_, info);
  session_->leave();
  info.loss = settle_losses();
  info.seconds = since(begin);
  run_.record.seconds += info.seconds;
  tell(Event::step_finish, info);
  profiler_.write_if_done();
  return info;
}

void Executor::Impl::run_plan(Runtime& runtime) {
  Generator& random = generator();
  runtime.run(random.next_stream, profiler_.laps());
  random.next_stream += static_cast<uint64_t>(runtime.random_nodes());
  session_->leaves.mark_assigned(runtime.assigned());
  last_ = &runtime;
}

}  // namespace espalier
