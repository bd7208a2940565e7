// Recomputation under a memory budget.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/plan/memory.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

int64_t arena_of(const esp::Graph& graph) { return esp::plan_memory(graph, true).arena_bytes; }

/// The graph of `result` after the passes, within a budget.
struct Squeezed {
  esp::Graph graph;
  std::string before, after;
  bool changed;

  Squeezed(const esp::Variable& result, int64_t budget) : graph(esp::freeze({result}, {}, {}, false)) {
    before = graph.str();
    changed = esp::recompute(graph, budget);
    esp::verify(graph, "recompute");
    after = graph.str();
    BOOST_TEST(changed == (before != after));
    BOOST_TEST(!esp::recompute(graph, budget));
    BOOST_TEST(graph.str() == after);
  }
};

struct Trained {
  std::vector<esp::Tensor> values = {};
  int64_t arena = 0, steps = 0;
  std::vector<esp::PassReport> passes = {};
};

/// Lets one library compute all products of the networks below, so that no workspace depends on what was
/// measured.
void choose_openblas() {
  constexpr int64_t sizes[][3] = {{512, 64, 32}, {512, 64, 64}, {512, 4, 64}, {512, 64, 4},
                                  {32, 64, 512}, {64, 64, 512}, {64, 4, 512}};
  std::vector<esp::GemmChoice> choices;
  for (const auto& [m, n, k] : sizes)
    for (const int form : {0, 1, 2, 3})
      for (const auto epilogue :
           {esp::GemmEpilogue::none, esp::GemmEpilogue::bias, esp::GemmEpilogue::bias_relu})
        for (const int threads : {1, esp::num_threads()}) {
          esp::Gemm gemm{esp::DType::float32, form / 2 == 1, form % 2 == 1, m, n, k, 0, 0, 0};
          gemm.epilogue = epilogue;
          choices.push_back({gemm, threads, esp::GemmLibrary::openblas});
        }
  esp::gemm_choices().set(choices);
}

/// A deep network, trained for a few steps.
template <class Activation>
Trained train(int layers, int64_t width, int64_t budget, double dropout = 0) {
  esp::seed(3);
  const esp::Tensor x = numbers({512 * 2, 32}).to(esp::float32),
                    y = numbers({512 * 2, 4}, -1, 1, 1).to(esp::float32);
  const esp::data::Distributor feed({x, y}, {.batch_size = 512});
  const auto [in, target] = feed.get_output_graphs<2>();
  esp::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model.append(esp::nn::Dense(width));
    model.append(Activation());
    if (dropout > 0) model.append(esp::nn::Dropout(dropout));
  }
  model.append(esp::nn::Dense(4));
  const esp::Variable loss = esp::nn::MeanSquared()(model(in), target);
  const esp::Executor executor = loss.get_executor(
      {.mode = esp::Mode::training, .optimizer = optim::Adam({.lr = 0.01}), .memory_budget = budget});
  const esp::History history = executor.execute({.epochs = 2, .progress = false});
  Trained result{.arena = executor.plan().arena_bytes(),
                 .steps = executor.plan().steps(),
                 .passes = executor.plan().passes()};
  result.values.push_back(esp::tensor(history.epochs.back().loss_sum, esp::float64));
  for (const auto& [name, p] : model.parameters()) result.values.push_back(p.value().clone());
  return result;
}

