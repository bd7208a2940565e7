// Deferred evaluation of ops with several outputs, and between updates and assignments.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
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

BOOST_AUTO_TEST_CASE(concatenations_of_different_numbers) {
  const Variable w = esp::parameter(numbers({2}));
  const auto program = [&] {
    Variables parts;
    for (const double factor : {0.5, 1.0, 1.5}) parts.push_back(esp::exp(w * factor));
    Variable total = esp::sum(w);
    for (const size_t count : {3, 3, 2, 3, 2, 2, 3})
      total = total + esp::sum(esp::square(esp::concat(Variables(parts.begin(), parts.begin() + count))));
    return total;
  };
  const double eager = program().item();
  const esp::Tensor gradient = program().gradient(w).value();
  for (const auto policy : {esp::BatchPolicy::depth, esp::BatchPolicy::agenda}) {
    const esp::Deferred waits({.policy = policy});
    const Variable total = program();
    BOOST_TEST(std::abs(total.item() - eager) < 1e-12);
    BOOST_TEST(difference(total.gradient(w).value(), gradient) < 1e-12);
  }
}

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
            if (i != 4) first.push_back(esp::sum(results[results.size() - 2] * 3.0));
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

BOOST_AUTO_TEST_CASE(what_is_held_is_read_after_an_update) {
  const auto program = [] {
    const Variable w = esp::parameter(numbers({3}, -1, 1, 1), "w");
    const esp::optim::Sgd sgd(0.1);
    Variables losses;
    Variable total = esp::variable(esp::zeros({}, esp::float64));
    for (int step = 0; step < 4; ++step) {
      const Variable loss = esp::sum(w * w), other = esp::sum(w * 3.0);
      losses.push_back(loss);
      losses.push_back(loss * other);
      loss.update(sgd);
      total = total + loss * 2.0 + other;
      if (step == 1) (void)total.item();
    }
    const Variable y = w * 2.0;
    esp::set_value(w, numbers({3}, -1, 1, 2));
    losses.push_back(esp::sum(y * y));
    losses.push_back(total);
    return elements(esp::stack(losses));
  };
  const std::vector<double> eager = program();
  const esp::Deferred waits;
  const std::vector<double> deferred = program();
  BOOST_REQUIRE(deferred.size() == eager.size());
  for (size_t i = 0; i < eager.size(); ++i) BOOST_TEST(std::abs(deferred[i] - eager[i]) < 1e-12);
}

BOOST_AUTO_TEST_CASE(states_are_assigned_as_eagerly) {
  for (const bool read_first : {false, true}) {
    std::vector<std::vector<double>> results;
    for (const bool deferred : {false, true}) {
      esp::nn::BatchNorm norm(3, {.dtype = esp::float64});
      std::optional<esp::Deferred> waits;
      if (deferred) waits.emplace();
      const Variable x = esp::variable(numbers({4, 3}, -2, 2, 3));
      const Variable a = norm(x), b = norm(x * 2.0);
      if (read_first) results.push_back(elements(a));
      const Variable sum = esp::sum(esp::square(a + b * 0.5));
      results.push_back(elements(sum));
      results.push_back(elements(sum.gradient(x)));
      for (const auto& [path, state] : norm.buffers()) results.push_back(elements(state));
    }
    const size_t half = results.size() / 2;
    for (size_t i = 0; i < half; ++i)
      for (size_t k = 0; k < results[i].size(); ++k)
        BOOST_TEST(std::abs(results[i][k] - results[half + i][k]) < 1e-10, read_first << i);
  }
}

BOOST_AUTO_TEST_CASE(an_error_stops_one_update) {
  const Variable table = esp::parameter(esp::ones({2}), "table"), u = esp::parameter(esp::ones({2}), "u");
  const esp::optim::Sgd sgd(0.5);
  Variable bad, beside, above;
  {
    const esp::Deferred waits;
    bad = esp::gather(table, esp::tensor_from(std::vector<int64_t>{9}, {1}));
    beside = u * 3.0;
    above = bad * 2.0;
  }
  BOOST_CHECK_THROW(esp::sum(u * u).update(sgd), esp::IndexError);
  BOOST_TEST(u.value().at<float>({0}) == 1);
  esp::sum(u * u).update(sgd);
  BOOST_TEST(u.value().at<float>({0}) == 0);
  esp::set_value(u, esp::ones({2}));
  BOOST_TEST(beside.value().at<float>({0}) == 3);
  BOOST_CHECK_THROW(above.value(), esp::IndexError);
  BOOST_CHECK_THROW(bad.value(), esp::IndexError);
  const esp::Deferred waits;
  const Variable more = bad + 1.0, good = u + 1.0;
  BOOST_TEST(good.value().at<float>({0}) == 2);
  BOOST_CHECK_THROW(more.value(), esp::IndexError);
}

