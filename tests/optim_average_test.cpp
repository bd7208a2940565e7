// Averages of parameters: what they are, and how they are used in place of the parameters.
#include "espalier/optim/average.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/asgd.h"
#include "espalier/optim/groups.h"
#include "espalier/optim/plateau.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// A parameter that each update lowers by 1.
struct Falling {
  Variable p = esp::parameter(esp::tensor(10.0, esp::float64), "falling");
  void step(const optim::Optimizer& rule, int times = 1) const {
    for (int i = 0; i < times; ++i) (p * 1.0).update(rule);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_average)

BOOST_AUTO_TEST_CASE(values_of_averages) {
  const Falling a, b, c, d;
  const optim::Ema ema(optim::Sgd(1), {.decay = 0.75}),
      late(optim::Sgd(1), {.decay = 0.5, .start = 2, .every = 2}),
      warm(optim::Sgd(1), {.decay = 0.75, .warm_up = true});
  const optim::Swa swa(optim::Sgd(1), {.start = 1, .every = 3});
  double of_ema = 0, of_late = 0, of_warm = 0;
  for (int t = 1; t <= 9; ++t) {
    const double p = 10 - t;
    a.step(ema), b.step(late), c.step(warm), d.step(swa);
    of_ema = t == 1 ? p : 0.75 * of_ema + 0.25 * p;
    BOOST_TEST(std::abs(optim::average_of(ema, a.p).item() - of_ema) < 1e-14);
    const double decay = std::min(0.75, static_cast<double>(t) / (t + 9));
    of_warm = t == 1 ? p : decay * of_warm + (1 - decay) * p;
    BOOST_TEST(std::abs(optim::average_of(warm, c.p).item() - of_warm) < 1e-14);
    if (t < 3) {
      BOOST_CHECK_EXCEPTION((void)optim::average_of(late, b.p), esp::Error,
                            says({"Ema(Sgd)", "no average", "'falling'", here()}));
      continue;
    }
    if (t % 2 == 1) of_late = t == 3 ? p : 0.5 * (of_late + p);
    BOOST_TEST(std::abs(optim::average_of(late, b.p).item() - of_late) < 1e-14);
  }
  BOOST_TEST(std::abs(optim::average_of(swa, d.p).item() - (8.0 + 5 + 2) / 3) < 1e-14);  // steps 2, 5 and 8
}

BOOST_AUTO_TEST_CASE(an_optimizer_that_averages_is_that_optimizer) {
  optim::Adam adam({.lr = 0.5, .schedule = optim::exponential(0.5)});
  optim::Ema ema(adam);
  BOOST_TEST(ema.name() == "Ema(Adam)");
  BOOST_TEST(ema.learning_rate() == 0.5);
  ema.set_learning_rate(0.25);
  BOOST_TEST(adam.learning_rate() == 0.25);
  const Falling falling;
  falling.step(ema);
  BOOST_TEST(ema.scheduled_learning_rate() == 0.125);
  BOOST_TEST(ema.state().size() == 1u);
  BOOST_TEST(adam.state_of(falling.p).size() == 3u);
  BOOST_TEST(ema.state_of(falling.p).size() == 5u);
  ema.set_state(falling.p, "moving_average", esp::tensor(7.0, esp::float64));
  ema.set_state(falling.p, "m", esp::tensor(0.5, esp::float64));
  BOOST_TEST(optim::average_of(ema, falling.p).item() == 7);
  BOOST_TEST(adam.state_of(falling.p)[0].second.item() == 0.5);
  BOOST_CHECK_THROW(ema.set("speed", 1), esp::Error);
}

BOOST_AUTO_TEST_CASE(averages_are_used_for_a_while) {
  const Falling falling, other;
  const optim::Ema ema(optim::Sgd(1), {.decay = 0.5});
  const Variable loss = falling.p * 1.0;
  const esp::Executor executor = loss.get_executor({.optimizer = ema});
  (void)executor.execute({.epochs = 3, .progress = false});
  const double value = 7, average = ((9 + 8) * 0.5 + 7) * 0.5;
  const esp::Executor inference = (falling.p * 2.0).get_executor();
  {
    const optim::UseAverages use(ema, {falling.p});
    BOOST_TEST(falling.p.item() == average);
    BOOST_TEST((falling.p * 1.0).item() == average);
    (void)inference.run({});
    BOOST_TEST(inference.value().item() == 2 * average);
    BOOST_CHECK_EXCEPTION(optim::UseAverages(ema, {falling.p, other.p}), esp::Error,
                          says({"no average", "optim_average_test.cpp"}));
    BOOST_TEST(falling.p.item() == average);
  }
  BOOST_TEST(falling.p.item() == value);
  (void)executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(falling.p.item() == value - 1);
  BOOST_TEST(optim::average_of(ema, falling.p).item() == (average + value - 1) / 2);
  {
    optim::UseAverages use(ema, {falling.p});
    use.keep();
  }
  BOOST_TEST(falling.p.item() == (average + value - 1) / 2);
  BOOST_CHECK_THROW(optim::UseAverages(ema, std::vector<Variable>{}), esp::Error);
}

BOOST_AUTO_TEST_CASE(averages_are_used_in_a_callback) {
  const Falling falling;
  const optim::Swa swa(optim::Sgd(1));
  const esp::Executor executor = (falling.p * 1.0).get_executor({.optimizer = swa});
  std::vector<double> seen;
  executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) {
    const optim::UseAverages use(swa, {falling.p});
    seen.push_back(falling.p.item());
  });
  (void)executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST(seen == (std::vector<double>{9, 8.5, 8}));
  BOOST_TEST(falling.p.item() == 7);
}

