// torch_trees [rounds]: the TreeLSTM of ../trees.cpp in libtorch, node by node, since libtorch batches
// nothing by itself. Written for speed: the words of a tree are looked up at once, as the gradient of a
// lookup is a whole table; what nodes share of the parameters is made once a step; leaves compute no forget
// gate; states are vectors, as products of a matrix and a vector are faster than those of a row. Prints
// trees a second, in processor time of one thread.
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "../timing.h"

namespace {

constexpr int64_t kHidden = 150, kClasses = 5, kWords = 1000;
constexpr int kTrees = 64, kLeaves = 20;

struct Node {
  std::unique_ptr<Node> left, right;
  torch::Tensor label;
};

struct Tree {
  std::unique_ptr<Node> root;
  torch::Tensor words;  // of the leaves, from left to right
};

/// Draws the same numbers as ../trees.cpp.
std::unique_ptr<Node> random_node(int leaves, std::mt19937& random, std::vector<int64_t>& words) {
  auto node = std::make_unique<Node>();
  const auto one = [&](int64_t most) { return static_cast<int64_t>(random()) % most; };
  const int64_t word = one(kWords);
  node->label = torch::tensor(one(kClasses));
  if (leaves == 1) return words.push_back(word), std::move(node);
  const int left = 1 + static_cast<int>(random() % static_cast<unsigned>(leaves - 1));
  node->left = random_node(left, random, words);
  node->right = random_node(leaves - left, random, words);
  return node;
}

Tree random_tree(std::mt19937& random) {
  Tree tree;
  std::vector<int64_t> words;
  tree.root = random_node(kLeaves, random, words);
  tree.words = torch::tensor(words);
  return tree;
}

struct State {
  torch::Tensor h, c;
};

class TreeNetImpl : public torch::nn::Module {
 public:
  torch::Tensor loss(const std::vector<Tree>& forest) {
    const std::vector<torch::Tensor> b = bias.split(kHidden);
    leaf_weight = weight_ih.slice(0, kHidden);
    leaf_bias = bias.slice(0, kHidden);
    node_bias = torch::cat({b[1], b[2], b[0], b[0], b[3]});
    losses.clear();
    for (const Tree& tree : forest) {
      rows = embed(tree.words).unbind();
      next_row = 0;
      encode(*tree.root);
    }
    return torch::stack(losses).sum();
  }

 private:
  State encode(const Node& node) {
    State state;
    if (!node.left) {
      const auto parts =
          torch::addmv(leaf_bias, leaf_weight, rows[next_row++]).split_with_sizes({2 * kHidden, kHidden});
      const auto gates = torch::sigmoid(parts[0]).split(kHidden);
      state.c = gates[0] * torch::tanh(parts[1]);
      state.h = gates[1] * torch::tanh(state.c);
    } else {
      const State left = encode(*node.left), right = encode(*node.right);
      const auto parts = torch::addmv(node_bias, weight_hh, torch::cat({left.h, right.h}))
                             .split_with_sizes({4 * kHidden, kHidden});
      const auto gates = torch::sigmoid(parts[0]).split(kHidden);
      state.c = (gates[0] * torch::tanh(parts[1])).addcmul(gates[2], left.c).addcmul(gates[3], right.c);
      state.h = gates[1] * torch::tanh(state.c);
    }
    losses.push_back(
        torch::nn::functional::cross_entropy(torch::addmv(top->bias, top->weight, state.h), node.label));
    return state;
  }

  torch::Tensor uniform(const char* name, at::IntArrayRef shape) {
    const double bound = 1 / std::sqrt(static_cast<double>(kHidden));
    return register_parameter(name, torch::empty(shape).uniform_(-bound, bound));
  }

  torch::nn::Embedding embed = register_module("embed", torch::nn::Embedding(kWords, kHidden));
  torch::Tensor weight_ih = uniform("weight_ih", {4 * kHidden, kHidden});      // of f, i, o, u
  torch::Tensor weight_hh = uniform("weight_hh", {5 * kHidden, 2 * kHidden});  // of i, o, both f, u
  torch::Tensor bias = uniform("bias", {4 * kHidden});                         // of f, i, o, u
  torch::nn::Linear top = register_module("top", torch::nn::Linear(kHidden, kClasses));
  // Of the step under way.
  torch::Tensor leaf_weight, leaf_bias, node_bias;
  std::vector<torch::Tensor> rows, losses;
  size_t next_row = 0;
};
TORCH_MODULE(TreeNet);

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  std::mt19937 random(1);
  std::vector<Tree> forest;
  for (int i = 0; i < kTrees; ++i) forest.push_back(random_tree(random));
  TreeNet net;
  const std::vector<torch::Tensor> parameters = net->parameters();
  torch::optim::SGD sgd(parameters, 0.01);
  const auto step = [&] {
    for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    net->loss(forest).backward();
    sgd.step();
  };
  step();
  std::vector<double> times;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    const double start = bench::processor_seconds();
    step();
    times.push_back(bench::processor_seconds() - start);
  }
  bench::report("tree_lstm_torch_trees_per_s", kTrees / bench::median(times));
}
