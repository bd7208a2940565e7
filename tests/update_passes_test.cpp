// Passes on updates: products with fused gradient descent, groups, their order, and copies of old values.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>

#include "espalier/core/autograd.h"
#include "espalier/core/node.h"
#include "espalier/core/record.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/runtime/session.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "memory_plan_checks.h"
#include "plan_steps.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

Variable leaf(const esp::Shape& shape, uint64_t which, std::string_view name = "p") {
  return esp::parameter(numbers(shape, -1, 1, which), name);
}
Variable rate() { return esp::state(esp::full({}, 0.1, esp::float64), "rate"); }

/// Builds the expression of `make` as part of an update.
Variable in_update(const std::function<Variable()>& make) {
  esp::BuildContext now = esp::build_context();
  now.tag = esp::Tag::update;
  now.no_grad = now.lazy = true;
  const esp::BuildScope scope(now);
  return make();
}

int64_t count(const esp::Graph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes, [&](const esp::GraphNode& n) { return n.op->name() == name; });
}

/// Checks a plan that assigns the result of `make` to w; returns the plan's graph.
esp::Graph check_step(const Variable& w, const Variables& results, const std::function<Variable()>& make) {
  const Variable next = in_update(make), update = in_update([&] { return optim::assignment(w, next); });
  const esp::Tensor expected = in_update(make).value();
  const auto plan = esp::compile(step_of(results, {update}), {}, {});
  check_plan(plan->graph, plan->memory);
  const auto session = esp::make_session(esp::cpu(), esp::Launch::graph);
  const esp::Tensor before = w.value().clone();
  for (const esp::GraphNode& n : plan->graph.nodes)
    if (n.leaf.defined()) session->leaves.add(n.leaf);
  session->update_leaves();
  const auto runtime = session->bind(plan, {});
  runtime->run(0);
  session->leaves.mark_assigned(runtime->assigned());
  BOOST_TEST(difference(w.value(), expected) < 1e-12, plan->graph.str());
  set_value(w, before);
  return plan->graph;
}

/// Each fused update of a product is behind all other readers of its parameter.
void check_that_updates_wait(const esp::Graph& graph) {
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op->name() != "matmul_update") continue;
    const uint32_t p = graph.nodes[i].inputs[0].node;
    std::vector<bool> shows(graph.nodes.size(), false);
    shows[p] = true;
    for (uint32_t k = 0; k < graph.nodes.size(); ++k) {
      const esp::GraphNode& n = graph.nodes[k];
      for (size_t j = 0; j < n.inputs.size(); ++j) {
        if (!shows[n.inputs[j].node] || !n.op->reads_elements(j)) continue;
        if (n.op->is_view()) shows[k] = true;
        if (k > i && !n.op->is_view())
          BOOST_TEST(n.op->has_side_effects(), "%" << k << " in\n" << graph.str());
      }
    }
  }
}

/// A multilayer perceptron with plain gradient descent, fused as far as `passes` go.
esp::Graph descent(const std::vector<bool (*)(esp::Graph&, const esp::CompileOptions&)>& passes) {
  const Variable x = esp::placeholder("x", {8, 5}, esp::float64);
  std::vector<std::pair<Variable, Variable>> gradients;
  Variables weights;
  Variable h = x;
  int64_t width = 5;
  for (const int64_t next : {6, 3, 4, 2}) {
    weights.push_back(leaf({width, next}, weights.size()));
    h = esp::tanh(esp::matmul(h, weights.back()) + leaf({next}, 9));
    width = next;
  }
  const Variable loss = esp::mean(esp::square(h));
  for (const Variable& w : weights) gradients.emplace_back(w, loss.gradient(w));
  esp::Graph graph = esp::freeze({loss}, optim::Sgd(0.1).build(gradients), {}, false);
  for (const auto pass : passes) {
    (void)pass(graph, {});
    esp::verify(graph, "a pass");
  }
  return graph;
}

/// The members of all groups in a graph.
std::vector<size_t> groups(const esp::Graph& graph) {
  std::vector<size_t> sizes;
  for (const esp::GraphNode& n : graph.nodes)
    if (const auto* op = dynamic_cast<const esp::FusedGroup*>(n.op.get()))
      sizes.push_back(op->members().size());
  return sizes;
}

