// Programs that apply one network over and over: recurrent cells over time, an ordinary differential
// equation, and a cell over trees.
#include <boost/test/unit_test.hpp>

#include <memory>
#include <random>

#include "espalier/espalier.h"
#include "training_task.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t rows = 20, steps = 6, inputs = 2, hidden = 5;

Variable at_time(const Variable& x, int64_t t) { return esp::squeeze(esp::slice(x, 1, t, t + 1), 1); }

/// Part `i` of columns that are divided into equal parts.
Variable part(const Variable& x, int64_t i, int64_t width = hidden) {
  return esp::slice(x, 1, i * width, (i + 1) * width);
}

Tensor sequences() { return numbers({rows, steps, inputs}, -1, 1, 4); }

/// A loss in each step: the mean of the first input so far. Hochreiter and Schmidhuber, 1997.
struct Lstm : nn::Module {
  Variable operator()(const Variables& columns) {
    const Variable &x = columns[0], &y = columns[1];
    Variable h(esp::zeros({1, hidden}, esp::float64)), c = h, loss;
    for (int64_t t = 0; t < steps; ++t) {
      const Variable gates = esp::matmul(at_time(x, t), w) + esp::matmul(h, u) + b;
      c = esp::sigmoid(part(gates, 0)) * c + esp::sigmoid(part(gates, 1)) * esp::tanh(part(gates, 2));
      h = esp::sigmoid(part(gates, 3)) * esp::tanh(c);
      const Variable error = esp::mean_squared_error(out(h), at_time(y, t));
      loss = loss.defined() ? loss + error : error;
    }
    return loss / double(steps);
  }
  Variable w = add_parameter("w", numbers({inputs, 4 * hidden}, -0.5, 0.5, 1)),
           u = add_parameter("u", numbers({hidden, 4 * hidden}, -0.5, 0.5, 2)),
           b = add_parameter("b", esp::zeros({4 * hidden}, esp::float64));
  nn::Dense out = add("out", nn::Dense(hidden, 1, {.dtype = esp::float64}));
};

Tensor means_so_far() {
  const Tensor x = sequences();
  Tensor y({rows, steps, 1}, esp::float64);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t t = 0; t < steps; ++t) {
      sum += x.at<double>({r, t, 0});
      y.at<double>({r, t, 0}) = sum / double(t + 1);
    }
  }
  return y;
}

/// The class of a sequence is the sign of its first number. Cho and others, 2014.
struct Gru : nn::Module {
  Variable operator()(const Variables& columns) {
    const Variable& x = columns[0];
    Variable h = esp::zeros_like(esp::matmul(at_time(x, 0), start));
    for (int64_t t = 0; t < steps; ++t) {
      const Variable now = at_time(x, t), gates = esp::sigmoid(to_gates(esp::concat({now, h}, 1)));
      const Variable reset = part(gates, 0), update = part(gates, 1);
      h = (1.0 - update) * h + update * esp::tanh(to_candidate(esp::concat({now, reset * h}, 1)));
    }
    return esp::softmax_cross_entropy(out(h), columns[1]);
  }
  Tensor start = esp::zeros({inputs, hidden}, esp::float64);
  nn::Dense to_gates = add("gates", nn::Dense(2 * hidden)),
            to_candidate = add("candidate", nn::Dense(hidden)), out = add("out", nn::Dense(2));
};

Tensor signs() {
  Tensor labels({rows}, esp::int64);
  for (int64_t r = 0; r < rows; ++r) labels.at<int64_t>({r}) = sequences().at<double>({r, 0, 0}) > 0;
  return labels;
}

/// Points that move for one unit of time by dx/dt = f(x), in steps of Runge and Kutta. Chen and others,
/// Neural ordinary differential equations, 2018.
struct Flow : nn::Module {
  Variable f(const Variable& x) { return outer(esp::tanh(inner(x))); }
  Variable operator()(const Variables& columns) {
    constexpr int count = 5;
    const double dt = 1.0 / count;
    Variable x = columns[0];
    for (int step = 0; step < count; ++step) {
      const Variable k1 = f(x), k2 = f(x + k1 * (dt / 2)), k3 = f(x + k2 * (dt / 2)), k4 = f(x + k3 * dt);
      x = x + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (dt / 6);
    }
    return esp::mean_squared_error(x, columns[1]);
  }
  nn::Dense inner = add("inner", nn::Dense(2, 8, {.dtype = esp::float64})),
            outer = add("outer", nn::Dense(8, 2, {.dtype = esp::float64}));
};

/// A binary tree with a word at each leaf.
struct Tree {
  explicit Tree(int64_t leaf) : word(leaf) {}
  Tree(Tree a, Tree b)
      : left(std::make_shared<Tree>(std::move(a))), right(std::make_shared<Tree>(std::move(b))) {}
  int64_t word = -1;
  std::shared_ptr<Tree> left, right;
};

constexpr int64_t vocabulary = 6;

Tree random_tree(std::mt19937& random, int depth) {
  if (depth == 0 || random() % 4 == 0) return Tree(int64_t(random() % vocabulary));
  Tree left = random_tree(random, depth - 1);
  return {std::move(left), random_tree(random, depth - 1)};
}