BOOST_AUTO_TEST_CASE(rows_of_earlier_batches_of_other_sizes) {
  const Variable w = esp::parameter(numbers({2, 3}), "w");
  for (const int64_t count : {3, 5, 4, 3}) {
    Variables first, second, expected;
    for (int64_t i = 0; i < count; ++i) {
      const Variable x = numbers({1, 2}, -1, 1, static_cast<uint64_t>(i));
      expected.push_back(esp::exp(esp::tanh(esp::matmul(x, w))));
    }
    const Variable logs = esp::log(esp::concat({expected[0], expected[1], expected[2]}, 0));
    const esp::Deferred waits;
    for (int64_t i = 0; i < count; ++i)
      first.push_back(esp::tanh(esp::matmul(Variable(numbers({1, 2}, -1, 1, static_cast<uint64_t>(i))), w)));
    (void)first[0].value();
    // As rows of one operand they are joined by a reshape.
    const Variable joined = esp::concat({first[0], first[1], first[2]}, 0);
    BOOST_TEST(difference(joined.value(), logs.value()) < 1e-14);
    for (size_t i = 0; i < 3; ++i) second.push_back(esp::exp(first[i]));
    for (size_t i = 0; i < 3; ++i) BOOST_TEST(difference(second[i].value(), expected[i].value()) < 1e-14);
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_batch_of_views_begin_where_the_view_does) {
  const Variable w = esp::parameter(numbers({2, 3}), "w");
  const auto second_column = [&](uint64_t i) {
    return esp::slice(esp::matmul(Variable(numbers({1, 2}, -1, 1, i)), w), 1, 1, 2);
  };
  Variables expected, held;
  for (uint64_t i = 0; i < 3; ++i) expected.push_back(second_column(i));
  const esp::Deferred waits;
  for (uint64_t i = 0; i < 3; ++i) held.push_back(second_column(i));
  for (size_t i = 0; i < 3; ++i) BOOST_TEST(difference(held[i].value(), expected[i].value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(constants_in_the_shape_of_others_are_one_batch) {
  Variables x, signs;
  for (uint64_t i = 0; i < 3; ++i) x.push_back(numbers({2}, 1, 2, i));
  const esp::Deferred waits;
  for (const Variable& each : x)
    for (const double zero : {0.0, -0.0}) signs.push_back(1.0 / esp::full_like(each * 2.0, zero));
  for (size_t i = 0; i < signs.size(); ++i)
    BOOST_TEST(elements(signs[i])[0] == (i % 2 ? -INFINITY : INFINITY));
  (void)esp::sum(esp::stack({esp::zeros_like(x[0] * 2.0), esp::zeros_like(x[1] * 2.0)})).item();
  const auto& batches = esp::last_evaluation().batches;
  BOOST_TEST(std::ranges::count_if(batches, [](const auto& batch) {
               return batch.op == "full_like" && batch.nodes == 2 && batch.kernels == 1;
             }) == 1);
}

BOOST_AUTO_TEST_CASE(what_waits_elsewhere_does_not_read_what_came_later) {
  const Variable w = esp::parameter(esp::ones({2}), "w");
  Variable y;
  std::thread([&] {
    const esp::Deferred waits;
    y = w * 3.0;
  }).join();
  esp::set_value(w, esp::zeros({2}));
  BOOST_CHECK_EXCEPTION((void)y.value(), esp::Error, says({"this node waited", "deferred_ops_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(zeros_of_all_types_are_operands_of_their_own) {
  const Variable w = esp::parameter(esp::tensor({-1.0f, 2.0f})),
                 v = esp::parameter(esp::tensor({3.0, -4.0}, esp::float64));
  const esp::Deferred waits;
  const auto total = [&] {
    const Variable single = esp::maximum(w, 0.0), twice = esp::maximum(v, 0.0);
    return esp::sum(single.cast(esp::float64) + twice * 2.0);
  };
  BOOST_TEST(total().item() == 2 + 3 * 2);
  BOOST_TEST(esp::last_evaluation().nodes_computed == 6);  // all of them together
  total().backward().update(esp::optim::Sgd(0.5));
  BOOST_TEST((elements(w) == std::vector<double>{-1, 1.5}));
  BOOST_TEST((elements(v) == std::vector<double>{2, -4}));
  const Variable none = esp::where(esp::tensor(false), w, 0.0);
  BOOST_TEST((elements(none) == std::vector<double>{0, 0}));
}

BOOST_AUTO_TEST_CASE(what_is_written_under_no_grad_passes_no_gradient) {
  const Variable w = esp::parameter(esp::tensor({1.0, 2.0}, esp::float64));
  const esp::Deferred waits;
  Variables terms;
  for (const double factor : {1.0, 2.0, 3.0}) {
    Variable weights;
    {
      const esp::NoGrad none;
      weights = esp::exp(w * factor);
    }
    terms.push_back(esp::sum(weights * w));
  }
  const Variable loss = esp::sum(esp::stack(terms));
  const std::vector<double> found = elements(loss.gradient(w));
  for (size_t i = 0; i < 2; ++i) {
    const double at = i ? 2 : 1, expected = std::exp(at) + std::exp(2 * at) + std::exp(3 * at);
    BOOST_TEST(std::abs(found[i] - expected) < 1e-12 * expected);
  }
}

BOOST_AUTO_TEST_CASE(ops_under_no_grad_and_others_of_their_kind_stay_apart) {
  const Variable w = esp::parameter(esp::tensor({1.0, 2.0}, esp::float64));
  const esp::Deferred waits;
  const auto exponential = [&](bool stopped, double factor) {
    std::optional<esp::NoGrad> none;
    if (stopped) none.emplace();
    return esp::exp(w * factor);
  };
  for (const bool stopped_first : {true, false}) {
    const Variable one = exponential(stopped_first, 1), other = exponential(!stopped_first, 1);
    const Variable& stopped = stopped_first ? one : other;
    const Variable& trained = stopped_first ? other : one;
    const Variable loss = esp::sum(stopped * 3.0 + trained * 5.0);
    BOOST_TEST(std::abs(loss.item() - 8 * (std::exp(1) + std::exp(2))) < 1e-12);
    const std::vector<double> found = elements(loss.gradient(w));
    for (size_t i = 0; i < 2; ++i) BOOST_TEST(std::abs(found[i] - 5 * std::exp(i ? 2 : 1)) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(each_policy_makes_batches_of_its_own) {
  // The exponentials lie at three depths: the agenda waits until all can be computed.
  const auto batches = [](esp::BatchPolicy policy) {
    const esp::Deferred waits({.policy = policy});
    Variables ends;
    for (uint64_t steps = 1; steps <= 3; ++steps) {
      Variable h = numbers({2}, -1, 1, steps);
      for (uint64_t step = 0; step < steps; ++step) h = esp::tanh(h);
      ends.push_back(esp::exp(h));
    }
    (void)ends[0].value();
    return std::ranges::count(esp::last_evaluation().batches, "exp", &esp::EvaluationReport::Batch::op);
  };
  for (int round = 0; round < 2; ++round) {
    BOOST_TEST(batches(esp::BatchPolicy::agenda) == 1);
    BOOST_TEST(batches(esp::BatchPolicy::depth) == 3);
  }
}

/// Eager nodes may be the first to read what has waited: they are younger than what computes it.
BOOST_AUTO_TEST_CASE(what_waits_is_read_by_eager_nodes) {
  const esp::Variable p = esp::parameter(esp::tensor({1.0, 2.0}, esp::float64));
  const auto waiting = [&] {
    const esp::Deferred waits;
    return p * 2.0;
  };
  const auto slope = [&](const esp::Variable& y) { return elements(esp::sum(y).gradient(p)); };
  BOOST_TEST((slope(waiting() * 3.0) == std::vector<double>{6, 6}));
  const esp::Variable x = waiting(), both = esp::slice(x, 0, 0, 1) * esp::slice(x, 0, 1, 2);
  BOOST_TEST((slope(both) == std::vector<double>{8, 4}));
  const esp::Variable y = waiting(), z = waiting();
  BOOST_TEST((slope(esp::dot(y, z)) == std::vector<double>{8, 16}));
  BOOST_TEST((slope(esp::norm(waiting(), {}, {.p = 1})) == std::vector<double>{2, 2}));
}

BOOST_AUTO_TEST_CASE(an_evaluation_is_told_op_by_op) {
  esp::EvaluationReport report;
  report.nodes_computed = 1207;
  report.kernels_run = 5;
  report.batches = {{.op = "tanh", .nodes = 3, .gathered = 1, .kernels = 2},
                    {.op = "matmul", .nodes = 1200, .gathered = 2, .kernels = 3},
                    {.op = "tanh", .nodes = 4, .kernels = 1}};
  const std::string table =
      "op                          nodes  batches  kernels gathered\n"
      "matmul                       1200        1        3        2\n"
      "tanh                            7        2        3        1\n";
  BOOST_TEST(report.str() ==
             "1207 nodes computed by 5 kernels in 3 batches; the schedule was planned\n" + table);
  report.schedule_known = true;
  std::ostringstream out;
  out << report;
  BOOST_TEST(out.str() == "1207 nodes computed by 5 kernels in 3 batches; the schedule was known\n" + table);
}

BOOST_AUTO_TEST_SUITE_END()
