// Gradient buckets for replicas and their splitting into messages: the graphs, and training by their plans.
#include <boost/test/unit_test.hpp>

#include <map>
#include <set>

#include "espalier/core/autograd.h"
#include "espalier/core/node.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/runtime/session.h"
#include "espalier/executor/sharding/gradient_bucket.h"
#include "espalier/ops/ops.h"
#include "fuzz_tree.h"
#include "replica_programs.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Graph;
using esp::GraphNode;
using esp::ValueRef;
using esp::Variable;

namespace {

using Pairs = std::vector<std::pair<Variable, Variable>>;

/// A graph whose gradients are gathered for replicas.
struct Gathered {
  Gathered(const Variable& loss, const Pairs& gradients, const std::vector<Variable>& updates)
      : gradients(gradients) {
    std::vector<Variable> results{loss};
    for (const auto& [parameter, gradient] : gradients) {
      parameters.push_back(parameter);
      results.push_back(gradient);
    }
    graph = esp::freeze(results, updates, {}, false);
    const std::vector<ValueRef> values(graph.results.begin() + 1, graph.results.end());
    graph.results.resize(1);
    BOOST_TEST(esp::gather_gradients(graph, parameters, values, {0}));
    esp::verify(graph, "gather_gradients");
  }
  Gathered(const Variable& loss, const Pairs& gradients)
      : Gathered(loss, gradients, optim::Adam(0.1).build(gradients)) {}

