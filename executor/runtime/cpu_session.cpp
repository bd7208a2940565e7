// Plans on the CPU: calls, one after another.
#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/runtime/session.h"

namespace espalier {

namespace {

class CpuRuntime : public Runtime {
 public:
  CpuRuntime(std::shared_ptr<const PlanData> plan, Session& session, BatchShard shard)
      : Runtime(std::move(plan), session, shard) {
    for (Call& call : calls_) bind(call);
  }

  void load(const Feed& feed, std::span<const Tensor> batch) override {
    each_source(feed, [&](size_t column, Tensor& value) {
      check_column(feed, batch[column], value);
      copy_elements(batch[column], value);
    });
  }

  void prepare() override {
    touch_arena();
    if (!plan()->keeps_leaves) return;
    for (Call& call : calls_) {
      const InputSet inputs = call.bound->prepared_inputs();
      if (call.of_leaves)
        run_call(call, 0);
      else if ((inputs.bits & ~call.leaf_inputs.bits) == 0)
        located(*call.where, [&] { call.bound->prepare(); });
    }
  }

  void run(uint64_t first_stream, KernelTimestamps* timestamps) override {
    if (nan_finder_) return run_searching(first_stream, timestamps);
    timestamps ? run_calls<true>(first_stream, timestamps) : run_calls<false>(first_stream, timestamps);
  }

 private:
  void run_searching(uint64_t first_stream, KernelTimestamps* timestamps) {
    const auto lap = [&] {
      if (timestamps) timestamps->push_back(std::chrono::steady_clock::now());
    };
    lap();
    nan_finder_->run([&] {
      for (Call& call : calls_) {
        nan_finder_->before(call.node);
        run_call(call, first_stream);
        nan_finder_->after(call.node);
        lap();
      }
    });
  }
  static void run_call(Call& call, uint64_t first_stream) {
    RandomStream random = call.kernel.random;
    random.seed = generator().seed;
    random.stream += first_stream;
    located(*call.where, [&] { call.bound->run(random); });
  }

  template <bool timed>
  void run_calls(uint64_t first_stream, [[maybe_unused]] KernelTimestamps* timestamps) {
    const uint64_t seed = generator().seed;
    if constexpr (timed) timestamps->push_back(std::chrono::steady_clock::now());
    for (Call& call : calls_) {
      RandomStream random = call.kernel.random;
      random.seed = seed;
      random.stream += first_stream;
      try {
        call.bound->run(random);
      } catch (Error& error) {
        error.locate(*call.where);
        throw;
      }
      if constexpr (timed) timestamps->push_back(std::chrono::steady_clock::now());
    }
  }
};

/// All elements of a loss, added up.
double sum_of(const Tensor& value) {
  if (is_small_integer(value.dtype())) return sum_of(value.to(int32));
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
  std::unique_ptr<Runtime> bind(std::shared_ptr<const PlanData> plan, BatchShard shard) override {
    return std::make_unique<CpuRuntime>(std::move(plan), *this, shard);
  }
  void note_loss(const Runtime& runtime) override {
    losses_.push_back(sum_of(runtime.loss()));
    for (const size_t output : runtime.plan()->recorded) append_elements(runtime.result(output));
  }
  void take_losses(std::vector<double>& losses) override {
    losses.insert(losses.end(), losses_.begin(), losses_.end());
    losses_.clear();
  }
  void forget_losses() override { losses_.clear(); }

 private:
  void append_elements(const Tensor& value) {
    if (value.elements() == 1) return losses_.push_back(sum_of(value));
    const Tensor wide = value.to(DType::float64).contiguous_copy();
    const auto elements = wide.span<double>();
    losses_.insert(losses_.end(), elements.begin(), elements.end());
  }

  std::vector<double> losses_;
};

}  // namespace

std::unique_ptr<Session> make_cpu_session(Device device, Launch) {
  return std::make_unique<CpuSession>(device);
}

std::unique_ptr<Session> make_session(Device device, Launch launch) {
  static const SessionMakers makers = make_session_makers();
  (void)backend(device);  // throws where there is none
  return makers.at(device.type)(device, launch);
}

}  // namespace espalier
