#include <fmt/format.h>

#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/communicators/groups.h"
#include "espalier/executor/communicators/reduce_ranks.h"
#include "espalier/executor/communicators/rendezvous.h"

namespace espalier {
namespace {

// A collective has two phases. Between them all ranks are in it, so they may read and write each other's
// tensors; nothing there throws.
struct ThreadRanks {
  explicit ThreadRanks(int size)
      : rendezvous(size, 2), from(static_cast<size_t>(size)), to(static_cast<size_t>(size)) {}

  Rendezvous rendezvous;
  std::vector<const void*> from;  // by rank, see RankBuffers
  std::vector<void*> to;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadRanks> ranks, int rank, int size)
      : Communicator(rank, size), ranks_(std::move(ranks)) {}
  ~ThreadCommunicator() override { ranks_->rendezvous.leave(rank()); }

  void fail(const std::string& reason) noexcept override { ranks_->rendezvous.fail(reason); }

 private:
  bool run(const Collective& call, const RankBuffers& own) override;
  void gather(const Collective& call, char* to) const;

  std::shared_ptr<ThreadRanks> ranks_;
};

bool ThreadCommunicator::run(const Collective& call, const RankBuffers& own) {
  const auto me = static_cast<size_t>(rank());
  // No other rank reads those of the previous collective any more.
  ranks_->from[me] = own.from;
  ranks_->to[me] = own.to;
  const bool stop_requested = ranks_->rendezvous.begin(rank(), call, timeout(), blocking_wait());
  // In place no rank writes what another reads: each writes its own range, or its chunk on all ranks.
  if (call.kind == Collective::Kind::reduce)
    reduce_ranks(reduction_by_rank(call, rank(), ranks_->from, ranks_->to));
  if (call.kind == Collective::Kind::gather) gather(call, own.to);
  ranks_->rendezvous.arrive_and_wait(rank(), 2, blocking_wait());
  return stop_requested;
}

void ThreadCommunicator::gather(const Collective& call, char* to) const {
  const size_t element = size_of(call.spec.dtype);
  for (int other = 0; other < size(); ++other) {
    const auto [begin, count] = call.range(other);
    char* const into = to + static_cast<size_t>(begin) * element;
    const void* const from = ranks_->from[static_cast<size_t>(other)];
    if (count > 0 && into != from) std::memcpy(into, from, static_cast<size_t>(count) * element);
  }
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_thread_group(int size) {
  if (size < 1) throw Error(fmt::format("make_thread_group: {} ranks are no group", size));
  const auto ranks = std::make_shared<ThreadRanks>(size);
  std::vector<std::shared_ptr<Communicator>> group;
  for (int rank = 0; rank < size; ++rank)
    group.push_back(std::make_shared<ThreadCommunicator>(ranks, rank, size));
  return group;
}

}  // namespace espalier
