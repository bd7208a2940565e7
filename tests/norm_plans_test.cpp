// Plans of training on the CPU for convolutions with batch normalization: what is one kernel, and what is
// rounded.
#include <boost/test/unit_test.hpp>

#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "convolution_rows.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/convolution.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;
using esp::Variable;

namespace {

int64_t count(const std::string& text, std::string_view part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// How many kernels of each op have a first output of that shape.
std::map<std::string, int64_t> kernels_of(const std::string& plan, const esp::Shape& shape) {
  std::map<std::string, int64_t> found;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, op;
    words >> number >> op;
    if (!number.starts_with('%') || line.find(" view ") != std::string::npos ||
        line.find(" leaf ") != std::string::npos || line.find(" " + shape.str() + " ") == std::string::npos)
      continue;
    ++found[op.substr(0, op.find('('))];
  }
  return found;
}

Conv2d convolution() { return Conv2d(16, {.kernel = 3, .padding = 1, .bias = false}); }

}  // namespace

BOOST_AUTO_TEST_SUITE(norm_plans)

BOOST_AUTO_TEST_CASE(a_residual_and_relu_are_computed_with_batch_normalization) {
  esp::seed(3);
  const Conv2d first = convolution(), second = convolution(), third = convolution();
  const BatchNorm norm;
  const esp::data::Distributor feed({floats({8, 16, 9, 7}, 1)}, {.batch_size = 4});
  const Variable x = first(feed.get_output_graphs()[0]), y = esp::relu(norm(second(x)) + x);
  const std::string plan =
      esp::mean(esp::square(third(y))).get_executor({.optimizer = esp::optim::Sgd(0.1)}).plan().str();
  // Forward: what is centered, with its variance, and all the rest. Backward: the derivative of the loss,
  // what passes through ReLU, and the gradient of what was centered. What is added there comes from the mean,
  // and from both ways to x.
  const std::map<std::string, int64_t> expected{{"conv", 3}, {"conv_transpose", 2}, {"fused", 5}, {"add", 2}};
  BOOST_TEST((kernels_of(plan, {4, 9, 7, 16}) == expected), plan);
  BOOST_TEST(count(plan, " mean(axes=") == 1, plan);  // and the others are computed with their readers
  BOOST_TEST(count(plan, "add(v1, i3); v3 = relu(v2)") == 1, plan);
}

BOOST_AUTO_TEST_CASE(sixteen_bit_values_are_converted_where_they_are_computed) {
  esp::seed(4);
  const Conv2d first = convolution(), second = convolution();
  const BatchNorm norm;
  const esp::data::Distributor feed({floats({8, 16, 9, 7}, 1)}, {.batch_size = 4});
  const Variable y = second(esp::relu(norm(first(feed.get_output_graphs()[0]))));
  const esp::Executor executor =
      esp::mean(esp::square(y))
          .get_executor({.optimizer = esp::optim::Sgd(0.1), .precision = esp::Precision::bfloat16});
  const std::string plan = executor.plan().str();
  // Of the images, and of both kernels.
  BOOST_TEST(count(plan, " cast(dtype=bfloat16)") == 3, plan);
  BOOST_TEST(count(plan, " cast(dtype=float32)") == 0, plan);
  const std::map<std::string, int64_t> expected{{"conv", 2}, {"conv_transpose", 1}, {"fused", 6}};
  BOOST_TEST((kernels_of(plan, {4, 9, 7, 16}) == expected), plan);
  // Forward: for the statistics, for the second convolution and for the loss, whose derivative has 4 of them.
  // Backward: behind the second convolution, in front of the first one's kernels, and in the update.
  BOOST_TEST(count(plan, "= cast(") == 10, plan);
}

BOOST_AUTO_TEST_SUITE_END()
