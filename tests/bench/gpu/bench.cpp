// bench_gpu mlp|idle|pointwise|optimizer|gpt|chain|vision|lstm|attention [rounds]: the workloads on a GPU, in
// plans and eagerly. Wall times over many steps, followed by a synchronization of the device. $BENCH_TRACES
// is a folder for the times of the kernels of mlp, gpt, vision and lstm, for Chrome.
#include <espalier/espalier.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "../mlp_task.h"
#include "../nets.h"
#include "../pointwise_task.h"
#include "../timing.h"
#include "../workloads.h"
#include "gpu_task.h"
#include "kernels.h"
#include "measured.h"
#include "networks.h"
namespace esp = espalier;

namespace {

// An epoch of the MLP as an eager loop. Everything except the order of the rows is on the device.
std::function<void()> eager_mlp() {
  const esp::Tensor x = esp::randn({task::kRows, task::kInputs}).to(esp::gpu());
  const esp::Tensor y = esp::randn({task::kRows, task::kOutputs}).to(esp::gpu());
  return [x, y, net = nets::Mlp(), optimizer = esp::optim::Sgd(task::kLearningRate),
          order = std::vector<int64_t>(), random = std::mt19937_64(1)]() mutable {
    if (order.empty())
      for (int64_t row = 0; row < task::kRows; ++row) order.push_back(row);
    std::shuffle(order.begin(), order.end(), random);
    const esp::Tensor rows = esp::tensor_from(order, {task::kRows}).to(esp::gpu());
    esp::Variable loss;
    for (int64_t first = 0; first < task::kRows; first += task::kBatch) {
      const esp::Tensor batch = rows.slice(0, first, first + task::kBatch);
      loss = esp::nn::MeanSquared()(net(esp::gather(x, batch)), esp::gather(y, batch));
      loss.backward().update(optimizer);
    }
    (void)loss.item();
  };
}

void mlp(int rounds) {
  const auto eager = eager_mlp();
  bench::report("mlp_eager_us", seconds_of_step(eager, task::kRows / task::kBatch, rounds) * 1e6);
  const std::pair<esp::Launch, const char*> ways[] = {{esp::Launch::graph, "mlp_executor"},
                                                      {esp::Launch::segments, "mlp_executor_segments"},
                                                      {esp::Launch::stream, "mlp_executor_stream"}};
  for (const auto& [launch, name] : ways) {
    const workloads::Frozen frozen = workloads::mlp(target(esp::Precision::float32, launch));
    bench::report(std::string(name) + "_us", seconds_of_step(frozen, rounds) * 1e6);
    if (launch != esp::Launch::graph) continue;
    bench::report("mlp_nodes", nodes_of(frozen));
    trace(frozen, "mlp");
  }
}

// Seconds of an epoch whose steps are all queued before the device may start, so that the host cannot delay
// it.
double seconds_when_queued(const workloads::Frozen& frozen, bench::Gate& gate) {
  using Clock = std::chrono::steady_clock;
  gate.close();
  Clock::time_point opened;
  std::exception_ptr failed;
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    try {
      opened = Clock::now();
      gate.open();
    } catch (...) {
      failed = std::current_exception();
    }
  });
  frozen.run();
  esp::synchronize(esp::gpu());
  const auto end = Clock::now();
  opener.join();
  if (failed) std::rethrow_exception(failed);
  return std::chrono::duration<double>(end - opened).count();
}

// The fraction of a long epoch in which the device waits for the launch of the next step.
void idle(int rounds) {
  const workloads::Frozen frozen = workloads::mlp(target(), gpu_task::kLongEpoch * task::kBatch);
  bench::Gate gate;
  frozen.run(), frozen.run();
  std::vector<double> busy, wall;
  for (int round = 0; round < 2 * rounds + 1; ++round) {  // in turns
    busy.push_back(seconds_when_queued(frozen, gate));
    wall.push_back(bench::seconds([&] {
      frozen.run();
      esp::synchronize(esp::gpu());
    }));
  }
  const double step = 1e6 / gpu_task::kLongEpoch;
  bench::report("idle_queued_us", bench::median(busy) * step);
  bench::report("idle_wall_us", bench::median(wall) * step);
  bench::report("idle_percent", 100 * (1 - bench::median(busy) / bench::median(wall)));
}

struct EagerPointwise {
  esp::Variable a, b, c;

  explicit EagerPointwise(int64_t elements) : a(leaf(elements)), b(leaf(elements)), c(leaf(elements)) {}
  static esp::Variable leaf(int64_t elements) { return esp::variable(esp::randn({elements}).to(esp::gpu())); }
  void forward() const {
    const esp::NoGrad no_grad;
    (void)pointwise_task::expression(a, b, c).value();
  }
  void backward() const {
    const esp::Variable loss = esp::sum(pointwise_task::expression(a, b, c));
    loss.backward();
    for (const esp::Variable& leaf : {a, b, c}) (void)loss.gradient(leaf).value();
  }
};

