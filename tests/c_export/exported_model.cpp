// Writes networks as C code, and what they compute in some steps: exported_model <folder>. See run.sh.
#include <espalier/espalier.h>

#include <fstream>
#include <iostream>
namespace esp = espalier;

namespace {

constexpr int steps = 20;

/// Numbers as an array of C.
template <class T>
void write(std::ostream& out, const std::vector<T>& numbers) {
  out << "{";
  for (const T x : numbers) out << x << (std::is_floating_point_v<T> ? "f, " : ", ");
  out << "}";
}

void write_model(const std::filesystem::path& folder, const std::string& name, const esp::Shape& shape,
                 const esp::nn::Sequential& network) {
  const esp::Variable x = esp::placeholder("x", shape), y = esp::placeholder("y", {shape[0]}, esp::int64);
  const esp::Variable output = network(x);
  const auto trainer = esp::nn::SoftmaxCrossEntropy()(output, y).get_executor(
      {.mode = esp::Mode::training, .optimizer = esp::optim::Adam({.lr = 1e-3})});
  const esp::ExportedSizes sizes = trainer.export_c(folder / (name + ".c"), {.predict = output});
  std::cout << name << ": " << sizes.arena << " bytes of arena, " << sizes.states << " of states, "
            << sizes.constants << " of constants\n";
  std::vector<float> losses;
  std::ofstream out(folder / (name + ".h"));
  out.precision(9);
  out << std::scientific;
  std::ostringstream inputs, labels;
  inputs.precision(9);
  inputs << std::scientific;
  esp::Tensor first;
  for (int step = 0; step < steps; ++step) {
    const esp::Tensor batch = esp::uniform(shape).value();
    esp::Tensor classes({shape[0]}, esp::int64);
    for (int64_t& c : classes.span<int64_t>()) c = (step * 7 + (&c - classes.data<int64_t>())) % 10;
    if (step == 0) first = batch;
    losses.push_back(static_cast<float>(trainer.run({{"x", batch}, {"y", classes}}).item()));
    const auto numbers = batch.span<float>();
    write(inputs, std::vector<float>(numbers.begin(), numbers.end()));
    write(labels, std::vector<int64_t>(classes.span<int64_t>().begin(), classes.span<int64_t>().end()));
    inputs << ",\n";
    labels << ",\n";
  }
  const esp::Tensor last = output.get_executor({.mode = esp::Mode::inference}).run({{"x", first}});
  out << "#define STEPS " << steps << "\n#define OUTPUTS " << last.elements() << "\n";
  for (const char* function : {"init", "step", "run", "save", "load"})
    out << "#define model_" << function << " " << name << "_" << function << "\n";
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  out << "#define SAVED_BYTES " << upper << "_SAVED_BYTES\n";
  out << "static const float inputs[STEPS][" << shape.elements() << "] = {\n" << inputs.str() << "};\n";
  out << "static const int64_t labels[STEPS][" << shape[0] << "] = {\n" << labels.str() << "};\n";
  out << "static const float losses[STEPS] = ";
  write(out, losses);
  out << ";\nstatic const float outputs[OUTPUTS] = ";
  const auto results = last.span<float>();
  write(out, std::vector<float>(results.begin(), results.end()));
  out << ";\n";
}

/// An LSTM over rows of 4 steps of 3 numbers.
esp::nn::Sequential lstm() {
  const esp::nn::Lstm layer(3, 8, {.batch_first = true});
  return esp::nn::Sequential{esp::nn::Lambda([=](const esp::Variable& rows) {
                               return layer(esp::reshape(rows, {3, 4, 3})).state.h[0];
                             }),
                             esp::nn::Dense(10)};
}

/// A layer over rows of 6 words of 4 numbers.
esp::nn::Sequential transformer() {
  const esp::nn::TransformerEncoder encoder(1, 4, 2, {.feedforward = 16, .dropout = 0});
  return esp::nn::Sequential{esp::nn::Lambda([=](const esp::Variable& rows) {
                               return esp::flatten(encoder(esp::reshape(rows, {2, 6, 4})), 1);
                             }),
                             esp::nn::Dense(10)};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw esp::Error("usage: exported_model <folder>");
  esp::seed(1);
  write_model(argv[1], "digits", {1, 64},
              esp::nn::Sequential{esp::nn::Dense(32), esp::nn::Relu(), esp::nn::Dense(10)});
  // Without a bias, whose gradient would be rounding errors alone in front of the batch's statistics.
  write_model(argv[1], "convolution", {2, 1, 8, 8},
              esp::nn::Sequential{esp::nn::Conv2d(4, {.kernel = 3, .padding = 1, .bias = false}),
                                  esp::nn::BatchNorm(), esp::nn::Relu(), esp::nn::MaxPool2d({.kernel = 2}),
                                  esp::nn::Lambda([](const esp::Variable& v) { return esp::flatten(v, 1); }),
                                  esp::nn::Dense(10)});
  write_model(argv[1], "lstm", {3, 12}, lstm());
  write_model(argv[1], "transformer", {2, 24}, transformer());
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
