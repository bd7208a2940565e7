#include "espalier/executor/cuda/communicator_nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "espalier/core/crc64.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/executor/cuda/nccl_ranks.h"
#include "espalier/executor/thread_group.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

void check_device(const Collective& call, int rank, Device device, const Tensor* from, const Tensor* to) {
  for (const Tensor* tensor : {from, to})
    if (tensor && tensor->device() != device)
      throw DeviceError(fmt::format("{}: rank {} of this communicator is on {}, and the tensor on {}",
                                    call.str(), rank, device.str(), tensor->device().str()));
}

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

// One process with all ranks.

struct NcclGroup {
  explicit NcclGroup(size_t size) : group(static_cast<int>(size), 1) {}

  ThreadGroup group;
  std::optional<cu::NcclRanks> ranks;  // goes first: its watch tells the group
};

class NcclThread final : public Communicator {
 public:
  NcclThread(std::shared_ptr<NcclGroup> group, int rank, int size, Device device)
      : Communicator(rank, size), group_(std::move(group)), device_(device) {}
  ~NcclThread() override { tell(fmt::format("rank {} has left", rank())); }

  void fail(const std::string& reason) noexcept override {
    tell(reason);
    if (group_->ranks) group_->ranks->hurry();
  }

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  DeviceType device_type() const override { return DeviceType::cuda; }
  void tell(const std::string& reason) noexcept {
    try {
      group_->group.fail(reason);
    } catch (...) {  // no memory for the message; the others find out when their time is over
    }
  }

  std::shared_ptr<NcclGroup> group_;
  Device device_;
};

bool NcclThread::run(const Collective& call, const Tensor* from, Tensor* to) {
  check_device(call, rank(), device_, from, to);
  const bool raised = group_->group.meet(rank(), call, timeout(), napping());
  if (call.kind == Kind::barrier) return raised;
  const cu::DeviceScope scope(device_.index);
  try {
    (*group_->ranks)[static_cast<size_t>(rank())].enqueue(call, from, to, weight_of(call, rank()), timeout());
  } catch (const CommunicatorError&) {
    abort(std::current_exception());
    throw CommunicatorError(fmt::format("{}: {}", call.str(), group_->group.reason()));
  }
  return raised;
}

// One of several processes.

// What a communicator says behind the call that it was asked for.
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

  // Who sees that it failed asks the other communicator for the reason: it knows that first.
  void fail(const std::string& reason) noexcept override {
    bootstrap_->fail(reason);
    failed_ = true;
    ranks_->hurry();
  }

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  DeviceType device_type() const override { return DeviceType::cuda; }

  void compare(const Collective& call);
  std::vector<std::string> gather(const std::string& text, Where where);
  [[noreturn]] void throw_failure(const Collective& call);

  std::shared_ptr<Communicator> bootstrap_;
  Device device_;
  std::atomic<bool> failed_ = false;
  Crc64 history_;                       // of all calls
  std::unordered_set<uint64_t> known_;  // hashes of what was compared
  std::optional<cu::NcclRanks> ranks_;  // goes first: its watch tells the others
};

bool NcclProcess::run(const Collective& call, const Tensor* from, Tensor* to) {
  check_device(call, rank(), device_, from, to);
  if (failed_) throw_failure(call);
  const uint64_t hash = call.hash();
  // A known one may be part of a CUDA graph on another rank, where the host does not count it.
  const bool compares = call.kind == Kind::barrier || known_.insert(hash).second;
  if (compares) history_.add(&hash, sizeof hash);
  try {
    if (compares) compare(call);
  } catch (const CommunicatorError& error) {
    abort(std::current_exception());
    throw CommunicatorError(fmt::format("{}: {}", call.str(), reason_in(error.what())));
  }
  // A mark travels with what goes through the host.
  const bool raised = bootstrap_->raised();
  if (call.kind == Kind::barrier) return raised;
  const cu::DeviceScope scope(device_.index);
  try {
    (*ranks_)[0].enqueue(call, from, to, weight_of(call, rank()), timeout());
  } catch (const CommunicatorError&) {
    abort(std::current_exception());
    throw_failure(call);
  }
  return raised;
}

// All ranks come to the same conclusion: each sees what all have.
void NcclProcess::compare(const Collective& call) {
  const auto bits = [](uint64_t hash) { return static_cast<int64_t>(hash); };
  Tensor own({2}, int64), all({size(), 2}, int64);
  own.at<int64_t>({0}) = bits(history_.value());
  own.at<int64_t>({1}) = bits(call.hash());
  bootstrap_->all_gather(own, all, call.where);
  int other = 0;
  while (other < size() && all.at<int64_t>({other, 0}) == all.at<int64_t>({0, 0})) ++other;
  if (other == size()) return;
  // Some have another history than rank 0, and it has another than they.
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

// It has failed, and the first reason stays: asked again, it says that.
void NcclProcess::throw_failure(const Collective& call) {
  try {
    bootstrap_->barrier(call.where);
  } catch (const CommunicatorError& error) {
    throw CommunicatorError(fmt::format("{}: {}", call.str(), reason_in(error.what())));
  }
  throw CommunicatorError(fmt::format("{}: an earlier collective failed", call.str()));
}

/// The ranks whose GPU is also that of another, or nothing. All ranks get the same answer.
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

std::vector<std::shared_ptr<Communicator>> make_nccl_group(const std::vector<Device>& devices) {
  if (devices.empty()) throw Error("make_nccl_group: without devices there are no ranks");
  for (const Device& device : devices) check_gpu("make_nccl_group", device);
  for (size_t a = 0; a < devices.size(); ++a)
    for (size_t b = a + 1; b < devices.size(); ++b)
      if (devices[a] == devices[b]) throw_shared("make_nccl_group", a, b, devices[a]);

  const auto group = std::make_shared<NcclGroup>(devices.size());
  const int size = static_cast<int>(devices.size());
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_shared<NcclThread>(group, rank, size, devices[static_cast<size_t>(rank)]));
  group->ranks.emplace(devices, 0, size, cu::new_nccl_id(), ranks[0]->timeout(),
                       [&group = group->group](size_t rank, const std::string& trouble) {
                         group.fail(fmt::format("rank {} failed: {}", rank, trouble));
                       });
  return ranks;
}

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap, Device device) {
  if (!bootstrap) throw Error("make_nccl_communicator: there is no communicator to begin with");
  std::optional<std::pair<int, int>> shared;
  // Whatever fails here, the others hear of it: they wait in the same place.
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

}  // namespace espalier
