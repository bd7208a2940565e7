// Checkpoints: a resumed run equals an uninterrupted one, and damaged files are refused.
#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>

#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/core/files/crc64.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/ops/ops.h"
#include "places.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
namespace fs = std::filesystem;

namespace {

constexpr int64_t epochs = 3;

struct Outcome {
  std::string state, history;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome finish(const CheckpointProgram& program, int64_t n = epochs) {
  const esp::History history = program.executor.execute({.epochs = n, .progress = false});
  return {program.state(), bits(history)};
}

Outcome uninterrupted(const std::string& optimizer) { return finish(CheckpointProgram(optimizer)); }

/// Stops a run after `steps` steps by an exception, with a checkpoint at that step.
void train_until(const CheckpointProgram& program, int64_t steps, const fs::path& folder) {
  struct Enough {};
  int64_t done = 0;
  program.executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
    if (++done < steps) return;
    program.executor.checkpoint(folder);
    throw Enough();
  });
  BOOST_CHECK_THROW(program.executor.execute({.epochs = epochs, .progress = false}), Enough);
}

/// The files of a folder, by name.
std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// Runs checkpoint_process with these arguments, and returns its exit status.
int run_process(const std::vector<std::string>& arguments) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> argv{const_cast<char*>(places::checkpoint_process)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(places::checkpoint_process, argv.data());
    _exit(127);
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(checkpoint)

BOOST_AUTO_TEST_CASE(the_checksum_is_the_standard_one) {
  const auto of = [](std::string_view text, size_t cut) {
    esp::Crc64 crc;
    crc.add(text.data(), cut);
    crc.add(text.data() + cut, text.size() - cut);
    return crc.value();
  };
  BOOST_TEST(of("", 0) == 0u);
  for (size_t cut = 0; cut <= 9; ++cut) BOOST_TEST(of("123456789", cut) == 0x995DC9BBDF1939FAu);
  const std::string longer = "This is a test of the emergency broadcast system.";
  for (size_t cut = 0; cut <= longer.size(); ++cut) BOOST_TEST(of(longer, cut) == 0x27DB187FC15BBC72u);
}

BOOST_AUTO_TEST_CASE(a_resumed_run_is_the_run_that_never_stopped) {
  for (const std::string optimizer : {"Adam", "Sgd"}) {
    const Outcome whole = uninterrupted(optimizer);
    for (int64_t stop = 1; stop <= epochs * CheckpointProgram::steps; ++stop) {
      BOOST_TEST_CONTEXT(optimizer << ", stopped after step " << stop) {
        const TemporaryFolder folder;
        std::string at_stop;
        {
          const CheckpointProgram first(optimizer);
          train_until(first, stop, folder.path());
          at_stop = first.state();
        }
        const CheckpointProgram second(optimizer, 8, 99);  // with other initial parameters
        second.feed.feed()->next_epoch();
        second.executor.resume(folder.path());
        BOOST_TEST(second.state() == at_stop);
        BOOST_TEST((finish(second) == whole));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(it_resumes_in_another_process) {
  for (const std::string optimizer : {"Adam", "Sgd"}) {
    const TemporaryFolder folder, result;
    const Outcome whole = uninterrupted(optimizer);
    train_until(CheckpointProgram(optimizer), 7, folder.path());
    const int status = run_process(
        {"resume", optimizer, folder.path().string(), std::to_string(epochs), (result / "outcome").string()});
    BOOST_REQUIRE(status == 0);
    BOOST_TEST(esp::read_file(result / "outcome") == whole.state + whole.history);
  }
}

BOOST_AUTO_TEST_CASE(it_resumes_into_the_executor_that_was_stopped) {
  const TemporaryFolder folder;
  const Outcome whole = uninterrupted("Adam");
  const CheckpointProgram program;
  program.executor.execute({.epochs = 1, .progress = false, .checkpoint = folder.path()});
  finish(program);  // diverges from the checkpoint
  for (int i = 0; i < 2; ++i) {
    program.executor.resume(folder.path());
    BOOST_CHECK_THROW(program.executor.value(), esp::Error);  // there has been no step
    BOOST_TEST((finish(program) == whole));
  }
}

BOOST_AUTO_TEST_CASE(epochs_count_from_the_beginning_of_the_run) {
  const TemporaryFolder folder;
  const CheckpointProgram program;
  program.executor.execute({.epochs = 2, .progress = false, .checkpoint = folder.path()});
  std::vector<int64_t> told;
  program.executor.on(esp::Event::epoch_start,
                      [&](const esp::StepInfo& info) { told.push_back(info.epoch); });
  for (const auto& [asked, done] : {std::pair<int64_t, size_t>{0, 2}, {1, 2}, {2, 2}, {3, 3}, {5, 5}}) {
    program.executor.resume(folder.path());
    const esp::History history = program.executor.execute({.epochs = asked, .progress = false});
    BOOST_TEST(history.epochs.size() == done);
    BOOST_TEST(!history.interrupted);
  }
  BOOST_TEST(told == (std::vector<int64_t>{2, 2, 3, 4}));
  BOOST_TEST(program.executor.execute({.epochs = 2, .progress = false}).epochs.size() == 2u);  // a new run
}

BOOST_AUTO_TEST_CASE(steps_go_on_at_the_next_one) {
  const auto all_steps = [](const CheckpointProgram& program, int64_t count) {
    std::vector<double> losses;
    while (count-- > 0) try {
        losses.push_back(program.executor.step().loss);
      } catch (const esp::EndOfData&) {
        losses.push_back(-1);
      }
    return losses;
  };
  const CheckpointProgram whole;
  const auto expected = all_steps(whole, 17);
  const std::string end = whole.state();
  for (int64_t stop = 0; stop <= 17; ++stop) {
    const TemporaryFolder folder;
    std::vector<double> losses;
    {
      const CheckpointProgram first;
      losses = all_steps(first, stop);
      first.executor.checkpoint(folder.path());
    }
    const CheckpointProgram second("Adam", 8, 99);
    second.executor.resume(folder.path());
    const auto rest = all_steps(second, 17 - stop);
    losses.insert(losses.end(), rest.begin(), rest.end());
    BOOST_TEST(losses == expected);
    BOOST_TEST(second.state() == end);
  }
  // A run that execute() began and step() continues, and vice versa.
  const TemporaryFolder folder;
  const Outcome by_epochs = uninterrupted("Adam");
  train_until(CheckpointProgram(), 7, folder.path());
  const CheckpointProgram mixed;
  mixed.executor.resume(folder.path());
  BOOST_TEST(mixed.executor.step().step == 2);
  BOOST_TEST((finish(mixed) == by_epochs));
}

BOOST_AUTO_TEST_CASE(settings_come_back) {
  const TemporaryFolder folder;
  const CheckpointProgram first;
  esp::optim::Optimizer shared = first.optimizer;
  shared.set_learning_rate(0.3);
  first.executor.checkpoint(folder.path());
  const CheckpointProgram second;
  second.executor.resume(folder.path());
  BOOST_TEST(second.optimizer.learning_rate() == 0.3);
  const esp::History a = first.executor.execute({.epochs = 2, .progress = false}),
                     b = second.executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(bits(a) != bits(b));  // the random generator of this thread has advanced
  second.executor.resume(folder.path());
  BOOST_TEST(bits(a) == bits(second.executor.execute({.epochs = 2, .progress = false})));
}

BOOST_AUTO_TEST_CASE(every_checkpoint_of_a_run_leads_to_its_end) {
  const Outcome whole = uninterrupted("Adam");
  for (const int64_t every : {0, 1, 3}) {
    const TemporaryFolder folder, copies;
    const CheckpointProgram program;
    // The callbacks of an event run before its checkpoint: the file is from the previous event.
    int64_t copied = 0;
    const auto copy = [&](const esp::StepInfo&) {
      if (fs::exists(folder.path()) && folder.files())
        fs::copy(folder.path(), copies / std::to_string(copied++));
    };
    program.executor.on(esp::Event::step_finish, copy);
    program.executor.on(esp::Event::epoch_finish, copy);
    const esp::History history = program.executor.execute(
        {.epochs = epochs, .progress = false, .checkpoint = folder.path(), .checkpoint_every = every});
    BOOST_TEST((Outcome{program.state(), bits(history)} == whole));  // the run is unchanged
    BOOST_TEST(copied > 10);
    for (int64_t i = 0; i < copied; i += 4) {
      const CheckpointProgram other;
      other.executor.resume(copies / std::to_string(i));
      BOOST_TEST((finish(other) == whole));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_epochs_callbacks_are_called_once) {
  // A callback that halves the learning rate must not do so twice for one epoch.
  const auto train = [](const CheckpointProgram& p, const fs::path& folder, int64_t n,
                        std::vector<std::string>& told, bool resume) {
    esp::optim::Optimizer optimizer = p.optimizer;
    for (const auto& [event, name] :
         {std::pair{esp::Event::epoch_start, "start "}, {esp::Event::epoch_finish, "finish "}})
      p.executor.on(event, [&, optimizer, name = std::string(name)](const esp::StepInfo& info) mutable {
        told.push_back(name + std::to_string(info.epoch));
        optimizer.set_learning_rate(optimizer.learning_rate() / 2);
      });
    if (resume) p.executor.resume(folder);
    return p.executor.execute({.epochs = n, .progress = false, .checkpoint = folder});
  };
  const TemporaryFolder folder, unused;
  std::vector<std::string> told, expected;
  const CheckpointProgram whole;
  train(whole, unused.path(), 4, expected, false);
  const std::string end = whole.state();
  train(CheckpointProgram(), folder.path(), 2, told, false);
  const CheckpointProgram second;
  train(second, folder.path(), 4, told, true);
  BOOST_TEST(told == expected);
  BOOST_TEST(second.state() == end);
}

BOOST_AUTO_TEST_CASE(placeholders_have_no_position) {
  const auto grow = [](double w) {
    const esp::Variable x = esp::placeholder("x", {2, 3});
    return (x * esp::parameter(esp::full({3}, w), "w"))
        .get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1)});
  };
  const TemporaryFolder folder;
  const esp::Executor a = grow(1), b = grow(2);
  const esp::Feeds feeds{{"x", esp::ones({2, 3})}};
  a.run(feeds);
  a.checkpoint(folder.path());
  b.resume(folder.path());
  BOOST_TEST(difference(a.run(feeds), b.run(feeds)) == 0);
  BOOST_TEST(difference(a.run(feeds), grow(1).run(feeds)) > 0);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const TemporaryFolder folder;
  train_until(CheckpointProgram(), 7, folder.path());
  const auto refused = [&](const esp::Executor& executor, std::initializer_list<std::string> parts) {
    BOOST_CHECK_EXCEPTION(executor.resume(folder.path()), esp::FileError, says(parts));
    BOOST_CHECK_EXCEPTION(executor.resume(folder.path()), esp::FileError,
                          says({"checkpoint-000001", here()}));
  };
  const CheckpointProgram wider("Adam", 9), sgd("Sgd");
  const std::string before = wider.state() + sgd.state();
  refused(wider.executor, {"'weight', float32 [8, 4]", "'weight', float32 [9, 4]"});
  refused(sgd.executor, {"leaf 4 (of 17 there and 9 here)", "'m', float32", "'momentum', float32"});
  BOOST_TEST(wider.state() + sgd.state() == before);

  const CheckpointProgram p;
  const esp::Variable loss = p.loss;
  using esp::Mode;
  refused(loss.get_executor({.mode = Mode::training, .optimizer = p.optimizer}), {"feed 1", "missing"});
  refused(loss.get_executor({.mode = Mode::inference}), {"leaf", "missing"});
  const auto other_feed = [&](const esp::data::DistributorOptions& options) {
    esp::seed(17);
    esp::nn::Sequential model{esp::nn::Dense(8), esp::nn::Tanh(), esp::nn::Dropout(0.3), esp::nn::Dense(2)};
    const esp::data::Distributor feed({p.numbers_of(1, {23, 4}), p.numbers_of(2, {23, 2})}, options);
    const auto [x, y] = feed.get_output_graphs<2>();
    return esp::nn::MeanSquared()(model(x), y)
        .get_executor(
            {.mode = Mode::training, .optimizer = esp::optim::Adam(0.01), .validation = p.held_out});
  };
  refused(other_feed({.batch_size = 6}), {"feed 0", "5 steps", "4 steps"});
  refused(other_feed({.batch_size = 5, .drop_remainder = true}), {"feed 0", "3 rows"});

  const auto other_validation = esp::data::Distributor({p.numbers_of(4, {8, 4}), p.numbers_of(5, {8, 2})},
                                                       {.batch_size = 3, .shuffle = true});
  refused(
      loss.get_executor({.mode = Mode::training, .optimizer = p.optimizer, .validation = other_validation}),
      {"the validation feed", "1 rows in the last", "2 rows in the last"});

  // A callback cannot resume.
  p.executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) { p.executor.resume(folder.path()); });
  BOOST_CHECK_EXCEPTION(p.executor.execute({.progress = false}), esp::Error,
                        says({"resume", "checkpoint_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(a_callback_cannot_begin_another_run) {
  const CheckpointProgram p;
  bool nested = true;
  p.executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
    if (!nested) return;
    BOOST_CHECK_EXCEPTION(p.executor.step(), esp::Error, says({"step", here()}));
    BOOST_CHECK_EXCEPTION(p.executor.execute({.progress = false}), esp::Error, says({"execute", here()}));
  });
  BOOST_TEST(p.executor.execute({.progress = false}).epochs.size() == 1u);
  BOOST_TEST(p.executor.step().step == 0);
}

BOOST_AUTO_TEST_CASE(folders_without_one) {
  const TemporaryFolder folder;
  const CheckpointProgram p;
  BOOST_CHECK_EXCEPTION(p.executor.resume(folder / "none"), esp::FileError, says({"none", here()}));
  BOOST_CHECK_EXCEPTION(p.executor.resume(folder.path()), esp::FileError, says({"no checkpoint", here()}));
  folder.write("checkpoint-000001.safetensors.77-0.tmp", "half");
  folder.write("checkpoint-1.safetensors", "not ours");
  folder.write("checkpoint-x.safetensors", "not ours");
  BOOST_CHECK_EXCEPTION(p.executor.resume(folder.path()), esp::FileError, says({"no checkpoint"}));
  esp::write_safetensors(folder / "checkpoint-000003.safetensors", {{"a", esp::ones({2})}});
  BOOST_CHECK_EXCEPTION(p.executor.resume(folder.path()), esp::FileError, says({"is no checkpoint"}));
}

BOOST_AUTO_TEST_CASE(where_nothing_can_be_written) {
  const TemporaryFolder folder;
  const CheckpointProgram p;
  const fs::path file = folder.write("file", "");
  BOOST_CHECK_EXCEPTION(p.executor.checkpoint(file), esp::FileError, says({"file", here()}));
  BOOST_CHECK_EXCEPTION(p.executor.checkpoint(file / "below"), esp::FileError, says({"below", here()}));
  int steps = 0;
  p.executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) { ++steps; });
  BOOST_CHECK_EXCEPTION(p.executor.execute({.progress = false, .checkpoint = file}), esp::FileError,
                        says({"file", here()}));
  BOOST_TEST(steps == 0);  // refused before the first step

  // A full disk, simulated.
  p.executor.checkpoint(folder / "run");
  const auto before = names_in(folder / "run");
  const std::string state = p.state();
  rlimit limit{}, none{.rlim_cur = 1000, .rlim_max = 0};
  BOOST_REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  none.rlim_max = limit.rlim_max;
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  BOOST_REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  std::string message;
  try {
    p.executor.execute({.progress = false, .checkpoint = folder / "run"});
  } catch (const esp::FileError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  BOOST_TEST(message.find("cannot be written") != message.npos);
  BOOST_TEST(names_in(folder / "run") == before);
  p.executor.resume(folder / "run");
  BOOST_TEST(p.state() == state);
}

BOOST_AUTO_TEST_CASE(leftovers_go_and_two_stay) {
  const TemporaryFolder folder;
  const CheckpointProgram p;
  folder.write("checkpoint-000001.safetensors.77-0.tmp", "half");
  folder.write("notes.txt", "the user's");
  for (int i = 0; i < 5; ++i) p.executor.checkpoint(folder.path());
  BOOST_TEST(
      names_in(folder.path()) ==
      (std::set<std::string>{"checkpoint-000004.safetensors", "checkpoint-000005.safetensors", "notes.txt"}));
}

BOOST_AUTO_TEST_CASE(damage_is_refused) {
  const TemporaryFolder folder;
  const CheckpointProgram p;
  train_until(p, 7, folder.path());
  const std::string good_state = p.state();
  const fs::path file = folder / "checkpoint-000001.safetensors";
  const std::string good = esp::read_file(file);
  const CheckpointProgram other("Adam", 8, 99);
  const TemporaryFolder clean;
  other.executor.checkpoint(clean.path());
  const std::string before = other.state();
  int64_t refused = 0, same = 0;
  const auto meet = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      other.executor.resume(folder.path());
    } catch (const esp::FileError&) {
      ++refused;
      BOOST_REQUIRE(other.state() == before);
      return;
    }
    ++same;
    BOOST_REQUIRE(other.state() == good_state);
    other.executor.resume(clean.path());
  };
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) meet(good.substr(0, random() % good.size()));
  BOOST_TEST(refused == 1000);
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    meet(bytes);
  }
  BOOST_TEST_MESSAGE(refused << " refused, " << same << " the same");
  BOOST_TEST(refused + same == 2000);
  meet(good + "x");
  meet("");
}

BOOST_AUTO_TEST_CASE(the_one_before_counts_once_a_damaged_one_is_removed) {
  const TemporaryFolder folder;
  const CheckpointProgram p;
  p.executor.checkpoint(folder.path());
  const std::string state = p.state();
  finish(p, 1);
  p.executor.checkpoint(folder.path());
  folder.write("checkpoint-000002.safetensors", "spoiled");
  BOOST_CHECK_EXCEPTION(p.executor.resume(folder.path()), esp::FileError,
                        says({"checkpoint-000002", "checkpoint-000001", "removed"}));
  fs::remove(folder / "checkpoint-000002.safetensors");
  p.executor.resume(folder.path());
  BOOST_TEST(p.state() == state);
}

BOOST_AUTO_TEST_SUITE_END()
