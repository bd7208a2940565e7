// Every optimizer, and the problem whose solution by PyTorch's is in figures/optimizers.h.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adadelta.h"
#include "espalier/optim/adafactor.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/adamax.h"
#include "espalier/optim/asgd.h"
#include "espalier/optim/eg.h"
#include "espalier/optim/lamb.h"
#include "espalier/optim/lars.h"
#include "espalier/optim/lion.h"
#include "espalier/optim/nadam.h"
#include "espalier/optim/radam.h"
#include "espalier/optim/rmsprop.h"
#include "espalier/optim/rprop.h"
#include "espalier/optim/sgd.h"
#include "replica_programs.h"

namespace espalier::testing {

struct OptimizerCase {
  std::string name;
  std::function<optim::Optimizer(bool maximize)> make;
  bool simplex = false;  ///< of parameters that are positive and add up to 1
};

inline const std::vector<OptimizerCase>& optimizer_cases() {
  using namespace optim;
  static const std::vector<OptimizerCase> cases{
      {"Sgd", [](bool up) { return Sgd({.lr = 0.05, .maximize = up}); }},
      {"Sgd, dampening",
       [](bool up) {
         return Sgd({.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01, .maximize = up});
       }},
      {"Sgd, nesterov",
       [](bool up) {
         return Sgd({.lr = 0.02, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01, .maximize = up});
       }},
      {"Sgd, one cycle",
       [](bool up) {
         return Sgd({.lr = 0.02,
                     .momentum = 0.95,
                     .nesterov = true,
                     .schedule = one_cycle({.steps = 1000}),
                     .maximize = up,
                     .momentum_schedule = one_cycle_momentum({.steps = 1000})});
       }},
      {"Adadelta", [](bool up) { return Adadelta({.maximize = up}); }},
      {"Adadelta, options",
       [](bool up) {
         return Adadelta({.lr = 0.5, .rho = 0.95, .epsilon = 1e-5, .weight_decay = 0.01, .maximize = up});
       }},
      {"Adagrad", [](bool up) { return Adagrad({.lr = 0.05, .weight_decay = 0.01, .maximize = up}); }},
      {"Adagrad, accumulator",
       [](bool up) { return Adagrad({.lr = 0.05, .initial_accumulator = 0.1, .maximize = up}); }},
      {"Adam", [](bool up) { return Adam({.lr = 0.01, .weight_decay = 0.01, .maximize = up}); }},
      {"Adam, amsgrad",
       [](bool up) {
         return Adam(
             {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.01, .amsgrad = true, .maximize = up});
       }},
      {"Adam, one cycle",
       [](bool up) {
         return Adam({.lr = 0.01,
                      .beta1 = 0.95,
                      .schedule = one_cycle({.steps = 1000}),
                      .maximize = up,
                      .beta1_schedule = one_cycle_momentum({.steps = 1000})});
       }},
      {"AdamW", [](bool up) { return AdamW({.lr = 0.01, .weight_decay = 0.1, .maximize = up}); }},
      {"AdamW, amsgrad",
       [](bool up) {
         return AdamW(
             {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1, .amsgrad = true, .maximize = up});
       }},
      {"Adamax", [](bool up) { return Adamax({.lr = 0.01, .weight_decay = 0.01, .maximize = up}); }},
      {"NAdam", [](bool up) { return NAdam({.lr = 0.01, .weight_decay = 0.01, .maximize = up}); }},
      {"NAdam, decoupled",
       [](bool up) {
         return NAdam({.lr = 0.01,
                       .momentum_decay = 0.01,
                       .weight_decay = 0.1,
                       .decoupled_weight_decay = true,
                       .maximize = up});
       }},
      {"RAdam", [](bool up) { return RAdam({.lr = 0.01, .weight_decay = 0.01, .maximize = up}); }},
      {"RAdam, decoupled",
       [](bool up) {
         return RAdam({.lr = 0.01,
                       .beta1 = 0.8,
                       .beta2 = 0.95,
                       .weight_decay = 0.1,
                       .decoupled_weight_decay = true,
                       .maximize = up});
       }},
      {"RmsProp", [](bool up) { return RmsProp({.lr = 0.005, .maximize = up}); }},
      {"RmsProp, centered",
       [](bool up) {
         return RmsProp({.lr = 0.002,
                         .alpha = 0.9,
                         .epsilon = 1e-4,
                         .momentum = 0.5,
                         .centered = true,
                         .weight_decay = 0.01,
                         .maximize = up});
       }},
      {"Asgd",
       [](bool up) {
         return Asgd(
             {.lr = 0.05, .lambda = 1e-3, .alpha = 0.6, .t0 = 500, .weight_decay = 0.01, .maximize = up});
       }},
      {"Rprop",
       [](bool up) {
         return Rprop(
             {.lr = 0.01, .shrink = 0.4, .grow = 1.3, .smallest = 1e-5, .largest = 0.1, .maximize = up});
       }},
      {"Adafactor", [](bool up) { return Adafactor({.lr = 0.02, .weight_decay = 0.1, .maximize = up}); }},
      {"Adafactor, options",
       [](bool up) {
         return Adafactor({.lr = 0.05,
                           .beta2_decay = -0.5,
                           .epsilon1 = 1e-4,
                           .epsilon2 = 0.01,
                           .threshold = 1.5,
                           .maximize = up});
       }},
      {"Lion", [](bool up) { return Lion({.lr = 0.003, .weight_decay = 0.1, .maximize = up}); }},
      {"Lamb", [](bool up) { return Lamb({.lr = 0.01, .weight_decay = 0.01, .maximize = up}); }},
      {"Lars", [](bool up) { return Lars({.lr = 2, .trust = 0.01, .weight_decay = 0.01, .maximize = up}); }},
      {"Eg", [](bool up) { return Eg({.lr = 0.1, .momentum = 0.9, .maximize = up}); }, true},
  };
  return cases;
}

/// z = xw + b, with the mean of (z - y)² + z⁴ / 16 for a loss, over batches of two rows.
struct SmallProblem {
  explicit SmallProblem(bool simplex = false, DType dtype = float64, double sign = 1, int64_t batch = 2)
      : feed({rational(24, 37, 19, 8, {8, 3}).to(dtype), rational(16, 23, 17, 16, {8, 2}).to(dtype)},
             {.batch_size = batch}),
        w(parameter(simplex ? tensor({{0.125, 0.125}, {0.125, 0.125}, {0.25, 0.25}}, dtype)
                            : rational(6, 29, 13, 8, {3, 2}).to(dtype),
                    "w")),
        b(parameter(simplex ? tensor({0.25, 0.75}, dtype) : tensor({0.25, -0.5}, dtype), "b")) {
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable z = matmul(x, w) + b;
    loss = mean(square(z - y) + square(square(z)) / 16) * sign;
  }
  /// ((a · i) mod b − ⌊b / 2⌋) / size
  static Tensor rational(int64_t count, int64_t a, int64_t b, double size, const Shape& shape) {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(a * i % b - b / 2) / size);
    return tensor_from(values, shape);
  }
  void train(const optim::Optimizer& rule, int steps) {
    for (int i = 0; i < steps; ++i) {
      if (taken > 0 && taken % 4 == 0) feed.reset();
      loss.forward().update(rule);
      ++taken;
    }
  }
  Trace values() const { return {w.value().clone(), b.value().clone()}; }
  std::vector<double> elements() const {
    std::vector<double> all = Array(w.value()).values;
    const std::vector<double> rest = Array(b.value()).values;
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  std::vector<std::pair<std::string, Variable>> parameters() const { return {{"w", w}, {"b", b}}; }

  data::Distributor feed;
  Variable w, b, loss;
  int taken = 0;
};

}  // namespace espalier::testing
