// recompute(f, x): gradients of values that are not kept.
#include "espalier/core/recompute.h"

#include <boost/test/unit_test.hpp>

#include <functional>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "training_runs.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;
using esp::Tensor;
using esp::Variable;

namespace {

using Block = std::function<Variable(const Variable&)>;
Variable call(bool again, const Block& f, const Variable& x) { return again ? esp::recompute(f, x) : f(x); }

/// Gradients of x, w and of the gradient's square, with and without.
void check_gradients(const std::function<Variable(const Variable&, const Variable&)>& f) {
  std::vector<std::vector<esp::Tensor>> found;
  for (const bool again : {false, true}) {
    esp::seed(4);
    const Variable x = esp::variable(numbers({3, 4}, 0.2, 1, 1)),
                   w = esp::variable(numbers({3, 4}, 0.2, 1, 2));
    const Variable y = call(
        again, [&](const Variable& v) { return f(v, w); }, x * 2.0);
    const Variable loss = esp::sum(y * esp::sin(y));
    const Variable gx = loss.gradient(x), gw = loss.gradient(w);
    const Variable second = esp::sum(esp::square(gx)) + esp::sum(esp::square(gw));
    found.push_back(
        {y.value(), gx.value(), gw.value(), second.gradient(x).value(), second.gradient(w).value()});
  }
  for (size_t i = 0; i < found[0].size(); ++i) BOOST_TEST(difference(found[0][i], found[1][i]) < 1e-12, i);
}

/// Losses, parameters and buffers of some steps, eagerly or by a plan.
std::vector<double> train(bool again, bool eagerly) {
  esp::seed(3);
  const esp::data::Distributor feed({numbers({12, 6}, -1, 1, 4).to(esp::float32)}, {.batch_size = 4});
  Variable h = feed.get_output_graphs()[0];
  std::vector<Sequential> nets;
  for (int i = 0; i < 3; ++i) {
    nets.emplace_back(Dense(6), BatchNorm(), Relu(), Dropout(0.3), Dense(6), Tanh());
    h = call(
        again, [&](const Variable& x) { return nets.back()(x) + x; }, h);
  }
  const Variable loss = esp::mean(esp::square(h - 0.3));
  const esp::optim::Sgd sgd(0.1);
  std::vector<double> seen;
  if (eagerly) {
    for (int step = 0; step < 3; ++step) {
      seen.push_back(loss.forward().item());
      loss.update(sgd);
    }
  } else {
    const esp::Executor executor = loss.get_executor({.optimizer = sgd});
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { seen.push_back(info.loss); });
    (void)executor.execute({.epochs = 1, .progress = false});
  }
  for (const Sequential& net : nets)
    for (const auto& list : {net.parameters(), net.buffers()})
      for (const auto& [path, leaf] : list)
        seen.push_back(esp::sum(Variable(leaf.value().to(esp::float64))).item());
  return seen;
}

/// Of a block for images: y, the gradients of its input and its parameters, and its buffers.
std::vector<Tensor> convolve(bool again, bool frozen) {
  esp::seed(3);
  const Sequential block(Conv2d(4, 4, {.kernel = 3, .padding = 1, .dtype = esp::float64}),
                         BatchNorm(4, {.dtype = esp::float64}), Relu());
  const Tensor in = numbers({3, 4, 5, 6}), factor = numbers({3, 4, 5, 6}, 0.5, 1.5, 1);
  const Variable x = esp::parameter(in),
                 fed = frozen ? esp::placeholder("x", in.shape(), esp::float64) : Variable(factor);
  const Variable y = call(
      again, [&](const Variable& v) { return block(v); }, x * fed);
  const Variable loss = esp::sum(y * esp::sin(y));
  std::vector<Variable> all{esp::reshape(y, {-1}), esp::reshape(loss.gradient(x), {-1})};
  for (const auto& [path, p] : block.parameters()) all.push_back(esp::reshape(loss.gradient(p), {-1}));
  const Variable joined = esp::concat(all);
  std::vector<Tensor> seen{frozen
                               ? joined.get_executor({.optimizer = esp::optim::Sgd(0.0)}).run({{"x", factor}})
                               : joined.value()};
  for (const auto& [path, buffer] : block.buffers()) seen.push_back(buffer.value().to(esp::float64));
  return seen;
}

int64_t arena(bool again) {
  esp::seed(3);
  const esp::data::Distributor feed({esp::ones({64, 32})}, {.batch_size = 64});
  Variable h = feed.get_output_graphs()[0];
  for (int i = 0; i < 8; ++i) {
    const Sequential net(Dense(32), Tanh(), Dense(32), Sigmoid(), Dense(32), Tanh(), Dense(32), Sigmoid());
    h = call(
        again, [&](const Variable& x) { return net(x); }, h);
  }
  return esp::mean(esp::square(h)).get_executor({.optimizer = esp::optim::Sgd(0.1)}).plan().arena_bytes();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recompute_blocks)

BOOST_AUTO_TEST_CASE(gradients_are_those_of_the_function) {
  check_gradients([](const Variable& x, const Variable& w) { return esp::tanh(x * w) * esp::exp(w); });
  check_gradients([](const Variable& x, const Variable& w) { return x + w; });
  check_gradients([](const Variable& x, const Variable& w) { return esp::dropout(x * w, 0.5) * x; });
  check_gradients([](const Variable& x, const Variable& w) {
    return esp::sin(esp::recompute([&](const Variable& v) { return esp::tanh(v * w) * v; }, x * w) + x);
  });
  const Variable captured = esp::variable(numbers({3, 4}, 0.2, 1, 3));
  check_gradients([&](const Variable& x, const Variable& w) { return x * esp::sin(captured * w) + x; });
}

