// Edge cases of fused kernels, in plans compared with eager values: rows of several lengths, operands under
// several shapes, folds that end within a tile, weights of rows, large integers.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/node.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "random_kernels.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

Variable leaf(const esp::Shape& shape, uint64_t which) {
  return esp::parameter(numbers(shape, -1.5, 1.5, which), "p");
}

esp::Tensor by_plan(const Variable& root, const std::vector<std::string>& without = {}) {
  const esp::Executor executor = root.get_executor({.mode = esp::Mode::inference, .without = without});
  executor.execute({.progress = false});
  return executor.value();
}

/// Compares plans on one and two threads with eager values.
void check_same(const Variable& root, double most = 1e-12) {
  const esp::Tensor expected = root.value();
  const int before = esp::num_threads();
  for (const int threads : {1, 2}) {
    esp::set_num_threads(threads);
    BOOST_TEST(difference(by_plan(root), expected) < most);
  }
  esp::set_num_threads(before);
}

/// The graph after fusion.
esp::Graph fused(const Variables& results) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  esp::simplify(graph);
  esp::common_subexpressions(graph);
  esp::fuse_cross_entropy(graph);
  esp::fuse_pointwise(graph);
  esp::verify(graph, "fuse_pointwise");
  return graph;
}
int64_t count(const esp::Graph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes, [&](const esp::GraphNode& n) { return n.op->name() == name; });
}
int64_t kernels(const Variables& results) { return count(fused(results), "fused"); }

esp::Tensor labels(std::initializer_list<int32_t> list) { return esp::tensor(list, esp::int32); }

}  // namespace

BOOST_AUTO_TEST_SUITE(fused_kernels)

BOOST_AUTO_TEST_CASE(random_trees_agree_with_eager) {
  for (uint32_t seed = 0; seed < 160; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      check_same(KernelTree(seed).root, 1e-10);
    }
}

BOOST_AUTO_TEST_CASE(random_integers_are_exact) {
  for (uint32_t seed = 0; seed < 60; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      const IntegerTree tree(seed);
      const esp::Tensor planned = by_plan(tree.root), expected = tree.root.value().contiguous_copy();
      BOOST_TEST_REQUIRE((planned.spec() == expected.spec()));
      BOOST_TEST(std::ranges::equal(planned.span<int64_t>(), expected.span<int64_t>()));
    }
}

BOOST_AUTO_TEST_CASE(integers_that_no_double_has) {
  const Variable x = esp::state(esp::tensor({3, -4, 5, 0}, esp::int64));
  for (const int64_t big : {(int64_t{1} << 53) + 1, -(int64_t{1} << 53) - 1, int64_t{1} << 62}) {
    const Variable y = (x + big) * x + x;
    const esp::Tensor planned = by_plan(y);
    for (int64_t i = 0; i < 4; ++i) {
      const auto element = static_cast<uint64_t>(x.value().at<int64_t>({i}));
      BOOST_TEST(planned.at<int64_t>({i}) ==
                 static_cast<int64_t>((element + static_cast<uint64_t>(big)) * element + element));
    }
  }
  // Small constants are part of the kernel, large ones are read.
  BOOST_TEST(fused({(x + int64_t{100}) * x}).nodes.size() == 2u);
  BOOST_TEST(count(fused({(x + ((int64_t{1} << 53) + 1)) * x}), "constant") == 1);
  BOOST_TEST(count(fused({(x - ((int64_t{1} << 53) + 1)) * x}), "constant") == 1);
  BOOST_TEST(count(fused({(x + (-(int64_t{1} << 53) - 1)) * x}), "constant") == 1);
}

BOOST_AUTO_TEST_CASE(rows_of_several_lengths) {
  const Variable x = leaf({4, 6}, 1), large = leaf({40, 60}, 2);
  check_same(esp::softmax(esp::reshape(esp::softmax(x), {8, 3})));
  check_same(esp::softmax(esp::reshape(esp::softmax(large), {48, 50})));
  check_same(esp::reshape(large - esp::mean(large, -1, true), {60, 40}) *
             esp::max(esp::reshape(large, {60, 40}), -1, true));
  // A value per row of one length, and rows of another length.
  const Variable row = esp::sum(large, -1, true);
  check_same(esp::reshape(large * row, {80, 30}) - esp::mean(esp::reshape(large, {80, 30}), -1, true));
  BOOST_TEST(kernels({esp::softmax(esp::reshape(esp::softmax(x), {8, 3}))}) == 0);  // not fused
}

