#include "espalier/executor/cuda/nccl_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/executor/cuda/rank_kernels.h"

namespace espalier::cu {

namespace {

using Kind = Collective::Kind;
using Clock = NcclRank::Clock;

constexpr auto polls_every = std::chrono::microseconds(20);
constexpr auto watches_every = std::chrono::milliseconds(20);
constexpr double last_chance = 1;  // seconds for collectives under way when a rank failed
enum : int { begun = 0, ended = 1 };

Clock::duration seconds(double number) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(number, 1e9)));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float16: return ncclFloat16;
    case DType::bfloat16: return ncclBfloat16;
    case DType::float32: return ncclFloat32;
    case DType::float64: return ncclFloat64;
    case DType::int32: return ncclInt32;
    case DType::int64: return ncclInt64;
    case DType::boolean: return ncclUint8;
  }
  throw TypeError("NCCL does not know such elements");
}

ncclRedOp_t reduction_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return ncclSum;
    case Reduction::mean: return ncclAvg;
    case Reduction::max: return ncclMax;
    case Reduction::min: return ncclMin;
  }
  throw TypeError("NCCL does not know such a reduction");
}

}  // namespace

NcclRank::NcclRank(Device device) : device_(device) {
  const DeviceScope scope(device_.index);
  counts_ = Tensor({2}, DType::int64, device_);
  zero_elements(counts_);
  seen_ = PinnedBuffer(2 * sizeof(int64_t));
  std::fill_n(seen_.as<int64_t>(), 2, 0);
  synchronize(device_);  // any stream may count from here on
}

NcclRank::~NcclRank() {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  if (hurried_)
    (void)nccl().ncclCommAbort(comm_);  // others may be gone
  else
    (void)nccl().ncclCommDestroy(comm_);
}

void NcclRank::drain() noexcept {
  int before = 0;
  (void)cudaGetDevice(&before);
  (void)cudaSetDevice(device_.index);
  (void)cudaDeviceSynchronize();
  (void)cudaSetDevice(before);
}

