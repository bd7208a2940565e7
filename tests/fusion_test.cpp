// Pointwise fusion: which nodes become one kernel, and its values.
#include <boost/test/unit_test.hpp>

#include <random>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

esp::Graph fused(const Variables& results, bool expect_change = true) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  esp::detach_shapes(graph);
  BOOST_TEST(esp::fuse_pointwise(graph) == expect_change);
  esp::verify(graph, "fuse_pointwise");
  BOOST_TEST(!esp::fuse_pointwise(graph));
  return graph;
}

esp::Variable leaf(const esp::Shape& shape, uint64_t which, std::string_view name = "p") {
  return esp::parameter(numbers(shape, -1.5, 1.5, which), name);
}

/// Compares plans with and without the pass with eager values.
void check_same(const esp::Variable& root) {
  const esp::Tensor expected = root.value();
  for (const int threads : {1, 2}) {
    const int before = esp::num_threads();
    esp::set_num_threads(threads);
    auto executor = root.get_executor({.mode = esp::Mode::inference});
    (void)executor.step();
    BOOST_TEST(difference(executor.value(), expected) < 1e-12);
    esp::set_num_threads(before);
  }
}

/// A random tree: pointwise ops, folds, rows, views, broadcasts and transposes over a few shapes.
class RandomTree {
 public:
  explicit RandomTree(uint32_t seed) : random_(seed) {
    for (const esp::Shape& shape : {esp::Shape{6, 40}, esp::Shape{6, 40}, esp::Shape{40}, esp::Shape{6, 1},
                                    esp::Shape{}, esp::Shape{3, 2, 40}})
      parameters.push_back(leaf(shape, seed * 10 + parameters.size()));
    values_ = parameters;
    for (int i = 0; i < 14; ++i) grow();
    root = esp::sum(values_.back());
    for (size_t i = parameters.size(); i < values_.size(); ++i)
      if (random_() % 3 == 0) root = root + esp::mean(values_[i]) * 0.5;
  }
  Variables parameters;
  esp::Variable root;

