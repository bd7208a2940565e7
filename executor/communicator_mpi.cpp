#include "espalier/executor/communicator_mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/executor/mpi/rank_watch.h"
#include "espalier/executor/mpi/transport.h"
#include "espalier/executor/mpi/watch_hub.h"
#include "espalier/executor/reduce_ranks.h"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Collective::Kind;

constexpr size_t text_bytes = 1024;
constexpr int64_t share_bytes = 1 << 20;   // of one rank, in one piece of a reduction
constexpr int64_t piece_bytes = 64 << 20;  // of what is only moved
// A waiting rank first looks without pause; who comes later than that is worth a nap.
constexpr Clock::duration eager = std::chrono::milliseconds(5);
constexpr auto nap = std::chrono::microseconds(50), longest_nap = std::chrono::microseconds(200);
constexpr auto leaving_nap = std::chrono::milliseconds(1);
constexpr auto grace = std::chrono::seconds(3);  // for those who have not left after a failure
constexpr auto hub_patience = std::chrono::seconds(6);

// What ranks tell each other through MPI.
struct Words {
  struct Call {
    uint64_t hash = 0;
    uint64_t raised = 0;
  };
  explicit Words(int ranks) : calls(static_cast<size_t>(ranks)) {}

  uint64_t token = 0;
  std::array<char, text_bytes> addresses{};
  std::vector<Call> calls;  // by rank
  std::array<char, text_bytes> text{};
  std::vector<std::array<char, text_bytes>> texts;
};

// What is under way when a group fails cannot be taken back: its memory stays until the process ends.
struct Abandoned {
  std::vector<Tensor> tensors;
  std::unique_ptr<Words> words;
};
void keep_forever(Abandoned kept) { new Abandoned(std::move(kept)); }

int64_t longest_part(const Collective& call) {
  int64_t longest = 0;
  for (size_t r = 0; r + 1 < call.bounds.size(); ++r)
    longest = std::max(longest, call.bounds[r + 1] - call.bounds[r]);
  return longest;
}

// What a piece has of a rank's part: where it begins, and how many elements they are.
std::pair<int64_t, int64_t> piece_of(const Collective& call, int rank, int64_t first, int64_t count) {
  const int64_t begin = call.bounds[static_cast<size_t>(rank)],
                length = call.bounds[static_cast<size_t>(rank) + 1] - begin;
  return {begin + std::min(first, length), std::clamp<int64_t>(length - first, 0, count)};
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const EspalierMpi& mpi);
  ~MpiCommunicator() override;

  void fail(const std::string& reason) noexcept override;

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  void connect();
  bool compare(const Collective& call);
  void move(const Collective& call, const Tensor* from, Tensor* to);
  void all_reduce_piece(const Collective& call, char* values, int64_t elements);
  void reduce_scatter_piece(const Collective& call, const char* values, int64_t stride, char* part,
                            int64_t elements);
  void all_gather_piece(const char* part, char* values, int64_t stride, int64_t bytes);
  void broadcast_piece(int root, char* values, int64_t bytes);
  void reduce_parts_piece(const Collective& call, char* values, int64_t first, int64_t count);
  void gather_parts_piece(const Collective& call, char* values, int64_t first, int64_t count);

  void send(int peer, const void* data, int64_t bytes);
  void receive(int peer, void* data, int64_t bytes);
  void exchange();
  void check(int mpi_error);
  [[noreturn]] void give_up(const std::string& reason);
  char* slot(int rank);

  const EspalierMpi& mpi_;
  std::unique_ptr<WatchHub> hub_;  // in rank 0
  std::unique_ptr<RankWatch> watch_;
  uint64_t number_ = 0;  // of this collective
  const Collective* call_ = nullptr;
  const Tensor *from_ = nullptr, *to_ = nullptr;
  std::vector<EspalierMpiMessage> messages_;
  std::unique_ptr<Words> words_;
  Tensor received_;
  std::vector<const void*> sources_;
  const Clock::duration eager_;  // nothing where others need the core
};

