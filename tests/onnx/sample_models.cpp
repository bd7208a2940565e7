#include "sample_models.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "espalier/onnx.h"

// The programs as they are, each in a namespace of its own.
#define main main_of_program
namespace attention {
#include "../../samples/attention.cpp"
}
namespace character_model {
#include "../../samples/character_model.cpp"
}
namespace convolutional_network {
#include "../../samples/convolutional_network.cpp"
}
namespace digits {
#include "../../samples/digits.cpp"
}
namespace generate {
#include "../../samples/generate.cpp"
}
namespace listops {
#include "../../samples/listops.cpp"
}
namespace recurrent_steps {
#include "../../samples/recurrent_steps.cpp"
}
namespace sequence_model {
#include "../../samples/sequence_model.cpp"
}
namespace static_and_dynamic {
#include "../../samples/static_and_dynamic.cpp"
}
namespace tagger {
#include "../../samples/tagger.cpp"
}
namespace transfer_learning {
#include "../../samples/transfer_learning.cpp"
}
namespace vae {
#include "../../samples/vae.cpp"
}
#undef main

namespace espalier::testing {

namespace {

using namespace nn;

Variable batch_of(const Shape& sizes, DType dtype = float32) {
  Shape shape = sizes;
  shape.dims().insert(0, 2);
  return placeholder("x", shape, dtype);
}

/// A net of real numbers.
template <class Net>
SampleModel of_numbers(const std::string& name, Net net, const Shape& sizes) {
  const Variable x = batch_of(sizes), y = net(x);
  Shape three = x.shape();
  three.dims()[0] = 3;
  return {name, x, y, uniform(three).value(), net.parameters()};
}

/// A function of numbers below `count`, [batch, steps].
template <class Function>
SampleModel of_words(const std::string& name, int64_t count, int64_t steps, Function&& function) {
  const Variable x = batch_of({steps}, int64);
  return {name, x, function(x), randint(0, count, {3, steps})};
}

template <class Net>
SampleModel word_model(const std::string& name, Net net, int64_t count, int64_t steps) {
  SampleModel model = of_words(name, count, steps, [&](const Variable& x) { return net(x); });
  model.parameters = net.parameters();
  return model;
}

/// The letters that follow those of x, by the loop of the program.
Variable next_letters(const sequence_model::Writer& writer, const Variable& x) {
  Variable h = zeros_like(writer.embedding(x[{range(), 0}]));
  std::vector<Variable> logits;
  for (int64_t place = 0; place < x.shape()[1]; ++place) {
    h = writer.cell(writer.embedding(x[{range(), place}]), h);
    logits.push_back(writer.out(h));
  }
  return stack(logits, 1);
}

/// (MAX a (SM b c)), whose operators are words, too.
Variable expression(const listops::Reader& reader, const Variable& x) {
  const auto word = [&](int64_t place) { return reader.words(x[{range(), place}]); };
  const LSTMState inner =
      reader.cell(word(2), std::vector<LSTMState>{reader.cell(word(3)), reader.cell(word(4))});
  return reader.out(reader.cell(word(0), std::vector<LSTMState>{reader.cell(word(1)), inner}).h);
}

}  // namespace

std::vector<SampleModel> sample_models() {
  std::vector<SampleModel> all;
  all.push_back(word_model("attention", attention::Sorter(), attention::kDigits, attention::kLength));
  all.push_back(word_model("character_model lstm", character_model::LstmModel(60), 60, 12));
  all.push_back(word_model("character_model transformer", character_model::TransformerModel(60), 60, 12));
  all.push_back(
      of_numbers("convolutional_network",
                 Sequential{convolutional_network::convolution(32), convolutional_network::convolution(64),
                            MaxPool2d({.kernel = 2}), convolutional_network::convolution(128),
                            MaxPool2d({.kernel = 2}), Flatten(), Dropout(0.3), Dense(10)},
                 {1, 8, 8}));
  all.push_back(of_numbers("digits", digits::make_network(), {64}));
  all.push_back(of_numbers("eager_and_executor", Sequential{Dense(1000), Relu(), Dense(10)}, {100}));
  all.push_back(of_numbers("gan generator",
                           Sequential{Dense(2, 64), Relu(), Dense(64, 64), Relu(), Dense(64, 2)}, {2}));
  all.push_back(
      of_numbers("gan discriminator",
                 Sequential{Dense(2, 64), LeakyRelu(0.2), Dense(64, 64), LeakyRelu(0.2), Dense(64, 1)}, {2}));
  all.push_back(word_model("generate", generate::Gpt(), generate::kTokens, 16));
  const listops::Reader reader;
  all.push_back(of_words("listops", 14, 5, [&](const Variable& x) { return expression(reader, x); }));
  all.push_back(of_numbers("physics_informed_network",
                           Sequential{Dense(2, 32), Tanh(), Dense(32, 32), Tanh(), Dense(32, 1)}, {2}));
  all.push_back(of_numbers("reinforcement_learning", Sequential{Dense(4, 32), Tanh(), Dense(32, 2)}, {4}));
  // The graph of one batch of waves, whose steps lie behind each other in a row.
  const data::PackedSequence waves = data::pack({zeros({3, 1}), zeros({5, 1}), zeros({2, 1})});
  const Variable steps = placeholder("x", {1, 10});
  const data::PackedSequence packed = waves.with(unsqueeze(steps[0], 1));
  all.push_back({"recurrent_steps", steps, recurrent_steps::last_states(Parameters(), packed),
                 uniform({1, 10}).value()});
  const sequence_model::Writer writer;
  all.push_back(of_words("sequence_model", sequence_model::kLetters, 5,
                         [&](const Variable& x) { return next_letters(writer, x); }));
  all.push_back(of_numbers("server", Sequential{LayerNorm(4), Dense(4, 32), Relu(), Dense(32, 3)}, {4}));
  const Variable image = batch_of({1, 8, 8});
  all.push_back({"static_and_dynamic", image, static_and_dynamic::cnn(Parameters(), image, 2),
                 uniform({3, 1, 8, 8}).value()});
  const tagger::Tagger tags(50);
  all.push_back(of_words("tagger", 50, 6, [&](const Variable& x) { return tags(x); }));
  all.push_back(of_words("tagger decoding", 50, 6, [&](const Variable& x) {
    return cast(tags.crf.decode(tags(x), greater(x, int64_t{10})), float32);
  }));
  all.push_back(
      of_numbers("transfer_learning", Sequential{transfer_learning::make_body(), Dense(64, 10)}, {1, 8, 8}));
  const vae::Vae autoencoder;
  const Variable pixels = batch_of({vae::kPixels});
  all.push_back({"vae", pixels,
                 sigmoid(autoencoder.decoder(autoencoder.to_mean(autoencoder.encoder(pixels)))),
                 uniform({3, vae::kPixels}).value()});
  return all;
}

}  // namespace espalier::testing
