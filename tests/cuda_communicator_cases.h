// Helpers of the tests of communicators for GPUs.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "communicator_cases.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"

namespace espalier::testing {

using Group = std::vector<std::shared_ptr<Communicator>>;
/// The program of a rank, in a thread and a stream of its own.
using RankProgram = std::function<void(Communicator&, Device, cu::Stream&)>;

/// The error of each rank's program, or "". A communicator lives until all programs have ended.
inline std::vector<std::string> run_ranks(const Group& group, const std::vector<Device>& devices,
                                          const RankProgram& program) {
  std::vector<std::string> errors(group.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      const cu::DeviceScope device(devices[rank].index);
      cu::Stream stream;
      try {
        const cu::StreamScope scope(stream.get());
        program(*group[rank], devices[rank], stream);
        stream.synchronize();
      } catch (const CommunicatorError& error) {
        errors[rank] = error.what();
      } catch (const std::exception& error) {
        group[rank]->abort(std::current_exception());
        errors[rank] = std::string("own: ") + error.what();
      }
      (void)cudaStreamSynchronize(stream.get());
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

inline void random_delay(std::minstd_rand& random) {
  const auto micros = random() % 4 ? 0 : random() % 200;
  if (micros) std::this_thread::sleep_for(std::chrono::microseconds(micros));
}

/// A communicator for CPU tensors on top of one for GPU tensors. The copies on the GPU start at element
/// `offset` of their memory; the stream writes them just before the collective and reads them just after.
class Moved final : public Communicator {
 public:
  Moved(Communicator& inner, Device device, int64_t offset = 0)
      : Communicator(inner.rank(), inner.size()), inner_(inner), device_(device), offset_(offset) {}
  void fail(const std::string& reason) noexcept override { inner_.fail(reason); }

 private:
  Tensor place(const Spec& spec) const {
    const int64_t n = spec.shape.elements();
    return Tensor({n + offset_}, spec.dtype, device_).slice(0, offset_, offset_ + n).reshape(spec.shape);
  }

  bool run(const Collective& call, const RankBuffers& own) override {
    if (call.stop_requested)
      inner_.request_stop();
    else
      inner_.clear_stop();
    if (call.kind == Collective::Kind::barrier) {
      forward(inner_, call, nullptr, nullptr);
      return inner_.stop_requested();
    }
    const Tensor* const from = own.input;
    Tensor* const to = own.output;
    const Tensor source = from->to(device_);
    Tensor in = place(from->spec());
    Tensor out = from == to ? in : place(to->spec());
    copy_elements(source, in);
    forward(inner_, call, &in, &out);
    Tensor result(to->shape(), to->dtype(), device_);
    copy_elements(out, result);
    copy_elements(result.to(cpu()), *to);
    if (from != to && !same_bits(in.contiguous_copy().to(cpu()), *from)) throw Error("an input has changed");
    return inner_.stop_requested();
  }

  Communicator& inner_;
  Device device_;
  int64_t offset_;
};

}  // namespace espalier::testing
