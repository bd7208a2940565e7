// Options of LSTMs: against the equations in double, the layer against its cell, derivatives, plans, errors.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/check_gradient.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/recurrent.h"
#include "layer_figures.h"
#include "layer_training.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t in = 3, hidden = 4;

/// The combination with this number of 32.
LSTMCellOptions cell_options(int k) {
  return {.bias = (k & 16) == 0,
          .projection = k & 1 ? 2 : 0,
          .peepholes = (k & 2) != 0,
          .coupled = (k & 4) != 0,
          .layer_norm = (k & 8) != 0,
          .dtype = esp::float64};
}
LstmOptions layer_options(int k, int64_t layers = 1, bool bidirectional = false) {
  const LSTMCellOptions o = cell_options(k);
  return {.layers = layers,
          .bidirectional = bidirectional,
          .bias = o.bias,
          .projection = o.projection,
          .peepholes = o.peepholes,
          .coupled = o.coupled,
          .layer_norm = o.layer_norm,
          .dtype = esp::float64};
}

using Row = std::vector<double>;

Row values(const LSTMCell& cell, const std::string& name) {
  const esp::Tensor value = cell.parameter(name).value().contiguous_copy();
  const auto all = value.span<double>();
  return {all.begin(), all.end()};
}
Row product(const Row& weight, const Row& x) {
  Row y(weight.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
  return y;
}
Row normalized(const Row& x, const Row& gain) {
  double mean = 0, square = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] - mean) / std::sqrt(square + 1e-5) * gain[i];
  return y;
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// One step of one row by the equations.
void reference_step(const LSTMCell& cell, const LSTMCellOptions& o, const Row& x, Row& h, Row& c) {
  Row a = product(values(cell, "weight_ih"), x), b = product(values(cell, "weight_hh"), h);
  if (o.layer_norm) a = normalized(a, values(cell, "norm_ih")), b = normalized(b, values(cell, "norm_hh"));
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] += b[i];
    if (o.bias) a[i] += values(cell, "bias_ih")[i] + values(cell, "bias_hh")[i];
  }
  const Row peephole = o.peepholes ? values(cell, "weight_peephole") : Row(3 * hidden, 0.0);
  const size_t n = c.size(), last = o.coupled ? 2 : 3;
  Row shown(n), next(n);
  for (size_t j = 0; j < n; ++j) {
    const double i = sigmoid(a[j] + peephole[j] * c[j]);
    const double f = o.coupled ? 1 - i : sigmoid(a[n + j] + peephole[n + j] * c[j]);
    next[j] = f * c[j] + i * std::tanh(a[(last - 1) * n + j]);
  }
  Row inner = o.layer_norm ? normalized(next, values(cell, "norm_c")) : next;
  for (size_t j = 0; j < n; ++j) {
    if (o.layer_norm && o.bias) inner[j] += values(cell, "bias_c")[j];
    shown[j] = sigmoid(a[last * n + j] + peephole[(last - 1) * n + j] * next[j]) * std::tanh(inner[j]);
  }
  c = next;
  h = o.projection ? product(values(cell, "weight_hr"), shown) : shown;
}