/// Updates of several leaves on one kind of device, fused and grouped.
esp::Graph grouped(esp::DeviceType device, const Variables& results,
                   const std::vector<std::pair<Variable, Variable>>& next) {
  Variables updates;
  for (const auto& [to, value] : next)
    updates.push_back(in_update([&, to = to, value = value] { return optim::assignment(to, value); }));
  esp::Graph graph = esp::freeze(results, updates, {}, false);
  graph.device = device;
  esp::fuse_pointwise(graph);
  esp::verify(graph, "fuse_pointwise");
  esp::group_updates(graph);
  esp::verify(graph, "group_updates");
  const std::string text = graph.str();
  BOOST_TEST(!esp::group_updates(graph));
  BOOST_TEST(graph.str() == text);
  return graph;
}
constexpr auto cpu = esp::DeviceType::cpu, cuda = esp::DeviceType::cuda;

}  // namespace

BOOST_AUTO_TEST_SUITE(update_passes)

BOOST_AUTO_TEST_CASE(which_products_take_in_their_update) {
  const Variable w = leaf({3, 4}, 1, "w"), a = leaf({3, 6}, 2), b = leaf({6, 4}, 3), lr = rate(),
                 rates = esp::state(numbers({4}, 0, 1, 4)), thin = leaf({1, 6}, 5), cube = leaf({2, 3, 4}, 6),
                 cube_a = leaf({2, 3, 6}, 7);
  const auto updates = [&](const Variable& p, const Variables& results,
                           const std::function<Variable()>& make) {
    return count(check_step(p, results, make), "matmul_update");
  };
  const Variable some = esp::sum(esp::square(w));
  BOOST_TEST(updates(w, {some}, [&] { return w - lr * esp::matmul(a, b); }) == 1);
  BOOST_TEST(updates(w, {some}, [&] { return w - esp::matmul(a, b) * lr; }) == 1);
  BOOST_TEST(updates(w, {some}, [&] { return w - lr * esp::matmul(a, esp::transpose(esp::transpose(b))); }) ==
             1);
  BOOST_TEST(updates(w, {some}, [&] { return w - rates * esp::matmul(a, b); }) == 0);
  BOOST_TEST(updates(w, {some}, [&] { return w - 0.1 * esp::matmul(a, b); }) == 0);
  BOOST_TEST(updates(w, {some}, [&] { return w - (lr * 2.0) * esp::matmul(a, b); }) == 0);
  BOOST_TEST(updates(w, {some}, [&] { return w + lr * esp::matmul(a, b); }) == 0);
  BOOST_TEST(updates(w, {some}, [&] { return w * 2.0 - lr * esp::matmul(a, b); }) == 0);
  BOOST_TEST(updates(w, {some}, [&] { return w - lr * esp::matmul(thin, b); }) == 0);
  BOOST_TEST(updates(w, {some}, [&] { return w - lr * esp::tanh(esp::matmul(a, b)); }) == 0);
  BOOST_TEST(updates(cube, {some}, [&] { return cube - lr * esp::matmul(cube_a, b); }) == 0);
  // On a GPU one kernel updates all parameters.
  esp::CompileOptions on_gpu;
  on_gpu.device = cuda;
  const Variable next = in_update([&] { return w - lr * esp::matmul(a, b); }),
                 update = in_update([&] { return optim::assignment(w, next); });
  BOOST_TEST(count(esp::compile(step_of({some}, {update}), {}, on_gpu)->graph, "matmul_update") == 0);
  BOOST_TEST(count(esp::compile(step_of({some}, {update}), {}, {})->graph, "matmul_update") == 1);
  // Another leaf's old value.
  const Variable v = leaf({3, 4}, 8, "v");
  BOOST_TEST(updates(w, {some}, [&] { return v - lr * esp::matmul(a, b); }) == 1);
}

BOOST_AUTO_TEST_CASE(products_that_others_read_are_made_once) {
  const Variable w = leaf({3, 4}, 1, "w"), a = leaf({3, 6}, 2), b = leaf({6, 4}, 3), lr = rate();
  const Variable product = in_update([&] { return esp::matmul(a, b); }),
                 scaled = in_update([&] { return lr * product; });
  const auto check = [&](const Variables& results) {
    const esp::Graph graph = check_step(w, results, [&] { return w - scaled; });
    BOOST_TEST(count(graph, "matmul_update") == 0);
    BOOST_TEST(count(graph, "matmul") + count(graph, "matmul_epilogue") == 1, graph.str());
  };
  check({esp::sum(w), product});
  check({esp::sum(w), scaled});
  check({in_update([&] { return esp::sum(product); })});
  check({in_update([&] { return esp::sum(scaled) * 2.0; })});
  // An expression of the same form that is not an update.
  const Variable value = w - lr * esp::matmul(a, b);
  esp::Graph graph = esp::freeze({value}, {}, {}, false);
  BOOST_TEST(!esp::fuse_sgd(graph));
}

