#include "espalier/executor/communicators/nccl/communicator_nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/core/files/crc64.h"
#include "espalier/executor/communicators/nccl/nccl_ranks.h"
#include "espalier/executor/communicators/rendezvous.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

void check_gpu(const char* what, Device device) {
  if (device.type != DeviceType::cuda) throw DeviceError(fmt::format("{}: {} is no GPU", what, device.str()));
  (void)backend(device);  // throws where there is none
}

[[noreturn]] void throw_shared(const char* what, size_t a, size_t b, Device device) {
  throw UnsupportedError(fmt::format(
      "{}: ranks {} and {} are both on {}, and NCCL takes no two ranks on one GPU; threads of one "
      "process share one through make_device_group",
      what, a, b, device.str()));
}

double weight_of(const Collective& call, int rank) {
  return call.weights.empty() ? 1 : call.weights[static_cast<size_t>(rank)];
}

// All ranks in one process.

struct NcclGroup {
  explicit NcclGroup(size_t size) : rendezvous(static_cast<int>(size), 1) {}

  Rendezvous rendezvous;
  std::optional<cu::NcclRanks> ranks;  // destroyed first: its watch thread uses the rendezvous
};

class NcclThread final : public Communicator {
 public:
  NcclThread(std::shared_ptr<NcclGroup> group, int rank, int size, Device device)
      : Communicator(rank, size), group_(std::move(group)), device_(device) {}
  ~NcclThread() override { group_->rendezvous.leave(rank()); }

  void fail(const std::string& reason) noexcept override {
    group_->rendezvous.fail(reason);
    if (group_->ranks) group_->ranks->shorten_timeout();
  }

 private:
  bool run(const Collective& call, const RankBuffers& own) override;
  Device device() const override { return device_; }

  std::shared_ptr<NcclGroup> group_;
  Device device_;
};

bool NcclThread::run(const Collective& call, const RankBuffers& own) {
  const bool stop_requested = group_->rendezvous.begin(rank(), call, timeout(), blocking_wait());
  if (call.kind == Kind::barrier) return stop_requested;
  const cu::DeviceScope scope(device_.index);
  try {
    (*group_->ranks)[static_cast<size_t>(rank())].enqueue(call, own, weight_of(call, rank()), timeout());
  } catch (const CommunicatorError&) {
    abort(std::current_exception());
    throw CommunicatorError(fmt::format("{}: {}", call.str(), group_->rendezvous.reason()));
  }
  return stop_requested;
}

// One rank per process.

// The reason in a communicator's error, behind the call.
std::string reason_in(const std::string& message) {
  const auto at = message.find("): ");
  return at == message.npos ? message : message.substr(at + 3);
}

class NcclProcess final : public Communicator {
 public:
  NcclProcess(std::shared_ptr<Communicator> bootstrap, Device device, const ncclUniqueId& id)
      : Communicator(bootstrap->rank(), bootstrap->size()),
        bootstrap_(std::move(bootstrap)),
        device_(device) {
    set_timeout(bootstrap_->timeout());
    ranks_.emplace(std::vector<Device>{device}, rank(), size(), id, timeout(),
                   [this](size_t, const std::string& trouble) {
                     bootstrap_->abort(std::make_exception_ptr(CommunicatorError(trouble)));
                     failed_ = true;
                   });
  }

  // bootstrap_ fails first: a thread that sees failed_ asks it for the reason.
  void fail(const std::string& reason) noexcept override {
    bootstrap_->fail(reason);
    failed_ = true;
    ranks_->shorten_timeout();
  }

 private:
  bool run(const Collective& call, const RankBuffers& own) override;
  Device device() const override { return device_; }

  void compare(const Collective& call);
  std::vector<std::string> gather(const std::string& text, Where where);
  [[noreturn]] void throw_failure(const Collective& call);

  std::shared_ptr<Communicator> bootstrap_;
  Device device_;
  std::atomic<bool> failed_ = false;
  Crc64 history_;                       // of all compared calls
  std::unordered_set<uint64_t> known_;  // hashes of compared calls
  std::optional<cu::NcclRanks> ranks_;  // destroyed first: its watch thread uses the other members
};

bool NcclProcess::run(const Collective& call, const RankBuffers& own) {
  if (failed_) throw_failure(call);
  const uint64_t hash = call.hash();
  // Another rank may run a known one in a CUDA graph, which its host does not see.
  const bool compares = call.kind == Kind::barrier || known_.insert(hash).second;
  if (compares) history_.add(&hash, sizeof hash);
  try {
    if (compares) compare(call);
  } catch (const CommunicatorError& error) {
    abort(std::current_exception());
    throw CommunicatorError(fmt::format("{}: {}", call.str(), reason_in(error.what())));
  }
  // Stop requests travel with calls of bootstrap_.
  const bool stop_requested = bootstrap_->stop_requested();
  if (call.kind == Kind::barrier) return stop_requested;
  const cu::DeviceScope scope(device_.index);
  try {
    (*ranks_)[0].enqueue(call, own, weight_of(call, rank()), timeout());
  } catch (const CommunicatorError&) {
    abort(std::current_exception());
    throw_failure(call);
  }
  return stop_requested;
}

