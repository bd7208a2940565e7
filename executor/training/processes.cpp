// What the processes of a job do together: one tree, one start, one end.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/files/crc64.h"
#include "espalier/executor/communicators/communicator.h"
#include "espalier/executor/training/executor_impl.h"

namespace espalier {

namespace {

void add_text(Crc64& crc, std::string_view text) { crc.add(text.data(), text.size()); }

void add_spec(Crc64& crc, const Spec& spec) {
  add_text(crc, name(spec.dtype));
  add_text(crc, spec.shape.str());
}

}  // namespace

bool Executor::Impl::is_first_process() const { return !world() || world()->rank() == 0; }

void Executor::Impl::meet_processes() {
  // One by one, so that who differs hears of what.
  Crc64 leaves, feeds, settings;
  for (const Variable& leaf : leaf_list_) {
    add_text(leaves, leaf.node()->op().name());
    add_spec(leaves, leaf.node()->outputs[0].spec);
  }
  for (const FeedState& feed : feed_states()) {
    add_text(feeds, fmt::format("{} {} {}", feed.name, feed.steps, feed.last_rows));
    for (const Spec& spec : feed.specs) add_spec(feeds, spec);
  }
  for (const auto& feed : feeds_) {
    const std::vector<Tensor> columns = feed->columns();
    if (columns.empty()) continue;
    std::vector<int64_t> order(static_cast<size_t>(columns[0].shape()[0]));
    feed->order(feed->epoch(), order);
    feeds.add(order.data(), order.size() * sizeof(int64_t));
  }
  add_text(settings, fmt::format("{} {} {} {} {} {} {} {} {}", static_cast<int>(*options_.mode),
                                 tree_.updates.size(), replicas_->size(), options_.accumulate,
                                 static_cast<int>(options_.precision), options_.local_statistics,
                                 options_.bucket_bytes, options_.memory_budget, options_.shard_states));
  for (const std::string& name : options_.without) add_text(settings, name);
  if (options_.optimizer) {
    add_text(settings, options_.optimizer->name());
    for (const auto& [name, value] : options_.optimizer->settings())
      add_text(settings, fmt::format("{} {}", name, value));
  }
  const char* const what[] = {"parameters and states", "feeds", "options"};
  const int64_t mine[] = {static_cast<int64_t>(leaves.value()), static_cast<int64_t>(feeds.value()),
                          static_cast<int64_t>(settings.value())};
  Tensor own({3}, int64), all({world()->size(), 3}, int64);
  std::copy_n(mine, 3, own.span<int64_t>().begin());
  world()->all_gather(own, all);
  for (int rank = 0; rank < world()->size(); ++rank)
    for (int i = 0; i < 3; ++i)
      if (all.span<int64_t>()[static_cast<size_t>(3 * rank + i)] != mine[i])
        throw CommunicatorError(fmt::format(
            "get_executor: the processes of a job train one tree, but rank {} has other {} than rank {}",
            rank, what[i], world()->rank()));

  share_generator();
  ParameterArena& arena = replicas_->first().leaves;
  for (const Variable& leaf : leaf_list_) {
    const size_t slot = arena.slot(leaf);
    Node& node = *leaf.node();
    const bool here = arena.has(slot);
    if (!here) ensure_value(node);
    Tensor values = here ? arena.tensor(slot) : node.outputs[0].value.to(cpu()).clone();
    if (values.elements() == 0) continue;
    if (values.device().type == DeviceType::cpu) {
      world()->broadcast(values, 0);
    } else {
      Tensor on_host = values.to(cpu());
      world()->broadcast(on_host, 0);
      copy_elements(on_host, values);
    }
    if (here)
      replicas_->mark_assigned({&slot, 1});
    else
      assign(node, values.to(node.outputs[0].value.device()));
  }
}

void Executor::Impl::gather_states() {
  if (!owners_ || !world() || !std::exchange(states_apart_, false)) return;
  for (const Variable& leaf : leaf_list_) {
    Node& node = *leaf.node();
    const int owner = owners_->of(&node);
    if (owner < 0 || is_parameter(node.op())) continue;
    const int rank = owner / static_cast<int>(replicas_->size());
    const bool ours = rank == world()->rank();
    if (ours) ensure_value(node);
    const Spec& spec = node.outputs[0].spec;
    Tensor values = ours ? node.outputs[0].value.to(cpu()).contiguous_copy() : Tensor(spec.shape, spec.dtype);
    world()->broadcast(values, rank);
    if (!ours) assign(node, values.to(node.outputs[0].value.device()));
  }
}

Executor::Impl::Wishes Executor::Impl::agree(Wishes wishes, bool exactly) {
  if (!world()) return wishes;
  if (wishes.interrupt || wishes.stop) world()->request_stop();
  if (exactly) world()->barrier();
  if (!world()->stop_requested()) return {};
  world()->clear_stop();
  Tensor both({2}, int32);
  both.span<int32_t>()[0] = wishes.interrupt;
  both.span<int32_t>()[1] = wishes.stop;
  world()->all_reduce(both, Reduction::max);
  return {both.span<int32_t>()[0] != 0, both.span<int32_t>()[1] != 0};
}

std::array<bool, 3> Executor::Impl::agree_on_listening() const {
  constexpr Event events[] = {Event::epoch_start, Event::step_finish, Event::epoch_finish};
  Tensor flags({3}, int32);
  for (size_t i = 0; i < 3; ++i) flags.span<int32_t>()[static_cast<size_t>(events[i])] = listens(events[i]);
  if (world()) world()->all_reduce(flags, Reduction::max);
  std::array<bool, 3> listening;
  for (size_t i = 0; i < 3; ++i) listening[i] = flags.span<int32_t>()[i] != 0;
  return listening;
}

void Executor::Impl::share_generator() const {
  if (!world()) return;
  Generator& own = generator();
  Tensor state({3}, int64);
  const auto numbers = state.span<int64_t>();
  for (size_t i = 0; uint64_t* const number : {&own.seed, &own.next_stream, &own.next_parameter_stream})
    numbers[i++] = static_cast<int64_t>(*number);
  world()->broadcast(state, 0);
  for (size_t i = 0; uint64_t* const number : {&own.seed, &own.next_stream, &own.next_parameter_stream})
    *number = static_cast<uint64_t>(numbers[i++]);
}

void Executor::Impl::tell_processes(std::exception_ptr error) const noexcept {
  if (world()) world()->abort(error);
}

void Executor::Impl::wait_for_checkpoint() const {
  if (!world()) return;
  // A disk may take its time; should the first process die meanwhile, that is heard all the same.
  constexpr double hour = 3600;
  const double before = world()->timeout();
  world()->set_timeout(std::max(before, hour));
  try {
    world()->barrier();
  } catch (...) {
    world()->set_timeout(before);
    throw;
  }
  world()->set_timeout(before);
}

void Executor::Impl::agree_on_checkpoint(const CheckpointFile& file, const std::exception_ptr& error) const {
  if (!world()) return;
  // Where it stands, or -1.
  const auto epochs = static_cast<int64_t>(file.checkpoint.run.history.epochs.size());
  const int64_t steps = epochs * (placeholders() ? 1 : this->steps() + 1) + file.checkpoint.run.step;
  Tensor own({1}, int64), all({world()->size()}, int64);
  own.span<int64_t>()[0] = error ? -1 : steps;
  world()->all_gather(own, all);
  for (int rank = 0; rank < world()->size() && !error; ++rank) {
    const int64_t theirs = all.span<int64_t>()[static_cast<size_t>(rank)];
    if (theirs == steps) continue;
    throw FileError(fmt::format("resume: rank {} {}, and rank {} {}; all need the same checkpoint",
                                world()->rank(), "takes up " + file.path.string(), rank,
                                theirs < 0 ? "cannot take up one" : "one that was left at another step"));
  }
}

namespace {

/// The same elements, in the same order, under a shape in which the axis of rows is cut into [repeats, rows].
Tensor cut_repeats(const Tensor& value, size_t axis, int64_t repeats) {
  const Tensor plain = value.contiguous_copy();
  Dims dims(plain.shape().begin(), plain.shape().begin() + axis);
  dims.push_back(repeats);
  dims.push_back(plain.shape().dims()[axis] / repeats);
  dims.append(plain.shape().begin() + axis + 1, plain.shape().end());
  Layout layout(Shape(std::move(dims)));
  layout.offset = plain.layout().offset;
  return Tensor(plain.storage(), std::move(layout), plain.dtype());
}

/// Puts these behind each other along an axis. They may be none.
Tensor join(const std::vector<Tensor>& parts, size_t axis, Shape shape, DType dtype) {
  int64_t size = 0;
  for (const Tensor& part : parts) size += part.shape().dims()[axis];
  shape.dims()[axis] = size;
  Tensor whole(shape, dtype);
  int64_t begin = 0;
  for (const Tensor& part : parts) {
    const int64_t end = begin + part.shape().dims()[axis];
    Tensor to = whole.slice(static_cast<int64_t>(axis), begin, end);
    copy_elements(part, to);
    begin = end;
  }
  return whole;
}

}  // namespace

Tensor Executor::Impl::gather_rows(const Bound& bound) const {
  const Replication& replication = *bound.parts[0].data->replication;
  check_shown(bound);
  const size_t axis = *replication.row_axis + 1;  // behind the repeats
  const auto rows_of = [&](int share) {
    return BatchShard{share, replication.replicas}.counted(replication.batch_rows);
  };
  std::vector<Tensor> own;
  Tensor some;
  for (size_t i = 0; i < replicas_->size(); ++i) {
    some = cut_repeats(bound.parts[i].runtime->value().to(cpu()), axis - 1, replication.row_repeats);
    if (rows_of(replicas_->shard(i).replica) > 0) own.push_back(some);
  }
  const auto per_row =
      some.shape().dims()[axis] / replicas_->shard(replicas_->size() - 1).rows(replication.batch_rows);
  Tensor whole = join(own, axis, some.shape(), some.dtype());
  if (world()) {
    // Each process sends as much as the one that has most.
    const int here = static_cast<int>(replicas_->size());
    std::vector<int64_t> counts;
    for (int rank = 0; rank < world()->size(); ++rank) {
      counts.push_back(0);
      for (int i = 0; i < here; ++i) counts.back() += rows_of(rank * here + i) * per_row;
    }
    Shape padded = whole.shape();
    padded.dims()[axis] = *std::ranges::max_element(counts);
    Tensor sent(padded, whole.dtype());
    zero_elements(sent);
    Tensor filled = sent.slice(static_cast<int64_t>(axis), 0, whole.shape().dims()[axis]);
    copy_elements(whole, filled);
    Dims dims{static_cast<int64_t>(counts.size())};
    dims.append(padded.begin(), padded.end());
    Tensor all(Shape(std::move(dims)), whole.dtype());
    world()->all_gather(sent, all);
    std::vector<Tensor> parts;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      const auto at = static_cast<int64_t>(rank);
      Tensor of_rank = all.slice(0, at, at + 1);
      Layout layout(padded);
      layout.offset = of_rank.layout().offset;
      of_rank = Tensor(all.storage(), std::move(layout), all.dtype());
      parts.push_back(of_rank.slice(static_cast<int64_t>(axis), 0, counts[rank]));
    }
    whole = join(parts, axis, padded, whole.dtype());
  }
  // The repeats become part of the axis again.
  Dims dims(whole.shape().begin(), whole.shape().begin() + axis - 1);
  dims.push_back(replication.row_repeats * whole.shape().dims()[axis]);
  dims.append(whole.shape().begin() + axis + 1, whole.shape().end());
  Layout layout(Shape(std::move(dims)));
  layout.offset = whole.layout().offset;
  return Tensor(whole.storage(), std::move(layout), whole.dtype()).to(home_);
}

}  // namespace espalier