BOOST_AUTO_TEST_CASE(updates_of_products_wait_for_other_readers) {
  using esp::fuse_matmul, esp::fuse_pointwise, esp::fuse_sgd, esp::group_updates, esp::simplify;
  const esp::Graph first = descent({fuse_sgd}),
                   all = descent({simplify, fuse_sgd, fuse_pointwise, group_updates, fuse_matmul});
  for (const esp::Graph& graph : {first, all}) {
    BOOST_TEST(count(graph, "matmul_update") == 4, graph.str());
    check_that_updates_wait(graph);
  }
  // Updates are not delayed further: the last layer is updated before the first one's gradient is computed.
  const auto position = [&](const esp::Graph& graph, bool last) {
    std::vector<size_t> found;
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].op->name() == "matmul_update") found.push_back(i);
    return last ? found.back() : found.front();
  };
  BOOST_TEST(position(all, true) > position(all, false) + 3);
  // A parameter that another product reads after its gradient is computed.
  const Variable w = leaf({4, 4}, 1, "w"), x = leaf({4, 4}, 2), lr = rate();
  const Variable next = in_update([&] { return w - lr * esp::matmul(x, x); });
  const Variable late = esp::sum(esp::matmul(esp::matmul(x, x), w)) + esp::sum(esp::exp(esp::transpose(w)));
  esp::Graph graph = esp::freeze({late}, {in_update([&] { return optim::assignment(w, next); })}, {}, false);
  BOOST_TEST(esp::fuse_sgd(graph));
  esp::verify(graph, "fuse_sgd");
  check_that_updates_wait(graph);
}

BOOST_AUTO_TEST_CASE(updates_that_run_one_program_are_one_kernel) {
  const Variable a = leaf({4, 4}, 1), b = leaf({6}, 2), c = leaf({1}, 3), ga = leaf({4, 4}, 4),
                 gb = leaf({6}, 5), gc = leaf({1}, 6), loss = esp::sum(a);
  const auto step = [&](const Variable& p, const Variable& g) {
    return in_update([&] { return p - esp::square(g) * 0.1; });
  };
  const Variable na = step(a, ga), nb = step(b, gb), nc = step(c, gc);
  using Sizes = std::vector<size_t>;
  const auto sizes = [&](const Variables& results, const std::vector<std::pair<Variable, Variable>>& next,
                         esp::DeviceType device = cpu) { return groups(grouped(device, results, next)); };
  BOOST_TEST(sizes({loss}, {{a, na}, {b, nb}}) == Sizes{2});
  BOOST_TEST(sizes({loss}, {{a, na}, {b, nb}, {c, nc}}) == Sizes{3});  // single elements are grouped, too
  BOOST_TEST(sizes({loss, na}, {{a, na}, {b, nb}}) == Sizes{});        // results have readers
  BOOST_TEST(sizes({loss}, {{a, na}}) == Sizes{});
  BOOST_TEST(sizes({loss}, {{a, na}, {b, nb}, {ga, in_update([&] { return esp::matmul(na, na); })}}) ==
             Sizes{});
  const Variable lr = rate(), decay = rate();
  const auto scaled = [&](const Variable& p, const Variable& g) {
    return in_update([&] { return p - g * (lr * decay); });
  };
  BOOST_TEST(sizes({loss}, {{a, scaled(a, ga)}, {b, scaled(b, gb)}, {c, scaled(c, gc)}}) == Sizes{3});
  // Different programs, types and numbers of operands.
  const Variable cube = in_update([&] { return b - esp::exp(gb) * 0.1; });
  BOOST_TEST(sizes({loss}, {{a, na}, {b, cube}}) == Sizes{});
  const Variable f = esp::parameter(numbers({6}).to(esp::float32)),
                 gf = esp::parameter(numbers({6}).to(esp::float32));
  BOOST_TEST(sizes({loss}, {{a, na}, {f, step(f, gf)}}) == Sizes{});
  const auto half = [&](const Variable& p, const Variable& g) {
    return in_update([&] { return p - esp::square(g) * 0.5; });
  };
  BOOST_TEST(sizes({loss}, {{a, half(a, ga)}, {f, half(f, gf)}}) == Sizes{});
  BOOST_TEST(sizes({loss}, {{a, half(a, ga)}, {b, half(b, gb)}}) == Sizes{2});
  // On the CPU, rows and folds are not grouped; on GPUs, folds of all elements are.
  const auto rows = [&](const Variable& p) {
    return in_update([&] { return p - esp::sum(esp::square(p), -1, true) * 0.1; });
  };
  const Variable d = leaf({4, 4}, 7);
  for (const esp::DeviceType device : {cpu, cuda})
    BOOST_TEST(sizes({loss}, {{a, rows(a)}, {d, rows(d)}}, device) == Sizes{});
  const auto whole = [&](const Variable& p) {
    return in_update([&] { return p - esp::softmax(esp::square(p)) * 0.1; });
  };
  BOOST_TEST(sizes({loss}, {{a, whole(a)}, {d, whole(d)}}) == Sizes{});
  const Variable s = leaf({}, 8), t = leaf({}, 9);
  const auto norm = [&](const Variable& p) { return in_update([&] { return esp::sum(esp::square(p)); }); };
  BOOST_TEST(sizes({loss}, {{s, norm(a)}, {t, norm(d)}}) == Sizes{});
  BOOST_TEST(sizes({loss}, {{s, norm(a)}, {t, norm(d)}}, cuda) == Sizes{2});
  // The same kernels in the loss are not grouped.
  esp::Graph forward = esp::freeze({a - esp::square(ga) * 0.1, b - esp::square(gb) * 0.1}, {}, {}, false);
  forward.device = cuda;
  esp::fuse_pointwise(forward);
  BOOST_TEST(!esp::group_updates(forward));
}

