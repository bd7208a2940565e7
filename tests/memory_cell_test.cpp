// The op of memory cells against loops in double: the gates of LSTMs and TreeLstms, with its derivatives, in
// plans, beside the composed form, deferred, and refused.
#include "espalier/ops/recurrent/memory_cell.h"

#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/nn/tree_lstm.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::MemoryCellForm;
using esp::Variable;

namespace {

constexpr int64_t width = 3, rows = 2;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// h and c side by side.
Array reference(const MemoryCellForm& form, const std::vector<Array>& in) {
  const auto summands = static_cast<size_t>(form.summands());
  return Array({rows, 2 * width}, [&](const Index& at) {
    const int64_t unit = at[1] % width;
    const auto gate = [&](int64_t which) {
      double sum = 0;
      for (size_t p = 0; p < summands; ++p) {
        const int64_t block = form.block(static_cast<int64_t>(p), which);
        if (block >= 0) sum += in[p]({at[0], block * width + unit});
      }
      return sum;
    };
    double c = sigmoid(gate(0)) * std::tanh(gate(form.gates() - 1));
    for (int64_t k = 0; k < form.memories; ++k)
      c += sigmoid(gate(2 + k)) * in[summands + static_cast<size_t>(k)]({at[0], unit});
    return at[1] < width ? sigmoid(gate(1)) * std::tanh(c) : c;
  });
}

Variables parts(const Variables& v, const MemoryCellForm& form, bool memories) {
  const auto middle = v.begin() + form.summands();
  return memories ? Variables(middle, v.end()) : Variables(v.begin(), middle);
}
Variable run(const MemoryCellForm& form, const Variables& v) {
  const auto [h, c] = esp::memory_cell(form, parts(v, form, false), parts(v, form, true));
  return esp::concat({h, c}, 1);
}
Variable run_composed(const MemoryCellForm& form, const Variables& v) {
  const auto [h, c] = esp::composed_memory_cell(form, parts(v, form, false), parts(v, form, true));
  return esp::concat({h, c}, 1);
}

struct Case {
  std::string name;
  MemoryCellForm form;
  std::vector<esp::Shape> summands;
};
std::vector<Case> cases() {
  return {{"lstm", {width, 1, {0, 3, 1, 2}}, {{rows, 4 * width}}},
          {"lstm of two products and a bias",
           {width, 1, {0, 3, 1, 2, 0, 3, 1, 2, 0, 3, 1, 2}},
           {{rows, 4 * width}, {rows, 4 * width}, {4 * width}}},
          {"leaf of a tree", {width, 0, {1, 2, 3}}, {{rows, 4 * width}}},
          {"node with two children",
           {width, 2, {1, 2, 0, 0, 3, 0, 1, 3, 4, 2}},
           {{4 * width}, {rows, 5 * width}}},
          {"sum of children",
           {width, 2, {1, 2, 0, 0, 3, 0, 1, -1, -1, 2, -1, -1, 0, -1, -1, -1, -1, -1, 0, -1}},
           {{rows, 4 * width}, {rows, 3 * width}, {rows, width}, {rows, width}}}};
}
std::vector<esp::Tensor> inputs_of(const Case& c) {
  std::vector<esp::Tensor> inputs;
  for (const esp::Shape& shape : c.summands) inputs.push_back(numbers(shape, -1, 1, inputs.size()));
  for (int64_t k = 0; k < c.form.memories; ++k)
    inputs.push_back(numbers({rows, width}, -1, 1, inputs.size()));
  return inputs;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_cell)

BOOST_AUTO_TEST_CASE(gates_of_lstms_and_trees) {
  for (const Case& c : cases())
    check_op({.name = c.name,
              .op = [&](const Variables& v) { return run(c.form, v); },
              .inputs = inputs_of(c),
              .reference = [&](const std::vector<Array>& in) { return reference(c.form, in); },
              .roundings = 0});
}

/// Values, and the gradients of h alone, of c alone, and of both.
BOOST_AUTO_TEST_CASE(the_composed_form_has_the_same_gradients) {
  for (const Case& c : cases())
    for (const int which : {0, 1, 2}) {
      Variables v;
      for (const esp::Tensor& each : inputs_of(c)) v.push_back(esp::variable(each));
      const auto part = [&](const Variable& y) {
        return esp::sum(esp::square(which == 2 ? y : esp::slice(y, 1, which * width, (which + 1) * width)));
      };
      const Variable one = part(run(c.form, v)), other = part(run_composed(c.form, v));
      BOOST_TEST(difference(one.value(), other.value()) < 1e-14, c.name);
      for (const Variable& each : v)
        BOOST_TEST(difference(one.gradient(each).value(), other.gradient(each).value()) < 1e-14, c.name);
    }
}

/// One cell for the leaves of both trees, and one for their roots, with the gradients of eager evaluation.
BOOST_AUTO_TEST_CASE(deferred_cells_are_batched) {
  const auto compare = [](const auto& cell) {
    const auto loss = [&] {
      Variables roots;
      for (uint64_t tree = 0; tree < 2; ++tree) {
        const auto x = [&](uint64_t which) { return Variable(numbers({1, 4}, -1, 1, 3 * tree + which)); };
        const auto leaf = cell(x(0)), other = cell(x(1));
        const auto root = cell(tree ? Variable() : x(2), {leaf, other}), above = cell(x(2), {root, leaf});
        roots.push_back(above.h * above.c);
      }
      return esp::sum(esp::concat(roots, 0));
    };
    const auto values = [&] {
      const Variable root = loss();
      std::vector<esp::Tensor> all{root.value()};
      root.backward();
      for (const auto& [path, p] : cell.parameters()) all.push_back(root.gradient(p).value());
      return all;
    };
    const auto eager = values();
    const esp::Deferred waits;
    const auto deferred = values();
    for (size_t i = 0; i < eager.size(); ++i) BOOST_TEST(difference(eager[i], deferred[i]) < 1e-14);
    (void)loss().item();
    int64_t nodes = 0, kernels = 0;
    for (const auto& batch : esp::last_evaluation().batches)
      if (batch.op == "memory_cell") nodes += batch.nodes, ++kernels;
    BOOST_TEST(nodes == 8);
    BOOST_TEST(kernels == 4);  // leaves, roots with and without an input, and those above
  };
  compare(esp::nn::NaryTreeLstm(4, width, {.dtype = esp::float64}));
  compare(esp::nn::ChildSumTreeLstm(4, width, {.dtype = esp::float64}));
}

BOOST_AUTO_TEST_CASE(many_children_are_composed) {
  const esp::nn::ChildSumTreeLstm cell(4, width, {.dtype = esp::float64});
  const auto leaf = cell(numbers({1, 4}, -1, 1));
  const auto node = [&](size_t children) {
    return cell(Variable(), std::vector<esp::nn::LSTMState>(children, leaf));
  };
  BOOST_TEST(node(8).h.node()->op().name() == "memory_cell");
  BOOST_TEST(node(9).h.node()->op().name() != "memory_cell");
  const auto product = [&](const Variable& h, const char* weight) {
    return esp::matmul(h, esp::transpose(cell.parameter(weight)));
  };
  const Variable bias = cell.parameter("bias"), sums = product(leaf.h * 9.0, "weight_hh");
  const auto gate = [&](int64_t k) {
    return esp::slice(sums, 1, k * width, (k + 1) * width) +
           esp::slice(bias, 0, (k + 1) * width, (k + 2) * width);
  };
  const Variable forget = esp::sigmoid(product(leaf.h, "weight_fh") + esp::slice(bias, 0, 0, width));
  const Variable c = esp::sigmoid(gate(0)) * esp::tanh(gate(2)) + forget * leaf.c * 9.0;
  BOOST_TEST(difference(node(9).c.value(), c.value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const MemoryCellForm lstm{width, 1, {0, 3, 1, 2}};
  const auto call = [&](const esp::Tensor& sums, const esp::Tensor& c) {
    return esp::memory_cell(lstm, Variables{sums}, Variables{c});
  };
  const esp::Tensor sums = esp::ones({rows, 12}), c = esp::ones({rows, width});
  BOOST_CHECK_EXCEPTION(call(esp::ones({rows, 9}), c), esp::ShapeError, says({"memory_cell", "[2, 9]"}));
  BOOST_CHECK_EXCEPTION(call(sums, esp::ones({3, width})), esp::ShapeError, says({"memory_cell", "[3, 3]"}));
  BOOST_CHECK_EXCEPTION(call(sums, esp::ones({rows, width}, esp::float64)), esp::TypeError,
                        says({"memory_cell", "float64"}));
  const auto make = [](int64_t memories, std::vector<int64_t> blocks) {
    return esp::make_op("memory_cell",
                        {{"width", width}, {"memories", memories}, {"blocks", blocks}, {"keeps", false}});
  };
  BOOST_TEST(make(1, {0, 3, 1, 2})->name() == "memory_cell");
  BOOST_CHECK_THROW(make(1, {0, 3, 1}), esp::Error);
  BOOST_CHECK_THROW(make(1, {0, 3, 1, -1}), esp::Error);
  BOOST_CHECK_THROW(make(9, std::vector<int64_t>(12, 0)), esp::Error);
}

BOOST_AUTO_TEST_SUITE_END()
