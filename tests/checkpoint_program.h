// A small training run with everything that a checkpoint must restore, for tests in one process and in
// several.
#pragma once
#include <string>

#include "espalier/core/random.h"
#include "espalier/core/tensor.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/losses.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"

namespace espalier::testing {

inline std::string hexadecimal(const void* from, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(from);
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += {"0123456789abcdef"[at[i] >> 4], "0123456789abcdef"[at[i] & 15]};
  return text;
}
inline std::string bits(double value) { return hexadecimal(&value, sizeof value); }
inline std::string bits(const Tensor& tensor) {
  const Tensor plain = tensor.contiguous_copy();
  return std::string(name(plain.dtype())) + plain.shape().str() + hexadecimal(plain.address(), plain.bytes());
}

/// The contents of a History, without its seconds.
inline std::string bits(const History& history) {
  std::string text;
  for (const EpochRecord& e : history.epochs)
    text += "epoch " + bits(e.loss_sum) + " " + bits(e.loss_mean) + " " + bits(e.validation_loss) + " " +
            std::to_string(e.samples) + "\n";
  return text;
}

/// Shuffled batches of which the last is short, dropout, an optimizer with states, and validation.
struct CheckpointProgram {
  static constexpr int64_t rows = 23, batch = 5, steps = 5;

  nn::Sequential model;
  data::Distributor feed, held_out;
  optim::Optimizer optimizer;
  Variable loss;
  Executor executor;

  static optim::Optimizer optimizer_of(const std::string& name, uint64_t seed) {
    espalier::seed(seed);  // before anything else is constructed
    if (name == "Adam") return optim::Adam(0.01);
    return optim::Sgd({.lr = 0.1, .momentum = 0.9});
  }
  static Tensor numbers_of(uint64_t seed, const Shape& shape) {
    Tensor t(shape);
    fill_uniform(RandomStream{seed, 0}, t.data<float>(), t.elements(), -1, 1);
    return t;
  }
  explicit CheckpointProgram(const std::string& optimizer_name = "Adam", int64_t width = 8,
                             uint64_t seed = 17)
      : CheckpointProgram(optimizer_of(optimizer_name, seed), width) {}

  /// The bits of everything that training changes.
  std::string state() const {
    const Generator& g = generator();
    std::string text = "random";
    for (const uint64_t n : {g.seed, g.next_stream, g.next_parameter_stream}) text += " " + std::to_string(n);
    for (const auto& f : {feed, held_out}) text += "\nepoch " + std::to_string(f.feed()->epoch());
    for (const auto& [path, p] : model.parameters()) {
      text += "\n" + path + " " + bits(p.value());
      for (const auto& [state, leaf] : optimizer.state_of(p)) text += "\n" + state + " " + bits(leaf.value());
    }
    for (const auto& [setting, value] : optimizer.settings()) text += "\n" + setting + " " + bits(value);
    return text + "\n";
  }

 private:
  CheckpointProgram(optim::Optimizer o, int64_t width)
      : model{nn::Dense(width), nn::Tanh(), nn::Dropout(0.3), nn::Dense(2)},
        feed({numbers_of(1, {rows, 4}), numbers_of(2, {rows, 2})},
             {.batch_size = batch, .shuffle = true, .seed = 3}),
        held_out({numbers_of(4, {7, 4}), numbers_of(5, {7, 2})}, {.batch_size = 3, .shuffle = true}),
        optimizer(std::move(o)),
        loss(loss_of(model, feed)),
        executor(
            loss.get_executor({.mode = Mode::training, .optimizer = optimizer, .validation = held_out})) {}
  static Variable loss_of(const nn::Sequential& model, const data::Distributor& feed) {
    const auto [x, y] = feed.get_output_graphs<2>();
    return nn::MeanSquared()(model(x), y);
  }
};

}  // namespace espalier::testing
