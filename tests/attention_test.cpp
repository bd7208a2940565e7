// A block of a language model, written with layers and operations: its gradients, and that it learns.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/check_gradient.h"
#include "espalier/core/random.h"
#include "espalier/data/batches.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;

namespace {

constexpr int64_t words = 7, time_steps = 6, heads = 2, width = 8;

/// Whether position i may look at position j.
esp::Tensor causal(int64_t n) {
  esp::Tensor mask = esp::zeros({n, n}, esp::boolean);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) mask.at<bool>({i, j}) = true;
  return mask;
}

/// [rows, time, width] as [rows, heads, time, width / heads].
esp::Variable split_heads(const esp::Variable& x) {
  const int64_t time = x.shape()[1], each = x.shape()[2] / heads;
  return esp::transpose(esp::reshape(x, {-1, time, heads, each}), {0, 2, 1, 3});
}

esp::Variable attend(const esp::Variable& q, const esp::Variable& k, const esp::Variable& v) {
  const int64_t time = q.shape()[1], all = q.shape()[2];
  const esp::Variable scores = esp::matmul(split_heads(q), esp::transpose(split_heads(k))) /
                               std::sqrt(static_cast<double>(all / heads));
  const esp::Variable weights = esp::softmax(esp::where(causal(time), scores, -1e9));
  const esp::Variable seen = esp::matmul(weights, split_heads(v));
  return esp::reshape(esp::transpose(seen, {0, 2, 1, 3}), {-1, time, all});
}

struct Block : Module {
  esp::Variable operator()(const esp::Variable& x) {
    const esp::Variable n = before_attention(x);
    const esp::Variable y = x + join(attend(query(n), key(n), value(n)));
    return y + narrow(esp::gelu(widen(before_mlp(y))));
  }
  LayerNorm before_attention = add("before_attention", LayerNorm());
  Dense query = add("query", Dense(width)), key = add("key", Dense(width)),
        value = add("value", Dense(width));
  Dense join = add("join", Dense(width));
  LayerNorm before_mlp = add("before_mlp", LayerNorm());
  Dense widen = add("widen", Dense(4 * width)), narrow = add("narrow", Dense(width));
};

struct Model : Module {
  /// The loss of predicting each next word.
  esp::Variable operator()(const esp::Variable& tokens, const esp::Variable& next) {
    const esp::Variable place = position(esp::arange(time_steps, esp::int64));
    const esp::Variable logits = head(last(block(embed(tokens) + place)));
    return SoftmaxCrossEntropy()(esp::reshape(logits, {-1, words}), esp::flatten(next));
  }
  Embedding embed = add("embed", Embedding(words, width));
  Embedding position = add("position", Embedding(time_steps, width));
  Block block = add("block", Block());
  LayerNorm last = add("last", LayerNorm());
  Dense head = add("head", Dense(words));
};

/// Two words that take turns: what comes next was there two words before.
std::pair<esp::Tensor, esp::Tensor> sequences(int64_t count) {
  esp::Tensor tokens({count, time_steps}, esp::int64), next({count, time_steps}, esp::int64);
  for (int64_t row = 0; row < count; ++row)
    for (int64_t i = 0; i < time_steps; ++i) {
      const int64_t pair[] = {row % words, row / words % words};
      tokens.at<int64_t>({row, i}) = pair[i % 2];
      next.at<int64_t>({row, i}) = pair[(i + 1) % 2];
    }
  return {tokens, next};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attention)

BOOST_AUTO_TEST_CASE(gradients_of_attention) {
  const auto f = [](const Variables& x) {
    const esp::Variable y = attend(esp::matmul(x[0], x[1]), esp::matmul(x[0], x[2]), esp::matmul(x[0], x[3]));
    return esp::matmul(y, esp::transpose(x[1]));
  };
  const auto result = esp::check_gradient(
      f,
      {numbers({2, 3, 4}), numbers({4, 4}, -1, 1, 1), numbers({4, 4}, -1, 1, 2), numbers({4, 4}, -1, 1, 3)},
      {.order = 2, .tolerance = 5e-6});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(gradients_of_a_block) {
  esp::seed(5);
  Block block;
  const auto result = esp::check_gradient([&](const Variables& x) { return block(x[0]); },
                                          {numbers({2, 3, width})}, {.tolerance = 5e-6});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(positions_do_not_see_what_comes_after_them) {
  esp::seed(6);
  Block block;
  esp::Tensor x = numbers({1, 4, width});
  const esp::Tensor before = block(x).value().slice(1, 0, 2).clone();
  x.at<double>({0, 2, 3}) += 10;
  BOOST_TEST(difference(before, block(x).value().slice(1, 0, 2)) == 0);
  BOOST_TEST(difference(before, block(x).value().slice(1, 2, 4)) > 0);
}

BOOST_AUTO_TEST_CASE(eager_and_frozen_training_are_alike) {
  const auto [tokens, next] = sequences(49);  // the last batch is short
  constexpr int epochs = 20;
  const esp::data::DistributorOptions options{.batch_size = 16, .shuffle = true};
  std::vector<double> eager, frozen;
  {
    esp::seed(7);
    Model model;
    const esp::optim::Adam adam(0.01);
    auto batches = esp::data::batches<2>({tokens, next}, options);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      double sum = 0;
      for (const auto& [x, y] : batches) {
        const esp::Variable loss = model(x, y);
        loss.update(adam);
        sum += loss.item();
      }
      eager.push_back(sum);
    }
  }
  {
    esp::seed(7);
    Model model;
    esp::data::Distributor feed({tokens, next}, options);
    auto [x, y] = feed.get_output_graphs<2>();
    const auto executor =
        model(x, y).get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Adam(0.01)});
    for (const auto& epoch : executor.execute({.epochs = epochs, .progress = false}).epochs)
      frozen.push_back(epoch.loss_sum);
  }
  BOOST_REQUIRE(frozen.size() == eager.size());
  for (size_t i = 0; i < eager.size(); ++i)
    BOOST_TEST(frozen[i] == eager[i], boost::test_tools::tolerance(1e-3));
  BOOST_TEST(eager.back() < 0.7 * eager.front());
}

BOOST_AUTO_TEST_SUITE_END()
