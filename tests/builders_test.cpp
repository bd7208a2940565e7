// Recurrent builders: layers over whole sequences as the reference, branches, deferred batches, errors.
#include "espalier/nn/builders.h"

#include <boost/test/unit_test.hpp>

#include "deferred_trees.h"
#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/core/subscript.h"
#include "espalier/nn/module_list.h"
#include "espalier/nn/recurrent.h"
#include "espalier/nn/serialize.h"
#include "layer_figures.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t in = 3, hidden = 4, steps = 5, rows = 2;

Variable step_of(const Variable& x, int64_t t) { return esp::squeeze(esp::slice(x, 0, t, t + 1), {0}); }

/// "1.weight_ih" has the name weight_ih_l1 in a layer over whole sequences.
std::string layer_name(const std::string& path) { return path.substr(2) + "_l" + path.substr(0, 1); }

/// The states of all layers, one below the other, as a layer over whole sequences has them.
Variable stacked(const std::vector<Variable>& states) { return esp::stack(states); }
Variable stacked(const std::vector<LSTMState>& states) {
  std::vector<Variable> h, c;
  for (const LSTMState& state : states) h.push_back(state.h), c.push_back(state.c);
  return esp::concat({esp::stack(h), esp::stack(c)}, -1);
}
Variable stacked(const Variable& state) { return state; }
Variable stacked(const LSTMState& state) { return esp::concat({state.h, state.c}, -1); }

