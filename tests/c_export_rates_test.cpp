// Executor::export_c: which state is the learning rate, and reductions of nothing.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "c_module.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

/// w · x, with a state of the program's own that is named as the learning rate.
struct Named {
  Variable x = esp::placeholder("x", {3}), w = esp::parameter(esp::ones({3}), "w"),
           own = esp::state(esp::tensor(2.0f), "lr");
  Variable loss = esp::sum(x * w) * own;
};

/// The loss of one step of the code, on ones.
float step_of(const CModule& code) {
  const float x[3] = {1, 1, 1};
  float loss = 0;
  BOOST_TEST(code.function<int(const void*, void*)>("model_step")(x, &loss) == 0);
  return loss;
}

/// Whether only the optimizer's rate, 0.25 at first, is set.
void check_rate(const esp::Executor& executor) {
  const TemporaryFolder folder;
  (void)executor.export_c(folder / "model.c");
  const CModule code(folder / "model.c");
  code.function<void()>("model_init")();
  BOOST_TEST(step_of(code) == 6);  // w = 1 - 0.25 · 2 then
  BOOST_TEST(step_of(code) == 3);  // w = 0
  code.function<void(float)>("model_set_learning_rate")(0.5f);
  BOOST_TEST(step_of(code) == 0);  // w = -1
  BOOST_TEST(step_of(code) == -6);
}

esp::Tensor run_code(const Variable& y, int64_t elements) {
  const TemporaryFolder folder;
  (void)y.get_executor({.mode = esp::Mode::inference}).export_c(folder / "model.c");
  const CModule code(folder / "model.c");
  Tensor result({elements});
  float x[1] = {};
  BOOST_TEST(code.function<int(const void*, void*)>("model_run")(x, result.address()) == 0);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export_rates)

BOOST_AUTO_TEST_CASE(a_state_of_the_tree_is_no_learning_rate) {
  const Named net;
  const auto executor = net.loss.get_executor({.optimizer = esp::optim::Sgd(0.25)});
  const TemporaryFolder folder;
  executor.save(folder / "a.plan");
  check_rate(executor);
  check_rate(esp::load_executor(folder / "a.plan"));
}

BOOST_AUTO_TEST_CASE(without_an_optimizer_there_is_no_learning_rate) {
  const Named net;
  const TemporaryFolder folder;
  (void)net.loss.get_executor({.mode = esp::Mode::inference}).export_c(folder / "model.c");
  BOOST_TEST(!CModule(folder / "model.c").has("model_set_learning_rate"));
}

BOOST_AUTO_TEST_CASE(a_schedule_multiplies_the_rate_that_is_set) {
  const Variable x = esp::placeholder("x", {3}), w = esp::parameter(esp::ones({3}), "w");
  const auto schedule = esp::optim::exponential(0.5);
  const auto executor =
      esp::sum(x * w).get_executor({.optimizer = esp::optim::Sgd({.lr = 0.5, .schedule = schedule})});
  const TemporaryFolder folder;
  (void)executor.export_c(folder / "model.c");
  const CModule code(folder / "model.c");
  code.function<void()>("model_init")();
  BOOST_TEST(step_of(code) == 3);     // w = 1 - 0.5
  BOOST_TEST(step_of(code) == 1.5f);  // w = 0.5 - 0.25
  code.function<void(float)>("model_set_learning_rate")(2);
  BOOST_TEST(step_of(code) == 0.75f);  // w = 0.25 - 0.5
  BOOST_TEST(step_of(code) == -0.75f);
}

BOOST_AUTO_TEST_CASE(reductions_of_nothing_compile_without_warnings) {
  const Variable x = esp::placeholder("x", {4, 0});
  for (const auto& [y, elements] : {std::pair{esp::sum(x), 1},
                                    {esp::sum(x, 1), 4},
                                    {esp::mean(x, 1), 4},
                                    {esp::sum(x * 2.0 + 1.0), 1},
                                    {esp::sum(esp::square(x), 1), 4},
                                    {esp::matmul(x, esp::transpose(x)), 16}}) {
    const Tensor expected = y.get_executor().run({{"x", esp::zeros({4, 0})}});
    const Tensor result = run_code(y, elements);
    for (int64_t i = 0; i < elements; ++i) {
      const float e = expected.reshape({elements}).at<float>({i}), r = result.at<float>({i});
      BOOST_TEST((e == r || (e != e && r != r)), e << " and " << r);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_step_changes_the_rows_of_a_table_that_it_looks_up) {
  const Tensor begin = numbers({12, 2}).to(esp::float32);
  const Variable rows = esp::placeholder("rows", {4}, esp::int64), table = esp::parameter(begin, "table");
  const Variable loss = esp::sum(esp::square(esp::gather(table, rows)));
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.125)});
  BOOST_TEST(executor.plan().str().find("sum_rows") != std::string::npos);
  const TemporaryFolder folder;
  (void)executor.export_c(folder / "model.c");
  const CModule code(folder / "model.c");
  code.function<void()>("model_init")();
  for (const Tensor& batch : {esp::tensor({int64_t{2}, int64_t{-1}, int64_t{2}, int64_t{0}}),
                              esp::tensor({int64_t{11}, int64_t{-10}, int64_t{5}, int64_t{-1}})}) {
    float of_code = 0;
    BOOST_TEST(code.function<int(const void*, void*)>("model_step")(batch.address(), &of_code) == 0);
    BOOST_TEST(std::abs(executor.run({{"rows", batch}}).item() - of_code) < 1e-5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
