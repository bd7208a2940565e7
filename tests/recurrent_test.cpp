// Recurrent layers: PyTorch's figures, derivatives, plans and replicas as an eager loop, packed sequences.
#include "espalier/nn/recurrent.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/container.h"
#include "figures/recurrent.h"
#include "layer_figures.h"
#include "layer_training.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct FigureCase {
  bool packed = false, state = true, batch_first = false;
  int64_t states = 1, hidden = 2;
};

/// Outputs, last states and gradients, as figures/recurrent.py lists them.
template <class Net>
void check_figures(const std::string& name, const Net& net, FigureCase c) {
  give_figure_values(net);
  constexpr bool lstm = std::is_same_v<Net, Lstm>;
  const esp::Shape shape = c.batch_first ? esp::Shape{3, 4, 2} : esp::Shape{4, 3, 2};
  const Variable x = esp::variable(figure_numbers(shape, 37, 19, 8));
  const Variable h = esp::variable(figure_numbers({c.states, 3, 2}, 29, 13, 8)),
                 m = esp::variable(figure_numbers({c.states, 3, c.hidden}, 23, 17, 8));
  std::vector<Variable> results, leaves{x};
  if (c.state) leaves.push_back(h);
  if (c.state && lstm) leaves.push_back(m);
  const auto take = [&](const Variable& outputs, const auto& last) {
    results.push_back(outputs);
    if constexpr (lstm) {
      results.push_back(last.h);
      results.push_back(last.c);
    } else {
      results.push_back(last);
    }
  };
  const auto run = [&](const auto& input) {
    if constexpr (lstm)
      return c.state ? net(input, LSTMState{h, m}) : net(input);
    else
      return c.state ? net(input, h) : net(input);
  };
  if (c.packed) {
    const auto made = run(esp::data::pack_padded(x, {2, 4, 1}));
    take(made.outputs.pad().values, made.state);
  } else {
    const auto made = run(x);
    take(made.outputs, made.state);
  }
  Variable loss = weighed(results[0]);
  for (size_t i = 1; i < results.size(); ++i) loss = loss + weighed(results[i]);
  for (const auto& [path, p] : parameters_by_name(net)) leaves.push_back(p);
  std::vector<double> found;
  const auto add = [&](const esp::Tensor& value) {
    const esp::Tensor row_major = value.contiguous_copy();
    for (const double v : row_major.span<double>()) found.push_back(v);
  };
  for (const Variable& v : results) add(v.value());
  for (const Variable& leaf : leaves) add(loss.gradient(leaf).value());
  const std::vector<double>& expected = recurrent_figures.at(name);
  BOOST_TEST_REQUIRE(found.size() == expected.size(), name);
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
  BOOST_TEST(largest < 1e-12, name << " differs by " << largest);
}

template <class Net>
void check_all_figures(const std::string& name) {
  check_figures(name, Net(2, 2, {.dtype = esp::float64}), {});
  check_figures(name + " without state", Net(2, 2, {.dtype = esp::float64}), {.state = false});
  check_figures(name + " without bias", Net(2, 2, {.bias = false, .dtype = esp::float64}), {});
  check_figures(name + " of all",
                Net(2, 2, {.layers = 2, .bidirectional = true, .batch_first = true, .dtype = esp::float64}),
                {.batch_first = true, .states = 4});
  check_figures(name + " packed", Net(2, 2, {.layers = 2, .bidirectional = true, .dtype = esp::float64}),
                {.packed = true, .states = 4});
}

