// The information of steps and runs, and the state between runs.
#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

/// A loss that is w times the sum of one row of consecutive numbers.
struct Counting {
  explicit Counting(int64_t rows, int64_t other_rows = 0)
      : feed({esp::arange(rows).reshape({-1, 1})}, {.batch_size = 1}), w(esp::parameter(esp::ones({1}))) {
    esp::Variable loss = esp::sum(feed.get_output_graphs()[0] * w);
    if (other_rows) {
      second.emplace(std::vector<esp::Tensor>{esp::zeros({other_rows, 1})},
                     esp::data::DistributorOptions{.batch_size = 1});
      loss = loss + esp::sum(second->get_output_graphs()[0] * w);
    }
    executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.0)});
  }
  esp::data::Distributor feed;
  std::optional<esp::data::Distributor> second;
  esp::Variable w;
  std::optional<esp::Executor> executor;
};

/// Rows of one number that take a while to read, as prefetching wants them; counts the rows that were read.
struct SlowDataset : esp::data::Dataset {
  int64_t rows() const override { return 12; }
  std::vector<esp::Spec> specs() const override { return {{esp::float32, {12}}}; }
  void read(std::span<const int64_t> rows, std::span<esp::Tensor> outputs) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (size_t i = 0; i < rows.size(); ++i) outputs[0].span<float>()[i] = static_cast<float>(rows[i]);
    read_rows += static_cast<int64_t>(rows.size());
  }
  mutable std::atomic<int64_t> read_rows = 0;
};

/// Consecutive numbers, of which 2 can be read from the second time on.
struct HaltingDataset : esp::data::Dataset {
  int64_t rows() const override { return 4; }
  std::vector<esp::Spec> specs() const override { return {{esp::float32, {4, 1}}}; }
  void read(std::span<const int64_t> rows, std::span<esp::Tensor> outputs) const override {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == 2 && !halted.exchange(true)) throw esp::DataError("not now");
      outputs[0].span<float>()[i] = static_cast<float>(rows[i]);
    }
  }
  mutable std::atomic<bool> halted = false;
};

/// So slow that a thread reads it ahead.
struct CountedDataset : esp::data::Dataset {
  int64_t rows() const override { return 40; }
  std::vector<esp::Spec> specs() const override { return {{esp::float32, {40, 1}}}; }
  void read(std::span<const int64_t> rows, std::span<esp::Tensor> outputs) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    count += static_cast<int64_t>(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) outputs[0].span<float>()[i] = static_cast<float>(rows[i]);
  }
  mutable std::atomic<int64_t> count = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(executor_runs)

BOOST_AUTO_TEST_CASE(a_step_tells_what_it_was) {
  for (const int64_t other : {0, 3}) {  // one feed or two; the shorter one ends the epoch
    const Counting run(4, other);
    const int64_t steps = other ? other : 4;
    std::vector<esp::StepInfo> told;
    run.executor->on(esp::Event::step_finish, [&](const esp::StepInfo& info) { told.push_back(info); });
    size_t taken = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t step = 0; step < steps; ++step) {
        const esp::StepInfo info = run.executor->step();
        BOOST_REQUIRE(told.size() == ++taken);
        for (const esp::StepInfo& i : {info, told.back()}) {
          BOOST_TEST(i.epoch == epoch);
          BOOST_TEST(i.step == step);
          BOOST_TEST(i.steps == steps);
          BOOST_TEST(i.samples == 1);
          BOOST_TEST(i.loss == static_cast<double>(step));
          BOOST_TEST(i.seconds > 0);
          BOOST_TEST(std::isnan(i.validation_loss));
        }
      }
      BOOST_CHECK_THROW(run.executor->step(), esp::EndOfData);
      BOOST_TEST(told.size() == taken);
    }
  }
}