  Pairs gradients;
  std::vector<Variable> parameters;
  Graph graph;
};

std::vector<uint32_t> buckets_of(const Graph& graph) {
  std::vector<uint32_t> buckets;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (esp::as_bucket(*graph.nodes[i].op)) buckets.push_back(i);
  return buckets;
}
uint32_t wait_of(const Graph& graph) {
  uint32_t found = UINT32_MAX;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (esp::waits_for_gradients(*graph.nodes[i].op)) {
      BOOST_TEST(found == UINT32_MAX);
      found = i;
    }
  BOOST_REQUIRE(found != UINT32_MAX);
  return found;
}
int64_t bytes_of(const GraphNode& bucket) {
  int64_t bytes = 0;
  for (const esp::Spec& spec : bucket.outputs)
    bytes += spec.shape.elements() * static_cast<int64_t>(esp::size_of(spec.dtype));
  return bytes;
}
/// The node that completes a bucket.
uint32_t complete_at(const GraphNode& bucket) {
  uint32_t last = 0;
  for (const ValueRef& input : bucket.inputs) last = std::max(last, input.node);
  return last;
}
/// The parameter of each slot of the WaitForGradients node, by its bucket; null for the loss.
std::vector<const esp::Node*> members(const Graph& graph) {
  std::vector<const esp::Node*> all;
  for (const ValueRef& in : graph.nodes[wait_of(graph)].inputs) {
    const auto* bucket = esp::as_bucket(*graph.nodes[in.node].op);
    BOOST_REQUIRE(bucket);
    all.push_back(bucket->parameters()[in.output].node());
  }
  return all;
}

/// The invariants of graphs for replicas: every exchanged value goes once through a bucket of its dtype and
/// the WaitForGradients node; before that node, no leaf is assigned and no update reads a gradient.
void check_exchange(const Graph& graph) {
  const uint32_t wait = wait_of(graph);
  std::set<ValueRef> arrived(graph.nodes[wait].inputs.begin(), graph.nodes[wait].inputs.end());
  BOOST_TEST(arrived.size() == graph.nodes[wait].inputs.size());
  size_t outputs = 0;
  for (const uint32_t at : buckets_of(graph)) {
    const GraphNode& bucket = graph.nodes[at];
    BOOST_TEST(at < wait);
    outputs += bucket.outputs.size();
    BOOST_TEST(bucket.inputs.size() == bucket.outputs.size());
    BOOST_TEST(esp::as_bucket(*bucket.op)->parameters().size() == bucket.outputs.size());
    for (const esp::Spec& spec : bucket.outputs) BOOST_TEST((spec.dtype == bucket.outputs[0].dtype));
    for (uint32_t k = 0; k < bucket.outputs.size(); ++k) BOOST_TEST(arrived.count({at, k}) == 1u);
    for (uint32_t i = 0; i < graph.nodes.size(); ++i)  // only that node reads the outputs of buckets
      for (const ValueRef& in : graph.nodes[i].inputs) BOOST_TEST((in.node != at || i == wait));
  }
  BOOST_TEST(outputs == arrived.size());
  const std::vector<const esp::Node*> whose = members(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op->has_side_effects()) BOOST_TEST(i > wait);
  BOOST_TEST(graph.results[0].node == wait);
  BOOST_TEST(!whose.at(graph.results[0].output));
}

/// Splits the buckets of a graph, and checks the result.
void check_split(Graph graph, int64_t bytes) {
  const std::vector<const esp::Node*> before = members(graph);
  std::map<esp::DType, int64_t> all;
  for (const uint32_t at : buckets_of(graph))
    all[graph.nodes[at].outputs[0].dtype] += bytes_of(graph.nodes[at]);
  std::map<const esp::Node*, esp::Spec> specs;
  for (uint32_t k = 0; k < before.size(); ++k) specs[before[k]] = graph.nodes[wait_of(graph)].outputs[k];
  (void)esp::split_buckets(graph, bytes);
  const std::string text = graph.str();
  BOOST_TEST_CONTEXT("at least " << bytes << " bytes each\n" << text) {
    esp::verify(graph, "split_buckets");
    check_exchange(graph);
    BOOST_TEST((members(graph) == before));  // the slots are unchanged
    for (uint32_t k = 0; k < before.size(); ++k)
      BOOST_TEST((graph.nodes[wait_of(graph)].outputs[k] == specs[before[k]]));
    uint32_t last = 0;
    std::map<esp::DType, uint32_t> last_of;
    for (const uint32_t at : buckets_of(graph)) {
      const GraphNode& bucket = graph.nodes[at];
      const esp::DType dtype = bucket.outputs[0].dtype;
      BOOST_TEST(complete_at(bucket) >= last);  // in the order in which they become complete
      last = complete_at(bucket);
      for (uint32_t i = last + 1; i < at; ++i) BOOST_TEST(esp::as_bucket(*graph.nodes[i].op));  // at once
      BOOST_TEST((bytes_of(bucket) >= bytes || bytes_of(bucket) == all[dtype]));
      // Values that are complete earlier are sent earlier.
      for (const ValueRef& in : bucket.inputs)
        BOOST_TEST((!last_of.count(dtype) || in.node >= last_of[dtype]));
      last_of[dtype] = last;
      // Except for the last bucket, no smaller one would have been large enough.
      int64_t filled = 0;
      for (uint32_t k = 0; k < bucket.inputs.size(); ++k)
        if (bucket.inputs[k].node < last)
          filled += bucket.outputs[k].shape.elements() * static_cast<int64_t>(esp::size_of(dtype));
      const bool more = std::ranges::any_of(buckets_of(graph), [&](uint32_t other) {
        return other > at && graph.nodes[other].outputs[0].dtype == dtype;
      });
      if (more) BOOST_TEST(filled < bytes);
      // In the order of creation, the loss last.
      const auto& whose = esp::as_bucket(*bucket.op)->parameters();
      for (size_t k = 1; k < whose.size(); ++k)
        BOOST_TEST(
            (!whose[k].node() || (whose[k - 1].node() && whose[k - 1].node()->id < whose[k].node()->id)));
    }
    BOOST_TEST(!esp::split_buckets(graph, bytes));
    BOOST_TEST(graph.str() == text);
  }
}

/// Layers of different sizes, whose gradients are computed from the last to the first; the middle is float32.
struct Layers {
  Layers() {
    const Variable x = esp::placeholder("x", {3, 8}, esp::float64);
    Variable h = x;
    for (uint64_t i = 0; i < 6; ++i) {
      const esp::DType dtype = i == 2 || i == 3 ? esp::float32 : esp::float64;
      const Variable w(esp::parameter(esp::cast(numbers({8, 8}, -1, 1, i), dtype).value(), "w")),
          b(esp::parameter(esp::cast(numbers({8}, -1, 1, i), dtype).value(), "b"));
      h = esp::tanh(esp::matmul(esp::cast(h, dtype), w) + b);
    }
    loss = esp::mean(esp::square(esp::cast(h, esp::float64)));
    gradients = esp::new_parameter_gradients(loss);
  }
  Variable loss;
  Pairs gradients;
};

Pairs gradients_of(const Variable& loss, const Variables& parameters) {
  Pairs gradients;
  for (const Variable& p : parameters) gradients.emplace_back(p, loss.gradient(p));
  return gradients;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gradients_on_their_way)

BOOST_AUTO_TEST_CASE(a_bucket_for_each_dtype) {
  const Layers layers;
  const Gathered all(layers.loss, layers.gradients);
  check_exchange(all.graph);
  BOOST_TEST(buckets_of(all.graph).size() == 2u);
  BOOST_TEST(all.graph.nodes[wait_of(all.graph)].inputs.size() == 13u);
}

BOOST_AUTO_TEST_CASE(buckets_are_cut_where_they_are_complete) {
  const Layers layers;
  const Gathered all(layers.loss, layers.gradients);
  for (const int64_t bytes : {1, 8, 64, 65, 512, 577, 1000, 1152, 1153, 2000, 2312, 1 << 20})
    check_split(all.graph, bytes);
  Graph small = all.graph;
  BOOST_TEST(esp::split_buckets(small, 1));
  BOOST_TEST(buckets_of(small).size() == 13u);
  // The last layer's gradients are sent before those of the first are computed.
  BOOST_TEST(complete_at(small.nodes[buckets_of(small)[1]]) <
             complete_at(small.nodes[buckets_of(small).back()]));
  // A single bucket is unchanged.
  Graph whole = all.graph;
  (void)esp::split_buckets(whole, 1 << 20);
  BOOST_TEST(buckets_of(whole).size() == 2u);
}

BOOST_AUTO_TEST_CASE(after_all_passes_too) {
  const Layers layers;
  Graph graph = Gathered(layers.loss, layers.gradients).graph;
  for (const auto pass : {esp::dead_nodes, esp::simplify, esp::fold_constants, esp::common_subexpressions,
                          esp::join_slices, esp::fuse_pointwise, esp::group_updates, esp::fuse_matmul}) {
    (void)pass(graph, {});
    esp::verify(graph, "a pass");
  }
  for (const int64_t bytes : {1, 64, 513, 1152, 1 << 20}) check_split(graph, bytes);
}

BOOST_AUTO_TEST_CASE(in_random_trees) {
  int cut = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      FuzzTree tree(seed);
      const Variable loss = tree.root.rank() ? esp::sum(tree.root) : tree.root;
      Pairs gradients = esp::new_parameter_gradients(loss);
      if (gradients.empty()) continue;
      const Gathered all(loss, gradients);
      check_exchange(all.graph);
      for (const int64_t bytes : {1, 500, 5000}) {
        check_split(all.graph, bytes);
        Graph graph = all.graph;
        cut += esp::split_buckets(graph, bytes);
      }
    }
  BOOST_TEST(cut > 40);
}

