// The chain of ../chain.cpp in libtorch.
#include <torch/torch.h>

#include <vector>

#include "../timing.h"

namespace {

constexpr int kLength = 10000;

torch::Tensor leaf() { return torch::ones({1}, torch::requires_grad()); }

double one_variable() {
  return bench::seconds([] {
    torch::Tensor h = leaf(), v = leaf();
    for (int i = 0; i < kLength; ++i) h = h + v;
    h.backward();
    (void)v.grad();
  });
}

double a_leaf_per_add() {
  std::vector<torch::Tensor> leaves;
  for (int i = 0; i < kLength; ++i) leaves.push_back(leaf());
  return bench::seconds([&] {
    torch::Tensor h = leaf();
    for (const torch::Tensor& v : leaves) h = h + v;
    h.backward();
    (void)leaves.front().grad();
  });
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(bench::threads());
  std::vector<double> shared, distinct;
  (void)one_variable(), (void)a_leaf_per_add();  // the first run warms caches and the allocator
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    shared.push_back(one_variable());
    distinct.push_back(a_leaf_per_add());
  }
  bench::report("chain_shared_torch_ns", bench::median(shared) * 1e9 / kLength);
  bench::report("chain_distinct_torch_ns", bench::median(distinct) * 1e9 / kLength);
}
