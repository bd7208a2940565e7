// Random trees, trained eagerly and by plans with and without passes: all results are equal. The environment
// variables PLAN_FUZZ_FIRST (a seed) and PLAN_FUZZ_COUNT select other trees.
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "fuzz_tree.h"
#include "many_cases.h"
#include "training_runs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

// Traces have the tree's value in each step, followed by the parameters.
constexpr int epochs = 2;

void add_parameters(const FuzzTree& tree, Trace& trace) {
  for (const Variable& p : tree.parameters) trace.push_back(p.value().clone());
}

/// Some trees already have updates.
bool is_recorded(uint32_t seed) { return seed % 5 == 0; }
void record(const FuzzTree& tree, const optim::Optimizer& rule, uint32_t seed) {
  if (!is_recorded(seed)) return;
  tree.root.forward().update(rule);
  tree.feed->reset();
  esp::seed(seed);
}

Trace train_eagerly(uint32_t seed, uint32_t which) {
  esp::seed(seed);
  FuzzTree tree(seed);
  const optim::Optimizer rule = optimizer_of(which);
  Trace trace;
  record(tree, rule, seed);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t step = 0; step < tree.feed->steps(); ++step) {
      tree.root.forward();
      trace.push_back(tree.root.value().clone());
      tree.root.update(rule);
    }
    tree.feed->reset();
    tree.disturb();
  }
  add_parameters(tree, trace);
  return trace;
}

struct PlanOptions {
  std::vector<std::string> without = {};
  double budget = 0;  // as a fraction of the arena without a budget
  int threads_to_bind = 1, threads_to_run = 1;
  bool bucket = false;
};

Trace train_by_plan(uint32_t seed, uint32_t which, const PlanOptions& options, Trace* inference = nullptr) {
  esp::seed(seed);
  FuzzTree tree(seed);
  esp::ExecutorOptions how{.mode = esp::Mode::training, .without = options.without};
  const auto executor_of = [&] {
    if (!is_recorded(seed)) how.optimizer = optimizer_of(which);
    return esp::internal::make_executor(tree.root, how, options.bucket);
  };
  const std::unique_ptr<esp::data::Distributor> other = FuzzTree::feed_of(8, seed + 1);
  if (seed % 4 == 0 && options.budget == 0) how.validation = *other;
  record(tree, optimizer_of(which), seed);
  const int before = esp::num_threads();
  esp::set_num_threads(options.threads_to_bind);
  if (options.budget > 0)
    how.memory_budget =
        static_cast<int64_t>(options.budget * static_cast<double>(executor_of().plan().arena_bytes()));
  std::optional<esp::Executor> made;
  try {
    made = executor_of();
  } catch (const esp::OutOfMemory&) {
    how.memory_budget = 0;
    made = executor_of();
  }
  const esp::Executor& executor = *made;
  esp::set_num_threads(options.threads_to_run);
  Trace trace;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) { trace.push_back(executor.value()); });
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const esp::History history = executor.execute({.progress = false});
    if (inference) inference->push_back(esp::tensor(history.epochs[0].validation_loss, esp::float64));
    tree.disturb();
  }
  esp::set_num_threads(before);
  add_parameters(tree, trace);
  if (inference) {
    const esp::Executor calm =
        tree.root.get_executor({.mode = esp::Mode::inference, .without = options.without});
    tree.feed->reset();
    for (int64_t step = 0; step < tree.feed->steps(); ++step) {
      (void)calm.step();
      inference->push_back(calm.value());
    }
  }
  return trace;
}

/// A layer with a loss, and a parameter without elements.
struct Layer {
  esp::DType dtype;
  int64_t rows, in, out;
};
Trace train_layer(const Layer& layer, uint32_t which, bool eager,
                  const std::vector<std::string>& without = {}) {
  const auto [dtype, rows, in, out] = layer;
  const Variable x = numbers({rows, in}, -1, 1, 5).to(dtype);
  const Variable w = esp::parameter(numbers({in, out}, -0.1, 0.1, 1).to(dtype)),
                 b = esp::parameter(numbers({out}, -1, 1, 2).to(dtype)),
                 none = esp::parameter(esp::zeros({0, 4}, dtype));
  const auto loss = [&] {
    const Variable h = esp::tanh(esp::matmul(x, w) + b);
    const Variable sums = esp::sum(esp::square(h - 0.5)) * 0.01 + esp::sum(esp::tanh(none) * 2.0);
    return layer.out ? sums + esp::mean(esp::softmax(h) * esp::layer_norm(h, b, b)) : sums;
  };
  const optim::Optimizer rule = optimizer_of(which);
  std::optional<esp::Executor> executor;
  if (!eager)
    executor = loss().get_executor({.mode = esp::Mode::training, .optimizer = rule, .without = without});
  Trace trace;
  for (int step = 0; step < 3; ++step) {
    if (eager) {
      trace.push_back(loss().update(rule).value().clone());
    } else {
      executor->execute({.progress = false});
      trace.push_back(executor->value());
    }
  }
  for (const Variable& p : {w, b, none}) trace.push_back(p.value().clone());
  return trace;
}

