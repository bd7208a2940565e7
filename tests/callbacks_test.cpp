// Callbacks: the order of events, exceptions, and those of the library.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/kit/best_figure.h"
#include "espalier/executor/kit/best_model.h"
#include "espalier/executor/kit/early_stopping.h"
#include "espalier/executor/kit/learning_rate.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/groups.h"
#include "espalier/optim/schedule.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A parameter that each epoch of two steps changes by `-2 · rate`, and whose square is the validation loss:
/// from 1 on, it falls to 0 and rises again.
struct Parabola {
  explicit Parabola(double rate = 0.25)
      : executor(
            esp::mean(in[0] * w).get_executor({.optimizer = esp::optim::Sgd({.lr = rate}),
                                               .validation = held_out,
                                               .outputs = {{"square", esp::mean(esp::square(in[0] * w))}}})) {
  }
  esp::data::Distributor feed{{esp::ones({4})}, {.batch_size = 2}}, held_out{{esp::ones({4})}};
  std::vector<esp::Variable> in = feed.get_output_graphs();
  esp::Variable w = esp::parameter(esp::tensor(1.0f));
  esp::Executor executor;
  esp::History run(int64_t epochs = 8) const {
    return executor.execute({.epochs = epochs, .progress = false});
  }
};

struct Recorder : esp::Callback {
  std::vector<std::string>& told;
  explicit Recorder(std::vector<std::string>& t) : told(t) {}
  void initialize(esp::TrainingRun&) override { told.push_back("initialize"); }
  void epoch_start(esp::TrainingRun& run) override {
    told.push_back("epoch " + std::to_string(run.info().epoch));
  }
  void step_start(esp::TrainingRun& run) override {
    told.push_back("step " + std::to_string(run.info().step));
  }
  void step_finish(esp::TrainingRun& run) override {
    told.push_back("did " + std::to_string(run.info().step));
  }
  void validation_start(esp::TrainingRun&) override { told.push_back("validate"); }
  void validation_finish(esp::TrainingRun& run) override {
    told.push_back(std::isnan(run.info().validation_loss) ? "no loss" : "validated");
  }
  void epoch_finish(esp::TrainingRun& run) override {
    told.push_back("end " + std::to_string(run.info().epoch));
  }
  void teardown(esp::TrainingRun& run) override { told.push_back(run.failed() ? "failed" : "teardown"); }
};

using Texts = std::vector<std::string>;

