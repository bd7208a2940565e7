// Fusion of kernels into products as epilogues: which are fused, and their values.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/node.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

Variable leaf(const esp::Shape& shape, uint64_t which, esp::DType dtype = esp::float64) {
  return esp::parameter(numbers(shape, -1, 1, which).to(dtype), "p");
}
int64_t count(const esp::Graph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes, [&](const esp::GraphNode& n) { return n.op->name() == name; });
}

/// The number of products with an epilogue; checks plans on one and two threads against the tree.
int64_t epilogues(const Variables& results) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  for (const auto pass : {esp::simplify, esp::common_subexpressions, esp::fuse_pointwise, esp::fuse_matmul}) {
    (void)pass(graph, {});
    esp::verify(graph, "a pass");
  }
  const int before = esp::num_threads();
  for (const int threads : {1, 2}) {
    esp::set_num_threads(threads);
    for (const Variable& y : results) {
      const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
      executor.execute({.progress = false});
      BOOST_TEST(difference(executor.value(), y.value()) < (y.dtype() == esp::float32 ? 1e-4 : 1e-12),
                 graph.str());
    }
  }
  esp::set_num_threads(before);
  return count(graph, "matmul_epilogue");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(epilogues_of_products)

BOOST_AUTO_TEST_CASE(which_kernels_are_taken_in) {
  const Variable a = leaf({8, 6}, 1), b = leaf({6, 4}, 2), bias = leaf({4}, 3), full = leaf({8, 4}, 4),
                 column = leaf({8, 1}, 5), product = esp::matmul(a, b);
  BOOST_TEST(epilogues({product + bias}) == 1);  // a single addition is fused, too
  BOOST_TEST(epilogues({bias + product}) == 1);
  BOOST_TEST(epilogues({esp::tanh(product * full + column) * bias}) == 1);
  BOOST_TEST(epilogues({esp::softmax(product * 0.5)}) == 1);
  BOOST_TEST(epilogues({esp::tanh(product) - esp::mean(product, -1, true)}) == 1);
  BOOST_TEST(epilogues({product * product + product}) == 1);
  // Two products in one kernel: it is fused into one of them.
  BOOST_TEST(epilogues({esp::tanh(product + esp::matmul(a, b * 2.0))}) == 1);
  // Single kernels other than pointwise ones are not fused.
  BOOST_TEST(epilogues({esp::softmax(product)}) == 0);
  BOOST_TEST(epilogues({esp::sum(product, -1)}) == 0);
  BOOST_TEST(epilogues({product}) == 0);
  // Batches of products.
  const Variable batch = esp::matmul(leaf({3, 8, 6}, 6), b);
  BOOST_TEST(epilogues({esp::relu(batch + bias)}) == 1);
  BOOST_TEST(epilogues({esp::softmax(batch * 0.5 + bias)}) == 1);
}

BOOST_AUTO_TEST_CASE(products_that_something_else_reads_stay) {
  const Variable a = leaf({8, 6}, 1), b = leaf({6, 4}, 2), bias = leaf({4}, 3), product = esp::matmul(a, b);
  BOOST_TEST(epilogues({product + bias, product}) == 0);
  BOOST_TEST(epilogues({product + bias, esp::matmul(product, esp::transpose(b))}) == 0);
  const Variable seen = esp::reshape(product, {4, 8});
  BOOST_TEST(epilogues({esp::tanh(seen) + 1.0, esp::matmul(seen, a)}) == 0);
  BOOST_TEST(epilogues({esp::tanh(seen) + 1.0, seen}) == 0);
  BOOST_TEST(epilogues({esp::tanh(seen) + 1.0}) == 1);
}

BOOST_AUTO_TEST_CASE(products_that_are_seen_in_another_order_stay) {
  const Variable a = leaf({8, 6}, 1), b = leaf({6, 4}, 2), full = leaf({8, 4}, 4), turned = leaf({4, 8}, 5),
                 product = esp::matmul(a, b);
  BOOST_TEST(epilogues({esp::tanh(esp::reshape(product, {2, 16})) * 2.0}) == 1);
  BOOST_TEST(epilogues({esp::tanh(esp::transpose(product)) * turned}) == 0);
  BOOST_TEST(epilogues({esp::tanh(product) * esp::reshape(esp::transpose(turned), {8, 4})}) == 1);
  BOOST_TEST(epilogues({esp::tanh(esp::slice(product, 0, 0, 4)) * 2.0}) == 0);
  BOOST_TEST(epilogues({esp::tanh(esp::slice(product, 0, 0, 1) * full) + full}) == 0);
  BOOST_TEST(epilogues({esp::tanh(esp::slice(product, 0, 2, 3) * full) + full}) == 0);
  // Broadcast: the kernel has more elements than the product.
  BOOST_TEST(epilogues({esp::tanh(esp::matmul(leaf({1, 6}, 6), b) + full) * 2.0}) == 0);
  BOOST_TEST(epilogues({esp::tanh(esp::matmul(a, leaf({6, 1}, 7)) + full) * 2.0}) == 0);
  BOOST_TEST(epilogues({esp::softmax(full) * esp::matmul(a, leaf({6, 1}, 7))}) == 0);
  BOOST_TEST(epilogues({esp::tanh(esp::matmul(leaf({1, 6}, 6), leaf({6, 1}, 7)) + full) * 2.0}) == 0);
}

