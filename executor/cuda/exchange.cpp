#include "espalier/executor/cuda/exchange.h"

#include "espalier/core/cuda/runtime.h"
#include "espalier/executor/communicator.h"

namespace espalier {

namespace cu {
namespace {

class CudaExchange : public Exchange {
 public:
  CudaExchange(std::shared_ptr<Communicator> communicator, Device device, bool captured)
      : device_(device), captured_(captured), communicator_(std::move(communicator)) {}
  /// What is on its way may still read what the communicator holds.
  ~CudaExchange() override { (void)cudaStreamSynchronize(stream_.get()); }

  void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
             const std::source_location& where) override {
    const DeviceScope device(device_.index);
    complete_.record(current_stream());
    stream_.wait(complete_);
    const StreamScope scope(stream_.get());
    Tensor same = values;
    if (bounds.empty())
      communicator_->all_reduce_weighted(same, weights, where);
    else
      communicator_->reduce_parts(same, bounds, weights, where);
  }
  void finish() override {
    const DeviceScope device(device_.index);
    arrived_.record(stream_.get());
    check(cudaStreamWaitEvent(current_stream(), arrived_.get(), 0), "cudaStreamWaitEvent");
  }
  void forget() override { (void)cudaStreamSynchronize(stream_.get()); }
  void gather(const Tensor& values, std::span<const int64_t> bounds,
              const std::source_location& where) override {
    const DeviceScope device(device_.index);
    complete_.record(current_stream());
    stream_.wait(complete_);
    {
      const StreamScope scope(stream_.get());
      Tensor same = values;
      communicator_->gather_parts(same, bounds, where);
    }
    finish();
  }
  void connect(std::shared_ptr<Communicator> communicator) override {
    forget();
    communicator_ = std::move(communicator);
  }
  bool can_be_captured() const override { return captured_; }

 private:
  Device device_;
  bool captured_;
  std::shared_ptr<Communicator> communicator_;
  Stream stream_;
  Event complete_, arrived_;
};

}  // namespace
}  // namespace cu

std::unique_ptr<Exchange> make_cuda_exchange(std::shared_ptr<Communicator> communicator, Device device,
                                             bool captured) {
  (void)backend(device);  // throws where there is none
  const cu::DeviceScope scope(device.index);
  return std::make_unique<cu::CudaExchange>(std::move(communicator), device, captured);
}

}  // namespace espalier
