#include "espalier/executor/communicators/mpi/communicator_mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/communicators/mpi/exchange.h"
#include "espalier/executor/communicators/reduce_ranks.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;
using Ranges = std::vector<Collective::Range>;  // by rank

constexpr int64_t text_bytes = 1024;
constexpr int64_t slot_bytes = 1 << 20;    // received from one rank in one piece of a reduction
constexpr int64_t piece_bytes = 64 << 20;  // in one piece of a gather

// MPI only moves bytes between pairs of ranks. The arithmetic is that of threads, and so are the bits.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const EspalierMpi& mpi)
      : Communicator(mpi.rank, mpi.size),
        exchange_(mpi, timeout()),
        calls_({size(), 2}, int64),
        sources_(static_cast<size_t>(mpi.size)) {}

  void fail(const std::string& reason) noexcept override {
    try {
      exchange_.fail(reason);
    } catch (...) {  // no memory for the message; the other ranks time out
    }
  }

 private:
  bool run(const Collective& call, const RankBuffers& own) override;
  bool compare(const Collective& call);
  [[noreturn]] void throw_mismatch(const Collective& call, int other);
  void reduce(const Collective& call, const RankBuffers& own);
  void gather(const Collective& call, const RankBuffers& own);
  void reduce_piece(const Collective& call, const Ranges& ranges, const char* from, char* to);
  void gather_piece(const Ranges& ranges, size_t element, const char* from, char* to, int except = -1);
  void scatter_piece(const Ranges& ranges, size_t element, char* values, int root);

  Ranges chunks(int64_t begin, int64_t count) const;
  Ranges piece_of_ranges(const Collective& call, int64_t first, int64_t count) const;
  char* slot(int rank);

  MpiExchange exchange_;
  Tensor calls_;  // of all ranks: hash, and whether a stop is requested
  Tensor slots_;  // room for what the other ranks send to a reduction
  std::vector<const void*> sources_;
};

bool MpiCommunicator::run(const Collective& call, const RankBuffers& own) {
  std::vector<Tensor> memory = {calls_};
  if (slots_.defined()) memory.push_back(slots_);
  if (own.input) memory.insert(memory.end(), {*own.input, *own.output});
  exchange_.begin(call, std::move(memory), timeout(), blocking_wait());
  const bool stop_requested = compare(call);
  if (call.kind == Kind::reduce) reduce(call, own);
  if (call.kind == Kind::gather) gather(call, own);
  return stop_requested;
}

// Returns whether any rank requests a stop. All ranks see the same hashes, so they agree on whether the calls
// match.
bool MpiCommunicator::compare(const Collective& call) {
  int64_t* const calls = calls_.data<int64_t>();
  const auto of = [&](int rank) { return calls + 2 * rank; };
  of(rank())[0] = static_cast<int64_t>(call.hash());
  of(rank())[1] = call.stop_requested;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    exchange_.send(other, of(rank()), 2 * sizeof(int64_t));
    exchange_.receive(other, of(other), 2 * sizeof(int64_t));
  }
  exchange_.transfer();
  bool stop_requested = false;
  for (int other = 0; other < size(); ++other) {
    if (of(other)[0] != of(rank())[0]) throw_mismatch(call, other);
    stop_requested |= of(other)[1] != 0;
  }
  return stop_requested;
}

// All ranks call it, and exchange the texts of their calls.
void MpiCommunicator::throw_mismatch(const Collective& call, int other) {
  Tensor texts = zeros({size(), text_bytes / 8}, int64);
  exchange_.add_memory(texts);
  const auto text = [&](int rank) { return static_cast<char*>(texts.address()) + rank * text_bytes; };
  call.str().copy(text(rank()), text_bytes - 1);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    exchange_.send(peer, text(rank()), text_bytes);
    exchange_.receive(peer, text(peer), text_bytes);
  }
  exchange_.transfer();
  std::string message = fmt::format("{}: rank {} called {}", call.str(), other, text(other));
  if (!call.where.called().empty())
    message +=
        "; the processes of a job call such functions all together, or say .replicas = {.distributed = "
        "false}";
  exchange_.fail("an earlier collective failed: " + message);
  throw CommunicatorError(message);
}

// Calls f(begin, count) for all pieces of `elements`.
template <class F>
void for_pieces(int64_t elements, int64_t longest, const F& f) {
  for (int64_t begin = 0; begin < elements; begin += longest) f(begin, std::min(longest, elements - begin));
}

int64_t longest_range(const Collective& call, int ranks) {
  int64_t longest = 0;
  for (int rank = 0; rank < ranks; ++rank) longest = std::max(longest, call.range(rank).count);
  return longest;
}

// A chunk of the elements `begin` to `begin + count` (excluded) for each rank.
Ranges MpiCommunicator::chunks(int64_t begin, int64_t count) const {
  Ranges ranges;
  for (int rank = 0; rank < size(); ++rank) {
    ranges.push_back(chunk(count, size(), rank));
    ranges.back().begin += begin;
  }
  return ranges;
}