BOOST_AUTO_TEST_CASE(each_row_of_an_epoch_is_read_once) {
  const auto dataset = std::make_shared<SlowDataset>();
  const esp::data::Distributor feed(dataset, {.batch_size = 2});
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::Executor executor =
      esp::sum(feed.get_output_graphs()[0] * w).get_executor({.optimizer = optim::Sgd(0.0)});
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    double sum = 0;
    for (int64_t step = 0; step < 6; ++step) sum += executor.step().loss;
    BOOST_TEST(sum == 66);
    BOOST_CHECK_THROW(executor.step(), esp::EndOfData);
    BOOST_TEST(dataset->read_rows == 12 * epoch);
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_failed_is_taken_again_with_all_its_batches) {
  for (const bool first : {false, true}) {  // which feed fails
    const auto halting = std::make_shared<HaltingDataset>(), other = std::make_shared<HaltingDataset>();
    other->halted = true;
    const esp::data::Distributor left(first ? halting : other, {.batch_size = 1}),
        right(first ? other : halting, {.batch_size = 1});
    const esp::Variable w = esp::parameter(esp::ones({1}));
    const esp::Variable loss = esp::sum(left.get_output_graphs()[0] * right.get_output_graphs()[0] * w);
    const esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.0)});
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      for (const double loss : {0.0, 1.0, 4.0, 9.0}) {
        if (epoch == 0 && loss == 4) BOOST_CHECK_THROW(executor.step(), esp::DataError);
        BOOST_TEST(executor.step().loss == loss);
      }
      BOOST_CHECK_THROW(executor.step(), esp::EndOfData);
    }
  }
}

/// Also beside a feed that lies on a GPU, of which no batch is read on the host.
BOOST_AUTO_TEST_CASE(steps_read_each_row_once) {
  std::vector<esp::Device> devices = gpus_to_test();
  devices.push_back(esp::cpu());
  for (const esp::Device device : devices) {
    const auto counted = std::make_shared<CountedDataset>();
    const esp::data::Distributor read(counted, {.batch_size = 1}),
        there({esp::ones({40, 1})}, {.batch_size = 1});
    const esp::Variable w = esp::parameter(esp::ones({1}));
    const esp::Variable loss = esp::sum(read.get_output_graphs()[0] * there.get_output_graphs()[0] * w);
    const esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.0), .devices = {device}});
    for (int i = 0; i < 40; ++i) BOOST_TEST(executor.step().loss == i);
    BOOST_TEST(counted->count == 40);
  }
}

BOOST_AUTO_TEST_CASE(an_epoch_that_a_step_began_does_not_begin_again) {
  const TemporaryFolder folder;
  const Counting run(4);
  (void)run.executor->step();
  run.executor->checkpoint(folder.path());
  run.executor->resume(folder.path());
  std::vector<int64_t> begun;
  run.executor->on(esp::Event::epoch_start, [&](const esp::StepInfo& info) { begun.push_back(info.epoch); });
  (void)run.executor->execute({.epochs = 2, .progress = false});
  BOOST_TEST(begun == std::vector<int64_t>{1});
}

BOOST_AUTO_TEST_CASE(without_a_feed_steps_have_no_end) {
  const esp::Variable w = esp::parameter(esp::tensor(3.0), "w");
  const esp::Executor executor = esp::square(w).get_executor({.optimizer = optim::Sgd(0.25)});
  for (const double loss : {9.0, 2.25, 0.5625, 0.140625}) BOOST_TEST(executor.step().loss == loss);
  BOOST_TEST(w.value().item() == 0.1875);
}

BOOST_AUTO_TEST_CASE(an_epoch_tells_what_it_was) {
  const CheckpointProgram program;
  std::vector<esp::StepInfo> told;
  for (const esp::Event event : {esp::Event::epoch_start, esp::Event::epoch_finish})
    program.executor.on(event, [&](const esp::StepInfo& info) { told.push_back(info); });
  const esp::History history = program.executor.execute({.epochs = 2, .progress = false});
  BOOST_REQUIRE(told.size() == 4u);
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    const esp::StepInfo &start = told[2 * epoch], &finish = told[2 * epoch + 1];
    const esp::EpochRecord& record = history.epochs[epoch];
    BOOST_TEST((start.epoch == static_cast<int64_t>(epoch) && start.step == 0 &&
                start.steps == CheckpointProgram::steps));
    BOOST_TEST((finish.epoch == start.epoch && finish.step == finish.steps && finish.steps == start.steps));
    BOOST_TEST((finish.samples == CheckpointProgram::rows && record.samples == CheckpointProgram::rows));
    BOOST_TEST(finish.loss == record.loss_mean);
    BOOST_TEST(finish.validation_loss == record.validation_loss);
    BOOST_TEST(finish.seconds == record.seconds);
    BOOST_TEST(record.validation_loss > 0);
    BOOST_TEST(record.seconds > 0);
  }
}

