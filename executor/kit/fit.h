// fit, predict, evaluate: a training in one call, and what to do with its result.
#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/kit/net_call.h"
#include "espalier/nn/container.h"
#include "espalier/nn/module.h"

namespace espalier {

/// Samples and targets: tensors with their rows on the first axis, the columns of a dataset, or a Distributor
/// of such. The last column is the target, those before are what the net is called with: {x, y} is a net's
/// call net(x), {a, b, y} is net(a, b). With one column, samples are their own targets.
class TrainingData {
 public:
  /// No data.
  TrainingData() = default;
  TrainingData(std::initializer_list<Tensor> columns) : columns_(columns) {}
  TrainingData(std::vector<Tensor> columns) : columns_(std::move(columns)) {}
  TrainingData(std::shared_ptr<const data::Dataset> dataset) : dataset_(std::move(dataset)) {}
  template <std::derived_from<data::Dataset> D>
  TrainingData(std::shared_ptr<D> dataset) : dataset_(std::move(dataset)) {}
  /// Its own options hold: batch size, order, seed.
  TrainingData(data::Distributor feed) : feed_(std::move(feed)) {}

  bool defined() const { return feed_ || dataset_ || !columns_.empty(); }
  /// Throws DataError as Distributor does, or if there are no data.
  data::Distributor distributor(const data::DistributorOptions& options) const;

 private:
  std::vector<Tensor> columns_;
  std::shared_ptr<const data::Dataset> dataset_;
  std::optional<data::Distributor> feed_;
};

/// What is computed of predictions and targets, by names: {{"accuracy", esp::accuracy}}, or functions of
/// one's own that return a scalar Variable, a mean over the rows, or a Metric. "loss" and "validation_loss"
/// are taken.
using NamedMetrics =
    std::vector<std::pair<std::string, std::function<PlanOutput(const Variable&, const Variable&)>>>;

/// What has no comment means the same as in ExecutorOptions, ExecuteOptions and data::DistributorOptions.
struct FitOptions {
  /// Unless it is given: optim::Adam with its default settings.
  std::optional<optim::Optimizer> optimizer = {};
  int64_t epochs = 1;
  int64_t batch_size = 32;
  bool shuffle = true;
  uint64_t seed = 0;
  /// Its loss and metrics are computed in inference, after each epoch: without dropout, and by the running
  /// statistics of a BatchNorm.
  TrainingData validation = {};
  NamedMetrics metrics = {};
  std::vector<AnyCallback> callbacks = {};
  std::vector<Device> devices = {};
  ReplicaOptions replicas = {};
  int accumulate = 1;
  Precision precision = Precision::float32;
  int64_t memory_budget = 0;
  bool find_nan = false;
  std::optional<bool> progress = {};
  std::filesystem::path checkpoint = {};
  /// Goes on from the last checkpoint of the folder, if there is one.
  bool resume = false;
  std::optional<bool> handle_interrupt = {};
  bool stop_on_nan = true;
};

struct PredictOptions {
  int64_t batch_size = 256;
};

struct EvaluateOptions {
  int64_t batch_size = 256;
  NamedMetrics metrics = {};
  std::vector<Device> devices = {};
  ReplicaOptions replicas = {};
  Precision precision = Precision::float32;
};

namespace internal {
using LossCall = std::function<Variable(const Variable&, const Variable&)>;
History fit(const nn::Module& module, const NetCall& net, const LossCall& loss, const TrainingData& data,
            const FitOptions& options);
Tensor predict(const nn::Module& module, const NetCall& net, const Tensor& x, const PredictOptions& options);
Tensor predict(const nn::Module& module, const NetCall& net, const TrainingData& data,
               const PredictOptions& options);
EpochRecord evaluate(const nn::Module& module, const NetCall& net, const LossCall& loss,
                     const TrainingData& data, const EvaluateOptions& options);
/// How many columns of the data `net` is called with where there may be a target.
size_t inputs_for_prediction(std::string_view caller, const NetCall& net, const data::Distributor& feed);
/// Where its parameters are.
Device device_of_module(const nn::Module& module);
/// Calls `f`; what it writes and throws has the line `where`.
void at_line(const std::source_location& where, const std::function<void()>& f);
}  // namespace internal

/// Trains `net` so that `loss(net(x), y)`, or `loss(net(a, b), y)`, gets small, by an executor. In its
/// training mode: as it is if it is in it, else all its parts are while the tree is written. Throws DataError
/// if the net is not called with so many columns, and what writing the tree, `get_executor` and `execute`
/// throw.
template <NetOfVariables Net, class Loss>
History fit(Net net, const Loss& loss, const TrainingData& data, const FitOptions& options = {},
            std::source_location where = std::source_location::current()) {
  History history;
  internal::at_line(where, [&] {
    history = internal::fit(
        net, internal::net_call(net),
        [&loss](const Variable& p, const Variable& y) -> Variable { return loss(p, y); }, data, options);
  });
  return history;
}

/// net(x) for the rows of `x`, some at a time, eagerly in inference mode, where the net's parameters are.
/// There is no tree, as under NoGrad, unless the net asks for gradients itself: then its first call is
/// repeated with one. The result is where `x` is. Throws what the net throws, ShapeError for a scalar or if
/// the net does not return a row for each, Error for a batch size below 1. The net's modes are afterwards as
/// before.
template <nn::SequentialElement Net>
Tensor predict(Net net, const Tensor& x, const PredictOptions& options = {},
               std::source_location where = std::source_location::current()) {
  Tensor result;
  internal::at_line(where, [&] { result = internal::predict(net, internal::net_call(net), x, options); });
  return result;
}

/// The same for the samples of data, which are read batch by batch. As for `fit` the last column is a target,
/// which is not used; a net that is not called with fewer Variables than there are columns is called with
/// all. Rows are in the order of the dataset; a Distributor's own options hold, its order and batch size too,
/// and it is then in its next epoch. The result is on the CPU. Throws besides DataError as `fit` does, and
/// ShapeError if rows of two batches differ in shape.
template <NetOfVariables Net>
Tensor predict(Net net, const TrainingData& data, const PredictOptions& options = {},
               std::source_location where = std::source_location::current()) {
  Tensor result;
  internal::at_line(where, [&] { result = internal::predict(net, internal::net_call(net), data, options); });
  return result;
}

/// The mean of `loss(net(x), y)` over the samples (`loss_mean`), and metrics (`outputs`), in inference mode,
/// by an executor: the batches' losses, weighted by their rows. That of a loss that divides by another
/// number, as one with `.class_weights` or `.ignored_label`, depends on the batch size: with a batch of all
/// rows it is the loss of all. A Distributor is then in its next epoch. In a job all processes call it, or
/// one says .replicas = {.distributed = false}.
template <NetOfVariables Net, class Loss>
EpochRecord evaluate(Net net, const Loss& loss, const TrainingData& data, const EvaluateOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  EpochRecord record;
  internal::at_line(where, [&] {
    record = internal::evaluate(
        net, internal::net_call(net),
        [&loss](const Variable& p, const Variable& y) -> Variable { return loss(p, y); }, data, options);
  });
  return record;
}

}  // namespace espalier
