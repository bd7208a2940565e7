// Settings of a training that was loaded from a file, by name.
#include <boost/test/unit_test.hpp>

#include "checkpoint_program.h"
#include "espalier/executor/settings.h"
#include "espalier/optim/groups.h"
#include "plan_programs.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

struct Step {
  esp::nn::Dense dense{2};
  Variable loss;
  esp::Feeds batch{{"x", reals_of({6, 3}, 1)}, {"y", reals_of({6, 2}, 2)}};

  Step() {
    esp::seed(5);
    const Variable x = esp::placeholder("x", {6, 3}), y = esp::placeholder("y", {6, 2});
    loss = esp::mean(esp::square(dense(x) - y));
  }
};

std::string run(const esp::Executor& executor, const esp::Feeds& batch) {
  std::string text;
  for (int i = 0; i < 3; ++i) text += bits(executor.run(batch));
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_settings)

BOOST_AUTO_TEST_CASE(the_learning_rate_is_set_by_name) {
  const TemporaryFolder folder;
  for (const bool scheduled : {false, true}) BOOST_TEST_CONTEXT("with a schedule: " << scheduled) {
      const Step step;
      const esp::optim::Schedule schedule =
          scheduled ? esp::optim::cosine({.steps = 20, .warm_up = 2}) : esp::optim::Schedule();
      esp::optim::Adam optimizer({.lr = 0.1, .schedule = schedule});
      const esp::Executor saved = step.loss.get_executor({.optimizer = optimizer});
      (void)run(saved, step.batch);
      saved.save(folder / "a.plan");
      const esp::Executor loaded = esp::load_executor(folder / "a.plan"),
                          other = esp::load_executor(folder / "a.plan");
      BOOST_TEST(std::abs(esp::scalar_states(loaded).at("lr") - 0.1) < 1e-7);
      esp::set_scalar_state(loaded, "lr", 0.025);
      BOOST_TEST(std::abs(esp::scalar_states(loaded).at("lr") - 0.025) < 1e-7);
      loaded.save(folder / "b.plan");
      optimizer.set_learning_rate(0.025);
      const std::string expected = run(saved, step.batch);
      BOOST_TEST(run(loaded, step.batch) == expected);
      BOOST_TEST(run(other, step.batch) != expected);
      BOOST_TEST(run(esp::load_executor(folder / "b.plan"), step.batch) == expected);
    }
}

BOOST_AUTO_TEST_CASE(one_group_is_set_by_its_leaf) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {3}), a = esp::parameter(esp::zeros({3}), "a"),
                 b = esp::parameter(esp::zeros({3}), "b");
  const esp::optim::Sgd of_a(0.5), of_b(0.25);
  const esp::Executor saved =
      esp::sum(x * (a + b))
          .get_executor({.optimizer = esp::optim::Groups({{std::vector{a}, of_a}, {std::vector{b}, of_b}})});
  saved.save(folder / "a.plan");
  const esp::Executor loaded = esp::load_executor(folder / "a.plan");
  const auto leaves_named = [&](const std::string& name) {
    std::vector<Variable> leaves;
    for (const esp::LeafInfo& info : loaded.leaves())
      if (info.name == name) leaves.push_back(info.leaf);
    return leaves;
  };
  const auto step = [&] {
    loaded.run({{"x", esp::ones({3})}});
    return std::pair(leaves_named("a")[0].value().at<float>({0}),
                     leaves_named("b")[0].value().at<float>({0}));
  };
  const std::vector<Variable> rates = leaves_named("lr");
  BOOST_TEST_REQUIRE(rates.size() == 2u);
  BOOST_TEST(rates[0].item() == 0.5);
  BOOST_TEST(rates[1].item() == 0.25);
  BOOST_TEST(esp::scalar_states(loaded).at("lr") == 0.5);
  BOOST_TEST((step() == std::pair(-0.5f, -0.25f)));
  esp::set_value(rates[1], esp::full({}, 1.0, rates[1].dtype()));
  BOOST_TEST((step() == std::pair(-1.0f, -1.25f)));
  esp::set_scalar_state(loaded, "lr", 2);  // both
  BOOST_TEST((step() == std::pair(-3.0f, -3.25f)));
}

BOOST_AUTO_TEST_CASE(other_names_and_values_are_refused) {
  const TemporaryFolder folder;
  const Step step;
  const esp::Executor saved =
      step.loss.get_executor({.optimizer = esp::optim::Sgd({.lr = 0.1, .momentum = 0.9})});
  saved.save(folder / "a.plan");
  const esp::Executor loaded = esp::load_executor(folder / "a.plan");
  esp::set_scalar_state(loaded, "lr", 0);
  const std::string before = bits(loaded.run(step.batch));
  BOOST_TEST(bits(loaded.run(step.batch)) == before);
  BOOST_CHECK_EXCEPTION(esp::set_scalar_state(loaded, "rate", 1), esp::Error, says({"'rate'", "lr"}));
  BOOST_CHECK_EXCEPTION(esp::set_scalar_state(loaded, "lr", -1), esp::Error, says({"'lr'", "-1"}));
  BOOST_CHECK_THROW(esp::set_scalar_state(loaded, "weight", 1), esp::Error);
  const esp::Executor inference = esp::load_executor(folder / "a.plan", {.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION(esp::set_scalar_state(inference, "lr", 1), esp::Error, says({"'lr'", "none"}));
  BOOST_CHECK_EXCEPTION(esp::scalar_states(esp::Executor()), esp::Error, says({here()}));
  BOOST_CHECK_EXCEPTION(esp::set_scalar_state(esp::Executor(), "lr", 1), esp::Error, says({here()}));
}

BOOST_AUTO_TEST_SUITE_END()
