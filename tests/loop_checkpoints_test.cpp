// Scans under a memory budget: states of few steps are kept, and the others computed again.
#include <boost/test/unit_test.hpp>

#include "checkpoint_program.h"
#include "espalier/executor/load.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Executor;
using esp::Tensor;
using esp::Variable;

namespace {

esp::ExecutorOptions options_for(int64_t budget, const std::vector<std::string>& without = {}) {
  return {.optimizer = esp::optim::Sgd(0.1), .without = without, .memory_budget = budget};
}

bool has_checkpoints(const Executor& executor) {
  return executor.plan().str().find("checkpointed_scan") != std::string::npos;
}

/// The bits of the loss and of all leaves after three steps.
std::string trained(const Executor& executor) {
  esp::seed(3);
  std::string text;
  for (int i = 0; i < 3; ++i) text += bits(executor.run({})) + "\n";
  for (const esp::LeafInfo& leaf : executor.leaves()) text += bits(leaf.leaf.value()) + "\n";
  return text;
}

constexpr int64_t state_elements = 1024;

/// A large state, short elements, n steps.
Variable long_loss(int64_t n) {
  const Variable w = esp::parameter(numbers({state_elements}, 0.8, 1.1, 2).to(esp::float32), "w"),
                 start = esp::parameter(numbers({state_elements}, -1, 1, 3).to(esp::float32), "start");
  const esp::ScanResult r = esp::scan(
      [&](const Variables& s, const Variables& e) -> esp::ScanResult {
        return {{tanh(s[0] * w + e[0])}, {}};
      },
      {start}, {Variable(numbers({n, 1}).to(esp::float32))});
  return sum(square(r.state[0]));
}

/// Several states, of which one is a counter, random numbers, outputs, and elements with gradients.
Variable rich_loss(int64_t n, bool reverse, int64_t layers = 1) {
  const Variable u = esp::parameter(numbers({8, 8}, -1, 1, 4), "u"),
                 w = esp::parameter(numbers({8, 8}, -1, 1, 5), "w");
  Variable x = esp::parameter(numbers({n, 16, 8}, -1, 1, 6), "x"), total = esp::tensor(0.0);
  total = cast(total, esp::float64);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Variable start = esp::zeros({16, 8}, esp::float64);
    const esp::ScanResult r = esp::scan(
        [&](const Variables& s, const Variables& e) -> esp::ScanResult {
          const Variable next = tanh(matmul(dropout(e[0], 0.3), u) + matmul(s[0], w) + s[1] * 0.5);
          return {{next, s[0] * rand_like(next), s[2] + 1}, {next * cast(s[2], esp::float64) * 0.1}};
        },
        {start, start, esp::tensor(int64_t{1})}, {x}, {.reverse = reverse});
    x = r.outputs[0];
    total = total + mean(square(r.state[0])) + mean(r.state[1]);
  }
  return total + mean(square(x));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loop_checkpoints)

BOOST_AUTO_TEST_CASE(memory_grows_with_the_root_of_the_steps) {
  constexpr int64_t state_bytes = state_elements * 4;
  for (const int64_t n : {16, 100, 625}) BOOST_TEST_CONTEXT(n << " steps") {
      const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
      const Executor all = long_loss(n).get_executor(options_for(0));
      BOOST_TEST(all.plan().arena_bytes() >= n * state_bytes);
      const int64_t budget = (2 * root + 8) * state_bytes;
      const Executor few = long_loss(n).get_executor(options_for(budget));
      BOOST_TEST(few.plan().arena_bytes() <= budget);
      BOOST_TEST(has_checkpoints(few));
      BOOST_TEST(!has_checkpoints(all));
      BOOST_TEST(trained(few) == trained(all));
    }
}

BOOST_AUTO_TEST_CASE(gradients_are_the_same_bit_by_bit) {
  for (const bool reverse : {false, true})
    for (const int64_t n : {9, 10, 17})
      for (const int64_t layers : {1, 2}) BOOST_TEST_CONTEXT(n << " steps, " << layers << " layers") {
          const auto executor = [&](int64_t budget) {
            return rich_loss(n, reverse, layers).get_executor(options_for(budget, {"recompute"}));
          };
          const Executor all = executor(0);
          const Executor few = executor(all.plan().arena_bytes() - 1);
          BOOST_TEST(has_checkpoints(few));
          BOOST_TEST(trained(few) == trained(all));
        }
}