/// Outputs, last states and gradients of both, from the states 0 or from given ones.
template <class Builder, class Layer, class First>
void check_equal(Builder builder, const Layer& layer, const First& first) {
  give_figure_values(builder);
  for (const auto& [path, p] : builder.parameters())
    esp::set_value(layer.parameter(layer_name(path)), p.value());
  const Variable x = esp::variable(numbers({steps, rows, in}, -1, 1));
  for (const bool given : {false, true}) {
    using State = Builder::State;
    std::vector<State> states;
    for (int64_t l = 0; given && l < 2; ++l) {
      if constexpr (std::is_same_v<State, LSTMState>)
        states.push_back({step_of(first.h, l), step_of(first.c, l)});
      else
        states.push_back(step_of(first, l));
    }
    builder.start(states);
    std::vector<Variable> list;
    for (int64_t t = 0; t < steps; ++t) list.push_back(builder.add_input(step_of(x, t)));
    const auto whole = given ? layer(x, first) : layer(x);
    const Variable outputs = esp::stack(list), last = stacked(builder.states());
    BOOST_TEST(difference(outputs.value(), whole.outputs.value()) < 1e-14);
    BOOST_TEST(difference(last.value(), stacked(whole.state).value()) < 1e-14);
    BOOST_TEST(difference(builder.back().value(), list.back().value()) == 0);
    const Variable loss = weighed(outputs) + weighed(last),
                   expected = weighed(whole.outputs) + weighed(stacked(whole.state));
    BOOST_TEST(difference(loss.gradient(x).value(), expected.gradient(x).value()) < 1e-13);
    for (const auto& [path, p] : builder.parameters())
      BOOST_TEST(difference(loss.gradient(p).value(),
                            expected.gradient(layer.parameter(layer_name(path))).value()) < 1e-13,
                 path);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(builders)

BOOST_AUTO_TEST_CASE(steps_are_those_of_layers_over_whole_sequences) {
  const Variable h = numbers({2, rows, hidden}, -1, 1, 1), c = numbers({2, rows, hidden}, -1, 1, 2);
  const auto dtype = esp::float64;
  check_equal(
      RnnBuilder(in, hidden, {.layers = 2, .cell = {.nonlinearity = Nonlinearity::relu, .dtype = dtype}}),
      Rnn(in, hidden, {.nonlinearity = Nonlinearity::relu, .layers = 2, .dtype = dtype}), h);
  check_equal(GruBuilder(in, hidden, {.layers = 2, .cell = {.dtype = dtype}}),
              Gru(in, hidden, {.layers = 2, .dtype = dtype}), h);
  check_equal(LstmBuilder(in, hidden, {.layers = 2, .cell = {.dtype = dtype}}),
              Lstm(in, hidden, {.layers = 2, .dtype = dtype}), LSTMState{h, c});
  const Variable narrow = esp::slice(h, 2, 0, 2);
  check_equal(
      LstmBuilder(in, hidden, {.layers = 2, .cell = {.projection = 2, .peepholes = true, .dtype = dtype}}),
      Lstm(in, hidden, {.layers = 2, .projection = 2, .peepholes = true, .dtype = dtype}),
      LSTMState{narrow, c});
}

BOOST_AUTO_TEST_CASE(a_step_may_begin_at_any_state) {
  const Variable x = numbers({3, 1, in}, -1, 1).to(esp::float32);
  GruBuilder rnn(hidden, {.layers = 2});
  const auto along = [&](const std::vector<int64_t>& inputs) {
    GruBuilder alone = rnn;  // the cells are shared, the sequence is not
    alone.start();
    for (const int64_t t : inputs) alone.add_input(x[t]);
    return alone.back().value();
  };
  rnn.start();
  const StatePointer first = rnn.state();
  rnn.add_input(x[0]);
  const StatePointer zero = rnn.state();
  rnn.add_input(x[1]);
  BOOST_TEST(difference(rnn.add_input(zero, x[2]).value(), along({0, 2})) == 0);
  BOOST_TEST(difference(rnn.add_input(x[1]).value(), along({0, 2, 1})) == 0);
  rnn.rewind();
  BOOST_TEST(difference(rnn.back().value(), along({0, 2})) == 0);
  rnn.rewind();
  BOOST_TEST((rnn.state() == zero));
  BOOST_TEST(difference(rnn.add_input(first, x[2]).value(), along({2})) == 0);
  // The states of other rows, as a beam that is ordered anew.
  const auto at_zero = rnn.states(zero);
  rnn.set_state({esp::concat({at_zero[0], at_zero[0]}, 0), esp::concat({at_zero[1], at_zero[1]}, 0)});
  BOOST_TEST(difference(rnn.back()[esp::range(0, 1)].value(), along({0})) == 0);
  const Variable both = rnn.add_input(esp::concat({x[1], x[2]}, 0));
  BOOST_TEST(difference(both[esp::range(0, 1)].value(), along({0, 1})) < 1e-6);
  BOOST_TEST(difference(both[esp::range(1, 2)].value(), along({0, 2})) < 1e-6);
  rnn.rewind(), rnn.rewind();
  BOOST_TEST(difference(rnn.back().value(), along({2})) == 0);
  BOOST_TEST(rnn.states(first).empty());
}

BOOST_AUTO_TEST_CASE(gradients_pass_branches) {
  LstmBuilder rnn(in, 2, {.layers = 2, .cell = {.dtype = esp::float64}});
  give_figure_values(rnn);
  const auto result = esp::check_gradient(
      [&](const std::vector<Variable>& v) {
        rnn.start({{v[3], v[3]}, {v[3], v[3]}});
        rnn.add_input(v[0]);
        const StatePointer fork = rnn.state();
        const Variable left = rnn.add_input(v[1]), right = rnn.add_input(fork, v[2]);
        return left * right + rnn.states()[0].c;
      },
      {numbers({1, in}, -1, 1, 1), numbers({1, in}, -1, 1, 2), numbers({1, in}, -1, 1, 3),
       numbers({1, 2}, -1, 1, 4)},
      {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(sequences_of_any_length_wait_and_are_batched) {
  LstmBuilder rnn(in, hidden, {.layers = 2});
  const auto loss = [&] {
    std::vector<Variable> last;
    for (const int64_t length : {3, 7, 2, 5, 6}) {
      rnn.start();
      for (int64_t t = 0; t < length; ++t)
        rnn.add_input(numbers({1, in}, -1, 1, static_cast<uint64_t>(10 * length + t)).to(esp::float32));
      last.push_back(rnn.back());
    }
    return esp::sum(esp::square(esp::concat(last, 0)));
  };
  check_equal_to_eager(rnn, loss);
  BOOST_TEST(esp::last_evaluation().kernels_run * 2 < esp::last_evaluation().nodes_computed);
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_builders_as_an_eager_loop) {
  const auto two_steps = [](Module& module) -> LayerTraining::Call {
    return [rnn = module.add("rnn", LstmBuilder(3, {.layers = 2}))](const Variable& x) mutable {
      rnn.start();
      rnn.add_input(esp::slice(x, 1, 0, 3));
      return rnn.add_input(esp::slice(x, 1, 3, 6));
    };
  };
  BOOST_TEST(training_differences_of(two_steps, {6}) < 1e-9);
}

BOOST_AUTO_TEST_CASE(dropout_acts_between_layers_in_training_alone) {
  GruBuilder rnn(in, hidden, {.layers = 2, .dropout = 0.9});
  const esp::Tensor x = esp::ones({rows, in});
  const auto states = [&] {
    rnn.start();
    rnn.add_input(x);
    return rnn.states();
  };
  esp::seed(1);
  const auto dropped = states();
  rnn.train(false);
  const auto kept = states();
  BOOST_TEST(difference(dropped[0].value(), kept[0].value()) == 0);
  BOOST_TEST(difference(dropped[1].value(), kept[1].value()) > 1e-3);
  BOOST_TEST(difference(states()[1].value(), kept[1].value()) == 0);
}

BOOST_AUTO_TEST_CASE(builders_in_files_clones_and_lists) {
  const esp::Tensor x = esp::ones({rows, in});
  const auto after_a_step = [&](LstmBuilder rnn) {
    rnn.start();
    return rnn.add_input(x).value();
  };
  const LstmBuilder rnn(in, hidden, {.layers = 2}), loaded(hidden, {.layers = 2});
  const esp::Tensor y = after_a_step(rnn);
  const TemporaryFolder folder;
  save(rnn, folder / "rnn.safetensors");
  load(loaded, folder / "rnn.safetensors");
  BOOST_TEST(difference(after_a_step(loaded), y) == 0);
  LstmBuilder clone = rnn.clone();
  const ModuleList<LstmBuilder> copies = ModuleList<LstmBuilder>{rnn}.clone();
  BOOST_TEST(copies.parameters()[4].first == "0.1.weight_ih");
  esp::set_value(rnn.parameter("1.weight_hh"), esp::zeros({4 * hidden, hidden}));
  esp::set_value(rnn.parameter("0.weight_ih"), esp::zeros({4 * hidden, in}));
  BOOST_TEST(difference(after_a_step(clone), y) == 0);
  BOOST_TEST(difference(after_a_step(copies[0]), y) == 0);
  BOOST_CHECK_THROW(clone.add_input(x), esp::Error);
  // Hooks are those of the cells.
  int calls = 0;
  clone.cells()[1].register_forward_hook([&](const Variable&, const Variable& h) {
    ++calls;
    return esp::zeros_like(h);
  });
  BOOST_TEST(esp::max(esp::abs(after_a_step(clone))).item() == 0);
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(wrong_use_is_refused) {
  GruBuilder rnn(in, hidden, {.layers = 2});
  const auto here = "builders_test.cpp";
  const Variable x = esp::ones({rows, in}), h = esp::ones({rows, hidden});
  BOOST_CHECK_EXCEPTION(rnn.add_input(x), esp::Error, says({"add_input before start", here}));
  BOOST_CHECK_EXCEPTION(rnn.set_state({h, h}), esp::Error, says({"set_state before start", here}));
  BOOST_CHECK_EXCEPTION(rnn.rewind(), esp::Error, says({"rewind before start", here}));
  BOOST_CHECK_EXCEPTION(rnn.state(), esp::Error, says({"state before start", here}));
  BOOST_CHECK_EXCEPTION(rnn.states(), esp::Error, says({"states before start", here}));
  BOOST_CHECK_EXCEPTION(rnn.start({h}), esp::Error, says({"start", "each layer: 2, not 1", here}));
  rnn.start();
  BOOST_CHECK_EXCEPTION(rnn.back(), esp::Error, says({"GruBuilder", "before the first input", here}));
  BOOST_CHECK_EXCEPTION(rnn.rewind(), esp::Error, says({"rewind at the first state", here}));
  BOOST_CHECK_EXCEPTION(rnn.add_input(StatePointer(1), x), esp::IndexError,
                        says({"add_input at state 1", "that has 1", here}));
  BOOST_CHECK_EXCEPTION(rnn.states(StatePointer(-1)), esp::IndexError, says({"states at state -1", here}));
  BOOST_CHECK_EXCEPTION(rnn.add_input(h), esp::ShapeError, says({"GRUCell", "[2, 4]", "[12, 3]", here}));
  BOOST_CHECK_EXCEPTION(rnn.add_input(Variable()), esp::Error, says({"undefined", here}));
  BOOST_CHECK_EXCEPTION(rnn.set_state({h}), esp::Error, says({"set_state", "2, not 1", here}));
  BOOST_CHECK_EXCEPTION(rnn.set_state({h, Variable()}), esp::Error,
                        says({"set_state: the state of layer 1 is an undefined", here}));
  BOOST_CHECK_EXCEPTION(rnn.start({Variable(), h}), esp::Error,
                        says({"start: the state of layer 0 is an undefined", here}));
  LstmBuilder lstm(in, hidden);
  BOOST_CHECK_EXCEPTION(lstm.start({{h, Variable()}}), esp::Error,
                        says({"LstmBuilder: start: the state of layer 0 is an undefined", here}));
  lstm.start({LSTMState()});  // none counts as 0
  lstm.add_input(x);
  // What throws adds no state.
  const StatePointer first = rnn.state();
  rnn.add_input(x);
  BOOST_CHECK_EXCEPTION(rnn.add_input(esp::ones({3, in})), esp::ShapeError, says({"[2, 4]", "[3, 3]", here}));
  BOOST_TEST((rnn.state() == StatePointer(1)));
  rnn.rewind();
  BOOST_TEST((rnn.state() == first));
  rnn.start({h, esp::ones({rows, 3})});
  BOOST_CHECK_EXCEPTION(rnn.add_input(x), esp::ShapeError, says({"GRUCell", "[n, 4]", here}));
  BOOST_CHECK_EXCEPTION(RnnBuilder(4, {.layers = 0}), esp::Error, says({"RnnBuilder: 0 layers", here}));
  BOOST_CHECK_EXCEPTION(RnnBuilder(4, {.dropout = 1}), esp::Error, says({"dropout", "1", here}));
  BOOST_CHECK_EXCEPTION(RnnBuilder(3, 4, {.weight_noise = -1}), esp::Error,
                        says({"RnnBuilder", "noise", "-1", here}));
  BOOST_CHECK_EXCEPTION(GruBuilder(4, {.weight_noise = 1}), esp::Error,
                        says({"GruBuilder(in, hidden", here}));
  BOOST_CHECK_EXCEPTION(LstmBuilder(0), esp::Error, says({"LSTMCell", "0", here}));
  BOOST_CHECK_EXCEPTION(LstmBuilder(0, 3), esp::Error, says({"input width", "0", here}));
}

BOOST_AUTO_TEST_CASE(weights_have_noise_in_training) {
  esp::seed(11);
  LstmBuilder rnn(in, hidden, {.layers = 2, .cell = {.dtype = esp::float64}, .weight_noise = 0.1});
  const Variable x = esp::ones({rows, in}, esp::float64);
  const auto output = [&] {
    rnn.start();
    rnn.add_input(x);
    return rnn.add_input(x);
  };
  BOOST_TEST(difference(output().value(), output().value()) > 1e-4);
  // All steps of a sequence have the same weights, which are the parameters and something.
  rnn.start();
  const Variable once = rnn.add_input(rnn.state(), x), again = rnn.add_input(StatePointer(), x);
  BOOST_TEST(difference(once.value(), again.value()) == 0);
  const Variable second = rnn.add_input(x);
  for (const auto& [path, p] : rnn.parameters())
    BOOST_TEST(esp::sum(esp::abs(second.gradient(p))).item() > 0, path);
  LstmBuilder clone = rnn.clone();
  clone.start();
  BOOST_TEST(difference(clone.add_input(x).value(), again.value()) > 1e-4);
  rnn.train(false);
  BOOST_TEST(difference(output().value(), output().value()) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
