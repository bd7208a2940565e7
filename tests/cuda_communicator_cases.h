// What tests of communicators for GPUs share.
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
/// What a rank does, in a thread and a stream of its own.
using RankProgram = std::function<void(Communicator&, Device, cu::Stream&)>;

/// What each rank's program threw, or "". A rank keeps its communicator until all are done.
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

inline void wait_a_bit(std::minstd_rand& random) {
  const auto micros = random() % 4 ? 0 : random() % 200;
  if (micros) std::this_thread::sleep_for(std::chrono::microseconds(micros));
}

/// A communicator for tensors on the CPU over one for those on a GPU: there they are behind `offset` other
/// elements, and the stream writes them only just before and reads them just after.
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

  bool run(const Collective& call, const Tensor* from, Tensor* to) override {
    if (call.raised)
      inner_.raise();
    else
      inner_.lower();
    if (call.kind == Collective::Kind::barrier) {
      inner_.barrier(call.where);
      return inner_.raised();
    }
    const Tensor source = from->to(device_);
    Tensor in = place(from->spec());
    Tensor out = from == to ? in : place(to->spec());
    copy_elements(source, in);
    switch (call.kind) {
      case Collective::Kind::all_reduce: inner_.all_reduce(out, call.reduction, call.where); break;
      case Collective::Kind::all_reduce_weighted:
        inner_.all_reduce_weighted(out, call.weights, call.where);
        break;
      case Collective::Kind::reduce_scatter:
        inner_.reduce_scatter(in, out, call.reduction, call.where);
        break;
      case Collective::Kind::all_gather: inner_.all_gather(in, out, call.where); break;
      case Collective::Kind::reduce_parts:
        inner_.reduce_parts(out, call.bounds, call.weights, call.where);
        break;
      case Collective::Kind::gather_parts: inner_.gather_parts(out, call.bounds, call.where); break;
      default: inner_.broadcast(out, call.root, call.where); break;
    }
    Tensor result(to->shape(), to->dtype(), device_);
    copy_elements(out, result);
    copy_elements(result.to(cpu()), *to);
    if (from != to && !same_bits(in.contiguous_copy().to(cpu()), *from))
      throw Error("what was read has changed");
    return inner_.raised();
  }

  Communicator& inner_;
  Device device_;
  int64_t offset_;
};

}  // namespace espalier::testing
