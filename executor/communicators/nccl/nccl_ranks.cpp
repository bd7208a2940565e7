#include "espalier/executor/communicators/nccl/nccl_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicators/cuda/rank_kernels.h"

namespace espalier::cu {

namespace {

using Kind = Collective::Kind;
using Clock = NcclRank::Clock;

constexpr auto poll_interval = std::chrono::microseconds(20);
constexpr auto watch_interval = std::chrono::milliseconds(20);
constexpr double timeout_after_failure = 1;  // seconds, for collectives under way
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
    case DType::int8: return ncclInt8;
    case DType::boolean:
    case DType::uint8: return ncclUint8;
    case DType::int16: return ncclFloat16;  // moved only
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
  check(cudaStreamSynchronize(current_stream()),
        "waiting for a stream");  // any stream may increment the counts from here on
}

NcclRank::~NcclRank() {
  if (!comm_) return;
  if (finalizing_ && has_finalized())
    (void)nccl().ncclCommDestroy(comm_);
  else
    (void)nccl().ncclCommAbort(comm_);  // other ranks may be gone
}

void NcclRank::finalize() noexcept {
  const std::lock_guard lock(mutex_);
  if (!comm_ || timeout_shortened_) return;
  const ncclResult_t result = nccl().ncclCommFinalize(comm_);
  finalizing_ = result == ncclSuccess || result == ncclInProgress;
}

bool NcclRank::has_finalized() const noexcept {
  const auto begin = Clock::now();
  for (;;) {
    ncclResult_t state = ncclInProgress;
    if (nccl().ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
    if (state != ncclInProgress) return state == ncclSuccess;
    const double limit = timeout_.load(std::memory_order_relaxed);
    if (Clock::now() - begin > seconds(timeout_shortened_ ? std::min(limit, timeout_after_failure) : limit))
      return false;
    std::this_thread::sleep_for(poll_interval);
  }
}

void NcclRank::drain() noexcept {
  const DeviceScope scope(device_.index, std::nothrow);
  (void)synchronize_device();
}

void NcclRank::begin(const ncclUniqueId& id, int size, int rank) {
  const DeviceScope scope(device_.index);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const std::lock_guard lock(mutex_);
  check(nccl().ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
}

void NcclRank::settle(double timeout) {
  timeout_.store(timeout, std::memory_order_relaxed);
  poll(timeout, "the beginning of a communicator");
}

// The lock is free in between, for the watch thread and abort().
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
    std::this_thread::sleep_for(poll_interval);
  }
}

void NcclRank::mark(int which) { count(counts_.data<int64_t>() + which, seen_.as<int64_t>() + which); }

int64_t NcclRank::counted(int which) const {
  return std::atomic_ref<int64_t>(seen_.as<int64_t>()[which]).load(std::memory_order_acquire);
}

void NcclRank::enqueue(const Collective& call, const RankBuffers& own, double weight, double timeout) {
  if (call.elements == 0) return;
  const cudaStream_t stream = current_stream();
  timeout_.store(timeout, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    last_ = call.str();
  }
  // Weighted collectives are in place.
  if (weight != 1) scale(own.output->address(), call.spec.dtype, call.elements, weight);
  mark(begun);
  {
    const std::lock_guard lock(mutex_);
    if (!comm_) throw CommunicatorError(fmt::format("{}: NCCL's communicator was given up", call.str()));
    const ncclResult_t result = start(call, own, stream);
    if (result != ncclSuccess && result != ncclInProgress)
      throw DeviceError(
          fmt::format("{} failed on {} (NCCL: {})", call.str(), device_.str(), describe(result, comm_)));
  }
  poll(timeout, "a collective's launch");  // then it is in the stream
  mark(ended);
}

ncclResult_t NcclRank::start(const Collective& call, const RankBuffers& own, cudaStream_t stream) {
  const Nccl& n = nccl();
  const ncclDataType_t type = type_of(call.spec.dtype);
  const auto elements = static_cast<size_t>(call.elements);
  if (call.root >= 0) return n.ncclBroadcast(own.from, own.to, elements, type, call.root, comm_, stream);
  if (call.bounds.empty())
    return n.ncclAllReduce(own.from, own.to, elements, type, reduction_of(call.reduction), comm_, stream);
  if (!call.equal_ranges()) return start_ranges(call, *own.output, stream);
  const auto count = static_cast<size_t>(call.range(0).count);
  return call.kind == Kind::reduce
             ? n.ncclReduceScatter(own.from, own.to, count, type, reduction_of(call.reduction), comm_, stream)
             : n.ncclAllGather(own.from, own.to, count, type, comm_, stream);
}

// One call for each range, all in one group. Collectives with unequal ranges are in place.
ncclResult_t NcclRank::start_ranges(const Collective& call, const Tensor& values, cudaStream_t stream) {
  const Nccl& n = nccl();
  const ncclDataType_t type = type_of(values.dtype());
  ncclResult_t failure = n.ncclGroupStart();
  if (failure != ncclSuccess) return failure;
  for (int r = 0; r + 1 < static_cast<int>(call.bounds.size()); ++r) {
    const auto [begin, elements] = call.range(r);
    if (elements == 0) continue;
    const auto count = static_cast<size_t>(elements);
    void* const range =
        static_cast<char*>(values.address()) + static_cast<size_t>(begin) * size_of(values.dtype());
    const ncclResult_t result =
        call.kind == Kind::reduce
            ? n.ncclReduce(range, range, count, type, reduction_of(call.reduction), r, comm_, stream)
            : n.ncclBroadcast(range, range, count, type, r, comm_, stream);
    if (failure == ncclSuccess && result != ncclInProgress) failure = result;
  }
  const ncclResult_t end = n.ncclGroupEnd();
  return failure == ncclSuccess ? end : failure;
}

std::optional<std::string> NcclRank::trouble() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !comm_) return {};  // in use: checked again at the next poll
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
  if (timeout_shortened_) limit = std::min(limit, timeout_after_failure);
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
    // In one group, since each rank waits for the others.
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

// The watch thread runs until the devices are idle: it frees a device that waits in vain.
NcclRanks::~NcclRanks() {
  for (const auto& rank : ranks_) rank->drain();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  watch_.join();
  for (const auto& rank : ranks_) rank->finalize();
}

void NcclRanks::shorten_timeout() noexcept {
  for (const auto& rank : ranks_) rank->shorten_timeout();
}

void NcclRanks::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, watch_interval, [&] { return ending_; })) {
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
