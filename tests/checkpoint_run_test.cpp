// When a run writes checkpoints, and what they restore besides the leaves.
#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <cmath>
#include <thread>

#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/training/checkpoint.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
namespace fs = std::filesystem;

namespace {

constexpr auto every_event = {esp::Event::epoch_start, esp::Event::step_finish, esp::Event::epoch_finish};

/// Whole epochs, and the next step, as "1.3".
using Positions = std::vector<std::string>;
std::string position_in(const fs::path& folder) {
  const esp::RunState run = esp::read_checkpoint(folder).checkpoint.run;
  return std::to_string(run.history.epochs.size()) + "." + std::to_string(run.step);
}

/// Trains, and returns the positions of all checkpoints that were written. Calls `meanwhile` after each step.
Positions positions(esp::ExecuteOptions options,
                    const std::function<void(const CheckpointProgram&, int64_t)>& meanwhile = {}) {
  const TemporaryFolder folder;
  options.checkpoint = folder / "a" / "b";  // created by the run
  options.progress = false;
  const CheckpointProgram program;
  Positions found;
  fs::path last;
  const auto look = [&] {
    if (!fs::exists(options.checkpoint) || fs::is_empty(options.checkpoint)) return;
    const fs::path file = esp::read_checkpoint(options.checkpoint).path;
    if (file != last) found.push_back(position_in(options.checkpoint));
    last = file;
    const auto files = std::distance(fs::directory_iterator(options.checkpoint), {});
    BOOST_TEST(files == std::min<std::ptrdiff_t>(2, std::ssize(found)));
  };
  int64_t steps = 0;
  program.executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
    ++steps;
    if (meanwhile) meanwhile(program, steps);
  });
  for (const esp::Event event : every_event)
    program.executor.on(event, [&](const esp::StepInfo&) { look(); });
  program.executor.execute(options);
  look();
  if (!found.empty()) {  // one for each position
    const std::string number = std::to_string(1'000'000 + found.size()).substr(1);
    BOOST_TEST(last.filename() == "checkpoint-" + number + ".safetensors");
  }
  return found;
}

/// For each choice, another library.
std::vector<esp::GemmChoice> others(std::vector<esp::GemmChoice> choices) {
  for (auto& [gemm, threads, library] : choices)
    library = library == esp::GemmLibrary::openblas ? esp::GemmLibrary::onednn : esp::GemmLibrary::openblas;
  return choices;
}
std::vector<int> libraries() {
  std::vector<int> list;
  for (const esp::GemmChoice& choice : esp::gemm_choices().all()) list.push_back(int(choice.library));
  return list;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_run)

BOOST_AUTO_TEST_CASE(when_checkpoints_are_left) {
  BOOST_TEST(positions({.epochs = 3}) == (Positions{"1.0", "2.0", "3.0"}));
  BOOST_TEST(positions({.epochs = 2, .checkpoint_every = 1}) ==
             (Positions{"0.1", "0.2", "0.3", "0.4", "0.5", "1.1", "1.2", "1.3", "1.4", "1.5", "2.0"}));
  // Steps are counted from the beginning of the run: 3, 6 and 9 with five steps per epoch, and the end.
  BOOST_TEST(positions({.epochs = 2, .checkpoint_every = 3}) == (Positions{"0.3", "1.1", "1.4", "2.0"}));
  BOOST_TEST(positions({.epochs = 3, .checkpoint_every = 4}) == (Positions{"0.4", "1.3", "2.2", "3.0"}));
  BOOST_TEST(positions({.epochs = 2, .checkpoint_every = 5}) == (Positions{"0.5", "1.5", "2.0"}));
  BOOST_TEST(positions({.epochs = 1, .checkpoint_every = 100}) == Positions{"1.0"});
  BOOST_TEST(positions({.epochs = 0}) == Positions{});
  const CheckpointProgram program;
  BOOST_CHECK_EXCEPTION(program.executor.execute({.checkpoint_every = -1}), esp::Error, says({"-1", here()}));
  BOOST_CHECK_EXCEPTION(program.executor.execute({.checkpoint_every = 2}), esp::Error,
                        says({"needs a folder", here()}));
}

