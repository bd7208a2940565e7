#include "espalier/executor/runtime/cuda/session.h"

#include <fmt/format.h>

#include <utility>

#include "espalier/core/cuda/copy.h"
#include "espalier/core/cuda/value_errors.h"
#include "espalier/core/error.h"
#include "espalier/executor/runtime/cuda/runtime.h"

namespace espalier {

namespace cu {

namespace {

/// Pinned host memory, from which a GPU copies asynchronously.
struct PinnedStorage : Storage {
  explicit PinnedStorage(size_t size) : buffer(size) {
    data = buffer.data();
    bytes = size;
    release = [](Storage* storage) { delete static_cast<PinnedStorage*>(storage); };
  }
  PinnedBuffer buffer;
};

int64_t bytes_of(const std::vector<Tensor>& columns) {
  int64_t bytes = 0;
  for (const Tensor& column : columns) bytes += static_cast<int64_t>(column.bytes());
  return bytes;
}

}  // namespace

CudaSession::CudaSession(Device device, Launch launch)
    : Session(device),
      launch_(launch),
      state_({static_cast<int64_t>(sizeof(StepState) / sizeof(uint64_t))}, DType::int64, device),
      losses_({losses_kept(1)}, DType::float64, device) {
  zero_elements(state_);
  begin_after_eager();
}

/// Waits for kernels and copies that use the session's memory. Ignores errors: the driver may shut down
/// before a static executor.
CudaSession::~CudaSession() {
  const DeviceScope scope(device().index, std::nothrow);
  (void)cudaStreamSynchronize(copies_.get());
  (void)cudaStreamSynchronize(stream_.get());
}

std::unique_ptr<Runtime> CudaSession::bind(std::shared_ptr<const PlanData> plan, BatchShard shard) {
  const DeviceScope scope(device().index);
  (void)losses(plan->numbers());  // steps must not allocate
  auto runtime = std::make_unique<CudaRuntime>(std::move(plan), *this, shard);
  begin_after_eager();  // memory of its kernels may have been in eager use
  return runtime;
}

void CudaSession::begin_after_eager() {
  const DeviceScope scope(device().index);
  eager_done_.record(current_stream());
  stream_.wait(eager_done_);
  copies_.wait(eager_done_);
}

void CudaSession::finish_before_eager() {
  const DeviceScope scope(device().index);
  plans_done_.record(stream_.get());
  check(cudaStreamWaitEvent(current_stream(), plans_done_.get(), 0), "cudaStreamWaitEvent");
}

Tensor CudaSession::new_batch(const Shape& shape, DType dtype) {
  const DeviceScope scope(device().index);
  const auto bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
  if (bytes == 0) return Tensor(shape, dtype);
  return Tensor(StoragePtr(new PinnedStorage(bytes)), Layout(shape), dtype);
}

void CudaSession::release_batches(const Feed& feed) {
  if (const auto loaded = loaded_.find(&feed); loaded != loaded_.end()) loaded->second.synchronize();
}

void CudaSession::set_random(uint64_t seed, uint64_t first_stream) {
  if (random_known_ && seed == seed_ && first_stream == next_stream_) return;
  const uint64_t values[2] = {seed, first_stream};
  put_bytes(state_.address(), values, sizeof values);
  seed_ = seed;
  next_stream_ = first_stream;
  random_known_ = true;
}

void CudaSession::step_launched(int64_t streams) {
  next_stream_ += static_cast<uint64_t>(streams);
  ++steps_;
}

void CudaSession::note_loss(const Runtime&) {
  noted_.push_back(steps_ - 1);
  between_ = steps_ - std::exchange(steps_noted_, steps_);
}

double* CudaSession::losses(int64_t numbers) {
  if (numbers != numbers_) {
    losses_ = Tensor({losses_kept(numbers), numbers}, DType::float64, device());
    numbers_ = numbers;
  }
  return static_cast<double*>(losses_.address());
}

bool CudaSession::losses_due() const {
  // There must be room for the next loss. A step with micro-batches has several runs.
  return !noted_.empty() && steps_ + between_ - 1 - noted_.front() >= losses_kept(numbers_);
}

void CudaSession::take_losses(std::vector<double>& losses) {
  const DeviceScope scope(device().index);
  stream_.synchronize();
  throw_recorded_value();
  if (noted_.empty()) return;
  std::vector<double> kept(static_cast<size_t>(losses_.shape().elements()));
  check(cudaMemcpyAsync(kept.data(), losses_.address(), kept.size() * sizeof(double), cudaMemcpyDeviceToHost,
                        stream_.get()),
        "cudaMemcpyAsync");
  stream_.synchronize();
  for (const int64_t step : noted_) {
    const auto first = kept.begin() + step % losses_kept(numbers_) * numbers_;
    losses.insert(losses.end(), first, first + numbers_);
  }
  noted_.clear();
}

ResidentFeed* CudaSession::resident(const Feed& feed) {
  const auto known = residents_.find(&feed);
  if (known != residents_.end()) return known->second.columns.empty() ? nullptr : &known->second;
  ResidentFeed& resident = residents_[&feed];  // without columns: batches are loaded
  const std::vector<Tensor> columns = feed.columns();
  if (columns.empty() || columns.size() > most_columns || residents_.size() > most_feeds) return nullptr;
  for (const Tensor& column : columns) resident.from.push_back(column.storage().get());
  std::vector<Tensor> there;
  for (const auto& [other, known] : residents_)  // another shard of the same rows
    if (known.from == resident.from && !known.columns.empty()) there = known.columns;
  if (there.empty()) {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (bytes_of(columns) > static_cast<int64_t>(free / 4)) return nullptr;
    for (const Tensor& column : columns) there.push_back(column.to(device()));
  }
  resident.rows.resize(static_cast<size_t>(columns[0].shape()[0]));
  resident.order = Tensor({static_cast<int64_t>(resident.rows.size())}, DType::int64, device());
  resident.cursor = Tensor({1}, DType::int64, device());
  zero_elements(resident.cursor);
  resident.batch_rows = feed.rows(0);
  resident.columns = std::move(there);
  begin_after_eager();
  return &resident;
}

}  // namespace cu

std::unique_ptr<Session> make_cuda_session(Device device, Launch launch) {
  const cu::DeviceScope scope(device.index);
  return std::make_unique<cu::CudaSession>(device, launch);
}

}  // namespace espalier
