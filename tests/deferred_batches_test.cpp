// What a Deferred computes together: random numbers, and products of which some are the same.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/random.h"
#include "espalier/core/recompute.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
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

/// Gradients with respect to each of them are its own.
BOOST_AUTO_TEST_CASE(equal_nodes_that_are_held) {
  const Variable x = esp::variable(numbers({1, 2})), w = esp::variable(numbers({2, 3}, -1, 1, 1));
  const auto gradients = [&](const auto& f) {
    const Variable a = f(), b = f();
    const Variable loss = esp::sum(a * 2 + b * 5) + esp::sum(esp::square(f() + f()));
    const esp::Tensor first = a.value(), second = b.value();
    BOOST_TEST(first.address() != second.address());
    return std::vector<esp::Tensor>{loss.gradient(a).value(), loss.gradient(b).value(),
                                    loss.gradient(x).value(), loss.gradient(w).value()};
  };
  const auto check = [&](const auto& f) {
    // A schedule that was made when nothing was held.
    const auto unheld = [&] { return esp::sum(f() * 2 + f() * 5) + esp::sum(esp::square(f() + f())); };
    const std::vector<esp::Tensor> eager = gradients(f);
    for (int round = 0; round < 2; ++round) {
      const esp::Deferred waits;
      (void)unheld().value();
      const std::vector<esp::Tensor> deferred = gradients(f);
      for (size_t i = 0; i < eager.size(); ++i) BOOST_TEST(difference(eager[i], deferred[i]) < 1e-12);
    }
  };
  check([&] { return esp::matmul(x, w); });
  check([&] { return esp::exp(esp::matmul(x, w)); });
  check([&] { return esp::sum(esp::square(x)) * esp::sum(w); });
}

/// A schedule in which held nodes are apart does not stay when nothing holds them any more.
BOOST_AUTO_TEST_CASE(equal_nodes_are_one_again_when_nothing_holds_them) {
  const Variable w = esp::variable(numbers({2, 3}, -1, 1, 1));
  const Variable rows[] = {numbers({1, 2}, -1, 1, 2), numbers({1, 2}, -1, 1, 3), numbers({1, 2}, -1, 1, 4)};
  for (const auto policy : {esp::BatchPolicy::depth, esp::BatchPolicy::agenda}) {
    const esp::Deferred waits({.policy = policy});
    const auto evaluate = [&](bool holds) {
      Variables held;
      const auto hold = [&](const Variable& v) {
        if (holds) held.push_back(v);
        return v;
      };
      const auto row = [&](size_t i) { return hold(esp::matmul(rows[i], w)); };
      const auto number = [&] { return hold(esp::exp(esp::sum(w))); };
      Variable total = 0.0;
      for (size_t i = 0; i < 3; ++i) total += esp::sum(row(i) * 2 + row(i) * 5) * (number() + number());
      (void)total.value();
      int64_t row_bytes = 0;
      for (const auto& batch : esp::last_evaluation().batches)
        if (batch.op == "matmul") row_bytes += batch.bytes;
      return std::pair(row_bytes / (3 * int64_t{sizeof(double)}), batches_of("exp"));
    };
    using Counts = std::pair<int64_t, int64_t>;  // of computed rows, and of calls of exp
    BOOST_TEST((evaluate(false) == Counts(3, 1)));
    BOOST_TEST((evaluate(true) == Counts(6, 6)));
    BOOST_TEST((evaluate(false) == Counts(3, 1)));
    BOOST_TEST((evaluate(false) == Counts(3, 1)));
    BOOST_TEST(esp::last_evaluation().schedule_known);
  }
}

BOOST_AUTO_TEST_CASE(several_blocks_that_are_computed_again) {
  const Variable x = esp::variable(numbers({2, 3})), w = esp::variable(numbers({3, 3}, -1, 1, 1));
  const auto program = [&] {
    Variable loss = 0.0;
    for (int i = 1; i < 4; ++i)
      loss += esp::sum(esp::recompute(
          [&](const Variable& h) { return esp::dropout(esp::tanh(esp::matmul(h, w)), 0.5); }, x * i));
    return loss;
  };
  check_same(program, {x, w});
}

/// Leaves of others that are assigned meanwhile, in front of and behind random numbers.
BOOST_AUTO_TEST_CASE(steps_of_others_between_nodes_with_states) {
  const Variable other = esp::parameter(1.0);
  const esp::Executor executor = (other * other).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  const Variable w = esp::variable(numbers({3, 3}));
  const auto program = [&](bool steps) {
    return [&w, &executor, steps] {
      const esp::nn::BatchNorm norm(3, {.dtype = esp::float64});
      Variable loss = 0.0;
      for (int i = 1; i < 5; ++i) {
        const Variable h = esp::dropout(esp::matmul(esp::randn({4, 3}, esp::float64), w), 0.5);
        loss += esp::sum(esp::cube(esp::dropout(norm(h), 0.5))) * i;
        if (steps) executor.step();
      }
      return loss;
    };
  };
  check_same(program(false), {w});
  check_same(program(true), {w});
  const auto losses = [&](bool steps) {
    const esp::Deferred waits;
    esp::seed(2);
    return program(steps)().item();
  };
  BOOST_TEST(losses(true) == losses(false));
}

BOOST_AUTO_TEST_SUITE_END()