// A group would keep all gradients at once.
BOOST_AUTO_TEST_CASE(large_updates_on_a_cpu_are_kernels_of_their_own) {
  const Variable a = leaf({2, 3}, 1), b = leaf({6}, 2), c = leaf({300, 300}, 3), d = leaf({90000}, 4);
  const auto step = [](const Variable& p) { return in_update([&] { return p - esp::square(p) * 0.1; }); };
  const std::vector<std::pair<Variable, Variable>> next{
      {a, step(a)}, {b, step(b)}, {c, step(c)}, {d, step(d)}};
  using Sizes = std::vector<size_t>;
  BOOST_TEST(groups(grouped(cpu, {esp::sum(a)}, next)) == Sizes{2});
  BOOST_TEST(groups(grouped(cuda, {esp::sum(a)}, next)) == Sizes{4});

  const Variable x = esp::placeholder("x", {4, 300}, esp::float64);
  Variable h = x;
  for (uint64_t i = 0; i < 4; ++i) h = esp::tanh(esp::matmul(h, leaf({300, 300}, i)));
  const auto executor = esp::mean(esp::square(h)).get_executor({.optimizer = optim::Adam({.lr = 0.1})});
  const int64_t gradient = int64_t{300} * 300 * 8;
  BOOST_TEST(executor.plan().arena_bytes() < 2 * gradient);
}

