// The memory plan of random graphs with ops of all traits: views of every kind, several results, outputs in
// place, inputs read only for their shape, buckets, and feeds at any position.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/sharding/gradient_bucket.h"
#include "many_cases.h"
#include "memory_plan_checks.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Graph;
using esp::GraphNode;
using esp::Shape;
using esp::Spec;
using esp::ValueRef;
using esp::Variable;

namespace {

/// The traits of a test op.
struct Kernel {
  esp::Specs outputs;
  std::vector<bool> reads = {}, over = {};  // of each input; of each output and input
  bool refuses = false;                     // it may throw depending on values
};

class KernelOp : public esp::Op {
 public:
  explicit KernelOp(Kernel kernel) : Op(traits_of(kernel)), kernel_(std::move(kernel)) {}
  std::string_view name() const override { return "kernel"; }
  bool can_write_over(size_t output, size_t input) const override {
    return !kernel_.over.empty() && kernel_.over[output * kernel_.reads.size() + input];
  }
  esp::Specs infer(const esp::InputSpecs&) const override {
    return {kernel_.outputs.begin(), kernel_.outputs.end()};
  }
  bool equals(const Op& other) const override { return this == &other; }

 private:
  static esp::OpTraits traits_of(const Kernel& kernel) {
    esp::OpTraits traits{.kind = kernel.refuses ? esp::OpKind::other : esp::OpKind::pointwise};
    for (size_t i = 0; i < kernel.reads.size(); ++i)
      if (!kernel.reads[i]) traits.reads.bits &= ~(uint64_t{1} << i);
    return traits;
  }
  Kernel kernel_;
};
esp::OpPtr op_of(const std::shared_ptr<Kernel>& kernel) { return std::make_shared<KernelOp>(*kernel); }

uint32_t add(Graph& graph, GraphNode node) {
  graph.nodes.push_back(std::move(node));
  return static_cast<uint32_t>(graph.nodes.size() - 1);
}
uint32_t add_leaf(Graph& graph, const Variable& leaf) {
  return add(graph, {leaf.node()->op_, {}, {leaf.node()->outputs[0].spec}, {}, {}, leaf, {}});
}
uint32_t add_kernel(Graph& graph, const std::shared_ptr<Kernel>& op, esp::SmallVector<ValueRef, 2> inputs) {
  return add(graph, {op_of(op), std::move(inputs), op->outputs, {}, {}, {}, {}});
}
uint32_t add_assignment(Graph& graph, uint32_t leaf, ValueRef value) {
  esp::BuildContext now = esp::build_context();
  now.tag = esp::Tag::update;
  now.lazy = true;
  const esp::BuildScope scope(now);
  const Variable& to = graph.nodes[leaf].leaf;
  return add(graph, {esp::optim::assignment(to, to).node()->op_,
                     {{leaf, 0}, value},
                     {graph.nodes[leaf].outputs[0]},
                     esp::Tag::update,
                     {},
                     {},
                     {}});
}
/// Adds a view of `of`, with the op that `view` applies to a leaf of the same spec.
uint32_t add_view(Graph& graph, ValueRef of, const std::function<Variable(const Variable&)>& view) {
  const Spec spec = graph.spec(of);
  const Variable like = view(esp::parameter(esp::zeros(spec.shape, spec.dtype)));
  return add(graph, {like.node()->op_, {of}, {like.node()->outputs[0].spec}, {}, {}, {}, {}});
}

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed), reals_alone_(seed % 2 == 0) {
    for (int i = 0; i < 4; ++i)
      leaves_.push_back(
          values_
              .emplace_back(ValueRef{add_leaf(graph, esp::parameter(esp::zeros(shape(), esp::float64))), 0})
              .node);
    const int nodes = 8 + static_cast<int>(random_() % 24), late = static_cast<int>(random_() % 20);
    for (int i = 0; i < nodes; ++i) {
      if (i == late) values_.push_back({add_feed(), 0});
      random_() % 3 ? kernel() : view();
    }
    if (reals_alone_) bucket();
    for (const uint32_t leaf : leaves_)
      if (random_() % 3) assigned_.emplace_back(leaf, value_of(graph.nodes[leaf].outputs[0]));
    for (int i = 0; i < 3; ++i) graph.results.push_back(any());
    for (const auto& [leaf, value] : assigned_) add_assignment(graph, leaf, value);
    esp::keep_old_values(graph);
    esp::verify(graph, "nothing");
  }
  Graph graph;

 private:
  uint32_t upto(size_t n) { return static_cast<uint32_t>(random_() % n); }
  ValueRef any() { return values_[std::max(upto(values_.size()), upto(values_.size()))]; }
  Shape shape() {
    static const Shape shapes[] = {{2}, {4}, {4}, {3}, {8}, {2, 4}, {4, 4}, {4, 1}, {2, 2}};
    return shapes[upto(std::size(shapes))];
  }
  Spec spec() { return {reals_alone_ || random_() % 4 ? esp::float64 : esp::float32, shape()}; }
  uint32_t add_feed() {
    const Variable x = esp::placeholder("x", shape(), esp::float64);
    return add(graph, {x.node()->op_, {}, {x.node()->outputs[0].spec}, {}, {}, {}, {}});
  }
  void kernel() {
    const auto op = std::make_shared<Kernel>();
    esp::SmallVector<ValueRef, 2> inputs;
    for (uint32_t k = 0; k < 1 + upto(3); ++k) inputs.push_back(any());
    for (uint32_t k = 0; k < 1 + upto(5) / 3; ++k)
      op->outputs.push_back(random_() % 4 ? graph.spec(inputs[upto(inputs.size())]) : spec());
    for (size_t k = 0; k < inputs.size(); ++k) op->reads.push_back(random_() % 6 != 0);
    for (size_t k = 0; k < inputs.size() * op->outputs.size(); ++k) op->over.push_back(random_() % 4 != 0);
    op->refuses = random_() % 12 == 0;
    const uint32_t node = add_kernel(graph, op, inputs);
    for (uint32_t k = 0; k < op->outputs.size(); ++k) values_.push_back({node, k});
  }
  void view() try {
    const ValueRef of = any();
    const uint32_t way = upto(6);
    const auto seen = [&](const Variable& x) -> Variable {
      const int64_t size = x.shape()[0];
      switch (way) {
        case 0: return esp::transpose(x);
        case 1: return esp::reshape(x, {-1});
        case 2: return esp::reshape(x, {2, -1});
        case 3: return esp::slice(x, 0, 1, size);
        case 4: return esp::slice(x, 0, 0, (size + 1) / 2);
        default: return esp::slice(x, -1, 0, 1);
      }
    };
    const ValueRef made{add_view(graph, of, seen), 0};
    if (graph.spec(made).shape.elements() > 0) values_.push_back(made);
  } catch (const esp::Error&) {  // invalid for this shape
  }
  void bucket() {
    std::vector<Variable> whose;
    GraphNode n;
    for (uint32_t k = 0; k < 1 + upto(4); ++k) {
      n.inputs.push_back(any());
      n.outputs.push_back(graph.spec(n.inputs.back()));
      whose.push_back(graph.nodes[leaves_[upto(leaves_.size())]].leaf);
    }
    n.op = std::make_shared<esp::GradientBucket>(whose);
    const auto count = static_cast<uint32_t>(n.outputs.size());
    uint32_t node = add(graph, std::move(n));
    if (random_() % 2) {
      GraphNode wait;
      wait.op = std::make_shared<esp::WaitForGradients>();
      wait.outputs = graph.nodes[node].outputs;
      for (uint32_t k = 0; k < count; ++k) wait.inputs.push_back({node, k});
      node = add(graph, std::move(wait));
    }
    for (uint32_t k = 0; k < count; ++k) values_.push_back({node, k});
    for (uint32_t k = 0; k < upto(4); ++k) kernel();
  }
  /// A value of this spec, an existing or a new one.
  ValueRef value_of(const Spec& wanted) {
    for (int i = 0; i < 6; ++i)
      if (const ValueRef v = any(); graph.spec(v) == wanted) return v;
    const auto op = std::make_shared<Kernel>();
    const esp::SmallVector<ValueRef, 2> inputs{any(), any()};
    op->outputs = {wanted};
    op->reads = {true, random_() % 2 == 0};
    op->over = {random_() % 4 != 0, random_() % 4 != 0};
    return {add_kernel(graph, op, inputs), 0};
  }

  std::mt19937 random_;
  bool reals_alone_;
  std::vector<uint32_t> leaves_;
  std::vector<ValueRef> values_;
  std::vector<std::pair<uint32_t, ValueRef>> assigned_;
};

