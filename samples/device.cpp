// Trains a classifier of digits, writes it as C code, and lets that code go on learning, as a device would
// whose user writes in another way.
//   device [digits.csv]
#include <dlfcn.h>
#include <espalier/espalier.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
namespace esp = espalier;

namespace {

struct Digits {
  esp::Tensor pixels, labels;
  int64_t count() const { return labels.elements(); }
  const float* pixels_of(int64_t i) const { return pixels.data<float>() + 64 * i; }
};

/// The C code, compiled and loaded. A device would be linked with it.
class Code {
 public:
  explicit Code(const std::filesystem::path& file) {
    const std::string library = file.string() + ".so";
    const std::string command =
        "cc -std=c99 -O3 -fno-math-errno -shared -fPIC -o '" + library + "' '" + file.string() + "' -lm";
    if (std::system(command.c_str()) != 0) throw esp::Error("cc cannot compile " + file.string());
    handle_ = dlopen(library.c_str(), RTLD_NOW);
    if (!handle_) throw esp::Error(dlerror());
    init = find<void()>("digits_init");
    set_learning_rate = find<void(float)>("digits_set_learning_rate");
    step = find<int(const float*, const int64_t*, float*)>("digits_step");
    run = find<int(const float*, float*)>("digits_run");
  }
  ~Code() {
    if (handle_) dlclose(handle_);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  void (*init)();
  void (*set_learning_rate)(float rate);
  int (*step)(const float* pixels, const int64_t* label, float* loss);
  int (*run)(const float* pixels, float* output);

 private:
  template <class F>
  F* find(const char* name) {
    return reinterpret_cast<F*>(dlsym(handle_, name));
  }
  void* handle_ = nullptr;
};

double accuracy(const Code& code, const Digits& digits) {
  int64_t correct = 0;
  for (int64_t i = 0; i < digits.count(); ++i) {
    float output[10];
    code.run(digits.pixels_of(i), output);
    const auto best = std::max_element(output, output + 10) - output;
    correct += best == digits.labels.data<int64_t>()[i];
  }
  return static_cast<double>(correct) / static_cast<double>(digits.count());
}

/// The digits of a user who writes them mirrored.
Digits mirrored(const Digits& digits) {
  const esp::Variable images = esp::reshape(esp::Variable(digits.pixels), {-1, 8, 8});
  return {esp::reshape(esp::flip(images, {2}), {-1, 64}).value().clone(), digits.labels};
}

}  // namespace

int main(int argc, char** argv) try {
  const esp::Tensor table = esp::data::read_csv(argc > 1 ? argv[1] : "samples/data/digits.csv");
  const esp::Tensor pixels = (esp::slice(table, 1, 0, 64) / 16).value();
  const esp::Tensor labels = esp::cast(esp::slice(table, 1, 64, 65), esp::int64).value().reshape({-1});
  const auto [learn, hold] = esp::data::split({pixels, labels}, 0.8);
  const Digits train{learn[0], learn[1]}, test{hold[0], hold[1]};

  esp::seed(1);
  const esp::data::Distributor feed({train.pixels, train.labels}, {.batch_size = 32, .shuffle = true});
  const auto [x, y] = feed.get_output_graphs<2>();
  const esp::nn::Sequential network{esp::nn::Dense(32), esp::nn::Relu(), esp::nn::Dense(10)};
  const esp::Variable output = network(x), loss = esp::nn::SoftmaxCrossEntropy()(output, y);
  const auto executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd({.lr = 0.1})});
  executor.execute({.epochs = 20, .progress = false});

  const auto folder = std::filesystem::temp_directory_path() / "espalier-device";
  std::filesystem::create_directories(folder);
  const esp::ExportedSizes sizes = executor.export_c(folder / "digits.c", {.rows = 1, .predict = output});
  std::cout << (folder / "digits.c").string() << ": " << sizes.arena << " bytes of arena, " << sizes.states
            << " of states\n";

  const Code code(folder / "digits.c");
  code.init();
  const Digits user = mirrored(train), user_test = mirrored(test);
  std::cout << "digits as in training: " << accuracy(code, test)
            << "\nthe user's digits: " << accuracy(code, user_test) << "\n";
  code.set_learning_rate(0.02f);  // its steps see one digit each
  float of_step = 0;
  for (int pass = 0; pass < 3; ++pass)
    for (int64_t i = 0; i < user.count(); ++i)
      code.step(user.pixels_of(i), user.labels.data<int64_t>() + i, &of_step);
  const double learned = accuracy(code, user_test);
  std::cout << "after the device has learned them: " << learned << "\n";
  return learned > 0.8 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