void check_equal(const Trained& a, const Trained& b) {
  BOOST_REQUIRE(a.values.size() == b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) BOOST_TEST(difference(a.values[i], b.values[i]) == 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recompute)

//   x ── exp ─────────────────────────┐          x ────────────────────── exp ──┐
//    \── column × row ── sum ── · ── (result)     \── column × row ── sum ── · ── (result)
BOOST_AUTO_TEST_CASE(a_value_that_waits_is_computed_when_it_is_needed) {
  const esp::Variable x = esp::placeholder("x", {256});
  const esp::Variable waits = esp::exp(x), large = esp::reshape(x, {256, 1}) * x;
  const esp::Variable result = waits * esp::sum(large);
  const int64_t enough = 256 * 256 * 4 + 256 * 4 + 64;
  const Squeezed s(result, enough);
  BOOST_TEST(s.before ==
             "%0 = source(feed=x output=0) : float32 [256]\n"
             "%1 = exp %0 : float32 [256]\n"
             "%2 = reshape(shape=[256, 1]) %0 : float32 [256, 1]\n"
             "%3 = multiply %2 %0 : float32 [256, 256]\n"
             "%4 = sum(axes=[] keep_dims=false) %3 : float32 []\n"
             "%5 = multiply %1 %4 : float32 [256]\n"
             "results: %5\n");
  BOOST_TEST(s.after ==
             "%0 = source(feed=x output=0) : float32 [256]\n"
             "%1 = reshape(shape=[256, 1]) %0 : float32 [256, 1]\n"
             "%2 = multiply %1 %0 : float32 [256, 256]\n"
             "%3 = sum(axes=[] keep_dims=false) %2 : float32 []\n"
             "%4 = exp %0 : float32 [256]\n"
             "%5 = multiply %4 %3 : float32 [256]\n"
             "results: %5\n");
  BOOST_TEST(arena_of(s.graph) <= enough);
}

//   x ── exp ══ sum, read before and after the peak: two nodes; random ones have one stream
BOOST_AUTO_TEST_CASE(what_is_read_before_and_after_is_computed_twice) {
  const esp::Variable x = esp::placeholder("x", {256});
  const esp::Variable waits = esp::dropout(x, 0.5) * esp::exp(x), first = esp::sum(waits);
  const esp::Variable result = waits * esp::sum(esp::reshape(x, {256, 1}) * x * first);
  const Squeezed s(result, 256 * 256 * 4 + 256 * 4 + 128);
  BOOST_TEST(s.changed);
  std::vector<int64_t> streams;
  int64_t exponentials = 0;
  for (const esp::GraphNode& n : s.graph.nodes) {
    if (n.op->is_random()) streams.push_back(n.stream);
    exponentials += n.op->name() == "exp";
  }
  BOOST_TEST(exponentials == 2, s.after);
  BOOST_TEST(streams == (std::vector<int64_t>{0, 0}), s.after);
  BOOST_TEST(s.graph.streams == 1);
}

// A chain is recomputed from values that are alive anyway: here from x, not from the product with w.
BOOST_AUTO_TEST_CASE(a_chain_is_computed_again_from_what_is_alive) {
  const esp::Variable x = esp::placeholder("x", {128, 8}), w = esp::parameter(esp::ones({8, 128}), "w");
  const esp::Variable waits = esp::sin(esp::tanh(esp::matmul(x, w))), total = esp::sum(waits);
  const esp::Variable large = esp::reshape(x, {1024, 1}) * esp::reshape(x, {1024});
  const esp::Variable result = waits * (total + esp::sum(large));
  const int64_t wanted = 1024 * 1024 * 4 + 128 * 8 * 4 + 256;
  const Squeezed s(result, wanted);
  BOOST_TEST(s.changed);
  BOOST_TEST(arena_of(s.graph) <= wanted, s.after);
  BOOST_TEST(static_cast<int64_t>(s.graph.nodes.size()) ==
                 3 + std::count(s.before.begin(), s.before.end(), '\n') - 1,
             s.after);
}

// Products are recomputed last: here a cheap value is enough.
BOOST_AUTO_TEST_CASE(products_come_last) {
  const esp::Variable x = esp::placeholder("x", {64, 64});
  const esp::Variable product = esp::matmul(x, x), cheap = esp::exp(x),
                      both = esp::sum(product) + esp::sum(cheap);
  const esp::Variable large = esp::reshape(x, {4096, 1}) * esp::reshape(x, {4096});
  const esp::Variable total = both + esp::sum(large), result = product * cheap * total;
  const auto products = [](const esp::Graph& graph) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [](const esp::GraphNode& n) { return n.op->kind() == esp::OpKind::matmul; });
  };
  const int64_t large_bytes = 4096 * 4096 * 4, one = 4096 * 4;
  BOOST_TEST(products(Squeezed(result, large_bytes + 2 * one + 256).graph) == 1);
  BOOST_TEST(products(Squeezed(result, large_bytes + one + 256).graph) == 2);
}

