// bench_exported [rounds]: one row through the classifier of digits of samples/digits.cpp, by its executor
// and by the C code that this exports. The status is 1 if the code takes more than three times as long.
#include <dlfcn.h>
#include <espalier/espalier.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "timing.h"
namespace esp = espalier;

namespace {

using Run = int(const float*, float*);

/// The function of the code, which stays loaded.
Run* compiled(const esp::Executor& executor, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "digits.c", library = folder / "digits.so";
  (void)executor.export_c(file);
  const std::string command =
      "${CC:-cc} -std=c99 -O3 -shared -fPIC -o " + library.string() + " " + file.string() + " -lm";
  if (std::system(command.c_str()) != 0) throw esp::Error("cannot compile " + file.string());
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw esp::Error(dlerror());
  return reinterpret_cast<Run*>(dlsym(handle, "digits_run"));
}

}  // namespace

int main(int argc, char** argv) try {
  constexpr int kRuns = 10'000;
  constexpr double kMostRatio = 3;
  esp::set_num_threads(1);
  esp::seed(1);
  const esp::nn::Sequential network{esp::nn::Dense(128), esp::nn::Relu(), esp::nn::Dropout(0.2),
                                    esp::nn::Dense(10)};
  const esp::Executor executor =
      network(esp::placeholder("x", {1, 64})).get_executor({.mode = esp::Mode::inference});

  std::string name = (std::filesystem::temp_directory_path() / "espalier-bench-XXXXXX").string();
  if (!mkdtemp(name.data())) throw esp::Error("cannot make " + name);
  Run* const code = compiled(executor, name);
  std::filesystem::remove_all(name);

  const esp::Tensor x = esp::uniform({1, 64}).value();
  float output[10];
  std::vector<double> by_executor, by_code;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    by_executor.push_back(bench::median_seconds(kRuns, [&] { (void)executor.run({{"x", x}}); }));
    by_code.push_back(bench::median_seconds(kRuns, [&] { (void)code(x.data<float>(), output); }));
  }
  const double ratio = bench::median(by_code) / bench::median(by_executor);
  bench::report("exported_executor_us", bench::median(by_executor) * 1e6);
  bench::report("exported_code_us", bench::median(by_code) * 1e6);
  bench::report("exported_ratio", ratio);
  return ratio <= kMostRatio ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
