// Deferred evaluation on a GPU: scheduling, batched products and gathered rows there give what eager
// evaluation on the CPU gives.
#include <boost/test/unit_test.hpp>

#include <optional>

#include "espalier/core/deferred/deferred.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/module.h"
#include "espalier/nn/tree_lstm.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "layer_figures.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t words = 7, hidden = 3;

struct TreeNet : esp::nn::Module {
  TreeNet() { give_figure_values(*this); }
  /// The tree of words `first` to `last`, cut after `step` of them.
  esp::nn::LSTMState encode(int64_t first, int64_t last, int64_t step, esp::Device device) {
    if (last - first == 1) {
      const esp::Tensor word = esp::tensor_from(std::vector<int64_t>{first % words}, {1}).to(device);
      return cell(embed(word));
    }
    const int64_t middle = first + std::min(step, last - first - 1);
    return cell(Variable(), {encode(first, middle, step, device), encode(middle, last, step, device)});
  }
  Variable loss(esp::Device device) {
    Variables losses;
    for (const auto& [leaves, step] : {std::pair{1, 1}, {4, 2}, {5, 1}, {4, 1}, {2, 1}}) {
      const esp::nn::LSTMState root = encode(leaves, 2 * leaves, step, device);
      losses.push_back(esp::sum(esp::square(top(root.h))) + esp::mean(root.c));
    }
    return esp::sum(esp::stack(losses));
  }
  esp::nn::Embedding embed = add("embed", esp::nn::Embedding(words, 4, {.dtype = esp::float64}));
  esp::nn::NaryTreeLstm cell = add("cell", esp::nn::NaryTreeLstm(4, hidden, {.dtype = esp::float64}));
  esp::nn::Dense top = add("top", esp::nn::Dense(hidden, 2, {.dtype = esp::float64}));
};

/// Losses of three steps of training, and the parameters behind them.
std::vector<esp::Tensor> trained(esp::Device device, bool deferred) {
  TreeNet net;
  net.to(device);
  std::vector<esp::Tensor> results;
  std::optional<esp::Deferred> waits;
  if (deferred) waits.emplace();
  for (int step = 0; step < 3; ++step) {
    const Variable loss = net.loss(device);
    results.push_back(loss.value().to(esp::cpu()));
    if (deferred) {
      BOOST_TEST(esp::last_evaluation().schedule_known == (step > 0));
      BOOST_TEST(esp::last_evaluation().nodes_computed > 100);
    }
    loss.backward().update(esp::optim::Sgd(0.1));
  }
  for (const auto& [path, parameter] : net.parameters()) results.push_back(parameter.value().to(esp::cpu()));
  return results;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(deferred_device)

BOOST_AUTO_TEST_CASE(trees_are_trained_as_eagerly_on_the_cpu) {
  const std::vector<esp::Tensor> expected = trained(esp::cpu(), false);
  std::vector<esp::Device> devices = gpus_to_test();
  devices.push_back(esp::cpu());
  for (const esp::Device device : devices) BOOST_TEST_CONTEXT("on " << device) {
      const std::vector<esp::Tensor> results = trained(device, true);
      BOOST_REQUIRE(results.size() == expected.size());
      for (size_t i = 0; i < results.size(); ++i) BOOST_TEST(difference(expected[i], results[i]) < 1e-10);
    }
}

/// Sequences of 1 to 5 words, each a node of as many rows, of which some are joined and cut again.
BOOST_AUTO_TEST_CASE(nodes_of_different_numbers_of_rows) {
  struct RowNet : esp::nn::Module {
    RowNet() { give_figure_values(*this); }
    esp::nn::Embedding embed = add("embed", esp::nn::Embedding(words, 4, {.dtype = esp::float64}));
    esp::nn::LayerNorm norm = add("norm", esp::nn::LayerNorm(4, {.dtype = esp::float64}));
    esp::nn::LSTMCell cell = add("cell", esp::nn::LSTMCell(4, hidden, {.dtype = esp::float64}));
    esp::nn::Dense top = add("top", esp::nn::Dense(hidden, 3, {.dtype = esp::float64}));
  };
  const auto run = [](esp::Device device, bool deferred) {
    RowNet net;
    net.to(device);
    std::optional<esp::Deferred> waits;
    if (deferred) waits.emplace();
    Variables losses;
    for (const int64_t length : {3, 1, 5, 2, 4, 1, 3}) {
      std::vector<int64_t> numbers, labels;
      for (int64_t i = 0; i < length; ++i)
        numbers.push_back((3 * i + length) % words), labels.push_back(i % 3);
      const auto given = [&](const std::vector<int64_t>& list) {
        return Variable(esp::tensor_from(list, {length}).to(device));
      };
      const Variable x = net.norm(net.embed(given(numbers)));
      const Variable state =
          esp::slice(esp::concat({x, esp::tanh(x)}, 0), 0, length / 2, length / 2 + length);
      const auto [h, c] = net.cell(state, {esp::slice(x, 1, 0, hidden), esp::slice(x, 1, 1, 1 + hidden)});
      losses.push_back(esp::softmax_cross_entropy(net.top(h) + esp::mean(c), given(labels)));
    }
    const Variable loss = esp::sum(esp::stack(losses));
    std::vector<esp::Tensor> results{loss.value().to(esp::cpu())};
    if (deferred) {
      int64_t most = 0;  // nodes in one product
      for (const auto& batch : esp::last_evaluation().batches) most = std::max(most, batch.nodes);
      BOOST_TEST(most >= 7);
    }
    for (const auto& [path, parameter] : net.parameters())
      results.push_back(loss.gradient(parameter).value().to(esp::cpu()));
    return results;
  };
  const std::vector<esp::Tensor> expected = run(esp::cpu(), false);
  std::vector<esp::Device> devices = gpus_to_test();
  devices.push_back(esp::cpu());
  for (const esp::Device device : devices) BOOST_TEST_CONTEXT("on " << device) {
      const std::vector<esp::Tensor> results = run(device, true);
      BOOST_REQUIRE(results.size() == expected.size());
      for (size_t i = 0; i < results.size(); ++i) BOOST_TEST(difference(expected[i], results[i]) < 1e-10);
    }
}

BOOST_AUTO_TEST_SUITE_END()
