// Learning rate schedules: their values, and their use by eager updates and plans in each step.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <numbers>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/rmsprop.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

struct Case {
  const char* name;
  optim::Schedule schedule;
  std::function<double(int)> reference;
};

double cosine(int t, int steps, int warm_up, double last) {
  if (t < warm_up) return (t + 1.0) / (warm_up + 1);
  if (t >= steps) return last;
  return last + (1 - last) * (1 + std::cos(std::numbers::pi * (t - warm_up) / (steps - warm_up))) / 2;
}

const std::vector<double> table{1, 0.75, 0.5, 0.25, 0.5, 0.75, 0.5, 0.25};  // of the last steps

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"constant", {}, [](int) { return 1.0; }},
      {"step_decay", optim::step_decay({.every = 3, .factor = 0.5}),
       [](int t) { return std::pow(0.5, t / 3); }},
      {"exponential", optim::exponential(0.9), [](int t) { return std::pow(0.9, t); }},
      {"cosine", optim::cosine({.steps = 8}), [](int t) { return cosine(t, 8, 0, 0); }},
      {"cosine", optim::cosine({.steps = 9, .warm_up = 4, .last = 0.1}),
       [](int t) { return cosine(t, 9, 4, 0.1); }},
      {"cycles that halve",  // 2 steps up and 3 down
       optim::cyclical({.low = 0.25, .up = 2, .down = 3, .shape = optim::CycleShape::halving}),
       [](int t) {
         const double heights[] = {0, 0.5, 1, 2.0 / 3, 1.0 / 3};
         return 0.25 + 0.75 * heights[t % 5] * std::pow(0.5, t / 5);
       }},
      {"milestones from the first step on", optim::multi_step({.milestones = {0, 3}, .factor = 0.5}),
       [](int t) { return t < 3 ? 0.5 : 0.25; }},
      {"expression", [](const esp::Variable& step) { return 1 / (1 + step); },
       [](int t) { return 1.0 / (1 + t); }},
      {"float32", [](const esp::Variable& step) { return esp::cast(step, esp::float32) * 0.5; },
       [](int t) { return t * 0.5; }},
      {"numbers", [](int64_t step) { return step % 2 ? 0.5 : 2.0; }, [](int t) { return t % 2 ? 0.5 : 2.0; }},
      {"numbers in a table, asked from its beginning on",
       optim::sequential({optim::exponential(0.5), [](int64_t step) { return table.at(step); }}, {4}),
       [](int t) { return t < 4 ? std::pow(0.5, t) : table.at(t - 4); }},
  };
  return all;
}

constexpr int steps = 12;

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_schedule)

BOOST_AUTO_TEST_CASE(factors) {
  for (const Case& c : cases())
    for (int t = 0; t < steps; ++t)
      BOOST_TEST(std::abs(c.schedule.at(t) - c.reference(t)) < 1e-14, c.name << " in step " << t);
}

// The gradient is 1: each step subtracts the rate from the parameter.
BOOST_AUTO_TEST_CASE(eager_and_frozen_follow_step_by_step) {
  for (const Case& c : cases())
    for (const esp::DType dtype : {esp::float64, esp::float32})
      BOOST_TEST_CONTEXT(c.name << " in " << esp::name(dtype)) {
        const double tolerance = dtype == esp::float64 ? 1e-13 : 1e-6;
        const optim::Sgd of_eager({.lr = 0.25, .schedule = c.schedule}),
            of_frozen({.lr = 0.25, .schedule = c.schedule}), of_both({.lr = 0.25, .schedule = c.schedule});
        const esp::Variable p = esp::parameter(esp::zeros({2}, dtype)),
                            q = esp::parameter(esp::zeros({2}, dtype)),
                            r = esp::parameter(esp::zeros({2}, dtype));
        const esp::Executor frozen =
            esp::sum(q).get_executor({.mode = esp::Mode::training, .optimizer = of_frozen});
        const esp::Executor turns =
            esp::sum(r).get_executor({.mode = esp::Mode::training, .optimizer = of_both});
        double wanted = 0;
        for (int t = 0; t < steps; ++t) {
          BOOST_TEST(std::abs(of_eager.scheduled_learning_rate() - 0.25 * c.reference(t)) < 1e-14);
          wanted -= 0.25 * c.reference(t);
          esp::sum(p).update(of_eager);
          frozen.execute({.epochs = 1, .progress = false});
          if (t % 3 == 1)
            esp::sum(r).update(of_both);
          else
            turns.execute({.epochs = 1, .progress = false});
          for (const esp::Variable& x : {p, q, r})
            BOOST_TEST(difference(esp::full({2}, wanted, esp::float64), x.value()) < tolerance);
        }
      }
}

