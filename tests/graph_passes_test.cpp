// Edge cases of passes: near misses of their patterns, and graphs in which positions change.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/custom_op.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/passes/rematerialization.h"
#include "espalier/executor/sharding/gradient_bucket.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Graph;
using esp::GraphNode;
using esp::Variable;

namespace {

Graph graph_of(const Variables& results) {
  Graph graph = esp::freeze(results, {}, {}, false);
  esp::verify(graph, "freeze");
  return graph;
}
Variable leaf(const esp::Shape& shape, uint64_t which) {
  return esp::parameter(numbers(shape, -1, 1, which), "p");
}
int64_t count(const Graph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes, [&](const GraphNode& n) { return n.op->name() == name; });
}
esp::Tensor by_plan(const Variable& root, const std::vector<std::string>& without = {}) {
  const esp::Executor executor = root.get_executor({.mode = esp::Mode::inference, .without = without});
  executor.execute({.progress = false});
  return executor.value();
}

/// The pass does not change the graph.
void check_left(bool (*pass)(Graph&, const esp::CompileOptions&), const Variables& results) {
  Graph graph = graph_of(results);
  const std::string text = graph.str();
  BOOST_TEST(!pass(graph, {}), text);
  BOOST_TEST(graph.str() == text);
}
/// The pass leaves `nodes` nodes and does not change values.
void check_nodes(bool (*pass)(Graph&, const esp::CompileOptions&), const Variables& results, size_t nodes) {
  Graph graph = graph_of(results);
  const std::string text = graph.str();
  BOOST_TEST(pass(graph, {}), text);
  esp::verify(graph, "the pass");
  BOOST_TEST(graph.nodes.size() == nodes, text << "became\n" << graph.str());
  BOOST_TEST(!pass(graph, {}));
  for (const Variable& result : results) BOOST_TEST(difference(by_plan(result), result.value()) < 1e-12);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(graph_passes)

BOOST_AUTO_TEST_CASE(which_constants_are_one) {
  const Variable x = leaf({2, 3}, 1), y = leaf({3, 2}, 2);
  const auto two = [&](const Variable& a, const Variable& b) {
    return Variables{esp::exp(x) + esp::sum(esp::cast(a, esp::float64)),
                     esp::exp(y) - esp::sum(esp::cast(b, esp::float64))};
  };
  const esp::Tensor ones = esp::ones({2, 3}, esp::float64), turned = esp::ones({3, 2}, esp::float64),
                    large = esp::ones({129}, esp::float64);
  check_left(esp::common_subexpressions,
             two(esp::zeros({2, 3}, esp::float32), esp::zeros({2, 3}, esp::int32)));
  check_left(esp::common_subexpressions, two(ones, turned));
  check_left(esp::common_subexpressions, two(esp::tensor({1.0, 2.0}), esp::tensor({2.0, 1.0})));
  check_left(esp::common_subexpressions, {x * large.slice(0, 0, 3), esp::sum(Variable(large)) + x});
  check_nodes(esp::common_subexpressions, {x * ones, x - ones.clone()}, 4);
  // Large constants are not compared.
  check_left(esp::common_subexpressions, {leaf({129}, 3) * large, leaf({129}, 4) - large.clone()});
  check_nodes(esp::common_subexpressions,
              {leaf({128}, 3) * large.slice(0, 0, 128), leaf({128}, 4) - large.slice(0, 1, 129)}, 5);
  // Slices of one tensor are compared by elements, not by storage.
  const esp::Tensor table = numbers({4, 3});
  check_left(esp::common_subexpressions, {x * table.slice(0, 0, 1), x - table.slice(0, 1, 2)});
  check_nodes(esp::common_subexpressions, {x * table.slice(0, 0, 1), x - table.slice(0, 0, 1).clone()}, 4);
}

BOOST_AUTO_TEST_CASE(results_and_readers_follow_what_is_merged) {
  const Variable x = leaf({2, 3}, 1);
  check_nodes(esp::common_subexpressions, {esp::exp(x), esp::exp(x)}, 2);
  check_nodes(esp::common_subexpressions, {esp::tanh(esp::exp(x)), esp::tanh(esp::exp(x)) * 2.0}, 5);
  // Feeds, random nodes and user-defined ops are not merged.
  const auto twice = [] {
    return esp::custom_op(
        {.name = "twice", .forward = [](const auto& in) { return (Variable(in[0]) * 2.0).value(); }});
  };
  const auto one = twice(), other = twice();
  check_left(esp::common_subexpressions, {one({x}), other({x})});
  const Variable a = esp::placeholder("a", {3}), b = esp::placeholder("a", {3});
  check_left(esp::common_subexpressions, {esp::exp(a), esp::exp(b)});
}

BOOST_AUTO_TEST_CASE(outputs_of_one_node_are_told_apart) {
  // Equal ops that read different outputs of a node.
  const Variable x = leaf({4, 5}, 1);
  Graph graph = graph_of({esp::pick(esp::log_softmax(x), esp::tensor({0, 1, 2, 3}, esp::int32))});
  BOOST_TEST(esp::fuse_cross_entropy(graph));
  const uint32_t node = graph.results[0].node;
  const Variable like = leaf({4}, 2), figures = leaf({4, 2}, 3);
  for (const uint32_t k : {0u, 1u}) {
    GraphNode n{esp::exp(like).node()->op_, {{node, k}}, {graph.nodes[node].outputs[k]}, {}, {}, {}, {}};
    graph.results.push_back({static_cast<uint32_t>(graph.nodes.size()), 0});
    graph.nodes.push_back(std::move(n));
  }
  BOOST_TEST(!esp::common_subexpressions(graph));
  esp::verify(graph, "common_subexpressions");
}

BOOST_AUTO_TEST_CASE(what_is_folded) {
  const Variable x = leaf({4, 6}, 1);
  const esp::Tensor c = numbers({4, 6}, 0.5, 1.5, 2), d = numbers({4, 6}, 0.5, 1.5, 3);
  const Variable k(c), l(d);
  check_nodes(esp::fold_constants, {x * (k + l)}, 3);
  check_nodes(esp::fold_constants, {x * esp::reshape(esp::transpose(k), {4, 6})}, 3);
  check_nodes(esp::fold_constants, {x * esp::broadcast_to(esp::sum(k, 1, true), {4, 6})},
              3);                                                          // a view may be large
  check_nodes(esp::fold_constants, {x * esp::ones_like(esp::sum(x))}, 3);  // small, without inputs
  check_left(esp::fold_constants, {x * esp::ones_like(x)});
  check_left(esp::fold_constants, {x * k});
  // Larger than its inputs.
  check_left(esp::fold_constants,
             {esp::sum(x) * esp::matmul(Variable(numbers({40, 1})), Variable(numbers({1, 40})))});
  esp::Graph random = graph_of({esp::dropout(k, 0.5) * x});
  const int64_t masks = count(random, "dropout_mask");
  (void)esp::fold_constants(random);
  BOOST_TEST(count(random, "dropout_mask") == masks);
}

BOOST_AUTO_TEST_CASE(what_is_simplified) {
  const Variable x = leaf({2, 3}, 1);
  const esp::Tensor one = esp::ones({1, 1}, esp::float64);
  const Variable same[] = {x * esp::broadcast_to(Variable(one), {2, 3}),
                           x + esp::zeros({2, 3}, esp::float64).slice(0, 0, 1) * 1.0 * 1.0,
                           x * esp::reshape(Variable(one), {1}), x / one};
  for (const Variable& y : same) {
    Graph graph = graph_of({esp::tanh(y)});
    (void)esp::simplify(graph);
    esp::verify(graph, "simplify");
    BOOST_TEST(difference(by_plan(y), y.value()) == 0);
  }
  BOOST_TEST([&] {
    Graph graph = graph_of({same[0]});
    return esp::simplify(graph) && graph.nodes.size() == 1u;
  }());
  check_nodes(esp::simplify, {x * esp::reshape(Variable(one), {1}), x + 1.0}, 3);
  check_nodes(esp::simplify, {x - esp::broadcast_to(esp::zeros({1, 1}, esp::float64), {2, 3}), x + 1.0}, 3);
  // An empty constant has no fill value.
  const Variable none(esp::zeros({0, 3}, esp::float64)), y = leaf({1, 3}, 2) * none;
  check_left(esp::simplify, {esp::exp(y)});
  // The neutral element would change the shape or the type.
  check_left(esp::simplify, {leaf({1, 3}, 2) * esp::ones({2, 3}, esp::float64)});
  check_left(esp::simplify, {leaf({3}, 2) + esp::broadcast_to(esp::zeros({1, 1}, esp::float64), {1, 3})});
}

BOOST_AUTO_TEST_CASE(shapes_are_told_apart) {
  // Values of several shapes and types of which only the shape is read.
  const Variable x = leaf({2, 3}, 1), y = leaf({3, 2}, 2);
  const Variable a = esp::exp(x), b = esp::exp(y), c = esp::cast(esp::exp(x), esp::float32);
  const Variables results{esp::reshape_like(x, b * 1.0), esp::ones_like(a) * x, esp::ones_like(c),
                          esp::ones_like(b)};
  Graph graph = graph_of(results);
  BOOST_TEST(esp::detach_shapes(graph));
  esp::verify(graph, "detach_shapes");
  BOOST_TEST(count(graph, "shape") == 3, graph.str());
  BOOST_TEST(count(graph, "exp") == 0, graph.str());
  for (size_t k = 0; k < results.size(); ++k)
    BOOST_TEST((graph.spec(graph.results[k]).shape == results[k].shape()));
  // Readers of leaves are not rewritten.
  Graph plain = graph_of({esp::ones_like(x)});
  BOOST_TEST(!esp::detach_shapes(plain));
  BOOST_TEST(count(plain, "shape") == 0);
}

BOOST_AUTO_TEST_CASE(padded_parts_that_others_read_are_not_joined) {
  const Variable a = leaf({2, 3}, 1), b = leaf({2, 3}, 2), like = leaf({4, 3}, 3), wide = leaf({4, 6}, 4);
  const Variable first = esp::pad_like(a, like, 0, 0), second = esp::pad_like(b, like, 0, 2);
  check_nodes(esp::join_slices, {first + second}, 3);
  check_nodes(esp::join_slices, {second + first}, 3);
  check_nodes(esp::join_slices, {esp::pad_like(a, like, 0, -4) + esp::pad_like(b, like, 0, -2)}, 3);
  check_left(esp::join_slices, {first + second, first});
  check_left(esp::join_slices, {first + second, esp::exp(second)});
  check_left(esp::join_slices, {first + first});
  check_left(esp::join_slices, {first - second});
  check_left(esp::join_slices, {first + esp::pad_like(b, like, 0, 1)});  // a gap and an overlap
  check_left(esp::join_slices,
             {esp::pad_like(leaf({1, 3}, 1), like, 0, 0) + esp::pad_like(leaf({1, 3}, 2), like, 0, 1)});
  check_left(esp::join_slices,
             {esp::pad_like(leaf({1, 3}, 1), like, 0, 2) + esp::pad_like(leaf({1, 3}, 2), like, 0, 3)});
  check_left(esp::join_slices, {first + like});
  // Padded along two axes; of equal size but not adjacent; added to a broadcast value.
  const Variable c = leaf({4, 3}, 5);
  const Variable tall = esp::pad_like(c, leaf({8, 3}, 6), 0, 0), broad = esp::pad_like(c, wide, 1, 3);
  check_left(esp::join_slices, {esp::pad_like(leaf({2, 4}, 7), leaf({4, 4}, 8), 0, 0) +
                                esp::pad_like(leaf({4, 2}, 9), leaf({4, 4}, 8), 1, 2)});
  check_left(esp::join_slices, {broad + esp::pad_like(leaf({1, 3}, 7), leaf({1, 6}, 8), 1, 0)});
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::exp(c), wide, 1, 0)}, 3);
  (void)tall;
  // Parts of 16 bits that are added in float32, in either order.
  const auto widened = [&](const Variable& part, int64_t at) {
    const auto half = [](const Variable& v) { return esp::cast(v, esp::bfloat16); };
    return esp::cast(esp::pad_like(esp::exp(half(part)), half(like), 0, at), esp::float32);
  };
  const Variable above = widened(a, 0), below = widened(b, 2);
  check_nodes(esp::join_slices, {above + below}, 8);
  check_nodes(esp::join_slices, {below + above}, 8);
  // A view that is skipped, and one that must be copied first.
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::transpose(leaf({3, 4}, 7)), wide, 1, 0)}, 4);
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::reshape(leaf({2, 2, 3}, 7), {4, 3}), wide, 1, 0)},
              3);
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::reshape(leaf({12}, 7), {4, 3}), wide, 1, 0)}, 4);
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::slice(leaf({5, 3}, 7), 0, 1, 5), wide, 1, 0)}, 4);
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::slice(leaf({5, 3}, 7), 0, 0, 4), wide, 1, 0)}, 4);
  check_nodes(esp::join_slices, {broad + esp::pad_like(esp::broadcast_to(leaf({3}, 7), {4, 3}), wide, 1, 0)},
              4);
  // Empty slices can be anywhere.
  const Variable nothing = esp::parameter(esp::zeros({0, 3}, esp::float64));
  check_nodes(
      esp::join_slices,
      {esp::add_all({esp::pad_like(nothing, like, 0, 2), first, second, esp::pad_like(nothing, like, 0, 0)})},
      4);
}