/// Whether most words of a tree are in the first half of the vocabulary.
int64_t votes(const Tree& tree) {
  return tree.left ? votes(*tree.left) + votes(*tree.right) : tree.word < vocabulary / 2 ? 1 : -1;
}

/// Tai, Socher and Manning, Improved semantic representations from tree-structured LSTMs, 2015.
struct TreeLstm : nn::Module {
  struct State {
    Variable h, c;
  };
  State operator()(const Tree& tree) {
    if (!tree.left) {
      const Variable x = words(esp::tensor({tree.word}));
      const Variable c = esp::sigmoid(part(x, 0)) * esp::tanh(part(x, 1));
      return {esp::sigmoid(part(x, 2)) * esp::tanh(c), c};
    }
    const State a = (*this)(*tree.left), b = (*this)(*tree.right);
    const Variable gates = join(esp::concat({a.h, b.h}, 1));
    const Variable c = esp::sigmoid(part(gates, 0)) * esp::tanh(part(gates, 1)) +
                       esp::sigmoid(part(gates, 3)) * a.c + esp::sigmoid(part(gates, 4)) * b.c;
    return {esp::sigmoid(part(gates, 2)) * esp::tanh(c), c};
  }
  Variable loss(const Tree& tree) {
    return esp::softmax_cross_entropy(out((*this)(tree).h), esp::tensor({int64_t(votes(tree) > 0)}));
  }
  Trace values() const {
    Trace trace;
    for (const auto& [name, p] : parameters()) trace.push_back(p.value().clone());
    return trace;
  }
  nn::Embedding words = add("words", nn::Embedding(vocabulary, 3 * hidden, {.dtype = esp::float64}));
  nn::Dense join = add("join", nn::Dense(2 * hidden, 5 * hidden, {.dtype = esp::float64})),
            out = add("out", nn::Dense(hidden, 2, {.dtype = esp::float64}));
};

std::vector<Tree> trees() {
  std::mt19937 random(3);
  std::vector<Tree> all;
  for (int i = 0; i < 12; ++i) all.push_back(random_tree(random, 4));
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recurrent_programs)

BOOST_AUTO_TEST_CASE(lstm) {
  check_training<Lstm>(
      {{sequences(), means_so_far()}, [](const Lstm&) { return optim::Adam({.lr = 0.02, .clip_norm = 1}); }},
      0.6);
}

BOOST_AUTO_TEST_CASE(gru) {
  check_training<Gru>({{sequences(), signs()}, [](const Gru&) { return optim::Adam({.lr = 0.05}); }, 8, 25},
                      0.6);
}

BOOST_AUTO_TEST_CASE(neural_ode) {
  const Tensor x = numbers({rows, 2}, -1, 1, 6);  // is to turn by a quarter
  const Tensor turned = esp::matmul(x, esp::tensor({{0, 1}, {-1, 0}}, esp::float64)).value();
  check_training<Flow>({{x, turned}, [](const Flow&) { return optim::Sgd({.lr = 0.1, .momentum = 0.9}); }},
                       0.5);
}

BOOST_AUTO_TEST_CASE(each_tree_has_a_graph_of_its_own) {
  esp::seed(5);
  TreeLstm network;
  const optim::Adam adam({.lr = 0.03});
  double first = 0, last = 0;
  for (int epoch = 0; epoch < 8; ++epoch)
    for (const Tree& tree : trees()) {
      const Variable loss = network.loss(tree);
      loss.update(adam);
      (epoch == 0 ? first : last) += epoch == 0 || epoch == 7 ? loss.item() : 0;
    }
  BOOST_TEST(last < 0.5 * first);
  for (const Tree& tree : trees()) {
    const Variable loss = network.loss(tree);
    const esp::Executor executor = loss.get_executor({.mode = esp::Mode::inference});
    (void)executor.execute({.progress = false});
    BOOST_TEST(difference(executor.value(), loss.value()) < 1e-12);
  }
}

// The tree that comes most often has a plan, and the others are evaluated eagerly in between.
BOOST_AUTO_TEST_CASE(a_frozen_tree_trains_among_eager_ones) {
  const auto train = [](bool freeze) {
    esp::seed(5);
    TreeLstm network;
    const optim::Adam adam({.lr = 0.03});
    const std::vector<Tree> all = trees();
    const esp::Executor often = network.loss(all[0]).get_executor({.optimizer = adam});
    Trace trace;
    for (const Tree& tree : all) {
      const Variable other = network.loss(tree);
      other.update(adam);
      trace.push_back(other.value());
      if (freeze) {
        (void)often.execute({.progress = false});
        trace.push_back(often.value());
      } else {
        const Variable loss = network.loss(all[0]);
        loss.update(adam);
        trace.push_back(loss.value());
      }
    }
    for (const Tensor& value : network.values()) trace.push_back(value);
    return trace;
  };
  BOOST_TEST(difference_of(train(true), train(false)) < 1e-11);
}

BOOST_AUTO_TEST_SUITE_END()
