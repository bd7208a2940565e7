// bench_onnx write FOLDER | run FOLDER [rounds]: inference of ONNX files. `write` makes the files of four
// networks, each with an input as an array of NumPy; `run` loads and runs those of a folder, in the time of
// the clock and in processor time. peer/onnxruntime/bench.py runs the same files.
#include <espalier/onnx.h>

#include <filesystem>
#include <string>

#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;
namespace fs = std::filesystem;

namespace {

constexpr int kRuns = 20;  // in each measurement

void write(const fs::path& folder, const std::string& name, const esp::Shape& shape, nn::Module net,
           const std::function<esp::Variable(const esp::Variable&)>& forward) {
  net.train(false);
  const esp::Variable x = esp::placeholder("x", shape), y = forward(x);
  esp::onnx::save(folder / (name + ".onnx"), {{"x", x}}, {{"y", y}}, {.parameters = net.parameters()});
  esp::data::write_npy(folder / (name + ".npy"), esp::randn(shape));
}

void write_all(const fs::path& folder) {
  esp::seed(1);
  fs::create_directories(folder);
  nn::Sequential mlp{nn::Dense(1024), nn::Relu(), nn::Dense(1024), nn::Relu(), nn::Dense(10), nn::Softmax()};
  write(folder, "mlp", {64, 784}, mlp, [&](const auto& x) { return mlp(x); });
  const auto gelu = [](const esp::Variable& v) { return esp::gelu(v); };
  const nn::TransformerEncoder transformer(2, 128, 4, {.feedforward = 512, .activation = gelu});
  write(folder, "transformer", {8, 64, 128}, transformer, [&](const auto& x) { return transformer(x); });
  const esp::MaxPoolOptions halves{.kernel = 2};
  nn::Sequential digits{nn::Conv2d(16, {.kernel = 5, .padding = 2}),
                        nn::Relu(),
                        nn::MaxPool2d(halves),
                        nn::Conv2d(32, {.kernel = 5, .padding = 2}),
                        nn::Relu(),
                        nn::MaxPool2d(halves),
                        nn::Flatten(),
                        nn::Dense(10)};
  write(folder, "digits", {32, 1, 28, 28}, digits, [&](const auto& x) { return digits(x); });
  auto resnet = nn::vision::resnet18({.classes = 10});
  write(folder, "resnet18", {4, 3, 64, 64}, resnet, [&](const auto& x) { return resnet(x); });
}

void run(const fs::path& file, int rounds) {
  const std::string name = file.stem().string();
  const esp::Tensor x = esp::data::read_npy(fs::path(file).replace_extension(".npy"));
  const esp::onnx::Model model = esp::onnx::load(file);
  const esp::Executor executor = model.output().get_executor({.mode = esp::Mode::inference});
  const auto work = [&] {
    for (int i = 0; i < kRuns; ++i) (void)executor.run({{"x", x}});
  };
  work();
  std::vector<double> clock, processor;
  for (int round = 0; round < rounds; ++round) {
    const double start = bench::processor_seconds();
    clock.push_back(bench::seconds(work));
    processor.push_back(bench::processor_seconds() - start);
  }
  bench::report("onnx_" + name + "_ms", bench::median(clock) * 1e3 / kRuns);
  bench::report("onnx_" + name + "_processor_ms", bench::median(processor) * 1e3 / kRuns);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what != "write" && what != "run")
    return std::fputs("usage: bench_onnx write FOLDER | run FOLDER [rounds]\n", stderr), 2;
  esp::set_num_threads(bench::threads());
  if (what == "write") return write_all(argv[2]), 0;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(argv[2]))
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) run(file, argc > 3 ? bench::rounds(argc, argv) : 5);
  return 0;
}