// Elements `first` to `first + count` (excluded) of each rank's range, as far as it has them.
Ranges MpiCommunicator::piece_of_ranges(const Collective& call, int64_t first, int64_t count) const {
  Ranges ranges;
  for (int rank = 0; rank < size(); ++rank) {
    const auto [begin, length] = call.range(rank);
    ranges.push_back({begin + std::min(first, length), std::clamp<int64_t>(length - first, 0, count)});
  }
  return ranges;
}

void MpiCommunicator::reduce(const Collective& call, const RankBuffers& own) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto me = static_cast<size_t>(rank());
  // A whole is reduced chunk by chunk, one for each rank, and then gathered.
  if (call.bounds.empty())
    return for_pieces(call.elements, slot_bytes / element * size(), [&](int64_t begin, int64_t count) {
      const Ranges ranges = chunks(begin, count);
      char* const result = own.to + ranges[me].begin * element;
      reduce_piece(call, ranges, own.from, result);
      gather_piece(ranges, static_cast<size_t>(element), result, own.to);
    });
  for_pieces(longest_range(call, size()), slot_bytes / element, [&](int64_t first, int64_t count) {
    const Ranges ranges = piece_of_ranges(call, first, count);
    reduce_piece(call, ranges, own.from, own.to + (ranges[me].begin - call.range(rank()).begin) * element);
  });
}

void MpiCommunicator::gather(const Collective& call, const RankBuffers& own) {
  const size_t element = size_of(call.spec.dtype);
  const int64_t longest = piece_bytes / static_cast<int64_t>(element);
  const auto me = static_cast<size_t>(rank());
  // The root sends a chunk to each rank, and the ranks gather these: no rank sends everything to all.
  if (call.root >= 0)
    return for_pieces(call.elements, longest, [&](int64_t begin, int64_t count) {
      const Ranges ranges = chunks(begin, count);
      scatter_piece(ranges, element, own.to, call.root);
      gather_piece(ranges, element, own.to + static_cast<size_t>(ranges[me].begin) * element, own.to,
                   call.root);
    });
  for_pieces(longest_range(call, size()), longest, [&](int64_t first, int64_t count) {
    const Ranges ranges = piece_of_ranges(call, first, count);
    const int64_t offset = ranges[me].begin - call.range(rank()).begin;
    gather_piece(ranges, element, own.from + static_cast<size_t>(offset) * element, own.to);
  });
}

// Each rank receives its range of all others' wholes, and reduces them to `to`. A rank of weight 0 sends
// nothing.
void MpiCommunicator::reduce_piece(const Collective& call, const Ranges& ranges, const char* from, char* to) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto contributes = [&](int rank) {
    return call.weights.empty() || call.weights[static_cast<size_t>(rank)] != 0;
  };
  const auto [begin, count] = ranges[static_cast<size_t>(rank())];
  for (int other = 0; other < size(); ++other) {
    const auto at = static_cast<size_t>(other);
    sources_[at] = other == rank() ? from + begin * element : slot(other);
    if (other == rank()) continue;
    if (contributes(rank()))
      exchange_.send(other, from + ranges[at].begin * element, ranges[at].count * element);
    if (contributes(other)) exchange_.receive(other, slot(other), count * element);
  }
  exchange_.transfer();
  void* const result = to;
  RankReduction reduction = reduction_of(call, sources_);
  reduction.to = {&result, 1};
  reduction.count = count;
  reduce_ranks(reduction);
}

// Each rank sends its range, which is at `from`, to all others; rank `except` receives nothing.
void MpiCommunicator::gather_piece(const Ranges& ranges, size_t element, const char* from, char* to,
                                   int except) {
  const auto place = [&](int rank) {
    return to + static_cast<size_t>(ranges[static_cast<size_t>(rank)].begin) * element;
  };
  const auto bytes = [&](int rank) {
    return ranges[static_cast<size_t>(rank)].count * static_cast<int64_t>(element);
  };
  if (place(rank()) != from && bytes(rank()) > 0)
    std::memcpy(place(rank()), from, static_cast<size_t>(bytes(rank())));
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    if (other != except) exchange_.send(other, from, bytes(rank()));
    if (rank() != except) exchange_.receive(other, place(other), bytes(other));
  }
  exchange_.transfer();
}

// Each rank receives its range from the root.
void MpiCommunicator::scatter_piece(const Ranges& ranges, size_t element, char* values, int root) {
  for (int other = 0; other < size(); ++other) {
    const auto [begin, count] = ranges[static_cast<size_t>(other)];
    char* const place = values + static_cast<size_t>(begin) * element;
    const int64_t bytes = count * static_cast<int64_t>(element);
    if (rank() == root && other != root) exchange_.send(other, place, bytes);
    if (rank() == other && other != root) exchange_.receive(root, place, bytes);
  }
  exchange_.transfer();
}

char* MpiCommunicator::slot(int rank) {
  if (!slots_.defined()) {
    slots_ = Tensor({size() * slot_bytes / 8}, int64);
    exchange_.add_memory(slots_);
  }
  return static_cast<char*>(slots_.address()) + rank * slot_bytes;
}

}  // namespace

std::shared_ptr<Communicator> make_mpi_communicator(const EspalierMpi& mpi) {
  return std::make_shared<MpiCommunicator>(mpi);
}

}  // namespace espalier
