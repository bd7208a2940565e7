// Run by mpirun in tests: train <scenario> [folder]. All ranks train together, and every rank prints its
// result on its own line.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>

#include "../optimizer_cases.h"
#include "../replica_programs.h"
#include "espalier/espalier.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

std::filesystem::path folder;

void say(const std::string& text) {
  const std::string line = "rank " + std::to_string(distributed::rank()) + ": " + text + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::perror("write");
}

/// Throws if distributed training and training in one process differ.
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
  for (const OptimizerCase& c : optimizer_cases())
    for (const bool shard : {false, true})
      compare(c.name, [&](bool distributed) {
        SmallProblem problem(c.simplex, float64, 1, 4);
        const optim::Optimizer rule = c.make(false);
        const ReplicaOptions how{.distributed = distributed, .shard_states = shard && distributed};
        (void)problem.loss.get_executor({.optimizer = rule, .replicas = how})
            .execute({.epochs = 6, .progress = false});
        Trace trace = problem.values();
        for (const auto& [name, p] : problem.parameters())
          for (const auto& [state, leaf] : rule.state_of(p)) trace.push_back(leaf.value().clone());
        return trace;
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

/// A value with the rows of the batch is gathered in every process.
void values() {
  compare("rows", [](bool distributed) {
    data::Distributor feed({numbers({7, 3}, -1, 1, 1)}, {.batch_size = 5});
    const Variable y = transpose(feed.get_output_graphs()[0] * parameter(numbers({3}), "w"));
    const Executor executor = y.get_executor({.replicas = {.distributed = distributed}});
    Trace trace;
    for (int step = 0; step < 2; ++step) {
      trace.push_back(tensor(executor.step().loss, float64));
      trace.push_back(executor.value());
    }
    return trace;
  });
}

/// Processes with different initial parameters train those of rank 0.
void first_values() {
  const auto train = [](bool distributed, uint64_t number) {
    data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
    const Variable w = parameter(numbers({3}, -1, 1, number), "w");
    const Executor executor =
        mean(square(feed.get_output_graphs()[0] * w))
            .get_executor({.optimizer = optim::Adam({.lr = 0.1}), .replicas = {.distributed = distributed}});
    (void)executor.execute({.epochs = 2, .progress = false});
    return Trace{w.value().clone()};
  };
  const auto own = static_cast<uint64_t>(distributed::rank());
  if (!(difference_of(train(true, own), train(false, 0)) < 1e-12))
    throw Error("the initial values of rank 0 are not used");
}

/// With sharded states, processes train as a single process does, and have all states at the end.
void sharded() {
  for (uint32_t which = 0; which < optimizers; ++which)
    compare("optimizer " + std::to_string(which), [&](bool distributed) {
      return train_network({.optimizer = which, .distributed = distributed, .shard_states = distributed});
    });
  for (const int64_t batch : {1, 7})
    compare("batches of " + std::to_string(batch), [&](bool distributed) {
      return train_network({.batch = batch,
                            .accumulate = distributed ? 2 : 1,
                            .distributed = distributed,
                            .shard_states = distributed});
    });
  for (const uint32_t which : {6u, 7u})
    compare("two replicas in each process", [&](bool distributed) {
      std::vector<Device> devices;
      if (distributed) devices = {cpu(0), cpu(1)};
      return train_network(
          {.optimizer = which, .devices = devices, .distributed = distributed, .shard_states = distributed});
    });
  for (const int64_t bytes : {0, 64})
    compare("gradients in messages of " + std::to_string(bytes), [&](bool distributed) {
      return train_network(
          {.optimizer = 6, .distributed = distributed, .shard_states = distributed, .bucket_bytes = bytes});
    });
  int compared = 0;
  for (uint32_t seed = 0; seed < 16; ++seed) try {
      compare(
          "tree " + std::to_string(seed),
          [&](bool distributed) { return train_fuzz_tree(seed, {}, distributed, distributed); }, 1e-7);
      ++compared;
    } catch (const UnsupportedError&) {
    } catch (const ShapeError&) {
    }
  if (compared < 6) throw Error("too few trees");
}

/// States that other processes own: when they can be read, and which executors can resume from them.
void sharded_states() {
  const std::filesystem::path own =
      std::filesystem::temp_directory_path() / ("espalier_sharded_" + std::to_string(getppid()));
  const auto need = [](bool good, const char* what) {
    if (!good) throw Error(what);
  };
  for (const bool threads : {false, true})
    compare("sharded states", [&](bool distributed) {
      seed(17);
      TestNetwork network({.batch = 7});
      const optim::Optimizer optimizer =
          optim::AdamW({.lr = 0.01, .epsilon = 1e-3, .clip_norm = 1, .schedule = optim::exponential(0.9)});
      const auto make = [&](bool shard) {
        std::vector<Device> devices;
        if (threads && distributed) devices = {cpu(0), cpu(1)};
        return network.loss.get_executor(
            {.optimizer = optimizer,
             .devices = devices,
             .replicas = {.distributed = distributed, .shard_states = shard && distributed}});
      };
      Trace trace;
      const auto note = [&] {
        for (const Tensor& value : network.values()) trace.push_back(value);
        trace.push_back(tensor(optimizer.scheduled_learning_rate(), float64));
        for (const Variable& p : network.parameters)
          for (const auto& [name, state] : optimizer.state_of(p)) trace.push_back(state.value().clone());
      };
      const Executor executor = make(true);
      (void)executor.execute({.epochs = 2, .progress = false});
      note();
      // Between gathers, each process has only its own states.
      int refused = 0, read = 0;
      (void)executor.step();
      for (const Variable& p : network.parameters)
        for (const auto& [name, state] : optimizer.state_of(p)) try {
            (void)state.value();
            ++read;
          } catch (const Error& error) {
            ++refused;
            need(std::string(error.what()).find("shard_states") != std::string::npos, error.what());
          }
      need(!distributed || refused > 0, "no state was refused");
      need(read > 0 || distributed::rank() > 0, "no state was readable");
      if (distributed) executor.checkpoint(own);
      note();
      try {
        while (true) (void)executor.step();
      } catch (const EndOfData&) {
      }
      note();
      // Another executor on the tree continues, and then the first.
      (void)make(false).execute({.progress = false});
      note();
      (void)executor.execute({.progress = false});
      note();
      // An executor without sharded states resumes from the checkpoint.
      if (distributed) {
        const Executor other = make(false);
        other.resume(own);
        const size_t before = trace.size();
        note();
        const auto each = static_cast<std::ptrdiff_t>(trace.size() - before);
        const Trace taken_up(trace.end() - each, trace.end()),
            left(trace.begin() + each, trace.begin() + 2 * each);
        need(difference_of(taken_up, left) == 0, "the checkpoint has other values");
        trace.resize(before);
      }
      return trace;
    });
  std::error_code ignored;
  distributed::world()->barrier();
  std::filesystem::remove_all(own, ignored);
}

/// A run that is resumed from `folder`, and compared with the same run in a single process.
struct Run {
  explicit Run(bool distributed = true, bool shard = false)
      : network({.batch = 7, .distributed = distributed}) {
    executor = network.loss.get_executor(
        {.optimizer = optimizer_of(7), .replicas = {.distributed = distributed, .shard_states = shard}});
  }
  void resume_and_compare() {
    executor->resume(folder);
    (void)executor->execute({.epochs = 4, .progress = false, .checkpoint = folder});
    seed(17);
    Run alone(false);
    (void)alone.executor->execute({.epochs = 4, .progress = false});
    const double difference = difference_of(network.values(), alone.network.values());
    if (!(difference < 1e-9)) throw Error("the resumed run differs by " + std::to_string(difference));
  }
  TestNetwork network;
  std::optional<Executor> executor;
};

void resume() { Run().resume_and_compare(); }
void resume_sharded() { Run(true, true).resume_and_compare(); }

/// Trains, and calls `end` in the middle of the third epoch.
void train_until(const std::function<void(const StepInfo&)>& end, bool shard = false) {
  Run run(true, shard);
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
void sharded_dies() {
  train_until(
      [](const StepInfo&) {
        if (distributed::rank() == 1) raise(SIGKILL);
      },
      true);
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
    throw Error("step_finish was called " + std::to_string(steps) + " times");
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
  labels.span<int64_t>()[28] = 5;  // the last row, which belongs to the last rank
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
/// Processes refuse to resume from different checkpoints, and stay unchanged.
void other_checkpoints() {
  const std::filesystem::path own =
      std::filesystem::temp_directory_path() / ("espalier_checkpoints_" + std::to_string(getppid()));
  const bool first = distributed::rank() == 0;
  Run run;
  const Trace begun = run.network.values();
  run.executor->checkpoint(own / "begun");
  (void)run.executor->execute({.epochs = 1, .progress = false});
  run.executor->checkpoint(own / "trained");
  const Trace trained = run.network.values();
  const auto refused = [&](const char* name, const std::string& reason) {
    try {
      run.executor->resume(own / name);
    } catch (const FileError& error) {
      if (std::string(error.what()).find(reason) == std::string::npos) throw;
      return;
    }
    throw Error(std::string("it resumed from ") + name);
  };
  refused(first ? "begun" : "trained", "one that was left at another step");
  refused(first ? "trained" : "begun", "one that was left at another step");
  refused(first ? "trained" : "none", first ? "cannot take up one" : "none");
  if (difference_of(run.network.values(), trained) != 0) throw Error("the parameters have changed");
  run.executor->resume(own / "begun");
  if (difference_of(run.network.values(), begun) != 0)
    throw Error("the resumed parameters differ from the checkpoint");
  const History history = run.executor->execute({.epochs = 1, .progress = false});
  if (history.epochs.size() != 1 || difference_of(run.network.values(), trained) != 0)
    throw Error("the epoch after resuming differs");
  distributed::world()->barrier();
  std::error_code ignored;
  std::filesystem::remove_all(own, ignored);
}
/// Processes with different options train nothing.
void other_options() {
  const Variable w = parameter(numbers({3}), "w");
  const bool first = distributed::rank() == 0;
  for (const double rate : {0.1, 0.2}) try {
      (void)mean(square(w)).get_executor({.optimizer = optim::Sgd({.lr = first ? 0.1 : rate})});
      if (rate == 0.2) throw Error("different rates were accepted");
    } catch (const CommunicatorError& error) {
      if (rate == 0.1 || std::string(error.what()).find("other options") == std::string::npos) throw;
    }
}
void bad_folder() {
  (void)Run().executor->execute({.epochs = 1, .progress = false, .checkpoint = "/proc/no/such/folder"});
}

/// Trains while this rank calls a function after each epoch.
void train_while(int rank, const std::function<void()>& callback) {
  Run run;
  run.executor->on(Event::epoch_finish, [&] {
    if (distributed::rank() == rank) callback();
  });
  (void)run.executor->execute({.epochs = 2, .progress = false});
}
void callback_throws() {
  train_while(1, [] { throw std::runtime_error("mine"); });
}
void evaluate_on_first(bool distributed) {
  const Tensor x = ones({4, 6}), y = ones({4, 1});
  train_while(0, [&] {
    (void)evaluate(nn::Dense(1), nn::MeanSquared(), {x, y}, {.replicas = {distributed}});
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {
      {"optimizers", optimizers_train_alike},
      {"batches", batches},
      {"threads", threads},
      {"trees", trees},
      {"values", values},
      {"first_values", first_values},
      {"sharded", sharded},
      {"sharded_states", sharded_states},
      {"dies", dies},
      {"hangs", hangs},
      {"throws", throws},
      {"interrupted", interrupted},
      {"stops", stops},
      {"resume", resume},
      {"one_listens", one_listens},
      {"other_order", other_order},
      {"resume_sharded", resume_sharded},
      {"sharded_dies", sharded_dies},
      {"wrong_label", wrong_label},
      {"other_tree", other_tree},
      {"other_checkpoints", other_checkpoints},
      {"other_options", other_options},
      {"bad_folder", bad_folder},
      {"evaluates", [] { evaluate_on_first(true); }},
      {"evaluates_alone", [] { evaluate_on_first(false); }},
      {"callback_throws", callback_throws}};
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
        std::chrono::seconds(1));  // so that other ranks can print before mpirun ends them
  }
  return 1;
}