BOOST_AUTO_TEST_CASE(a_loss_that_was_written_behind_its_updates) {
  // Updates are of another value; the loss is the last node, and reads a leaf that they assign.
  const Variable w = esp::parameter(numbers({4}, -1, 1, 1), "w");
  const Variable x = esp::placeholder("x", {4}, esp::float64);
  const Variable first = esp::sum(esp::square(w * x));
  const Pairs gradients = gradients_of(first, {w});
  const std::vector<Variable> updates = optim::Sgd({.lr = 0.1, .momentum = 0.9}).build(gradients);
  const Variable loss = first + esp::sum(w) * 0.5;
  const Gathered all(loss, gradients, updates);
  check_exchange(all.graph);
  for (const int64_t bytes : {1, 1 << 20}) check_split(all.graph, bytes);
}

BOOST_AUTO_TEST_CASE(one_gradient_of_several_parameters) {
  const Variable a = esp::parameter(numbers({3}, -1, 1, 1), "a"),
                 b = esp::parameter(numbers({3}, -1, 1, 2), "b"),
                 c = esp::parameter(numbers({3}, -1, 1, 3), "c");
  const Variable x = esp::placeholder("x", {3}, esp::float64);
  const Variable loss = esp::sum(esp::square((a + b) * x) + c * x);
  Pairs gradients = gradients_of(loss, {a, b, c});
  gradients[1].second = gradients[0].second;  // as after common_subexpressions
  const Gathered all(loss, gradients);
  check_exchange(all.graph);
  const std::vector<const esp::Node*> whose = members(all.graph);
  BOOST_TEST((whose == std::vector<const esp::Node*>{a.node(), b.node(), c.node(), nullptr}));
  // Each parameter's update reads its own slot.
  const uint32_t wait = wait_of(all.graph);
  for (uint32_t i = wait + 1; i < all.graph.nodes.size(); ++i) {
    const GraphNode& n = all.graph.nodes[i];
    if (!n.op->has_side_effects() || !esp::is_parameter(all.graph.nodes[n.inputs[0].node].leaf.node()->op()))
      continue;
    std::set<const esp::Node*> read;
    std::vector<uint32_t> todo{n.inputs[1].node};
    while (!todo.empty()) {
      const GraphNode& behind = all.graph.nodes[todo.back()];
      todo.pop_back();
      for (const ValueRef& in : behind.inputs)
        if (in.node == wait)
          read.insert(whose[in.output]);
        else
          todo.push_back(in.node);
    }
    BOOST_TEST((read == std::set<const esp::Node*>{all.graph.nodes[n.inputs[0].node].leaf.node()}));
  }
  for (const int64_t bytes : {1, 24, 1 << 20}) check_split(all.graph, bytes);
}

