// Collectives as operations: values and gradients of trees on several ranks, compared with one tree with all
// operands.
#include <boost/test/unit_test.hpp>

#include <random>

#include "communicator_ranks.h"
#include "espalier/core/device.h"
#include "espalier/executor/communicators/collective_ops.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/optim/sgd.h"
#include "plan_steps.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

using Ranks = std::shared_ptr<Communicator>;

/// An op on every rank, and the result of rank `rank` from one tree with the operands of all.
struct Case {
  std::string name;
  std::function<Variable(const Variable& x, const Ranks&)> ranked;
  std::function<Variable(const std::vector<Variable>& xs, int64_t rank)> plain;
};

Variable sum_of(const std::vector<Variable>& xs) {
  Variable sum = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) sum = sum + xs[i];
  return sum;
}

const std::vector<Case> cases = {
    {"all_reduce by sum",
     [](const Variable& x, const Ranks& c) { return distributed::all_reduce(x, Reduction::sum, c); },
     [](const std::vector<Variable>& xs, int64_t) { return sum_of(xs); }},
    {"all_reduce by mean",
     [](const Variable& x, const Ranks& c) { return distributed::all_reduce(x, Reduction::mean, c); },
     [](const std::vector<Variable>& xs, int64_t) { return sum_of(xs) / static_cast<double>(xs.size()); }},
    {"all_gather(ranks=1)", [](const Variable& x, const Ranks& c) { return distributed::all_gather(x, c); },
     [](const std::vector<Variable>& xs, int64_t) { return concat(xs); }},
    {"reduce_scatter", [](const Variable& x, const Ranks& c) { return distributed::reduce_scatter(x, c); },
     [](const std::vector<Variable>& xs, int64_t rank) {
       const int64_t n = 6 / static_cast<int64_t>(xs.size());
       return slice(sum_of(xs), 0, rank * n, (rank + 1) * n);
     }},
    {"broadcast", [](const Variable& x, const Ranks& c) { return distributed::broadcast(x, 1, c); },
     [](const std::vector<Variable>& xs, int64_t) { return xs[1]; }},
    // Several collectives whose order matters, one of them twice.
    {"a chain of them",
     [](const Variable& x, const Ranks& c) {
       const Variable a = distributed::all_reduce(x, Reduction::mean, c),
                      b = distributed::all_reduce(x, Reduction::mean, c);
       return distributed::broadcast(square(a) + b * x, 0, c) +
              distributed::all_gather(distributed::reduce_scatter(x, c), c);
     },
     [](const std::vector<Variable>& xs, int64_t) {
       const Variable mean = sum_of(xs) / static_cast<double>(xs.size());
       return square(mean) + mean * xs[0] + sum_of(xs);
     }}};

Tensor operand(int64_t rank) {
  Tensor values({6, 2}, float64);
  for (int64_t i = 0; i < 12; ++i)
    values.data<double>()[i] = 0.1 * static_cast<double>((7 * i + 5 * rank) % 11 - 4);
  return values;
}

/// A rank's loss; `result` depends on the squares of the operands.
Variable loss_of(const Variable& result, int64_t rank) {
  return sum(square(result) * static_cast<double>(rank + 1) + result);
}

bool close(const Tensor& a, const Tensor& b) {
  if (a.spec() != b.spec()) return false;
  const Tensor x = a.to(cpu()).contiguous_copy(), y = b.contiguous_copy();
  for (int64_t i = 0; i < x.elements(); ++i)
    if (!(std::abs(x.data<double>()[i] - y.data<double>()[i]) <= 1e-12 * (1 + std::abs(y.data<double>()[i]))))
      return false;
  return true;
}

/// By rank: the result, and the gradient of the loss with respect to the operand.
struct Expected {
  std::vector<Tensor> results, gradients;
  Expected(const Case& one, int size) {
    std::vector<Variable> xs, squares;
    for (int64_t rank = 0; rank < size; ++rank) {
      xs.push_back(parameter(operand(rank)));
      squares.push_back(square(xs.back()));
    }
    Variable total;
    for (int64_t rank = 0; rank < size; ++rank) {
      const Variable result = one.plain(squares, rank), loss = loss_of(result, rank);
      results.push_back(result.value());
      total = rank == 0 ? loss : total + loss;
    }
    for (const Variable& x : xs) total = total + sum(x * 0.0);  // the result may not depend on it
    for (const Variable& x : xs) gradients.push_back(total.gradient(x).value());
  }
};

