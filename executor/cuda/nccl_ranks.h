// NcclRanks: the ranks which this process has among those of an NCCL communicator, and a watch over them.
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
#include "espalier/executor/collective.h"
#include "espalier/executor/cuda/nccl.h"

namespace espalier::cu {

/// One rank on its device. Its ncclComm_t does not block: whoever calls NCCL polls until that is done.
class NcclRank {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NcclRank(Device device);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// Begins to meet the other ranks, which do the same. `settle` waits until all have met; throws
  /// CommunicatorError if they do not within `timeout` seconds.
  void begin(const ncclUniqueId& id, int size, int rank);
  void settle(double timeout);

  /// Lets the collective come next in the current stream, which may be captured; `weight` multiplies what
  /// this rank brings. Throws DeviceError if NCCL says so, and CommunicatorError if it was given up.
  void enqueue(const Collective& call, const Tensor* from, Tensor* to, double weight, double timeout);

  /// What is wrong with it, if something is: NCCL says so, or the device has been in one collective for
  /// longer than the timeout.
  std::optional<std::string> trouble();
  /// Lets the device wait for others no longer than a second: they may not come. From any thread.
  void hurry() noexcept { hurried_.store(true, std::memory_order_relaxed); }
  /// Waits for all that the device has been asked for.
  void drain() noexcept;
  /// Gives it up: what the device has begun with it ends, with wrong values. From any thread.
  void abort() noexcept;

 private:
  ncclResult_t start(const Collective& call, const Tensor* from, Tensor* to, cudaStream_t stream);
  ncclResult_t start_parts(const Collective& call, Tensor* values, cudaStream_t stream);
  void poll(double timeout, const char* what);
  int64_t counted(int which) const;
  void mark(int which);

  const Device device_;
  std::mutex mutex_;  // of the handle; not held for long
  ncclComm_t comm_ = nullptr;
  std::atomic<double> timeout_{0};
  std::atomic<bool> hurried_{false};
  std::string last_;  // the call that was enqueued last
  Tensor counts_;     // on the device: collectives begun and ended; and copies that the host reads
  PinnedBuffer seen_;
  int64_t busy_with_ = 0;  // the watch's: what the device is in, and since when
  Clock::time_point busy_since_;
};

class NcclRanks {
 public:
  /// Takes part in a communicator of `size` ranks as those from `first` on, one for each device. Throws
  /// CommunicatorError if not all ranks come within `timeout` seconds. What goes wrong later is told to
  /// `failed`, in a thread of its own, and then all of them are given up.
  NcclRanks(const std::vector<Device>& devices, int first, int size, const ncclUniqueId& id, double timeout,
            std::function<void(size_t, const std::string&)> failed);
  /// Waits for the devices.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  NcclRank& operator[](size_t i) { return *ranks_[i]; }
  /// To be called when a rank failed on the host: what is under way may still end, if it does so soon. From
  /// any thread.
  void hurry() noexcept;

 private:
  void watch();

  std::vector<std::unique_ptr<NcclRank>> ranks_;
  std::function<void(size_t, const std::string&)> failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread watch_;
};

/// A name for a communicator, to be handed to all of its ranks.
ncclUniqueId new_nccl_id();

}  // namespace espalier::cu
