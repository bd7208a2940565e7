// TreeLstm cells: the equations of Tai et al. as loops, batches as single nodes, derivatives, errors.
#include "espalier/nn/tree_lstm.h"

#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/check_gradient.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "layer_figures.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t in = 3, hidden = 2;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Row `row` of a parameter times a vector.
double times(const Module& cell, const std::string& name, int64_t row, const std::vector<double>& v,
             int64_t begin = 0) {
  const esp::Tensor weight = cell.parameter(name).value();
  double sum = 0;
  for (size_t j = 0; j < v.size(); ++j)
    sum += weight.at<double>({row, begin + static_cast<int64_t>(j)}) * v[j];
  return sum;
}

struct Plain {
  std::vector<double> h, c;
};

/// One node, for each unit j by the paper's equations.
template <class Cell>
Plain node(const Cell& cell, const std::vector<double>& x, const std::vector<Plain>& children) {
  constexpr bool ordered = std::is_same_v<Cell, NaryTreeLstm>;
  Plain made;
  std::vector<double> sum(hidden), row;
  for (const Plain& child : children) {
    for (size_t j = 0; j < hidden; ++j) sum[j] += child.h[j];
    row.insert(row.end(), child.h.begin(), child.h.end());
  }
  const esp::Tensor bias = cell.parameter("bias").value();
  for (int64_t j = 0; j < hidden; ++j) {
    const auto of_x = [&](int64_t gate) {  // f, i, o, u
      return times(cell, "weight_ih", gate * hidden + j, x) + bias.at<double>({gate * hidden + j});
    };
    const auto of_h = [&](int64_t gate) {  // i, o, u
      return times(cell, "weight_hh", gate * hidden + j, ordered ? row : sum);
    };
    double c = sigmoid(of_x(1) + of_h(0)) * std::tanh(of_x(3) + of_h(2));
    for (size_t k = 0; k < children.size(); ++k) {
      double f = of_x(0);
      if constexpr (ordered)
        f += of_h(3 + static_cast<int64_t>(k));
      else
        f += times(cell, "weight_fh", j, children[k].h);
      c += sigmoid(f) * children[k].c[static_cast<size_t>(j)];
    }
    made.c.push_back(c);
    made.h.push_back(sigmoid(of_x(2) + of_h(1)) * std::tanh(c));
  }
  return made;
}