MpiCommunicator::MpiCommunicator(const EspalierMpi& mpi)
    : Communicator(mpi.rank, mpi.size),
      mpi_(mpi),
      words_(std::make_unique<Words>(mpi.size)),
      sources_(static_cast<size_t>(mpi.size)),
      eager_(mpi.one_host && mpi.size > sysconf(_SC_NPROCESSORS_ONLN) ? Clock::duration() : eager) {
  connect();
}

MpiCommunicator::~MpiCommunicator() {
  watch_->leave();
  // Others may still need what this rank has sent, and the hub in rank 0. Ending MPI waits for all ranks, and
  // they may be dead or have given up: only if all have left without that do all end it.
  auto until = Clock::time_point::max();
  while (!watch_->over() && Clock::now() < until) {
    if (watch_->failed() && until == Clock::time_point::max()) until = Clock::now() + grace;
    mpi_.progress();
    std::this_thread::sleep_for(leaving_nap);
  }
  const bool healthy = watch_->over() && !watch_->failed();
  watch_.reset();
  hub_.reset();
  if (healthy) mpi_.finish();
}

// Rank 0 tells the others through MPI where its hub listens.
void MpiCommunicator::connect() {
  Words& words = *words_;
  const int64_t bytes[] = {sizeof(words.token), text_bytes};
  if (rank() == 0) {
    std::random_device random;
    words.token = uint64_t{random()} << 32 | random();
    hub_ = std::make_unique<WatchHub>(size(), words.token, mpi_.one_host);
    hub_->addresses().copy(words.addresses.data(), text_bytes - 1);
  }
  for (int other = 1; other < size(); ++other) {
    if (rank() == 0) send(other, &words.token, bytes[0]), send(other, words.addresses.data(), bytes[1]);
    if (rank() == other) receive(0, &words.token, bytes[0]), receive(0, words.addresses.data(), bytes[1]);
  }
  exchange();
  watch_ = std::make_unique<RankWatch>(rank(), words.addresses.data(), words.token);
}

void MpiCommunicator::fail(const std::string& reason) noexcept {
  try {
    watch_->fail(reason);
  } catch (...) {  // no memory for the message; the others find out when their time is over
  }
}

bool MpiCommunicator::run(const Collective& call, const Tensor* from, Tensor* to) {
  call_ = &call;
  from_ = from;
  to_ = to;
  ++number_;
  if (watch_->lost(number_)) give_up(watch_->reason(number_));
  watch_->begin(number_, call);
  const bool raised = compare(call);
  move(call, from, to);
  return raised;
}

void MpiCommunicator::move(const Collective& call, const Tensor* from, Tensor* to) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto* source = from ? static_cast<const char*>(from->address()) : nullptr;
  auto* target = to ? static_cast<char*>(to->address()) : nullptr;
  // Calls f with the beginning and the length of every piece.
  const auto pieces = [](int64_t all, int64_t most, const auto& f) {
    for (int64_t begin = 0; begin < all; begin += most) f(begin, std::min(most, all - begin));
  };
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
      return pieces(to->elements(), share_bytes / element * size(), [&](int64_t begin, int64_t count) {
        all_reduce_piece(call, target + begin * element, count);
      });
    case Kind::reduce_scatter:
      return pieces(to->elements(), share_bytes / element, [&](int64_t begin, int64_t count) {
        reduce_scatter_piece(call, source + begin * element, to->elements() * element,
                             target + begin * element, count);
      });
    case Kind::all_gather: {
      const int64_t part = from->elements() * element;
      return pieces(part, piece_bytes, [&](int64_t begin, int64_t bytes) {
        all_gather_piece(source + begin, target + begin, part, bytes);
      });
    }
    case Kind::reduce_parts:
      return pieces(longest_part(call), share_bytes / element,
                    [&](int64_t begin, int64_t count) { reduce_parts_piece(call, target, begin, count); });
    case Kind::gather_parts:
      return pieces(longest_part(call), piece_bytes / element,
                    [&](int64_t begin, int64_t count) { gather_parts_piece(call, target, begin, count); });
    case Kind::broadcast:
      return pieces(to->elements() * element, piece_bytes,
                    [&](int64_t begin, int64_t bytes) { broadcast_piece(call.root, target + begin, bytes); });
    case Kind::barrier: return;  // comparing was meeting
  }
}