/// The same layer, its steps written by a cell with its parameters.
Variable by_cell(const Lstm& net, const LSTMCell& cell, const std::string& suffix, const Variable& x,
                 bool reverse) {
  for (const auto& [name, p] : cell.parameters()) esp::set_value(p, net.parameter(name + suffix).value());
  std::vector<Variable> steps(static_cast<size_t>(x.shape()[0]));
  LSTMState state;
  for (size_t k = 0; k < steps.size(); ++k) {
    const auto t = static_cast<int64_t>(reverse ? steps.size() - 1 - k : k);
    state = cell(squeeze(slice(x, 0, t, t + 1), 0), state);
    steps[static_cast<size_t>(t)] = state.h;
  }
  return stack(steps, 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lstm_options)

BOOST_AUTO_TEST_CASE(cells_follow_the_equations) {
  for (int k = 0; k < 32; ++k) {
    const LSTMCellOptions o = cell_options(k);
    const LSTMCell cell(in, hidden, o);
    give_figure_values(cell);
    const esp::Tensor x = numbers({2, 2, in}, -1, 1);
    LSTMState state;
    Row h(static_cast<size_t>(o.projection ? o.projection : hidden)), c(hidden);
    for (int64_t t = 0; t < 2; ++t) {
      state = cell(squeeze(slice(x, 0, t, t + 1), 0), state);
      Row row;
      for (int64_t j = 0; j < in; ++j) row.push_back(x.at<double>({t, 1, j}));
      reference_step(cell, o, row, h, c);
    }
    const esp::Tensor found_h = state.h.value(), found_c = state.c.value();
    BOOST_TEST_REQUIRE(found_h.shape()[1] == static_cast<int64_t>(h.size()));
    for (size_t j = 0; j < h.size(); ++j)
      BOOST_TEST(std::abs(found_h.at<double>({1, static_cast<int64_t>(j)}) - h[j]) < 1e-14, k);
    for (size_t j = 0; j < c.size(); ++j)
      BOOST_TEST(std::abs(found_c.at<double>({1, static_cast<int64_t>(j)}) - c[j]) < 1e-14, k);
  }
}

BOOST_AUTO_TEST_CASE(layers_are_loops_over_cells) {
  for (const int k : {1, 2, 4, 8, 15, 31}) {
    const Lstm net(in, hidden, layer_options(k, 1, true));
    const LSTMCell cell(in, hidden, cell_options(k));
    const Variable x = numbers({4, 2, in}, -1, 1);
    const auto [outputs, state] = net(x);
    const esp::Tensor forwards = by_cell(net, cell, "_l0", x, false).value();
    const esp::Tensor backwards = by_cell(net, cell, "_l0_reverse", x, true).value();
    BOOST_TEST(difference(outputs.value(), esp::concat({forwards, backwards}, 2).value()) < 1e-14, k);
    BOOST_TEST(difference(slice(state.h, 0, 0, 1).value(), slice(Variable(forwards), 0, 3, 4).value()) <
               1e-14);
    BOOST_TEST(difference(slice(state.h, 0, 1, 2).value(), slice(Variable(backwards), 0, 0, 1).value()) <
               1e-14);
  }
}

BOOST_AUTO_TEST_CASE(packed_sequences_are_as_each_alone) {
  for (const int k : {1, 6, 8}) {
    const Lstm net(in, hidden, layer_options(k, 2, true));
    const std::vector<int64_t> lengths{2, 4, 1};
    const Variable x = numbers({4, 3, in}, -1, 1);
    const auto packed = net(esp::data::pack_padded(x, lengths));
    const std::vector<Variable> sequences = packed.outputs.unpack();
    for (int64_t b = 0; b < 3; ++b) {
      const auto i = static_cast<size_t>(b);
      const auto alone = net(slice(slice(x, 0, 0, lengths[i]), 1, b, b + 1));
      BOOST_TEST(difference(sequences[i].value(), squeeze(alone.outputs, 1).value()) < 1e-14);
      BOOST_TEST(difference(slice(packed.state.c, 1, b, b + 1).value(), alone.state.c.value()) < 1e-14);
    }
  }
}

BOOST_AUTO_TEST_CASE(first_and_second_derivatives) {
  for (const int k : {1, 6, 15}) {
    const LSTMCell cell(in, hidden, cell_options(k));
    give_figure_values(cell);
    const int64_t width = cell_options(k).projection ? 2 : hidden;
    const auto of_cell = esp::check_gradient(
        [&](const Variables& v) {
          const auto [h, c] = cell(v[0], {v[1], v[2]});
          return esp::concat({h, c}, 1);
        },
        {numbers({2, in}, -1, 1), numbers({2, width}, -1, 1, 1), numbers({2, hidden}, -1, 1, 2)},
        {.order = 2});
    BOOST_TEST(of_cell.passed, of_cell.message);
  }
  const Lstm net(in, hidden, layer_options(15, 1, true));
  const LSTMState state{numbers({2, 2, 2}, -1, 1, 1), numbers({2, 2, hidden}, -1, 1, 2)};
  for (const bool packed : {false, true}) {
    const auto of_layer = esp::check_gradient(
        [&](const Variables& v) {
          return packed ? net(esp::data::pack_padded(v[0], {2, 3}), state).outputs.data
                        : net(v[0], state).outputs;
        },
        {numbers({3, 2, in}, -1, 1)}, {.order = 2, .tolerance = 2e-6});
    BOOST_TEST(of_layer.passed, of_layer.message);
  }
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_alike) {
  for (const int k : {6, 15}) {
    const double largest = training_differences_of(
        [k](Module& module) -> LayerTraining::Call {
          LstmOptions options = layer_options(k, 1, true);
          options.batch_first = true;
          const Lstm net = module.add("net", Lstm(hidden, options));
          return [net](const Variable& x) { return net(x).outputs; };
        },
        {3, 2});
    BOOST_TEST(largest < 1e-9, k);
  }
}

BOOST_AUTO_TEST_CASE(steps_may_be_an_open_axis) {
  for (const int k : {2, 15}) {
    const Variable x = esp::placeholder("x", {-1, -1, in}, esp::float64);
    const Lstm net(in, hidden, layer_options(k, 2, true));
    const auto value = [&](const Variable& v) {
      const auto [outputs, state] = net(v);
      return esp::concat({outputs, sum(state.h) * sum(state.c) * ones_like(outputs)}, 2);
    };
    const esp::Executor plan = value(x).get_executor({.mode = esp::Mode::inference});
    for (const esp::Shape& shape : {esp::Shape{4, 2, in}, esp::Shape{1, 3, in}}) {
      const esp::Tensor input = numbers(shape, -1, 1);
      BOOST_TEST(difference(plan.run({{"x", input}}), value(input).value()) < 1e-13);
    }
    const Lstm own = net.clone();
    const esp::Executor trained =
        mean(square(net(x).outputs)).get_executor({.optimizer = esp::optim::Sgd(0.1)});
    for (const esp::Shape& shape : {esp::Shape{4, 2, in}, esp::Shape{3, 3, in}}) {
      const esp::Tensor input = numbers(shape, -1, 1);
      Variable loss = mean(square(own(input).outputs));
      loss.backward().update(esp::optim::Sgd(0.1));
      (void)trained.run({{"x", input}});
    }
    for (const auto& [path, p] : own.parameters())
      BOOST_TEST(difference(net.parameter(path).value(), p.value()) < 1e-13, path);
  }
}

BOOST_AUTO_TEST_CASE(deferred_nodes_compute_the_same) {
  const Lstm net(in, hidden, layer_options(15, 1, true));
  const std::vector<int64_t> lengths{3, 1, 2, 3};
  const auto loss = [&] {
    Variable sum;
    for (const int64_t steps : lengths) {
      const Variable each = esp::sum(square(net(numbers({steps, 1, in}, -1, 1, steps)).outputs));
      sum = sum.defined() ? sum + each : each;
    }
    return std::pair{sum.value(), sum.gradient(net.parameter("weight_hh_l0")).value()};
  };
  const auto eager = loss();
  const esp::Deferred waits;
  const auto deferred = loss();
  BOOST_TEST(difference(eager.first, deferred.first) < 1e-13);
  BOOST_TEST(difference(eager.second, deferred.second) < 1e-13);
}

BOOST_AUTO_TEST_CASE(names_and_shapes_of_parameters) {
  const Lstm net(in, hidden, layer_options(15, 2));
  std::vector<std::string> names;
  for (const auto& [path, p] : net.parameters()) names.push_back(path);
  names.resize(9);
  BOOST_TEST(names == (std::vector<std::string>{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                                "weight_hr_l0", "weight_peephole_l0", "norm_ih_l0",
                                                "norm_hh_l0", "norm_c_l0"}));
  BOOST_TEST(net.parameter("weight_ih_l1").shape() == esp::Shape({12, 2}));
  BOOST_TEST(net.parameter("weight_hh_l0").shape() == esp::Shape({12, 2}));
  BOOST_TEST(net.parameter("weight_hr_l0").shape() == esp::Shape({2, 4}));
  BOOST_TEST(net.parameter("weight_peephole_l0").shape() == esp::Shape({8}));
  BOOST_TEST(net.parameter("bias_c_l1").shape() == esp::Shape({4}));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  for (const int64_t projection : {-1, 4, 5})
    BOOST_CHECK_EXCEPTION(Lstm(hidden, {.projection = projection}), esp::Error,
                          says({"Lstm", ".projection", std::to_string(projection), "4", "options_test.cpp"}));
  BOOST_CHECK_EXCEPTION(LSTMCell(in, hidden, {.projection = 9}), esp::Error,
                        says({"LSTMCell", ".projection", "9", "options_test.cpp"}));
  const Lstm net(in, hidden, {.projection = 2});
  const Variable x = esp::ones({5, 2, in}), h = esp::ones({1, 2, 2}), c = esp::ones({1, 2, hidden});
  BOOST_TEST(net(x, {h, c}).outputs.shape() == esp::Shape({5, 2, 2}));
  BOOST_CHECK_EXCEPTION(net(x, {c, c}), esp::ShapeError, says({"Lstm", "[1, 2, 4]", "[1, 2, 2]"}));
  BOOST_CHECK_EXCEPTION(net(x, {h, h}), esp::ShapeError, says({"Lstm", "[1, 2, 2]", "[1, 2, 4]"}));
  BOOST_CHECK_EXCEPTION(LSTMCell(in, hidden, {.projection = 2})(esp::ones({2, in}), {c, c}), esp::ShapeError,
                        says({"LSTMCell", "[1, 2, 4]", "[n, 2]"}));
}

BOOST_AUTO_TEST_SUITE_END()
