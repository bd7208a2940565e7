// Random programs below a Deferred: values and gradients as eagerly.
#include <boost/test/unit_test.hpp>

#include <random>

#include "deferred_trees.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/module.h"
#include "espalier/nn/tree_lstm.h"
#include "espalier/ops/indexing/rows.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t kWidth = 4;

struct Parts : esp::nn::Module {
  esp::nn::Embedding embed = add("embed", esp::nn::Embedding(7, kWidth));
  esp::nn::Dense a = add("a", esp::nn::Dense(kWidth, kWidth)), b = add("b", esp::nn::Dense(kWidth, kWidth));
  esp::nn::LSTMCell lstm = add("lstm", esp::nn::LSTMCell(kWidth, kWidth, {.peepholes = true}));
  esp::nn::GRUCell gru = add("gru", esp::nn::GRUCell(kWidth, kWidth));
  esp::nn::RNNCell rnn = add("rnn", esp::nn::RNNCell(kWidth, kWidth));
  esp::nn::NaryTreeLstm tree = add("tree", esp::nn::NaryTreeLstm(kWidth, kWidth));
};

/// A program of many statements, each of which reads what others have written: `rows` are [1, 4], `pairs`
/// [2, 4].
class Program {
 public:
  Program(const Parts& net, unsigned seed) : net_(net), random_(seed) {}

  Variable loss() {
    for (int i = 0; i < 6; ++i) rows_.push_back(net_.embed(number(7)));
    pairs_.push_back(esp::concat({rows_[0], rows_[1]}, 0));
    for (size_t kind = 0; kind < cell_kinds; ++kind) {  // each part is used
      cell(kind);
      losses_.push_back(esp::sum(net_.b(net_.a(rows_.back()))));
    }
    for (int i = 0; i < 80; ++i) statement();
    losses_.push_back(esp::sum(rows_.back()));
    return esp::sum(esp::stack(losses_));
  }

 private:
  size_t any(size_t n) { return static_cast<size_t>(random_()) % n; }
  Variable number(int64_t below) {
    return esp::tensor_from(std::vector<int64_t>{static_cast<int64_t>(any(static_cast<size_t>(below)))}, {1});
  }
  const Variable& row() { return rows_[any(rows_.size())]; }
  static constexpr size_t cell_kinds = 4;
  void cell(size_t kind) {
    // Evaluated in this order, by every compiler.
    const Variable x = row(), h = row(), c = row(), other = row();
    switch (kind) {
      case 0: {
        const auto [next, memory] = net_.lstm(x, {h, c});
        rows_.push_back(next), rows_.push_back(memory);
        break;
      }
      case 1: rows_.push_back(net_.gru(x, h)); break;
      case 2: rows_.push_back(net_.rnn(x, h)); break;
      default: rows_.push_back(net_.tree(x, {{h, c}, {other, c}}).h);
    }
  }
  void statement() {
    const Variable x = row(), y = row();
    switch (any(20)) {
      case 0: rows_.push_back(esp::tanh(net_.a(x))); break;
      case 1: rows_.push_back(esp::sigmoid(net_.b(x))); break;
      case 2: rows_.push_back(x + y); break;
      case 3: rows_.push_back(x * y * 0.5); break;
      case 4: rows_.push_back(esp::concat({esp::slice(x, 1, 0, 2), esp::slice(y, 1, 2, 4)}, 1)); break;
      case 5: rows_.push_back(esp::mean(esp::concat({x, y}, 0), 0, true)); break;
      case 6: rows_.push_back(esp::max(esp::stack({x, y}), 0)); break;
      case 7: rows_.push_back(esp::softmax(x)); break;
      case 8:
        rows_.push_back(
            esp::reshape(esp::matmul(esp::reshape(x, {2, 2}), esp::reshape(y, {2, 2})), {1, kWidth}));
        break;
      case 9: rows_.push_back(esp::where(esp::greater(x, y), x, y)); break;
      case 10: rows_.push_back(x - esp::sum(y, 1, true)); break;
      case 11:
        rows_.push_back(esp::transpose(esp::matmul(esp::transpose(net_.a(x)), esp::sum(y, 1, true) * 0.1)));
        break;
      case 12: losses_.push_back(esp::sum(esp::square(x))); break;
      case 13: losses_.push_back(esp::softmax_cross_entropy(x, number(kWidth))); break;
      case 14: rows_.push_back(esp::dropout(x, 0.25)); break;
      case 15: {  // two outputs of one node
        const auto [least, where] = esp::sort(x, 1);
        rows_.push_back(least * esp::cast(where, esp::float32) * 0.1);
        break;
      }
      case 16: {  // the same layers, of two rows
        const Variable pair = pairs_[any(pairs_.size())];
        pairs_.push_back(esp::tanh(net_.a(pair)) + x);
        rows_.push_back(esp::slice(pairs_.back(), 0, 1, 2));
        break;
      }
      case 17: {  // attention of a row to two others
        const Variable keys = esp::reshape(esp::concat({x, y}, 0), {1, 1, 2, kWidth});
        const Variable q = esp::reshape(row(), {1, 1, 1, kWidth});
        rows_.push_back(esp::reshape(esp::scaled_dot_product_attention(q, keys, keys), {1, kWidth}));
        break;
      }
      default: cell(any(cell_kinds));
    }
  }

  const Parts& net_;
  std::mt19937 random_;
  std::vector<Variable> rows_, pairs_, losses_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(deferred_programs)

BOOST_AUTO_TEST_CASE(random_programs_equal_eager_ones) {
  for (unsigned seed = 0; seed < 40; ++seed) BOOST_TEST_CONTEXT("program " << seed) {
      esp::seed(seed);
      Parts net;
      const auto program = [&] {
        esp::seed(seed);  // of dropout
        return Program(net, seed).loss();
      };
      check_equal_to_eager(net, program);
      check_equal_to_eager(net, program, {.policy = esp::BatchPolicy::depth});
    }
}

BOOST_AUTO_TEST_CASE(lookups_keep_gradients_of_rows) {
  esp::seed(1);
  struct Net : esp::nn::Module {
    esp::nn::Embedding embed = add("embed", esp::nn::Embedding(1000, kWidth));
  } net;
  const auto loss = [&] {
    std::vector<Variable> losses;
    for (const int64_t word : {3, 999, 3, 17})
      losses.push_back(esp::sum(esp::square(net.embed(esp::tensor({word})))));
    return esp::sum(esp::stack(losses));
  };
  const auto gradient = [&] { return loss().gradient(net.embed.parameter("weight")); };
  const Variable eager = gradient();
  BOOST_TEST(esp::is_row_gradient(eager));
  const esp::Deferred waits;
  const Variable deferred = gradient();
  BOOST_TEST(esp::is_row_gradient(deferred));
  BOOST_TEST(difference(deferred, eager) < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