BOOST_AUTO_TEST_CASE(a_plan_follows_over_many_batches) {
  const auto train = [](bool eagerly) {
    const esp::Tensor x = numbers({20, 3}), y = numbers({20, 1}, -1, 1, 1);
    esp::data::Distributor feed({x, y}, {.batch_size = 8});
    const auto [in, target] = feed.get_output_graphs<2>();
    const esp::Variable w = esp::parameter(esp::ones({3, 1}, esp::float64));
    const esp::Variable loss = esp::nn::MeanSquared()(esp::matmul(in, w), target);
    const optim::Adam adam(
        {.lr = 0.1, .clip_norm = 0.5, .schedule = optim::cosine({.steps = 6, .warm_up = 2})});
    if (eagerly) {
      for (int step = 0; step < 9; ++step) {
        if (step % 3 == 0 && step) feed.reset();
        loss.forward().update(adam);
      }
    } else {
      loss.get_executor({.mode = esp::Mode::training, .optimizer = adam})
          .execute({.epochs = 3, .progress = false});
    }
    BOOST_TEST(adam.state().at(0).second.item() == 9);
    return w.value().clone();
  };
  BOOST_TEST(difference(train(true), train(false)) < 1e-13);
}

BOOST_AUTO_TEST_CASE(every_optimizer_has_one) {
  const auto stops = [](const optim::Optimizer& optimizer) {
    const esp::Variable p = esp::parameter(esp::tensor(2.0, esp::float64));
    (p * 1.0).update(optimizer);
    const double before = p.item();
    BOOST_TEST(before != 2, optimizer.name());
    (p * 1.0).update(optimizer);
    BOOST_TEST(p.item() == before, optimizer.name());
  };
  const auto once = [](int64_t step) { return step == 0 ? 1.0 : 0.0; };
  stops(optim::Sgd({.schedule = once}));
  stops(optim::Adam({.schedule = once}));
  stops(optim::AdamW({.schedule = once}));
  stops(optim::Adagrad({.schedule = once}));
  stops(optim::RmsProp({.schedule = once}));
}

BOOST_AUTO_TEST_CASE(the_position_is_a_leaf) {
  const optim::Sgd sgd({.lr = 1, .schedule = optim::exponential(0.5)});
  BOOST_TEST(optim::Sgd(1.0).state().empty());
  BOOST_REQUIRE(sgd.state().size() == 1u);  // exists before any update, so that it can be restored
  const auto [name, leaf] = sgd.state()[0];
  BOOST_TEST(name == "schedule_step");
  const esp::Variable p = esp::parameter(esp::tensor(0.0, esp::float64)),
                      q = esp::parameter(esp::tensor(0.0));
  // Every update is counted, whichever parameters it updates.
  (p * 1.0).update(sgd);
  (q * 1.0f).update(sgd);
  BOOST_TEST(leaf.item() == 2);
  BOOST_TEST(q.item() == -0.5);
  BOOST_TEST(sgd.state_of(p).empty());

  const esp::Executor executor = (p * 1.0).get_executor({.mode = esp::Mode::training, .optimizer = sgd});
  executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(p.item() == -1.25);
  esp::set_value(leaf, esp::tensor(0.0, esp::float64));  // back to the start
  executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(p.item() == -2.25);
  BOOST_TEST(leaf.item() == 1);
}

BOOST_AUTO_TEST_CASE(the_rate_below_a_schedule_can_be_set) {
  optim::Sgd sgd({.lr = 1, .schedule = optim::exponential(0.5)});
  const esp::Variable p = esp::parameter(esp::tensor(0.0, esp::float64));
  const esp::Variable loss = p * 1.0;
  loss.update(sgd);
  sgd.set_learning_rate(4);
  BOOST_TEST(sgd.learning_rate() == 4);
  BOOST_TEST(sgd.scheduled_learning_rate() == 2);
  loss.update(sgd);
  BOOST_TEST(p.item() == -3);
}