BOOST_AUTO_TEST_CASE(one_operand_under_two_shapes) {
  const Variable x = leaf({24}, 1), b = leaf({2, 1}, 2);
  const Variable once = esp::exp(esp::reshape(x, {2, 12}) * b * 0.5);
  const Variable both = esp::exp(esp::reshape(once, {4, 2, 3})) * b;
  check_same(both);
  BOOST_TEST(kernels({both}) == 1);
  // The same for rows: a column of [6, 4] and of [4, 6].
  const Variable y = leaf({6, 4}, 3), column = leaf({6, 1}, 4), square = leaf({6, 6}, 5);
  check_same(esp::tanh(esp::reshape(y * column, {4, 6})) - esp::sum(square * column) * 0.01);
  check_same(esp::tanh(square * column) * esp::transpose(column) + esp::tanh(square) * column);
  // One operand, read per row and per element.
  const Variable flat = leaf({6}, 6);
  check_same(esp::softmax(square * flat) * esp::sum(square, -1, true) * esp::reshape(flat, {6, 1}));
  check_same((esp::sum(square, -1) * flat) + esp::sum(esp::tanh(square * flat), -1));
}

BOOST_AUTO_TEST_CASE(columns_over_several_tiles) {
  for (const esp::Shape& shape : {esp::Shape{10, 7, 50}, {50, 31, 40}, {3, 5000}, {2, 3, 1000}, {700, 7}}) {
    const Variable x = leaf(shape, 1);
    check_same(esp::sum(esp::softmax(x), 0));
    check_same(esp::mean(esp::softmax(x) * x, 0));
    check_same(esp::sum(esp::tanh(x) * 2.0, 0) + esp::sum(esp::tanh(x) * x, 0));
    if (shape.rank() == 3) check_same(esp::sum(esp::softmax(x) * x, esp::Axes({0, 1})));
    if (shape.rank() == 3) check_same(esp::sum(esp::tanh(x) * x, esp::Axes({0, 1})));
    check_same(esp::mean(esp::softmax(x) * x));
  }
}

BOOST_AUTO_TEST_CASE(one_element_of_a_value_beside_all_of_it) {
  const Variable x = leaf({240}, 1), y = esp::tanh(x), rows = leaf({60, 8}, 2), z = esp::tanh(rows);
  for (const int64_t at : {0, 3, 239}) check_same(y * esp::slice(y, 0, at, at + 1) + y);
  check_same(z * esp::slice(z, 1, 0, 1) + esp::sum(z, -1, true));
  check_same(z * esp::slice(esp::sum(z, -1, true), 0, 2, 3) - esp::slice(z, 0, 5, 6));
  check_same(esp::softmax(z) * esp::sum(esp::softmax(z), 0));
}

BOOST_AUTO_TEST_CASE(columns_that_do_not_lie_side_by_side) {
  // Values per row from slices of a wider matrix, in one tile of many rows and in several tiles.
  for (const int64_t rows : {60, 1500}) {
    const Variable x = leaf({rows, 8}, 1), wide = leaf({rows, 3}, 2), turned = leaf({3, rows}, 3);
    const Variable part = esp::slice(wide, 1, 1, 2), other = esp::transpose(esp::slice(turned, 0, 2, 3));
    check_same(x * esp::tanh(esp::sum(x, -1, true) * part));
    check_same(x - (esp::max(x, -1, true) + part) * other);
    check_same(esp::softmax(x) * esp::exp(esp::mean(x, -1, true) - part) + other);
  }
}

BOOST_AUTO_TEST_CASE(numbers_for_all_elements) {
  const Variable x = leaf({6, 40}, 1), s = leaf({}, 2), t = leaf({1}, 3), u = leaf({1, 1}, 4),
                 e = esp::exp(s);
  check_same(x * esp::add_all({s, s * 2.0, e, esp::tanh(s)}) + esp::add_all({t, t * t, esp::exp(t)}));
  check_same(esp::where(esp::greater(s, 0.1), x, x * e) + u);
  BOOST_TEST(kernels({x * (e + 1.0)}) == 1);
  // A value that two kernels read is computed once, by a separate kernel.
  const esp::Graph graph = fused({esp::tanh(x) * e, esp::tanh(leaf({7, 3}, 5)) * e});
  BOOST_TEST(count(graph, "exp") == 1);
  BOOST_TEST(count(graph, "fused") == 2);
}

BOOST_AUTO_TEST_CASE(limits_of_a_kernel) {
  Variable chain = leaf({8, 8}, 1);
  for (int i = 0; i < 100; ++i) chain = esp::tanh(chain + 0.1);
  BOOST_TEST(kernels({chain}) == 4);  // of at most 64 instructions
  check_same(chain);
  Variable sum = leaf({8, 8}, 2);
  for (uint64_t i = 0; i < 50; ++i) sum = sum + leaf({8, 8}, i);
  BOOST_TEST(kernels({sum}) == 2);  // of at most 32 inputs
  check_same(sum);
  const Variable wide = leaf({2, 20000}, 3), row = leaf({2, 8192}, 4);
  BOOST_TEST(kernels({wide - esp::mean(wide, -1, true)}) == 0);
  BOOST_TEST(kernels({esp::softmax(wide) * 2.0}) == 0);
  BOOST_TEST(kernels({row - esp::mean(row, -1, true)}) == 1);
  check_same(row - esp::mean(row, -1, true));
}