// Of two values of one size, that which is less work: an exponential instead of a sum of many numbers.
BOOST_AUTO_TEST_CASE(less_work_comes_first) {
  const esp::Variable many = esp::placeholder("many", {64, 256}), x = esp::placeholder("x", {256});
  const esp::Variable summed = esp::sum(many, 0), cheap = esp::exp(x);
  const esp::Variable large = esp::sum(esp::reshape(x, {256, 1}) * x);
  const esp::Variable result = summed * large + cheap * large + esp::sum(many) + esp::sum(x);
  const Squeezed s(result, arena_of(esp::freeze({result}, {}, {}, false)) - 1024);
  BOOST_TEST(s.changed);
  BOOST_TEST(s.after.find("sum(axes=[0]") < s.after.find("[256, 256]"), s.after);
  BOOST_TEST(s.after.find("exp") > s.after.find("[256, 256]"), s.after);
}

// A value that was dropped first is kept after all if that which was dropped later suffices.
BOOST_AUTO_TEST_CASE(what_need_not_be_dropped_is_kept) {
  const esp::Variable x = esp::placeholder("x", {256}), y = esp::placeholder("y", {2048});
  const esp::Variable little = esp::exp(x), much = esp::sin(y);
  const esp::Variable large = esp::sum(esp::reshape(x, {256, 1}) * x);
  const esp::Variable result = esp::sum(much * large) + esp::sum(little * large) + esp::sum(x) + esp::sum(y);
  const Squeezed s(result, arena_of(esp::freeze({result}, {}, {}, false)) - 6 * 1024);
  BOOST_TEST(s.after.find("sin") > s.after.find("[256, 256]"), s.after);
  BOOST_TEST(s.after.find("exp") < s.after.find("[256, 256]"), s.after);
}

// x ── exp ── two readers through a matrix view: the second reads the copy, and the first value is released.
BOOST_AUTO_TEST_CASE(views_show_the_copy) {
  const esp::Variable x = esp::placeholder("x", {256});
  const esp::Variable waits = esp::reshape(esp::exp(x), {16, 16}), turned = esp::transpose(waits);
  const esp::Variable first = esp::sum(esp::tanh(turned)),
                      large = esp::sum(esp::reshape(x, {256, 1}) * x * first);
  const int64_t enough = 256 * 256 * 4 + 256 * 4 + 192;
  for (const esp::Variable& second : {waits * large, turned * large, esp::matmul(turned, waits) * large}) {
    const Squeezed s(second, enough);
    BOOST_TEST(s.changed);
    BOOST_TEST(arena_of(s.graph) <= enough + 1024, s.after);
    BOOST_TEST(std::count_if(s.graph.nodes.begin(), s.graph.nodes.end(),
                             [](const esp::GraphNode& n) { return n.op->name() == "exp"; }) == 2);
  }
}

