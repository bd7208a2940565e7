// Processor time of get_executor per layer of deep trees, which should not depend on their depth.
//   bench_depth [shape...] [most layers] [passes]
// With the word "passes" it also prints the passes that take longest. Each tree is compiled in a process of
// its own, so that none finds memory that another has left. "floor" is the processor time to write a word
// into each cache line of as much new memory as the process has taken.
#include <espalier/espalier.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "timing.h"
namespace esp = espalier;

namespace {

using Options = esp::ExecutorOptions;
constexpr int64_t kWidth = 4;

Options training() { return {.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(1e-3)}; }
Options adam() { return {.mode = esp::Mode::training, .optimizer = esp::optim::Adam(1e-3)}; }
Options inference() { return {.mode = esp::Mode::inference}; }

esp::Variable weight() { return esp::parameter(esp::randn({kWidth, kWidth})); }

esp::Variable tanh_shared(int layers) {
  const esp::Variable w = weight();
  esp::Variable h = esp::ones({2, kWidth});
  for (int i = 0; i < layers; ++i) h = esp::tanh(esp::matmul(h, w)) * 0.5;
  return esp::sum(h);
}
esp::Variable tanh_each(int layers) {
  esp::Variable h = esp::ones({2, kWidth});
  for (int i = 0; i < layers; ++i) h = esp::tanh(esp::matmul(h, weight())) * 0.5;
  return esp::sum(h);
}
esp::Variable relu_shared(int layers) {
  const esp::Variable w = weight();
  esp::Variable h = esp::ones({2, kWidth});
  for (int i = 0; i < layers; ++i) h = esp::relu(esp::matmul(h, w));
  return esp::sum(h);
}
esp::Variable sines(int layers) {
  esp::Variable h = esp::parameter(esp::ones({kWidth}));
  for (int i = 0; i < layers; ++i) h = esp::sin(h) + 1.0;
  return h;
}
esp::Variable sines_of_products(int layers) {
  const esp::Variable w = esp::parameter(esp::ones({kWidth}));
  esp::Variable y = esp::ones({kWidth});
  for (int i = 0; i < layers; ++i) y = esp::sin(y * w);
  return esp::sum(y);
}
esp::Variable sum_of_sines(int layers) {
  const esp::Variable s = esp::parameter(esp::ones({kWidth}));
  esp::Variable total = esp::sin(s);
  for (int i = 0; i < layers; ++i) total = total + esp::sin(s + static_cast<double>(i));
  return esp::sum(total);
}
esp::Variable joined(int layers) {
  std::vector<esp::Variable> parts;
  for (int i = 0; i < layers; ++i) parts.push_back(esp::parameter(esp::ones({kWidth})));
  return esp::sum(esp::square(esp::concat(parts, 0)));
}

struct Shape {
  const char* name;
  esp::Variable (*tree)(int layers);
  Options (*options)();
};
const Shape kShapes[] = {{"tanh_shared", tanh_shared, training},
                         {"tanh_each", tanh_each, training},
                         {"tanh_adam", tanh_each, adam},
                         {"relu_shared", relu_shared, training},
                         {"sines", sines, inference},
                         {"products", sines_of_products, training},
                         {"sum", sum_of_sines, training},
                         {"concat", joined, training}};

void print_passes(const esp::Executor& executor) {
  std::vector<esp::PassReport> passes = executor.plan().passes();
  std::ranges::sort(passes, std::greater<>(), &esp::PassReport::seconds);
  for (size_t i = 0; i < 5 && i < passes.size(); ++i)
    std::printf("  %-34s %12.3f ms\n", passes[i].name.c_str(), passes[i].seconds * 1e3);
}

double processor_seconds(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double seconds_to_fill(size_t bytes) {
  const std::clock_t start = std::clock();
  const auto memory = std::make_unique_for_overwrite<char[]>(bytes);
  volatile char* line = memory.get();
  for (size_t at = 0; at < bytes; at += 64) line[at] = 1;
  return processor_seconds(start);
}

void compile(const Shape& shape, int layers, bool passes) {
  const double before = bench::peak_megabytes();
  esp::seed(1);
  const esp::Variable tree = shape.tree(layers);
  const std::clock_t start = std::clock();
  const esp::Executor executor = tree.get_executor(shape.options());
  const double seconds = processor_seconds(start), taken = bench::peak_megabytes() - before;
  const auto report = [&](const char* what, double value) {
    bench::report("depth_" + std::string(shape.name) + "_" + std::to_string(layers) + what, value);
  };
  report("_us", seconds * 1e6 / layers);
  report("_kb", taken * 1024 / layers);
  report("_floor_us", seconds_to_fill(static_cast<size_t>(taken * 1048576)) * 1e6 / layers);
  if (passes) print_passes(executor);
}

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(1);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool passes = std::ranges::count(words, "passes");
  int most = 0;
  bool named = false;
  for (const std::string& word : words) {
    if (std::atoi(word.c_str()) > 0) most = std::atoi(word.c_str());
    named |= std::ranges::count(kShapes, word, &Shape::name) > 0;
  }
  (void)tanh_shared(2).get_executor(training());  // what is done once in a program
  for (const Shape& shape : kShapes) {
    if (named && !std::ranges::count(words, shape.name)) continue;
    for (int layers = 250; layers <= (most ? most : 16000); layers *= 4) {
      const pid_t child = fork();
      if (child == 0) {
        compile(shape, layers, passes);
        std::fflush(stdout);
        _exit(0);
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    }
  }
}
