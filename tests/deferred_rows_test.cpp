// Nodes with different numbers of rows below a Deferred.
#include <boost/test/unit_test.hpp>

#include <numeric>
#include <optional>
#include <random>

#include "deferred_trees.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/random.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/module.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t kWidth = 4, kWords = 9;

struct Net : esp::nn::Module {
  esp::nn::Embedding embed = add("embed", esp::nn::Embedding(kWords, kWidth));
  esp::nn::Dense a = add("a", esp::nn::Dense(kWidth, kWidth)), b = add("b", esp::nn::Dense(kWidth, kWidth));
  esp::nn::Dense scores = add("scores", esp::nn::Dense(kWidth, 3, {.bias = false}));
  esp::nn::LSTMCell cell = add("cell", esp::nn::LSTMCell(kWidth, kWidth));
  esp::nn::LayerNorm norm = add("norm", esp::nn::LayerNorm());
  Variable gain = add_parameter("gain", esp::tensor({1.0f, 0.5f, 2.0f, -1.0f}));
};

esp::Tensor numbers(std::mt19937& random, int64_t below, int64_t count) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < count; ++i)
    list.push_back(static_cast<int64_t>(random() % static_cast<unsigned>(below)));
  return esp::tensor_from(list, {count});
}

/// Something of each parameter, since the comparison asks for all gradients.
Variable of_all(const Net& net) {
  std::vector<Variable> parts;
  for (const auto& [name, parameter] : net.parameters()) parts.push_back(esp::sum(esp::square(parameter)));
  return esp::sum(esp::stack(parts));
}

/// The batches of an op in the last evaluation, and the nodes in these.
std::pair<int, int64_t> batches_of(std::string_view op) {
  int batches = 0;
  int64_t nodes = 0;
  for (const auto& batch : esp::last_evaluation().batches)
    if (batch.op == op) ++batches, nodes += batch.nodes;
  return {batches, nodes};
}

/// Statements that read what others have written: matrices of 1 to 4 rows and 4 columns.
class Program {
 public:
  Program(const Net& net, unsigned seed) : net_(net), random_(seed) {}

  Variable loss() {
    for (int64_t rows = 1; rows <= most; ++rows) {
      list(rows).push_back(net_.embed(numbers(random_, kWords, rows)));
      list(rows).push_back(esp::Variable(esp::rand({rows, kWidth})));
    }
    for (int i = 0; i < 90; ++i) statement();
    for (auto& each : lists_) losses_.push_back(esp::sum(each.back()));
    losses_.push_back(of_all(net_));
    return esp::sum(esp::stack(losses_));
  }

 private:
  static constexpr int64_t most = 4;
  int64_t any(int64_t n) { return static_cast<int64_t>(random_() % static_cast<unsigned>(n)); }
  std::vector<Variable>& list(int64_t rows) { return lists_[static_cast<size_t>(rows - 1)]; }
  Variable one(int64_t rows) {
    const std::vector<Variable>& from = list(rows);
    return from[static_cast<size_t>(any(std::ssize(from)))];
  }
  void statement() {
    const int64_t rows = 1 + any(most);
    const Variable x = one(rows), y = one(rows), z = one(rows);
    std::vector<Variable>& to = list(rows);
    switch (any(21)) {
      case 0: to.push_back(esp::tanh(net_.a(x))); break;
      case 1: to.push_back(esp::sigmoid(net_.b(x) + y)); break;
      case 2: to.push_back(x * y - z * 0.5); break;
      case 3: to.push_back(esp::concat({esp::slice(x, 1, 0, 2), esp::slice(y, 1, 2, 4)}, 1)); break;
      case 4: to.push_back(esp::softmax(x)); break;
      case 5: to.push_back(x * esp::sum(y, 1, true) * 0.1); break;
      case 6: to.push_back(esp::tanh(x) * net_.gain); break;
      case 7: {
        const auto [h, c] = net_.cell(x, {y, z});
        to.push_back(h), to.push_back(c);
        break;
      }
      case 8: to.push_back(net_.embed(numbers(random_, kWords, rows))); break;
      case 9: losses_.push_back(esp::softmax_cross_entropy(net_.scores(x), numbers(random_, 3, rows))); break;
      case 10: losses_.push_back(esp::sum(esp::square(x))); break;
      case 11: list(1).push_back(esp::mean(x, 0, true)); break;
      case 12: to.push_back(esp::where(esp::greater(x, y), x, y)); break;
      case 13: {  // another matrix for each node
        const Variable square = esp::matmul(esp::transpose(esp::tanh(x)), esp::tanh(y));
        to.push_back(esp::tanh(esp::matmul(z, square)));
        break;
      }
      case 14:
        if (rows < most) list(rows + 1).push_back(esp::concat({x, one(1)}, 0));
        break;
      case 15:
        if (rows > 1) list(rows - 1).push_back(esp::slice(x, 0, 1, rows));
        break;
      case 16: to.push_back(net_.norm(x)); break;
      case 17: to.push_back(x + one(1)); break;  // one row for all
      case 18: to.push_back(x - esp::unsqueeze(esp::max(y, 1), 1)); break;
      case 19: {  // two outputs of one node
        const auto [least, where] = esp::sort(x, 1);
        to.push_back(least * esp::cast(where, esp::float32) * 0.1);
        break;
      }
      default: to.push_back(esp::dropout(x, 0.25));
    }
  }