// All ranks see the same hashes, so all agree on whether there is something to explain. Says whether any is
// marked.
bool MpiCommunicator::compare(const Collective& call) {
  Words& words = *words_;
  Words::Call& mine = words.calls[static_cast<size_t>(rank())];
  mine = {call.hash(), call.raised};
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    send(other, &mine, sizeof(mine));
    receive(other, &words.calls[static_cast<size_t>(other)], sizeof(mine));
  }
  exchange();
  const auto odd = std::ranges::find_if(words.calls, [&](const auto& one) { return one.hash != mine.hash; });
  if (odd == words.calls.end()) return std::ranges::any_of(words.calls, &Words::Call::raised);

  words.text.fill(0);
  call.str().copy(words.text.data(), text_bytes - 1);
  words.texts.resize(words.calls.size());
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    send(other, words.text.data(), text_bytes);
    receive(other, words.texts[static_cast<size_t>(other)].data(), text_bytes);
  }
  exchange();
  const auto other = static_cast<size_t>(odd - words.calls.begin());
  const std::string message =
      fmt::format("{}: rank {} called {}", call.str(), other, words.texts[other].data());
  watch_->fail("an earlier collective failed: " + message);
  throw CommunicatorError(message);
}

// Each rank gets everybody's elements of its share, reduces them, and gives the result to all. Those of a
// rank of weight 0 stay where they are.
void MpiCommunicator::all_reduce_piece(const Collective& call, char* values, int64_t elements) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto begin = [&](int rank) { return share_begin(elements, size(), rank); };
  const auto counts = [&](int rank) {
    return call.weights.empty() || call.weights[static_cast<size_t>(rank)] != 0;
  };
  const int64_t mine = begin(rank()), count = begin(rank() + 1) - mine;
  for (int other = 0; other < size(); ++other) {
    char* const place = other == rank() ? values + mine * element : slot(other);
    sources_[static_cast<size_t>(other)] = place;
    if (other == rank()) continue;
    if (counts(rank()))
      send(other, values + begin(other) * element, (begin(other + 1) - begin(other)) * element);
    if (counts(other)) receive(other, place, count * element);
  }
  exchange();
  void* const share = values + mine * element;
  RankReduction reduction;
  reduction.reduction = call.reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = sources_;
  reduction.weights = call.weights;
  reduction.to = {&share, 1};
  reduction.count = count;
  reduce_ranks(reduction);
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    send(other, share, count * element);
    receive(other, values + begin(other) * element, (begin(other + 1) - begin(other)) * element);
  }
  exchange();
}

void MpiCommunicator::reduce_scatter_piece(const Collective& call, const char* values, int64_t stride,
                                           char* part, int64_t elements) {
  const int64_t bytes = elements * static_cast<int64_t>(size_of(call.spec.dtype));
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) {
      sources_[static_cast<size_t>(other)] = values + other * stride;
      continue;
    }
    sources_[static_cast<size_t>(other)] = slot(other);
    send(other, values + other * stride, bytes);
    receive(other, slot(other), bytes);
  }
  exchange();
  void* const to = part;
  RankReduction reduction;
  reduction.reduction = call.reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = sources_;
  reduction.to = {&to, 1};
  reduction.count = elements;
  reduce_ranks(reduction);
}

void MpiCommunicator::all_gather_piece(const char* part, char* values, int64_t stride, int64_t bytes) {
  std::memcpy(values + rank() * stride, part, static_cast<size_t>(bytes));
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    send(other, part, bytes);
    receive(other, values + other * stride, bytes);
  }
  exchange();
}

// The root gives each rank a share, and each gives its share to all: nobody sends everything to everybody.
void MpiCommunicator::broadcast_piece(int root, char* values, int64_t bytes) {
  const auto begin = [&](int rank) { return share_begin(bytes, size(), rank); };
  const auto length = [&](int rank) { return begin(rank + 1) - begin(rank); };
  if (rank() != root) receive(root, values + begin(rank()), length(rank()));
  for (int other = 0; other < size(); ++other)
    if (rank() == root && other != root) send(other, values + begin(other), length(other));
  exchange();
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    if (other != root) send(other, values + begin(rank()), length(rank()));
    if (rank() != root) receive(other, values + begin(other), length(other));
  }
  exchange();
}

