// bench_trees [rounds]: an N-ary TreeLSTM (Tai, Socher and Manning, 2015) over 64 random binary trees of 20
// leaves, hidden 150, 5 classes at every node, Sgd; one thread. Trees a second, eager and deferred, the time
// to build the tree of Variables, which is part of both, and what scheduling a structure not seen before
// costs. Processor time, since other programs may run. peer/trees.cpp, peer/pytorch/trees.py and
// peer/dynet/trees.py are the same in libtorch, PyTorch and DyNet.
#include <espalier/espalier.h>

#include <memory>
#include <random>
#include <vector>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int kHidden = 150;
constexpr int64_t kClasses = 5, kWords = 1000;
constexpr int kTrees = 64, kLeaves = 20;

struct Tree {
  std::unique_ptr<Tree> left, right;
  esp::Variable word, label;
};

std::unique_ptr<Tree> random_tree(int leaves, std::mt19937& random) {
  auto tree = std::make_unique<Tree>();
  const auto one = [&](int64_t most) {
    return esp::Variable(esp::tensor_from(std::vector<int64_t>{static_cast<int64_t>(random()) % most}, {1}));
  };
  tree->word = one(kWords);
  tree->label = one(kClasses);
  if (leaves == 1) return tree;
  const int left = 1 + static_cast<int>(random() % static_cast<unsigned>(leaves - 1));
  tree->left = random_tree(left, random);
  tree->right = random_tree(leaves - left, random);
  return tree;
}

struct TreeNet : esp::nn::Module {
  esp::nn::LSTMState encode(const Tree& tree, std::vector<esp::Variable>& losses) {
    esp::nn::LSTMState state;
    if (!tree.left)
      state = cell(embed(tree.word));
    else
      state = cell({}, {encode(*tree.left, losses), encode(*tree.right, losses)});
    losses.push_back(esp::softmax_cross_entropy(top(state.h), tree.label));
    return state;
  }
  esp::nn::Embedding embed = add("embed", esp::nn::Embedding(kWords, kHidden));
  esp::nn::NaryTreeLstm cell = add("cell", esp::nn::NaryTreeLstm(kHidden, kHidden));
  esp::nn::Dense top = add("top", esp::nn::Dense(kClasses));
};

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(1);
  std::mt19937 random(1);
  TreeNet net;
  const esp::optim::Sgd sgd(0.01);
  std::vector<std::unique_ptr<Tree>> forest;
  for (int i = 0; i < kTrees; ++i) forest.push_back(random_tree(kLeaves, random));
  const auto loss = [&] {
    std::vector<esp::Variable> losses;
    for (const auto& tree : forest) net.encode(*tree, losses);
    return esp::sum(esp::stack(losses));
  };
  const auto step = [&] { loss().backward().update(sgd); };
  const auto seconds_of = [](auto&& work) {
    const double start = bench::processor_seconds();
    work();
    return bench::processor_seconds() - start;
  };
  const auto trees_per_second = [](const std::vector<double>& times) {
    return kTrees / bench::median(times);
  };
  const auto measured = [&](auto&& work) {
    work();
    std::vector<double> times;
    for (int round = 0; round < bench::rounds(argc, argv); ++round) times.push_back(seconds_of(work));
    return trees_per_second(times);
  };
  bench::report("tree_lstm_eager_trees_per_s", measured(step));
  const esp::Deferred deferred;
  bench::report("tree_lstm_build_trees_per_s", measured([&] { (void)loss(); }));
  (void)loss().item();
  const esp::EvaluationReport report = esp::last_evaluation();
  // Each structure twice: what a fresh one costs more is its scheduling.
  std::vector<double> known, fresh, scheduling;
  for (int round = 0; round < bench::rounds(argc, argv); ++round) {
    forest.erase(forest.begin());
    forest.push_back(random_tree(kLeaves, random));
    fresh.push_back(seconds_of(step));
    known.push_back(seconds_of(step));
    scheduling.push_back(fresh.back() - known.back());
  }
  bench::report("tree_lstm_deferred_trees_per_s", trees_per_second(known));
  bench::report("tree_lstm_deferred_fresh_trees_per_s", trees_per_second(fresh));
  bench::report("tree_lstm_scheduling_ns_per_node",
                bench::median(scheduling) * 1e9 / static_cast<double>(report.nodes_computed));
  std::printf("%s", report.str().c_str());
}