BOOST_AUTO_TEST_CASE(large_updates_run_once_nothing_else_needs_their_leaf) {
  struct Order {
    int64_t first_product, last_product, refusal = -1, update = -1;
  };
  const auto order = [](const esp::Shape& shape, bool refuses, bool shows_next, bool expect_change,
                        esp::DeviceType device = cpu) {
    const Variable w = leaf(shape, 1), x = leaf({4, shape[0]}, 2), v = leaf({shape[1], 4}, 3);
    Variables results{esp::matmul(esp::tanh(esp::matmul(x, w)), v)};
    if (refuses) results.push_back(esp::gather(results[0], esp::tensor({3, 0}, esp::int32)));
    const Variable next = in_update([&] { return w - esp::square(w) * 0.1; });
    if (shows_next) results.push_back(next);
    esp::Graph graph =
        esp::freeze(results, {in_update([&] { return optim::assignment(w, next); })}, {}, false);
    graph.device = device;
    esp::fuse_pointwise(graph);
    BOOST_TEST(esp::early_updates(graph) == expect_change);
    esp::verify(graph, "early_updates");
    Order found{-1, -1};
    for (int64_t i = 0; i < std::ssize(graph.nodes); ++i) {
      const esp::Op& op = *graph.nodes[static_cast<size_t>(i)].op;
      if (op.name() == "matmul") (found.first_product < 0 ? found.first_product : found.last_product) = i;
      if (op.name() == "gather") found.refusal = i;
      if (op.has_side_effects()) found.update = graph.nodes[static_cast<size_t>(i)].inputs[1].node;
    }
    return found;
  };
  const Order early = order({257, 256}, false, false, true);
  BOOST_TEST(early.update == early.first_product + 1);
  const Order small = order({256, 256}, false, false, false);
  BOOST_TEST(small.update > small.last_product);
  // Nothing is written before a kernel that may throw.
  const Order late = order({257, 256}, true, false, false);
  BOOST_TEST(late.update > late.refusal);
  const Order shown = order({257, 256}, false, true, false);
  BOOST_TEST(shown.update > shown.last_product);
  const Order on_gpu = order({257, 256}, false, false, false, cuda);
  BOOST_TEST(on_gpu.update > on_gpu.last_product);
}

BOOST_AUTO_TEST_CASE(members_write_over_their_own_operands_alone) {
  const Variable a = leaf({4, 4}, 1), b = leaf({4, 4}, 2), g = leaf({4, 4}, 3), h = leaf({4, 4}, 4);
  const auto step = [&](const Variable& p, const Variable& by) {
    return in_update([&] { return p - esp::square(by) * 0.1; });
  };
  const esp::Graph graph = grouped(cpu, {esp::sum(g)}, {{a, step(a, g)}, {b, step(b, h)}});
  for (const esp::GraphNode& n : graph.nodes) {
    const auto* group = dynamic_cast<const esp::FusedGroup*>(n.op.get());
    if (!group) continue;
    BOOST_TEST_REQUIRE(n.inputs.size() == 4u);
    for (size_t output = 0; output < 2; ++output)
      for (size_t input = 0; input < 4; ++input)
        BOOST_TEST(group->can_write_over(output, input) == (input / 2 == output));
  }
}

BOOST_AUTO_TEST_CASE(members_that_read_each_other_stay_apart) {
  const Variable a = leaf({4, 4}, 1, "a"), b = leaf({4, 4}, 2, "b"), c = leaf({4, 4}, 3, "c"),
                 g = leaf({4, 4}, 4);
  const auto step = [&](const Variable& p, const Variable& by) {
    return in_update([&] { return p - esp::square(by) * 0.1; });
  };
  const Variable na = step(a, g), product = in_update([&] { return esp::matmul(na, na); }),
                 nb = step(b, product), nc = step(c, g);
  BOOST_TEST(groups(grouped(cpu, {esp::sum(g)}, {{a, na}, {b, nb}, {c, nc}})) == (std::vector<size_t>{2}));
  BOOST_TEST(groups(grouped(cuda, {esp::sum(g)}, {{a, na}, {b, nb}, {c, nc}})) == (std::vector<size_t>{2}));
  BOOST_TEST(groups(grouped(cuda, {esp::sum(g)}, {{a, na}, {b, nb}})).empty());
}

// Direct and indirect readers of a member are moved behind the group.
BOOST_AUTO_TEST_CASE(readers_of_members_come_behind_the_group) {
  const Variable a = leaf({4, 4}, 1, "a"), b = leaf({4, 4}, 2, "b"), c = leaf({4, 4}, 3, "c"),
                 d = leaf({4, 4}, 4, "d"), g = leaf({4, 4}, 5);
  const auto step = [&](const Variable& p) { return in_update([&] { return p - esp::square(g) * 0.1; }); };
  const Variable na = step(a), once = in_update([&] { return esp::matmul(na, na); }),
                 twice = in_update([&] { return esp::matmul(once, once); }),
                 thrice = in_update([&] { return esp::matmul(g, twice); }), nb = step(b);
  const esp::Graph graph = grouped(cuda, {esp::sum(g), na}, {{a, na}, {c, once}, {d, thrice}, {b, nb}});
  BOOST_TEST(groups(graph) == (std::vector<size_t>{2}), graph.str());
  BOOST_TEST(graph.nodes[graph.results[1].node].op->name() == "fused_group");
}