BOOST_AUTO_TEST_CASE(a_run_that_is_stopped_leaves_one) {
  const auto stop = [](const CheckpointProgram& program, int64_t step) {
    if (step == 7) program.executor.stop();
  };
  const auto interrupt = [](const CheckpointProgram&, int64_t step) {
    if (step == 7) raise(SIGINT);
  };
  for (const int64_t every : {0, 3, 100}) {
    Positions expected = every == 0 ? Positions{"1.0"} : every == 3 ? Positions{"0.3", "1.1"} : Positions{};
    expected.push_back("1.2");
    BOOST_TEST(positions({.epochs = 3, .checkpoint_every = every}, stop) == expected);
    BOOST_TEST(positions({.epochs = 3, .checkpoint_every = every}, interrupt) == expected);
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_is_stopped_goes_on_with_the_next_batch) {
  const auto finish = [](const CheckpointProgram& program) {
    const esp::History history = program.executor.execute({.epochs = 3, .progress = false});
    return bits(history) + program.state();
  };
  const std::string whole = finish(CheckpointProgram());
  for (const bool signal : {false, true})
    for (const int64_t last : {1, 5, 7}) {  // an epoch has five steps
      const TemporaryFolder folder;
      const CheckpointProgram first;
      int64_t steps = 0;
      double of_last_epoch = 0;
      first.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
        of_last_epoch = info.loss + (info.step ? of_last_epoch : 0);
        if (++steps != last) return;
        if (signal)
          raise(SIGINT);
        else
          first.executor.stop();
      });
      int64_t finished = 0;
      first.executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) { ++finished; });
      const esp::History history =
          first.executor.execute({.epochs = 3, .progress = false, .checkpoint = folder.path()});
      BOOST_TEST(steps == last);
      const bool signal_before_the_end = signal && last == 5;  // the epoch's last step is done, not the epoch
      BOOST_TEST(finished == last / 5 - signal_before_the_end);
      const bool has_part = !signal && last % 5;
      BOOST_REQUIRE(history.epochs.size() == static_cast<size_t>(finished + has_part));
      if (has_part) {
        BOOST_TEST(history.epochs.back().loss_sum == of_last_epoch, boost::test_tools::tolerance(1e-12));
        BOOST_TEST(std::isnan(history.epochs.back().validation_loss));
      }
      BOOST_TEST(history.interrupted == signal);
      const CheckpointProgram second;
      second.executor.resume(folder.path());
      BOOST_TEST(finish(second) == whole);
    }
}

BOOST_AUTO_TEST_CASE(a_stop_before_the_first_step_takes_none) {
  const CheckpointProgram program;
  int64_t steps = 0;
  program.executor.on(esp::Event::epoch_start, [&](const esp::StepInfo&) { program.executor.stop(); });
  for (const esp::Event event : {esp::Event::step_finish, esp::Event::epoch_finish})
    program.executor.on(event, [&](const esp::StepInfo&) { ++steps; });
  const esp::History history = program.executor.execute({.epochs = 2, .progress = false});
  BOOST_REQUIRE(history.epochs.size() == 1u);
  BOOST_TEST(history.epochs[0].samples == 0);
  BOOST_TEST(steps == 0);
}

BOOST_AUTO_TEST_CASE(a_reset_of_the_feed_begins_its_epoch) {
  const TemporaryFolder folder;
  const CheckpointProgram first;
  for (int step = 0; step < 7; ++step) try {
      first.executor.step();
    } catch (const esp::EndOfData&) {
    }
  BOOST_TEST(first.executor.step().step == 1);  // of the second epoch
  first.executor.checkpoint(folder / "in the midst");
  BOOST_TEST(esp::read_checkpoint(folder / "in the midst").checkpoint.run.begun);
  first.feed.feed()->next_epoch();
  first.executor.checkpoint(folder / "reset");
  const esp::RunState left = esp::read_checkpoint(folder / "reset").checkpoint.run;
  BOOST_TEST(left.step == 0);
  BOOST_TEST(!left.begun);
  BOOST_TEST(left.record.samples == 0);
  BOOST_TEST(left.record.loss_sum == 0);
  BOOST_TEST(left.weighted == 0);
  for (const bool before : {false, true}) {  // before the checkpoint, or after resuming
    const CheckpointProgram program;
    const auto resume = [&] {
      program.executor.resume(folder / (before ? "reset" : "in the midst"));
      if (!before) program.feed.feed()->next_epoch();
    };
    resume();
    BOOST_TEST(program.executor.step().step == 0);
    resume();
    int64_t begun = 0;
    program.executor.on(esp::Event::epoch_start, [&](const esp::StepInfo&) { ++begun; });
    const esp::History history = program.executor.execute({.epochs = 2, .progress = false});
    BOOST_TEST(history.epochs.back().samples == CheckpointProgram::rows);
    BOOST_TEST(begun == 1);
  }
}