/// All that a layer gives, as one Variable.
template <class Net>
LayerTraining::Call as_function(const Net& net) {
  return [net](const Variable& x) {
    const auto made = net(x);
    if constexpr (std::is_same_v<Net, Lstm>)
      return esp::sum(made.outputs, 0) + esp::mean(made.state.h * made.state.c, {0, 2}, true);
    else
      return esp::sum(made.outputs, 0) + esp::mean(made.state, {0, 2}, true);
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recurrent)

BOOST_AUTO_TEST_CASE(layers_compute_what_pytorch_s_compute) {
  check_all_figures<Rnn>("rnn");
  check_all_figures<Gru>("gru");
  check_all_figures<Lstm>("lstm");
  check_figures("lstm projected", Lstm(2, 3, {.projection = 2, .dtype = esp::float64}), {.hidden = 3});
  check_figures(
      "lstm projected of all",
      Lstm(2, 3,
           {.layers = 2, .bidirectional = true, .batch_first = true, .projection = 2, .dtype = esp::float64}),
      {.batch_first = true, .states = 4, .hidden = 3});
  check_figures("lstm projected packed",
                Lstm(2, 3, {.layers = 2, .bidirectional = true, .projection = 2, .dtype = esp::float64}),
                {.packed = true, .states = 4, .hidden = 3});
  check_figures("rnn relu", Rnn(2, 2, {.nonlinearity = Nonlinearity::relu, .dtype = esp::float64}), {});
}

BOOST_AUTO_TEST_CASE(second_derivatives_pass_layers_and_directions) {
  const Gru net(2, 2, {.layers = 2, .bidirectional = true, .dtype = esp::float64});
  give_figure_values(net);
  for (const bool packed : {false, true}) {
    const auto result = esp::check_gradient(
        [&](const std::vector<Variable>& v) {
          return packed ? net(esp::data::pack_padded(v[0], {2, 3})).outputs.data : net(v[0], v[1]).outputs;
        },
        {numbers({3, 2, 2}, -1, 1), numbers({4, 2, 2}, -1, 1, 1)}, {.order = 2});
    BOOST_TEST(result.passed, result.message);
  }
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_recurrent_layers_as_an_eager_loop) {
  const auto differences = [](const auto& make) {
    return training_differences_of(
        [&](Module& module) {
          const auto call = as_function(module.add("net", make()));
          return [call](const Variable& x) { return call(esp::transpose(x, {1, 0, 2})); };
        },
        {3, 2});
  };
  BOOST_TEST(differences([] { return Rnn(3, {.layers = 2}); }) < 1e-9);
  BOOST_TEST(differences([] { return Lstm(3, {.bidirectional = true}); }) < 1e-9);
  BOOST_TEST(differences([] { return Gru(3, {.bias = false}); }) < 1e-9);
}

BOOST_AUTO_TEST_CASE(steps_and_sequences_may_be_open_axes) {
  const Variable x = esp::placeholder("x", {-1, -1, 3}, esp::float64);
  const Lstm net(3, 4, {.layers = 2, .bidirectional = true, .dtype = esp::float64});
  const auto value = [&](const Variable& input) {
    const auto [outputs, state] = net(input);
    return esp::concat({outputs, esp::sum(state.h * state.c) * esp::ones_like(outputs)}, 2);
  };
  const esp::Executor plan = value(x).get_executor({.mode = esp::Mode::inference});
  for (const esp::Shape& shape : {esp::Shape{4, 2, 3}, esp::Shape{1, 5, 3}, esp::Shape{6, 1, 3}}) {
    const esp::Tensor input = numbers(shape, -1, 1);
    BOOST_TEST(difference(plan.run({{"x", input}}), value(input).value()) < 1e-14);
  }

  const esp::Executor trained =
      esp::mean(esp::square(net(x).outputs)).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  const Lstm own = net.clone();
  for (const esp::Shape& shape : {esp::Shape{4, 2, 3}, esp::Shape{3, 5, 3}, esp::Shape{4, 2, 3}}) {
    const esp::Tensor input = numbers(shape, -1, 1);
    Variable loss = esp::mean(esp::square(own(input).outputs));
    loss.backward().update(esp::optim::Sgd(0.1));
    (void)trained.run({{"x", input}});
  }
  for (const auto& [path, p] : own.parameters())
    BOOST_TEST(difference(net.parameter(path).value(), p.value()) < 1e-13, path);

  const Variable slope = esp::sum(net(x).outputs).gradient(x);
  BOOST_CHECK_EXCEPTION((void)esp::sum(slope * slope).gradient(x), esp::UnsupportedError,
                        says({"number of steps is open"}));
}

BOOST_AUTO_TEST_CASE(plans_of_inference_compute_gradients) {
  const esp::Tensor input = numbers({4, 2, 3}, -1, 1);
  const Variable x = esp::placeholder("x", {4, 2, 3}, esp::float64), own = esp::variable(input);
  const auto check = [&](const auto& net) {
    const auto loss = [&](const Variable& v) { return esp::sum(esp::square(net(v).outputs)); };
    const esp::Executor plan = loss(x).gradient(x).get_executor({.mode = esp::Mode::inference});
    BOOST_TEST(difference(plan.run({{"x", input}}), loss(own).gradient(own).value()) < 1e-13);
  };
  check(Rnn(3, 4, {.dtype = esp::float64}));
  check(Lstm(3, 4, {.bidirectional = true, .dtype = esp::float64}));
  check(Gru(3, 4, {.layers = 2, .dtype = esp::float64}));

  const Variable open = esp::placeholder("x", {-1, 2, 3}, esp::float64);
  const Lstm scanned(3, 4, {.coupled = true, .dtype = esp::float64});
  const auto loss = [&](const Variable& v) { return esp::sum(esp::square(scanned(v).outputs)); };
  const esp::Executor plan = loss(open).gradient(open).get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(difference(plan.run({{"x", input}}), loss(own).gradient(own).value()) < 1e-13);
}

BOOST_AUTO_TEST_CASE(a_thousand_steps_keep_memory_flat) {
  const esp::Tensor x = esp::randn({1000, 2, 8});
  const Lstm net(8, 16);
  const esp::optim::Sgd sgd(0.01);
  const auto train = [&] {
    Variable loss = esp::mean(esp::square(net(x).outputs));
    loss.backward().update(sgd);
    return loss.item();
  };
  const auto peak_of_three = [&] {
    esp::reset_peak_memory();
    for (int k = 0; k < 3; ++k) (void)train();
    return esp::memory_stats().peak_bytes;
  };
  (void)train();
  const int64_t live = esp::memory_stats().live_bytes, peak = peak_of_three();
  for (int k = 0; k < 4; ++k) BOOST_TEST(peak_of_three() == peak);
  BOOST_TEST(esp::memory_stats().live_bytes == live);
}

BOOST_AUTO_TEST_CASE(dropout_acts_between_layers_in_training_alone) {
  const esp::Tensor x = numbers({4, 2, 3}, -1, 1);
  for (const bool variational : {false, true}) {
    Lstm net(3, 64, {.layers = 2, .dropout = 0.5, .variational = variational, .dtype = esp::float64});
    const auto outputs = [&] { return net(x).outputs.value(); };
    BOOST_TEST(difference(outputs(), outputs()) > 1e-3);
    net.train(false);
    BOOST_TEST(difference(outputs(), outputs()) == 0);
  }
  Rnn noisy(3, 4, {.weight_noise = 0.1, .dtype = esp::float64});
  BOOST_TEST(difference(noisy(x).outputs.value(), noisy(x).outputs.value()) > 1e-3);
  noisy.train(false);
  BOOST_TEST(difference(noisy(x).outputs.value(), noisy(x).outputs.value()) == 0);
}

BOOST_AUTO_TEST_CASE(recurrent_layers_have_pytorch_s_names) {
  const Lstm net(3, 5, {.layers = 2, .bidirectional = true});
  std::vector<std::string> names;
  for (const auto& [path, p] : net.parameters()) names.push_back(path);
  BOOST_TEST(names == (std::vector<std::string>{
                          "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
                          "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse", "weight_ih_l1",
                          "weight_hh_l1", "bias_ih_l1", "bias_hh_l1", "weight_ih_l1_reverse",
                          "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse"}));
  BOOST_TEST(net.parameter("weight_ih_l1").shape() == esp::Shape({20, 10}));
  const Layer layer = net;
  const Variable x = esp::ones({2, 1, 3});
  BOOST_TEST(difference(layer(x).value(), net(x).outputs.value()) == 0);
  BOOST_TEST(difference(net.clone()(x).state.c.value(), net(x).state.c.value()) == 0);
}

BOOST_AUTO_TEST_CASE(recurrent_layers_refuse_what_does_not_fit) {
  const Lstm net(4, 3);
  const Variable x = esp::ones({5, 2, 4}), h = esp::ones({1, 2, 3});
  BOOST_CHECK_EXCEPTION(net(esp::ones({5, 4})), esp::ShapeError,
                        says({"Lstm", "[5, 4]", "[steps, batch, width]", "recurrent_test.cpp"}));
  BOOST_CHECK_EXCEPTION(net(esp::ones({0, 2, 4})), esp::ShapeError, says({"Lstm", "[0, 2, 4]"}));
  BOOST_CHECK_EXCEPTION(net(esp::ones({5, 2, 3})), esp::ShapeError, says({"Lstm", "[5, 2, 3]", "[12, 4]"}));
  BOOST_CHECK_EXCEPTION(net(x, {h, esp::ones({1, 3, 3})}), esp::ShapeError,
                        says({"Lstm", "[1, 3, 3]", "[5, 2, 4]", "[1, 2, 3]"}));
  BOOST_CHECK_EXCEPTION(net(x, {h, Variable()}), esp::Error, says({"Lstm", "both h and c"}));
  BOOST_CHECK_EXCEPTION(Gru(4, 3)(x, esp::ones({1, 2, 3}, esp::float64)), esp::TypeError,
                        says({"Gru", "float64", "float32"}));
  BOOST_CHECK_EXCEPTION(Gru(4, 3)(x, Variable()), esp::Error, says({"undefined", "recurrent_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Rnn(0), esp::Error, says({"Rnn", "0", "recurrent_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Rnn(3, {.layers = 0}), esp::Error, says({"Rnn", "0 layers"}));
  BOOST_CHECK_EXCEPTION(Lstm(3, {.dropout = 1}), esp::Error, says({"Lstm", "[0, 1)", "1"}));
  BOOST_CHECK_EXCEPTION(Lstm(3, {.weight_noise = -1}), esp::Error, says({"Lstm", "-1"}));
}

BOOST_AUTO_TEST_CASE(a_sequential_holds_recurrent_layers) {
  const Gru gru(4, 3);
  const Lstm lstm(3, 5);
  const Dense dense(5, 2);
  const Sequential net{gru, lstm, dense};
  const Variable x = esp::randn({6, 2, 4});
  BOOST_TEST(difference(net(x).value(), dense(lstm(gru(x).outputs).outputs).value()) == 0);
  BOOST_TEST(net.parameters().size() == 10);
  BOOST_TEST(difference(net.clone()(x).value(), net(x).value()) == 0);
  const LSTMCell cell(4, 3);
  BOOST_TEST(difference(Sequential{cell}(esp::ones({2, 4})).value(), cell(esp::ones({2, 4})).h.value()) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
