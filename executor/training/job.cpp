#include "espalier/executor/training/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/files/crc64.h"
#include "espalier/executor/communicators/caller.h"
#include "espalier/executor/communicators/communicator.h"
#include "espalier/executor/training/resume.h"
#include "espalier/executor/training/row_axis.h"

namespace espalier {

namespace {

void add_text(Crc64& crc, std::string_view text) { crc.add(text.data(), text.size()); }

void add_spec(Crc64& crc, const Spec& spec) {
  add_text(crc, name(spec.dtype));
  add_text(crc, spec.shape.str());
}

int64_t checksum_of_leaves(const Setup& setup) {
  Crc64 crc;
  for (const Variable& leaf : setup.leaves) {
    add_text(crc, leaf.node()->op().name());
    add_spec(crc, leaf.node()->outputs[0].spec);
  }
  return static_cast<int64_t>(crc.value());
}

int64_t checksum_of_feeds(const Setup& setup) {
  Crc64 crc;
  for (const FeedState& feed : feed_states(setup)) {
    add_text(crc, fmt::format("{} {} {}", feed.name, feed.steps, feed.last_rows));
    for (const Spec& spec : feed.specs) add_spec(crc, spec);
  }
  for (const auto& feed : setup.feeds.all()) {
    const std::vector<Tensor> columns = feed->columns();
    if (columns.empty()) continue;
    std::vector<int64_t> order(static_cast<size_t>(columns[0].shape()[0]));
    feed->order(feed->epoch(), order);
    crc.add(order.data(), order.size() * sizeof(int64_t));
  }
  return static_cast<int64_t>(crc.value());
}

int64_t checksum_of_options(const Setup& setup) {
  Crc64 crc;
  const ExecutorOptions& options = setup.options;
  add_text(crc,
           fmt::format("{} {} {} {} {} {} {} {} {}", static_cast<int>(*options.mode),
                       setup.tree.updates.size(), setup.target.replicas, options.accumulate,
                       static_cast<int>(options.precision), options.replicas.local_statistics,
                       options.replicas.bucket_bytes, options.memory_budget, options.replicas.shard_states));
  for (const std::string& name : options.without) add_text(crc, name);
  if (options.optimizer) {
    add_text(crc, options.optimizer->name());
    for (const auto& [name, value] : options.optimizer->settings())
      add_text(crc, fmt::format("{} {}", name, value));
  }
  return static_cast<int64_t>(crc.value());
}

}  // namespace

Job::Job(const Setup& setup, Replicas& devices) : setup_(setup), devices_(devices), world_(devices.world()) {
  if (!world_) return;
  check_same();
  share_generator();
  share_leaves();
}

bool Job::is_first() const { return !world_ || world_->rank() == 0; }

void Job::check_same() const {
  const char* const what[] = {"parameters and states", "feeds", "options"};
  const int64_t mine[] = {checksum_of_leaves(setup_), checksum_of_feeds(setup_), checksum_of_options(setup_)};
  Tensor own({3}, int64), all({world_->size(), 3}, int64);
  std::copy_n(mine, 3, own.span<int64_t>().begin());
  world_->all_gather(own, all, caller_or());
  for (int rank = 0; rank < world_->size(); ++rank)
    for (int i = 0; i < 3; ++i)
      if (all.span<int64_t>()[static_cast<size_t>(3 * rank + i)] != mine[i])
        throw CommunicatorError(fmt::format(
            "get_executor: the processes of a job train one tree, but rank {} has other {} than rank {}",
            rank, what[i], world_->rank()));
}

void Job::share_generator() const {
  if (!world_) return;
  Generator& own = generator();
  Tensor state({3}, int64);
  const auto numbers = state.span<int64_t>();
  for (size_t i = 0; uint64_t* const number : {&own.seed, &own.next_stream, &own.next_parameter_stream})
    numbers[i++] = static_cast<int64_t>(*number);
  world_->broadcast(state, 0, caller_or());
  for (size_t i = 0; uint64_t* const number : {&own.seed, &own.next_stream, &own.next_parameter_stream})
    *number = static_cast<uint64_t>(numbers[i++]);
}

void Job::share_leaves() const {
  ParameterArena& arena = devices_.first().leaves;
  for (const Variable& leaf : setup_.leaves) {
    const size_t slot = arena.slot(leaf);
    Node& node = *leaf.node();
    const bool here = arena.has(slot);
    if (!here) ensure_value(node);
    Tensor values = here ? arena.tensor(slot) : node.outputs[0].value.to(cpu()).clone();
    if (values.elements() == 0) continue;
    if (values.device().type == DeviceType::cpu) {
      world_->broadcast(values, 0, caller_or());
    } else {
      Tensor on_host = values.to(cpu());
      world_->broadcast(on_host, 0, caller_or());
      copy_elements(on_host, values);
    }
    if (here)
      devices_.mark_assigned({&slot, 1});
    else
      assign(node, values.to(node.outputs[0].value.device()));
  }
}

void Job::begin_run(const EventSet& listening) {
  if (!world_) return;
  world_->clear_stop();
  share_generator();
  Tensor flags({event_count}, int32);
  const auto numbers = flags.span<int32_t>();
  for (size_t i = 0; i < event_count; ++i) numbers[i] = listening[i];
  world_->all_reduce(flags, Reduction::max, caller_or());
  for (size_t i = 0; i < event_count; ++i) listening_[i] = numbers[i] != 0;
  // Processes agree only behind a step and an epoch on what was requested before it.
  const auto also = [&](Event event, Event before) {
    if (listening_[static_cast<size_t>(before)]) listening_.set(static_cast<size_t>(event));
  };
  also(Event::step_finish, Event::step_start);
  also(Event::epoch_finish, Event::validation_start);
  also(Event::epoch_finish, Event::validation_finish);
}

void Job::end_run() const {
  if (world_) world_->clear_stop();
}

StopRequest Job::agree(StopRequest own, std::optional<Event> told, int64_t step) const {
  if (!world_) return own;
  if (own.interrupt || own.stop) world_->request_stop();
  // On GPUs a request does not travel with the gradients, so it is asked for now and then.
  constexpr int64_t steps_between = 64;
  const bool on_gpus = devices_.first().device().type == DeviceType::cuda;
  if ((told && listening_[static_cast<size_t>(*told)]) || (on_gpus && step % steps_between == 0))
    world_->barrier(caller_or());
  if (!world_->stop_requested()) return {};
  world_->clear_stop();
  Tensor both({2}, int32);
  both.span<int32_t>()[0] = own.interrupt;
  both.span<int32_t>()[1] = own.stop;
  world_->all_reduce(both, Reduction::max, caller_or());
  return {both.span<int32_t>()[0] != 0, both.span<int32_t>()[1] != 0};
}

void Job::gather_states() {
  if (!setup_.owners || !world_ || !std::exchange(states_apart_, false)) return;
  for (const Variable& leaf : setup_.leaves) {
    Node& node = *leaf.node();
    const int owner = setup_.owners->of(&node);
    if (owner < 0 || is_parameter(node.op())) continue;
    const int rank = owner / static_cast<int>(devices_.size());
    const bool ours = rank == world_->rank();
    if (ours) ensure_value(node);
    const Spec& spec = node.outputs[0].spec;
    Tensor values = ours ? node.outputs[0].value.to(cpu()).contiguous_copy() : Tensor(spec.shape, spec.dtype);
    world_->broadcast(values, rank, caller_or());
    if (!ours) assign(node, values.to(node.outputs[0].value.device()));
  }
}

Tensor Job::gather(const Tensor& own, size_t axis, const std::vector<int64_t>& sizes) const {
  if (!world_) return own;
  // Each process sends as much as the one that has most.
  Shape padded = own.shape();
  padded.dims()[axis] = *std::ranges::max_element(sizes);
  Tensor sent(padded, own.dtype());
  zero_elements(sent);
  Tensor filled = sent.slice(static_cast<int64_t>(axis), 0, own.shape().dims()[axis]);
  copy_elements(own, filled);
  Dims dims{static_cast<int64_t>(sizes.size())};
  dims.append(padded.begin(), padded.end());
  Tensor all(Shape(std::move(dims)), own.dtype());
  world_->all_gather(sent, all, caller_or());
  std::vector<Tensor> parts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto at = static_cast<int64_t>(rank);
    const Tensor of_rank = with_shape(all.slice(0, at, at + 1), padded);
    parts.push_back(of_rank.slice(static_cast<int64_t>(axis), 0, sizes[rank]));
  }
  return join(parts, axis, own);
}