BOOST_AUTO_TEST_CASE(operands_do_not_live_longer_than_that_is_worth) {
  const Variable a = leaf({8, 100}, 1), b = leaf({100, 4}, 2), bias = leaf({4}, 3), narrow = leaf({8, 4}, 4);
  BOOST_TEST(epilogues({esp::matmul(a, b) + bias}) == 1);  // leaves are alive anyway
  BOOST_TEST(epilogues({esp::matmul(esp::transpose(leaf({100, 8}, 5)), b) + bias}) == 1);
  BOOST_TEST(epilogues({esp::matmul(esp::exp(a), b) + bias}) == 0);
  BOOST_TEST(epilogues({esp::matmul(esp::exp(narrow), leaf({4, 4}, 6)) + bias}) == 1);
  // A value that is alive for another reader costs no memory.
  const Variable large = esp::exp(a);
  BOOST_TEST(epilogues({esp::matmul(large, b) + bias, esp::matmul(esp::transpose(large), narrow)}) == 1);
}

BOOST_AUTO_TEST_CASE(which_operands_a_result_may_lie_over) {
  const Variable a = leaf({8, 6}, 1), b = leaf({6, 4}, 2), full = leaf({8, 4}, 3), column = leaf({8, 1}, 4);
  const Variable u = esp::softmax(esp::matmul(a, b) * 0.5), v = u * esp::tanh(column) + full;
  esp::Graph graph = esp::freeze({u, v}, {}, {}, false);
  (void)esp::fuse_pointwise(graph);
  BOOST_REQUIRE(esp::fuse_matmul(graph));
  const auto node =
      std::ranges::find_if(graph.nodes, [](const auto& n) { return n.op->name() == "matmul_epilogue"; });
  BOOST_REQUIRE((node != graph.nodes.end()));
  BOOST_REQUIRE(node->inputs.size() == 4u);
  BOOST_REQUIRE(node->outputs.size() == 2u);
  for (size_t k = 0; k < 4; ++k) {
    const bool is_full = graph.nodes[node->inputs[k].node].leaf.node() == full.node();
    int over = 0;  // one of the results holds the product, which is written before any operand is read
    for (size_t output = 0; output < 2; ++output) over += node->op->can_write_over(output, k);
    BOOST_TEST(over == is_full, k);
  }
}

BOOST_AUTO_TEST_CASE(sizes_at_the_edges) {
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const auto check = [&](int64_t m, int64_t k, int64_t n, int64_t batch = 0) {
      const esp::Shape left = batch ? esp::Shape{batch, m, k} : esp::Shape{m, k};
      const Variable a = leaf(left, 1, dtype), b = leaf({k, n}, 2, dtype), bias = leaf({n}, 3, dtype);
      BOOST_TEST_CONTEXT(m << " x " << k << " x " << n << " batch " << batch) {
        (void)epilogues({esp::tanh(esp::matmul(a, b) + bias) * 0.5});
        (void)epilogues({esp::relu(esp::matmul(a, b) + bias)});
        (void)epilogues({esp::softmax(esp::matmul(a, b) + bias)});
        (void)epilogues({esp::matmul(a, b) * bias});
        (void)epilogues({esp::sum(esp::square(esp::matmul(a, b) - bias), 0)});
        (void)epilogues({esp::cast(esp::greater(esp::matmul(a, b), bias), dtype) + bias});
      }
    };
    for (const int64_t m : {1, 17, 300}) check(m, 5, 33);
    check(37, 0, 3);    // k = 0
    check(37, 1, 700);  // a tile has few rows
    check(5, 3, 3000);  // rows longer than a tile
    check(300, 80, 40);
    (void)epilogues(
        {esp::tanh(esp::matmul(esp::transpose(leaf({6, 700}, 1, dtype)), leaf({6, 64}, 2, dtype)) +
                   leaf({64}, 3, dtype))});  // several ranges of columns of the operand
    check(7, 6, 33, 5);                      // rows of a batch that do not fill tiles
    check(64, 8, 32, 4);
    check(1, 4, 600, 3);
  }
}

BOOST_AUTO_TEST_CASE(programs_that_look_like_a_bias_with_relu) {
  const esp::DType f = esp::float32;
  const Variable a = leaf({128, 64}, 1, f), b = leaf({64, 128}, 2, f), product = esp::matmul(a, b),
                 bias = leaf({128}, 3, f), column = leaf({128, 1}, 4, f), one = leaf({1}, 5, f),
                 full = leaf({128, 128}, 6, f), wide = leaf({128, 2}, 7, f);
  const Variable all[] = {product + bias,
                          bias + product,
                          esp::relu(product + bias),
                          esp::tanh(product + bias),
                          product - bias,
                          product * bias,
                          esp::relu(product - bias),
                          esp::relu(product) + bias,
                          product + column,
                          esp::relu(product + column),
                          product + one,
                          product + full,
                          product + product,
                          esp::relu(product + product),
                          product + esp::transpose(column),
                          product + esp::slice(esp::transpose(wide), 0, 1, 2),
                          product + esp::reshape(esp::slice(wide, 1, 0, 1), {128}),
                          esp::relu(product + bias) + bias,
                          esp::relu(product + bias) * bias,
                          esp::relu(esp::reshape(product, {64, 256}) + leaf({256}, 8, f)),
                          esp::relu(esp::reshape(product, {256, 64}) + leaf({64}, 9, f))};
  for (size_t i = 0; i < std::size(all); ++i) BOOST_TEST(epilogues({all[i]}) == 1, i);
  (void)epilogues({product + bias, esp::relu(product + bias)});
}

BOOST_AUTO_TEST_SUITE_END()
