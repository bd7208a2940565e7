// What mpirun begins in tests: train <scenario> [folder]. Every rank trains together with the others, and
// says on a line of its own what came of it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>

#include "../replica_programs.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicator.h"
#include "espalier/executor/distributed.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

std::filesystem::path folder;

void say(const std::string& text) {
  const std::string line = "rank " + std::to_string(distributed::rank()) + ": " + text + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::perror("write");
}

/// Throws if this process does not train together with the others as it does alone.
void compare(const std::string& what, const std::function<Trace(bool distributed)>& train,
             double most = 1e-9) {
  const double difference = difference_of(train(true), train(false));
  if (!(difference <= most)) throw Error(what + " differs by " + std::to_string(difference));
}

void optimizers_train_alike() {
  for (uint32_t which = 0; which < optimizers; ++which)
    compare("optimizer " + std::to_string(which), [&](bool distributed) {
      return train_network({.optimizer = which, .distributed = distributed});
    });
}

void batches() {
  for (const int64_t batch : {1, 3, 8})
    for (const int parts : {1, 2})
      compare("batches of " + std::to_string(batch), [&](bool distributed) {
        return train_network(
            {.batch = batch, .accumulate = distributed ? parts : 1, .distributed = distributed});
      });
}

void threads() {
  compare("two replicas in each process", [&](bool distributed) {
    std::vector<Device> devices;
    if (distributed) devices = {cpu(0), cpu(1)};
    return train_network({.devices = devices, .distributed = distributed});
  });
}

void trees() {
  int compared = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) try {
      compare(
          "tree " + std::to_string(seed),
          [&](bool distributed) { return train_fuzz_tree(seed, {}, distributed); }, 1e-7);
      ++compared;
    } catch (const UnsupportedError&) {
    } catch (const ShapeError&) {
    }
  if (compared < 8) throw Error("too few trees");
}

/// A value with the rows of the batch is put together in every process.
void values() {
  compare("rows", [](bool distributed) {
    data::Distributor feed({numbers({7, 3}, -1, 1, 1)}, {.batch_size = 5});
    const Variable y = transpose(feed.get_output_graphs()[0] * parameter(numbers({3}), "w"));
    const Executor executor = y.get_executor({.distributed = distributed});
    Trace trace;
    for (int step = 0; step < 2; ++step) {
      trace.push_back(tensor(executor.step().loss, float64));
      trace.push_back(executor.value());
    }
    return trace;
  });
}

/// Processes that begin with other parameters train those of the first.
void first_values() {
  const auto train = [](bool distributed, uint64_t number) {
    data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
    const Variable w = parameter(numbers({3}, -1, 1, number), "w");
    const Executor executor =
        mean(square(feed.get_output_graphs()[0] * w))
            .get_executor({.optimizer = optim::Adam({.lr = 0.1}), .distributed = distributed});
    (void)executor.execute({.epochs = 2, .progress = false});
    return Trace{w.value().clone()};
  };
  const auto own = static_cast<uint64_t>(distributed::rank());
  if (!(difference_of(train(true, own), train(false, 0)) < 1e-12)) throw Error("others' first values");
}

/// Two epochs, of which the second is done by whoever resumes; what one process alone does is the measure.
struct Run {
  explicit Run(bool distributed = true) : network({.batch = 7, .distributed = distributed}) {
    executor = network.loss.get_executor({.optimizer = optimizer_of(7), .distributed = distributed});
  }
  void resume_and_compare() {
    executor->resume(folder);
    (void)executor->execute({.epochs = 4, .progress = false, .checkpoint = folder});
    seed(17);
    Run alone(false);
    (void)alone.executor->execute({.epochs = 4, .progress = false});
    const double difference = difference_of(network.values(), alone.network.values());
    if (!(difference < 1e-9))
      throw Error("the run that was taken up differs by " + std::to_string(difference));
  }
  TestNetwork network;
  std::optional<Executor> executor;
};

void resume() { Run().resume_and_compare(); }

/// Runs until a rank does this in the midst of the third epoch.
void train_until(const std::function<void(const StepInfo&)>& end) {
  Run run;
  run.executor->on(Event::step_finish, [&](const StepInfo& info) {
    if (info.epoch == 2 && info.step == 2) end(info);
  });
  const History history = run.executor->execute({.epochs = 4, .progress = false, .checkpoint = folder});
  say(std::string("ended ") + (history.interrupted ? "interrupted" : "by itself") + " after " +
      std::to_string(history.epochs.size()) + " epochs");
}