void Job::wait_for_checkpoint() const {
  if (!world_) return;
  // Writing to disk may take longer than the timeout. If the first process dies meanwhile, the others are
  // told all the same.
  constexpr double hour = 3600;
  const double before = world_->timeout();
  world_->set_timeout(std::max(before, hour));
  try {
    world_->barrier(caller_or());
  } catch (...) {
    world_->set_timeout(before);
    throw;
  }
  world_->set_timeout(before);
}

void Job::agree_on_checkpoint(const CheckpointFile& file, const std::exception_ptr& error) const {
  if (!world_) return;
  // The number of steps before the checkpoint, or -1.
  const auto epochs = static_cast<int64_t>(file.checkpoint.run.history.epochs.size());
  const int64_t each = setup_.feeds.has_placeholders_only() ? 1 : setup_.feeds.steps() + 1;
  const int64_t steps = epochs * each + file.checkpoint.run.step;
  Tensor own({1}, int64), all({world_->size()}, int64);
  own.span<int64_t>()[0] = error ? -1 : steps;
  world_->all_gather(own, all, caller_or());
  for (int rank = 0; rank < world_->size() && !error; ++rank) {
    const int64_t theirs = all.span<int64_t>()[static_cast<size_t>(rank)];
    if (theirs == steps) continue;
    throw FileError(fmt::format("resume: rank {} {}, and rank {} {}; all need the same checkpoint",
                                world_->rank(), "takes up " + file.path.string(), rank,
                                theirs < 0 ? "cannot take up one" : "one that was left at another step"));
  }
}

void Job::fail(std::exception_ptr error) const noexcept {
  if (world_) world_->abort(error);
}

}  // namespace espalier
