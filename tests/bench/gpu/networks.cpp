#include "networks.h"

#include <utility>

#include "../document.h"
#include "gpu_task.h"
#include "measured.h"
namespace esp = espalier;
namespace nn = espalier::nn;

namespace {

using Net = std::function<esp::Variable(const esp::Variable&)>;

// Every precision of a plan, and eager training in float32.
void training(const std::string& name, const Net& net, const esp::data::Distributor& feed, const Net& loss_of,
              int64_t steps, int rounds) {
  const esp::optim::Adam optimizer({.lr = 1e-3});
  const std::pair<esp::Precision, const char*> precisions[] = {{esp::Precision::float32, "float32"},
                                                               {esp::Precision::tf32, "tf32"},
                                                               {esp::Precision::bfloat16, "bf16"}};
  for (const auto& [precision, numbers] : precisions) {
    const esp::Variable x = feed.get_output_graphs()[0];
    const esp::Executor executor = loss_of(net(x)).get_executor(
        {.optimizer = optimizer, .devices = {esp::gpu()}, .precision = precision});
    const workloads::Frozen frozen{executor,
                                   [executor] { executor.execute({.epochs = 1, .progress = false}); }, steps};
    bench::report(name + "_" + numbers + "_executor_ms", seconds_of_step(frozen, rounds) * 1e3);
    bench::report(name + "_" + numbers + "_nodes", nodes_of(frozen));
    bench::report(name + "_" + numbers + "_arena_mb",
                  static_cast<double>(executor.plan().arena_bytes()) / (1 << 20));
    trace(frozen, name + "_" + numbers);
  }
}

void eager(const std::string& name, const Net& net, const esp::Tensor& x, const Net& loss_of, int rounds) {
  const esp::optim::Adam optimizer({.lr = 1e-3});
  const auto step = [&] {
    const esp::Variable loss = loss_of(net(x));
    loss.backward({.clear_buffers = true}).update(optimizer);
    (void)loss.item();
  };
  bench::report(name + "_float32_eager_ms", seconds_of_step(step, 1, rounds) * 1e3);
}

// Classes are all 0: the time does not depend on them.
void classifier(const std::string& name, const std::function<Net()>& make, const esp::Shape& images,
                int rounds) {
  const int64_t batch = images[0];
  esp::Shape all = images;
  all.dims()[0] *= gpu_task::kNetworkSteps;
  const esp::data::Distributor feed({esp::randn(all)}, {.batch_size = batch});
  const Net loss_of = [batch](const esp::Variable& y) {
    return nn::SoftmaxCrossEntropy()(y, esp::zeros({batch}, esp::int64).to(esp::gpu()));
  };
  training(name, make(), feed, loss_of, gpu_task::kNetworkSteps, rounds);
  eager(name, make(), esp::randn(images).to(esp::gpu()), loss_of, rounds);
}

}  // namespace

void vision(int rounds) {
  const auto document = []() -> Net {
    const nn::Parameters scope;
    return [scope](const esp::Variable& x) { return bench::document(scope["cnn"], x); };
  };
  classifier("document", document, {gpu_task::kDigits, 1, 8, 8}, rounds);
  const auto resnet18 = []() -> Net {
    nn::Sequential net = nn::vision::resnet18();
    net.to(esp::gpu());
    return net;
  };
  classifier("resnet18", resnet18, {gpu_task::kImages, 3, gpu_task::kPixels, gpu_task::kPixels}, rounds);
}

void lstm(int rounds) {
  const auto make = []() -> Net {
    nn::Lstm net(gpu_task::kWidth, gpu_task::kWidth, {.layers = 2, .batch_first = true});
    net.to(esp::gpu());
    return [net](const esp::Variable& x) { return net(x).outputs; };
  };
  const Net loss_of = [](const esp::Variable& y) { return esp::mean(esp::square(y)); };
  const esp::Shape sequences = {gpu_task::kSequences, gpu_task::kLength, gpu_task::kWidth};
  esp::Shape all = sequences;
  all.dims()[0] *= gpu_task::kNetworkSteps;
  const esp::data::Distributor feed({esp::randn(all)}, {.batch_size = gpu_task::kSequences});
  training("lstm", make(), feed, loss_of, gpu_task::kNetworkSteps, rounds);
  eager("lstm", make(), esp::randn(sequences).to(esp::gpu()), loss_of, rounds);
}

void attention(int rounds) {
  const esp::Shape shape{gpu_task::kBatchOfHeads, gpu_task::kHeads, gpu_task::kTokens, gpu_task::kHeadWidth};
  for (const auto& [dtype, numbers] :
       {std::pair{esp::float32, "float32"}, std::pair{esp::bfloat16, "bf16"}}) {
    std::vector<esp::Variable> leaves;
    for (int i = 0; i < 3; ++i) leaves.push_back(esp::variable(esp::randn(shape).to(dtype).to(esp::gpu())));
    const esp::Variable g(esp::randn(shape).to(dtype).to(esp::gpu()));
    const auto result = [&] {
      return esp::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {.causal = true});
    };
    const auto forward = [&] {
      const esp::NoGrad off;
      (void)result().value();
    };
    const auto both = [&] {
      const esp::Variable loss = esp::sum(result() * g);
      for (const esp::Variable& leaf : leaves) (void)loss.gradient(leaf).value();
    };
    const std::string name = std::string("attention_") + numbers;
    bench::report(name + "_forward_eager_ms", seconds_of_step(forward, 1, rounds) * 1e3);
    bench::report(name + "_both_eager_ms", seconds_of_step(both, 1, rounds) * 1e3);
  }
}