/// The collectives of a graph in execution order; checks that each depends on the previous one.
std::vector<std::string> collectives_of(const Graph& graph) {
  std::vector<std::string> names;
  uint32_t last = 0;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.op->effect() != Effect::communicates) continue;
    if (!names.empty()) BOOST_TEST((n.inputs.back() == ValueRef{last, 0}), graph.str());
    const std::string attributes = to_string(n.op->attributes());
    names.push_back(std::string(n.op->name()) + (attributes.empty() ? "" : "(" + attributes + ")"));
    last = i;
  }
  return names;
}

/// Checks the collectives of plans of these results and their order, with any pass left out.
void check_collectives(const std::vector<Variable>& results, const std::vector<std::string>& expected) {
  std::vector<std::vector<std::string>> choices{{}, pass_names()};
  for (const std::string& name : pass_names()) choices.push_back({name});
  for (const auto& without : choices) {
    const auto plan = compile(step_of(results), {}, {.without = without});
    BOOST_TEST(collectives_of(plan->graph) == expected, boost::test_tools::per_element());
    for (size_t i = 0; i < plan->graph.nodes.size(); ++i)
      if (plan->graph.nodes[i].op->effect() == Effect::communicates) BOOST_TEST(plan->memory.runs[i]);
  }
}

/// The devices to test; all ranks, which are threads, use the same one.
std::vector<Device> places() {
  std::vector<Device> places{cpu()};
  for (const Device& gpu : gpus_to_test()) places.push_back(gpu);
  return places;
}
Group group_on(Device place, int size) {
  return distributed::make_group(std::vector<Device>(static_cast<size_t>(size), place));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(collective_ops)

BOOST_AUTO_TEST_CASE(eager_values_and_gradients) {
  for (const Device place : places())
    for (const Case& one : cases)
      for (const int size : {2, 3}) {
        const Expected expected(one, size);
        const Group group = group_on(place, size);
        const auto errors = run_ranks(group, [&](Communicator& self) {
          const auto rank = static_cast<size_t>(self.rank());
          const Variable x = parameter(operand(self.rank()).to(place));
          const Variable result = one.ranked(square(x), group[rank]);
          if (!close(result.value(), expected.results[rank])) throw Error("a wrong value of " + one.name);
          const Variable loss = loss_of(result, self.rank());
          if (!close(loss.gradient(x).value(), expected.gradients[rank]))
            throw Error("a wrong gradient of " + one.name);
        });
        for (const std::string& error : errors) BOOST_TEST(error == "");
      }
}

BOOST_AUTO_TEST_CASE(gradients_of_gradients_come_from_the_root) {
  // All ranks read x of the root: the sum of their losses is (1 + 2 + 3) x^3, and its slope at the root 18
  // x^2. The second loss of a rank is `rank + 1` times its slope, which the others do not have.
  for (const Device place : places())
    for (const int root : {0, 1, 2}) {
      const Group group = group_on(place, 3);
      const auto errors = run_ranks(group, [&](Communicator& self) {
        const double factor = self.rank() + 1;
        const Variable x = parameter(full({2}, factor * 0.5, float64).to(place));
        const Variable shown = distributed::broadcast(x, root, group[static_cast<size_t>(self.rank())]);
        const Variable slope = sum(shown * square(shown) * factor).gradient(x);
        const Variable second = sum(slope * factor).gradient(x);
        const bool is_root = self.rank() == root;
        const double at_root = 0.5 * factor;
        if (!close(slope.value(), full({2}, is_root ? 18 * at_root * at_root : 0, float64)))
          throw Error("a wrong slope");
        if (!close(second.value(), full({2}, is_root ? 36 * at_root * factor : 0, float64)))
          throw Error("a wrong slope of the slope");
      });
      for (const std::string& error : errors) BOOST_TEST(error == "");
    }
}

BOOST_AUTO_TEST_CASE(plans_train_as_one_tree) {
  for (const Device place : places())
    for (const Case& one : cases)
      for (const int size : {2, 3})
        for (const bool fused : {false, true}) {
          const Expected expected(one, size);
          const Group group = group_on(place, size);
          const auto errors = run_ranks(group, [&](Communicator& self) {
            const auto rank = static_cast<size_t>(self.rank());
            const Variable x = parameter(operand(self.rank()).to(place));
            const Variable loss = loss_of(one.ranked(square(x), group[rank]), self.rank());
            ExecutorOptions options{.mode = Mode::training, .optimizer = optim::Sgd(1.0)};
            if (!fused) options.without = {"fuse_pointwise"};
            const Executor executor = loss.get_executor(options);
            executor.run({});
            const Variable step = variable(operand(self.rank()).to(place)) - x;
            if (!close(step.value(), expected.gradients[rank])) throw Error("a wrong step by " + one.name);
          });
          for (const std::string& error : errors) BOOST_TEST(error == "");
        }
}

BOOST_AUTO_TEST_CASE(no_pass_merges_folds_or_removes_them) {
  const Group group = make_thread_group(2);
  const auto errors = run_ranks(group, [&](Communicator& self) {
    const Ranks& ranks = group[static_cast<size_t>(self.rank())];
    // Collectives of constants, one of them twice, and one multiplied by 0.
    const Variable one = Variable(full({3}, self.rank() + 1.0, float64));
    const Variable a = distributed::all_reduce(one, Reduction::sum, ranks);
    const Variable b = distributed::all_reduce(one, Reduction::sum, ranks);
    const Variable c = distributed::all_reduce(one, Reduction::max, ranks) * 0.0;
    const Executor executor = sum(a + b + c).get_executor({.mode = Mode::inference});
    const std::string text = executor.plan().str();
    size_t count = 0;
    for (size_t at = text.find("all_reduce"); at != text.npos; at = text.find("all_reduce", at + 1)) ++count;
    if (count < 3) throw Error("the plan has lost a collective:\n" + text);
    if (executor.run({}).item<double>() != 18) throw Error("a wrong sum");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(plans_keep_the_order_in_which_they_are_written) {
  const Ranks alone = make_thread_group(1).front();
  const Variable x = parameter(operand(0)), y = parameter(operand(1)), z = parameter(operand(2));
  // The first collective depends on the kernel that completes last.
  const Variable a = distributed::all_reduce(exp(x), Reduction::sum, alone),
                 b = distributed::all_reduce(y, Reduction::max, alone), v = exp(exp(x));
  check_collectives({a, b, v}, {"all_reduce(ranks=1 reduction=sum)", "all_reduce(ranks=1 reduction=max)"});
  // Only the shape of the second is read, and the third is not needed.
  const Variable c = distributed::all_gather(exp(z), alone),
                 d = distributed::all_reduce(tanh(y), Reduction::min, alone);
  check_collectives(
      {sum(ones_like(c)) + a, sum_to_like(x * 2.0, d), reshape_like(y, c), v},
      {"all_reduce(ranks=1 reduction=sum)", "all_gather(ranks=1)", "all_reduce(ranks=1 reduction=min)"});
}

BOOST_AUTO_TEST_CASE(random_trees_lose_none_of_them) {
  const Ranks alone = make_thread_group(1).front();
  size_t found = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937 random(seed);
      std::vector<Variable> values{parameter(operand(0)), parameter(operand(1))};
      const auto any = [&] { return values[std::max(random() % values.size(), random() % values.size())]; };
      for (int i = 0; i < 16; ++i) {
        const Variable p = any(), q = any();
        switch (random() % 11) {
          case 0: values.push_back(distributed::all_reduce(p, Reduction::sum, alone)); break;
          case 1: values.push_back(distributed::all_reduce(p, Reduction::mean, alone)); break;
          case 2: values.push_back(distributed::all_gather(p, alone)); break;
          case 3: values.push_back(distributed::broadcast(p, 0, alone)); break;
          case 4: values.push_back(ones_like(p) * 0.5); break;
          case 5: values.push_back(p * 0.5 + q); break;
          case 6: values.push_back(tanh(p)); break;
          case 7: values.push_back(sum_to_like(q, p)); break;
          case 8: values.push_back(p * 0.0 + q); break;
          case 9: values.push_back(p - mean(q, 0, true)); break;
          default: values.push_back(exp(p * 0.1) * q); break;
        }
      }
      const Variable root = sum(values.back()) + sum(any() * any()) + sum(values[0]);
      const Graph frozen = freeze({root}, {}, {}, false);
      found += collectives_of(frozen).size();
      check_collectives({root, root.gradient(values[0])},
                        collectives_of(freeze({root, root.gradient(values[0])}, {}, {}, false)));
      const Executor executor = root.get_executor({.mode = Mode::inference});
      executor.execute({.progress = false});
      BOOST_TEST(close(executor.value(), root.value()));
    }
  BOOST_TEST(found > 60u);
}

BOOST_AUTO_TEST_CASE(none_is_repeated_to_save_memory) {
  const Ranks alone = make_thread_group(1).front();
  const Variable x = placeholder("x", {256}, float64);
  const Variable waits = distributed::all_reduce(exp(x), Reduction::sum, alone), first = sum(waits);
  const Variable result = waits * sum(reshape(x, {256, 1}) * x * first) + sum(exp(waits));
  Graph graph = freeze({result}, {}, {}, false);
  (void)recompute(graph, 256 * 256 * 8 + 256 * 8 + 128);
  verify(graph, "recompute");
  BOOST_TEST(collectives_of(graph).size() == 1u);
  // Nor in a chain of ops.
  const Variable chain = tanh(exp(distributed::all_reduce(exp(x), Reduction::sum, alone)));
  Graph longer = freeze({chain * sum(reshape(x, {256, 1}) * x * sum(chain))}, {}, {}, false);
  (void)recompute(longer, 256 * 256 * 8 + 256 * 8 + 128);
  verify(longer, "recompute");
  BOOST_TEST(collectives_of(longer).size() == 1u);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_done_is_an_error) {
  const Group group = make_thread_group(2);
  const Variable x = parameter(operand(0));
  BOOST_CHECK_THROW(distributed::all_gather(Variable(tensor(1.0)), group[0]), ShapeError);
  BOOST_CHECK_THROW(distributed::reduce_scatter(Variable(zeros({3, 2})), group[0]), ShapeError);
  BOOST_CHECK_THROW(distributed::broadcast(x, 2, group[0]), IndexError);
  BOOST_CHECK_THROW(distributed::all_reduce(Variable(tensor({true})), Reduction::sum, group[0]), TypeError);
  BOOST_CHECK_THROW(distributed::all_reduce(Variable(tensor({1, 2})), Reduction::mean, group[0]), TypeError);
  const Group others = make_thread_group(2);
  const auto thrown = run_ranks(others, [&](Communicator& self) {
    const Variable y = parameter(operand(self.rank()));
    const Variable most =
        distributed::all_reduce(y, Reduction::max, others[static_cast<size_t>(self.rank())]);
    sum(most).gradient(y);
  });
  for (const std::string& error : thrown) BOOST_TEST(contains(error, "all_reduce by max has no gradient"));
}

BOOST_AUTO_TEST_CASE(ranks_of_the_cpu_do_not_take_tensors_on_a_gpu) {
  for (const Device& gpu : gpus_to_test()) {
    const Group group = make_thread_group(1);
    const Variable x = parameter(operand(0).to(gpu));
    BOOST_CHECK_THROW((void)distributed::all_reduce(x, Reduction::sum, group[0]).value(), DeviceError);
  }
}

BOOST_AUTO_TEST_CASE(another_tree_on_one_rank_is_an_error_on_all) {
  const Group group = make_thread_group(2);
  const unsigned line = __LINE__ + 4;
  const auto errors = run_ranks(group, [&](Communicator& self) {
    const Ranks& ranks = group[static_cast<size_t>(self.rank())];
    const Variable x = parameter(operand(self.rank()));
    self.rank() == 0 ? distributed::all_reduce(x, Reduction::sum, ranks)
                     : distributed::broadcast(x, 0, ranks);
  });
  const std::string first = "collective_ops_test.cpp:" + std::to_string(line) + ")",
                    second = "collective_ops_test.cpp:" + std::to_string(line + 1) + ")";
  BOOST_TEST(contains(errors[0], "all_reduce of float64 [6, 2] ("));
  BOOST_TEST(contains(errors[0], first + ": rank 1 called broadcast of float64 [6, 2] from rank 0 ("));
  BOOST_TEST(contains(errors[1], second + ": rank 0 called all_reduce of float64 [6, 2] ("));
}

BOOST_AUTO_TEST_SUITE_END()
