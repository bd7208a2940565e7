// Mixed precision in graphs: the nodes that compute in 16 bits, and the positions of casts.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/node.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Precision;
using esp::Variable;

namespace {

Variable leaf(const esp::Shape& shape, uint64_t which, esp::DType dtype = esp::float32) {
  return esp::parameter(numbers(shape, -1, 1, which).to(dtype), "p");
}
esp::Graph lowered(const Variables& results, Precision precision = Precision::bfloat16) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  (void)esp::lower_precision(graph, precision);
  esp::verify(graph, "precision");
  return graph;
}
/// The types in which the nodes with this name compute.
std::vector<std::string> dtypes(const esp::Graph& graph, std::string_view name) {
  std::vector<std::string> found;
  for (const esp::GraphNode& n : graph.nodes)
    if (n.op->name() == name) found.emplace_back(esp::name(n.outputs[0].dtype));
  return found;
}
size_t casts(const esp::Graph& graph) { return dtypes(graph, "cast").size(); }
using Names = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(lowering)

BOOST_AUTO_TEST_CASE(types_that_were_chosen_stay) {
  for (const esp::DType dtype : {esp::float64, esp::float16})
    for (const bool transposed : {false, true}) {
      const Variable a = leaf({4, 4}, 1, dtype), b = leaf({4, 4}, 2, dtype);
      esp::Graph graph = esp::freeze({esp::matmul(transposed ? esp::transpose(a) : a, b) + b}, {}, {}, false);
      BOOST_TEST(!esp::lower_precision(graph, Precision::bfloat16), graph.str());
    }
}

BOOST_AUTO_TEST_CASE(what_comes_along_with_a_product) {
  const Variable x = leaf({4, 3}, 1), w = leaf({3, 5}, 2), bias = leaf({5}, 3), product = esp::matmul(x, w),
                 state = esp::state(numbers({5}, -1, 1, 4).to(esp::float32));
  BOOST_TEST(dtypes(lowered({product + bias}), "add") == Names{"bfloat16"});
  BOOST_TEST(dtypes(lowered({product + esp::reshape(bias, {1, 5})}), "add") == Names{"bfloat16"});
  BOOST_TEST(dtypes(lowered({product + state}), "add") == Names{"float32"});
  BOOST_TEST(dtypes(lowered({product + esp::reshape(state, {1, 5})}), "add") == Names{"float32"});
  BOOST_TEST(dtypes(lowered({product + esp::exp(bias)}), "add") == Names{"float32"});
  BOOST_TEST(dtypes(lowered({bias + bias}), "add") == Names{"float32"});
}

BOOST_AUTO_TEST_CASE(numbers_that_fit_come_along) {
  const Variable product = esp::matmul(leaf({4, 3}, 1), leaf({3, 5}, 2));
  const auto of = [&](double factor, Precision precision) {
    return dtypes(lowered({product * factor}, precision), "multiply").at(0);
  };
  BOOST_TEST(of(0.5, Precision::float16) == "float16");
  BOOST_TEST(of(1e6, Precision::float16) == "float32");
  BOOST_TEST(of(-1e6, Precision::float16) == "float32");
  BOOST_TEST(of(1e-9, Precision::float16) == "float32");
  BOOST_TEST(of(0.0, Precision::float16) == "float16");
  BOOST_TEST(of(INFINITY, Precision::float16) == "float16");
  BOOST_TEST(of(1e6, Precision::bfloat16) == "bfloat16");
  BOOST_TEST(of(1e-9, Precision::bfloat16) == "bfloat16");
}

BOOST_AUTO_TEST_CASE(casts_stand_below_views_and_are_shared) {
  const Variable x = leaf({4, 6}, 1), w = leaf({6, 5}, 2), v = leaf({4, 5}, 3);
  // One cast of x for two products that read it under two shapes, and one for each weight.
  const Variable both = esp::sum(esp::matmul(x, w)) + esp::sum(esp::matmul(esp::transpose(x), v));
  const esp::Graph graph = lowered({both});
  BOOST_TEST(std::ranges::count(dtypes(graph, "cast"), "bfloat16") == 3, graph.str());
  const Variable reshaped = esp::matmul(esp::reshape(x, {6, 4}), v) + esp::matmul(esp::reshape(x, {6, 4}), v);
  BOOST_TEST(std::ranges::count(dtypes(lowered({reshaped}), "cast"), "bfloat16") <= 3);
  // Of a slice only the slice is cast.
  const Variable large = leaf({100, 6}, 4);
  for (const esp::GraphNode& n : lowered({esp::matmul(esp::slice(large, 0, 3, 5), w)}).nodes)
    if (n.op->name() == "cast") BOOST_TEST(n.outputs[0].shape.elements() <= 30);
  BOOST_TEST(casts(lowered({esp::matmul(x, w), esp::matmul(x, esp::exp(w))})) ==
             5);  // x, w, exp(w) and both results
}

BOOST_AUTO_TEST_CASE(one_number_seen_many_times_stays_one) {
  const Variable many(esp::broadcast_to(esp::tensor({{0.5f}}), {300, 200}).value());
  const esp::Graph graph = lowered({esp::matmul(many, leaf({200, 3}, 1))});
  size_t constants = 0;
  for (const esp::GraphNode& n : graph.nodes) {
    if (!n.is_constant() || n.constant->shape().elements() < 2) continue;
    ++constants;
    BOOST_TEST((n.constant->dtype() == esp::bfloat16));
    for (const int64_t stride : n.constant->strides()) BOOST_TEST(stride == 0);
  }
  BOOST_TEST(constants == 1u, graph.str());
}

BOOST_AUTO_TEST_SUITE_END()
