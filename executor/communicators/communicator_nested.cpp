#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/communicators/groups.h"
#include "espalier/executor/communicators/reduce_ranks.h"
#include "espalier/executor/communicators/rendezvous.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

// Added to the timeout of `world`, so that a thread that does not arrive is reported by its own process,
// which knows more about it.
constexpr double extra_timeout = 2;
// Starts a failure message about a rank of the whole job rather than of `world`.
constexpr std::string_view of_threads = "of all threads, ";

// A collective has four phases: all threads have begun; the contribution of the process is complete; the
// first thread has performed the collective among the processes; all threads have taken their results.
struct Process {
  Process(int threads, std::shared_ptr<Communicator> processes)
      : world(std::move(processes)),
        rendezvous(threads, 4, world->rank() * threads),
        from(static_cast<size_t>(threads)) {}

  const std::shared_ptr<Communicator> world;
  Rendezvous rendezvous;
  std::vector<const void*> from;  // by thread
  Tensor* output = nullptr;       // of the first thread: a gather takes place there
  Tensor sum;                     // a reduction takes place here
  bool stop_requested = false;
  std::string error;  // of the collective among the processes
};

DType sum_type(DType dtype) { return is_real(dtype) && size_of(dtype) == 2 ? float32 : dtype; }

class NestedCommunicator final : public Communicator {
 public:
  NestedCommunicator(std::shared_ptr<Process> process, int thread, int threads)
      : Communicator(process->world->rank() * threads + thread, process->world->size() * threads),
        process_(std::move(process)),
        thread_(thread),
        threads_(threads) {}
  ~NestedCommunicator() override { process_->rendezvous.leave(thread_); }

  void fail(const std::string& reason) noexcept override;

 private:
  bool run(const Collective& call, const RankBuffers& own) override;
  void prepare(const Collective& call, const RankBuffers& own);
  void contribute(const Collective& call, const RankBuffers& own);
  void call_world(const Collective& call);
  Collective call_of_processes(const Collective& call) const;
  std::string reason_of(const std::exception_ptr& error, const Collective& call) const;
  void take(const Collective& call, const RankBuffers& own);

  std::shared_ptr<Process> process_;
  const int thread_, threads_;
};

void NestedCommunicator::fail(const std::string& reason) noexcept {
  process_->rendezvous.fail(reason);
  try {
    process_->world->fail(std::string(of_threads) + reason);
  } catch (...) {  // no memory for the message; the other processes time out
  }
}

bool NestedCommunicator::run(const Collective& call, const RankBuffers& own) {
  Process& process = *process_;
  Rendezvous& rendezvous = process.rendezvous;
  const bool blocking = blocking_wait();
  // No other thread reads those of the previous collective any more.
  process.from[static_cast<size_t>(thread_)] = own.from;
  if (thread_ == 0) prepare(call, own);
  bool stop_requested = false;
  try {
    stop_requested = rendezvous.begin(thread_, call, timeout(), blocking);
  } catch (const CommunicatorError&) {
    process.world->fail(std::string(of_threads) + rendezvous.reason());
    throw;
  }
  contribute(call, own);
  rendezvous.arrive_and_wait(thread_, 2, blocking);
  if (thread_ == 0) {
    process.stop_requested = stop_requested;
    call_world(call);
  }
  rendezvous.arrive_and_wait(thread_, 3, blocking);
  // Error and stop request stay until all threads begin the next collective.
  if (process.error.empty()) take(call, own);
  rendezvous.arrive_and_wait(thread_, 4, blocking);
  if (!process.error.empty()) throw CommunicatorError(fmt::format("{}: {}", call.str(), process.error));
  return process.stop_requested;
}

// By the first thread, before it begins the collective.
void NestedCommunicator::prepare(const Collective& call, const RankBuffers& own) {
  process_->output = own.output;
  if (call.kind != Kind::reduce) return;
  Tensor& sum = process_->sum;
  const DType dtype = sum_type(call.spec.dtype);
  if (!sum.defined() || sum.elements() != call.elements || sum.dtype() != dtype)
    sum = Tensor({call.elements}, dtype);
}

