// Passes, by the text of the graph before and after.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

esp::Graph graph_of(const Variables& results, bool inference = false) {
  esp::Graph graph = esp::freeze(results, {}, {}, inference);
  esp::verify(graph, "freeze");
  return graph;
}

/// The pass changes the graph to `expected`, and changes nothing in a second run.
void check_pass(bool (*pass)(esp::Graph&, const esp::CompileOptions&), esp::Graph graph,
                const std::string& before, const std::string& after) {
  BOOST_TEST(graph.str() == before);
  BOOST_TEST(pass(graph, {}) == (before != after));
  esp::verify(graph, "the pass");
  BOOST_TEST(graph.str() == after);
  BOOST_TEST(!pass(graph, {}));
  BOOST_TEST(graph.str() == after);
}

/// Loss and update of one parameter, and the positions of the assignment and of a reader of the parameter.
struct Training {
  esp::Variable w = esp::parameter(esp::ones({2}), "w");
  esp::Variable loss = esp::sum(esp::square(w));
  esp::Graph graph;
  Training() {
    const optim::Sgd sgd(0.1);
    graph = esp::freeze({loss}, sgd.build({{w, loss.gradient(w)}}), {}, false);
  }
  uint32_t find(std::string_view op) const {
    for (uint32_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].op->name() == op) return i;
    BOOST_FAIL("no " << op << " in\n" << graph.str());
    return 0;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(passes)

BOOST_AUTO_TEST_CASE(freezing_keeps_the_order_of_writing) {
  const esp::Variable x = esp::placeholder("x", {2, 3}), w = esp::parameter(esp::ones({3}), "w");
  const esp::Variable y = esp::sum(esp::tanh(x) * w, 1);
  BOOST_TEST(graph_of({y}).str() ==
             "%0 = source(feed=x output=0) : float32 [2, 3]\n"
             "%1 = w : float32 [3]\n"
             "%2 = tanh %0 : float32 [2, 3]\n"
             "%3 = multiply %2 %1 : float32 [2, 3]\n"
             "%4 = sum(axes=[1] keep_dims=false) %3 : float32 [2]\n"
             "results: %4\n");
  // Batches of another size.
  const esp::Graph larger = esp::freeze({y}, {}, {{x.node()->op().feed()->get(), {7}}}, false);
  BOOST_TEST(larger.spec(larger.results[0]).shape == esp::Shape({7}));
  // Nodes have tags.
  const std::string text = graph_of({y.gradient(w)}).str();
  BOOST_TEST(text.find("[Backward]") != std::string::npos);
  // In inference dropout keeps everything.
  const esp::Variable d = esp::dropout(x, 0.5);
  BOOST_TEST(graph_of({d}).str().find("dropout_mask") != std::string::npos);
  BOOST_TEST(graph_of({d}, true).str().find("dropout_mask") == std::string::npos);
}

//   x ── exp ── sum ── (result)
//    \── tanh ── sign          no result depends on these
BOOST_AUTO_TEST_CASE(dead_nodes) {
  const esp::Variable x = esp::placeholder("x", {4});
  const esp::Variable t = esp::tanh(x), s = esp::sum(esp::exp(x)), g = esp::sign(t);
  esp::Graph graph = graph_of({s, g});
  graph.results.pop_back();
  check_pass(esp::dead_nodes, graph,
             "%0 = source(feed=x output=0) : float32 [4]\n"
             "%1 = tanh %0 : float32 [4]\n"
             "%2 = exp %0 : float32 [4]\n"
             "%3 = sum(axes=[] keep_dims=false) %2 : float32 []\n"
             "%4 = sign %1 : float32 [4]\n"
             "results: %3\n",
             "%0 = source(feed=x output=0) : float32 [4]\n"
             "%1 = exp %0 : float32 [4]\n"
             "%2 = sum(axes=[] keep_dims=false) %1 : float32 []\n"
             "results: %2\n");
}

BOOST_AUTO_TEST_CASE(updates_are_alive) {
  Training t;
  const size_t before = t.graph.nodes.size();
  BOOST_TEST(!esp::dead_nodes(t.graph));
  BOOST_TEST(t.graph.nodes.size() == before);
}

//   x ── ·1 ── + -0 ── reshape to the same ── ·w ── (result)     becomes     x ── ·w ── (result)
BOOST_AUTO_TEST_CASE(simplify) {
  const esp::Variable x = esp::placeholder("x", {2, 3}), w = esp::parameter(esp::ones({3}), "w");
  const esp::Variable y = esp::reshape(-0.0 + x * 1, {2, 3}) * w;
  check_pass(esp::simplify, graph_of({y}),
             "%0 = source(feed=x output=0) : float32 [2, 3]\n"
             "%1 = w : float32 [3]\n"
             "%2 = constant : float32 []\n"
             "%3 = multiply %0 %2 : float32 [2, 3]\n"
             "%4 = constant : float32 []\n"
             "%5 = add %4 %3 : float32 [2, 3]\n"
             "%6 = reshape(shape=[2, 3]) %5 : float32 [2, 3]\n"
             "%7 = multiply %6 %1 : float32 [2, 3]\n"
             "results: %7\n",
             "%0 = source(feed=x output=0) : float32 [2, 3]\n"
             "%1 = w : float32 [3]\n"
             "%2 = multiply %0 %1 : float32 [2, 3]\n"
             "results: %2\n");
}

BOOST_AUTO_TEST_CASE(simplify_leaves_what_looks_alike) {
  const esp::Variable x = esp::placeholder("x", {3}), one = esp::ones({2, 3});
  const esp::Variable unchanged[] = {0 - x,
                                     x + 0,  // -0.0 + 0.0 is 0.0
                                     0 + x,
                                     x - -0.0,
                                     x + esp::zeros({1}),
                                     1 / x,
                                     x * one,
                                     x + esp::zeros({1, 3}),
                                     x * 2,
                                     esp::transpose(esp::reshape(x, {1, 3})),
                                     esp::broadcast_to(x, {2, 3}),
                                     x - 1,
                                     esp::cast(x, esp::float64)};
  for (const esp::Variable& y : unchanged) {
    esp::Graph graph = graph_of({y});
    const std::string text = graph.str();
    BOOST_TEST(!esp::simplify(graph), text);
  }
  const esp::Variable same[] = {x - 0,
                                x / 1,
                                1 * x,
                                x + -0.0,
                                esp::full({1}, -0.0) + x,
                                esp::placeholder("i", {3}, esp::int64) + 0,
                                esp::transpose(x),
                                esp::reshape(x, {3}),
                                x * esp::full_like(x, 1),
                                esp::sum(esp::placeholder("one", esp::Shape{}))};
  for (const esp::Variable& y : same) {
    esp::Graph graph = graph_of({y});
    const std::string text = graph.str();
    BOOST_TEST(esp::simplify(graph), text);
    BOOST_TEST(graph.nodes.size() == 1u, graph.str());
  }
}

//   2 ── ·3 ── exp ── ·x         2·3 and its exponential are constants
//   ones in the shape of x       a constant would be larger than the inputs
BOOST_AUTO_TEST_CASE(fold_constants) {
  const esp::Variable x = esp::placeholder("x", {300}), two = esp::tensor(2.0f);
  const esp::Variable known = esp::exp(two * 3), product = known * x, y = product + esp::ones_like(x);
  check_pass(esp::fold_constants, graph_of({y}),
             "%0 = source(feed=x output=0) : float32 [300]\n"
             "%1 = constant : float32 []\n"
             "%2 = constant : float32 []\n"
             "%3 = multiply %1 %2 : float32 []\n"
             "%4 = exp %3 : float32 []\n"
             "%5 = multiply %4 %0 : float32 [300]\n"
             "%6 = full_like(value=1) %0 : float32 [300]\n"
             "%7 = add %5 %6 : float32 [300]\n"
             "results: %7\n",
             "%0 = source(feed=x output=0) : float32 [300]\n"
             "%1 = constant : float32 []\n"
             "%2 = multiply %1 %0 : float32 [300]\n"
             "%3 = full_like(value=1) %0 : float32 [300]\n"
             "%4 = add %2 %3 : float32 [300]\n"
             "results: %4\n");
  esp::Graph graph = graph_of({y});
  esp::fold_constants(graph);
  BOOST_TEST(graph.nodes[1].constant->item() == std::exp(6.0), boost::test_tools::tolerance(1e-6));
  esp::Graph random = graph_of({esp::dropout(two, 0.5)});
  const std::string text = random.str();
  esp::fold_constants(random);
  BOOST_TEST(random.str() == text);  // drawn anew each time
}

//   x ── exp ──\                     x ── exp ══ multiply
//    \── exp ── multiply   becomes
BOOST_AUTO_TEST_CASE(common_subexpressions) {
  const esp::Variable x = esp::placeholder("x", {4});
  const esp::Variable a = esp::exp(x) + 2, b = esp::exp(x) + 2, y = a * b;
  check_pass(esp::common_subexpressions, graph_of({y}),
             "%0 = source(feed=x output=0) : float32 [4]\n"
             "%1 = exp %0 : float32 [4]\n"
             "%2 = constant : float32 []\n"
             "%3 = add %1 %2 : float32 [4]\n"
             "%4 = exp %0 : float32 [4]\n"
             "%5 = constant : float32 []\n"
             "%6 = add %4 %5 : float32 [4]\n"
             "%7 = multiply %3 %6 : float32 [4]\n"
             "results: %7\n",
             "%0 = source(feed=x output=0) : float32 [4]\n"
             "%1 = exp %0 : float32 [4]\n"
             "%2 = constant : float32 []\n"
             "%3 = add %1 %2 : float32 [4]\n"
             "%4 = multiply %3 %3 : float32 [4]\n"
             "results: %4\n");
}

BOOST_AUTO_TEST_CASE(only_equals_are_merged) {
  const esp::Variable x = esp::placeholder("x", {4, 4}), z = esp::placeholder("z", {4, 4});
  const esp::Variable w = esp::parameter(esp::ones({4, 4})), v = esp::parameter(esp::ones({4, 4}));
  const esp::Variable different[] = {esp::sum(x, 0) + esp::sum(x, 1),
                                     esp::exp(x) + esp::exp(z),
                                     esp::dropout(x, 0.5) + esp::dropout(x, 0.5),
                                     w + v,
                                     x * 2 + x * 3,
                                     esp::cast(x * 2.0, esp::float64) + esp::tensor(2.0, esp::float64),
                                     (x - z) + (z - x),
                                     esp::slice(x, 0, 0, 1) + esp::slice(x, 0, 1, 2)};
  for (const esp::Variable& y : different) {
    esp::Graph graph = graph_of({y});
    const std::string text = graph.str();
    BOOST_TEST(!esp::common_subexpressions(graph), text);
    BOOST_TEST(graph.str() == text);
  }
}

BOOST_AUTO_TEST_CASE(broken_graphs_are_refused) {
  const auto broken = [](const esp::Graph& graph, const char* why) {
    BOOST_CHECK_EXCEPTION(esp::verify(graph, "some_pass"), esp::Error, says({"some_pass", why}));
  };
  {
    Training t;
    BOOST_CHECK_NO_THROW(esp::verify(t.graph, "nothing"));
    std::swap(t.graph.nodes[t.find("square")], t.graph.nodes[t.find("sum")]);
    broken(t.graph, "before its input");
  }
  {
    Training t;
    t.graph.nodes[t.find("square")].outputs[0].shape = {3};
    broken(t.graph, "inferred from its inputs");
  }
  {
    Training t;
    t.graph.nodes[t.find("square")].inputs[0].output = 1;
    broken(t.graph, "does not exist");
  }
  {
    Training t;  // an additional reader, after the assignment
    esp::GraphNode reader = t.graph.nodes[t.find("square")];
    t.graph.nodes.push_back(reader);
    broken(t.graph, "assigned already");
  }
  {
    Training t;
    t.graph.nodes.push_back(t.graph.nodes[t.find("assign")]);
    broken(t.graph, "second time");
  }
  {
    Training t;
    t.graph.nodes[t.find("assign")].inputs[0] = t.graph.nodes[t.find("assign")].inputs[1];
    broken(t.graph, "not a leaf");
  }
  {
    Training t;
    t.graph.results[0].node = 1000;
    broken(t.graph, "result");
  }
  {
    Training t;
    t.graph.nodes[0].outputs.clear();
    broken(t.graph, "output");
  }
}

BOOST_AUTO_TEST_CASE(every_pass_can_be_left_out) {
  const esp::Tensor x = numbers({20, 3}).to(esp::float32), y = numbers({20, 2}, -1, 1, 1).to(esp::float32);
  const auto train = [&](const std::vector<std::string>& without) {
    esp::seed(1);
    const esp::nn::Sequential model{esp::nn::Dense(6), esp::nn::Relu(), esp::nn::Dropout(0.2),
                                    esp::nn::Dense(2)};
    const esp::data::Distributor feed({x, y}, {.batch_size = 8});
    const auto [in, target] = feed.get_output_graphs<2>();
    const esp::Variable loss = esp::nn::MeanSquared()(model(in) * 1.0 + 0.0, target);
    const esp::Executor executor =
        loss.get_executor({.mode = esp::Mode::training,
                           .optimizer = optim::Adam({.lr = 0.01, .weight_decay = 0.1}),
                           .without = without});
    const esp::History history = executor.execute({.epochs = 3, .progress = false});
    for (const esp::PassReport& pass : executor.plan().passes())
      BOOST_TEST((std::find(without.begin(), without.end(), pass.name) == without.end()), pass.name);
    std::vector<esp::Tensor> result{esp::tensor(history.epochs.back().loss_sum, esp::float64)};
    for (const auto& [name, p] : model.parameters()) result.push_back(p.value().clone());
    return result;
  };
  const std::vector<esp::Tensor> all = train({});
  std::vector<std::vector<std::string>> choices{esp::pass_names()};
  for (const std::string& name : esp::pass_names()) choices.push_back({name});
  BOOST_TEST(choices.size() > 5u);
  for (const auto& without : choices) {
    const std::vector<esp::Tensor> result = train(without);
    for (size_t i = 0; i < all.size(); ++i) BOOST_TEST(difference(all[i], result[i]) < 1e-6, without[0]);
  }
}

BOOST_AUTO_TEST_CASE(slices_that_were_taken_apart_are_put_together_again) {
  const esp::Variable x = esp::placeholder("x", {4, 6}, esp::float64);
  const esp::Variable w = esp::parameter(numbers({4, 6}), "w");
  // The op at the end of the gradient's tree, for slices of the columns `begin` to `end`.
  const auto gradient = [&](const std::vector<std::pair<int64_t, int64_t>>& columns) {
    const esp::Variable h = esp::tanh(w);
    esp::Variable sum;
    for (const auto& [begin, end] : columns) {
      // [4, n] -> [2, 2, n] -> transposed: the gradient of each slice has another order.
      const esp::Variable part = esp::reshape(esp::slice(h, 1, begin, end), {2, 2, end - begin});
      const esp::Variable term = esp::sum(esp::exp(esp::transpose(part, {1, 0, 2})) * double(begin + 1));
      sum = sum.defined() ? sum + term : term;
    }
    return sum.gradient(w);
  };
  const auto count = [](const esp::Graph& graph, std::string_view name) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [&](const esp::GraphNode& n) { return n.op->name() == name; });
  };
  for (const auto& columns : std::vector<std::vector<std::pair<int64_t, int64_t>>>{
           {{0, 2}, {2, 4}, {4, 6}}, {{4, 6}, {0, 3}, {3, 4}}, {{3, 6}, {0, 3}}}) {
    esp::Graph graph = graph_of({gradient(columns)});
    BOOST_TEST(esp::join_slices(graph));
    esp::verify(graph, "join_slices");
    BOOST_TEST(count(graph, "join") == 1);
    BOOST_TEST(count(graph, "pad_like") == 0);
    BOOST_TEST(count(graph, "reshape_like") == 0, graph.str());  // slices are written in their original shape
    BOOST_TEST(!esp::join_slices(graph));
    const esp::Variable wanted = gradient(columns);
    const esp::Tensor eager = wanted.value();
    const auto value = [&](const std::vector<std::string>& without) {
      const esp::Executor executor = wanted.get_executor({.mode = esp::Mode::inference, .without = without});
      executor.execute({.progress = false});
      return executor.value();
    };
    BOOST_TEST(difference(value({}), eager) < 1e-14);
    BOOST_TEST(difference(value({"join_slices"}), eager) < 1e-14);
  }
  // With a gap, an overlap, or a slice twice, the sum is needed.
  for (const auto& columns : std::vector<std::vector<std::pair<int64_t, int64_t>>>{
           {{0, 2}, {3, 6}}, {{0, 4}, {3, 6}}, {{0, 3}, {0, 3}, {3, 6}}, {{1, 3}, {3, 6}}}) {
    esp::Graph graph = graph_of({gradient(columns)});
    BOOST_TEST(!esp::join_slices(graph));
  }
}

BOOST_AUTO_TEST_SUITE_END()