// Every rank sees the hashes of all, so all come to the same conclusion.
void NcclProcess::compare(const Collective& call) {
  const auto bits = [](uint64_t hash) { return static_cast<int64_t>(hash); };
  Tensor own({2}, int64), all({size(), 2}, int64);
  own.at<int64_t>({0}) = bits(history_.value());
  own.at<int64_t>({1}) = bits(call.hash());
  bootstrap_->all_gather(own, all, call.where);
  int other = 0;
  while (other < size() && all.at<int64_t>({other, 0}) == all.at<int64_t>({0, 0})) ++other;
  if (other == size()) return;
  // Rank 0 and the ranks that agree with it name the first one that differs; the others name rank 0.
  if (all.at<int64_t>({rank(), 0}) != all.at<int64_t>({0, 0})) other = 0;
  std::string theirs = gather(call.str(), call.where)[static_cast<size_t>(other)];
  if (all.at<int64_t>({other, 1}) == own.at<int64_t>({1})) theirs += ", and other collectives before";
  throw CommunicatorError(fmt::format("{}: rank {} called {}", call.str(), other, theirs));
}

std::vector<std::string> NcclProcess::gather(const std::string& text, Where where) {
  constexpr int64_t words = 128;  // longer texts are cut off
  constexpr size_t bytes = words * sizeof(int64_t);
  Tensor own = zeros({words}, int64), all({size(), words}, int64);
  std::memcpy(own.address(), text.data(), std::min(text.size(), bytes));
  bootstrap_->all_gather(own, all, where);
  std::vector<std::string> texts;
  for (int rank = 0; rank < size(); ++rank) {
    const char* begin = static_cast<const char*>(all.address()) + static_cast<size_t>(rank) * bytes;
    texts.emplace_back(begin, std::find(begin, begin + bytes, '\0'));
  }
  return texts;
}

// bootstrap_ has failed, and the first reason stays: its next error contains it.
void NcclProcess::throw_failure(const Collective& call) {
  try {
    bootstrap_->barrier(call.where);
  } catch (const CommunicatorError& error) {
    throw CommunicatorError(fmt::format("{}: {}", call.str(), reason_in(error.what())));
  }
  throw CommunicatorError(fmt::format("{}: an earlier collective failed", call.str()));
}

/// Two ranks on one GPU, if there are any: the same ones on all ranks.
std::optional<std::pair<int, int>> find_shared(Communicator& bootstrap, Device device) {
  cudaDeviceProp properties{};
  cu::check(cudaGetDeviceProperties(&properties, device.index), "asking for a device's properties");
  Tensor own({2}, int64), all({bootstrap.size(), 2}, int64);
  static_assert(sizeof properties.uuid == 2 * sizeof(int64_t));
  std::memcpy(own.address(), &properties.uuid, sizeof properties.uuid);
  bootstrap.all_gather(own, all);
  for (int a = 0; a < bootstrap.size(); ++a)
    for (int b = a + 1; b < bootstrap.size(); ++b)
      if (all.at<int64_t>({a, 0}) == all.at<int64_t>({b, 0}) &&
          all.at<int64_t>({a, 1}) == all.at<int64_t>({b, 1}))
        return std::pair(a, b);
  return {};
}

ncclUniqueId agree(Communicator& bootstrap) {
  ncclUniqueId id{};
  Tensor words({static_cast<int64_t>(sizeof id / sizeof(int64_t))}, int64);
  if (bootstrap.rank() == 0) id = cu::new_nccl_id();
  std::memcpy(words.address(), &id, sizeof id);
  bootstrap.broadcast(words, 0);
  std::memcpy(&id, words.address(), sizeof id);
  return id;
}

}  // namespace

CommunicatorGroup make_nccl_group(const std::vector<Device>& devices) {
  if (devices.empty()) throw Error("make_nccl_group: without devices there are no ranks");
  for (const Device& device : devices) check_gpu("make_nccl_group", device);
  for (size_t a = 0; a < devices.size(); ++a)
    for (size_t b = a + 1; b < devices.size(); ++b)
      if (devices[a] == devices[b]) throw_shared("make_nccl_group", a, b, devices[a]);

  const auto group = std::make_shared<NcclGroup>(devices.size());
  const int size = static_cast<int>(devices.size());
  CommunicatorGroup ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_shared<NcclThread>(group, rank, size, devices[static_cast<size_t>(rank)]));
  group->ranks.emplace(devices, 0, size, cu::new_nccl_id(), ranks[0]->timeout(),
                       [&rendezvous = group->rendezvous](size_t rank, const std::string& trouble) {
                         rendezvous.fail(fmt::format("rank {} failed: {}", rank, trouble));
                       });
  return ranks;
}

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap, Device device) {
  if (!bootstrap) throw Error("make_nccl_communicator: there is no communicator to begin with");
  std::optional<std::pair<int, int>> shared;
  // An error fails the group, since the other ranks wait here.
  const auto together = [&](auto&& f) {
    try {
      return f();
    } catch (...) {
      bootstrap->abort(std::current_exception());
      throw;
    }
  };
  together([&] {
    check_gpu("make_nccl_communicator", device);
    (void)cu::nccl();
    shared = find_shared(*bootstrap, device);
  });
  if (shared)
    throw_shared("make_nccl_communicator", static_cast<size_t>(shared->first),
                 static_cast<size_t>(shared->second), device);
  return together([&] {
    auto communicator = std::make_shared<NcclProcess>(bootstrap, device, agree(*bootstrap));
    bootstrap->barrier();
    return communicator;
  });
}

void add_nccl_groups(GroupMakers& makers) {
  GroupMaker& maker = makers[DeviceType::cuda];
  maker.in_process.insert(maker.in_process.begin(), make_nccl_group);
  maker.in_job = [](const std::vector<Device>& devices, std::shared_ptr<Communicator> world) {
    if (devices.size() > 1)
      throw UnsupportedError(fmt::format(
          "make_group: {} GPUs in each of {} processes; one process for each GPU is what goes together",
          devices.size(), world->size()));
    return CommunicatorGroup{make_nccl_communicator(std::move(world), devices[0])};
  };
}

}  // namespace espalier