BOOST_AUTO_TEST_CASE(parameters_of_every_type_follow_one_schedule) {
  for (const bool frozen : {false, true}) {
    const optim::Sgd sgd({.lr = 1, .schedule = optim::exponential(0.5)});
    const esp::Variable wide = esp::parameter(esp::tensor(0.0, esp::float64)),
                        plain = esp::parameter(esp::tensor(0.0)),
                        half = esp::parameter(esp::tensor(0.0, esp::float16));
    const esp::Variable loss = wide + esp::cast(plain, esp::float64) + esp::cast(half, esp::float64);
    if (frozen)
      loss.get_executor({.mode = esp::Mode::training, .optimizer = sgd})
          .execute({.epochs = 3, .progress = false});
    else
      for (int step = 0; step < 3; ++step) loss.update(sgd);
    for (const esp::Variable& p : {wide, plain, half}) BOOST_TEST(p.item() == -1.75);
    BOOST_TEST(sgd.state()[0].second.item() == 3);
  }
}

BOOST_AUTO_TEST_CASE(a_rate_that_is_set_is_that_of_parameters_of_every_type) {
  for (const bool frozen : {false, true}) {
    optim::Sgd sgd(1);
    const esp::Variable wide = esp::parameter(esp::tensor(0.0, esp::float64)),
                        plain = esp::parameter(esp::tensor(0.0f));
    const esp::Variable loss = wide + esp::cast(plain, esp::float64);
    const esp::Executor executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = sgd});
    const auto step = [&] { frozen ? (void)executor.execute({.progress = false}) : (void)loss.update(sgd); };
    step();
    sgd.set("lr", 4);
    step();
    for (const esp::Variable& p : {wide, plain}) BOOST_TEST(p.item() == -5);
  }
}

BOOST_AUTO_TEST_CASE(settings_beside_the_rate_follow_schedules_of_their_own) {
  const esp::Variable p = esp::parameter(esp::ones({2}, esp::float64));
  const optim::Sgd sgd({.lr = 0.1,
                        .momentum = 0.8,
                        .schedule = optim::exponential(0.5),
                        .momentum_schedule = optim::exponential(0.9)});
  const optim::Adam adam({.beta1 = 0.5, .beta1_schedule = optim::exponential(0.9)});
  for (const optim::Optimizer& rule : {optim::Optimizer(sgd), optim::Optimizer(adam)})
    esp::sum(p).update(rule);
  BOOST_TEST(std::abs(sgd.scheduled_learning_rate() - 0.05) < 1e-15);
  BOOST_TEST(std::abs(sgd.scheduled_learning_rate("momentum") - 0.72) < 1e-15);
  BOOST_TEST(std::abs(adam.scheduled_learning_rate("beta1") - 0.45) < 1e-15);
  BOOST_TEST(adam.scheduled_learning_rate() == 1e-3);
  optim::Optimizer changes = adam;
  changes.set("beta1", 0.25);
  BOOST_TEST(adam.setting("beta1") == 0.25);
  BOOST_CHECK_EXCEPTION(changes.set("beta1", 1), esp::Error, says({"beta1", "1", here()}));
  BOOST_CHECK_THROW(optim::Adam(0.1).setting("beta1"), esp::Error);  // a number in the rule
}

BOOST_AUTO_TEST_CASE(an_update_that_fails_does_not_count) {
  const optim::Sgd sgd({.lr = 1, .schedule = [](int64_t step) { return step == 1 ? NAN : 1.0; }});
  const esp::Variable p = esp::parameter(esp::tensor(0.0, esp::float64));
  const esp::Variable loss = p * 1.0;
  loss.update(sgd);
  BOOST_CHECK_EXCEPTION(loss.update(sgd), esp::Error, says({"schedule", "nan", "step 1"}));
  BOOST_TEST(p.item() == -1);
  BOOST_TEST(sgd.state()[0].second.item() == 1);
  const esp::Executor executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = sgd});
  BOOST_CHECK_THROW(executor.step(), esp::Error);
  BOOST_TEST(p.item() == -1);
}

