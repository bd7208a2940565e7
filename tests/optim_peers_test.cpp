// Optimizers, averages and schedules agree with PyTorch's over a thousand steps.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "espalier/optim/average.h"
#include "espalier/optim/plateau.h"
#include "figures/optimizers.h"
#include "many_cases.h"
#include "optimizer_cases.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

double difference_from(const std::array<double, 8>& figures, const std::vector<double>& values) {
  double largest = values.size() == figures.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(values.size(), figures.size()); ++i) {
    const double difference = std::abs(values[i] - figures[i]);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  return largest;
}

const OptimizerCase& case_of(const std::string& name) {
  const auto found = std::ranges::find(optimizer_cases(), name, &OptimizerCase::name);
  BOOST_REQUIRE(found != optimizer_cases().end());
  return *found;
}

struct ScheduleCase {
  const char* name;
  optim::Schedule schedule;
};

const std::vector<ScheduleCase>& schedule_cases() {
  using namespace optim;
  static const std::vector<ScheduleCase> cases{
      {"step_decay", step_decay({.every = 7, .factor = 0.9})},
      {"multi_step", multi_step({.milestones = {3, 10, 10, 400}, .factor = 0.5})},
      {"exponential", exponential(0.99)},
      {"polynomial", polynomial({.steps = 600, .power = 1.7})},
      {"linear", warm_up({.steps = 50, .first = 0.1})},
      {"cosine_restarts", cosine_restarts({.steps = 30, .last = 0.1})},
      {"cosine_restarts, growing", cosine_restarts({.steps = 10, .multiplier = 2, .last = 0.05})},
      {"one_cycle", one_cycle({.steps = 1000})},
      {"one_cycle, three phases", one_cycle({.steps = 1000,
                                             .rise = 0.2,
                                             .first = 0.1,
                                             .last = 0.001,
                                             .annealing = Annealing::linear,
                                             .three_phases = true})},
      {"cyclical", cyclical({.low = 0.1, .up = 30, .down = 50})},
      {"cyclical, halving", cyclical({.low = 0.1, .up = 40, .shape = CycleShape::halving})},
      {"cyclical, exponential",
       cyclical({.low = 0.1, .up = 40, .shape = CycleShape::exponential, .decay = 0.995})},
      {"chained", chained({exponential(0.99), step_decay({.every = 7, .factor = 0.9})})},
      {"sequential", sequential({warm_up({.steps = 20, .first = 0.1}), exponential(0.99),
                                 step_decay({.every = 7, .factor = 0.9})},
                                {20, 300})},
  };
  return cases;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_peers)

BOOST_AUTO_TEST_CASE(all_have_figures) {
  BOOST_TEST(optimizer_figures.size() == optimizer_cases().size());
  BOOST_TEST(schedule_figures.size() == schedule_cases().size());
}

BOOST_AUTO_TEST_CASE(optimizers_agree_eagerly_and_frozen) {
  for (const OptimizerFigures& figures : optimizer_figures) BOOST_TEST_CONTEXT(figures.name) {
      const OptimizerCase& c = case_of(figures.name);
      SmallProblem eager(c.simplex), frozen(c.simplex);
      const optim::Optimizer rule = c.make(false);
      BOOST_TEST(c.name.starts_with(rule.name()));
      const esp::Executor executor = frozen.loss.get_executor({.optimizer = c.make(false)});
      int step = 0;
      for (size_t i = 0; i < figure_steps.size(); ++i) {
        if (figure_steps[i] > many_cases(1000)) break;
        eager.train(rule, figure_steps[i] - step);
        (void)executor.execute({.epochs = (figure_steps[i] - step) / 4, .progress = false});
        step = figure_steps[i];
        BOOST_TEST(difference_from(figures.values[i], eager.elements()) < 1e-12, "eagerly, step " << step);
        BOOST_TEST(difference_from(figures.values[i], frozen.elements()) < 1e-12, "frozen, step " << step);
      }
    }
}

BOOST_AUTO_TEST_CASE(averages_agree) {
  for (const OptimizerFigures& figures : average_figures) BOOST_TEST_CONTEXT(figures.name) {
      const auto make = [&]() -> optim::Optimizer {
        if (figures.name == "Asgd") return case_of("Asgd").make(false);
        if (figures.name == "Ema") return optim::Ema(case_of("Adam").make(false), {.decay = 0.99});
        return optim::Swa(case_of("Adam").make(false));
      };
      SmallProblem eager, frozen;
      const optim::Optimizer rule = make(), of_plan = make();
      const esp::Executor executor = frozen.loss.get_executor({.optimizer = of_plan});
      int step = 0;
      for (size_t i = 0; i < figure_steps.size(); ++i) {
        eager.train(rule, figure_steps[i] - step);
        (void)executor.execute({.epochs = (figure_steps[i] - step) / 4, .progress = false});
        step = figure_steps[i];
        if (figures.name == "Asgd" && step < figure_steps.back()) continue;
        const optim::UseAverages use(rule, eager.parameters()), use_planned(of_plan, frozen.parameters());
        BOOST_TEST(difference_from(figures.values[i], eager.elements()) < 1e-12, "eagerly, step " << step);
        BOOST_TEST(difference_from(figures.values[i], frozen.elements()) < 1e-12, "frozen, step " << step);
      }
    }
}

BOOST_AUTO_TEST_CASE(schedules_agree) {
  for (const ScheduleFigures& figures : schedule_figures) {
    const auto found = std::ranges::find(schedule_cases(), figures.name, &ScheduleCase::name);
    BOOST_REQUIRE(found != schedule_cases().end());
    BOOST_REQUIRE(figures.factors.size() == schedule_steps.size());
    for (size_t i = 0; i < schedule_steps.size(); ++i)
      BOOST_TEST(std::abs(found->schedule.at(schedule_steps[i]) - figures.factors[i]) < 1e-12,
                 figures.name << " in step " << schedule_steps[i] << ": "
                              << found->schedule.at(schedule_steps[i]) << " and " << figures.factors[i]);
  }
}

// In plans, each step adds the factor.
BOOST_AUTO_TEST_CASE(schedules_are_part_of_plans) {
  for (const ScheduleCase& c : schedule_cases()) {
    const esp::Variable p = esp::parameter(esp::tensor(0.0, esp::float64));
    const esp::Executor executor =
        (p * -1.0).get_executor({.optimizer = optim::Sgd({.lr = 1, .schedule = c.schedule})});
    double wanted = 0;
    for (int step = 0; step < 90; ++step) {
      (void)executor.execute({.epochs = 1, .progress = false});
      wanted += c.schedule.at(step);
      BOOST_TEST(std::abs(p.item() - wanted) < 1e-11, c.name << " in step " << step);
    }
  }
}

BOOST_AUTO_TEST_CASE(plateaus_agree) {
  for (const PlateauFigures& figures : plateau_figures) {
    const optim::Sgd sgd(1.0);
    optim::ReduceOnPlateau plateau(sgd, {.factor = 0.3,
                                         .patience = 2,
                                         .threshold = 0.01,
                                         .relative = figures.relative,
                                         .cooldown = 1,
                                         .min_lr = 0.02,
                                         .maximize = figures.maximize});
    double before = 1;
    for (size_t i = 0; i < plateau_metrics.size(); ++i) {
      const bool reduced = plateau.step(plateau_metrics[i]);
      BOOST_TEST(std::abs(sgd.learning_rate() - figures.rates[i]) < 1e-15,
                 figures.relative << figures.maximize << " metric " << i);
      BOOST_TEST(reduced == (sgd.learning_rate() < before));
      before = sgd.learning_rate();
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
