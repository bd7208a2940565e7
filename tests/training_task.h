// A model trained in every way that users train one, for tests that compare them.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "espalier/nn/module.h"
#include "replica_programs.h"

namespace espalier::testing {

/// A Model is a Module whose call gives the loss of one batch of the columns.
template <class Model>
struct TrainingTask {
  std::vector<Tensor> columns;
  std::function<optim::Optimizer(const Model&)> optimizer;
  int64_t batch = 8, epochs = 10;
};

enum class Training {
  rebuilt,  ///< eagerly, with a new tree in each step
  eager,    ///< one tree over a feed
  frozen,
  replicas,  ///< two
};

struct TrainingRun {
  std::vector<double> losses;  ///< of each step
  Trace parameters;
};

template <class Model>
TrainingRun train(const TrainingTask<Model>& task, Training how) {
  seed(12);
  Model model;
  TrainingRun run;
  data::Distributor feed(task.columns, {.batch_size = task.batch});
  if (how == Training::rebuilt) {
    std::optional<optim::Optimizer> optimizer;
    for (int64_t step = 0; step < task.epochs * feed.steps(); ++step) {
      const int64_t begin = step % feed.steps() * task.batch, end = std::min(begin + task.batch, feed.rows());
      Variables batch;
      for (const Tensor& column : task.columns) batch.push_back(column.slice(0, begin, end));
      const Variable loss = model(batch);
      if (!optimizer) optimizer = task.optimizer(model);
      loss.backward().update(*optimizer);
      run.losses.push_back(loss.item());
    }
  } else {
    const Variable loss = model(feed.get_output_graphs());
    const optim::Optimizer optimizer = task.optimizer(model);
    if (how == Training::eager) {
      for (int64_t epoch = 0; epoch < task.epochs; ++epoch, feed.reset())
        for (int64_t step = 0; step < feed.steps(); ++step) {
          run.losses.push_back(loss.forward().item());
          loss.update(optimizer);
        }
    } else {
      const Executor executor =
          loss.get_executor({.optimizer = optimizer, .devices = cpus(how == Training::replicas ? 2 : 1)});
      executor.on(Event::step_finish, [&](const StepInfo& info) { run.losses.push_back(info.loss); });
      (void)executor.execute({.epochs = task.epochs, .progress = false});
    }
  }
  for (const auto& [name, p] : model.parameters()) run.parameters.push_back(p.value().clone());
  return run;
}

inline double difference_of(const TrainingRun& a, const TrainingRun& b) {
  const auto losses = [](const TrainingRun& run) {
    return tensor_from(run.losses, {static_cast<int64_t>(run.losses.size())});
  };
  return std::max(difference(losses(a), losses(b)), difference_of(a.parameters, b.parameters));
}

/// Checks that all ways give the same losses and parameters, and that the loss of the last quarter is less
/// than `fall` times that of the first.
template <class Model>
void check_training(const TrainingTask<Model>& task, double fall, double tolerance = 1e-11) {
  const TrainingRun rebuilt = train(task, Training::rebuilt);
  const size_t quarter = rebuilt.losses.size() / 4;
  double first = 0, last = 0;
  for (size_t i = 0; i < quarter; ++i) first += rebuilt.losses[i], last += rebuilt.losses.end()[-1 - int(i)];
  BOOST_TEST(last < fall * first);
  BOOST_TEST(difference_of(train(task, Training::eager), rebuilt) < tolerance, "eagerly over a feed");
  BOOST_TEST(difference_of(train(task, Training::frozen), rebuilt) < tolerance, "frozen");
  BOOST_TEST(difference_of(train(task, Training::replicas), rebuilt) < tolerance, "on two replicas");
}

}  // namespace espalier::testing
