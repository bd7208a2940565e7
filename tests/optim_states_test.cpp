// Every optimizer: its states go on from files and checkpoints, and it works alike with clipping, groups,
// replicas and other ways of running.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/optim/average.h"
#include "espalier/optim/groups.h"
#include "espalier/optim/muon.h"
#include "espalier/optim/serialize.h"
#include "many_cases.h"
#include "optimizer_cases.h"
#include "temporary_folder.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

using Make = std::function<optim::Optimizer(const SmallProblem&)>;

struct StateCase {
  std::string name;
  Make make;
  bool simplex = false;
};

/// All optimizers, and what is made of optimizers.
std::vector<StateCase> state_cases() {
  std::vector<StateCase> cases;
  for (const OptimizerCase& c : optimizer_cases())
    cases.push_back({c.name, [&c](const SmallProblem&) { return c.make(false); }, c.simplex});
  using namespace optim;
  cases.push_back({"Ema", [](const SmallProblem&) -> Optimizer {
                     return Ema(Adam(0.01), {.decay = 0.9, .warm_up = true, .start = 3, .every = 2});
                   }});
  cases.push_back({"Swa", [](const SmallProblem&) -> Optimizer {
                     return Swa(Adafactor(0.01), {.start = 5, .every = 4});
                   }});
  cases.push_back({"Groups", [](const SmallProblem& problem) -> Optimizer {
                     return Groups(
                         {{ParameterList{problem.w}, Lamb(0.01), {.gradient_scale = 0.5, .l1 = 1e-3}},
                          {ParameterList{problem.b}, Ema(Sgd(0.05), {.decay = 0.9}), {.l2 = 0.01}}},
                         {.clip_norm = 0.3});
                   }});
  cases.push_back({"Muon", [](const SmallProblem& problem) -> Optimizer {
                     return Groups({{ParameterList{problem.w}, Muon(0.01)},
                                    {ParameterList{problem.b}, Sgd({.lr = 0.05, .momentum = 0.9})}});
                   }});
  cases.push_back({"schedules", [](const SmallProblem&) -> Optimizer {
                     return Lion({.lr = 0.01,
                                  .clip_norm = 0.5,
                                  .schedule = sequential({warm_up({.steps = 20, .first = 0.1}),
                                                          cosine_restarts({.steps = 30, .multiplier = 1.5})},
                                                         {20})});
                   }});
  return cases;
}

Trace with_averages(const optim::Optimizer& rule, const SmallProblem& problem) {
  Trace trace = problem.values();
  for (const auto& [name, p] : problem.parameters())
    for (const auto& [state, leaf] : rule.state_of(p)) trace.push_back(leaf.value().clone());
  return trace;
}

Trace planned(const StateCase& c, esp::ExecutorOptions how, esp::DType dtype = esp::float64,
              int64_t batch = 4) {
  SmallProblem problem(c.simplex, dtype, 1, batch);
  const optim::Optimizer rule = c.make(problem);
  how.optimizer = rule;
  (void)problem.loss.get_executor(how).execute({.epochs = 6, .progress = false});
  return with_averages(rule, problem);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_states)

