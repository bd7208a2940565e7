#include "espalier/executor/communicator_nested.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/communicator_threads.h"
#include "espalier/executor/reduce_ranks.h"
#include "espalier/executor/thread_group.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

// So that a process that does not come is missed by its own threads first, who know more.
constexpr double longer = 2;
// Begins what a process says of one of its threads: those are ranks of the whole job, not of `world`.
constexpr std::string_view of_threads = "of all threads, ";

// A collective is four meetings: all threads have come; what the process brings is complete; what all bring
// together is; and each has taken its part of that. Between the second and the third the first thread calls
// the other processes.
struct Process {
  Process(int threads, std::shared_ptr<Communicator> all)
      : world(std::move(all)),
        group(threads, 4, world->rank() * threads),
        from(static_cast<size_t>(threads)),
        to(from.size()) {}

  const std::shared_ptr<Communicator> world;
  ThreadGroup group;
  std::vector<const void*> from;  // by thread
  std::vector<Tensor*> to;
  Tensor mine, all;  // this process's, and what comes of it
  bool raised = false;
  std::string error;  // what came from the other processes
};

DType sum_type(DType dtype) { return is_real(dtype) && size_of(dtype) == 2 ? float32 : dtype; }

class NestedCommunicator final : public Communicator {
 public:
  NestedCommunicator(std::shared_ptr<Process> process, int thread, int threads)
      : Communicator(process->world->rank() * threads + thread, process->world->size() * threads),
        process_(std::move(process)),
        thread_(thread),
        threads_(threads) {}
  ~NestedCommunicator() override;

  void fail(const std::string& reason) noexcept override;

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  void make_room(const Collective& call);
  void bring(const Collective& call, const Tensor* from);
  void meet_processes(const Collective& call);
  std::string reason_of(const std::exception_ptr& error, const Collective& call) const;
  void call_world(const Collective& call);
  void take(const Collective& call, Tensor* to);
  std::vector<double> weights_of_processes(const Collective& call) const;
  std::vector<int64_t> bounds_of_processes(const Collective& call) const;
  RankReduction reduction(const Collective& call) const;
  bool has_root(const Collective& call) const { return call.root / threads_ == process_->world->rank(); }

  std::shared_ptr<Process> process_;
  const int thread_, threads_;
};

NestedCommunicator::~NestedCommunicator() {
  try {
    process_->group.fail(fmt::format("rank {} has left", rank()));
  } catch (...) {  // no memory for the message; the others find out when their time is over
  }
}

void NestedCommunicator::fail(const std::string& reason) noexcept {
  try {
    process_->group.fail(reason);
    process_->world->fail(std::string(of_threads) + reason);
  } catch (...) {  // as above
  }
}

bool NestedCommunicator::run(const Collective& call, const Tensor* from, Tensor* to) {
  Process& process = *process_;
  ThreadGroup& group = process.group;
  // The others are done with those of the collective before.
  process.from[static_cast<size_t>(thread_)] = from ? from->address() : nullptr;
  process.to[static_cast<size_t>(thread_)] = to;
  if (thread_ == 0) make_room(call);
  bool raised = false;
  try {
    raised = group.meet(thread_, call, timeout(), napping());
  } catch (const CommunicatorError&) {
    process.world->fail(std::string(of_threads) + group.reason());
    throw;
  }
  bring(call, from);
  group.arrive(thread_, 2);
  group.wait(thread_, 2, napping());
  if (thread_ == 0) {
    process.raised = raised;
    meet_processes(call);
  }
  group.arrive(thread_, 3);
  group.wait(thread_, 3, napping());
  // Neither changes before all have come to the next collective.
  if (process.error.empty()) take(call, to);
  group.arrive(thread_, 4);
  group.wait(thread_, 4, napping());
  if (!process.error.empty()) throw CommunicatorError(fmt::format("{}: {}", call.str(), process.error));
  return process.raised;
}