template <class Cell>
void check_tree(const Cell& cell) {
  give_figure_values(cell);
  const esp::Tensor x = numbers({3, in}, -1, 1);
  std::vector<LSTMState> states;
  std::vector<Plain> plain;
  for (int64_t i = 0; i < 3; ++i) {
    const esp::Tensor row = x.slice(0, i, i + 1);
    const std::vector<double> values{row.at<double>({0, 0}), row.at<double>({0, 1}), row.at<double>({0, 2})};
    const bool root = i == 2;
    states.push_back(root ? cell(row, {states[0], states[1]}) : cell(row));
    plain.push_back(node(cell, values, root ? std::vector<Plain>{plain[0], plain[1]} : std::vector<Plain>{}));
    for (int64_t j = 0; j < hidden; ++j) {
      const auto at = static_cast<size_t>(j);
      BOOST_TEST(std::abs(states.back().h.value().template at<double>({0, j}) - plain.back().h[at]) < 1e-14);
      BOOST_TEST(std::abs(states.back().c.value().template at<double>({0, j}) - plain.back().c[at]) < 1e-14);
    }
  }
  // Both leaves at once.
  const LSTMState leaves = cell(x.slice(0, 0, 2));
  BOOST_TEST(difference(leaves.h.value(), esp::concat({states[0].h, states[1].h}, 0).value()) < 1e-15);
  const LSTMState chain = cell(x.slice(0, 0, 1), {states[1]});  // one child, which is the first
  const Plain of_one = node(cell, {x.at<double>({0, 0}), x.at<double>({0, 1}), x.at<double>({0, 2})},
                            std::vector<Plain>{plain[1]});
  for (int64_t j = 0; j < hidden; ++j) {
    const auto at = static_cast<size_t>(j);
    BOOST_TEST(std::abs(chain.h.value().template at<double>({0, j}) - of_one.h[at]) < 1e-14);
    BOOST_TEST(std::abs(chain.c.value().template at<double>({0, j}) - of_one.c[at]) < 1e-14);
  }
  // One child, and a node without an input.
  const LSTMState above = cell(Variable(), {cell(x)});
  BOOST_TEST(above.h.shape() == esp::Shape({3, hidden}));
  const auto result = esp::check_gradient(
      [&](const std::vector<Variable>& v) {
        const LSTMState leaf = cell(v[0]);
        const LSTMState inner = cell(v[1], {leaf, {v[2], v[3]}}), top = cell(Variable(), {inner});
        return top.h * top.c;
      },
      {numbers({2, in}, -1, 1, 1), numbers({2, in}, -1, 1, 2), numbers({2, hidden}, -1, 1, 3),
       numbers({2, hidden}, -1, 1, 4)},
      {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tree_lstm)

BOOST_AUTO_TEST_CASE(cells_are_the_paper_s_equations) {
  check_tree(ChildSumTreeLstm(in, hidden, {.dtype = esp::float64}));
  check_tree(NaryTreeLstm(in, hidden, {.dtype = esp::float64}));
}

BOOST_AUTO_TEST_CASE(leaves_that_wait_have_no_product_for_the_forget_gate) {
  const auto check = [](const auto& cell) {
    give_figure_values(cell);
    const auto gradients = [&] {
      std::vector<LSTMState> leaves;
      for (uint64_t i = 0; i < 4; ++i) leaves.push_back(cell(numbers({1, in}, -1, 1, i)));
      const LSTMState a = cell(Variable(), {leaves[0], leaves[1]});
      const LSTMState b = cell(numbers({1, in}, -1, 1, 9), {leaves[2], leaves[3]});
      const Variable loss = esp::sum(a.h * b.c + a.c * b.h);
      std::vector<esp::Tensor> all{loss.value()};
      for (const auto& name : {"weight_ih", "bias", "weight_hh"})
        all.push_back(loss.gradient(cell.parameter(name)).value());
      return all;
    };
    const std::vector<esp::Tensor> eager = gradients();
    const esp::Deferred waits;
    for (int time = 0; time < 2; ++time) {
      const std::vector<esp::Tensor> deferred = gradients();
      for (size_t i = 0; i < eager.size(); ++i) BOOST_TEST(difference(eager[i], deferred[i]) < 1e-15);
    }
    int64_t leaves = 0, parts = 0;
    for (const auto& batch : esp::last_evaluation().batches) {
      if (batch.op == "matmul" && batch.of_one.shape == esp::Shape({1, 3 * hidden}) && batch.level < 2)
        leaves += batch.nodes;
      if (batch.op == "slice") parts += batch.nodes;
    }
    BOOST_TEST(leaves == 4);
    BOOST_TEST(parts == 2);  // of the weight and of the bias, for all leaves
  };
  check(ChildSumTreeLstm(in, hidden, {.dtype = esp::float64}));
  check(NaryTreeLstm(in, hidden, {.dtype = esp::float64}));
}

BOOST_AUTO_TEST_CASE(waiting_leaves_under_no_grad_take_no_gradient_from_others) {
  const NaryTreeLstm cell(in, hidden, {.dtype = esp::float64});
  give_figure_values(cell);
  const auto gradients = [&] {
    const auto judged = [&](uint64_t seed) {
      const esp::NoGrad none;
      return cell(numbers({1, in}, -1, 1, seed)).h;
    };
    const Variable before = judged(1), trained = cell(numbers({1, in}, -1, 1, 2)).h, behind = judged(3);
    const Variable loss = esp::sum(esp::square(trained - before) + trained * behind);
    std::vector<esp::Tensor> all{loss.value()};
    for (const auto& name : {"weight_ih", "bias"}) all.push_back(loss.gradient(cell.parameter(name)).value());
    return all;
  };
  const std::vector<esp::Tensor> eager = gradients();
  const esp::Deferred waits;
  const std::vector<esp::Tensor> deferred = gradients();
  for (size_t i = 0; i < eager.size(); ++i) BOOST_TEST(difference(eager[i], deferred[i]) < 1e-15);
}

BOOST_AUTO_TEST_CASE(the_order_of_children_counts_for_one_cell_alone) {
  const esp::Tensor a = numbers({1, in}, -1, 1, 1), b = numbers({1, in}, -1, 1, 2);
  const auto turned = [&](const auto& cell) {
    give_figure_values(cell);
    const LSTMState x = cell(a), y = cell(b);
    return difference(cell(Variable(), {x, y}).h.value(), cell(Variable(), {y, x}).h.value());
  };
  BOOST_TEST(turned(ChildSumTreeLstm(in, hidden, {.dtype = esp::float64})) < 1e-15);
  BOOST_TEST(turned(NaryTreeLstm(in, hidden, {.dtype = esp::float64})) > 1e-3);
}

BOOST_AUTO_TEST_CASE(an_empty_list_of_children_is_a_leaf) {
  const Variable x = numbers({1, in}).to(esp::float32);
  const auto same = [&](const auto& cell) {
    const LSTMState leaf = cell(x), none = cell(x, {}), one = cell(x, {leaf}),
                    listed = cell(x, std::vector<LSTMState>{leaf});
    BOOST_TEST(difference(leaf.h.value(), none.h.value()) == 0);
    BOOST_TEST(difference(one.h.value(), listed.h.value()) == 0);
  };
  same(ChildSumTreeLstm(in, hidden));
  same(NaryTreeLstm(in, hidden));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const NaryTreeLstm cell(in, hidden);
  const LSTMState leaf = cell(esp::ones({1, in}));
  BOOST_CHECK_EXCEPTION(cell(Variable(), {leaf, leaf, leaf}), esp::Error,
                        says({"NaryTreeLstm", "3 children", "2", "tree_lstm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(cell(Variable()), esp::Error, says({"an input or children"}));
  const NaryTreeLstm fresh(hidden);
  BOOST_CHECK_EXCEPTION(fresh(Variable(), {leaf}), esp::Error, says({"the first call"}));
  BOOST_CHECK_EXCEPTION(cell(esp::ones({2, in}), {leaf}), esp::ShapeError, says({"[1, 2]", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(cell(esp::ones({in})), esp::ShapeError, says({"NaryTreeLstm", "[3]"}));
  const ChildSumTreeLstm sum(in, hidden);
  BOOST_CHECK_EXCEPTION(sum(esp::ones({1, in}), {leaf, {leaf.h, Variable()}}), esp::Error,
                        says({"ChildSumTreeLstm: c of child 1 is an undefined", "tree_lstm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(cell(Variable(), {{Variable(), leaf.c}}), esp::Error,
                        says({"NaryTreeLstm: h of child 0 is an undefined", "tree_lstm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(NaryTreeLstm(3, {.children = 0}), esp::Error, says({"0 children"}));
  BOOST_CHECK_EXCEPTION(ChildSumTreeLstm(0), esp::Error, says({"ChildSumTreeLstm", "0"}));
}

BOOST_AUTO_TEST_SUITE_END()
