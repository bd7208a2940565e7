#include "espalier/executor/communicators/cuda/gradient_sync.h"

#include <new>
#include <utility>

#include "espalier/core/cuda/runtime.h"
#include "espalier/executor/communicators/communicator.h"

namespace espalier {

namespace cu {
namespace {

class CudaGradientSync : public GradientSync {
 public:
  CudaGradientSync(std::shared_ptr<Communicator> communicator, Device device, bool captured)
      : device_(device), captured_(captured), communicator_(std::move(communicator)) {}
  /// Transfers under way may still use memory of the communicator.
  ~CudaGradientSync() override { forget(); }

  void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
             const std::source_location& where) override {
    enqueue(
        [&](Tensor same) {
          if (bounds.empty())
            communicator_->all_reduce_weighted(same, weights, where);
          else
            communicator_->reduce_parts(same, bounds, weights, where);
        },
        values);
  }
  void finish() override {
    if (!std::exchange(open_, false)) return;
    const DeviceScope device(device_.index);
    received_.record(stream_.get());
    check(cudaStreamWaitEvent(current_stream(), received_.get(), 0), "cudaStreamWaitEvent");
  }
  void forget() override {
    const DeviceScope device(device_.index, std::nothrow);
    (void)cudaStreamSynchronize(stream_.get());
    open_ = false;
  }
  void gather(const Tensor& values, std::span<const int64_t> bounds,
              const std::source_location& where) override {
    enqueue([&](Tensor same) { communicator_->gather_parts(same, bounds, where); }, values);
    finish();
  }
  void connect(std::shared_ptr<Communicator> communicator) override {
    forget();
    communicator_ = std::move(communicator);
  }
  bool can_be_captured() const override { return captured_; }
  bool is_open() const override { return captured_ && open_; }

 private:
  /// Calls `f(values)` in the stream of this sync, behind the kernels that complete them.
  template <class F>
  void enqueue(F&& f, const Tensor& values) {
    const DeviceScope device(device_.index);
    complete_.record(current_stream());
    stream_.wait(complete_);
    open_ = true;
    const StreamScope scope(stream_.get());
    f(values);
  }

  Device device_;
  bool captured_, open_ = false;
  std::shared_ptr<Communicator> communicator_;
  Stream stream_;
  Event complete_, received_;
};

}  // namespace
}  // namespace cu

std::unique_ptr<GradientSync> make_cuda_gradient_sync(std::shared_ptr<Communicator> communicator,
                                                      Device device, bool captured) {
  (void)backend(device);  // throws where there is none
  const cu::DeviceScope scope(device.index);
  return std::make_unique<cu::CudaGradientSync>(std::move(communicator), device, captured);
}

}  // namespace espalier
