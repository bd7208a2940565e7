// bench_vision CONTESTANT[,CONTESTANT...] [batch] [rounds] [trace]: wall and processor time of a run of each
// contestant, which take turns, and of a single one the peak memory of the process. With `trace` the kernels
// of runs are written there, for Chrome.
//   document_executor, document_eager  a training step of the network of samples/static_and_dynamic.cpp with
//                                      256 digits of 8×8
//   resnet18_executor, resnet18_eager  inference of one image of 224×224; mobilenet_… the same
//   training_executor, training_eager  a training step of ResNet-18 with 16 images of 64×64
//   document_bfloat16 and so on        a plan in Precision::bfloat16
//   document_floor and so on           the convolutions of these alone
#include <espalier/espalier.h>

#include <functional>
#include <string>

#include "convolution_floor.h"
#include "document.h"
#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;

namespace {

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

Contestant floor_of(const std::string& net, int64_t batch) {
  using namespace bench;
  if (net == "document") return {convolution_floor(document_convolutions(batch ? batch : 256), true)};
  if (net == "training") return {convolution_floor(resnet18_convolutions(batch ? batch : 16, 64), true)};
  if (net == "resnet18") return {convolution_floor(resnet18_convolutions(batch ? batch : 1, 224), false)};
  if (net == "mobilenet") return {convolution_floor(mobilenet_convolutions(batch ? batch : 1, 224), false)};
  return {};
}

Contestant make(const std::string& name, int64_t batch) {
  const size_t cut = name.find('_');
  const std::string net = name.substr(0, cut), how = cut == std::string::npos ? "" : name.substr(cut + 1);
  if (how == "floor") return floor_of(net, batch);
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
  const std::string all = argc > 1 ? argv[1] : "";
  const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5;
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  std::vector<std::string> names;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = all.find(',', begin);
    names.push_back(all.substr(begin, end == std::string::npos ? end : end - begin));
  }
  struct Times {
    std::vector<double> wall = {}, processor = {};
  };
  std::vector<Contestant> contestants;
  std::vector<Times> times(names.size());
  for (const std::string& name : names) {
    contestants.push_back(make(name, argc > 2 ? std::atoi(argv[2]) : 0));
    const Contestant& made = contestants.back();
    if (!made.run)
      return std::fputs(
                 "usage: bench_vision "
                 "document|training|resnet18|mobilenet_executor|eager|bfloat16|floor[,...] "
                 "[batch] [rounds] [trace]\n",
                 stderr),
             2;
    made.run();
    made.run();
    if (argc > 4 && made.executor) made.executor->profile(argv[4], {.steps = rounds});
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < names.size(); ++i) {
      const double start = bench::processor_seconds();
      times[i].wall.push_back(bench::seconds(contestants[i].run));
      times[i].processor.push_back(bench::processor_seconds() - start);
    }
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = "vision_" + names[i];
    bench::report(name + "_ms", bench::median(times[i].wall) * 1e3);
    bench::report(name + "_processor_ms", bench::median(times[i].processor) * 1e3);
    if (names.size() == 1) bench::report(name + "_peak_mb", bench::peak_megabytes());
    if (const auto& executor = contestants[i].executor)
      bench::report(name + "_arena_mb", static_cast<double>(executor->plan().arena_bytes()) / (1 << 20));
  }
}
