#include "espalier/executor/kit/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/gradient_of_constant.h"
#include "espalier/core/node.h"
#include "espalier/executor/communicators/caller.h"
#include "espalier/nn/mode_scope.h"
#include "espalier/optim/adam.h"

namespace espalier {

namespace {

/// A net and a loss over the batches of a feed.
struct FittedTree {
  Variable loss;
  std::vector<std::pair<std::string, PlanOutput>> outputs;
};

/// The figures of an epoch are the loss and its metrics, each a number with a name of its own.
PlanOutput metric_of(std::string_view caller, const NamedMetrics::value_type& named,
                     const Variable& prediction, const Variable& target) {
  const auto& [name, metric] = named;
  if (name == "loss" || name == "validation_loss")
    throw Error(
        fmt::format("{}: a metric cannot be named '{}', which is the loss of an epoch", caller, name));
  if (!metric) throw Error(fmt::format("{}: the metric '{}' is an empty function", caller, name));
  PlanOutput output = metric(prediction, target);
  const Variable& value = output.variables().front();
  if (!output.finish() && value.defined() && value.rank() > 0)
    throw ShapeError(
        fmt::format("{}: the metric '{}' is of shape {}; it must be a scalar, such as a mean over the batch",
                    caller, name, value.shape().str()));
  return output;
}

std::string columns_text(size_t count) { return fmt::format("{} column{}", count, count == 1 ? "" : "s"); }

/// "2 or 3 Variables".
std::string counts_text(const internal::NetCall& net) {
  std::string text;
  size_t last = 0;
  for (size_t count = 1; count <= internal::most_inputs; ++count) {
    if (!net.takes(count)) continue;
    text += fmt::format("{}{}", text.empty() ? "" : " or ", count);
    last = count;
  }
  return fmt::format("{} Variable{}", text, last == 1 ? "" : "s");
}

FittedTree write_tree(std::string_view caller, const internal::NetCall& net, const internal::LossCall& loss,
                      const data::Distributor& feed, const NamedMetrics& metrics) {
  const std::vector<Variable> columns = feed.get_output_graphs();
  const size_t inputs = std::max<size_t>(1, columns.size() - 1);
  if (!net.takes(inputs))
    throw DataError(
        fmt::format("{}: the data have {}, of which the last is the target; the net is called with {}",
                    caller, columns_text(columns.size()), counts_text(net)));
  const Variable prediction = net.call(std::span(columns).first(inputs));
  const Variable& y = columns.back();
  FittedTree tree{loss(prediction, y), {}};
  for (const auto& metric : metrics)
    tree.outputs.emplace_back(metric.first, metric_of(caller, metric, prediction, y));
  return tree;
}

bool has_checkpoint(const std::filesystem::path& folder) {
  std::error_code none;
  return std::filesystem::is_directory(folder, none) && !std::filesystem::is_empty(folder, none);
}

void check_batch_size(const PredictOptions& options) {
  if (options.batch_size < 1)
    throw Error(fmt::format("predict: a batch cannot have {} rows", options.batch_size));
}

/// What a net makes of rows, batch by batch.
class Predictions {
 public:
  Predictions(const nn::Module& module, const internal::NetCall& net, int64_t rows, Device device)
      : net_(net), runs_on_(internal::device_of_module(module)), rows_(rows), device_(device) {}

  bool complete() const { return result_.defined() && next_ == rows_; }
  void add(std::span<const Tensor> columns) {
    const int64_t rows = columns[0].shape()[0];
    std::vector<Variable> inputs;
    for (const Tensor& column : columns) inputs.emplace_back(column.to(runs_on_));
    const Tensor part = value_of(inputs);
    if (part.rank() == 0 || part.shape()[0] != rows)
      throw ShapeError(fmt::format("predict: the net makes {} of {} rows; it must have a row for each",
                                   part.shape().str(), rows));
    Shape all = part.shape();
    all.dims()[0] = rows_;
    if (!result_.defined()) result_ = Tensor(all, part.dtype(), device_);
    if (!(all == result_.shape()))
      throw ShapeError(
          fmt::format("predict: the net makes {} of rows {} to {}, and {} of all before: their shapes are "
                      "not one Tensor",
                      part.shape().str(), next_, next_ + rows - 1, result_.slice(0, 0, next_).shape().str()));
    Tensor place = result_.slice(0, next_, next_ + rows);
    copy_elements(part, place);
    next_ += rows;
  }
  Tensor result() const { return result_; }

 private:
  /// Without a tree, unless the net asks for gradients itself, as one of forces does.
  Tensor value_of(const std::vector<Variable>& inputs) {
    if (!asks_gradients_) {
      const NoGrad no_tree;
      try {
        return net_.call(inputs).value();
      } catch (const GradientOfConstant&) {
        asks_gradients_ = true;
      }
    }
    return net_.call(inputs).value();
  }