void NcclRank::begin(const ncclUniqueId& id, int size, int rank) {
  const DeviceScope scope(device_.index);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const std::lock_guard lock(mutex_);
  check(nccl().ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
}

void NcclRank::settle(double timeout) { poll(timeout, "the beginning of a communicator"); }

// The lock is free in between, so that the watch and abort() are not kept waiting.
void NcclRank::poll(double timeout, const char* what) {
  const auto until = Clock::now() + seconds(timeout);
  for (;;) {
    ncclResult_t state = ncclInProgress;
    {
      const std::lock_guard lock(mutex_);
      if (!comm_) throw CommunicatorError("NCCL's communicator was given up");
      check(nccl().ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
      if (state != ncclSuccess && state != ncclInProgress)
        throw DeviceError(
            fmt::format("{} failed on {} (NCCL: {})", what, device_.str(), describe(state, comm_)));
    }
    if (state == ncclSuccess) return;
    if (Clock::now() > until)
      throw CommunicatorError(fmt::format("{} has not ended on {} within {:g} s: not all ranks have come",
                                          what, device_.str(), timeout));
    std::this_thread::sleep_for(polls_every);
  }
}

void NcclRank::mark(int which) { count(counts_.data<int64_t>() + which, seen_.as<int64_t>() + which); }

int64_t NcclRank::counted(int which) const {
  return std::atomic_ref<int64_t>(seen_.as<int64_t>()[which]).load(std::memory_order_acquire);
}

void NcclRank::enqueue(const Collective& call, const Tensor* from, Tensor* to, double weight,
                       double timeout) {
  if (from->bytes() == 0 && to->bytes() == 0) return;
  const cudaStream_t stream = current_stream();
  timeout_.store(timeout, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    last_ = call.str();
  }
  if (weight != 1) scale(to->address(), to->dtype(), to->elements(), weight);
  mark(begun);
  {
    const std::lock_guard lock(mutex_);
    if (!comm_) throw CommunicatorError(fmt::format("{}: NCCL's communicator was given up", call.str()));
    const ncclResult_t result = start(call, from, to, stream);
    if (result != ncclSuccess && result != ncclInProgress)
      throw DeviceError(
          fmt::format("{} failed on {} (NCCL: {})", call.str(), device_.str(), describe(result, comm_)));
  }
  poll(timeout, "a collective's launch");  // only then it is in the stream
  mark(ended);
}

ncclResult_t NcclRank::start(const Collective& call, const Tensor* from, Tensor* to, cudaStream_t stream) {
  const Nccl& n = nccl();
  const ncclDataType_t type = type_of(to->dtype());
  const auto in = static_cast<size_t>(from->elements()), out = static_cast<size_t>(to->elements());
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
      return n.ncclAllReduce(from->address(), to->address(), out, type, reduction_of(call.reduction), comm_,
                             stream);
    case Kind::reduce_scatter:
      return n.ncclReduceScatter(from->address(), to->address(), out, type, reduction_of(call.reduction),
                                 comm_, stream);
    case Kind::all_gather: return n.ncclAllGather(from->address(), to->address(), in, type, comm_, stream);
    case Kind::broadcast:
      return n.ncclBroadcast(from->address(), to->address(), out, type, call.root, comm_, stream);
    case Kind::reduce_parts:
    case Kind::gather_parts: return start_parts(call, to, stream);
    case Kind::barrier: break;
  }
  return ncclInvalidArgument;
}

// One call for each part, all at once.
ncclResult_t NcclRank::start_parts(const Collective& call, Tensor* values, cudaStream_t stream) {
  const Nccl& n = nccl();
  const ncclDataType_t type = type_of(values->dtype());
  ncclResult_t failure = n.ncclGroupStart();
  if (failure != ncclSuccess) return failure;
  for (size_t r = 0; r + 1 < call.bounds.size(); ++r) {
    const auto count = static_cast<size_t>(call.bounds[r + 1] - call.bounds[r]);
    if (count == 0) continue;
    void* const part = static_cast<char*>(values->address()) +
                       static_cast<size_t>(call.bounds[r]) * size_of(values->dtype());
    const int root = static_cast<int>(r);
    const ncclResult_t result =
        call.kind == Kind::reduce_parts
            ? n.ncclReduce(part, part, count, type, reduction_of(call.reduction), root, comm_, stream)
            : n.ncclBroadcast(part, part, count, type, root, comm_, stream);
    if (failure == ncclSuccess && result != ncclInProgress) failure = result;
  }
  const ncclResult_t end = n.ncclGroupEnd();
  return failure == ncclSuccess ? end : failure;
}

std::optional<std::string> NcclRank::trouble() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !comm_) return {};  // it is being used: next time
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl().ncclCommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) state = result;
  const std::string last = last_.empty() ? "before any collective" : "after " + last_;
  if (state != ncclSuccess && state != ncclInProgress)
    return fmt::format("NCCL failed on {}, {} ({})", device_.str(), last, describe(state, comm_));
  const int64_t done = counted(ended), entered = counted(begun);
  if (entered == done) {
    busy_with_ = 0;
    return {};
  }
  if (entered != busy_with_) {
    busy_with_ = entered;
    busy_since_ = Clock::now();
  }
  double limit = timeout_.load(std::memory_order_relaxed);
  if (hurried_) limit = std::min(limit, last_chance);
  if (Clock::now() - busy_since_ < seconds(limit)) return {};
  return fmt::format(
      "{} has waited in a collective for {:g} s: a rank has not come, or called another; the "
      "last one called here is {}",
      device_.str(), limit, last_);
}

void NcclRank::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_) (void)nccl().ncclCommAbort(std::exchange(comm_, nullptr));
}

NcclRanks::NcclRanks(const std::vector<Device>& devices, int first, int size, const ncclUniqueId& id,
                     double timeout, std::function<void(size_t, const std::string&)> failed)
    : failed_(std::move(failed)) {
  for (const Device& device : devices) ranks_.push_back(std::make_unique<NcclRank>(device));
  try {
    // In a group, since each waits for the others.
    check(nccl().ncclGroupStart(), "ncclGroupStart");
    std::exception_ptr error;
    try {
      for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->begin(id, size, first + static_cast<int>(i));
    } catch (...) {
      error = std::current_exception();
    }
    const ncclResult_t result = nccl().ncclGroupEnd();
    if (error) std::rethrow_exception(error);
    check(result, "ncclGroupEnd");
    for (const auto& rank : ranks_) rank->settle(timeout);
  } catch (...) {
    for (const auto& rank : ranks_) rank->abort();
    throw;
  }
  watch_ = std::thread([this] { watch(); });
}

// The watch stays until the devices are done: without it they might never be.
NcclRanks::~NcclRanks() {
  for (const auto& rank : ranks_) rank->drain();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  watch_.join();
}

void NcclRanks::hurry() noexcept {
  for (const auto& rank : ranks_) rank->hurry();
}

void NcclRanks::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, watches_every, [&] { return ending_; })) {
    lock.unlock();
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (const auto trouble = ranks_[i]->trouble()) {
        failed_(i, *trouble);
        for (const auto& rank : ranks_) rank->abort();
      }
    lock.lock();
  }
}

ncclUniqueId new_nccl_id() {
  ncclUniqueId id;
  check(nccl().ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

}  // namespace espalier::cu