void NestedCommunicator::contribute(const Collective& call, const RankBuffers& own) {
  if (call.kind == Kind::reduce) {
    void* const into = process_->sum.address();
    RankReduction work = reduction_of(call, process_->from);
    if (work.reduction == Reduction::mean) work.reduction = Reduction::sum;
    if (!call.weights.empty())
      work.weights =
          work.weights.subspan(static_cast<size_t>(rank() - thread_), static_cast<size_t>(threads_));
    const auto [begin, count] = chunk(call.elements, threads_, thread_);
    work.first = work.to_first = begin;
    work.count = count;
    work.to = {&into, 1};
    work.result = process_->sum.dtype();
    reduce_ranks(work);
  }
  if (call.kind == Kind::gather) {
    const auto [begin, count] = call.range(rank());
    const size_t element = size_of(call.spec.dtype);
    char* const into = static_cast<char*>(process_->output->address()) + static_cast<size_t>(begin) * element;
    if (count > 0 && into != own.from) std::memcpy(into, own.from, static_cast<size_t>(count) * element);
  }
}

// Throws nothing, since the other threads wait for this one.
void NestedCommunicator::call_world(const Collective& call) {
  Process& process = *process_;
  try {
    Communicator& world = *process.world;
    world.set_timeout(timeout() + extra_timeout);
    world.set_blocking_wait(blocking_wait());
    if (process.stop_requested) world.request_stop();
    Tensor* const values = call.kind == Kind::reduce ? &process.sum : process.output;
    forward(world, call_of_processes(call), values, values);
    if (process.stop_requested) world.clear_stop();
    process.stop_requested = world.stop_requested();
  } catch (...) {
    try {
      process.error = reason_of(std::current_exception(), call);
      process.rendezvous.fail("an earlier collective failed: " + call.str() + ": " + process.error);
    } catch (...) {
      process.error = "out of memory";  // short enough to need none
      process.rendezvous.fail({});
    }
  }
}

// The same collective, in place, with one rank per process: its range is that of its threads together.
Collective NestedCommunicator::call_of_processes(const Collective& call) const {
  const auto threads = static_cast<size_t>(threads_),
             processes = static_cast<size_t>(process_->world->size());
  Collective result = call;
  if (call.kind == Kind::reduce) result.spec = process_->sum.spec();
  if (call.reduction == Reduction::mean) result.reduction = Reduction::sum;
  if (!call.weights.empty()) {
    // The sum of a process counts once, unless all its threads have weight 0.
    result.weights.assign(processes, 0);
    for (size_t i = 0; i < call.weights.size(); ++i)
      if (call.weights[i] != 0) result.weights[i / threads] = 1;
  }
  if (!call.bounds.empty()) {
    result.bounds.clear();
    for (size_t i = 0; i <= processes; ++i) result.bounds.push_back(call.bounds[i * threads]);
  }
  if (call.root >= 0) result.root = call.root / threads_;
  result.parent = call.hash();
  result.parent_text = call.str();
  return result;
}

// The reason without the call, which all threads know.
std::string NestedCommunicator::reason_of(const std::exception_ptr& error, const Collective& call) const {
  std::string reason = message_of(error);
  if (const std::string begin = call.str() + ": "; reason.starts_with(begin)) reason.erase(0, begin.size());
  if (reason.starts_with(of_threads)) return reason.substr(of_threads.size());
  return fmt::format("of the processes, with {} ranks each: {}", threads_, reason);
}

void NestedCommunicator::take(const Collective& call, const RankBuffers& own) {
  if (call.kind == Kind::reduce) {
    const void* const source = process_->sum.address();
    void* const into = own.to;
    const auto [begin, count] = call.range(rank());
    RankReduction work;
    work.reduction = call.reduction;
    work.dtype = process_->sum.dtype();
    work.from = {&source, 1};
    work.first = begin;
    work.to = {&into, 1};
    work.count = count;
    work.mean_of = size();
    work.result = call.spec.dtype;
    reduce_ranks(work);
  }
  if (call.kind == Kind::gather && own.output != process_->output && own.output->bytes() > 0)
    std::memcpy(own.to, process_->output->address(), own.output->bytes());
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