// Each rank gets everybody's elements of its part, and reduces them.
void MpiCommunicator::reduce_parts_piece(const Collective& call, char* values, int64_t first, int64_t count) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto counts = [&](int rank) { return call.weights[static_cast<size_t>(rank)] != 0; };
  const auto [mine, length] = piece_of(call, rank(), first, count);
  for (int other = 0; other < size(); ++other) {
    char* const place = other == rank() ? values + mine * element : slot(other);
    sources_[static_cast<size_t>(other)] = place;
    if (other == rank()) continue;
    const auto [theirs, elements] = piece_of(call, other, first, count);
    if (counts(rank())) send(other, values + theirs * element, elements * element);
    if (counts(other)) receive(other, place, length * element);
  }
  exchange();
  void* const part = values + mine * element;
  RankReduction reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = sources_;
  reduction.weights = call.weights;
  reduction.to = {&part, 1};
  reduction.count = length;
  reduce_ranks(reduction);
}

void MpiCommunicator::gather_parts_piece(const Collective& call, char* values, int64_t first, int64_t count) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto [mine, length] = piece_of(call, rank(), first, count);
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const auto [theirs, elements] = piece_of(call, other, first, count);
    send(other, values + mine * element, length * element);
    receive(other, values + theirs * element, elements * element);
  }
  exchange();
}

void MpiCommunicator::send(int peer, const void* data, int64_t bytes) {
  if (bytes) messages_.push_back({peer, 0, const_cast<void*>(data), static_cast<size_t>(bytes)});
}
void MpiCommunicator::receive(int peer, void* data, int64_t bytes) {
  if (bytes) messages_.push_back({peer, 1, data, static_cast<size_t>(bytes)});
}

// Room for what comes from a rank.
char* MpiCommunicator::slot(int rank) {
  if (!received_.defined()) received_ = Tensor({size() * share_bytes / 8}, int64);
  return static_cast<char*>(received_.address()) + rank * share_bytes;
}

void MpiCommunicator::check(int mpi_error) {
  if (mpi_error == 0) return;
  std::array<char, 512> text{};
  mpi_.describe(mpi_error, text.data(), text.size());
  give_up(fmt::format("MPI failed on rank {}: {}", rank(), text.data()));
}

// Sends and receives all messages, or throws in time.
void MpiCommunicator::exchange() {
  if (messages_.empty()) return;
  check(mpi_.start(messages_.data(), messages_.size()));
  const auto start = Clock::now();
  const std::chrono::duration<double> limit(timeout());
  int done = 0;
  bool asked = false;
  while (true) {
    if (!asked) check(mpi_.test(&done));
    if (done) break;
    if (watch_ && watch_->lost(number_)) give_up(watch_->reason(number_));
    const auto waited = Clock::now() - start;
    // Who naps from the start sleeps for longer the longer it waits.
    if (napping())
      std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 4, nap, longest_nap));
    else if (waited > eager_)
      std::this_thread::sleep_for(nap);
    if (waited < limit) continue;
    if (!watch_) give_up(fmt::format("the ranks did not meet within {:g} s", timeout()));
    if (!asked) watch_->ask(number_, timeout());
    asked = true;
    if (waited > limit + hub_patience)
      give_up(fmt::format("not all ranks came within {:g} s, and rank 0 does not answer", timeout()));
  }
  messages_.clear();
}

void MpiCommunicator::give_up(const std::string& reason) {
  if (watch_) watch_->fail(reason, number_ - 1);
  if (!messages_.empty()) {
    mpi_.abandon();
    Abandoned kept{{received_}, std::move(words_)};
    for (const Tensor* tensor : {from_, to_})
      if (tensor) kept.tensors.push_back(*tensor);
    keep_forever(std::move(kept));
    messages_.clear();
  }
  const std::string what = call_ ? call_->str() : "the first meeting of the ranks";
  throw CommunicatorError(fmt::format("{}: {}", what, reason));
}

}  // namespace

std::shared_ptr<Communicator> make_mpi_communicator(const EspalierMpi& mpi) {
  return std::make_shared<MpiCommunicator>(mpi);
}

}  // namespace espalier
