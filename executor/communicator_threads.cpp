#include "espalier/executor/communicator_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/reduce_ranks.h"
#include "espalier/executor/thread_meeting.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

struct ThreadGroup {
  // What a rank brings to a collective. Two descriptions, in turn: whoever waits in vain for a rank can read
  // the last one that it came to.
  struct alignas(64) Place {
    std::array<Collective, 2> calls;
    std::atomic<uint64_t> begun{0};
  };

  explicit ThreadGroup(int size)
      : meeting(size), places(static_cast<size_t>(size)), from(places.size()), to(places.size()) {}

  ThreadMeeting meeting;
  std::vector<Place> places;
  std::vector<const void*> from;  // by rank: where the elements lie, and where they shall go
  std::vector<void*> to;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, int size)
      : Communicator(rank, size), group_(std::move(group)) {}
  ~ThreadCommunicator() override;

  void abort(std::exception_ptr error) noexcept override;

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  void meet(const Collective& call);
  bool compare(const Collective& call);
  void work(const Collective& call, const Tensor* from, Tensor* to);
  std::string missing(uint64_t number) const;
  [[noreturn]] void throw_failure(const Collective& call);

  std::shared_ptr<ThreadGroup> group_;
  uint64_t calls_ = 0;  // collectives it has come to
};

ThreadCommunicator::~ThreadCommunicator() {
  try {
    group_->meeting.fail(fmt::format("rank {} has left", rank()));
  } catch (...) {  // no memory for the message; the others find out when their time is over
  }
}

void ThreadCommunicator::abort(std::exception_ptr error) noexcept {
  try {
    group_->meeting.fail(fmt::format("rank {} failed: {}", rank(), message_of(error)));
  } catch (...) {  // as above
  }
}

// Each collective is two meetings. After the first all ranks are in it, and none goes before the second: so
// they may read and write each other's tensors in between, and no error comes out of there.
bool ThreadCommunicator::run(const Collective& call, const Tensor* from, Tensor* to) {
  const auto me = static_cast<size_t>(rank());
  if (group_->meeting.failed()) throw_failure(call);
  ThreadGroup::Place& place = group_->places[me];
  place.calls[calls_ % 2] = call;
  group_->from[me] = from ? from->address() : nullptr;
  group_->to[me] = to ? to->address() : nullptr;

  meet(call);
  const bool raised = compare(call);
  work(call, from, to);
  group_->meeting.arrive_anyway(2 * calls_);
  group_->meeting.wait_anyway(2 * calls_, napping());
  return raised;
}

void ThreadCommunicator::meet(const Collective& call) {
  const auto until =
      ThreadMeeting::Clock::now() + std::chrono::duration_cast<ThreadMeeting::Clock::duration>(
                                        std::chrono::duration<double>(std::min(timeout(), 1e9)));
  const uint64_t number = 2 * calls_ + 1;
  group_->places[static_cast<size_t>(rank())].begun.store(calls_ + 1, std::memory_order_release);
  if (!group_->meeting.arrive(number)) throw_failure(call);
  ++calls_;
  using Outcome = ThreadMeeting::Outcome;
  Outcome outcome = group_->meeting.wait(number, until, napping());
  if (outcome == Outcome::late)
    outcome = group_->meeting.fail(missing(calls_), number) ? Outcome::failed : Outcome::complete;
  if (outcome == Outcome::failed) throw_failure(call);
}

// Says whether any rank is marked.
bool ThreadCommunicator::compare(const Collective& call) {
  bool raised = false;
  for (size_t other = 0; other < group_->places.size(); ++other) {
    const Collective& theirs = group_->places[other].calls[(calls_ - 1) % 2];
    raised |= theirs.raised;
    if (theirs.matches(call)) continue;
    const std::string message = fmt::format("{}: rank {} called {}", call.str(), other, theirs.str());
    group_->meeting.fail("an earlier collective failed: " + message);
    throw CommunicatorError(message);
  }
  return raised;
}

void ThreadCommunicator::work(const Collective& call, const Tensor* from, Tensor* to) {
  const int64_t elements = call.spec.shape.elements();
  const auto me = static_cast<size_t>(rank());
  RankReduction reduction;
  reduction.reduction = call.reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = group_->from;
  reduction.weights = call.weights;
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
      // Each rank reads and writes its share of everybody's elements, and nobody else touches that.
      reduction.to = group_->to;
      reduction.first = reduction.to_first = share_begin(elements, size(), rank());
      reduction.count = share_begin(elements, size(), rank() + 1) - reduction.first;
      return reduce_ranks(reduction);
    case Kind::reduce_scatter:
      reduction.to = {&group_->to[me], 1};
      reduction.count = elements / size();
      reduction.first = reduction.count * rank();
      return reduce_ranks(reduction);
    case Kind::all_gather: {
      const size_t bytes = from->bytes();
      char* into = static_cast<char*>(to->address());
      if (bytes == 0) return;
      for (const void* part : group_->from) {
        std::memcpy(into, part, bytes);
        into += bytes;
      }
      return;
    }
    case Kind::broadcast:
      if (rank() != call.root && to->bytes() > 0)
        std::memcpy(to->address(), group_->from[static_cast<size_t>(call.root)], to->bytes());
      return;
    case Kind::barrier: return;
  }
}

std::string ThreadCommunicator::missing(uint64_t number) const {
  std::string text;
  for (size_t other = 0; other < group_->places.size(); ++other) {
    const ThreadGroup::Place& place = group_->places[other];
    if (place.begun.load(std::memory_order_acquire) >= number) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("rank {} has not come within {:g} s, ", other, timeout());
    // It cannot come to the one after the next as long as this one is not complete, so this stays.
    text += number > 1 ? fmt::format("after {}", place.calls[number % 2].str()) : "and to no other before";
  }
  return text.empty() ? fmt::format("the ranks did not meet within {:g} s", timeout()) : text;
}

void ThreadCommunicator::throw_failure(const Collective& call) {
  throw CommunicatorError(fmt::format("{}: {}", call.str(), group_->meeting.reason()));
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_thread_group(int size) {
  if (size < 1) throw Error(fmt::format("make_thread_group: {} ranks are no group", size));
  const auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_shared<ThreadCommunicator>(group, rank, size));
  return ranks;
}

}  // namespace espalier
