// Names of leaves and of custom ops are the user's: those of ops mean nothing.
#include <boost/test/unit_test.hpp>

#include <string>

#include "espalier/core/custom_op.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Names that passes look for.
const std::vector<std::string> names{"add",      "add_all",   "cast", "concat", "conv",       "conv_kernels",
                                     "divide",   "former",    "lr",   "matmul", "multiply",   "pad_constant",
                                     "pad_like", "parameter", "relu", "slice",  "softmax",    "log_softmax",
                                     "subtract", "sum",       "to",   "join",   "sum_to_like"};

/// The loss after two steps of a network with a state, whose leaves have these names.
double trained(const std::string& weight, const std::string& bias, const std::string& factor) {
  const esp::Tensor x = numbers({6, 4}, -1, 1, 1), labels = numbers({6, 3}, -1, 1, 2);
  esp::data::Distributor feed({x, labels}, {.batch_size = 3});
  const auto [in, target] = feed.get_output_graphs<2>();
  const Variable w = esp::parameter(numbers({4, 3}, -1, 1, 3), weight),
                 b = esp::parameter(numbers({3}, -1, 1, 4), bias),
                 s = esp::state(numbers({3}, 1, 2, 5), factor);
  const Variable y = esp::relu(esp::matmul(in, w) + b) * s + esp::slice(esp::concat({b, s}, 0), 0, 0, 3);
  const Variable loss = esp::mean(esp::square(y - target)) - 0.1 * esp::sum(w * 0.5) / esp::sum(s);
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
  (void)executor.step();
  return executor.step().loss;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(leaf_names)

BOOST_AUTO_TEST_CASE(of_ops_are_names_as_others) {
  const double wanted = trained("w", "b", "s");
  for (const std::string& name : names) {
    BOOST_TEST(trained(name, "b", "s") == wanted, name);
    BOOST_TEST(trained("w", name, "s") == wanted, name);
    BOOST_TEST(trained("w", "b", name) == wanted, name);
  }
}

BOOST_AUTO_TEST_CASE(a_placeholder_and_a_custom_op) {
  for (const std::string& name : names) {
    const Variable x = esp::placeholder(name, {2, 3}, esp::float64);
    const esp::CustomOp op = esp::custom_op(
        {.name = name,
         .forward = [](const std::vector<esp::Tensor>& in) { return (Variable(in[0]) * 2.0).value(); },
         .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
    const esp::Executor executor = (op({x * 3.0}) - 1.0).get_executor({.mode = esp::Mode::inference});
    const esp::Tensor given = numbers({2, 3}, -1, 1, 1), result = executor.run({{name, given}});
    BOOST_TEST(result.at<double>({1, 2}) == given.at<double>({1, 2}) * 6.0 - 1.0, name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
