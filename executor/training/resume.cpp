#include "espalier/executor/training/resume.h"

#include <fmt/format.h>

#include <bit>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"

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

std::vector<FeedState> feed_states(const Setup& setup) {
  std::vector<FeedState> states;
  const auto add = [&](const Feed& feed) {
    const int64_t last = feed.is_placeholder() ? 0 : feed.steps() - 1;
    states.push_back({feed.name(), feed.epoch(), feed.steps(), feed.rows(last), feed.specs()});
  };
  for (const auto& feed : setup.feeds.all()) add(*feed);
  if (setup.options.validation) add(*setup.options.validation->feed());
  return states;
}

Checkpoint take_checkpoint(const Setup& setup, RunState run) {
  Checkpoint c = take_run(setup, std::move(run));
  for (const Variable& leaf : setup.leaves) {
    ensure_value(*leaf.node());
    c.leaves.emplace_back(leaf.node()->op().name(), leaf.node()->outputs[0].value.to(cpu()));
  }
  return c;
}

Checkpoint take_run(const Setup& setup, RunState run) {
  Checkpoint c;
  c.feeds = feed_states(setup);
  c.optimizer = settings_of(setup.options.optimizer);
  c.scalars = names_of(setup.figures);
  c.random = generator();
  c.products = gemm_choices().all();
  c.run = std::move(run);
  return c;
}

namespace {

/// Compares what a checkpoint holds with what this program has.
class FitCheck {
 public:
  FitCheck(const CheckpointFile& file, const Setup& setup)
      : path_(file.path.string()), checkpoint_(file.checkpoint), setup_(setup) {}

  void leaves() const {
    const auto& theirs = checkpoint_.leaves;
    const auto& ours = setup_.leaves;
    for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
      std::string there = "missing", here = "missing";
      if (i < theirs.size())
        there = fmt::format("'{}', {}", theirs[i].first, text_of(theirs[i].second.spec()));
      if (i < ours.size())
        here = fmt::format("'{}', {}", ours[i].node()->op().name(), text_of(spec_of(ours[i])));
      need_equal(fmt::format("leaf {} (of {} there and {} here)", i, theirs.size(), ours.size()), there,
                 here);
    }
  }
  void feeds() const {
    const auto& theirs = checkpoint_.feeds;
    const std::vector<FeedState> ours = feed_states(setup_);
    for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
      const bool validation = setup_.options.validation && i + 1 == ours.size();
      need_equal(validation ? "the validation feed" : fmt::format("feed {}", i),
                 i < theirs.size() ? text_of(theirs[i]) : "missing",
                 i < ours.size() ? text_of(ours[i]) : "missing");
    }
  }
  void optimizer() const {
    const auto& theirs = checkpoint_.optimizer;
    need_equal("the optimizer", text_of(theirs), text_of(settings_of(setup_.options.optimizer)));
    if (!theirs) return;
    for (const auto& [name, value] : theirs->values)
      if (!(value >= 0) || !std::isfinite(value))
        throw FileError(fmt::format("{} has {} as the optimizer's {}", path_, value, name));
  }
  void scalars() const {
    const auto list = [](const std::vector<std::string>& names) {
      return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
    };
    need_equal("the list of scalar outputs", list(checkpoint_.scalars), list(names_of(setup_.figures)));
    if (checkpoint_.run.weighted_outputs.size() != count_numbers(setup_.figures))
      throw FileError(fmt::format("{} does not fit this program: its outputs have {} sums there, and {} here",
                                  path_, checkpoint_.run.weighted_outputs.size(),
                                  count_numbers(setup_.figures)));
  }
  void position() const {
    // With placeholders there is no position.
    const int64_t steps = setup_.feeds.has_placeholders_only() ? 0 : setup_.feeds.steps();
    const int64_t step = checkpoint_.run.step;
    if (step < 0 || step > steps)
      throw FileError(fmt::format("{} is at step {} of an epoch with {}", path_, step, steps));
  }

 private:
  void need_equal(const std::string& what, const std::string& there, const std::string& here) const {
    if (there != here)
      throw FileError(
          fmt::format("{} does not fit this program: {} is {} there, and {} here", path_, what, there, here));
  }

  std::string path_;
  const Checkpoint& checkpoint_;
  const Setup& setup_;
};

}  // namespace

void check_fit(const CheckpointFile& file, const Setup& setup) {
  const FitCheck check(file, setup);
  check.leaves();
  check.feeds();
  check.optimizer();
  check.scalars();
  check.position();
}

void restore(const Checkpoint& c, Setup& setup) {
  if (c.optimizer) {
    const auto now = setup.options.optimizer->settings();
    for (size_t i = 0; i < now.size(); ++i) {
      const auto& [name, value] = c.optimizer->values[i];
      if (std::bit_cast<uint64_t>(value) != std::bit_cast<uint64_t>(now[i].second))
        setup.options.optimizer->set(name, value);
    }
  }
  std::vector<std::pair<Node*, Tensor>> values;
  for (size_t i = 0; i < setup.leaves.size(); ++i)
    values.emplace_back(setup.leaves[i].node(),
                        c.leaves[i].second.to(setup.leaves[i].node()->outputs[0].value.device()));
  // From here on nothing can fail.
  assign(values);
  for (size_t i = 0; i < setup.feeds.size(); ++i) setup.feeds[i].set_epoch(c.feeds[i].epoch);
  if (setup.options.validation) setup.options.validation->feed()->set_epoch(c.feeds.back().epoch);
  generator() = c.random;
}

RunState continue_run(const Checkpoint& saved, Setup& setup) {
  RunState run = saved.run;
  const std::vector<FeedState> ours = feed_states(setup);
  const auto shows = [](const FeedState& feed) { return std::pair(feed.steps, feed.last_rows); };
  const size_t feeds = setup.feeds.size();
  bool same = saved.feeds.size() >= feeds && names_of(setup.figures) == saved.scalars &&
              run.weighted_outputs.size() == count_numbers(setup.figures);
  for (size_t i = 0; i < feeds && i < saved.feeds.size(); ++i) {
    same &= shows(saved.feeds[i]) == shows(ours[i]);  // a placeholder is no feed of data
    if (!setup.feeds[i].is_placeholder()) setup.feeds[i].set_epoch(saved.feeds[i].epoch);
  }
  if (const auto& validation = setup.options.validation; validation && saved.feeds.size() > feeds)
    validation->feed()->set_epoch(saved.feeds.back().epoch);
  const int64_t steps = setup.feeds.has_placeholders_only() ? 0 : setup.feeds.steps();
  if (run.step < 0 || (same && run.step > steps))
    throw FileError(fmt::format("the plan was saved at step {} of an epoch with {}", run.step, steps));
  generator() = saved.random;
  if (same) return run;
  RunState fresh;
  if (names_of(setup.figures) == saved.scalars) fresh.history = std::move(run.history);
  fresh.weighted_outputs.assign(count_numbers(setup.figures), 0);
  return fresh;
}

}  // namespace espalier