BOOST_AUTO_TEST_CASE(a_feed_that_is_reset_shows_its_first_step) {
  Counting run(4);
  BOOST_TEST(run.executor->step().loss == 0);
  BOOST_TEST(run.executor->step().loss == 1);
  run.feed.reset();
  BOOST_TEST(run.executor->step().loss == 0);
  BOOST_TEST(run.executor->step().loss == 1);
  // A run starts at the first step, and leaves the feed at the next epoch.
  BOOST_TEST(run.executor->execute({.epochs = 1, .progress = false}).epochs[0].loss_sum == 6);
  BOOST_TEST(run.executor->step().loss == 0);
  run.feed.reset();
  BOOST_TEST(run.executor->execute({.epochs = 2, .progress = false}).epochs[1].loss_sum == 6);
  BOOST_TEST(run.executor->step().loss == 0);
}

BOOST_AUTO_TEST_CASE(replicas_divide_batches_of_one_size) {
  const esp::data::Distributor a({esp::ones({12, 3})}, {.batch_size = 4}),
      b({esp::ones({12, 3})}, {.batch_size = 6});
  const esp::Variable w = esp::parameter(esp::ones({3}));
  const esp::Variable loss =
      esp::mean(a.get_output_graphs()[0] * w) + esp::mean(b.get_output_graphs()[0] * w);
  const optim::Sgd sgd(0.1);
  BOOST_CHECK_NO_THROW(loss.get_executor({.mode = esp::Mode::training, .optimizer = sgd}).step());
  BOOST_CHECK_EXCEPTION(
      loss.get_executor(
          {.mode = esp::Mode::training, .optimizer = sgd, .devices = {esp::cpu(0), esp::cpu(1)}}),
      esp::UnsupportedError, says({"the feeds show 6 and 4", here()}));
}

BOOST_AUTO_TEST_CASE(placeholders_alone_show_rows) {
  const esp::Variable x = esp::placeholder("x", {4, 3}), table = esp::placeholder("table", {3, 2});
  BOOST_CHECK_EXCEPTION(esp::matmul(x, table).get_executor({.devices = {esp::cpu(0), esp::cpu(1)}}),
                        esp::UnsupportedError, says({"4 and 3", "'table'", "set_value", here()}));
}

BOOST_AUTO_TEST_CASE(replicas_divide_rows_but_not_numbers) {
  const esp::Variable x = esp::placeholder("x", {1, 3}, esp::float64),
                      by = esp::placeholder("by", {}, esp::float64);
  esp::Tensor values[2];
  for (const bool replicas : {false, true}) {
    const esp::Variable w = esp::parameter(numbers({3}));
    const esp::Executor executor =
        esp::mean(esp::square(x * w * by))
            .get_executor(
                {.mode = esp::Mode::training,
                 .optimizer = optim::Sgd(0.1),
                 .devices = replicas ? std::vector{esp::cpu(0), esp::cpu(1)} : std::vector<esp::Device>()});
    for (const int64_t rows : {4, 3, 1})
      executor.run({{"x", numbers({rows, 3}, -1, 1, 1)}, {"by", esp::tensor(2.0, esp::float64)}});
    values[replicas] = w.value().clone();
  }
  BOOST_TEST(difference(values[0], values[1]) < 1e-14);
  const esp::Variable w = esp::parameter(esp::ones({3}));
  BOOST_CHECK_EXCEPTION(
      esp::sum(w).get_executor(
          {.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1), .devices = {esp::cpu(0), esp::gpu(0)}}),
      esp::UnsupportedError, says({"cpu:0", "do not go together", here()}));
}