BOOST_AUTO_TEST_CASE(the_epoch_of_the_validation_feed_comes_back) {
  const TemporaryFolder folder;
  const CheckpointProgram program;
  program.held_out.feed()->next_epoch();
  program.held_out.feed()->next_epoch();
  program.executor.checkpoint(folder.path());
  program.held_out.feed()->set_epoch(0);
  program.executor.resume(folder.path());
  BOOST_TEST(program.held_out.feed()->epoch() == 2);
  BOOST_TEST(program.feed.feed()->epoch() == 0);
}

BOOST_AUTO_TEST_CASE(seconds_go_on_where_they_were) {
  const TemporaryFolder folder;
  const CheckpointProgram program;
  program.executor.execute({.epochs = 1, .progress = false});
  for (int step = 0; step < 3; ++step) program.executor.step();
  program.executor.checkpoint(folder.path());
  esp::Checkpoint c = esp::read_checkpoint(folder.path()).checkpoint;
  BOOST_TEST(c.run.record.seconds > 0);
  c.run.record.seconds = 1000;
  esp::write_checkpoint(folder.path(), c);
  const CheckpointProgram other;
  other.executor.resume(folder.path());
  std::vector<double> told;
  for (const esp::Event event : {esp::Event::step_finish, esp::Event::epoch_finish})
    other.executor.on(event, [&](const esp::StepInfo& info) { told.push_back(info.seconds); });
  const esp::History history = other.executor.execute({.epochs = 2, .progress = false});
  BOOST_REQUIRE(history.epochs.size() == 2u);
  BOOST_TEST(told.size() == 3u);  // two steps, and the end of the epoch
  for (const double seconds : told) BOOST_TEST(seconds > 1000);
  BOOST_TEST(history.epochs[1].seconds > 1000);
}

BOOST_AUTO_TEST_CASE(losses_that_were_not_read_are_in_it) {
  // Without callbacks, losses are fetched late.
  const auto finish = [](const CheckpointProgram& program) {
    const esp::History history = program.executor.execute({.epochs = 2, .progress = false});
    return bits(history) + program.state();
  };
  const std::string whole = finish(CheckpointProgram());
  const TemporaryFolder folder;
  const CheckpointProgram first;
  first.executor.execute(
      {.epochs = 2, .progress = false, .checkpoint = folder.path(), .checkpoint_every = 3});
  fs::remove(folder / "checkpoint-000004.safetensors");
  BOOST_TEST(position_in(folder.path()) == "1.4");
  const CheckpointProgram second;
  second.executor.resume(folder.path());
  BOOST_TEST(finish(second) == whole);
}

BOOST_AUTO_TEST_CASE(a_value_is_not_that_of_before) {
  const esp::Variable x = esp::placeholder("x", {2});
  const esp::Executor executor =
      esp::sum(x * esp::parameter(esp::ones({2}))).get_executor({.mode = esp::Mode::inference});
  const TemporaryFolder folder;
  BOOST_TEST(executor.run({{"x", esp::ones({2})}}).item() == 2);
  executor.checkpoint(folder.path());
  BOOST_TEST(executor.value().item() == 2);
  executor.resume(folder.path());
  BOOST_CHECK_EXCEPTION(executor.value(), esp::Error, says({"not run a step yet"}));
  // With placeholders there is no position.
  esp::Checkpoint c = esp::read_checkpoint(folder.path()).checkpoint;
  c.run.step = 1;
  esp::write_checkpoint(folder.path(), c);
  BOOST_CHECK_EXCEPTION(executor.resume(folder.path()), esp::FileError, says({"step 1", "with 0", here()}));
}

BOOST_AUTO_TEST_CASE(nor_is_it_refused_as_that_of_before) {
  const esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const esp::Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const esp::Executor executor =
      esp::mean(esp::square(feed.get_output_graphs()[0] * w), 1)
          .get_executor({.optimizer = esp::optim::Sgd(0.1), .accumulate = 2, .validation = feed});
  const TemporaryFolder folder;
  (void)executor.execute({.progress = false, .checkpoint = folder.path()});
  BOOST_CHECK_THROW((void)executor.value(), esp::UnsupportedError);  // no part of a batch has all rows
  executor.resume(folder.path());
  BOOST_CHECK_EXCEPTION((void)executor.value(), esp::Error, says({"not run a step yet"}));
}