std::shared_ptr<Kernel> kernel(const Spec& spec, std::vector<bool> reads, bool in_place = false) {
  const auto op = std::make_shared<Kernel>();
  op->outputs = {spec};
  op->over.assign(reads.size(), in_place);
  op->reads = std::move(reads);
  return op;
}
const Spec small{esp::float64, Shape{8}}, large{esp::float64, Shape{800}};

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_graphs)

BOOST_AUTO_TEST_CASE(nothing_is_overwritten) {
  for (uint32_t seed = 0; seed < many_cases(600); ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      const RandomGraph random(seed);
      int64_t bytes[2];
      for (const bool in_place : {false, true}) {
        const esp::MemoryPlan plan = esp::plan_memory(random.graph, in_place);
        check_plan(random.graph, plan);
        check_buffers(plan.buffers, plan.arena_bytes);
        bytes[in_place] = plan.all_bytes;
        for (uint32_t i = 0; i < random.graph.nodes.size(); ++i)
          if (!in_place && random.graph.nodes[i].op->name() == "kernel") BOOST_TEST(!plan.in_place[i]);
      }
      BOOST_TEST(bytes[1] <= bytes[0]);
    }
}

BOOST_AUTO_TEST_CASE(buffers_are_placed_largest_first_in_the_smallest_gap) {
  std::vector<esp::ArenaBuffer> sizes{{64, 3, 4}, {64, 1, 5}, {192, 0, 5}, {192, 5, 5}};
  BOOST_TEST(esp::place_best_fit(sizes) == 448);
  std::vector<esp::ArenaBuffer> gaps{{64, 0, 1}, {64, 0, 4},  {64, 2, 3},
                                     {64, 0, 4}, {192, 5, 5}, {128, 1, 5}};
  BOOST_TEST(esp::place_best_fit(gaps) == 320);
}

