// Memory over long runs of eager and deferred steps: what a step has taken is given back.
#include <boost/test/unit_test.hpp>

#include <malloc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/deferred/schedule_cache.h"
#include "espalier/core/random.h"
#include "espalier/core/sanitizers.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/module.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

#if ESPALIER_ADDRESS_SANITIZER || ESPALIER_THREAD_SANITIZER
extern "C" size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// The bytes that this process has from the heap, blocks that the library keeps for reuse included.
int64_t heap_bytes() {
#if ESPALIER_ADDRESS_SANITIZER || ESPALIER_THREAD_SANITIZER
  return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
#endif
}

/// The largest values of a run.
struct Peak {
  int64_t heap = 0, tensors = 0;
  void see() {
    heap = std::max(heap, heap_bytes());
    tensors = std::max(tensors, esp::memory_stats().live_bytes);
  }
};

/// Expects that the second half of `steps` takes no more than the first, within `slack` bytes of the heap.
template <class Step>
void check_flat(int steps, int64_t slack, Step&& step) {
  std::array<Peak, 2> halves;
  for (int i = 0; i < steps; ++i) {
    step(i);
    halves[i >= steps / 2].see();
  }
  BOOST_TEST(halves[1].tensors <= halves[0].tensors);
  BOOST_TEST(halves[1].heap <= halves[0].heap + slack);
}

struct TreeNet : esp::nn::Module {
  /// A random tree: its form, its words and the function of each inner node.
  Variable random_tree(int leaves, std::mt19937& random) {
    if (leaves == 1)
      return embed(esp::tensor_from(std::vector<int64_t>{static_cast<int64_t>(random() % 16)}, {1}));
    const int left = 1 + static_cast<int>(random() % static_cast<unsigned>(leaves - 1));
    const Variable a = random_tree(left, random), b = random_tree(leaves - left, random);
    switch (random() % 4) {
      case 0: return esp::tanh(join(esp::concat({a, b}, 1)));
      case 1: return a * esp::sigmoid(b);
      case 2: return esp::maximum(a, b);
      default: return a + b;
    }
  }
  esp::nn::Embedding embed = add("embed", esp::nn::Embedding(16, 4));
  esp::nn::Dense join = add("join", esp::nn::Dense(8, 4));
};

}  // namespace

BOOST_AUTO_TEST_SUITE(deferred_memory)

BOOST_AUTO_TEST_CASE(trees_of_ten_thousand_forms) {
  constexpr bool slow = ESPALIER_ADDRESS_SANITIZER || ESPALIER_THREAD_SANITIZER;
  for (const bool deferred : {false, true}) BOOST_TEST_CONTEXT((deferred ? "deferred" : "eager")) {
      std::mt19937 random(7);
      TreeNet net;
      const esp::optim::Sgd sgd(0.001);
      std::optional<esp::Deferred> waits;
      if (deferred) waits.emplace();
      int planned = 0;
      constexpr int half = slow ? 500 : 5000;
      const int64_t before = heap_bytes();
      std::array<Peak, 2> with_schedules, without;
      for (const int k : {0, 1}) {
        for (int i = 0; i < half; ++i) {
          esp::sum(net.random_tree(4 + static_cast<int>(random() % 3), random)).backward().update(sgd);
          planned += deferred && !esp::last_evaluation().schedule_known;
          with_schedules[k].see();
        }
        esp::schedule_cache() = {};
        without[k].see();
      }
      BOOST_TEST(without[1].tensors <= without[0].tensors);
      BOOST_TEST(without[1].heap <= without[0].heap + (64 << 10));
      for (const Peak& peak : with_schedules) BOOST_TEST(peak.heap <= before + (32 << 20));
      if (deferred) BOOST_TEST(planned > half);
    }
}

BOOST_AUTO_TEST_CASE(a_thousand_steps_of_an_lstm) {
  const esp::nn::LSTMCell cell(3, 4);
  const Variable x = numbers({2, 3}, -1, 1).to(esp::float32);
  for (const bool deferred : {false, true}) BOOST_TEST_CONTEXT((deferred ? "deferred" : "eager")) {
      std::optional<esp::Deferred> waits;
      if (deferred) waits.emplace();
      {  // what is not differentiated keeps nothing
        const esp::NoGrad none;
        esp::nn::LSTMState state = cell(x);
        check_flat(1000, 1 << 14, [&](int) {
          state = cell(x, state);
          (void)state.c.value();
        });
      }
      const esp::optim::Sgd sgd(0.01);
      check_flat(6, 1 << 16, [&](int) {
        esp::nn::LSTMState state = cell(x);
        for (int i = 1; i < 1000; ++i) state = cell(x, state);
        esp::sum(state.h).backward().update(sgd);
      });
    }
}

BOOST_AUTO_TEST_CASE(what_nothing_reads_does_not_wait_for_long) {
  const Variable w = esp::parameter(esp::ones({256}));
  const esp::Deferred waits;
  const Variable held = esp::exp(w);
  const int64_t before = esp::memory_stats().live_bytes;
  int64_t most = 0;
  for (int i = 0; i < 12000; ++i) {
    (void)esp::exp(esp::sin(w + Variable(esp::ones({256}))));
    most = std::max(most, esp::memory_stats().live_bytes);
  }
  BOOST_TEST(most <= before + (4 << 20));  // all constants together take three times as much
  BOOST_TEST(esp::sum(held).item() > 256);
  BOOST_TEST(esp::last_evaluation().nodes_computed == 2);
}

BOOST_AUTO_TEST_SUITE_END()