BOOST_AUTO_TEST_CASE(shapes_and_dtypes_belong_to_the_checksum) {
  for (const auto& [before, after] : {std::pair("[2,3]", "[3,2]"), std::pair("\"F32\"", "\"I32\"")}) {
    const TemporaryFolder folder;
    esp::Checkpoint c;
    c.leaves = {{"w", numbers({2, 3}).to(esp::float32)}};
    esp::write_checkpoint(folder.path(), c);
    const fs::path file = folder / "checkpoint-000001.safetensors";
    std::string text = esp::read_file(file);
    const size_t at = text.find(before);
    BOOST_REQUIRE(at != text.npos);
    folder.write(file.filename().string(), text.replace(at, 5, after));
    BOOST_CHECK_EXCEPTION(esp::read_checkpoint(folder.path()), esp::FileError, says({"checksum"}));
  }
}

BOOST_AUTO_TEST_CASE(two_writers_take_turns) {
  const TemporaryFolder folder;
  std::exception_ptr errors[2];
  std::vector<std::thread> writers;
  for (std::exception_ptr& error : errors)
    writers.emplace_back([&] {
      try {
        for (int i = 0; i < 50; ++i) esp::write_checkpoint(folder.path(), {});
      } catch (...) {
        error = std::current_exception();
      }
    });
  for (std::thread& writer : writers) writer.join();
  for (const std::exception_ptr& error : errors)
    if (error) BOOST_CHECK_NO_THROW(std::rethrow_exception(error));
  BOOST_TEST(esp::read_checkpoint(folder.path()).path.filename() == "checkpoint-000100.safetensors");
  BOOST_TEST(folder.files() == 2u);
}

BOOST_AUTO_TEST_CASE(only_its_own_leftovers_are_removed) {
  const TemporaryFolder folder;
  folder.write("notes.tmp", "the user's");
  folder.write("checkpoint-000007.safetensors.12-3.tmp", "half");
  folder.write("checkpoint-9999999999999999999.safetensors", "more than a number holds");
  esp::write_checkpoint(folder.path(), {});
  BOOST_TEST(fs::exists(folder / "notes.tmp"));
  BOOST_TEST(!fs::exists(folder / "checkpoint-000007.safetensors.12-3.tmp"));
  BOOST_TEST(fs::exists(folder / "checkpoint-000001.safetensors"));
  BOOST_TEST(folder.files() == 3u);
}

BOOST_AUTO_TEST_CASE(products_are_computed_by_the_same_library) {
  const TemporaryFolder folder;
  const CheckpointProgram program;
  const std::vector<int> before = libraries();
  BOOST_REQUIRE(!before.empty());
  program.executor.checkpoint(folder.path());
  BOOST_TEST(esp::gemm_choices().set(others(esp::gemm_choices().all())));
  BOOST_TEST(libraries() != before);
  program.executor.resume(folder.path());
  BOOST_TEST(libraries() == before);
}

BOOST_AUTO_TEST_CASE(plans_are_bound_anew_to_the_libraries_of_a_checkpoint) {
  // Libraries add in different orders, so sums of many products differ between them.
  const esp::Tensor x = numbers({16, 3000}, -1, 1, 1).to(esp::float32);
  const esp::Variable w = esp::parameter(numbers({3000, 16}, -1, 1, 2).to(esp::float32));
  const auto make = [&] {
    return esp::matmul(esp::placeholder("x", {16, 3000}), w).get_executor({.mode = esp::Mode::inference});
  };
  const auto bits_of = [&](const esp::Executor& executor) { return bits(executor.run({{"x", x}})); };
  const TemporaryFolder folder;
  const esp::Executor first = make();
  const std::string expected = bits_of(first);
  first.checkpoint(folder.path());
  const auto before = esp::gemm_choices().all();
  esp::gemm_choices().set(others(before));
  const esp::Executor second = make();
  const std::string other = bits_of(second);
  if (other == expected) BOOST_TEST_MESSAGE("the libraries give the same bits here");
  second.resume(folder.path());
  BOOST_TEST((bits_of(second) == expected));
  esp::gemm_choices().set(before);
}