BOOST_AUTO_TEST_CASE(values_without_elements) {
  for (const esp::Shape& shape : {esp::Shape{0, 5}, {5, 0}, {0}}) {
    const Variable none = esp::parameter(esp::zeros(shape, esp::float64));
    for (const esp::Axes& axes : {esp::Axes({-1}), esp::Axes({0}), esp::Axes()})
      check_same(esp::sum(esp::tanh(none), axes));
    check_same(esp::tanh(none) * 2.0);
  }
}

BOOST_AUTO_TEST_CASE(large_results_go_past_the_caches) {
  for (const esp::Shape& shape : {esp::Shape{4194305}, {4099, 1027}}) {
    const Variable x = esp::parameter(esp::full(shape, 0.5, esp::float64)), y = esp::relu(x + 0.25) * 2.0;
    const esp::Tensor all = by_plan(y);
    BOOST_TEST(difference(esp::min(Variable(all)).value(), esp::tensor(1.5, esp::float64)) == 0);
    BOOST_TEST(difference(esp::max(Variable(all)).value(), esp::tensor(1.5, esp::float64)) == 0);
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_loss_have_weights) {
  for (const int64_t classes : {7, 600}) {
    const Variable x = leaf({5, classes}, 1), weights = leaf({5}, 2);
    const Variable rows = esp::pick(esp::log_softmax(x), labels({3, 0, 6, 2, 1}));
    const Variable loss = esp::sum(rows * weights), slope = loss.gradient(x);
    BOOST_TEST(count(fused({loss, slope}), "log_softmax_pick_gradient") == 1);
    check_same(esp::sum(esp::square(slope)) + loss);
    check_same(slope);
    check_same(esp::sum(esp::square(loss.gradient(weights))) + loss);
    // The gradient of each row is read by a later op.
    check_same(esp::sum(esp::square(rows) * weights).gradient(x));
  }
}

BOOST_AUTO_TEST_CASE(two_sets_of_labels) {
  const Variable x = leaf({5, 7}, 1), k1 = leaf({5, 7}, 2), k2 = leaf({5, 7}, 3);
  const auto loss = [](const Variable& logits, const esp::Tensor& of_rows) {
    return -esp::mean(esp::pick(esp::log_softmax(logits), of_rows));
  };
  const Variable a = loss(x, labels({3, 0, 6, 2, 1})), b = loss(x, labels({1, 5, 2, 6, 0}));
  check_same(esp::sum(a.gradient(x) * k1) + 3.0 * esp::sum(b.gradient(x) * k2) + a + b);
  const Variable mixed = a * 0.3 + b * 0.7;
  check_same(mixed.gradient(x));
  BOOST_TEST(count(fused({mixed, a.gradient(x), b.gradient(x)}), "log_softmax_pick_gradient") == 2);
  // Labels for two values.
  const Variable y = leaf({5, 7}, 4), c = loss(y, labels({3, 0, 6, 2, 1}));
  const Variable both = a + c;
  check_same(both.gradient(x) * k1 + both.gradient(y) * k2);
}

BOOST_AUTO_TEST_CASE(what_looks_like_the_gradient_of_a_cross_entropy) {
  const Variable x = leaf({5, 5}, 1), z = leaf({5, 5}, 2);
  const esp::Tensor picks = labels({3, 0, 4, 2, 1}), others = labels({0, 1, 2, 3, 3});
  const Variable logs = esp::log_softmax(x), rows = esp::pick(logs, picks), g = leaf({5}, 3);
  const Variable put = esp::put_like(g, picks, x, "pick"), put_others = esp::put_like(g, others, x, "pick");
  const auto gradient_nodes = [&](const Variable& y) {
    check_same(esp::sum(rows) + y);
    return count(fused({rows, y}), "log_softmax_pick_gradient");
  };
  BOOST_TEST(gradient_nodes(put - esp::exp(logs) * esp::sum(put, -1, true)) == 1);
  BOOST_TEST(gradient_nodes(put - esp::sum(put, -1, true) * esp::exp(logs)) == 1);  // factors swapped
  const Variable different[] = {put - esp::exp(logs) * esp::sum(put, 0, true),
                                put - esp::exp(logs) * esp::sum(put, -1),
                                put - esp::exp(logs) * esp::sum(put),
                                put - esp::exp(logs) * esp::sum(put, esp::Axes({0, 1}), true),
                                put - esp::exp(logs) * esp::sum(put_others, -1, true),
                                put_others - esp::exp(logs) * esp::sum(put_others, -1, true),
                                put - esp::exp(z) * esp::sum(put, -1, true),
                                put - esp::exp(esp::log_softmax(z)) * esp::sum(put, -1, true),
                                put - esp::exp(logs) * esp::max(put, -1, true),
                                put - esp::exp(logs) * esp::mean(put, -1, true)};
  for (const Variable& y : different) BOOST_TEST(gradient_nodes(y) == 0, fused({rows, y}).str());
  // No rows or no classes.
  const Variable none = esp::parameter(esp::zeros({0, 5}, esp::float64));
  BOOST_TEST(count(fused({esp::pick(esp::log_softmax(none), esp::zeros({0}, esp::int32))}),
                   "log_softmax_pick") == 0);
}

BOOST_AUTO_TEST_SUITE_END()