BOOST_AUTO_TEST_CASE(a_value_that_cannot_be_shown_is_refused_before_anything_is_done) {
  const esp::Variable w = esp::parameter(esp::ones({3}));
  const esp::Executor executor =
      (esp::placeholder("x", {4, 3}) * w)
          .get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1), .accumulate = 2});
  for (int i = 0; i < 2; ++i)
    BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::ones({4, 3})}}), esp::UnsupportedError,
                          says({"value: ", "taken in 2 micro-batches", here()}));
  BOOST_TEST(w.value().at<float>({0}) == 1);
  const esp::Variable rows = esp::placeholder("x", {4, 3}) * w;
  const esp::Executor of_outputs = esp::mean(rows).get_executor({.mode = esp::Mode::training,
                                                                 .optimizer = optim::Sgd(0.1),
                                                                 .accumulate = 2,
                                                                 .outputs = {{"rows", rows}}});
  BOOST_CHECK_EXCEPTION(of_outputs.run_outputs({{"x", esp::ones({4, 3})}}), esp::UnsupportedError,
                        says({"output(\"rows\"): ", here()}));
  BOOST_TEST(w.value().at<float>({0}) == 1);
}

BOOST_AUTO_TEST_CASE(stopping_lasts_for_one_run) {
  const Counting run(4);
  run.executor->stop();  // without a run, no effect
  BOOST_TEST(run.executor->execute({.epochs = 2, .progress = false}).epochs.size() == 2u);
  bool stop = true;
  run.executor->on(esp::Event::epoch_start, [&](const esp::StepInfo& info) {
    if (stop && info.epoch == 1) run.executor->stop();
  });
  const esp::History stopped = run.executor->execute({.epochs = 5, .progress = false});
  BOOST_REQUIRE(stopped.epochs.size() == 2u);
  BOOST_TEST(stopped.epochs[1].samples == 0);
  BOOST_TEST(stopped.epochs[1].loss_mean == 0);  // no samples
  stop = false;
  BOOST_TEST(run.executor->execute({.epochs = 2, .progress = false}).epochs[1].loss_sum == 6);
}

BOOST_AUTO_TEST_CASE(an_interrupt_is_seen_after_every_event) {
  for (const auto& [event, epochs, steps] : {std::tuple{esp::Event::epoch_start, 0u, 0},
                                             {esp::Event::step_finish, 0u, 1},
                                             {esp::Event::epoch_finish, 1u, 4}}) {
    const Counting run(4);
    int trained = 0, begun = 0;
    run.executor->on(esp::Event::epoch_start, [&](const esp::StepInfo&) { ++begun; });
    run.executor->on(esp::Event::step_finish, [&](const esp::StepInfo&) { ++trained; });
    run.executor->on(event, [&](const esp::StepInfo& info) {
      if (info.epoch == 0 && info.step <= (event == esp::Event::step_finish ? 0 : info.steps)) raise(SIGINT);
    });
    const esp::History history = run.executor->execute({.epochs = 3, .progress = false});
    BOOST_TEST(history.interrupted);
    BOOST_TEST(history.epochs.size() == epochs);
    BOOST_TEST(trained == steps);
    BOOST_TEST(begun == 1);
  }
}

BOOST_AUTO_TEST_CASE(callbacks_are_called_from_the_next_event_on) {
  const Counting run(4);
  std::vector<int64_t> late;
  run.executor->on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.step != 1) return;
    for (int i = 0; i < 3; ++i)
      run.executor->on(esp::Event::step_finish, [&](const esp::StepInfo& now) { late.push_back(now.step); });
  });
  run.executor->execute({.epochs = 1, .progress = false});
  BOOST_TEST(late == (std::vector<int64_t>{2, 2, 2, 3, 3, 3}));
}

BOOST_AUTO_TEST_CASE(what_a_failed_run_leaves_is_the_users) {
  const esp::Variable p = esp::parameter(esp::ones({4}));
  const esp::Executor executor =
      esp::sum(p).get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.25)});
  executor.on(esp::Event::step_finish, [](const esp::StepInfo&) { throw std::runtime_error("enough"); });
  BOOST_CHECK_THROW(executor.execute({.progress = false}), std::runtime_error);
  const esp::Tensor taken = p.value();
  const esp::Variable view = esp::reshape(p, {2, 2});
  BOOST_TEST(taken.at<float>({0}) == 0.75);
  BOOST_CHECK_THROW(executor.execute({.progress = false}), std::runtime_error);
  BOOST_TEST(taken.at<float>({0}) == 0.75);
  BOOST_TEST(view.value().at<float>({0, 0}) == 0.75);
  BOOST_TEST(p.value().at<float>({0}) == 0.5);
}