/// Throws at one event.
struct Thrower : esp::Callback {
  esp::Event at;
  const bool* on;
  Thrower(esp::Event event, const bool& throws) : at(event), on(&throws) {}
  void check(esp::Event event) const {
    if (*on && event == at) throw std::runtime_error("enough");
  }
  void initialize(esp::TrainingRun&) override { check(esp::Event::initialize); }
  void step_start(esp::TrainingRun& run) override {
    if (run.info().step == 1) check(esp::Event::step_start);
  }
  void validation_finish(esp::TrainingRun&) override { check(esp::Event::validation_finish); }
  void teardown(esp::TrainingRun&) override { check(esp::Event::teardown); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(callbacks)

BOOST_AUTO_TEST_CASE(events_come_in_order) {
  Parabola p;
  Texts told;
  p.executor.use(Recorder(told));
  p.run(2);
  const Texts epoch{"step 0", "did 0", "step 1", "did 1", "validate", "validated"};
  Texts expected{"initialize"};
  for (const char* number : {"0", "1"}) {
    expected.push_back(std::string("epoch ") + number);
    expected.insert(expected.end(), epoch.begin(), epoch.end());
    expected.push_back(std::string("end ") + number);
  }
  expected.emplace_back("teardown");
  BOOST_TEST(told == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(functions_hear_of_all_events) {
  Parabola p;
  std::vector<int> told;
  for (size_t e = 0; e < esp::event_count; ++e)
    p.executor.on(static_cast<esp::Event>(e), [&told, e](const esp::StepInfo&) { told.push_back(int(e)); });
  p.run(1);
  using enum esp::Event;
  std::vector<int> expected;
  for (const esp::Event e : {initialize, epoch_start, step_start, step_finish, step_start, step_finish,
                             validation_start, validation_finish, epoch_finish, teardown})
    expected.push_back(static_cast<int>(e));
  BOOST_TEST(told == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(only_what_is_overridden_is_listened_to) {
  struct Quiet : esp::Callback {
    void epoch_finish(esp::TrainingRun&) override {}
  };
  struct Louder : Quiet {
    void step_start(esp::TrainingRun&) override {}

   private:
    void teardown(esp::TrainingRun&) override {}
  };
  const auto bits = [](std::initializer_list<esp::Event> events) {
    esp::EventSet set;
    for (const esp::Event e : events) set.set(static_cast<size_t>(e));
    return set;
  };
  using enum esp::Event;
  BOOST_TEST((esp::AnyCallback(Quiet()).events() == bits({epoch_finish})));
  BOOST_TEST((esp::AnyCallback(Louder()).events() == bits({epoch_finish, step_start, teardown})));
  const std::shared_ptr<esp::Callback> some = std::make_shared<Quiet>();
  BOOST_TEST(esp::AnyCallback(some).events().all());
  Parabola p;
  BOOST_CHECK_EXCEPTION(p.executor.use(std::shared_ptr<Quiet>()), esp::Error, says({"callback", here()}));
}

BOOST_AUTO_TEST_CASE(exceptions_reach_the_caller) {
  for (const auto& [at, w, last] : {std::tuple{esp::Event::initialize, 1.0, "failed"},
                                    {esp::Event::step_start, 0.75, "failed"},
                                    {esp::Event::validation_finish, 0.5, "failed"},
                                    {esp::Event::teardown, 0.0, "teardown"}}) {
    Parabola p;
    Texts told;
    p.executor.use(Recorder(told));
    bool throws = true;
    p.executor.use(Thrower(at, throws));
    BOOST_CHECK_EXCEPTION(p.run(2), std::runtime_error, says({"enough"}));
    BOOST_TEST(p.w.item() == w);
    BOOST_TEST(told.back() == last);
    // The executor goes on.
    throws = false;
    BOOST_CHECK_NO_THROW(p.run(1));
    BOOST_TEST(told.back() == "teardown");
  }
}

BOOST_AUTO_TEST_CASE(callbacks_see_the_run) {
  struct Looker : esp::Callback {
    int looks = 0;
    void validation_finish(esp::TrainingRun& run) override {
      BOOST_TEST(run.figure("validation_loss") == run.info().validation_loss);
      BOOST_TEST(run.figure("validation_square") == run.epoch().validation_outputs.at("square"));
      ++looks;
    }
    void step_finish(esp::TrainingRun& run) override {
      BOOST_CHECK_EXCEPTION(run.figure("validation_loss"), esp::Error, says({"validation", here()}));
    }
    void epoch_finish(esp::TrainingRun& run) override {
      BOOST_TEST(run.history().epochs.size() == static_cast<size_t>(run.info().epoch) + 1);
      BOOST_TEST(run.figure("loss") == run.info().loss);
      BOOST_TEST(run.figures() == (Texts{"loss", "square", "validation_loss", "validation_square"}),
                 boost::test_tools::per_element());
      BOOST_CHECK_EXCEPTION(run.figure("nothing"), esp::Error, says({"nothing", "square", here()}));
      BOOST_TEST(run.leaves().size() == 1u);
      BOOST_TEST(run.optimizer()->learning_rate() == 0.25);
      BOOST_TEST(run.is_first());
      BOOST_TEST(run.output("square").rank() == 0u);
    }
  };
  Parabola p;
  const auto looker = std::make_shared<Looker>();
  p.executor.use(looker);
  p.run(2);
  BOOST_TEST(looker->looks == 2);
}

BOOST_AUTO_TEST_CASE(a_callback_stops_at_any_event) {
  struct Stopper : esp::Callback {
    esp::Event at;
    explicit Stopper(esp::Event event) : at(event) {}
    void initialize(esp::TrainingRun& run) override {
      if (at == esp::Event::initialize) run.stop();
    }
    void step_start(esp::TrainingRun& run) override {
      if (at == esp::Event::step_start) run.stop();
    }
    void validation_start(esp::TrainingRun& run) override {
      if (at == esp::Event::validation_start) run.stop();
    }
  };
  for (const auto& [at, epochs, w] : {std::tuple{esp::Event::initialize, 0u, 1.0},
                                      {esp::Event::step_start, 1u, 0.75},
                                      {esp::Event::validation_start, 1u, 0.5}}) {
    Parabola p;
    p.executor.use(Stopper(at));
    BOOST_TEST(p.run(3).epochs.size() == epochs);
    BOOST_TEST(p.w.item() == w);
  }
}

BOOST_AUTO_TEST_CASE(nan_is_no_best_figure) {
  esp::BestFigure best("here", {.monitor = "loss"});
  esp::EpochRecord epoch;
  for (const auto& [loss, better] : {std::pair{NAN, false}, {2.0F, true}, {NAN, false}, {1.0F, true}}) {
    epoch.loss_mean = loss;
    BOOST_TEST(best.add(epoch) == better);
  }
}

BOOST_AUTO_TEST_CASE(early_stopping_waits_and_restores) {
  // After epochs: 0.5, 0, −0.5, −1, −1.5; the output falls to 0 and rises again.
  const esp::EarlyStoppingOptions options{.monitor = "validation_square", .patience = 2};
  Parabola plain;
  const esp::EarlyStopping stopping(options);
  plain.executor.use(stopping);
  BOOST_TEST(plain.run().epochs.size() == 4u);
  BOOST_TEST(plain.w.item() == -1);
  BOOST_TEST(stopping.stopped_epoch().value() == 3);
  BOOST_TEST(stopping.best().value() == 0);
  // Another run begins anew.
  BOOST_TEST(plain.run().epochs.size() == 3u);
  (void)plain.run(1);
  BOOST_TEST(!stopping.stopped_epoch());

  Parabola restored;
  auto better = options;
  better.restore_best = true;
  restored.executor.use(esp::EarlyStopping(better));
  BOOST_TEST(restored.run().epochs.size() == 4u);
  BOOST_TEST(restored.w.item() == 0);
  restored.executor.step();  // the plan goes on from there
  BOOST_TEST(restored.w.item() == -0.25);

  Parabola ended;  // restored also where the run ends before its patience does
  ended.executor.use(esp::EarlyStopping(better));
  BOOST_TEST(ended.run(3).epochs.size() == 3u);
  BOOST_TEST(ended.w.item() == 0);

  Parabola failed;  // not where it fails
  failed.executor.use(esp::EarlyStopping(better));
  failed.executor.on(esp::Event::epoch_start, [](const esp::StepInfo& info) {
    if (info.epoch == 3) throw std::runtime_error("enough");
  });
  BOOST_CHECK_THROW(failed.run(), std::runtime_error);
  BOOST_TEST(failed.w.item() == -0.5);

  Parabola coarse;  // 1 → 0.25 is not better by 2
  coarse.executor.use(
      esp::EarlyStopping({.monitor = "validation_square", .patience = 2, .minimum_delta = 2}));
  BOOST_TEST(coarse.run().epochs.size() == 3u);

  Parabola upwards;
  upwards.executor.use(esp::EarlyStopping({.monitor = "validation_square", .patience = 2, .maximize = true}));
  BOOST_TEST(upwards.run().epochs.size() == 3u);
}

BOOST_AUTO_TEST_CASE(early_stopping_counts_epochs_before_a_checkpoint) {
  const TemporaryFolder folder;
  const esp::EarlyStoppingOptions options{.monitor = "validation_square", .patience = 2};
  Parabola first;
  first.executor.use(esp::EarlyStopping(options));
  first.executor.execute({.epochs = 3, .progress = false, .checkpoint = folder.path()});
  Parabola second;
  second.executor.use(esp::EarlyStopping(options));
  second.executor.resume(folder.path());
  BOOST_TEST(second.run().epochs.size() == 4u);
}

BOOST_AUTO_TEST_CASE(callbacks_refuse_figures_that_there_are_not) {
  Parabola p;
  p.executor.use(esp::EarlyStopping({.monitor = "accuracy"}));
  BOOST_CHECK_EXCEPTION(p.run(), esp::Error, says({"EarlyStopping", "accuracy", "validation_square"}));
  BOOST_TEST(p.w.item() == 1);
  BOOST_CHECK_EXCEPTION(esp::EarlyStopping({.patience = 0}), esp::Error, says({"patience", here()}));
  BOOST_CHECK_EXCEPTION(esp::EarlyStopping({.minimum_delta = -1}), esp::Error, says({"-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::ReduceLROnPlateau({.factor = 1}), esp::Error, says({"factor", here()}));
  BOOST_CHECK_EXCEPTION(esp::BestModel(esp::nn::Dense(1), ""), esp::FileError, says({"name", here()}));
}

BOOST_AUTO_TEST_CASE(best_model_is_saved) {
  const TemporaryFolder folder;
  const auto file = folder / "best.safetensors";
  Parabola p;
  esp::nn::Module net;
  net.add_parameter("w", p.w);
  p.executor.use(esp::BestModel(net, file, {.monitor = "validation_square"}));
  std::vector<double> saved;
  p.executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) {
    esp::nn::Module other;
    const esp::Variable w = other.add_parameter("w", esp::tensor(9.0f));
    esp::nn::load(other, file);
    saved.push_back(w.item());
  });
  p.run(4);
  BOOST_TEST(saved == (std::vector<double>{0.5, 0, 0, 0}), boost::test_tools::per_element());
  Parabola lost;
  lost.executor.use(esp::BestModel(net, folder / "nowhere/best.safetensors"));
  BOOST_CHECK_THROW(lost.run(), esp::FileError);
}

BOOST_AUTO_TEST_CASE(learning_rates_fall_on_a_plateau) {
  Parabola p(0.25);
  esp::LearningRateLog log;
  p.executor.use(esp::ReduceLROnPlateau(
      {.monitor = "validation_square", .factor = 0.5, .patience = 1, .cooldown = 1, .minimum = 0.1}));
  p.executor.use(log);
  p.run(7);
  // Squares 0.25, 0, then larger ones. A reduction, an epoch that does not count, and so on.
  const std::vector<double> expected{0.25, 0.25, 0.25, 0.125, 0.125, 0.1, 0.1, 0.1};
  BOOST_TEST(log.rates() == expected, boost::test_tools::per_element());
  BOOST_TEST(p.w.item() == 1 - 2 * (0.25 * 3 + 0.125 * 2 + 0.1 * 2), boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(a_plateau_of_another_run_is_over) {
  const esp::AnyCallback plateau = esp::ReduceLROnPlateau({.factor = 0.5, .patience = 1, .cooldown = 9});
  for (int run = 0; run < 2; ++run) {
    Parabola p(1e-9);
    esp::LearningRateLog log;
    p.executor.use(plateau);
    p.executor.use(log);
    p.run(4);
    BOOST_TEST(log.rates().back() == 0.5e-9);
  }
}

BOOST_AUTO_TEST_CASE(learning_rates_of_groups_are_logged) {
  const esp::data::Distributor feed({esp::ones({4})}, {.batch_size = 2});
  const esp::Variable v = esp::parameter(esp::tensor(1.0f)), w = esp::parameter(esp::tensor(1.0f));
  const esp::optim::Groups groups(
      {{esp::optim::ParameterList{v}, esp::optim::Sgd({.lr = 0.5, .schedule = esp::optim::exponential(0.5)})},
       {esp::optim::ParameterList{w}, esp::optim::Sgd(0.25)}});
  const esp::Executor executor =
      esp::mean(feed.get_output_graphs()[0] * v * w).get_executor({.optimizer = groups});
  const esp::LearningRateLog log;
  BOOST_TEST(log.rates().empty());
  executor.use(log);
  executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(log.rates() == (std::vector<double>{0.5, 0.125, 0.03125}), boost::test_tools::per_element());
  BOOST_TEST(log.rates(1) == (std::vector<double>{0.25, 0.25, 0.25}), boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION(log.rates(2), esp::IndexError, says({"group 2", "has 2", here()}));
}

BOOST_AUTO_TEST_CASE(no_options_are_the_default_ones) {
  Parabola p;
  const esp::EarlyStopping stopping({});
  p.executor.use(stopping);
  p.executor.use(esp::ReduceLROnPlateau({}));
  p.run();  // the validation loss falls to the end
  BOOST_TEST(!stopping.stopped_epoch().has_value());
  BOOST_TEST(stopping.best().value() == -3);
}

BOOST_AUTO_TEST_SUITE_END()
