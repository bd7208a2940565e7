// NcclRanks: the ranks of this process in an NCCL communicator, and a thread that detects their failures.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "espalier/core/cuda/pinned.h"
#include "espalier/core/tensor.h"
#include "espalier/executor/communicators/collective.h"
#include "espalier/executor/communicators/nccl/nccl.h"

namespace espalier::cu {

/// One rank on its device. Its ncclComm_t is non-blocking: after each call the host polls for completion.
class NcclRank {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NcclRank(Device device);
  /// Waits for the other ranks' `finalize` until the timeout, and aborts NCCL's communicator after it.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// Begins to connect to the other ranks, which do the same. `settle` waits for the connections; throws
  /// CommunicatorError after `timeout` seconds.
  void begin(const ncclUniqueId& id, int size, int rank);
  void settle(double timeout);

  /// Enqueues the collective in the current stream, which may be captured. `weight` multiplies this rank's
  /// contribution. Throws DeviceError for NCCL's errors, and CommunicatorError after `abort`.
  void enqueue(const Collective& call, const RankBuffers& own, double weight, double timeout);

  /// The failure of this rank, if there is one: an asynchronous error of NCCL's, or one collective on the
  /// device for longer than the timeout.
  std::optional<std::string> trouble();
  /// The device waits one second at most from now on, since other ranks may be gone. From any thread.
  void shorten_timeout() noexcept { timeout_shortened_.store(true, std::memory_order_relaxed); }
  /// Waits for the device.
  void drain() noexcept;
  /// Begins to leave NCCL's communicator, which all ranks must do; for all ranks of a process before the
  /// first is destroyed.
  void finalize() noexcept;
  /// Aborts NCCL's communicator: collectives on the device end, with wrong values. From any thread.
  void abort() noexcept;

 private:
  ncclResult_t start(const Collective& call, const RankBuffers& own, cudaStream_t stream);
  ncclResult_t start_ranges(const Collective& call, const Tensor& values, cudaStream_t stream);
  void poll(double timeout, const char* what);
  bool has_finalized() const noexcept;
  int64_t counted(int which) const;
  void mark(int which);

  const Device device_;
  std::mutex mutex_;  // of comm_; held for short times
  ncclComm_t comm_ = nullptr;
  std::atomic<double> timeout_{0};
  std::atomic<bool> timeout_shortened_{false};
  bool finalizing_ = false;
  std::string last_;       // the last collective that was enqueued
  Tensor counts_;          // on the device: collectives begun and ended
  PinnedBuffer seen_;      // copies of the counts for the host
  int64_t busy_with_ = 0;  // of the watch thread: the collective on the device, and since when
  Clock::time_point busy_since_;
};

class NcclRanks {
 public:
  /// Joins a communicator of `size` ranks as the ranks from `first` on, one for each device. Throws
  /// CommunicatorError if not all ranks join within `timeout` seconds. A later failure calls `failed` with
  /// the index of the device and a message, in a thread of its own, and then aborts all ranks.
  NcclRanks(const std::vector<Device>& devices, int first, int size, const ncclUniqueId& id, double timeout,
            std::function<void(size_t, const std::string&)> failed);
  /// Waits for the devices.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  NcclRank& operator[](size_t i) { return *ranks_[i]; }
  /// Call it when a rank failed on the host: collectives under way have one more second. From any thread.
  void shorten_timeout() noexcept;

 private:
  void watch();

  std::vector<std::unique_ptr<NcclRank>> ranks_;
  std::function<void(size_t, const std::string&)> failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread watch_;
};

/// An identifier of a new communicator, for all of its ranks.
ncclUniqueId new_nccl_id();

}  // namespace espalier::cu