BOOST_AUTO_TEST_CASE(averages_of_halves_are_floats) {
  const Variable p = esp::parameter(esp::tensor(1.0, esp::float16));
  const optim::Ema ema(optim::Sgd(0.25), {.decay = 0.5});
  for (int i = 0; i < 2; ++i) esp::cast(p, esp::float32).update(ema);
  BOOST_TEST(optim::average_of(ema, p).item() == 0.625);
  BOOST_TEST((optim::average_of(ema, p).dtype() == esp::float16));
  BOOST_TEST((ema.state_of(p).at(0).second.dtype() == esp::float32));
}

BOOST_AUTO_TEST_CASE(averages_that_make_no_sense) {
  const optim::Sgd sgd(1);
  BOOST_CHECK_EXCEPTION(optim::Ema(sgd, {.decay = 1.5}), esp::Error, says({"Ema", "decay", "1.5", here()}));
  BOOST_CHECK_EXCEPTION(optim::Ema(sgd, {.start = -1}), esp::Error, says({"Ema", "start", here()}));
  BOOST_CHECK_EXCEPTION(optim::Swa(sgd, {.every = 0}), esp::Error, says({"Swa", "every", here()}));
  BOOST_CHECK_EXCEPTION(optim::Swa(optim::Ema(sgd)), esp::Error,
                        says({"Swa", "Ema(Sgd)", "already", here()}));
  const Falling falling;
  BOOST_CHECK_EXCEPTION(optim::Ema(optim::Groups({{optim::ParameterList{falling.p}, optim::Swa(sgd)}})),
                        esp::Error, says({"Ema", "already"}));
  BOOST_CHECK_EXCEPTION((void)optim::average_of(sgd, falling.p), esp::Error, says({"Sgd", "no average"}));
}