// By the first thread, before it comes.
void NestedCommunicator::make_room(const Collective& call) {
  const auto get = [](Tensor& tensor, int64_t elements, DType dtype) {
    if (!tensor.defined() || tensor.elements() != elements || tensor.dtype() != dtype)
      tensor = Tensor({elements}, dtype);
  };
  const int64_t elements = call.spec.shape.elements();
  const DType dtype = sum_type(call.spec.dtype);
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
    case Kind::reduce_parts: return get(process_->mine, elements, dtype);
    case Kind::reduce_scatter:
      get(process_->mine, elements, dtype);
      return get(process_->all, elements / process_->world->size(), dtype);
    case Kind::all_gather: return get(process_->mine, elements * threads_, call.spec.dtype);
    case Kind::gather_parts:
    case Kind::broadcast:
    case Kind::barrier: return;
  }
}

RankReduction NestedCommunicator::reduction(const Collective& call) const {
  RankReduction work;
  work.reduction = call.reduction == Reduction::mean ? Reduction::sum : call.reduction;
  work.dtype = call.spec.dtype;
  return work;
}

void NestedCommunicator::bring(const Collective& call, const Tensor* from) {
  const int64_t elements = call.spec.shape.elements();
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
    case Kind::reduce_parts:
    case Kind::reduce_scatter: {
      void* const into = process_->mine.address();
      RankReduction work = reduction(call);
      work.from = process_->from;
      if (!call.weights.empty())
        work.weights = std::span(call.weights)
                           .subspan(static_cast<size_t>(rank() - thread_), static_cast<size_t>(threads_));
      work.to = {&into, 1};
      work.first = work.to_first = share_begin(elements, threads_, thread_);
      work.count = share_begin(elements, threads_, thread_ + 1) - work.first;
      work.result = process_->mine.dtype();
      return reduce_ranks(work);
    }
    case Kind::all_gather:
      if (from->bytes() > 0)
        std::memcpy(
            static_cast<char*>(process_->mine.address()) + static_cast<size_t>(thread_) * from->bytes(),
            from->address(), from->bytes());
      return;
    case Kind::gather_parts: {  // all parts of the process meet in the tensor of the first thread
      const auto me = static_cast<size_t>(rank());
      const size_t element = size_of(call.spec.dtype), begin = static_cast<size_t>(call.bounds[me]) * element,
                   bytes = static_cast<size_t>(call.bounds[me + 1]) * element - begin;
      if (thread_ != 0 && bytes > 0)
        std::memcpy(static_cast<char*>(process_->to[0]->address()) + begin,
                    static_cast<const char*>(from->address()) + begin, bytes);
      return;
    }
    case Kind::broadcast:
    case Kind::barrier: return;
  }
}

// Throws nothing: the other threads wait.
void NestedCommunicator::meet_processes(const Collective& call) {
  Process& process = *process_;
  try {
    Communicator& world = *process.world;
    world.set_timeout(timeout() + longer);
    world.set_napping(napping());
    if (process.raised) world.raise();
    call_world(call);
    if (process.raised) world.lower();
    process.raised = world.raised();
  } catch (...) {
    try {
      process.error = reason_of(std::current_exception(), call);
      process.group.fail("an earlier collective failed: " + call.str() + ": " + process.error);
    } catch (...) {
      process.error = "out of memory";  // so short that it needs none
      process.group.fail({});
    }
  }
}

// What came from other processes, without the call, which all know.
std::string NestedCommunicator::reason_of(const std::exception_ptr& error, const Collective& call) const {
  std::string reason = message_of(error);
  if (const std::string begin = call.str() + ": "; reason.starts_with(begin)) reason.erase(0, begin.size());
  if (reason.starts_with(of_threads)) return reason.substr(of_threads.size());
  return fmt::format("of the processes, with {} ranks each: {}", threads_, reason);
}

// Each process's sum counts once, if anything is in it.
std::vector<double> NestedCommunicator::weights_of_processes(const Collective& call) const {
  std::vector<double> weights(static_cast<size_t>(process_->world->size()), 0);
  for (size_t i = 0; i < call.weights.size(); ++i)
    if (call.weights[i] != 0) weights[i / static_cast<size_t>(threads_)] = 1;
  return weights;
}