BOOST_AUTO_TEST_CASE(values_and_views_taken_between_steps_stay) {
  for (const std::vector<esp::Device>& devices :
       {std::vector<esp::Device>{}, std::vector<esp::Device>{esp::cpu(0), esp::cpu(1)}}) {
    const esp::Variable p = esp::parameter(esp::ones({4}));
    const esp::data::Distributor feed({esp::ones({8, 4})}, {.batch_size = 2});
    const esp::Executor executor =
        esp::mean(feed.get_output_graphs()[0] * p * 4.0)
            .get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.25), .devices = devices});
    std::vector<esp::Tensor> values;
    std::vector<esp::Variable> views;
    for (int step = 0; step < 4; ++step) {
      (void)executor.step();
      values.push_back(p.value());
      views.push_back(esp::reshape(p, {2, 2}));
    }
    for (size_t step = 0; step < 4; ++step) {
      const double expected = 1 - 0.25 * static_cast<double>(step + 1);
      BOOST_TEST(esp::sum(values[step]).item() == 4 * expected);
      BOOST_TEST(esp::sum(views[step].value()).item() == 4 * expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(states_taken_between_steps_stay) {
  for (const bool shard : {false, true}) {
    const esp::Variable p = esp::parameter(numbers({4})), q = esp::parameter(numbers({4}, -1, 1, 1));
    const esp::data::Distributor feed({numbers({8, 4}, -1, 1, 2)}, {.batch_size = 2});
    const optim::Optimizer adam = optim::Adam(0.1);
    const esp::Executor executor = esp::mean(esp::square(feed.get_output_graphs()[0] * p + q))
                                       .get_executor({.mode = esp::Mode::training,
                                                      .optimizer = adam,
                                                      .devices = {esp::cpu(0), esp::cpu(1)},
                                                      .replicas = {.shard_states = shard}});
    std::vector<esp::Tensor> taken, copies;
    for (int step = 0; step < 3; ++step) {
      (void)executor.step();
      for (const esp::Variable& parameter : {p, q})
        for (const auto& [name, state] : adam.state_of(parameter)) {
          taken.push_back(state.value());
          copies.push_back(taken.back().clone());
        }
    }
    BOOST_REQUIRE(taken.size() == 18u);
    for (size_t i = 0; i < taken.size(); ++i) BOOST_TEST(difference(taken[i], copies[i]) == 0);
    for (size_t i = 6; i < taken.size(); ++i) BOOST_TEST(difference(taken[i], copies[i - 6]) > 0);
  }
}

BOOST_AUTO_TEST_CASE(validation_sees_what_a_callback_sets) {
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::data::Distributor feed({esp::ones({2, 1})}, {.batch_size = 1}),
      held_out({esp::full({3, 1}, 10)}, {.batch_size = 2});
  const esp::Executor executor =
      esp::mean(feed.get_output_graphs()[0] * w)
          .get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.0), .validation = held_out});
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.step == 1) esp::set_value(w, esp::full({1}, 3));
  });
  const esp::History history = executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(history.epochs[0].validation_loss == 30);
  BOOST_TEST(history.epochs[0].loss_mean == 1);
}

BOOST_AUTO_TEST_CASE(a_run_after_a_stop_has_another_order) {
  esp::data::Distributor feed({esp::arange(64).reshape({-1, 1})}, {.batch_size = 1, .shuffle = true});
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::Executor executor =
      esp::sum(feed.get_output_graphs()[0] * w)
          .get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.0)});
  std::vector<double> shown;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    shown.push_back(info.loss);
    if (info.step == 7) executor.stop();
  });
  const auto run = [&] {
    shown.clear();
    executor.execute({.progress = false});
    return shown;
  };
  const std::vector<double> first = run(), second = run(), third = run();
  BOOST_TEST(first.size() == 8u);
  BOOST_TEST((first != second && second != third && first != third));
  // A feed that was reset is in its next epoch already.
  feed.reset();
  const int64_t epoch = feed.feed()->epoch();
  run();
  BOOST_TEST(feed.feed()->epoch() == epoch);
}

BOOST_AUTO_TEST_SUITE_END()
