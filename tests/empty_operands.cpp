#include "empty_operands.h"

#include <boost/test/unit_test.hpp>

#include <optional>
#include <set>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"

namespace espalier::testing {
namespace {

/// The operands with every axis of that size emptied.
std::vector<Tensor> emptied(std::vector<Tensor> operands, int64_t size) {
  for (Tensor& operand : operands)
    for (size_t axis = 0; axis < operand.rank(); ++axis)
      if (operand.shape()[axis] == size) operand = operand.slice(static_cast<int64_t>(axis), 0, 0);
  return operands;
}

/// The result, and the gradients of its sum; nothing if the op refuses the operands.
std::optional<std::vector<Tensor>> results(const OpCase& c, const std::vector<Tensor>& operands,
                                           const std::vector<size_t>& differentiable, Device device) {
  try {
    Variables x;
    for (const Tensor& operand : operands) x.emplace_back(operand.to(device));
    for (const size_t i : differentiable) x[i] = variable(operands[i].to(device));
    const Variable y = c.op(x);
    std::vector<Tensor> all{y.value().to(cpu())};
    const Variable total = sum(y);
    for (const size_t i : differentiable) all.push_back(total.gradient(x[i]).value().to(cpu()));
    return all;
  } catch (const Error&) {
    return {};
  }
}

Tensor of_plan(const OpCase& c, const std::vector<Tensor>& operands) {
  Variables x;
  Feeds feeds;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    x.push_back(placeholder(name, operands[i].shape(), operands[i].dtype()));
    feeds.emplace_back(name, operands[i]);
  }
  return c.op(x).get_executor({.mode = Mode::inference}).run(feeds);
}

void check_same(const std::vector<Tensor>& expected, const std::optional<std::vector<Tensor>>& found,
                double tolerance) {
  BOOST_TEST_REQUIRE(found.has_value());
  for (size_t i = 0; i < expected.size(); ++i) BOOST_TEST(difference(expected[i], (*found)[i]) <= tolerance);
}

}  // namespace

void check_empty_operands(const OpCase& c, const std::vector<size_t>& differentiable, Device device) {
  std::vector<Tensor> inputs = c.inputs;
  std::set<int64_t> sizes;
  for (Tensor& input : inputs) {
    if (is_real(input.dtype())) input = input.to(float32);
    sizes.insert(input.shape().begin(), input.shape().end());
  }
  sizes.erase(1);
  for (const int64_t size : sizes) {
    BOOST_TEST_CONTEXT("without the axes of " << size << " elements") {
      const std::vector<Tensor> operands = emptied(inputs, size);
      const auto expected = results(c, operands, differentiable, cpu());
      if (device != cpu()) {
        if (expected) check_same(*expected, results(c, operands, differentiable, device), c.tolerance32);
        continue;
      }
      if (!expected) continue;
      for (size_t i = 0; i < differentiable.size(); ++i)
        BOOST_TEST((*expected)[i + 1].shape() == operands[differentiable[i]].shape());
      const VectorLevel before = vector_level();
      set_vector_level(VectorLevel::baseline);
      check_same(*expected, results(c, operands, differentiable, device), c.tolerance32);
      set_vector_level(before);
      BOOST_TEST(difference((*expected)[0], of_plan(c, operands)) <= c.tolerance32);
    }
  }
}

}  // namespace espalier::testing
