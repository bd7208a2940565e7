// Training ends at a loss that is not a number. The defaults of a process.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "defaults_guard.h"
#include "espalier/core/defaults.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A regression in ten steps, in which row 7 is not a number.
struct Regression {
  explicit Regression(const esp::ExecutorOptions& options = {.optimizer = esp::optim::Sgd(1e-3)})
      : feed({rows()}, {.batch_size = 1}),
        w(esp::parameter(esp::ones({1}))),
        executor(esp::sum(esp::square(feed.get_output_graphs()[0] * w)).get_executor(options)) {}
  static esp::Tensor rows() {
    esp::Tensor x = esp::ones({10, 1});
    x.data<float>()[7] = NAN;
    return x;
  }
  esp::data::Distributor feed;
  esp::Variable w;
  esp::Executor executor;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(stop_on_nan)

BOOST_AUTO_TEST_CASE(the_message_names_the_step) {
  Regression quiet, listening;
  BOOST_CHECK_EXCEPTION(quiet.executor.execute({.epochs = 3}), esp::NumericError,
                        says({"step 7", "epoch 0", "stop_on_nan", here()}));
  BOOST_TEST(std::isnan(quiet.w.item()));
  int64_t last = 0;
  listening.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { last = info.step; });
  BOOST_CHECK_EXCEPTION(listening.executor.execute(), esp::NumericError, says({"step 7", "8 steps"}));
  BOOST_TEST(last == 6);
  // A step of one's own is one's own to judge.
  Regression stepping;
  for (int i = 0; i < 7; ++i) BOOST_TEST(std::isfinite(stepping.executor.step().loss));
  BOOST_TEST(std::isnan(stepping.executor.step().loss));
}

BOOST_AUTO_TEST_CASE(it_can_go_on) {
  Regression training;
  BOOST_TEST(std::isnan(training.executor.execute({.stop_on_nan = false}).epochs.at(0).loss_sum));
  // What does not train reports what it finds.
  Regression inference({.mode = esp::Mode::inference});
  BOOST_TEST(std::isnan(inference.executor.execute().epochs.at(0).loss_mean));
}

/// Steps whose gradients float16 cannot hold are left out, but not for ever.
BOOST_AUTO_TEST_CASE(in_float16) {
  const auto training_on = [](const esp::Tensor& x) {
    const esp::data::Distributor feed({x}, {.batch_size = 1});
    return esp::sum(esp::square(feed.get_output_graphs()[0] * esp::parameter(esp::ones({1}))))
        .get_executor({.optimizer = esp::optim::Sgd(1e-3), .precision = esp::Precision::float16});
  };
  const auto training = [&](int64_t rows, int64_t bad) {
    esp::Tensor x = esp::ones({rows, 1});
    std::fill_n(x.data<float>(), bad, NAN);
    return training_on(x);
  };
  BOOST_CHECK_EXCEPTION(training(20, 20).execute({.epochs = 9, .progress = false}), esp::NumericError,
                        says({"step 7 of epoch 2", "47 steps before", "stop_on_nan", here()}));
  BOOST_CHECK_EXCEPTION(training(50, 48).execute({.progress = false}), esp::NumericError, says({"step 47"}));
  const esp::Executor some = training(20, 10);
  BOOST_TEST(some.execute({.epochs = 3, .progress = false}).epochs.size() == 3u);
  BOOST_CHECK_EXCEPTION(training(20, 10).execute({.epochs = 9, .progress = false}), esp::NumericError,
                        says({"step 7 of epoch 4"}));
  // As many good steps as double the scale make up for one that was left out.
  esp::Tensor x = esp::ones({47 + 2000 + 1, 1});
  std::fill_n(x.data<float>(), 47, NAN);
  x.data<float>()[47 + 2000] = NAN;
  BOOST_TEST(training_on(x).execute({.progress = false}).epochs.size() == 1u);
}

BOOST_AUTO_TEST_CASE(checkpoints_are_from_before) {
  const TemporaryFolder folder;
  Regression run;
  BOOST_CHECK_THROW(run.executor.execute({.checkpoint = folder.path(), .checkpoint_every = 2}),
                    esp::NumericError);
  Regression later;
  later.executor.resume(folder.path());
  BOOST_TEST(std::isfinite(later.w.item()));
  BOOST_TEST(std::isfinite(later.executor.step().loss));  // step 6
  BOOST_TEST(std::isnan(later.executor.step().loss));
}

BOOST_AUTO_TEST_CASE(replicas_stop_together) {
  Regression run({.optimizer = esp::optim::Sgd(1e-3), .devices = {esp::cpu(0), esp::cpu(1)}});
  BOOST_CHECK_EXCEPTION(run.executor.execute(), esp::NumericError, says({"step 7", here()}));
}

BOOST_AUTO_TEST_CASE(defaults_of_the_process) {
  const DefaultsGuard guard;
  const TemporaryFolder folder;
  esp::set_defaults({.cache = folder.path()});
  BOOST_TEST(esp::cache_folder() == folder.path());
  esp::set_defaults({.handle_interrupt = false, .cache = std::filesystem::path()});
  BOOST_TEST(esp::cache_folder().empty());
  BOOST_TEST(!esp::defaults().handle_interrupt);
  BOOST_CHECK_EXCEPTION(esp::set_defaults({.cache = "relative"}), esp::Error,
                        says({"relative", "absolute", "stop_on_nan_test.cpp"}));
  BOOST_TEST(esp::cache_folder().empty());
}

BOOST_AUTO_TEST_SUITE_END()