// A process has the parts of its threads.
std::vector<int64_t> NestedCommunicator::bounds_of_processes(const Collective& call) const {
  std::vector<int64_t> bounds;
  for (size_t i = 0; i < call.bounds.size(); i += static_cast<size_t>(threads_))
    bounds.push_back(call.bounds[i]);
  return bounds;
}

void NestedCommunicator::call_world(const Collective& call) {
  Communicator& world = *process_->world;
  Tensor& mine = process_->mine;
  const Reduction reduction = this->reduction(call).reduction;
  switch (call.kind) {
    case Kind::all_reduce: return call_part(world, call, Kind::all_reduce, reduction, 0, &mine, &mine);
    case Kind::all_reduce_weighted:
      return call_part(world, call, Kind::all_reduce_weighted, Reduction::sum, 0, &mine, &mine,
                       weights_of_processes(call));
    case Kind::reduce_parts:
      return call_part(world, call, Kind::reduce_parts, Reduction::sum, 0, &mine, &mine,
                       weights_of_processes(call), bounds_of_processes(call));
    case Kind::gather_parts:
      return call_part(world, call, Kind::gather_parts, Reduction::sum, 0, process_->to[0], process_->to[0],
                       {}, bounds_of_processes(call));
    case Kind::reduce_scatter:
      return call_part(world, call, Kind::reduce_scatter, reduction, 0, &mine, &process_->all);
    case Kind::all_gather:
      return call_part(world, call, Kind::all_gather, Reduction::sum, 0, &mine, process_->to[0]);
    case Kind::broadcast: {
      // From the root's tensor to that of the first thread of every other process.
      Tensor* const values = process_->to[static_cast<size_t>(has_root(call) ? call.root % threads_ : 0)];
      return call_part(world, call, Kind::broadcast, Reduction::sum, call.root / threads_, values, values);
    }
    case Kind::barrier: return call_part(world, call, Kind::barrier, Reduction::sum, 0, nullptr, nullptr);
  }
}

void NestedCommunicator::take(const Collective& call, Tensor* to) {
  const auto copy_of = [&](const Tensor& values) {
    if (&values != to && to->bytes() > 0) std::memcpy(to->address(), values.address(), to->bytes());
  };
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
    case Kind::reduce_scatter: {
      const bool scatters = call.kind == Kind::reduce_scatter;
      const Tensor& values = scatters ? process_->all : process_->mine;
      const void* const source = values.address();
      void* const into = to->address();
      RankReduction work;
      work.reduction = call.reduction;
      work.dtype = values.dtype();
      work.from = {&source, 1};
      work.to = {&into, 1};
      work.count = to->elements();
      work.first = scatters ? thread_ * work.count : 0;
      work.mean_of = size();
      work.result = to->dtype();
      return reduce_ranks(work);
    }
    case Kind::reduce_parts: {
      const auto me = static_cast<size_t>(rank());
      const void* const source = process_->mine.address();
      void* const into = to->address();
      RankReduction work;
      work.dtype = process_->mine.dtype();
      work.from = {&source, 1};
      work.to = {&into, 1};
      work.first = work.to_first = call.bounds[me];
      work.count = call.bounds[me + 1] - call.bounds[me];
      work.result = to->dtype();
      return reduce_ranks(work);
    }
    case Kind::all_gather:
    case Kind::gather_parts: return copy_of(*process_->to[0]);
    case Kind::broadcast:
      return copy_of(*process_->to[static_cast<size_t>(has_root(call) ? call.root % threads_ : 0)]);
    case Kind::barrier: return;
  }
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_nested_group(int threads,
                                                             std::shared_ptr<Communicator> world) {
  if (threads < 1) throw Error(fmt::format("make_nested_group: {} ranks are no group", threads));
  if (world->size() == 1) return make_thread_group(threads);
  const auto process = std::make_shared<Process>(threads, std::move(world));
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int thread = 0; thread < threads; ++thread)
    ranks.push_back(std::make_shared<NestedCommunicator>(process, thread, threads));
  return ranks;
}

}  // namespace espalier
