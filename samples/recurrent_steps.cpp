// A recurrent network that is written step by step tells waves of several lengths apart: the part "RNN" of
// Paddle's design document. Parameters outlive the batches; each batch has a graph of its own, whose steps
// have a row for each sequence that has not ended. A layer then computes the same.
#include <espalier/espalier.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>
namespace esp = espalier;
using esp::nn::Parameters;

constexpr int64_t kWidth = 32;

struct Batch {
  esp::data::PackedSequence waves;
  esp::Tensor kinds;
};

/// Sines, squares and saw teeth of any phase, noisy, and as long as one to two and a half periods.
Batch waves(int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> noise(0, 0.1);
  std::vector<esp::Variable> all;
  std::vector<int64_t> kinds;
  for (int64_t i = 0; i < count; ++i) {
    const double phase = uniform(random), periods = 1 + 1.5 * uniform(random);
    kinds.push_back(static_cast<int64_t>(random() % 3));
    std::vector<float> wave;
    for (double t = phase; t < phase + periods; t += 1 / 16.0) {
      const double sine = std::sin(2 * M_PI * t), saw = 2 * (t - std::floor(t)) - 1;
      const double forms[] = {sine, std::copysign(0.7, sine), saw};
      wave.push_back(static_cast<float>(forms[kinds.back()] + noise(random)));
    }
    all.push_back(esp::tensor_from(wave, {static_cast<int64_t>(wave.size()), 1}));
  }
  return {esp::data::pack(all), esp::tensor_from(kinds, {count})};
}

/// The state of each sequence after its last step, in the order in which the sequences were given.
esp::Variable last_states(const Parameters& scope, const esp::data::PackedSequence& input) {
  esp::Variable memory = esp::zeros({static_cast<int64_t>(input.sequences()), kWidth});
  std::vector<esp::Variable> ended;  // the shortest sequences first
  for (const esp::Variable step : esp::rnn_view(input)) {
    const int64_t running = step.shape()[0];
    if (running < memory.shape()[0]) ended.push_back(memory[esp::range(running, esp::end)]);
    memory = memory[esp::range(0, running)];
    memory = esp::tanh(esp::nn::dense(scope["input"], step, kWidth) +
                       esp::nn::dense(scope["memory"], memory, kWidth));
  }
  ended.push_back(memory);
  std::ranges::reverse(ended);
  const auto sequences = static_cast<int64_t>(input.sequences());
  return esp::gather(esp::concat(ended), esp::tensor_from(input.unsorted_indices, {sequences}));
}

int main() {
  esp::seed(1);
  std::mt19937 random(1);
  const Parameters scope;  // the document's workspace
  const auto logits = [&](const Batch& batch) {
    return esp::nn::dense(scope["out"], last_states(scope, batch.waves), 3);
  };
  const esp::optim::Adam adam({.lr = 5e-3, .clip_norm = 1});
  for (int step = 1; step <= 400; ++step) {
    const Batch batch = waves(32, random);
    const esp::Variable loss = esp::softmax_cross_entropy(logits(batch), batch.kinds);
    loss.update(adam);
    if (step % 100 == 0) std::cout << "step " << step << ": loss " << loss.item() << "\n";
  }
  const esp::NoGrad no_grad;
  const Batch unseen = waves(500, random);
  const double right = esp::accuracy(logits(unseen), unseen.kinds).item();

  // The document's other way: a layer that is ready.
  const esp::nn::Rnn rnn(1, kWidth);
  const auto copy = [&](const char* from, const char* to) {
    for (const std::string part : {"weight", "bias"})
      esp::set_value(rnn.parameter(part + to), scope.parameter(from + ("." + part)).value());
  };
  copy("input.dense", "_ih_l0"), copy("memory.dense", "_hh_l0");
  const esp::Variable states = rnn(unseen.waves).state[0];
  const double difference = esp::max(esp::abs(states - last_states(scope, unseen.waves))).item();
  std::cout << "accuracy on unseen waves " << right << "; the layer's states differ by " << difference
            << "\n";
  return right > 0.9 && difference < 1e-4 ? 0 : 1;
}
