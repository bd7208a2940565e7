#include "deferred_copies.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <optional>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/ops/ops.h"

namespace espalier::testing {

namespace {

constexpr size_t copies = 3;
constexpr size_t none = SIZE_MAX;

/// The elements in reverse order: other data in the same range.
Tensor reversed(const Tensor& x) {
  return flip(x.reshape({-1}), {0}).value().contiguous_copy().reshape(x.shape());
}

/// The inputs of each copy. Reals are scaled. Integers are reversed where the op takes that: lists of indices
/// have any order, other lists do not.
std::vector<std::vector<Tensor>> data_of_copies(const OpCase& c) {
  std::vector<Tensor> turned = c.inputs;
  for (Tensor& x : turned)
    if (!is_real(x.dtype()) && x.elements() > 1) x = reversed(x);
  try {
    (void)c.op(Variables(turned.begin(), turned.end())).value();
  } catch (const Error&) {
    turned = c.inputs;
  }
  std::vector<std::vector<Tensor>> data(copies, c.inputs);
  data[1] = turned;
  for (size_t k = 1; k < copies; ++k)
    for (Tensor& x : data[k])
      if (is_real(x.dtype())) x = (Variable(x) * (1 - 0.125 * static_cast<double>(k))).value();
  return data;
}

/// What is computed of all copies, in order: values, and derivatives.
std::vector<Tensor> results_of(const OpCase& c, const std::vector<std::vector<Tensor>>& data, size_t shared,
                               const std::vector<size_t>& differentiable) {
  seed(11);
  Variables leaves, results;
  std::vector<Variables> inputs(copies);
  for (size_t k = 0; k < copies; ++k)
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const bool differentiates = std::ranges::count(differentiable, i) > 0;
      if (i == shared && k > 0) {
        inputs[k].push_back(inputs[0][i]);
        continue;
      }
      const Variable x = i == shared && differentiates ? parameter(data[k][i])
                         : differentiates              ? variable(data[k][i])
                                                       : Variable(data[k][i]);
      if (differentiates) leaves.push_back(x);
      // Copies beside each other in a batch, or leaves that are gathered.
      inputs[k].push_back(differentiates && i != shared && k != 2 ? x * 1.0 : x);
    }
  std::vector<Variable> terms;
  for (size_t k = 0; k < copies; ++k) {
    results.push_back(c.op(inputs[k]));
    const Variable& y = results.back();
    if (!leaves.empty())
      terms.push_back(sum(y * numbers(y.shape(), 0.5, 1.5, k).to(y.dtype()).to(y.device())));
  }
  if (!leaves.empty()) {
    const Variable loss = sum(stack(terms));
    Variables products;
    for (const Variable& leaf : leaves) {
      results.push_back(loss.gradient(leaf));
      products.push_back(sum(results.back() * leaf));
    }
    const Variable total = sum(stack(products));
    if (c.order > 1 && shared == none && data[0][0].device().type == DeviceType::cpu)
      for (const Variable& leaf : leaves) results.push_back(total.gradient(leaf));
  }
  std::vector<Tensor> values;
  for (const Variable& result : results) values.push_back(result.value().to(cpu()));
  return values;
}

}  // namespace

void check_deferred(const OpCase& c, const std::vector<size_t>& differentiable, Device device,
                    double tolerance) {
  std::vector<std::vector<Tensor>> data = data_of_copies(c);
  for (std::vector<Tensor>& inputs : data)
    for (Tensor& x : inputs) x = x.to(device);
  const bool thorough = device.type == DeviceType::cpu;  // devices may be emulated, and slow
  for (size_t shared = 0; shared <= c.inputs.size(); ++shared)
    for (const BatchPolicy policy : {BatchPolicy::agenda, BatchPolicy::depth}) {
      const size_t one = shared < c.inputs.size() ? shared : none;
      if (policy == BatchPolicy::depth && (one != none || !thorough)) continue;
      if (one != none && !thorough) continue;
      BOOST_TEST_CONTEXT("deferred, shared input " << (one == none ? "none" : std::to_string(one))) {
        const std::vector<Tensor> eager = results_of(c, data, one, differentiable);
        std::optional<Deferred> waits(std::in_place, DeferredOptions{.policy = policy});
        const std::vector<Tensor> deferred = results_of(c, data, one, differentiable);
        waits.reset();
        BOOST_REQUIRE(eager.size() == deferred.size());
        for (size_t i = 0; i < eager.size(); ++i)
          BOOST_TEST(difference(eager[i], deferred[i]) <= tolerance,
                     "result " << i << " of " << eager.size() << ": " << difference(eager[i], deferred[i]));
      }
    }
}

}  // namespace espalier::testing
