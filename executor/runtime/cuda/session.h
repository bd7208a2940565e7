// CudaSession: the state on a GPU that the plans of one executor share.
#pragma once
#include <map>

#include "espalier/core/cuda/pinned.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/executor/runtime/cuda/step_kernels.h"
#include "espalier/executor/runtime/session.h"

namespace espalier::cu {

/// The columns of a feed in device memory, from which batches are gathered.
struct ResidentFeed {
  std::vector<Tensor> columns;
  std::vector<const Storage*> from;  // the host storage of each column
  Tensor order, cursor;
  std::vector<int64_t> rows;     // of the epoch, on the host
  int64_t epoch = -1, next = 0;  // the epoch of `order`, and the expected value of `cursor`
  int64_t batch_rows = 0;        // of a whole batch
};

class CudaSession : public Session {
 public:
  CudaSession(Device device, Launch launch);
  ~CudaSession() override;

  std::unique_ptr<Runtime> bind(std::shared_ptr<const PlanData> plan, BatchShard shard) override;
  void begin_after_eager() override;
  void finish_before_eager() override;
  Tensor new_batch(const Shape& shape, DType dtype) override;
  void release_batches(const Feed& feed) override;
  void note_loss(const Runtime& runtime) override;
  void take_losses(std::vector<double>& losses) override;
  void forget_losses() override { noted_.clear(); }
  bool losses_due() const override;

  Launch launch() const { return launch_; }
  cudaStream_t stream() const { return stream_.get(); }
  Stream& main_stream() { return stream_; }
  Stream& copy_stream() { return copies_; }
  /// Marks the end of a feed's batch in the copy stream.
  void batch_loading(const Feed& feed) { loaded_[&feed].record(copies_.get()); }
  /// The feed's columns on the device; null if it has no columns, or they need too much memory.
  ResidentFeed* resident(const Feed& feed);
  /// The address, in device memory, of the seed and the first stream of the step.
  const uint64_t* random_base() const { return static_cast<const uint64_t*>(state_.address()); }
  StepState* state() const { return static_cast<StepState*>(state_.address()); }
  /// Room for so many numbers of the steps that are kept (losses_kept), the same in all calls.
  double* losses(int64_t numbers);
  /// Sets the random streams of the next step. The plans' stream must be the current one.
  void set_random(uint64_t seed, uint64_t first_stream);
  /// Must be called after each step: it mirrors the counters on the device.
  void step_launched(int64_t streams);

 private:
  Launch launch_;
  Stream stream_, copies_;
  Event eager_done_, plans_done_;
  std::map<const Feed*, Event> loaded_;
  Tensor state_, losses_;
  int64_t numbers_ = 1;                  // of each step in `losses_`
  uint64_t seed_ = 0, next_stream_ = 0;  // the expected state on the device
  bool random_known_ = false;
  int64_t steps_ = 0;
  std::vector<int64_t> noted_;  // steps whose losses were noted
  int64_t steps_noted_ = 0, between_ = 1;
  std::map<const Feed*, ResidentFeed> residents_;
};

}  // namespace espalier::cu
