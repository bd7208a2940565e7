// What a Deferred computes together: random numbers, and products of which some are the same.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/random.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

int64_t batches_of(std::string_view op) {
  return std::ranges::count(esp::last_evaluation().batches, op, &esp::EvaluationReport::Batch::op);
}

/// The loss and the gradients of `leaves`, drawn from the same seed eagerly and deferred.
template <class Program>
void check_same(const Program& program, const Variables& leaves) {
  const auto results = [&] {
    esp::seed(5);
    const Variable loss = program();
    std::vector<esp::Tensor> all{loss.value()};
    for (const Variable& leaf : leaves) all.push_back(loss.gradient(leaf).value());
    return all;
  };
  const std::vector<esp::Tensor> eager = results();
  for (const auto policy : {esp::BatchPolicy::depth, esp::BatchPolicy::agenda})
    for (int round = 0; round < 2; ++round) {  // the second time the schedule is known
      const esp::Deferred waits({.policy = policy});
      const std::vector<esp::Tensor> deferred = results();
      for (size_t i = 0; i < eager.size(); ++i) BOOST_TEST(difference(eager[i], deferred[i]) < 1e-12);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(deferred_batches)

BOOST_AUTO_TEST_CASE(random_numbers_of_several_nodes) {
  const Variable w = esp::variable(numbers({3, 4}));
  const auto program = [&] {
    Variables rows;
    for (uint64_t i = 0; i < 6; ++i) {
      const Variable h = esp::matmul(numbers({1, 3}, -1, 1, i), w);
      const Variable noise = esp::randn_like(h) + esp::bernoulli(esp::sigmoid(h));
      rows.push_back(esp::dropout(h, 0.5) * noise + esp::rand_like(h));
    }
    return esp::sum(esp::square(esp::concat(rows, 0)));
  };
  check_same(program, {w});
  const esp::Deferred waits;
  (void)program().value();
  BOOST_TEST(batches_of("dropout_mask") == 1);
  BOOST_TEST(batches_of("bernoulli") == 1);
}

BOOST_AUTO_TEST_CASE(products_that_are_written_twice_are_one_row) {
  const Variable a = esp::variable(numbers({4, 5}, -1, 1, 1)), b = esp::variable(numbers({4, 5}, -1, 1, 2));
  const Variable v = esp::variable(numbers({5, 1}, -1, 1, 3)), e = esp::variable(numbers({6, 4}, -1, 1, 4));
  const auto program = [&] {
    Variables words, scores;
    for (int64_t i = 0; i < 6; ++i) words.push_back(esp::tanh(esp::slice(e, 0, i, i + 1)));
    for (const Variable& head : words)
      for (const Variable& word : words)
        scores.push_back(esp::matmul(esp::tanh(esp::matmul(head, a) + esp::matmul(word, b)), v));
    return esp::logsumexp(esp::concat(scores, 0));
  };
  check_same(program, {a, b, v, e});
  const esp::Deferred waits;
  (void)program().value();
  BOOST_TEST(batches_of("matmul") <= 3);
  int64_t products = 0;
  for (const auto& batch : esp::last_evaluation().batches)
    if (batch.op == "matmul") products += batch.nodes;
  BOOST_TEST(products == 3 * 36);  // all of them have values
}

BOOST_AUTO_TEST_SUITE_END()