void dies() {
  train_until([](const StepInfo&) {
    if (distributed::rank() == 1) raise(SIGKILL);
  });
}
void hangs() {
  distributed::world()->set_timeout(2);
  train_until([](const StepInfo&) {
    if (distributed::rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(600));
  });
}
void throws() {
  train_until([](const StepInfo&) {
    if (distributed::rank() == 1) throw OutOfMemory("no memory for the picture");
  });
}
void interrupted() {
  train_until([](const StepInfo&) {
    if (distributed::rank() == 1) raise(SIGINT);
  });
}
void stops() {
  Run run;
  run.executor->on(Event::step_finish, [&](const StepInfo& info) {
    if (info.epoch == 1 && info.step == 2 && distributed::rank() == 1) run.executor->stop();
  });
  const History history = run.executor->execute({.epochs = 4, .progress = false});
  if (history.epochs.size() != 2 || history.interrupted || history.epochs[1].samples != 21)
    throw Error("it did not stop after the step");
}
void one_listens() {
  Run run;
  int64_t steps = 0;
  run.executor->on(Event::epoch_finish, [&](const StepInfo&) {});
  if (distributed::rank() == 1) {
    run.executor->on(Event::step_finish, [&](const StepInfo&) { ++steps; });
    run.executor->on(Event::epoch_start, [&](const StepInfo& info) {
      if (info.epoch == 2) run.executor->stop();
    });
  }
  const History history = run.executor->execute({.epochs = 4, .progress = false});
  // The third epoch ends before its first step.
  if (history.epochs.size() != 3 || history.epochs[2].samples != 0) throw Error("it did not stop");
  if (distributed::rank() == 1 && steps != 10)
    throw Error("it was told of " + std::to_string(steps) + " steps");
}
void other_order() {
  data::Distributor feed(
      {numbers({8, 3}, -1, 1, 1)},
      {.batch_size = 4, .shuffle = true, .seed = static_cast<uint64_t>(distributed::rank())});
  const Variable w = parameter(numbers({3}), "w");
  (void)mean(square(feed.get_output_graphs()[0] * w)).get_executor({.optimizer = optim::Sgd({.lr = 0.1})});
}
void wrong_label() {
  Tensor labels = TestNetwork::labels();
  labels.span<int64_t>()[28] = 5;  // the last row, which the last rank takes
  data::Distributor feed({numbers({29, 6}, -1, 1, 4), labels}, {.batch_size = 29});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Variable w = parameter(numbers({6, 5}, -1, 1, 1), "w");
  const Executor executor =
      softmax_cross_entropy(matmul(x, w), y).get_executor({.optimizer = optim::Sgd({.lr = 0.1})});
  (void)executor.execute({.progress = false});
}
void other_tree() {
  const Variable w = parameter(numbers({distributed::rank() == 1 ? 4 : 3}), "w");
  (void)mean(square(w)).get_executor({.optimizer = optim::Sgd({.lr = 0.1})});
}
void bad_folder() {
  Run run;
  (void)run.executor->execute({.epochs = 1, .progress = false, .checkpoint = "/proc/no/such/folder"});
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {{"optimizers", optimizers_train_alike},
                                                                  {"batches", batches},
                                                                  {"threads", threads},
                                                                  {"trees", trees},
                                                                  {"values", values},
                                                                  {"first_values", first_values},
                                                                  {"dies", dies},
                                                                  {"hangs", hangs},
                                                                  {"throws", throws},
                                                                  {"interrupted", interrupted},
                                                                  {"stops", stops},
                                                                  {"resume", resume},
                                                                  {"one_listens", one_listens},
                                                                  {"other_order", other_order},
                                                                  {"wrong_label", wrong_label},
                                                                  {"other_tree", other_tree},
                                                                  {"bad_folder", bad_folder}};
  if (argc < 2 || !scenarios.contains(argv[1])) return 2;
  if (argc > 2) folder = argv[2];
  try {
    seed(17);
    scenarios.at(argv[1])();
    say("done");
    return 0;
  } catch (const std::exception& error) {
    say(error.what());
    std::this_thread::sleep_for(
        std::chrono::seconds(1));  // that the others say their word before mpirun ends them
  }
  return 1;
}
