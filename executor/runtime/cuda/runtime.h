// CudaRuntime: a plan on a GPU, captured as CUDA graphs.
#pragma once
#include "espalier/executor/runtime/cuda/session.h"

namespace espalier::cu {

/// The first step launches single kernels, which loads them; the second is captured, and later steps launch
/// the graphs.
class CudaRuntime : public Runtime {
 public:
  CudaRuntime(std::shared_ptr<const PlanData> plan, CudaSession& session, BatchShard shard);
  ~CudaRuntime() override;

  void load(const Feed& feed, std::span<const Tensor> batch) override;
  bool show(const Feed& feed, const Feed& shown, int64_t epoch, int64_t step) override;
  void run(uint64_t first_stream, KernelTimestamps* timestamps) override;

 private:
  /// A range of positions of the step. Position 0 shows batches, calls follow, and the last one ends the
  /// step.
  struct Segment {
    size_t begin, end;
    bool on_host;  ///< a call that cannot be captured
    cudaGraphExec_t graph = nullptr;
  };
  /// Two device buffers for each column, so that one is filled while the other is read.
  struct Staging {
    std::vector<Tensor> columns[2];
    Event filled[2], read[2];
    int turn = 0;
  };
  struct Shown {
    ResidentFeed* feed;
    ShownBatch batch;
  };

  size_t positions() const { return calls_.size() + 2; }
  void launch(size_t position);
  void launch_all(size_t begin, size_t end);
  void run_timed(KernelTimestamps& timestamps);
  void run_searching(KernelTimestamps* timestamps);
  void plan_segments();
  void capture();
  /// The graph of the segment at this position. Null if the work of another thread has invalidated the
  /// capture, unless it is made `again`.
  cudaGraph_t capture(size_t at, bool again);
  void drop_graphs() noexcept;

  CudaSession& session_;
  Tensor loss_;  // a contiguous copy of result 0, if it has gaps
  std::vector<Tensor>
      recorded_;  // the same of the outputs that are recorded; undefined for those without gaps
  std::map<const Feed*, Staging> staging_;
  std::vector<Shown> shown_;
  std::vector<Segment> segments_;
  int64_t runs_ = 0;
};

}  // namespace espalier::cu