BOOST_AUTO_TEST_CASE(a_shape_keeps_no_buffer) {
  // x -> a -> b -> c, where c reads only the shape of a: a's buffer is free for c.
  Graph graph;
  const uint32_t x = add_leaf(graph, esp::parameter(esp::zeros({800}, esp::float64)));
  const uint32_t a = add_kernel(graph, kernel(large, {true}), {{x, 0}});
  const uint32_t b = add_kernel(graph, kernel(large, {true}), {{a, 0}});
  const uint32_t c = add_kernel(graph, kernel(large, {true, false}), {{b, 0}, {a, 0}});
  graph.results = {{c, 0}};
  BOOST_TEST(esp::plan_memory(graph, true).arena_bytes == 2 * 6400);
  graph.nodes[c].op = op_of(kernel(large, {true, true}));
  BOOST_TEST(esp::plan_memory(graph, true).arena_bytes == 3 * 6400);
  graph.nodes[c].op = op_of(kernel(large, {true, true}, true));  // in place of one of them
  BOOST_TEST(esp::plan_memory(graph, true).arena_bytes == 2 * 6400);
  BOOST_TEST(esp::plan_memory(graph, false).arena_bytes == 3 * 6400);
}

BOOST_AUTO_TEST_CASE(leaves_are_written_where_nothing_reads_them_later) {
  Graph graph;
  const uint32_t w = add_leaf(graph, esp::parameter(esp::zeros({8}, esp::float64))),
                 v = add_leaf(graph, esp::parameter(esp::zeros({8}, esp::float64)));
  const uint32_t next = add_kernel(graph, kernel(small, {true, true}, true), {{w, 0}, {v, 0}});
  const uint32_t other = add_kernel(graph, kernel(small, {true}), {{v, 0}});
  graph.results = {{other, 0}};
  add_assignment(graph, w, {next, 0});
  const auto written = [&](const Graph& g) {
    const esp::MemoryPlan plan = esp::plan_memory(g, true);
    check_plan(g, plan);
    return plan.in_place[next] && !plan.runs.back();
  };
  BOOST_TEST(written(graph));
  // Later reads of its shape and of another leaf do not matter.
  Graph shape = graph;
  shape.nodes[other] = {op_of(kernel(small, {true, false})), {{v, 0}, {w, 0}}, {small}, {}, {}, {}, {}};
  BOOST_TEST(written(shape));
  Graph later = graph;
  later.nodes[other].inputs = {{w, 0}};
  BOOST_TEST(!written(later));
  // Not before a kernel that may throw, but before one that copies.
  const auto refusing = kernel(small, {true});
  refusing->refuses = true;
  Graph throws = graph;
  throws.nodes[other].op = op_of(refusing);
  BOOST_TEST(!written(throws));
  Graph copies = graph;
  copies.nodes[other].op = esp::concat({graph.nodes[v].leaf, graph.nodes[w].leaf}).node()->op_;
  if (copies.nodes[other].op->traits().only_copies && copies.nodes[other].op->kind() == esp::OpKind::other)
    BOOST_TEST(written(copies));
  // An op that must not write in place needs a place of its own.
  Graph apart = graph;
  apart.nodes[next].op = op_of(kernel(small, {true, true}, false));
  BOOST_TEST(!written(apart));
  // A leaf that is assigned another leaf gets a copy of it.
  Graph taken = graph;
  taken.nodes.back().inputs[1] = {v, 0};
  const esp::MemoryPlan plan = esp::plan_memory(taken, true);
  BOOST_TEST(plan.runs.back());
}

