// A transformer block, written with layers and operations: its gradients, and that it learns.
#include <boost/test/unit_test.hpp>

#include "attention_block.h"
#include "espalier/core/check_gradient.h"
#include "espalier/core/random.h"
#include "espalier/data/batches.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

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