BOOST_AUTO_TEST_CASE(old_values_are_kept_where_something_shows_them_behind_an_assignment) {
  const Variable w = leaf({4, 4}, 1, "w"), v = leaf({4, 4}, 2, "v"), x = leaf({4, 4}, 3, "x");
  const auto keeps = [&](const Variables& results, const std::vector<std::pair<Variable, Variable>>& next) {
    Variables updates;
    for (const auto& [to, value] : next)
      updates.push_back(in_update([&, to = to, value = value] { return optim::assignment(to, value); }));
    esp::Graph graph = esp::freeze(results, updates, {}, false);
    const bool changed = esp::keep_old_values(graph);
    esp::verify(graph, "keep_old_values");
    BOOST_TEST(changed == (count(graph, "keep") > 0));
    BOOST_TEST(!esp::keep_old_values(graph));
    return count(graph, "keep");
  };
  const Variable nw = in_update([&] { return w * 0.5; });
  BOOST_TEST(keeps({w}, {{w, nw}}) == 1);
  BOOST_TEST(keeps({esp::transpose(w)}, {{w, nw}}) == 1);
  BOOST_TEST(keeps({esp::slice(esp::transpose(w), 0, 1, 3), w}, {{w, nw}}) == 2);
  BOOST_TEST(keeps({v, esp::transpose(v), esp::exp(w)}, {{w, nw}}) == 0);
  BOOST_TEST(keeps({w}, {}) == 0);
  BOOST_TEST(keeps({x}, {{w, v}, {v, w}}) == 2);  // they are swapped
  BOOST_TEST(keeps({x}, {{w, esp::transpose(v)}, {v, nw}}) == 1);
  BOOST_TEST(keeps({x}, {{w, v}}) == 0);
  BOOST_TEST(keeps({x}, {{w, esp::transpose(w)}}) == 1);
}

BOOST_AUTO_TEST_CASE(assignments_stay_last_and_in_their_order) {
  const Variable w = leaf({4, 4}, 1, "w"), v = leaf({4, 4}, 2, "v"), x = leaf({4, 4}, 3);
  const Variable nv = in_update([&] { return v - esp::square(x); }),
                 nw = in_update([&] { return w - esp::exp(x); });
  const Variables updates{in_update([&] { return optim::assignment(w, nw); }),
                          in_update([&] { return optim::assignment(v, nv); })};
  // A reader of both that is written behind the assignments.
  const Variable late = esp::sum(esp::tanh(w) * v);
  esp::Graph graph = esp::freeze({late}, updates, {}, false);
  esp::fuse_pointwise(graph);
  esp::verify(graph, "fuse_pointwise");
  const size_t n = graph.nodes.size();
  BOOST_TEST_REQUIRE(
      (graph.nodes[n - 2].op->has_side_effects() && graph.nodes[n - 1].op->has_side_effects()));
  BOOST_TEST((graph.nodes[graph.nodes[n - 2].inputs[0].node].leaf.node() == w.node()));
  BOOST_TEST((graph.nodes[graph.nodes[n - 1].inputs[0].node].leaf.node() == v.node()));
}

BOOST_AUTO_TEST_CASE(what_an_optimizer_writes_lies_where_its_leaves_are) {
  const optim::Optimizer rules[] = {optim::Sgd(0.1), optim::Sgd({.lr = 0.1, .momentum = 0.9}),
                                    optim::Adam(0.1), optim::AdamW({.lr = 0.1, .clip_norm = 1})};
  const Variable x = esp::placeholder("x", {8, 5}, esp::float64), w = leaf({5, 6}, 1), b = leaf({6}, 2),
                 out = leaf({6, 3}, 3);
  const Variable loss = esp::mean(esp::square(esp::matmul(esp::relu(esp::matmul(x, w) + b), out)));
  for (const optim::Optimizer& rule : rules) BOOST_TEST_CONTEXT(rule.name()) {
      const auto plan = esp::compile(
          step_of({loss},
                  rule.build({{w, loss.gradient(w)}, {b, loss.gradient(b)}, {out, loss.gradient(out)}})),
          {}, {});
      check_plan(plan->graph, plan->memory);
      for (size_t i = 0; i < plan->graph.nodes.size(); ++i)
        if (plan->graph.nodes[i].op->has_side_effects())
          BOOST_TEST(!plan->memory.runs[i], "%" << i << " copies in\n" << esp::Plan(plan).str());
    }
}

BOOST_AUTO_TEST_SUITE_END()