void pointwise(int rounds) {
  const std::pair<const char*, int64_t> sizes[] = {{"16m", gpu_task::kPointwise16M},
                                                   {"256m", gpu_task::kPointwise256M}};
  for (const auto& [size, elements] : sizes) {
    const auto report = [&, size = size, n = static_cast<double>(elements)](
                            const char* direction, const char* contestant, double bytes, double seconds) {
      bench::report(std::string("pointwise_") + direction + "_" + size + "_" + contestant + "_gb_per_s",
                    bytes * n / seconds * 1e-9);
    };
    report("forward", "executor", gpu_task::kForwardBytes,
           seconds_of_step(workloads::pointwise_forward(target(), elements), rounds));
    report("backward", "executor", gpu_task::kBackwardBytes,
           seconds_of_step(workloads::pointwise_backward(target(), elements), rounds));
    const EagerPointwise eager(elements);
    report("forward", "eager", gpu_task::kForwardBytes, seconds_of_step([&] { eager.forward(); }, 1, rounds));
    report("backward", "eager", gpu_task::kBackwardBytes,
           seconds_of_step([&] { eager.backward(); }, 1, rounds));
  }
}

void optimizer(int rounds) {
  const std::vector<int64_t> sizes = gpu_task::parameter_sizes();
  double elements = 0;
  for (const int64_t size : sizes) elements += static_cast<double>(size);
  const workloads::Frozen frozen = workloads::optimizer(target(), sizes);
  const double seconds = seconds_of_step(frozen, rounds);
  bench::report("optimizer_executor_ms", seconds * 1e3);
  bench::report("optimizer_executor_gb_per_s", gpu_task::kAdamBytes * elements / seconds * 1e-9);
  // Kernels other than the update are also launched by a plan without these parameters, which is subtracted.
  const workloads::Frozen without = workloads::optimizer(target(), {});
  without.run(), without.run();
  bench::report("optimizer_launches", nodes_of(frozen) - nodes_of(without) + 1);
}

void gpt(int rounds) {
  const std::pair<esp::Precision, const char*> precisions[] = {{esp::Precision::float32, "float32"},
                                                               {esp::Precision::tf32, "tf32"},
                                                               {esp::Precision::bfloat16, "bf16"}};
  gpt_task::Size one_op = gpu_task::kGptLarge;
  one_op.attention_op = true;
  const std::pair<const char*, gpt_task::Size> sizes[] = {
      {"gpt_small", {}}, {"gpt_large", gpu_task::kGptLarge}, {"gpt_large_attention", one_op}};
  for (const auto& [name, size] : sizes)
    for (const auto& [precision, numbers] : precisions) {
      const workloads::Frozen frozen = workloads::gpt(target(precision), size);
      const std::string what = std::string(name) + "_" + numbers + "_executor";
      bench::report(what + "_ms", seconds_of_step(frozen, rounds) * 1e3);
      bench::report(what + "_nodes", nodes_of(frozen));
      trace(frozen, what);
    }
}

esp::Variable one_there() { return esp::variable(esp::ones({1}).to(esp::gpu())); }

void chain(int rounds) {
  const double ops = gpu_task::kChain;
  const auto shared = [] {
    esp::Variable h = one_there();
    const esp::Variable v = one_there();
    for (int i = 0; i < gpu_task::kChain; ++i) h = h + v;
    h.backward();
    (void)h.gradient(v).value();
  };
  bench::report("chain_shared_eager_ns", seconds_of_step(shared, 1, rounds) * 1e9 / ops);
  std::vector<esp::Variable> leaves;
  for (int i = 0; i < gpu_task::kChain; ++i) leaves.push_back(one_there());
  const auto distinct = [&] {
    esp::Variable h = one_there();
    for (const esp::Variable& v : leaves) h = h + v;
    h.backward();
    (void)h.gradient(leaves.front()).value();
  };
  bench::report("chain_distinct_eager_ns", seconds_of_step(distinct, 1, rounds) * 1e9 / ops);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::map<std::string, void (*)(int)> workloads = {
      {"mlp", mlp},     {"idle", idle},     {"pointwise", pointwise}, {"optimizer", optimizer}, {"gpt", gpt},
      {"chain", chain}, {"vision", vision}, {"lstm", lstm},           {"attention", attention}};
  const auto wanted = workloads.find(argc > 1 ? argv[1] : "");
  if (wanted == workloads.end())
    return std::fputs(
               "usage: bench_gpu mlp|idle|pointwise|optimizer|gpt|chain|vision|lstm|attention [rounds]\n",
               stderr),
           2;
  esp::seed(1);
  esp::synchronize(esp::gpu());  // throws where there is none
  wanted->second(bench::rounds(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_gpu: %s\n", error.what());
  return 1;
}