 private:
  esp::Variable pick() {  // prefers later values
    const size_t n = values_.size();
    return values_[std::max(random_() % n, random_() % n)];
  }
  void grow() {
    const esp::Variable x = pick(), y = pick();
    switch (random_() % 16) {
      case 0: return put(esp::tanh(x));
      case 1: return put(esp::sigmoid(x));
      case 2: return put(esp::square(x) * 0.25);
      case 3:
      case 4:
      case 5: return binary(x, y);
      case 6: return put(x.rank() ? esp::sum(x * 0.125, -1, true) : x * 2.0);
      case 7: return put(x.rank() ? esp::mean(x, 0) : x);
      case 8: return put(x.rank() ? esp::softmax(x) : esp::exp(x * 0.1));
      case 9: return put(x.rank() == 2 ? esp::transpose(x) : x + 1.0);
      case 10: return put(x.shape().elements() == 240 ? esp::reshape(x, {2, 3, 40}) : -x);
      case 11: return put(x.shape().elements() == 240 ? esp::reshape(x, {6, 40}) : esp::abs(x));
      case 12: return put(x.rank() ? esp::log_softmax(x) * 0.5 : x);
      case 13: return put(esp::where(esp::greater(x, 0.25), x, x * 0.5));
      case 14: return put(x.rank() ? esp::max(x, -1, true) : esp::relu(x));
      default: return put(x.rank() == 2 ? x - esp::mean(x, -1, true) : esp::maximum(x, 0.1));
    }
  }
  void binary(const esp::Variable& x, const esp::Variable& y) {
    try {
      put(random_() % 2 ? x * y : x + y);
    } catch (const esp::ShapeError&) {
      put(esp::tanh(x));
    }
  }
  void put(const esp::Variable& v) {
    if (v.shape().elements() <= 4096) values_.push_back(v);
  }
  std::mt19937 random_;
  Variables values_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(fusion)

BOOST_AUTO_TEST_CASE(a_chain_is_one_kernel) {
  const esp::Variable a = leaf({4, 5}, 1, "a"), b = leaf({5}, 2, "b");
  const esp::Variable h = esp::sigmoid(a), y = esp::tanh(a * b + 0.5) * h;
  BOOST_TEST(fused({y}).str() ==
             "%0 = a : float64 [4, 5]\n"
             "%1 = b : float64 [5]\n"
             "%2 = fused(program=v0 = sigmoid(i0); v1 = multiply(i0, i1); v2 = add(v1, 0.5); v3 = tanh(v2); "
             "v4 = multiply(v3, v0) -> v4) %0 %1 : float64 [4, 5]\n"
             "results: %2\n");
  check_same(y);
}

BOOST_AUTO_TEST_CASE(values_which_others_read_are_outputs) {
  const esp::Variable a = leaf({4, 5}, 1, "a");
  const esp::Variable h = esp::tanh(a), y = esp::matmul(h, esp::transpose(h)),
                      z = esp::sum(y) + esp::sum(h * 2.0);
  check_same(z);
  const std::string text = fused({z}).str();
  BOOST_TEST(text.find("v0 = tanh(i0); v1 = multiply(v0, 2); v2 = sum(v1):all -> v0 v2") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(two_outputs_of_a_node_are_two_operands) {
  const auto [q, r] = esp::qr(leaf({4, 4}, 1, "a"));
  check_same(esp::exp(q) * 2.0 - esp::exp(r));
}

BOOST_AUTO_TEST_CASE(folds_of_rows_feed_the_same_kernel) {
  const esp::Variable x = leaf({6, 40}, 1, "x");
  const esp::Variable centred = x - esp::mean(x, -1, true);
  const esp::Variable y = centred / esp::sqrt(esp::mean(esp::square(centred), -1, true) + 1e-5);
  const esp::Graph graph = fused({y});
  BOOST_TEST(graph.nodes.size() == 2u);
  BOOST_TEST(graph.nodes[1].op->name() == "fused");
  check_same(y);
  // A row too long for a tile is not fused.
  const esp::Variable wide = leaf({2, 20000}, 1, "wide");
  check_same(wide - esp::mean(wide, -1, true));
}

BOOST_AUTO_TEST_CASE(how_large_a_kernel_may_be) {
  const auto nodes = [](const esp::Variable& y, bool fuses = true) { return fused({y}, fuses).nodes.size(); };
  const auto chain = [](int ops) {
    esp::Variable y = leaf({4, 5}, 1);
    for (int i = 0; i < ops; ++i) y = esp::tanh(y);
    return y;
  };
  BOOST_TEST(nodes(chain(64)) == 2u);
  BOOST_TEST(nodes(chain(65)) == 3u);
  const auto sum_of = [](uint64_t operands) {
    esp::Variable y = leaf({4, 5}, 0);
    for (uint64_t i = 1; i < operands; ++i) y = y + leaf({4, 5}, i);
    return y;
  };
  BOOST_TEST(nodes(sum_of(32)) == 32u + 1);
  BOOST_TEST(nodes(sum_of(33)) == 33u + 2);
  for (const auto& [row, fuses] : {std::pair<int64_t, bool>{8192, true}, {8193, false}}) {
    const esp::Variable x = leaf({2, row}, 1);
    BOOST_TEST(nodes(x - esp::mean(x, -1, true), fuses) == (fuses ? 2u : 3u));
    BOOST_TEST(nodes(esp::softmax(x * x), fuses) == (fuses ? 2u : 3u));
  }
}

BOOST_AUTO_TEST_CASE(softmax_takes_what_is_around_it) {
  const esp::Variable x = leaf({3, 7, 64}, 1, "x"), mask = leaf({7, 64}, 2, "mask");
  const esp::Variable y = esp::softmax(x * 0.125 + mask) * 2.0;
  BOOST_TEST(fused({y}).nodes.size() == 3u);
  check_same(y);
}

BOOST_AUTO_TEST_CASE(what_needs_all_elements_waits_for_them) {
  const esp::Variable x = leaf({6, 40}, 1, "x");
  const esp::Variable y = esp::tanh(x), total = esp::sum(y), z = y / total;  // not in one kernel
  const esp::Graph graph = fused({z});
  check_same(z);
  for (const esp::GraphNode& n : graph.nodes)
    if (const auto* op = dynamic_cast<const esp::FusedOp*>(n.op.get()))
      BOOST_TEST(op->program().instructions.size() == 2u);  // tanh and sum
  // A path through another kernel prevents fusing its two ends.
  const esp::Variable h = esp::tanh(x), far = esp::matmul(h, esp::transpose(h));
  check_same(esp::sum(h) + esp::sum(far) + esp::sum(h * esp::sum(far)));
}

BOOST_AUTO_TEST_CASE(shapes_do_not_keep_values) {
  const esp::Variable x = leaf({6, 40}, 1, "x");
  const esp::Variable y = esp::sum(esp::exp(x));
  esp::Graph graph = esp::freeze({y.gradient(x)}, {}, {}, false);
  BOOST_TEST(esp::detach_shapes(graph));
  BOOST_TEST(!esp::detach_shapes(graph));
  esp::verify(graph, "detach_shapes");
  BOOST_TEST(graph.str().find("shape(dtype=float64 shape=[6, 40]) : float64 [6, 40]") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(operands_of_all_layouts) {
  const esp::Variable a = leaf({8, 33, 70}, 1), b = leaf({70, 33}, 2), c = leaf({33, 1}, 3),
                      d = leaf({8, 1, 1}, 4);
  const esp::Variable s = esp::slice(leaf({8, 33, 100}, 5), 2, 10, 80);
  const esp::Variable y = esp::tanh(a * esp::transpose(b) + c) * d - s;
  check_same(y);
  check_same(esp::sum(y * y, esp::Axes({0, 1})));
  check_same(esp::sum(esp::tanh(leaf({1000, 3}, 6)) * 2.0, 0));
  check_same(esp::sum(esp::tanh(leaf({3, 5000}, 7)) * 2.0, 0));
  check_same(esp::mean(esp::tanh(leaf({300000}, 8)) * 2.0));
  check_same(esp::cast(esp::greater(a * 2.0, esp::transpose(b)), esp::float64) + 1.0);
}

BOOST_AUTO_TEST_CASE(cross_entropy_is_two_kernels) {
  const esp::Variable x = leaf({5, 7}, 1, "x");
  const esp::Tensor labels = esp::tensor({3, 0, 6, 2, 1}, esp::int32);
  const esp::Variable loss = -esp::mean(esp::pick(esp::log_softmax(x), labels)), slope = loss.gradient(x);
  esp::Graph graph = esp::freeze({loss, slope}, {}, {}, false);
  esp::simplify(graph);
  esp::common_subexpressions(graph);
  BOOST_TEST(esp::fuse_cross_entropy(graph));
  esp::verify(graph, "fuse_cross_entropy");
  BOOST_TEST(!esp::fuse_cross_entropy(graph));
  const std::string text = graph.str();
  BOOST_TEST(text.find("= log_softmax_pick(") != std::string::npos, text);
  BOOST_TEST(text.find("= log_softmax_pick_gradient(") != std::string::npos, text);
  for (const char* gone : {"exp", "= log_softmax %", "put_like"})
    BOOST_TEST(text.find(gone) == std::string::npos, text);
  check_same(loss + esp::sum(esp::square(slope)));
  check_same(esp::softmax_cross_entropy(leaf({40, 2000}, 2), esp::zeros({40}, esp::int64)));
  // The logarithms are kept if they have another reader.
  const esp::Variable logarithms = esp::log_softmax(x);
  check_same(esp::mean(esp::pick(logarithms, labels)) + esp::sum(logarithms));
  // Slopes that differ by row, and lie in another order.
  const esp::Variable cube = leaf({3, 4, 5}, 5), weights = leaf({4, 3}, 6);
  const esp::Tensor of_cube = esp::tensor({{3, 0, 4, 2}, {1, 1, 0, 3}, {2, 4, 0, 1}}, esp::int32);
  const esp::Variable turned = esp::sum(esp::transpose(esp::pick(esp::log_softmax(cube), of_cube)) * weights);
  check_same(turned + esp::sum(esp::square(turned.gradient(cube))));
  // A sum along rows that is broadcast along another axis does not match.
  const esp::Variable square = leaf({5, 5}, 3), logs = esp::log_softmax(square);
  const esp::Tensor few = esp::tensor({3, 0, 4, 2, 1}, esp::int32);
  const esp::Variable picked = esp::pick(logs, few), put = esp::put_like(leaf({5}, 4), few, square, "pick");
  check_same(esp::sum(picked) + (put - esp::exp(logs) * esp::sum(put, -1)));
  const esp::Variable wrong =
      esp::softmax_cross_entropy(x, esp::placeholder("labels", {5}, esp::int32)) * 1.0;
  const auto executor = wrong.get_executor();
  BOOST_CHECK_THROW((void)executor.run({{"labels", esp::tensor({3, 0, 7, 2, 1}, esp::int32)}}),
                    esp::IndexError);
}

BOOST_AUTO_TEST_CASE(cross_entropies_of_one_row_with_two_labels) {
  // As mixup has them: the slopes are those of each label.
  const esp::Variable x = leaf({5, 7}, 1, "x");
  const esp::Tensor first = esp::tensor({3, 0, 6, 2, 1}), second = esp::tensor({5, 1, 6, 0, 4});
  const auto mixed = [&](const esp::Tensor& a, const esp::Tensor& b) {
    return -esp::mean(esp::pick(esp::log_softmax(x), a)) * 0.75 -
           esp::mean(esp::pick(esp::log_softmax(x), b)) * 0.25;
  };
  for (const esp::Variable& loss : {mixed(first, second), mixed(second, first)}) {
    const esp::Variable slope = loss.gradient(x);
    check_same(slope);
    check_same(loss + esp::sum(esp::square(slope)));
  }
}

BOOST_AUTO_TEST_CASE(what_only_looks_like_the_gradient_of_a_cross_entropy) {
  const esp::Variable x = leaf({4, 5}, 1, "x"), z = leaf({4, 5}, 2, "z"), a = leaf({4}, 3, "a"),
                      b = leaf({4}, 4, "b"), labels = esp::tensor({0, 3, 1, 3}, esp::int64);
  const auto put = [&](const esp::Variable& g) { return esp::sum(esp::pick(z, labels) * g).gradient(z); };
  const esp::Variable logarithms = esp::log_softmax(x), picked = esp::pick(logarithms, labels);
  check_same(esp::sum(picked) + (put(a) - esp::exp(logarithms) * esp::sum(put(b), -1, true)));
}

BOOST_AUTO_TEST_CASE(rows_of_one_number) {
  // Folds and whole rows read contiguous elements, not broadcast ones.
  for (const int64_t width : {8, 700}) {
    const esp::Variable x = leaf({40, width}, 1), column = leaf({40, 1}, 2), one = leaf({}, 3);
    const esp::Variable seen = esp::broadcast_to(column, {40, width}),
                        everywhere = esp::broadcast_to(one, {40, width});
    for (const esp::Variable& v : {seen, everywhere, esp::broadcast_to(esp::mean(x, -1, true), {40, width}),
                                   esp::full_like(x, 0.25)}) {
      check_same(x * esp::softmax(v));
      check_same(x * esp::sum(v, -1, true));
      check_same(x * esp::max(v, -1, true));
      check_same(esp::tanh(x) + esp::log_softmax(v) + esp::softmax(x));
      check_same(esp::sum(x * v, 0) + esp::sum(v, 0));
      check_same(esp::sum(v) + esp::sum(esp::tanh(x)) + esp::mean(x * v));
    }
  }
  const esp::Variable x = leaf({100, 7}, 1), bias = leaf({100, 1}, 2);
  check_same(bias - 0.5 * esp::sum(esp::sum(x + bias) * esp::ones_like(x), 1, true));
  check_same(bias - esp::sum(x + bias).gradient(bias));
}

BOOST_AUTO_TEST_CASE(whole_rows_that_may_not_lie_over_their_input) {
  const esp::Variable x = leaf({6, 40}, 1), w = leaf({40, 40}, 2);
  const esp::Tensor order = esp::tensor({5, 4, 3, 2, 1, 0}, esp::int32);
  const esp::Variable y = esp::log_softmax(esp::gather(x, order));
  check_same(esp::concat({y, y * 2.0}));
  check_same(esp::matmul(y, w) + y * 2.0);
}

BOOST_AUTO_TEST_CASE(no_circle_through_what_was_written_later) {
  const esp::Variable a = leaf({6, 6}, 1), b = leaf({6, 6}, 2);
  esp::Graph graph = esp::freeze({a, b}, {}, {}, false);
  const auto add = [&](const esp::Variable& like, esp::SmallVector<esp::ValueRef, 2> inputs, esp::Tag tag) {
    esp::GraphNode n{like.node()->op_, std::move(inputs), {a.node()->outputs[0].spec}, tag, {}, {}, {}};
    graph.nodes.push_back(std::move(n));
    return esp::ValueRef{static_cast<uint32_t>(graph.nodes.size() - 1), 0};
  };
  const esp::ValueRef p{0, 0}, q{1, 0};
  const esp::ValueRef f = add(esp::tanh(a), {p}, esp::Tag::forward),
                      c = add(esp::tanh(a), {q}, esp::Tag::forward);
  const esp::ValueRef s = add(a * b, {f, c}, esp::Tag::backward);
  const esp::ValueRef u = add(esp::matmul(a, b), {f, f}, esp::Tag::forward);
  const esp::ValueRef d = add(a * b, {c, u}, esp::Tag::forward);
  graph.results = {s, d};
  BOOST_TEST(esp::fuse_pointwise(graph));
  BOOST_CHECK_NO_THROW(esp::verify(graph, "fuse_pointwise"));
  size_t products = 0;
  for (const esp::GraphNode& n : graph.nodes) products += n.op->name() == "matmul";
  BOOST_TEST(products == 1u);
}

BOOST_AUTO_TEST_CASE(minus_zero_is_not_zero) {
  const esp::Variable x = leaf({6, 40}, 1);
  check_same(esp::divide(esp::maximum(x, 0.0) + 1.0, esp::full_like(x, -0.0)));
}

BOOST_AUTO_TEST_CASE(operands_of_many_axes) {
  const esp::Shape shape(esp::Dims(18, 2));
  esp::Dims order;
  for (int64_t i = 18; i-- > 0;) order.push_back(i);
  const esp::Variable x = leaf(shape, 1);
  check_same(esp::tanh(x) + esp::transpose(x, esp::Axes(order)) * 2.0);
}

BOOST_AUTO_TEST_CASE(updates_of_products_are_written_where_the_parameters_are) {
  const esp::Variable x = esp::placeholder("x", {8, 5}, esp::float64);
  const esp::Variable w1 = leaf({6, 5}, 1, "w1"), w2 = leaf({3, 6}, 2, "w2"), w3 = leaf({2, 3}, 3, "w3");
  esp::Variable h = esp::relu(esp::matmul(x, esp::transpose(w1)));
  h = esp::relu(esp::matmul(h, esp::transpose(w2)));
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(h, esp::transpose(w3))));
  const esp::optim::Sgd sgd(0.1);
  const auto updates = sgd.build({{w1, loss.gradient(w1)}, {w2, loss.gradient(w2)}, {w3, loss.gradient(w3)}});
  const auto plan = esp::compile({.value = loss, .updates = updates}, {}, {});
  int found = 0;
  for (size_t i = 0; i < plan->graph.nodes.size(); ++i) {
    const esp::GraphNode& n = plan->graph.nodes[i];
    if (n.op->name() == "matmul_update") found += plan->memory.in_place[i];
    if (n.op->has_side_effects()) BOOST_TEST(!plan->memory.runs[i]);  // nothing is left to copy
  }
  BOOST_TEST(found == 3);
}

BOOST_AUTO_TEST_CASE(a_bias_of_a_product_in_another_shape) {
  const auto param = [](const esp::Shape& shape, uint64_t which) {
    return esp::parameter(numbers(shape, -1, 1, which).to(esp::float32), "p");
  };
  const auto x = param({256, 64}, 1), w = param({64, 64}, 2), b = param({128}, 3);
  const auto y = esp::relu(esp::reshape(esp::matmul(x, w), {128, 128}) + b);
  const auto agrees = [&] {
    auto executor = y.get_executor({.mode = esp::Mode::inference});
    (void)executor.step();
    BOOST_TEST(difference(executor.value(), y.value()) < 1e-5);
  };
  agrees();
  const auto before = esp::gemm_choices().all();
  auto choices = before;
  for (auto& choice : choices)
    if (choice.gemm.m == 256 && choice.gemm.n == 64 && choice.gemm.k == 64)
      choice.library = esp::GemmLibrary::onednn_matmul;
  esp::gemm_choices().set(choices);
  agrees();
  esp::gemm_choices().set(before);
}

BOOST_AUTO_TEST_CASE(random_trees_agree_with_eager) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    RandomTree tree(seed);
    BOOST_TEST_CONTEXT("seed " << seed) { check_same(tree.root); }
  }
}

BOOST_AUTO_TEST_CASE(random_trees_train_alike) {
  for (uint32_t seed = 200; seed < 240; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      RandomTree eager(seed), frozen(seed);
      esp::optim::Adam one({.lr = 0.01}), other({.lr = 0.01});
      auto executor = frozen.root.get_executor({.mode = esp::Mode::training, .optimizer = other});
      auto plain = RandomTree(seed);
      auto without = plain.root.get_executor({.mode = esp::Mode::training,
                                              .optimizer = esp::optim::Adam({.lr = 0.01}),
                                              .without = {"fuse_pointwise"}});
      executor.execute({.epochs = 3, .progress = false});
      without.execute({.epochs = 3, .progress = false});
      for (size_t i = 0; i < frozen.parameters.size(); ++i)
        BOOST_TEST(difference(frozen.parameters[i].value(), plain.parameters[i].value()) < 1e-10);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