BOOST_AUTO_TEST_CASE(schedules_that_make_no_sense) {
  BOOST_CHECK_EXCEPTION(optim::step_decay({.every = 0}), esp::Error,
                        says({"step_decay", "every", "0", here()}));
  BOOST_CHECK_EXCEPTION(optim::step_decay({.factor = -1}), esp::Error, says({"factor", here()}));
  BOOST_CHECK_EXCEPTION(optim::exponential(NAN), esp::Error, says({"exponential", here()}));
  BOOST_CHECK_EXCEPTION(optim::cosine({.steps = 5, .warm_up = 5}), esp::Error,
                        says({"cosine", "steps", here()}));
  BOOST_CHECK_EXCEPTION(optim::cosine({.steps = 5, .warm_up = -1}), esp::Error, says({"warm_up", here()}));
  for (const double bad : {-0.5, double(NAN), double(INFINITY)}) {
    BOOST_CHECK_EXCEPTION(optim::step_decay({.factor = bad}), esp::Error, says({"factor", here()}));
    BOOST_CHECK_EXCEPTION(optim::exponential(bad), esp::Error, says({"exponential", here()}));
    BOOST_CHECK_EXCEPTION(optim::cosine({.steps = 5, .last = bad}), esp::Error, says({"last", here()}));
  }
  BOOST_CHECK_NO_THROW(optim::cosine({.steps = 1}));
  BOOST_CHECK_NO_THROW(optim::step_decay({.every = 1, .factor = 0}));
  struct WithoutRate : optim::UpdateRule {
    std::string_view name() const override { return "WithoutRate"; }
    void update(optim::ParameterUpdate&) const override {}
  };
  BOOST_CHECK_EXCEPTION(optim::Optimizer(std::make_shared<WithoutRate>(), {{"speed", 1}},
                                         {.schedule = optim::exponential(0.5)}),
                        esp::Error, says({"WithoutRate", "'lr'", here()}));
  BOOST_CHECK_EXCEPTION(optim::Optimizer(std::make_shared<WithoutRate>(), {}, {.clip_norm = INFINITY}),
                        esp::Error, says({"WithoutRate", "clip_norm", here()}));
  const esp::Variable p = esp::parameter(esp::ones({2}));
  BOOST_CHECK_EXCEPTION(
      esp::sum(p).update(
          optim::Sgd({.schedule = [](const esp::Variable&) { return esp::Variable(esp::ones({2})); }})),
      esp::ShapeError, says({"schedule", "scalar", "[2]"}));
  // What a schedule does wrong has the line where it was made, wherever it is asked.
  const std::string made = "optim_schedule_test.cpp:" + std::to_string(__LINE__ + 1);
  const optim::Schedule vector = [](const esp::Variable&) { return esp::Variable(esp::ones({2})); };
  BOOST_CHECK_EXCEPTION(vector.at(3), esp::ShapeError, says({"schedule", "scalar", made}));
  const optim::Sgd later({.schedule = optim::chained({optim::exponential(0.5), vector})});
  BOOST_CHECK_EXCEPTION(esp::sum(p).update(later), esp::ShapeError, says({made}));
  const std::string made_too = "optim_schedule_test.cpp:" + std::to_string(__LINE__ + 1);
  const optim::Schedule infinite = [](int64_t step) { return 1.0 / static_cast<double>(step); };
  BOOST_TEST(infinite.at(2) == 0.5);
  BOOST_CHECK_EXCEPTION(infinite.at(0), esp::Error, says({"inf", "step 0", made_too}));
}

BOOST_AUTO_TEST_CASE(restarts_come_in_time) {
  for (const double multiplier : {2.0, 3.0})
    for (int64_t steps = 1; steps < 40; ++steps) {
      const optim::Schedule schedule =
          optim::cosine_restarts({.steps = steps, .multiplier = multiplier, .last = 0.25});
      int64_t begin = 0;
      for (int64_t length = steps; begin < 5000; length *= static_cast<int64_t>(multiplier)) {
        BOOST_TEST(std::abs(schedule.at(begin) - 1) < 1e-9);
        begin += length;
        if (length > 4) BOOST_TEST(schedule.at(begin - 1) < 0.7);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