BOOST_AUTO_TEST_CASE(settings_no_optimizer_has_are_refused) {
  const TemporaryFolder folder;
  const CheckpointProgram program;
  program.executor.checkpoint(folder.path());
  const esp::Checkpoint good = esp::read_checkpoint(folder.path()).checkpoint;
  const std::string before = program.state();
  for (const double bad : {-0.5, double(NAN), double(INFINITY)}) {
    esp::Checkpoint c = good;
    c.optimizer->values.at(0).second = bad;
    esp::write_checkpoint(folder.path(), c);
    BOOST_CHECK_EXCEPTION(program.executor.resume(folder.path()), esp::FileError, says({"lr", here()}));
  }
  for (const int64_t step : {int64_t{-1}, CheckpointProgram::steps + 1}) {
    esp::Checkpoint c = good;
    c.run.step = step;
    esp::write_checkpoint(folder.path(), c);
    BOOST_CHECK_EXCEPTION(program.executor.resume(folder.path()), esp::FileError,
                          says({"step " + std::to_string(step), "with 5", here()}));
  }
  BOOST_TEST(program.state() == before);
}

BOOST_AUTO_TEST_CASE(all_of_a_checkpoint_is_read_as_written) {
  esp::Checkpoint c;
  c.leaves = {{"w", numbers({2, 3})}, {"s", esp::tensor(3, esp::int64)}, {"w", esp::ones({0, 4})}};
  c.feeds = {{"distributor", 3, 5, 2, {{esp::float32, {5, 4}}, {esp::int64, {5}}}}};
  c.optimizer = {"Adam", {{"lr", 0.25}, {"other", INFINITY}}};
  c.random = {1, uint64_t{1} << 63, 7};
  const esp::Gemm plain{esp::float32, true, false, 3, 4, 5, 0, 0, 0};
  esp::Gemm with_bias = plain;
  with_bias.epilogue = esp::GemmEpilogue::bias_relu;
  c.products = {{plain, 1, esp::GemmLibrary::onednn}, {with_bias, 2, esp::GemmLibrary::openblas}};
  c.run = {{{{1, 2, NAN, 3, 4}, {5, 6, 7, 8, 9}}, false}, {10, 11, 12, 13, 14}, 15, 4, true};
  const TemporaryFolder folder;
  esp::write_checkpoint(folder.path(), c);
  const esp::Checkpoint r = esp::read_checkpoint(folder.path()).checkpoint;
  BOOST_REQUIRE(r.leaves.size() == 3u);
  for (size_t i = 0; i < 3; ++i) {
    BOOST_TEST(r.leaves[i].first == c.leaves[i].first);
    BOOST_TEST(bits(r.leaves[i].second) == bits(c.leaves[i].second));
  }
  BOOST_REQUIRE(r.feeds.size() == 1u);
  BOOST_TEST((r.feeds[0].name == "distributor" && r.feeds[0].epoch == 3 && r.feeds[0].steps == 5 &&
              r.feeds[0].last_rows == 2 && r.feeds[0].specs == c.feeds[0].specs));
  BOOST_TEST((r.optimizer->name == "Adam" && r.optimizer->values == c.optimizer->values));
  BOOST_TEST((r.random.seed == 1 && r.random.next_stream == uint64_t{1} << 63 &&
              r.random.next_parameter_stream == 7));
  BOOST_REQUIRE(r.products.size() == 2u);
  for (size_t i = 0; i < 2; ++i) {
    const esp::Gemm &g = r.products[i].gemm, &was = c.products[i].gemm;
    BOOST_TEST((g.dtype == was.dtype && g.transpose_a && !g.transpose_b && g.m == 3 && g.n == 4 && g.k == 5 &&
                g.epilogue == was.epilogue && r.products[i].threads == c.products[i].threads &&
                r.products[i].library == c.products[i].library));
  }
  BOOST_TEST(bits(r.run.history) == bits(c.run.history));
  BOOST_TEST((r.run.history.epochs[0].seconds == 4 && r.run.history.epochs[1].seconds == 9));
  BOOST_TEST((r.run.record.loss_sum == 10 && r.run.record.samples == 13 && r.run.record.seconds == 14));
  BOOST_TEST((r.run.weighted == 15 && r.run.step == 4 && r.run.begun));
}

BOOST_AUTO_TEST_SUITE_END()