BOOST_AUTO_TEST_CASE(results_and_batches_are_not_made_again) {
  // A value that is only a result must not be recomputed at the end: leaves have changed by then.
  const esp::Variable x = esp::placeholder("x", {256}), large = esp::sum(esp::reshape(x, {256, 1}) * x);
  esp::Graph graph = esp::freeze({esp::exp(x), large}, {}, {}, false);
  const std::string text = graph.str();
  BOOST_TEST(!esp::recompute(graph, arena_of(graph) - 512));
  BOOST_TEST(graph.str() == text);
  // A chain is recomputed from the batch; the source is not copied.
  const esp::Variable y = esp::placeholder("y", {256});
  const esp::Variable waits = esp::sin(esp::exp(y)), product = waits * large + esp::sum(waits) * 0.5;
  esp::Graph chain = esp::freeze({product}, {}, {}, false);
  (void)esp::recompute(chain, 256 * 256 * 4 + 2 * 1024 + 128);
  esp::verify(chain, "recompute");
  const auto sources = std::count_if(chain.nodes.begin(), chain.nodes.end(),
                                     [](const esp::GraphNode& n) { return n.op->feed() != nullptr; });
  BOOST_TEST(sources == 2);
}

BOOST_AUTO_TEST_CASE(what_fits_is_left_alone) {
  const esp::Variable x = esp::placeholder("x", {256});
  const esp::Variable result = esp::exp(x) * esp::sum(esp::reshape(x, {256, 1}) * x);
  esp::Graph graph = esp::freeze({result}, {}, {}, false);
  BOOST_TEST(!Squeezed(result, arena_of(graph)).changed);
  BOOST_TEST(!Squeezed(result, int64_t{1} << 40).changed);
}

BOOST_AUTO_TEST_CASE(no_copy_reads_a_leaf_that_has_been_assigned) {
  // h is computed from w early, stays unread during the peak, and is assigned to a state after w is assigned.
  // A copy behind the assignment of w would use the new w.
  struct Rule : optim::UpdateRule {
    explicit Rule(esp::Variable h) : h(std::move(h)) {}
    std::string_view name() const override { return "Rule"; }
    void update(optim::ParameterUpdate& step) const override {
      step.assign(step.parameter(), step.parameter() - step.gradient() * step.setting("lr"));
      step.assign(step.state("h"), h);
    }
    esp::Variable h;
  };
  const esp::Variable w = esp::parameter(numbers({256, 256}, -1, 1, 1), "w"), h = esp::tanh(w) * 2.0;
  const esp::Variable large = esp::reshape(w, {1, 65536}) * esp::state(numbers({6, 1})),
                      loss = esp::sum(esp::tanh(large));
  const optim::Optimizer rule(std::make_shared<Rule>(h), {{"lr", 0.1}});
  const esp::Graph frozen = esp::freeze({loss}, rule.build({{w, loss.gradient(w)}}), {}, false);
  for (const bool in_place : {false, true}) {
    const int64_t before = esp::plan_memory(frozen, in_place).arena_bytes;
    for (const int64_t less : {64, 65536, 262144, 524288, 1000000}) {
      esp::Graph graph = frozen;
      (void)esp::recompute(graph, before - less, in_place);
      BOOST_CHECK_NO_THROW(esp::verify(graph, "recompute"));
    }
  }
  // The same with another reader of h before.
  const esp::Variable x = esp::placeholder("x", {64, 64}), v = esp::parameter(esp::ones({64}), "v");
  esp::Variable y = x;
  for (int i = 0; i < 6; ++i) y = esp::tanh(y * v);
  const esp::Variable deep = esp::sum(y);
  const optim::Sgd sgd({.lr = 0.1, .momentum = 0.9});
  esp::Graph graph = esp::freeze({deep}, sgd.build({{v, deep.gradient(v)}}), {}, false);
  const int64_t before = arena_of(graph);
  BOOST_TEST(esp::recompute(graph, before * 6 / 10));
  esp::verify(graph, "recompute");
  BOOST_TEST(arena_of(graph) <= before * 6 / 10);
}

