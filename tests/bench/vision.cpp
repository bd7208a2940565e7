// bench_vision CONTESTANT [batch] [rounds] [trace]: wall and processor time of a run, and the peak memory, of
// one contestant in a process of its own. With `trace` the kernels of runs are written there, for Chrome.
//   document_executor, document_eager  a training step of the network of samples/static_and_dynamic.cpp with
//                                      256 digits of 8×8, and document_bfloat16 in Precision::bfloat16
//   resnet18_executor, resnet18_eager  inference of one image of 224×224; mobilenet_… the same
//   training_executor, training_eager  a training step of ResNet-18 with 16 images of 64×64
#include <espalier/espalier.h>

#include <ctime>
#include <functional>
#include <string>

#include "document.h"
#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;

namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Contestant {
  std::function<void()> run;
  std::optional<esp::Executor> executor = {};
};
using Net = std::function<esp::Variable(const esp::Variable&)>;

Contestant training(const Net& net, const esp::Shape& images, std::string_view how) {
  const int64_t batch = images[0];
  const auto rows = std::make_shared<std::pair<esp::Tensor, esp::Tensor>>(esp::randn(images),
                                                                          esp::zeros({batch}, esp::int64));
  const nn::SoftmaxCrossEntropy loss_function;
  const esp::optim::Adam optimizer({.lr = 1e-3});
  if (how == "eager")
    return {[=] {
      const esp::Variable loss = loss_function(net(rows->first), rows->second);
      loss.backward({.clear_buffers = true}).update(optimizer);
      (void)loss.item();
    }};
  const esp::data::Distributor feed({rows->first, rows->second}, {.batch_size = batch});
  const auto [x, y] = feed.get_output_graphs<2>();
  const esp::Executor executor = loss_function(net(x), y).get_executor(
      {.optimizer = optimizer,
       .precision = how == "bfloat16" ? esp::Precision::bfloat16 : esp::Precision::float32});
  return {[executor] { executor.execute({.epochs = 1, .progress = false}); }, executor};
}

Contestant inference(nn::Sequential net, int64_t batch, std::string_view how) {
  net.train(false);
  const esp::Tensor images = esp::randn({batch, 3, 224, 224});
  if (how == "eager")
    return {[=] {
      const esp::NoGrad off;
      (void)net(images).value();
    }};
  const esp::Variable x = esp::placeholder("x", {batch, 3, 224, 224});
  const esp::Executor executor = net(x).get_executor(
      {.mode = esp::Mode::inference,
       .precision = how == "bfloat16" ? esp::Precision::bfloat16 : esp::Precision::float32});
  return {[=] { (void)executor.run({{"x", images}}); }, executor};
}

Contestant make(const std::string& name, int64_t batch) {
  const size_t cut = name.find('_');
  const std::string net = name.substr(0, cut), how = cut == std::string::npos ? "" : name.substr(cut + 1);
  if (how != "executor" && how != "eager" && how != "bfloat16") return {};
  if (net == "document") {
    const nn::Parameters scope;
    return training([scope](const esp::Variable& x) { return bench::document(scope["cnn"], x); },
                    {batch ? batch : 256, 1, 8, 8}, how);
  }
  if (net == "training") return training(nn::vision::resnet18(), {batch ? batch : 16, 3, 64, 64}, how);
  if (net == "resnet18") return inference(nn::vision::resnet18(), batch ? batch : 1, how);
  if (net == "mobilenet") return inference(nn::vision::mobilenet_v2(), batch ? batch : 1, how);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const Contestant contestant = make(name, argc > 2 ? std::atoi(argv[2]) : 0);
  if (!contestant.run)
    return std::fputs(
               "usage: bench_vision document|training|resnet18|mobilenet_executor|eager|bfloat16 "
               "[batch] [rounds] [trace]\n",
               stderr),
           2;
  const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5;
  contestant.run();
  contestant.run();
  if (argc > 4 && contestant.executor) contestant.executor->profile(argv[4], {.steps = rounds});
  std::vector<double> wall, processor;
  for (int round = 0; round < rounds; ++round) {
    const double start = processor_seconds();
    wall.push_back(bench::seconds(contestant.run));
    processor.push_back(processor_seconds() - start);
  }
  bench::report("vision_" + name + "_ms", bench::median(wall) * 1e3);
  bench::report("vision_" + name + "_processor_ms", bench::median(processor) * 1e3);
  bench::report("vision_" + name + "_peak_mb", bench::peak_megabytes());
  if (contestant.executor)
    bench::report("vision_" + name + "_arena_mb",
                  static_cast<double>(contestant.executor->plan().arena_bytes()) / (1 << 20));
}
