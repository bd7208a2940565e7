// GraphRewriter: order, numbers and results of a graph that was changed.
#include "espalier/executor/graph/rewriter.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"

using namespace espalier;

namespace {

struct Named : Op {
  explicit Named(std::string name, Effect effect = Effect::none)
      : Op({.effect = effect}), name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Specs infer(const InputSpecs&) const override { return {{float32, {}}, {float32, {}}}; }

 private:
  std::string name_;
};

GraphNode node(std::string name, SmallVector<ValueRef, 2> inputs = {}, Effect effect = Effect::none) {
  GraphNode n;
  n.op = std::make_shared<Named>(std::move(name), effect);
  n.inputs = std::move(inputs);
  n.outputs = {Spec{float32, {}}, Spec{float32, {}}};
  return n;
}

/// a, b(a), c(b), d(c.1); results c and d.
Graph chain() {
  Graph graph;
  graph.nodes = {node("a"), node("b", {{0, 0}}), node("c", {{1, 0}}), node("d", {{2, 1}})};
  graph.results = {{2, 0}, {3, 0}};
  return graph;
}

/// "a b(a) c(b.1) -> c"
std::string text(const Graph& graph) {
  const auto value = [&](ValueRef v) {
    return std::string(graph.nodes.at(v.node).op->name()) + (v.output ? "." + std::to_string(v.output) : "");
  };
  std::string text;
  for (const GraphNode& n : graph.nodes) {
    text += std::string(text.empty() ? "" : " ") + std::string(n.op->name());
    for (size_t k = 0; k < n.inputs.size(); ++k) text += (k ? " " : "(") + value(n.inputs[k]);
    if (!n.inputs.empty()) text += ")";
  }
  text += " ->";
  for (const ValueRef& result : graph.results) text += " " + value(result);
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rewriter)

BOOST_AUTO_TEST_CASE(nothing_changes_where_nothing_is_asked_for) {
  Graph graph = chain();
  GraphRewriter(graph).finish();
  BOOST_TEST(text(graph) == "a b(a) c(b) d(c.1) -> c d");
  Graph empty;
  GraphRewriter(empty).finish();
  BOOST_TEST(text(empty) == " ->");
}

BOOST_AUTO_TEST_CASE(nodes_are_added_where_they_are_wanted) {
  Graph graph = chain();
  GraphRewriter rewriter(graph);
  const uint32_t x = rewriter.add_before(2, node("x", {{1, 0}}));
  const uint32_t y = rewriter.add_after(2, node("y", {{x, 1}, {2, 0}}));
  rewriter.add_after(2, node("z", {{y, 0}}));  // behind y: in the order of the calls
  rewriter.add_before(0, node("first"));
  const uint32_t last = rewriter.add_last(node("last", {{3, 0}}));
  BOOST_TEST(rewriter.node(x).op->name() == "x");
  graph.results[1] = {last, 1};
  rewriter.finish();
  BOOST_TEST(text(graph) == "first a b(a) x(b) c(b) y(x.1 c) z(y) d(c.1) last(d) -> c last.1");
  BOOST_TEST(rewriter.now({3, 1}).node == 7u);
  BOOST_TEST(rewriter.now({3, 1}).output == 1u);
  BOOST_TEST(rewriter.now({last, 0}).node == 8u);
}

BOOST_AUTO_TEST_CASE(readers_and_results_follow_what_replaces_a_value) {
  Graph graph = chain();
  GraphRewriter rewriter(graph);
  const uint32_t x = rewriter.add_after(1, node("x", {{1, 0}}));  // reads the value that it replaces
  rewriter.replace({1, 0}, {x, 1});
  const uint32_t y = rewriter.add_after(2, node("y", {{1, 0}}));
  rewriter.replace({2, 0}, {y, 0});
  rewriter.replace({2, 1}, {1, 0});  // a replaced value
  BOOST_TEST(rewriter.resolve({2, 1}).node == x);
  rewriter.remove(2);
  rewriter.finish();
  BOOST_TEST(text(graph) == "a b(a) x(b) y(x.1) d(x.1) -> y d");
  BOOST_TEST(rewriter.now({2, 0}).node == 3u);
}

BOOST_AUTO_TEST_CASE(moved_nodes_keep_the_order_of_the_calls) {
  Graph graph;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) graph.nodes.push_back(node(name));
  {
    GraphRewriter rewriter(graph);
    for (const uint32_t i : {5, 3, 4}) rewriter.move_after(i, 0);
    rewriter.move_last(3);      // from the middle of the moved nodes
    rewriter.move_after(2, 0);  // behind nodes that are not moved
    rewriter.move_first(1);
    rewriter.finish();
    BOOST_TEST(text(graph) == "b a f e c d ->");
  }
  {
    GraphRewriter rewriter(graph);
    rewriter.move_first(5);
    rewriter.move_first(4);
    rewriter.move_before(0, 3);
    rewriter.move_before(2, 2);
    rewriter.finish();
    BOOST_TEST(text(graph) == "d c a f b e ->");
  }
  {
    GraphRewriter rewriter(graph);
    rewriter.move_after(0, 5);
    rewriter.move_after(1, 5);
    rewriter.remove(1);  // the last one there
    rewriter.move_after(2, 5);
    rewriter.finish();
    BOOST_TEST(text(graph) == "f b e d a ->");
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_an_order_is_refused) {
  const auto refuses = [](auto&& change, const std::string& why) {
    Graph graph = chain();
    GraphRewriter rewriter(graph);
    change(rewriter);
    BOOST_CHECK_EXCEPTION(rewriter.finish(), Error, [&](const Error& error) {
      return std::string(error.what()).find(why) != std::string::npos;
    });
  };
  refuses([](GraphRewriter& r) { r.remove(0); }, "b (written at :0) reads a node that was removed");
  refuses([](GraphRewriter& r) { r.remove(3); }, "a result");
  refuses([](GraphRewriter& r) { r.move_last(1); }, "c (written at :0) comes before its input");
  refuses([](GraphRewriter& r) { r.replace({0, 0}, {3, 0}); }, "b (written at :0) comes before its input");
}

BOOST_AUTO_TEST_CASE(random_nodes_get_streams_and_copies_keep_theirs) {
  Graph graph = chain();
  graph.nodes[1] = node("b", {{0, 0}}, Effect::random);
  graph.nodes[1].stream = 0;
  graph.streams = 1;
  GraphRewriter rewriter(graph);
  const uint32_t copy = rewriter.add_last(graph.nodes[1]);
  const uint32_t other = rewriter.add_last(node("other", {}, Effect::random));
  rewriter.finish();
  BOOST_TEST(graph.nodes[rewriter.now({copy, 0}).node].stream == 0);
  BOOST_TEST(graph.nodes[rewriter.now({other, 0}).node].stream == 1);
  BOOST_TEST(graph.streams == 2);
}

BOOST_AUTO_TEST_CASE(the_order_of_collectives_is_part_of_the_graph) {
  Graph graph = chain();
  graph.nodes[1] = node("b", {{0, 0}}, Effect::communicates);
  graph.nodes[3] = node("d", {{0, 0}, {1, 0}}, Effect::communicates);  // the second input is not read
  GraphRewriter rewriter(graph);
  rewriter.move_before(3, 1);
  BOOST_CHECK_THROW(rewriter.finish(), Error);
}

BOOST_AUTO_TEST_CASE(large_graphs_are_rewritten_in_one_sweep) {
  constexpr uint32_t count = 200'000;
  Graph graph;
  graph.nodes.push_back(node("n"));
  for (uint32_t i = 1; i < count; ++i) graph.nodes.push_back(node("n", {{i - 1, 0}}));
  graph.results = {{count - 1, 0}};
  GraphRewriter rewriter(graph);
  for (uint32_t i = 0; i < count; i += 2) {  // replaces every other node
    const uint32_t next = rewriter.add_after(i, node("m", graph.nodes[i].inputs));
    rewriter.replace({i, 0}, {next, 0});
    rewriter.remove(i);
  }
  rewriter.finish();
  BOOST_REQUIRE(graph.nodes.size() == count);
  bool in_order = true;
  for (uint32_t i = 1; i < count; ++i)
    in_order &= graph.nodes[i].inputs[0].node == i - 1 && (graph.nodes[i].op->name() == "m") == (i % 2 == 0);
  BOOST_TEST(in_order);
  BOOST_TEST(graph.results[0].node == count - 1);
}

BOOST_AUTO_TEST_SUITE_END()