BOOST_AUTO_TEST_CASE(frozen_parameters_keep_their_values) {
  const optim::Ema ema(optim::Sgd(1), {.decay = 0.5});
  const Falling trained, frozen, both;
  esp::set_trainable(frozen.p, false);
  trained.step(ema, 3);
  both.step(ema, 2);
  esp::set_trainable(both.p, false);  // an average from before
  const double average = optim::average_of(ema, both.p).item();
  {
    const optim::UseAverages scope(ema, {trained.p, frozen.p, both.p});
    BOOST_TEST(trained.p.item() != 7);
    BOOST_TEST(frozen.p.item() == 10);
    BOOST_TEST(both.p.item() == average);
  }
  BOOST_TEST(trained.p.item() == 7);
  BOOST_TEST(frozen.p.item() == 10);
  BOOST_TEST(both.p.item() == 8);
  esp::set_trainable(frozen.p, true);
  BOOST_CHECK_EXCEPTION(optim::UseAverages(ema, {trained.p, frozen.p}), esp::Error,
                        says({"Ema", "no average", here()}));
  BOOST_TEST(trained.p.item() == 7);
}

BOOST_AUTO_TEST_CASE(plateaus_lower_the_rates_of_all_groups) {
  const Falling a, b;
  optim::Groups groups({{optim::ParameterList{a.p}, optim::Sgd(1)},
                        {optim::ParameterList{b.p}, optim::Ema(optim::Adam(0.5))}});
  optim::ReduceOnPlateau plateau(groups, {.factor = 0.5, .patience = 0});
  BOOST_TEST(!plateau.step(1));
  BOOST_TEST(plateau.step(1));
  BOOST_TEST(groups.setting("0.lr") == 0.5);
  BOOST_TEST(groups.setting("1.lr") == 0.25);
  // A program goes on with the state.
  optim::ReduceOnPlateau other(groups, {.factor = 0.5, .patience = 0});
  other.set_state(plateau.state());
  BOOST_TEST(!other.step(0.5));
  BOOST_TEST(other.state().best == 0.5);
  BOOST_TEST(other.step(NAN));
  BOOST_TEST(groups.setting("0.lr") == 0.25);
  // NaN is never better, not even than NaN.
  optim::ReduceOnPlateau lost(optim::Sgd(1), {.factor = 0.5, .patience = 1});
  BOOST_TEST(!lost.step(NAN));
  BOOST_TEST(lost.step(NAN));
  // Rates that are as low as they may be are not reduced.
  optim::ReduceOnPlateau least(groups, {.factor = 0.5, .patience = 0, .min_lr = 0.25});
  BOOST_TEST(!least.step(1));
  BOOST_TEST(!least.step(1));
  BOOST_TEST(groups.setting("0.lr") == 0.25);
  BOOST_TEST(groups.setting("1.lr") == 0.125);
  BOOST_CHECK_EXCEPTION(optim::ReduceOnPlateau(groups, {.factor = 1}), esp::Error,
                        says({"ReduceOnPlateau", "factor", here()}));
  BOOST_CHECK_EXCEPTION(optim::ReduceOnPlateau(groups, {.patience = -1}), esp::Error,
                        says({"patience", here()}));
  struct WithoutRate : optim::UpdateRule {
    std::string_view name() const override { return "WithoutRate"; }
    void update(optim::ParameterUpdate&) const override {}
  };
  BOOST_CHECK_EXCEPTION(optim::ReduceOnPlateau(optim::Optimizer(std::make_shared<WithoutRate>(), {})),
                        esp::Error, says({"WithoutRate", "'lr'", here()}));
}

BOOST_AUTO_TEST_CASE(plateaus_of_negative_metrics) {
  // A metric must be better than the best one, -2, by a tenth of its size.
  for (const bool maximize : {false, true}) {
    const double better = maximize ? 1 : -1;
    const optim::Sgd sgd(1);
    optim::ReduceOnPlateau plateau(sgd,
                                   {.factor = 0.5, .patience = 0, .threshold = 0.1, .maximize = maximize});
    BOOST_TEST(!plateau.step(-2));
    BOOST_TEST(plateau.step(-2 - 0.1 * better), maximize);
    BOOST_TEST(plateau.step(-2 + 0.1 * better), maximize);
    BOOST_TEST(plateau.state().best == -2);
    BOOST_TEST(!plateau.step(-2 + 0.3 * better), maximize);
    BOOST_TEST(sgd.learning_rate() == 0.25);
  }
}

BOOST_AUTO_TEST_SUITE_END()
