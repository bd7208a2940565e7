// The overhead of one op: a chain of additions of one-element variables is built, run forward and backward,
// and released.
#include <espalier/espalier.h>

#include <vector>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int kLength = 10000;

// Every addition reads the same variable, whose gradient therefore is a sum of 10,000 terms.
double one_variable() {
  return bench::seconds([] {
    esp::Variable h = esp::variable({1.0f}), v = esp::variable({1.0f});
    for (int i = 0; i < kLength; ++i) h = h + v;
    h.backward();
    (void)h.gradient(v);
  });
}

double a_leaf_per_add() {
  std::vector<esp::Variable> leaves;
  for (int i = 0; i < kLength; ++i) leaves.push_back(esp::variable({1.0f}));
  return bench::seconds([&] {
    esp::Variable h = esp::variable({1.0f});
    for (const esp::Variable& v : leaves) h = h + v;
    h.backward();
    (void)h.gradient(leaves.front());
  });
}

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  std::vector<double> shared, distinct;
  (void)one_variable(), (void)a_leaf_per_add();  // the first run warms caches and the allocator
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    shared.push_back(one_variable());
    distinct.push_back(a_leaf_per_add());
  }
  bench::report("chain_shared_ns", bench::median(shared) * 1e9 / kLength);
  bench::report("chain_distinct_ns", bench::median(distinct) * 1e9 / kLength);
}