BOOST_AUTO_TEST_CASE(parameters_without_elements) {
  const Variable none = esp::parameter(esp::zeros({0, 3}, esp::float64), "none"),
                 w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const Variable loss = esp::sum(none * w) + esp::sum(esp::square(w));
  const Gathered all(loss, gradients_of(loss, {none, w}));
  check_exchange(all.graph);
  for (const int64_t bytes : {1, 24, 32, 1 << 20}) check_split(all.graph, bytes);
  const Variable nothing = esp::sum(none);
  const Gathered empty(nothing, gradients_of(nothing, {none}));
  for (const int64_t bytes : {1, 8, 1 << 20}) check_split(empty.graph, bytes);
}

BOOST_AUTO_TEST_CASE(members_are_in_the_order_of_their_parameters) {
  const Layers layers;
  Pairs turned = layers.gradients;
  std::ranges::reverse(turned);
  const Gathered all(layers.loss, turned);
  check_exchange(all.graph);
  BOOST_TEST((members(all.graph) == members(Gathered(layers.loss, layers.gradients).graph)));
  check_split(all.graph, 512);
  // Readers of gradients other than updates read the replica's own gradient.
  const auto& [parameter, gradient] = layers.gradients[0];
  std::vector<Variable> results{layers.loss, esp::sum(esp::square(gradient)), gradient};
  Graph graph = esp::freeze(results, optim::Sgd(0.1).build({{parameter, gradient}}), {}, false);
  const ValueRef own = graph.results.back();
  graph.results.pop_back();
  esp::gather_gradients(graph, {parameter}, {own}, {0});
  esp::verify(graph, "gather_gradients");
  check_exchange(graph);
  // Without updates and replicas, no bucket is inserted.
  Graph calm = esp::freeze(results, {}, {}, false);
  const std::string text = calm.str();
  BOOST_TEST(!esp::gather_gradients(calm, {parameter}, {calm.results.back()}));
  BOOST_TEST(calm.str() == text);
}

BOOST_AUTO_TEST_CASE(what_is_left_is_a_message_if_it_is_large_enough) {
  const Variable a = esp::parameter(numbers({8}, -1, 1, 1), "a"),
                 b = esp::parameter(numbers({8}, -1, 1, 2), "b");
  const Variable loss = esp::sum(esp::square(a)) + esp::sum(esp::exp(b));
  const Gathered all(loss, gradients_of(loss, {a, b}));
  for (const auto& [bytes, messages] : {std::pair(64, 2u), {65, 1u}, {72, 1u}, {8, 3u}}) {
    Graph graph = all.graph;
    (void)esp::split_buckets(graph, bytes);
    BOOST_TEST(buckets_of(graph).size() == messages, bytes);
  }
}

