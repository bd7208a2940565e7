// Leaving a checkpoint, and going on from one.
#include <fmt/format.h>

#include <bit>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/executor/training/executor_impl.h"

namespace espalier {

namespace {

std::string text_of(const Spec& spec) { return fmt::format("{} {}", name(spec.dtype), spec.shape.str()); }

std::string text_of(const FeedState& feed) {
  std::string text =
      fmt::format("'{}' with {} steps, {} rows in the last, of", feed.name, feed.steps, feed.last_rows);
  for (const Spec& spec : feed.specs) text += fmt::format(" {}", text_of(spec));
  return text;
}

std::string text_of(const std::optional<OptimizerSettings>& optimizer) {
  if (!optimizer) return "no optimizer of its own";
  std::string text = fmt::format("{} with", optimizer->name);
  for (const auto& [name, value] : optimizer->values) text += fmt::format(" '{}'", name);
  return text;
}

std::optional<OptimizerSettings> settings_of(const std::optional<optim::Optimizer>& optimizer) {
  if (!optimizer) return std::nullopt;
  return OptimizerSettings{std::string(optimizer->name()), optimizer->settings()};
}

Spec spec_of(const Variable& leaf) { return leaf.node()->outputs[0].spec; }

}  // namespace

std::vector<FeedState> Executor::Impl::feed_states() const {
  std::vector<FeedState> states;
  const auto add = [&](const Feed& feed) {
    const int64_t last = feed.is_placeholder() ? 0 : feed.steps() - 1;
    states.push_back({feed.name(), feed.epoch(), feed.steps(), feed.rows(last), feed.specs()});
  };
  for (const auto& feed : feeds_) add(*feed);
  if (options_.validation) add(*options_.validation->feed());
  return states;
}

void Executor::Impl::checkpoint(const std::filesystem::path& folder) {
  try {
    settle_losses();
    replicas_->finish_before_eager();
    gather_states();
    replicas_->confirm();
    if (is_first_process()) write_checkpoint(folder, state_of_run());
  } catch (...) {
    tell_processes(std::current_exception());
    throw;
  }
  wait_for_checkpoint();
}

Checkpoint Executor::Impl::state_of_run() const {
  Checkpoint c;
  for (const Variable& leaf : leaf_list_) {
    ensure_value(*leaf.node());
    c.leaves.emplace_back(leaf.node()->op().name(), leaf.node()->outputs[0].value.to(cpu()));
  }
  c.feeds = feed_states();
  c.optimizer = settings_of(options_.optimizer);
  c.random = generator();
  c.products = gemm_choices().all();
  c.run = run_;
  if (run_epochs_ != epochs_of_feeds()) {  // a feed was reset: its epoch is at its beginning
    c.run.record = {};
    c.run.weighted = 0;
    c.run.step = 0;
    c.run.begun = false;
  }
  return c;
}

/// Throws FileError saying what differs between a checkpoint and this program.
void Executor::Impl::check_fit(const CheckpointFile& file) const {
  const Checkpoint& c = file.checkpoint;
  const auto differ = [&](const std::string& what, const std::string& there, const std::string& here) {
    throw FileError(fmt::format("{} does not fit this program: {} is {} there, and {} here",
                                file.path.string(), what, there, here));
  };
  for (size_t i = 0; i < std::max(c.leaves.size(), leaf_list_.size()); ++i) {
    std::string there = "missing", here = "missing";
    if (i < c.leaves.size())
      there = fmt::format("'{}', {}", c.leaves[i].first, text_of(c.leaves[i].second.spec()));
    if (i < leaf_list_.size())
      here = fmt::format("'{}', {}", leaf_list_[i].node()->op().name(), text_of(spec_of(leaf_list_[i])));
    if (there != here)
      differ(fmt::format("leaf {} (of {} there and {} here)", i, c.leaves.size(), leaf_list_.size()), there,
             here);
  }
  const std::vector<FeedState> feeds = feed_states();
  for (size_t i = 0; i < std::max(c.feeds.size(), feeds.size()); ++i) {
    const std::string there = i < c.feeds.size() ? text_of(c.feeds[i]) : "missing",
                      here = i < feeds.size() ? text_of(feeds[i]) : "missing";
    const bool validation = options_.validation && i + 1 == feeds.size();
    if (there != here) differ(validation ? "the validation feed" : fmt::format("feed {}", i), there, here);
  }
  if (const std::string there = text_of(c.optimizer), here = text_of(settings_of(options_.optimizer));
      there != here)
    differ("the optimizer", there, here);
  if (c.optimizer)
    for (const auto& [name, value] : c.optimizer->values)
      if (!(value >= 0) || !std::isfinite(value))
        throw FileError(fmt::format("{} has {} as the optimizer's {}", file.path.string(), value, name));
  // Without a feed there is one step; with placeholders there is no position.
  const int64_t steps = placeholders() ? 0 : this->steps();
  if (c.run.step < 0 || c.run.step > steps)
    throw FileError(
        fmt::format("{} is at step {} of an epoch with {}", file.path.string(), c.run.step, steps));
}

void Executor::Impl::resume(const std::filesystem::path& folder) {
  if (busy_) throw Error("resume: the executor is in the middle of a step, which called this");
  CheckpointFile file;
  std::exception_ptr error;
  try {
    file = read_checkpoint(folder);
    check_fit(file);
  } catch (...) {  // also no memory
    error = std::current_exception();
  }
  agree_on_checkpoint(file, error);
  if (error) std::rethrow_exception(error);
  Checkpoint& c = file.checkpoint;
  if (c.optimizer) {
    const auto now = options_.optimizer->settings();
    for (size_t i = 0; i < now.size(); ++i) {
      const auto& [name, value] = c.optimizer->values[i];
      if (std::bit_cast<uint64_t>(value) != std::bit_cast<uint64_t>(now[i].second))
        options_.optimizer->set(name, value);
    }
  }
  for (size_t i = 0; i < leaf_list_.size(); ++i)
    c.leaves[i].second = c.leaves[i].second.to(leaf_list_[i].node()->outputs[0].value.device());
  // From here on nothing can fail.
  for (size_t i = 0; i < leaf_list_.size(); ++i) assign(*leaf_list_[i].node(), c.leaves[i].second);
  for (size_t i = 0; i < feeds_.size(); ++i) feeds_[i]->set_epoch(c.feeds[i].epoch);
  if (options_.validation) options_.validation->feed()->set_epoch(c.feeds.back().epoch);
  generator() = c.random;
  run_ = std::move(c.run);
  run_epochs_ = epochs_of_feeds();
  resumed_ = true;
  step_readers_.clear();
  last_ = nullptr;
  if (gemm_choices().set(c.products)) {  // plans hold on to theirs
    training_plans_ = validation_plans_ = {};
    plans_.clear();
  }
  last_value_ = {};
}

}  // namespace espalier