BOOST_AUTO_TEST_CASE(a_variable_made_before_is_captured) {
  for (const bool again : {false, true}) {
    const Variable x = esp::variable(numbers({5}, 0, 1, 1)), h = esp::exp(x);
    const Variable y = call(
        again, [&](const Variable& v) { return esp::sin(v * h) * h; }, x);
    const esp::Tensor found = esp::sum(y).gradient(x).value();
    const Variable e = esp::exp(x), c = esp::cos(x * e), expected = c * (e + x * e) * e + esp::sin(x * e) * e;
    BOOST_TEST(difference(found, expected.value()) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(all_outputs_of_a_node_are_captured) {
  const LSTMCell cell(3, {.dtype = esp::float64});
  const Variable x = esp::variable(numbers({2, 4}, -1, 1, 1));
  const LSTMState state = cell(x);
  const Block f = [&](const Variable& v) { return esp::sin(esp::sum(v) * state.c) * state.h; };
  for (const Variable& in : {x, state.h}) {
    const Tensor kept = esp::sum(f(in)).gradient(x).value();
    BOOST_TEST(difference(esp::sum(esp::recompute(f, in)).gradient(x).value(), kept) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(training_is_the_same) {
  for (const bool eagerly : {true, false}) {
    const std::vector<double> kept = train(false, eagerly), again = train(true, eagerly);
    BOOST_REQUIRE(kept.size() == again.size());
    for (size_t i = 0; i < kept.size(); ++i) BOOST_TEST(std::abs(kept[i] - again[i]) < 1e-4, i << eagerly);
  }
}

BOOST_AUTO_TEST_CASE(convolutions_and_normalizations_are_computed_again) {
  const std::vector<Tensor> expected = convolve(false, false);
  BOOST_REQUIRE(expected.size() == 4u);
  for (const bool again : {false, true})
    for (const bool frozen : {false, true}) {
      const std::vector<Tensor> found = convolve(again, frozen);
      for (size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(difference(found[i], expected[i]) < 1e-11, i << " " << again << frozen);
    }
}

BOOST_AUTO_TEST_CASE(plans_need_less_memory) {
  const int64_t kept = arena(false), again = arena(true);
  BOOST_TEST(again < 0.6 * static_cast<double>(kept), again << " beside " << kept);
}

BOOST_AUTO_TEST_CASE(eager_code_needs_less_memory) {
  std::vector<int64_t> kept, peaks;
  for (const bool again : {false, true}) {
    esp::seed(3);
    Variable h = esp::Tensor(esp::ones({1024, 64}));
    std::vector<Sequential> nets;
    const int64_t before = esp::memory_stats().live_bytes;
    for (int i = 0; i < 16; ++i) {
      nets.emplace_back(Dense(64), Tanh(), Dense(64), Sigmoid(), Dense(64), Tanh());
      h = call(
          again, [&](const Variable& x) { return nets.back()(x); }, h);
    }
    const Variable loss = esp::mean(esp::square(h));
    kept.push_back(esp::memory_stats().live_bytes - before);
    h = Variable();
    esp::reset_peak_memory();
    loss.backward();
    peaks.push_back(esp::memory_stats().peak_bytes - before);
  }
  BOOST_TEST(kept[1] < 0.6 * static_cast<double>(kept[0]), kept[1] << " beside " << kept[0]);
  // What blocks keep in the forward pass, and while a gradient is computed the values of one block.
  BOOST_TEST(peaks[1] < 0.7 * static_cast<double>(peaks[0]), peaks[1] << " beside " << peaks[0]);
}

BOOST_AUTO_TEST_CASE(mistakes) {
  const auto f = [](const Variable& x) { return esp::sin(x); };
  BOOST_CHECK_EXCEPTION(esp::recompute(f, Variable()), esp::Error, says({"recompute: x is", here()}));
  BOOST_CHECK_EXCEPTION(esp::recompute([](const Variable&) { return Variable(); }, esp::ones({2})),
                        esp::Error, says({"recompute: f has given", here()}));
  const esp::NoGrad off;
  const Variable x = esp::variable(esp::ones({2}));
  BOOST_TEST(difference(esp::recompute(f, x).value(), esp::sin(x).value()) == 0);
}

BOOST_AUTO_TEST_CASE(what_passes_no_gradient_in_a_block_passes_none_again) {
  const Block with_scope = [](const Variable& v) {
    Variable factor;
    {
      const esp::NoGrad none;
      factor = esp::exp(v);
    }
    return v * factor;
  };
  const Block with_call = [](const Variable& v) { return v * esp::stop_gradient(esp::exp(v)); };
  const Tensor in = numbers({3, 4});
  for (const Block& block : {with_scope, with_call}) {
    const Variable x = esp::variable(in);
    BOOST_TEST(difference(esp::sum(esp::recompute(block, x)).gradient(x).value(), esp::exp(in).value()) <
               1e-14);
    const Variable fed = esp::placeholder("x", {3, 4}, esp::float64),
                   w = esp::parameter(esp::ones({3, 4}, esp::float64));
    const Variable gradient = esp::sum(esp::recompute(block, fed * w)).gradient(w);
    BOOST_TEST(difference(gradient.get_executor().run({{"x", in}}), (in * esp::exp(in)).value()) < 1e-14);
  }
}

BOOST_AUTO_TEST_SUITE_END()