  const internal::NetCall& net_;
  Device runs_on_;
  int64_t rows_;
  Device device_;
  int64_t next_ = 0;
  bool asks_gradients_ = false;
  Tensor result_;
};

}  // namespace

data::Distributor TrainingData::distributor(const data::DistributorOptions& options) const {
  if (!defined()) throw DataError("there are no data");
  const data::Distributor feed = feed_      ? *feed_
                                 : dataset_ ? data::Distributor(dataset_, options)
                                            : data::Distributor(columns_, options);
  return feed;
}

size_t internal::inputs_for_prediction(std::string_view caller, const NetCall& net,
                                       const data::Distributor& feed) {
  const size_t columns = feed.get_output_graphs().size(), fewer = std::max<size_t>(1, columns - 1);
  if (net.takes(fewer)) return fewer;
  if (!net.takes(columns))
    throw DataError(fmt::format("{}: the data have {}; the net is called with {}", caller,
                                columns_text(columns), counts_text(net)));
  return columns;
}

Device internal::device_of_module(const nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? cpu() : parameters.front().second.device();
}

void internal::at_line(const std::source_location& where, const std::function<void()>& f) {
  const CallScope scope(where);
  located(*build_context().where, f);
}

History internal::fit(const nn::Module& module, const NetCall& net, const LossCall& loss,
                      const TrainingData& data, const FitOptions& options) {
  const CallerScope caller(*build_context().where, "fit");
  if (options.resume && options.checkpoint.empty())
    throw Error("fit: to resume it needs the folder of checkpoints: .checkpoint");
  const data::Distributor feed =
      data.distributor({.batch_size = options.batch_size, .shuffle = options.shuffle, .seed = options.seed});
  std::optional<FittedTree> tree;
  if (module.training()) {
    tree = write_tree("fit", net, loss, feed, options.metrics);
  } else {
    const nn::ModeScope training(module, true);
    tree = write_tree("fit", net, loss, feed, options.metrics);
  }
  ExecutorOptions how{.mode = Mode::training,
                      .optimizer = options.optimizer ? options.optimizer : optim::Adam({}),
                      .devices = options.devices,
                      .replicas = options.replicas,
                      .accumulate = options.accumulate,
                      .precision = options.precision,
                      .outputs = tree->outputs,
                      .memory_budget = options.memory_budget,
                      .find_nan = options.find_nan};
  if (options.validation.defined())
    how.validation = options.validation.distributor({.batch_size = options.batch_size});
  const Executor executor = tree->loss.get_executor(how);
  for (const AnyCallback& callback : options.callbacks) executor.use(callback);
  if (options.resume && has_checkpoint(options.checkpoint)) executor.resume(options.checkpoint);
  return executor.execute({.epochs = options.epochs,
                           .progress = options.progress,
                           .checkpoint = options.checkpoint,
                           .handle_interrupt = options.handle_interrupt,
                           .stop_on_nan = options.stop_on_nan});
}

Tensor internal::predict(const nn::Module& module, const NetCall& net, const Tensor& x,
                         const PredictOptions& options) {
  if (!x.defined()) throw Error("predict: the samples are an undefined Tensor");
  if (x.rank() == 0) throw ShapeError("predict: a scalar has no rows");
  check_batch_size(options);
  const nn::ModeScope inference(module, false);
  Predictions predictions(module, net, x.shape()[0], x.device());
  for (int64_t begin = 0; !predictions.complete(); begin += options.batch_size)
    predictions.add(std::vector{x.slice(0, begin, std::min(x.shape()[0], begin + options.batch_size))});
  return predictions.result();
}

Tensor internal::predict(const nn::Module& module, const NetCall& net, const TrainingData& data,
                         const PredictOptions& options) {
  check_batch_size(options);
  data::Distributor feed = data.distributor({.batch_size = options.batch_size});
  const size_t inputs = inputs_for_prediction("predict", net, feed);
  const nn::ModeScope inference(module, false);
  Predictions predictions(module, net, feed.rows(), cpu());
  const int64_t epoch = feed.feed()->epoch();
  for (int64_t step = 0; !predictions.complete(); ++step) {
    const auto batch = feed.feed()->batch(epoch, step);
    predictions.add(std::span(batch).first(inputs));
  }
  feed.reset();
  return predictions.result();
}

EpochRecord internal::evaluate(const nn::Module& module, const NetCall& net, const LossCall& loss,
                               const TrainingData& data, const EvaluateOptions& options) {
  const CallerScope caller(*build_context().where, "evaluate");
  const data::Distributor feed = data.distributor({.batch_size = options.batch_size});
  const nn::ModeScope inference(module, false);
  const FittedTree tree = write_tree("evaluate", net, loss, feed, options.metrics);
  const Executor executor = tree.loss.get_executor({.mode = Mode::inference,
                                                    .devices = options.devices,
                                                    .replicas = options.replicas,
                                                    .precision = options.precision,
                                                    .outputs = tree.outputs});
  return executor.execute({.progress = false, .handle_interrupt = false, .stop_on_nan = false})
      .epochs.front();
}

}  // namespace espalier