  const Net& net_;
  std::mt19937 random_;
  std::vector<Variable> lists_[most], losses_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(deferred_rows)

BOOST_AUTO_TEST_CASE(random_programs_equal_eager_ones) {
  for (unsigned seed = 0; seed < 60; ++seed) BOOST_TEST_CONTEXT("program " << seed) {
      esp::seed(seed);
      Net net;
      const auto program = [&] {
        esp::seed(seed);
        return Program(net, seed).loss();
      };
      check_equal_to_eager(net, program);
      check_equal_to_eager(net, program, {.policy = esp::BatchPolicy::depth});
    }
}

BOOST_AUTO_TEST_CASE(sentences_of_different_lengths_are_one_product) {
  esp::seed(1);
  Net net;
  const auto loss = [&] {
    std::mt19937 random(7);
    std::vector<Variable> losses;
    for (const int64_t length : {3, 1, 5, 2, 3, 7}) {
      const Variable h = esp::tanh(net.a(net.embed(numbers(random, kWords, length))));
      losses.push_back(esp::sum(net.scores(h)));
    }
    return esp::sum(esp::stack(losses));
  };
  {
    const esp::Deferred deferred;
    (void)loss().item();
    const auto one_of_six = std::pair<int, int64_t>(1, 6);
    BOOST_TEST((batches_of("look_up") == one_of_six));
    BOOST_TEST((batches_of("sum_of_products") == one_of_six));
    BOOST_TEST((batches_of("tanh") == one_of_six));
    BOOST_TEST((batches_of("matmul") == one_of_six));
    for (const auto& batch : esp::last_evaluation().batches)
      if (batch.op == "tanh" || batch.op == "matmul") BOOST_TEST(batch.gathered == 0);  // read in place
  }
  check_equal_to_eager(net, [&] { return loss() + of_all(net); });
}

BOOST_AUTO_TEST_CASE(rows_are_read_by_later_evaluations) {
  esp::seed(2);
  Net net;
  const auto loss = [&](bool between) {
    std::vector<Variable> h, losses;
    for (const int64_t rows : {2, 3, 1}) h.push_back(net.a(Variable(esp::ones({rows, kWidth}) * 0.5f)));
    if (between)
      for (const Variable& x : h) (void)x.value();
    for (const Variable& x : h) losses.push_back(esp::sum(esp::square(net.b(x))));
    losses.push_back(esp::sum(h[1]));
    losses.push_back(of_all(net));
    return esp::sum(esp::stack(losses));
  };
  check_equal_to_eager(net, [&] { return loss(false); });
  check_equal_to_eager(net, [&] { return loss(true); });
}

BOOST_AUTO_TEST_CASE(gradients_of_what_has_several_rows) {
  esp::seed(3);
  Net net;
  std::vector<std::vector<double>> eager, deferred;
  const auto collect = [&](std::vector<std::vector<double>>& list) {
    std::vector<Variable> h, losses;
    for (const int64_t rows : {2, 3, 1}) h.push_back(esp::tanh(net.a(Variable(esp::ones({rows, kWidth})))));
    for (const Variable& x : h) losses.push_back(esp::sum(esp::square(net.b(x))));
    const Variable root = esp::sum(esp::stack(losses));
    for (const Variable& x : h) {
      list.push_back(elements(root.gradient(x)));
      list.push_back(
          elements(esp::sum(esp::square(root.gradient(x))).gradient(net.b.parameters()[0].second)));
    }
  };
  collect(eager);
  {
    const esp::Deferred scope;
    collect(deferred);
  }
  BOOST_REQUIRE(eager.size() == deferred.size());
  for (size_t i = 0; i < eager.size(); ++i) check_near(deferred[i], eager[i]);
}

/// The numbers of rows may differ where there are no columns, of vectors, and of values of rank 3 or 16 bits.
BOOST_AUTO_TEST_CASE(rows_of_every_form) {
  const auto run = [](const esp::Shape& row, esp::DType dtype, bool wait) {
    std::optional<esp::Deferred> waits;
    if (wait) waits.emplace();
    const Variable p = esp::parameter(esp::full(row, 0.5, dtype));
    std::vector<Variable> losses;
    for (const int64_t rows : {2, 2, 3, 1, 2}) {
      esp::Dims dims{rows};
      dims.append(row.begin(), row.end());
      const Variable x =
          esp::tanh(Variable(esp::full(esp::Shape(dims), 0.1 * static_cast<double>(rows), dtype)) * p);
      losses.push_back(esp::cast(esp::sum(x), esp::float32));
      if (row.rank() > 0) losses.push_back(esp::cast(esp::sum(esp::square(esp::sum(x, -1))), esp::float32));
    }
    const Variable loss = esp::sum(esp::stack(losses));
    std::vector<std::vector<double>> results{elements(loss), elements(loss.gradient(p))};
    if (wait && row.elements() > 0) BOOST_TEST(batches_of("tanh").second == 5);
    return results;
  };
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::bfloat16})
    for (const esp::Shape& row :
         {esp::Shape{}, esp::Shape{4}, esp::Shape{0}, esp::Shape{3, 2}, esp::Shape{3, 0}})
      BOOST_TEST_CONTEXT(row.str() << ' ' << esp::name(dtype)) {
        const auto eager = run(row, dtype, false), deferred = run(row, dtype, true);
        for (size_t i = 0; i < eager.size(); ++i)
          check_near(deferred[i], eager[i], esp::is_half(dtype) ? 0.02 : 1e-5);
      }
}

/// Rows are gathered where they are few.
BOOST_AUTO_TEST_CASE(long_vectors_are_computed_one_by_one) {
  const esp::Deferred deferred;
  std::vector<Variable> sums;
  for (const int64_t length : {50'000, 50'001})
    sums.push_back(esp::sum(esp::exp(Variable(esp::zeros({length})))));
  BOOST_TEST((sums[0] + sums[1]).item() == 100'001);
  BOOST_TEST(batches_of("exp").first == 2);
}

BOOST_AUTO_TEST_CASE(an_error_has_the_line_of_its_node) {
  esp::seed(4);
  Net net;
  const esp::Deferred deferred;
  std::vector<Variable> found;
  found.push_back(esp::gather(net.gain, esp::tensor({0, 1, 2}), 0));
  const std::string line = ":" + std::to_string(__LINE__ + 1);
  found.push_back(esp::gather(net.gain, esp::tensor({0, 4}), 0));
  found.push_back(esp::gather(net.gain, esp::tensor({3}), 0));
  BOOST_CHECK_EXCEPTION((void)esp::sum(esp::concat(found, 0)).value(), esp::IndexError, says({line}));
  BOOST_TEST(difference(found[2], esp::tensor({-1.0f})) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