BOOST_AUTO_TEST_CASE(scattered_buckets_stay_whole) {
  const Layers layers;
  for (const bool scattered : {false, true}) {
    std::vector<Variable> results{layers.loss}, parameters;
    for (const auto& [parameter, gradient] : layers.gradients) {
      parameters.push_back(parameter);
      results.push_back(gradient);
    }
    Graph graph = esp::freeze(results, optim::Adam(0.1).build(layers.gradients), {}, false);
    const std::vector<ValueRef> values(graph.results.begin() + 1, graph.results.end());
    graph.results.resize(1);
    esp::gather_gradients(graph, parameters, values, {0}, scattered);
    esp::verify(graph, "gather_gradients");
    check_exchange(graph);
    // The loss is sent to all replicas, in a separate bucket.
    BOOST_TEST(buckets_of(graph).size() == (scattered ? 3u : 2u));
    size_t scattered_members = 0;
    for (const uint32_t at : buckets_of(graph)) {
      const auto* bucket = esp::as_bucket(*graph.nodes[at].op);
      BOOST_TEST((graph.nodes[at].tag == esp::Tag::backward));
      if (!bucket->scattered()) continue;
      scattered_members += bucket->parameters().size();
      for (const Variable& p : bucket->parameters()) BOOST_TEST(p.defined());
    }
    BOOST_TEST(scattered_members == (scattered ? 12u : 0u));
    // Scattered buckets are not split.
    (void)esp::split_buckets(graph, 64);
    esp::verify(graph, "split_buckets");
    size_t whole = 0;
    for (const uint32_t at : buckets_of(graph)) whole += esp::as_bucket(*graph.nodes[at].op)->scattered();
    BOOST_TEST(whole == (scattered ? 2u : 0u));
    if (!scattered) BOOST_TEST(buckets_of(graph).size() > 5u);
  }
}

BOOST_AUTO_TEST_CASE(what_updates_do_not_read_is_not_sent) {
  const Variable a = esp::parameter(numbers({3}, -1, 1, 1), "a"),
                 b = esp::parameter(numbers({3}, -1, 1, 2), "b");
  const Variable loss = esp::sum(esp::square(a * b));
  const Pairs gradients = gradients_of(loss, {a, b});
  const Gathered all(loss, gradients, optim::Sgd(0.1).build({gradients[1]}));
  BOOST_TEST((members(all.graph) == std::vector<const esp::Node*>{b.node(), nullptr}));
  // Without updates, only the loss is exchanged.
  const Gathered loss_alone(loss, gradients, {});
  BOOST_TEST((members(loss_alone.graph) == std::vector<const esp::Node*>{nullptr}));
}

BOOST_AUTO_TEST_CASE(plans_train_the_same_however_their_buckets_are_cut) {
  const auto train = [](uint32_t seed, int64_t bytes) {
    esp::seed(seed);
    FuzzTree tree(seed);
    const Variable loss = tree.root.rank() ? esp::sum(tree.root) : tree.root;
    const Pairs gradients = esp::new_parameter_gradients(loss);
    const auto& feed = tree.feed->feed();
    esp::CompileOptions how;
    // One replica with all rows.
    if (bytes >= 0)
      how.shard = esp::ShardOptions{.batch_rows = 5,
                                    .bucket_bytes = bytes,
                                    .local_statistics = true,
                                    .other_feeds = {{feed.get(), {10}}},
                                    .other_rows = 10};
    const auto plan =
        esp::compile({.value = loss, .updates = optimizer_of(seed).build(gradients), .gradients = gradients},
                     {{feed.get(), {5}}}, how);
    const auto session = esp::make_session(esp::cpu(), esp::Launch::graph);
    for (const GraphNode& n : plan->graph.nodes)
      if (n.leaf.defined()) session->leaves.add(n.leaf);
    session->update_leaves();
    const auto runtime = session->bind(plan, {});
    Trace trace;
    for (int step = 0; step < 2; ++step) {
      runtime->load(*feed, feed->batch(0, step));
      runtime->run(static_cast<uint64_t>(step * runtime->random_nodes()));
      trace.push_back(runtime->value().clone());
    }
    session->leaves.mark_assigned(runtime->assigned());
    for (const Variable& p : tree.parameters) trace.push_back(p.value().clone());
    return std::pair(trace, plan->memory.buckets.size());
  };
  size_t messages = 0, compared = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      try {
        const Trace plain = train(seed, -1).first;
        for (const int64_t bytes : {0, 1, 600, 1 << 20}) {
          const auto [trace, count] = train(seed, bytes);
          BOOST_TEST(difference_of(trace, plain) < 1e-9);
          messages += count;
          ++compared;
        }
      } catch (const esp::UnsupportedError&) {  // unshardable, or invalid for ten rows
      }
    }
  BOOST_TEST(compared >= 60u);
  BOOST_TEST(messages > 2 * compared);
}

BOOST_AUTO_TEST_SUITE_END()
