// Ops with several outputs wait and are batched with all of them.
#include <boost/test/unit_test.hpp>

#include <functional>

#include "espalier/core/deferred/deferred.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

std::vector<double> elements(const Variable& x) {
  const esp::Tensor tensor = x.value().to(esp::float64).contiguous_copy();
  return {tensor.span<double>().begin(), tensor.span<double>().end()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(deferred_ops)

BOOST_AUTO_TEST_CASE(with_two_outputs) {
  using Op = std::function<Variables(const Variable&)>;
  const auto both = [](const esp::ValuesAndIndices& r) { return Variables{r.values, r.indices}; };
  const std::vector<Op> ops{
      [&](const Variable& x) { return both(esp::sort(x)); },
      [&](const Variable& x) { return both(esp::topk(x, 2)); },
      [&](const Variable& x) { return both(esp::cummax(x)); },
      [&](const Variable& x) { return both(esp::cummin(x)); },
      [&](const Variable& x) {
        return Variables{esp::argsort(x), esp::logcumsumexp(x)};
      },
      [&](const Variable& x) {
        return both(esp::sort(esp::reshape(x, {2, 2})));
      },
      [&](const Variable& x) {
        return Variables{esp::sort(esp::reshape(x, {2, 2}), 0).values, esp::sparsemax(x)};
      },
  };
  for (size_t i = 0; i < ops.size(); ++i)
    for (const auto policy : {esp::BatchPolicy::depth, esp::BatchPolicy::agenda})
      BOOST_TEST_CONTEXT("op " << i) {
        std::vector<esp::Tensor> rows;
        for (uint64_t k = 0; k < 3; ++k) rows.push_back(numbers({4}, -2, 2, k));
        std::vector<std::vector<double>> eager, deferred;
        const auto collect = [&](std::vector<std::vector<double>>& all) {
          Variables x, results, first;
          for (const esp::Tensor& row : rows) x.push_back(esp::variable(row));
          for (const Variable& v : x) {
            for (Variable& result : ops[i](v)) results.push_back(std::move(result));
            first.push_back(esp::sum(results[results.size() - 2].to(esp::float64) * 3.0));
          }
          for (const Variable& result : results) all.push_back(elements(result));
          if (i == 4) return;  // indices have no gradient
          const Variable loss = esp::sum(esp::square(esp::stack(first)));
          for (const Variable& v : x) all.push_back(elements(loss.gradient(v)));
        };
        collect(eager);
        {
          const esp::Deferred waits({.policy = policy});
          collect(deferred);
        }
        BOOST_TEST((eager == deferred));
      }
}

BOOST_AUTO_TEST_SUITE_END()