BOOST_AUTO_TEST_CASE(a_file_in_the_middle_changes_no_bit) {
  const TemporaryFolder folder;
  const auto epochs = static_cast<int>(many_cases(125)), steps = 4 * epochs;
  for (const StateCase& c : state_cases()) BOOST_TEST_CONTEXT(c.name) {
      SmallProblem whole(c.simplex), second(c.simplex), planned(c.simplex);
      const optim::Optimizer rule = c.make(whole);
      whole.train(rule, steps);
      optim::save(rule, whole.parameters(), folder / "rule");
      const Trace middle = whole.values();
      whole.train(rule, steps);
      const auto go_on = [&](const SmallProblem& problem) {
        const optim::Optimizer loaded = c.make(problem);
        optim::load(loaded, problem.parameters(), folder / "rule");
        esp::set_value(problem.w, middle[0]);
        esp::set_value(problem.b, middle[1]);
        return loaded;
      };
      const optim::Optimizer again = go_on(second);
      second.train(again, steps);
      BOOST_TEST(difference_of(with_averages(again, second), with_averages(rule, whole)) == 0);
      const optim::Optimizer of_plan = go_on(planned);
      (void)planned.loss.get_executor({.optimizer = of_plan}).execute({.epochs = epochs, .progress = false});
      BOOST_TEST(difference_of(with_averages(of_plan, planned), with_averages(rule, whole)) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_in_the_middle_changes_no_bit) {
  for (const StateCase& c : state_cases()) BOOST_TEST_CONTEXT(c.name) {
      const TemporaryFolder folder;
      const auto run = [&](int64_t epochs, bool resume) {
        SmallProblem problem(c.simplex);
        const optim::Optimizer rule = c.make(problem);
        const esp::Executor executor = problem.loss.get_executor({.optimizer = rule});
        if (resume) executor.resume(folder.path());
        (void)executor.execute({.epochs = epochs, .progress = false, .checkpoint = folder.path()});
        return with_averages(rule, problem);
      };
      (void)run(5, false);
      const Trace resumed = run(10, true);
      std::filesystem::remove_all(folder.path());
      BOOST_TEST(difference_of(resumed, run(10, false)) == 0);
    }
}

BOOST_AUTO_TEST_CASE(ways_of_running_agree) {
  for (const StateCase& c : state_cases()) BOOST_TEST_CONTEXT(c.name) {
      const Trace one = planned(c, {});
      SmallProblem eager(c.simplex, esp::float64, 1, 4);
      const optim::Optimizer rule = c.make(eager);
      for (int epoch = 0; epoch < 6; ++epoch, eager.feed.reset())
        for (int step = 0; step < 2; ++step) eager.loss.forward().update(rule);
      BOOST_TEST(difference_of(with_averages(rule, eager), one) < 1e-12);
      BOOST_TEST(difference_of(planned(c, {.without = {"simplify", "group_updates", "fuse_pointwise"}}),
                               one) < 1e-12);
      BOOST_TEST(difference_of(planned(c, {.devices = cpus(2)}), one) < 1e-12);
      BOOST_TEST(difference_of(planned(c, {.devices = cpus(2), .replicas = {.shard_states = true}}), one) <
                 1e-12);
      BOOST_TEST(difference_of(planned(c, {.accumulate = 2}), one) < 1e-12);
      // Float32 parameters, trained with products of 16 bits and a scaled loss.
      const Trace single = planned(c, {}, esp::float32);
      BOOST_TEST(difference_of(single, one) < 2e-4);
      for (const esp::Tensor& value : planned(c, {.precision = esp::Precision::float16}, esp::float32))
        for (const double element : Array(value).values) BOOST_TEST(std::isfinite(element));
    }
}

BOOST_AUTO_TEST_CASE(gpus_agree) {
  for (const StateCase& c : state_cases())
    for (const esp::Device gpu : gpus_to_test()) BOOST_TEST_CONTEXT(c.name << " on " << gpu.str()) {
        BOOST_TEST(difference_of(planned(c, {.devices = {gpu}}), planned(c, {})) < 1e-10);
        const Trace single = planned(c, {}, esp::float32);
        BOOST_TEST(difference_of(planned(c, {.devices = {gpu}}, esp::float32), single) < 2e-4);
      }
}

BOOST_AUTO_TEST_CASE(plans_for_gpus_are_made) {
  for (const StateCase& c : state_cases()) BOOST_TEST_CONTEXT(c.name) {
      const SmallProblem problem(c.simplex, esp::float32);
      const esp::Plan plan = problem.loss.plan_for({.optimizer = c.make(problem)});
      BOOST_TEST(plan.steps() > 0);
    }
}

BOOST_AUTO_TEST_CASE(maximizing_is_minimizing_the_negative) {
  for (const OptimizerCase& c : optimizer_cases()) BOOST_TEST_CONTEXT(c.name) {
      SmallProblem down(c.simplex), up(c.simplex, esp::float64, -1);
      down.train(c.make(false), 20);
      up.train(c.make(true), 20);
      BOOST_TEST(difference_of(up.values(), down.values()) == 0);
      BOOST_TEST(difference(down.w.value(), SmallProblem(c.simplex).w.value()) > 0);
    }
}

BOOST_AUTO_TEST_CASE(parameters_of_16_bits_are_updated_in_32) {
  for (const OptimizerCase& c : optimizer_cases()) BOOST_TEST_CONTEXT(c.name) {
      const esp::Variable p = esp::parameter(esp::tensor({{0.5f, 0.25f}, {0.125f, 0.125f}}).to(esp::float16));
      const optim::Optimizer rule = c.make(false);
      for (int i = 0; i < 3; ++i) esp::sum(esp::cast(p, esp::float32) * 1.5f).update(rule);
      BOOST_TEST((p.dtype() == esp::float16));
      for (const auto& [name, leaf] : rule.state_of(p)) BOOST_TEST((leaf.dtype() == esp::float32));
      for (const double element : Array(p.value()).values) BOOST_TEST(std::isfinite(element));
    }
}

BOOST_AUTO_TEST_CASE(gradients_of_zero_leave_finite_values) {
  for (const OptimizerCase& c : optimizer_cases()) BOOST_TEST_CONTEXT(c.name) {
      const esp::Variable p = esp::parameter(esp::tensor({{0.5, 0.5}, {0.0, 0.0}}, esp::float64)),
                          s = esp::parameter(esp::tensor(0.5, esp::float64));
      const optim::Optimizer rule = c.make(false);
      for (int i = 0; i < 3; ++i) (esp::sum(p * 0.0) + s * 0.0).update(rule);
      for (const double element : Array(p.value()).values) BOOST_TEST(std::isfinite(element));
      BOOST_TEST(std::isfinite(s.item()));
    }
}

BOOST_AUTO_TEST_CASE(a_state_of_another_shape_is_refused) {
  const TemporaryFolder folder;
  SmallProblem problem;
  optim::Optimizer rule = optim::Adafactor(0.01);
  problem.train(rule, 1);
  BOOST_TEST(rule.state_shape(problem.w, "row_variance") == esp::Shape({3, 1}));
  BOOST_TEST(rule.state_shape(problem.w, "column_variance") == esp::Shape({1, 2}));
  BOOST_TEST(rule.state_shape(problem.b, "variance") == esp::Shape({2}));
  BOOST_CHECK_THROW(rule.set_state(problem.w, "row_variance", esp::ones({3, 2}, esp::float64)),
                    esp::ShapeError);
  rule.set_state(problem.w, "row_variance", esp::ones({3, 1}, esp::float64));
  const esp::Variable other = esp::parameter(esp::ones({2, 2}, esp::float64));
  optim::save(rule, {{"w", problem.w}}, folder / "f");
  BOOST_CHECK_THROW(optim::load(optim::Adafactor(0.01), {{"w", other}}, folder / "f"), esp::FileError);
}

BOOST_AUTO_TEST_CASE(groups_scale_and_decay) {
  using optim::ParameterList;
  const auto step = [](const optim::GroupOptions& options, const optim::GroupsOptions& together = {}) {
    const esp::Variable p = esp::parameter(esp::tensor({2.0, -3.0}, esp::float64)),
                        q = esp::parameter(esp::tensor({1.0, 1.0}, esp::float64));
    const optim::Groups rule({{ParameterList{p}, optim::Sgd(1), options}, {ParameterList{q}, optim::Sgd(1)}},
                             together);
    (esp::sum(p) * 3.0 + esp::sum(q) * 4.0).update(rule);
    std::vector<double> values = Array(p.value()).values;
    values.push_back(Array(q.value()).values[0]);
    return values;
  };
  const auto is = [&](const std::vector<double>& found, const std::vector<double>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) BOOST_TEST(std::abs(found[i] - wanted[i]) < 1e-6);
  };
  is(step({}), {-1, -6, -3});
  is(step({.gradient_scale = 0.5}), {0.5, -4.5, -3});
  is(step({.l1 = 0.25}), {-1.25, -5.75, -3});
  is(step({.l2 = 0.5}), {-2, -4.5, -3});
  const double scale = 1 / std::sqrt(2 * 9 + 2 * 16);
  is(step({}, {.clip_norm = 1}), {2 - 3 * scale, -3 - 3 * scale, 1 - 4 * scale});
  is(step({}, {.clip_value = 0.5}), {1.5, -3.5, 0.5});
  // Decay is added after clipping.
  is(step({.l2 = 0.5}, {.clip_value = 0.5}), {0.5, -2, 0.5});
  const esp::Variable p = esp::parameter(esp::ones({2}));
  for (const double bad : {-1.0, double(NAN), double(INFINITY)}) {
    BOOST_CHECK_EXCEPTION(optim::Groups({{ParameterList{p}, optim::Sgd(1), {.gradient_scale = bad}}}),
                          esp::Error, says({"group 0", "gradient_scale", "optim_states_test.cpp"}));
    BOOST_CHECK_EXCEPTION(optim::Groups({{ParameterList{p}, optim::Sgd(1), {.l1 = bad}}}), esp::Error,
                          says({"group 0", "l1"}));
    BOOST_CHECK_EXCEPTION(optim::Groups({{ParameterList{p}, optim::Sgd(1), {.l2 = bad}}}), esp::Error,
                          says({"group 0", "l2"}));
    BOOST_CHECK_EXCEPTION(optim::Groups({{ParameterList{p}, optim::Sgd(1)}}, {.clip_norm = bad}), esp::Error,
                          says({"Groups", "clip_norm", "optim_states_test.cpp"}));
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_table) {
  // Rules that keep rows get these alone, unless their group decays; averages are of the whole table.
  const auto train = [](const optim::Optimizer& rule, const esp::Variable& table, bool frozen) {
    const esp::Variable rows = esp::gather(table, esp::tensor({1, 3}, esp::int64));
    const esp::Variable loss = esp::sum(esp::square(rows));
    if (frozen) {
      (void)loss.get_executor({.optimizer = rule}).execute({.epochs = 3, .progress = false});
    } else {
      for (int i = 0; i < 3; ++i)
        esp::sum(esp::square(esp::gather(table, esp::tensor({1, 3}, esp::int64)))).update(rule);
    }
  };
  for (const bool frozen : {false, true}) {
    const auto table = [] { return esp::parameter(numbers({8, 2}, 0.5, 1, 3)); };
    const esp::Variable alone = table(), averaged = table(), decayed = table();
    train(optim::Adagrad(0.1), alone, frozen);
    const optim::Ema ema(optim::Adagrad(0.1), {.decay = 0.5});
    train(ema, averaged, frozen);
    BOOST_TEST(difference(averaged.value(), alone.value()) == 0);
    const esp::Tensor average = optim::average_of(ema, averaged);
    // Of rows that stay, the average is the value; of the others it is between the first values and the last.
    BOOST_TEST(difference(average.slice(0, 4, 8), alone.value().slice(0, 4, 8)) < 1e-15);
    BOOST_TEST(difference(average.slice(0, 1, 2), alone.value().slice(0, 1, 2)) > 1e-3);
    const optim::Groups decays({{optim::ParameterList{decayed}, optim::Sgd(0.1), {.l2 = 0.5}}});
    train(decays, decayed, frozen);
    BOOST_TEST(std::abs(Array(decayed.value()).values[15] / Array(alone.value()).values[15] -
                        std::pow(1 - 0.05, 3)) < 1e-12);
  }
}

BOOST_AUTO_TEST_SUITE_END()