// A batch is written before the first kernel, so it must not be placed in a leaf that kernels read.
BOOST_AUTO_TEST_CASE(a_batch_that_a_leaf_takes_is_copied_into_it) {
  const Variable w = esp::parameter(numbers({4, 4}, 0.5, 1, 1), "w"),
                 last = esp::state(numbers({4, 4}, 0.5, 1, 2), "last");
  const Variable before = esp::matmul(last, last);  // precedes the batch in the graph
  const Variable x = esp::placeholder("x", {4, 4}, esp::float64);
  struct Rule : esp::optim::UpdateRule {
    std::string_view name() const override { return "Rule"; }
    void update(esp::optim::ParameterUpdate& step) const override {
      step.assign(step.parameter(), step.parameter() - step.gradient() * 0.1);
      step.assign(last, batch);
    }
    Variable last, batch;
  };
  const auto rule = std::make_shared<Rule>();
  rule->last = last;
  rule->batch = x;
  const Variable loss = esp::sum(esp::matmul(before, x)) + esp::sum(w * x);
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Optimizer(rule, {})});
  esp::Tensor kept = last.value().clone();
  for (uint64_t step = 0; step < 3; ++step) {
    const esp::Tensor batch = numbers({4, 4}, -1, 1, step);
    const double expected =
        (esp::sum(esp::matmul(esp::matmul(kept, kept), batch)) + esp::sum(w * batch)).item();
    BOOST_TEST(executor.run({{"x", batch}}).item() == expected, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(difference(last.value(), batch) == 0);
    kept = batch;
  }
}

BOOST_AUTO_TEST_CASE(a_view_that_comes_later_shows_the_leaf_too) {
  Graph graph;
  const uint32_t w = add_leaf(graph, esp::parameter(esp::zeros({2, 4}, esp::float64)));
  const Spec spec = graph.nodes[w].outputs[0];
  const uint32_t next = add_kernel(graph, kernel(spec, {true}, true), {{w, 0}});
  const uint32_t view = add_view(graph, {w, 0}, [](const Variable& x) { return esp::reshape(x, {8}); });
  const uint32_t reader = add_kernel(graph, kernel(small, {true}), {{view, 0}});
  graph.results = {{reader, 0}};
  add_assignment(graph, w, {next, 0});
  for (const bool in_place : {false, true}) {
    const esp::MemoryPlan plan = esp::plan_memory(graph, in_place);
    check_plan(graph, plan);
    BOOST_TEST(plan.runs.back());
  }
}

BOOST_AUTO_TEST_SUITE_END()