std::string text_of(const PlanOptions& options) {
  std::string text = "budget " + std::to_string(options.budget) + " threads " +
                     std::to_string(options.threads_to_bind) + std::to_string(options.threads_to_run) +
                     " without";
  for (const std::string& name : options.without) text += " " + name;
  return options.bucket ? text + ", with a bucket" : text;
}

uint32_t from_environment(const char* name, uint32_t otherwise) {
  const char* value = std::getenv(name);
  return value ? static_cast<uint32_t>(std::atoi(value)) : otherwise;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_fuzz)

BOOST_AUTO_TEST_CASE(random_trees_train_alike) {
  const uint32_t first = from_environment("PLAN_FUZZ_FIRST", 0),
                 count = from_environment("PLAN_FUZZ_COUNT", static_cast<uint32_t>(many_cases(32)));
  const std::vector<std::string> names = esp::pass_names();
  for (uint32_t seed = first; seed < first + count; ++seed) {
    std::mt19937 random(seed);
    const uint32_t which = static_cast<uint32_t>(random());
    std::vector<PlanOptions> plans(5);
    plans[3].without = names;
    plans[0].without = {};
    plans[0].threads_to_bind = 1 + static_cast<int>(random() % 2);
    plans[0].threads_to_run = 1 + static_cast<int>(random() % 2);
    plans[1].threads_to_run = 2;
    for (const std::string& name : names)
      if (random() % 3 == 0) plans[1].without.push_back(name);
    plans[2].budget = 0.4 + 0.1 * static_cast<double>(random() % 5);
    for (const std::string& name : names)
      if (random() % 8 == 0 && name != "recompute") plans[2].without.push_back(name);
    plans[4].bucket = true;
    if (seed % 3 == 0) plans[4].budget = 0.7;
    if (seed % 3 == 1) plans[4].without = plans[1].without;
    BOOST_TEST_CONTEXT("seed " << seed << " optimizer " << which % optimizers) {
      Trace eager;
      try {
        eager = train_eagerly(seed, which);
      } catch (const esp::Error&) {  // the short batch is invalid for this tree
        for (const PlanOptions& options : plans)
          BOOST_CHECK_THROW((void)train_by_plan(seed, which, options), esp::Error);
        continue;
      }
      Trace calm;
      (void)train_by_plan(seed, which, plans[3], &calm);
      for (const PlanOptions& options : plans) BOOST_TEST_CONTEXT(text_of(options)) {
          try {
            Trace inference;
            BOOST_TEST(difference_of(train_by_plan(seed, which, options, &inference), eager) < 1e-8);
            if (options.budget == 0) BOOST_TEST(difference_of(inference, calm) < 1e-8);
          } catch (const std::exception& e) {
            BOOST_ERROR(e.what());
          }
        }
    }
  }
}

BOOST_AUTO_TEST_CASE(threads_of_the_host_each_with_a_plan) {
  for (uint32_t seed = 0; seed < 12; seed += 2) {
    Trace alone[2], together[2];
    for (uint32_t t = 0; t < 2; ++t) alone[t] = train_by_plan(seed + t, seed, {});
    std::thread other([&] { together[1] = train_by_plan(seed + 1, seed, {}); });
    together[0] = train_by_plan(seed, seed, {});
    other.join();
    for (uint32_t t = 0; t < 2; ++t) BOOST_TEST(difference_of(alone[t], together[t]) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(sizes_at_the_edges) {
  for (const esp::DType dtype : {esp::float32, esp::float64})
    for (const int64_t in : {0, 1, 3})
      for (const auto& [rows, out] : {std::pair{1, 0}, {1, 1}, {37, 1}, {37, 300}, {1, 9000}})
        for (const uint32_t which : {0u, 6u}) {
          const Layer layer{dtype, rows, in, out};
          const Trace eager = train_layer(layer, which, true);
          BOOST_TEST_CONTEXT("rows " << rows << " in " << in << " out " << out << " optimizer " << which
                                     << " " << esp::name(dtype))
          for (const auto& without : {std::vector<std::string>(), {"in_place"}})
            BOOST_TEST(difference_of(train_layer(layer, which, false, without), eager) <
                       (dtype == esp::float32 ? 2e-3 : 1e-8));
        }
}

BOOST_AUTO_TEST_SUITE_END()