BOOST_AUTO_TEST_CASE(beside_values_that_are_computed_again) {
  const Executor all = rich_loss(17, false, 2).get_executor(options_for(0));
  const Executor few = rich_loss(17, false, 2).get_executor(options_for(all.plan().arena_bytes() * 7 / 10));
  BOOST_TEST(has_checkpoints(few));
  BOOST_TEST(trained(few) == trained(all));
}

BOOST_AUTO_TEST_CASE(gradients_of_gradients) {
  const auto executor = [](int64_t budget) {
    const Variable w = esp::parameter(numbers({64, 3}, -1, 1, 5), "w"),
                   x = esp::variable(numbers({12, 64, 3}));
    const esp::ScanResult r = esp::scan(
        [&](const Variables& s, const Variables& e) -> esp::ScanResult {
          return {{tanh(s[0] * w + dropout(e[0], 0.3))}, {}};
        },
        {esp::zeros({64, 3}, esp::float64)}, {x});
    const Variable y = sum(r.state[0]);
    return (y + sum(square(y.gradient(x)))).get_executor(options_for(budget, {"recompute"}));
  };
  const Executor all = executor(0);
  const std::string expected = trained(all);
  for (int percent = 99; percent > 60; percent -= 6) {
    try {
      BOOST_TEST(trained(executor(all.plan().arena_bytes() * percent / 100)) == expected);
    } catch (const esp::OutOfMemory&) {
      BOOST_TEST(percent < 99);
      break;
    }
  }
}

BOOST_AUTO_TEST_CASE(plan_files_have_what_checkpoints_need) {
  const TemporaryFolder folder;
  const Executor all = rich_loss(17, true).get_executor(options_for(0));
  all.save(folder / "a.plan");
  const Executor few = esp::load_executor(
      folder / "a.plan", {.without = {"recompute"}, .memory_budget = all.plan().arena_bytes() - 1});
  BOOST_TEST(has_checkpoints(few));
  BOOST_TEST(trained(few) == trained(all));
}

BOOST_AUTO_TEST_CASE(the_pass_can_be_left_out_and_has_nothing_to_do_without_need) {
  const int64_t all = rich_loss(17, false).get_executor(options_for(0)).plan().arena_bytes();
  BOOST_TEST(!has_checkpoints(rich_loss(17, false).get_executor(options_for(all))));
  BOOST_CHECK_THROW(
      (void)rich_loss(17, false).get_executor(options_for(all - 1, {"checkpoint_scans", "recompute"})).plan(),
      esp::OutOfMemory);
}

BOOST_AUTO_TEST_CASE(a_nan_of_a_gradient_is_found_in_its_step) {
  constexpr int64_t n = 16;
  const Variable w = esp::parameter(esp::ones({state_elements}), "w"), x = esp::placeholder("x", {n, 1});
  std::string line;
  const esp::ScanResult r = esp::scan(
      [&](const Variables& s, const Variables& e) -> esp::ScanResult {
        return {{s[0] + (line = here(), sqrt(square(e[0] * s[0])))}, {}};
      },
      {w}, {x});
  esp::ExecutorOptions options = options_for(16 * state_elements * 4);
  options.find_nan = true;
  const Executor executor = sum(r.state[0]).get_executor(options);
  BOOST_TEST(has_checkpoints(executor));
  Tensor elements = esp::zeros({n, 1});
  for (float& element : elements.span<float>()) element = 0.1f;
  elements.at<float>({11, 0}) = 0;
  BOOST_CHECK_EXCEPTION(
      executor.run({{"x", elements}}), esp::NumericError,
      says({"parameter 'w' is NaN", "(" + line + ") in the gradient of step 11 of the scan (",
            "in the backward pass"}));
}

BOOST_AUTO_TEST_SUITE_END()
