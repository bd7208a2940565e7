// Networks over random binary trees, and the comparison of deferred evaluation with eager.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "espalier/core/deferred/deferred.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/module.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

struct Tree {
  std::unique_ptr<Tree> left, right;
  int64_t word = 0;
};

inline std::unique_ptr<Tree> random_tree(int leaves, std::mt19937& random) {
  auto tree = std::make_unique<Tree>();
  tree->word = static_cast<int64_t>(random() % 30);
  if (leaves == 1) return tree;
  const int left = 1 + static_cast<int>(random() % static_cast<unsigned>(leaves - 1));
  tree->left = random_tree(left, random);
  tree->right = random_tree(leaves - left, random);
  return tree;
}

struct TreeNet : nn::Module {
  Variable encode(const Tree& t) {
    if (!t.left) return embed(tensor_from(std::vector<int64_t>{t.word}, {1}));
    return tanh(join(concat({encode(*t.left), encode(*t.right)}, 1)));
  }
  nn::Embedding embed = add("embed", nn::Embedding(30, 8));
  nn::Dense join = add("join", nn::Dense(8));
  nn::Dense top = add("top", nn::Dense(3));
};

inline std::vector<double> elements(const Variable& v) {
  const Tensor value = v.value().to(float64).contiguous_copy();
  return {value.span<double>().begin(), value.span<double>().end()};
}
inline void check_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance = 1e-5) {
  BOOST_REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) BOOST_TEST(std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i])));
}

/// The loss and the gradients of all parameters, eager and deferred.
inline void check_equal_to_eager(nn::Module& net, const std::function<Variable()>& loss,
                                 DeferredOptions options = {}) {
  std::vector<std::vector<double>> eager, deferred;
  const auto collect = [&](std::vector<std::vector<double>>& list) {
    const Variable root = loss();
    list.push_back(elements(root));
    root.backward();
    for (const auto& [path, parameter] : net.parameters()) list.push_back(elements(root.gradient(parameter)));
  };
  collect(eager);
  {
    const Deferred waits(options);
    collect(deferred);
  }
  BOOST_REQUIRE(eager.size() == deferred.size());
  for (size_t i = 0; i < eager.size(); ++i) check_near(deferred[i], eager[i]);
}

inline Variable loss_of(TreeNet& net, const std::vector<std::unique_ptr<Tree>>& forest) {
  std::vector<Variable> losses;
  for (const auto& tree : forest)
    losses.push_back(softmax_cross_entropy(net.top(net.encode(*tree)),
                                           tensor_from(std::vector<int64_t>{tree->word % 3}, {1})));
  return sum(stack(losses));
}

}  // namespace espalier::testing
