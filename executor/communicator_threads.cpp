#include "espalier/executor/communicator_threads.h"

#include <fmt/format.h>

#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/reduce_ranks.h"
#include "espalier/executor/thread_group.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

// Each collective is two meetings. After the first all ranks are in it, and none goes before the second: so
// they may read and write each other's tensors in between, and no error comes out of there.
struct Ranks {
  explicit Ranks(int size) : group(size, 2), from(static_cast<size_t>(size)), to(static_cast<size_t>(size)) {}

  ThreadGroup group;
  std::vector<const void*> from;  // by rank: where the elements lie, and where they shall go
  std::vector<void*> to;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Ranks> ranks, int rank, int size)
      : Communicator(rank, size), ranks_(std::move(ranks)) {}
  ~ThreadCommunicator() override;

  void fail(const std::string& reason) noexcept override;

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  void work(const Collective& call, const Tensor* from, Tensor* to);

  std::shared_ptr<Ranks> ranks_;
};

ThreadCommunicator::~ThreadCommunicator() {
  try {
    ranks_->group.fail(fmt::format("rank {} has left", rank()));
  } catch (...) {  // no memory for the message; the others find out when their time is over
  }
}

void ThreadCommunicator::fail(const std::string& reason) noexcept {
  try {
    ranks_->group.fail(reason);
  } catch (...) {  // as above
  }
}

bool ThreadCommunicator::run(const Collective& call, const Tensor* from, Tensor* to) {
  const auto me = static_cast<size_t>(rank());
  // The others are done with those of the collective before.
  ranks_->from[me] = from ? from->address() : nullptr;
  ranks_->to[me] = to ? to->address() : nullptr;
  const bool raised = ranks_->group.meet(rank(), call, timeout(), napping());
  work(call, from, to);
  ranks_->group.arrive(rank(), 2);
  ranks_->group.wait(rank(), 2, napping());
  return raised;
}

void ThreadCommunicator::work(const Collective& call, const Tensor* from, Tensor* to) {
  const int64_t elements = call.spec.shape.elements();
  const auto me = static_cast<size_t>(rank());
  RankReduction reduction;
  reduction.reduction = call.reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = ranks_->from;
  reduction.weights = call.weights;
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
      // Each rank reads and writes its share of everybody's elements, and nobody else touches that.
      reduction.to = ranks_->to;
      reduction.first = reduction.to_first = share_begin(elements, size(), rank());
      reduction.count = share_begin(elements, size(), rank() + 1) - reduction.first;
      return reduce_ranks(reduction);
    case Kind::reduce_scatter:
      reduction.to = {&ranks_->to[me], 1};
      reduction.count = elements / size();
      reduction.first = reduction.count * rank();
      return reduce_ranks(reduction);
    case Kind::all_gather: {
      const size_t bytes = from->bytes();
      char* into = static_cast<char*>(to->address());
      if (bytes == 0) return;
      for (const void* part : ranks_->from) {
        std::memcpy(into, part, bytes);
        into += bytes;
      }
      return;
    }
    case Kind::reduce_parts:
      // Of a rank's values others read what is not its own part, and nobody else writes.
      reduction.to = {&ranks_->to[me], 1};
      reduction.first = reduction.to_first = call.bounds[me];
      reduction.count = call.bounds[me + 1] - reduction.first;
      return reduce_ranks(reduction);
    case Kind::gather_parts: {
      const size_t element = size_of(call.spec.dtype);
      for (size_t other = 0; other < ranks_->from.size(); ++other) {
        const size_t begin = static_cast<size_t>(call.bounds[other]) * element,
                     bytes = static_cast<size_t>(call.bounds[other + 1]) * element - begin;
        if (other == me || bytes == 0) continue;
        std::memcpy(static_cast<char*>(to->address()) + begin,
                    static_cast<const char*>(ranks_->from[other]) + begin, bytes);
      }
      return;
    }
    case Kind::broadcast:
      if (rank() != call.root && to->bytes() > 0)
        std::memcpy(to->address(), ranks_->from[static_cast<size_t>(call.root)], to->bytes());
      return;
    case Kind::barrier: return;
  }
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_thread_group(int size) {
  if (size < 1) throw Error(fmt::format("make_thread_group: {} ranks are no group", size));
  const auto ranks = std::make_shared<Ranks>(size);
  std::vector<std::shared_ptr<Communicator>> group;
  for (int rank = 0; rank < size; ++rank)
    group.push_back(std::make_shared<ThreadCommunicator>(ranks, rank, size));
  return group;
}

}  // namespace espalier
