// Recurrent cells: PyTorch's figures, plans and replicas as an eager loop, files, errors.
#include "espalier/nn/cells.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/nn/container.h"
#include "espalier/nn/serialize.h"
#include "layer_figures.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

const esp::Shape cell_input{3, 4};
Variable cell_step(int which) { return figure_numbers(cell_input, which ? 41 : 37, which ? 23 : 19, 8); }

/// Two steps over the halves of each row.
template <class Cell>
LayerTraining::Call two_steps(const Cell& cell) {
  return [cell](const Variable& x) {
    const Variable first = esp::slice(x, 1, 0, 3), second = esp::slice(x, 1, 3, 6);
    if constexpr (std::is_same_v<Cell, LSTMCell>) {
      const auto [h, c] = cell(second, cell(first));
      return h * c;
    } else {
      return cell(second, cell(first));
    }
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cells)

BOOST_AUTO_TEST_CASE(cells_compute_what_pytorch_s_compute) {
  const auto check = [](const std::string& name, const auto& cell) {
    give_figure_values(cell);
    const Variable y = cell(cell_step(1), cell(cell_step(0)));
    check_layer_figures(name, {y}, weighed(y), cell);
  };
  check("rnn", RNNCell(4, 2, {.dtype = esp::float64}));
  check("rnn relu", RNNCell(4, 2, {.nonlinearity = Nonlinearity::relu, .dtype = esp::float64}));
  check("rnn without bias", RNNCell(4, 2, {.bias = false, .dtype = esp::float64}));
  check("gru", GRUCell(4, 2, {.dtype = esp::float64}));
  check("gru without bias", GRUCell(4, 2, {.bias = false, .dtype = esp::float64}));
  for (const bool bias : {true, false}) {
    const LSTMCell cell(4, 2, {.bias = bias, .dtype = esp::float64});
    give_figure_values(cell);
    const auto [h, c] = cell(cell_step(1), cell(cell_step(0)));
    const Variable y = esp::concat({h, c}, 1);
    check_layer_figures(bias ? "lstm" : "lstm without bias", {y}, weighed(y), cell);
  }
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_cells_as_an_eager_loop) {
  const auto differences = [](const auto& make) {
    return training_differences_of([&](Module& module) { return two_steps(module.add("cell", make())); },
                                   {6});
  };
  BOOST_TEST(differences([] { return RNNCell(3); }) < 1e-9);
  BOOST_TEST(differences([] { return RNNCell(3, {.nonlinearity = Nonlinearity::relu}); }) < 1e-9);
  BOOST_TEST(differences([] { return LSTMCell(3); }) < 1e-9);
  BOOST_TEST(differences([] { return GRUCell(3, {.bias = false}); }) < 1e-9);
}

BOOST_AUTO_TEST_CASE(cells_start_within_bounds_and_have_pytorch_s_names) {
  const LSTMCell cell(3, 16);
  std::vector<std::string> names;
  for (const auto& [path, p] : cell.parameters()) {
    names.push_back(path);
    for (const float v : p.value().span<float>()) BOOST_TEST(std::abs(v) <= 0.25f);
  }
  BOOST_TEST(names == (std::vector<std::string>{"weight_ih", "weight_hh", "bias_ih", "bias_hh"}));
  BOOST_TEST(cell.parameter("weight_ih").shape() == esp::Shape({64, 3}));
  BOOST_TEST(cell.parameter("weight_hh").shape() == esp::Shape({64, 16}));
  BOOST_TEST(GRUCell(3, 5).parameter("bias_hh").shape() == esp::Shape({15}));
  BOOST_TEST(RNNCell(3, 5, {.bias = false}).parameters().size() == 2u);
}

BOOST_AUTO_TEST_CASE(cells_in_files_clones_and_sequentials) {
  const GRUCell cell(4, 3);
  const TemporaryFolder folder;
  save(cell, folder / "cell.safetensors");
  const GRUCell loaded(3), clone = cell.clone();
  load(loaded, folder / "cell.safetensors");
  const Variable x = cell_step(0).value().to(esp::float32);
  const esp::Tensor y = cell(x, cell(x)).value();
  BOOST_TEST(difference(loaded(x, loaded(x)).value(), y) == 0);
  BOOST_TEST(difference(clone(x, clone(x)).value(), y) == 0);
  esp::set_value(cell.parameter("weight_hh"), esp::zeros({9, 3}));
  BOOST_TEST(difference(clone(x, clone(x)).value(), y) == 0);
  BOOST_TEST(difference(Sequential{clone}(x).value(), clone(x).value()) == 0);
  const LSTMCell memory(4, 3);
  const Layer layer = memory;
  BOOST_TEST(difference(layer(x).value(), memory(x).h.value()) == 0);
}

BOOST_AUTO_TEST_CASE(sixteen_bit_cells) {
  for (const esp::DType half : {esp::float16, esp::bfloat16}) {
    const LSTMCell cell(4, 2, {.dtype = half}), wide(4, 2);
    for (const auto& [path, p] : wide.parameters())
      esp::set_value(p, cell.parameter(path).value().to(esp::float32));
    const esp::Tensor x = cell_step(0).value().to(half);
    const auto narrow = cell(x, cell(x));
    const Variable in = x.to(esp::float32);
    BOOST_TEST(narrow.h.dtype() == half);
    BOOST_TEST(difference(narrow.c.value(), wide(in, wide(in)).c.value()) <
               (half == esp::float16 ? 4e-3 : 3e-2));
  }
}

BOOST_AUTO_TEST_CASE(an_lstm_cell_may_be_given_no_state_in_braces) {
  const LSTMCell cell(4, 3);
  const Variable x = esp::ones({2, 4});
  BOOST_TEST(difference(cell(x, {}).h.value(), cell(x).h.value()) == 0);
  BOOST_TEST(difference(cell(x, {}).c.value(), cell(x).c.value()) == 0);
  const GRUCell gru(4, 3);
  BOOST_TEST(difference(gru(x, Variable()).value(), gru(x).value()) == 0);
}

BOOST_AUTO_TEST_CASE(cells_refuse_what_does_not_fit) {
  const GRUCell cell(4, 3);
  const Variable x = esp::ones({2, 4}), h = esp::ones({2, 3});
  BOOST_CHECK_EXCEPTION(cell(esp::ones({2, 5})), esp::ShapeError,
                        says({"GRUCell", "[2, 5]", "[9, 4]", "cells_test.cpp"}));
  BOOST_CHECK_EXCEPTION(cell(esp::ones({4})), esp::ShapeError, says({"GRUCell", "[4]", "cells_test.cpp"}));
  BOOST_CHECK_EXCEPTION(cell(x, esp::ones({2, 4})), esp::ShapeError,
                        says({"GRUCell", "[2, 4]", "[n, 3]", "cells_test.cpp"}));
  BOOST_CHECK_EXCEPTION(cell(x, esp::ones({3, 3})), esp::ShapeError, says({"[3, 3]", "[2, 4]"}));
  BOOST_CHECK_EXCEPTION(cell(x, esp::ones({2, 3}, esp::float64)), esp::TypeError,
                        says({"float64", "float32"}));
  BOOST_CHECK_EXCEPTION(LSTMCell(4, 3)(x, {h, Variable()}), esp::Error, says({"LSTMCell", "both h and c"}));
  BOOST_CHECK_EXCEPTION(RNNCell(0), esp::Error, says({"RNNCell", "0", "cells_test.cpp"}));
  BOOST_CHECK_EXCEPTION(RNNCell(0, 3), esp::Error, says({"RNNCell", "input width", "0", "cells_test.cpp"}));
  BOOST_CHECK_EXCEPTION(GRUCell(4, 3, {.dtype = esp::int64}), esp::TypeError, says({"GRUCell", "int64"}));
}

BOOST_AUTO_TEST_CASE(a_step_of_a_plain_lstm_is_two_products_and_a_cell) {
  const esp::nn::LSTMCell cell(4, 3, {.dtype = esp::float64});
  const esp::Variable x = numbers({2, 4}), h = numbers({2, 3}), c = numbers({2, 3}, -1, 1, 1);
  const esp::nn::LSTMState eager = cell(x, {h, c});
  const esp::Deferred waits;
  const esp::nn::LSTMState state = cell(x, {h, c});
  BOOST_TEST(difference(state.h.value(), eager.h.value()) < 1e-15);
  BOOST_TEST(difference(state.c.value(), eager.c.value()) < 1e-15);
  BOOST_TEST(esp::last_evaluation().nodes_computed == 3);
}

BOOST_AUTO_TEST_SUITE_END()
