// Plans on the CPU: calls, one after another.
#include <algorithm>

#include "espalier/core/cpu/widen.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/session.h"

namespace espalier {

namespace {

class CpuRuntime : public Runtime {
 public:
  CpuRuntime(std::shared_ptr<const PlanData> plan, Session& session, data::RowShare share)
      : Runtime(std::move(plan), session, share) {
    for (Call& call : calls_) {
      if (exchanges(call)) {
        auto copy = bound([&call](RandomStream) { call.op->run_cpu(call.kernel); });
        call.bound = bind_exchange(call, std::move(copy), session);
      } else if (!needs_widening(*call.op, call.kernel)) {
        located(*call.where, [&] { call.bound = call.op->bind_cpu(call.kernel); });
      }
    }
  }

  void load(const Feed& feed, std::span<const Tensor> batch) override {
    each_source(feed, [&](size_t column, Tensor& value) {
      check_column(feed, batch[column], value);
      copy_elements(batch[column], value);
    });
  }

  void run(uint64_t first_stream, Laps* laps) override {
    laps ? run_calls<true>(first_stream, laps) : run_calls<false>(first_stream, laps);
  }

 private:
  template <bool timed>
  void run_calls(uint64_t first_stream, [[maybe_unused]] Laps* laps) {
    Backend& cpu = cpu_backend();
    const uint64_t seed = generator().seed;
    if constexpr (timed) laps->push_back(std::chrono::steady_clock::now());
    for (Call& call : calls_) {
      RandomStream random = call.kernel.random;
      random.seed = seed;
      random.stream += first_stream;
      try {
        if (call.bound) {
          call.bound->run(random);
        } else {
          KernelCall& kernel = call.kernel;
          const RandomStream of_plan = std::exchange(kernel.random, random);
          cpu.run(*call.op, kernel);
          kernel.random = of_plan;
        }
      } catch (Error& error) {
        error.locate(*call.where);
        throw;
      }
      if constexpr (timed) laps->push_back(std::chrono::steady_clock::now());
    }
  }
};

/// All elements of a loss, added up.
double sum_of(const Tensor& value) {
  return visit_all(value.dtype(), [&]<class T>(TypeTag<T>) {
    double total = 0;
    const Tensor plain = value.contiguous_copy();  // itself, unless it has gaps
    for (const T x : plain.span<T>()) total += static_cast<double>(x);
    return total;
  });
}

class CpuSession : public Session {
 public:
  using Session::Session;
  std::unique_ptr<Runtime> bind(std::shared_ptr<const PlanData> plan, data::RowShare share) override {
    return std::make_unique<CpuRuntime>(std::move(plan), *this, share);
  }
  void note_loss(const Runtime& runtime) override { losses_.push_back(sum_of(runtime.result(0))); }
  void take_losses(std::vector<double>& losses) override {
    losses.insert(losses.end(), losses_.begin(), losses_.end());
    losses_.clear();
  }
  void forget_losses() override { losses_.clear(); }

 private:
  std::vector<double> losses_;
};

}  // namespace

std::unique_ptr<Session> make_cpu_session(Device device) { return std::make_unique<CpuSession>(device); }

std::unique_ptr<Session> make_session(Device device, Launch launch) {
  switch (device.type) {
    case DeviceType::cpu: return make_cpu_session(device);
    case DeviceType::simulated: return make_simulated_session(device);
    case DeviceType::cuda: break;
  }
  return make_cuda_session(device, launch);
}

}  // namespace espalier
