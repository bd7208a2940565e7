// Leaves on the CPU whose newest values are on a GPU: they are copied when they are asked for.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <optional>
#include <thread>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/core/with_assignment.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

struct Training {
  esp::nn::Dense layer{3};
  esp::data::Distributor feed{
      {numbers({12, 4}).to(esp::float32), numbers({12, 3}, -1, 1, 1).to(esp::float32)}, {.batch_size = 4}};
  esp::Variable loss;

  Training() {
    esp::seed(11);
    const auto [x, y] = feed.get_output_graphs<2>();
    loss = esp::nn::MeanSquared()(layer(x), y);
  }
  esp::Executor executor(esp::Device device) const {
    return loss.get_executor({.optimizer = esp::optim::Adam({.lr = 0.01}), .devices = {device}});
  }
  std::vector<esp::Variable> parameters() const {
    std::vector<esp::Variable> all;
    for (const auto& [name, parameter] : layer.parameters()) all.push_back(parameter);
    return all;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_leaves)

// Copying all parameters and states after each run would take longer than short runs do.
BOOST_AUTO_TEST_CASE(values_are_copied_when_they_are_asked_for) {
  for (const esp::Device gpu : gpus_to_test()) {
    const Training there;
    std::optional<esp::Executor> executor = there.executor(gpu);
    executor->execute({.epochs = 2, .progress = false});
    const Training here;
    here.executor(esp::cpu()).execute({.epochs = 2, .progress = false});
    const std::vector<esp::Variable> parameters = there.parameters(), expected = here.parameters();
    BOOST_REQUIRE(parameters.size() == 2u);
    for (const esp::Variable& parameter : parameters) BOOST_TEST(!parameter.node()->has_value());

    std::vector<esp::Tensor> values(4);
    std::vector<std::thread> threads;
    for (esp::Tensor& value : values) threads.emplace_back([&] { value = parameters[0].value(); });
    for (std::thread& thread : threads) thread.join();
    for (const esp::Tensor& value : values) BOOST_TEST(difference(value, expected[0].value()) < 1e-5);
    BOOST_TEST(parameters[0].node()->has_value());
    BOOST_TEST(!parameters[1].node()->has_value());

    executor.reset();  // its memory is freed
    BOOST_TEST(parameters[1].node()->has_value());
    BOOST_TEST(difference(parameters[1].value(), expected[1].value()) < 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(a_value_that_is_set_replaces_one_that_is_there) {
  for (const esp::Device gpu : gpus_to_test()) {
    const Training training;
    const esp::Executor executor = training.executor(gpu);
    executor.execute({.epochs = 1, .progress = false});
    const esp::Variable bias = training.parameters()[1];
    const esp::Tensor given = numbers(bias.shape(), 1, 2, 7).to(esp::float32);
    esp::set_value(bias, given);
    BOOST_TEST(difference(bias.value(), given) == 0);
    executor.execute({.epochs = 1, .progress = false});
    BOOST_TEST(difference(bias.value(), given) > 0);
    BOOST_TEST(difference(bias.value(), given) < 1);  // it went on from there
  }
}

BOOST_AUTO_TEST_CASE(rows_and_states_that_are_there_are_assigned_here) {
  for (const esp::Device gpu : gpus_to_test()) {
    const esp::Variable table = esp::parameter(numbers({5000, 4}).to(esp::float32), "table"),
                        state = esp::state(esp::ones({4}), "state");
    const esp::data::Distributor feed({numbers({12}, 0, 49, 1).to(esp::int64)}, {.batch_size = 4});
    const auto loss_of = [&](const esp::Variable& rows) {
      const esp::Variable x = esp::gather(table, rows);
      return esp::with_assignment(esp::mean(esp::square(x)), state, state + 1.0);
    };
    const esp::optim::Optimizer sgd = esp::optim::Sgd(0.5);
    const esp::Executor executor =
        loss_of(feed.get_output_graphs()[0]).get_executor({.optimizer = sgd, .devices = {gpu}});
    executor.execute({.epochs = 1, .progress = false});

    const esp::Variable rows(esp::tensor_from(std::vector<int64_t>{7}, {1}));
    const esp::Variable loss = esp::mean(esp::square(esp::gather(table, rows)));
    const esp::Variable scaled = esp::sum(state * table);  // reads both as they are now
    executor.execute({.epochs = 1, .progress = false});
    BOOST_TEST(!table.node()->has_value());
    BOOST_TEST(!state.node()->has_value());
    (void)esp::with_assignment(rows, state, esp::Variable(esp::zeros({4})));
    BOOST_TEST(esp::sum(state).item() == 0);
    BOOST_TEST(std::isfinite(scaled.item()));

    const esp::Tensor before = table.value();
    const esp::Variable gradients = loss.backward();
    executor.execute({.epochs = 1, .progress = false});
    BOOST_TEST(!table.node()->has_value());
    gradients.update(sgd);  // row 7 alone, of the table as it is now
    BOOST_TEST(table.node()->has_value());
    BOOST_TEST(difference(table.value(), before) > 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