BOOST_AUTO_TEST_CASE(each_random_node_has_a_stream) {
  const Variable x = esp::placeholder("x", {64}, esp::float64);
  const Variable a = esp::dropout(x, 0.5), b = esp::dropout(x, 0.5), y = esp::concat({a, b});
  const Graph graph = graph_of({y});
  std::vector<int64_t> streams;
  for (const GraphNode& n : graph.nodes)
    if (n.op->is_random()) streams.push_back(n.stream);
  BOOST_TEST(streams == (std::vector<int64_t>{0, 1}));
  BOOST_TEST(graph.streams == 2);
  const Variable w = esp::parameter(esp::zeros({1}, esp::float64));
  const esp::Executor training = (y + w).get_executor({.optimizer = esp::optim::Sgd(0.0)});
  const esp::Tensor drawn = training.run({{"x", esp::ones({64}, esp::float64)}});
  BOOST_TEST(difference(drawn.slice(0, 0, 64), drawn.slice(0, 64, 128)) > 0);
}

BOOST_AUTO_TEST_CASE(nodes_are_replaced_for_all_and_reordered_with_all) {
  const Variable x = leaf({3}, 1), a = esp::exp(x), b = esp::tanh(a), c = esp::sin(x);
  Graph graph = graph_of({a, b, c});
  esp::GraphRewriter rewriter(graph);
  rewriter.replace({1, 0}, {3, 0});
  rewriter.move_before(3, 2);
  rewriter.finish();
  BOOST_TEST(graph.results[0].node == 2u);
  BOOST_TEST(graph.results[1].node == 3u);
  BOOST_TEST(graph.nodes[3].inputs[0].node == 2u);
  BOOST_TEST(graph.nodes[3].op->name() == "tanh");
  BOOST_TEST(graph.nodes[2].op->name() == "sin");
  esp::verify(graph, "reorder");
  graph.make_constant(2, numbers({3}));
  BOOST_TEST(graph.nodes[2].inputs.empty());
  BOOST_TEST(graph.nodes[2].is_constant());
  esp::verify(graph, "make_constant");
  BOOST_TEST(esp::dead_nodes(graph));
  BOOST_TEST(graph.nodes.size() == 2u, graph.str());
}

BOOST_AUTO_TEST_CASE(sizes_of_batches_are_those_of_the_feed_alone) {
  const Variable x = esp::placeholder("x", {4, 3}, esp::float64), one = esp::placeholder("one", esp::Shape{});
  const auto* feed = x.node()->op().feed()->get();
  const auto* scalar = one.node()->op().feed()->get();
  const Graph graph = esp::freeze({x * 2.0, one * 1.0}, {}, {{feed, {7}}, {scalar, {7}}}, false);
  BOOST_TEST((graph.spec(graph.results[0]).shape == esp::Shape{7, 3}));
  BOOST_TEST((graph.spec(graph.results[1]).shape == esp::Shape{}));
}

BOOST_AUTO_TEST_SUITE_END()