BOOST_AUTO_TEST_CASE(deep_networks_train_the_same_in_less_memory) {
  choose_openblas();
  const auto check = [](const char* what, const auto& run, double least) {
    BOOST_TEST_CONTEXT(what) {
      const Trained free = run(0);
      for (double share : {0.8, 0.6, least}) {
        const auto budget = static_cast<int64_t>(share * static_cast<double>(free.arena));
        const Trained squeezed = run(budget);
        BOOST_TEST(squeezed.arena <= budget);
        BOOST_TEST(squeezed.steps > free.steps);
        check_equal(free, squeezed);
        BOOST_TEST(squeezed.passes.back().name == "recompute");
        BOOST_TEST(squeezed.passes.back().changed);
      }
      const Trained enough = run(free.arena);
      BOOST_TEST(enough.steps == free.steps);
      BOOST_TEST(!enough.passes.back().changed);
    }
  };
  check(
      "tanh", [](int64_t budget) { return train<esp::nn::Tanh>(12, 64, budget); }, 0.5);
  check(
      "relu", [](int64_t budget) { return train<esp::nn::Relu>(12, 64, budget); }, 0.5);
  check(
      "dropout", [](int64_t budget) { return train<esp::nn::Tanh>(6, 64, budget, 0.3); }, 0.4);
}

BOOST_AUTO_TEST_CASE(no_more_is_computed_again_than_a_budget_takes) {
  esp::Variable h = esp::placeholder("x", {512, 32});
  Variables weights;
  for (int i = 0; i < 7; ++i) {
    weights.push_back(esp::parameter(esp::ones({h.shape()[1], 64}), "w"));
    h = esp::exp(esp::tanh(esp::matmul(h, weights.back())) * 0.5);
  }
  const esp::Variable loss = esp::mean(esp::square(h));
  Variables results{loss};
  for (const esp::Variable& w : weights) results.push_back(loss.gradient(w));
  const esp::Graph free = esp::freeze(results, {}, {}, false);
  const int64_t all = arena_of(free);
  const auto squeezed = [&](int64_t budget) {
    esp::Graph graph = free;
    (void)esp::recompute(graph, budget);
    const auto products = std::ranges::count_if(
        graph.nodes, [](const esp::GraphNode& n) { return n.op->kind() == esp::OpKind::matmul; });
    return std::tuple(graph.nodes.size() - free.nodes.size(), products, arena_of(graph));
  };
  struct Row {
    int64_t percent;
    size_t nodes;
    int64_t products;
  };
  for (const Row& row : {Row{80, 8, 20}, Row{50, 16, 22}, Row{30, 86, 41}}) {
    const auto [nodes, products, arena] = squeezed(all * row.percent / 100);
    BOOST_TEST(nodes <= row.nodes);
    BOOST_TEST(products <= row.products);
    BOOST_TEST(arena <= all * row.percent / 100);
  }
  // Far below what can be reached.
  BOOST_TEST(std::get<2>(squeezed(all / 100)) <= all * 30 / 100);
}

BOOST_AUTO_TEST_CASE(budgets_that_cannot_be_kept) {
  const esp::Variable x = esp::placeholder("x", {64, 64}), w = esp::parameter(esp::ones({64, 64}));
  const esp::Variable loss = esp::sum(esp::tanh(esp::matmul(x, w)));
  const auto with = [&](int64_t budget, std::vector<std::string> without = {}) {
    return loss.get_executor({.mode = esp::Mode::training,
                              .optimizer = optim::Sgd(0.1),
                              .without = std::move(without),
                              .memory_budget = budget});
  };
  const int64_t needed = with(0).plan().arena_bytes();
  BOOST_CHECK_EXCEPTION(with(1000), esp::OutOfMemory, says({"1000", "least"}));
  BOOST_CHECK_EXCEPTION(with(-1), esp::Error, says({"-1", "budget"}));
  BOOST_CHECK_EXCEPTION(with(needed - 1, {"recompute", "in_place"}), esp::OutOfMemory, says({"budget"}));
  BOOST_CHECK_NO_THROW(with(needed));
}

BOOST_AUTO_TEST_SUITE_END()
