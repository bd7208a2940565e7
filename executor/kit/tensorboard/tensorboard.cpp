#include "espalier/executor/kit/tensorboard/tensorboard.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/node.h"

namespace espalier {

TensorBoard::TensorBoard(std::filesystem::path folder, const TensorBoardOptions& options, Where where)
    : folder_(std::move(folder)), options_(options), where_(where) {
  located(where, [&] {
    if (folder_.empty()) throw FileError("TensorBoard: the event file needs a folder");
    if (options_.scalars_every < 0 || options_.histograms_every < 0)
      throw Error("TensorBoard: neither .scalars_every nor .histograms_every can be negative");
  });
}

EventSet TensorBoard::events(EventSet overridden) const {
  return overridden.set(static_cast<size_t>(Event::step_finish), options_.scalars_every > 0);
}

void TensorBoard::initialize(TrainingRun& run) {
  writer_.reset();
  if (!run.is_first()) return;
  if (run.info().epoch == 0 && run.info().step == 0) {  // else it goes on after resume
    earlier_steps_ += std::exchange(steps_, 0);
    earlier_epochs_ += std::exchange(epochs_, 0);
  }
  writer_.emplace(folder_, where_);
  if (options_.graph) writer_->add_graph(run.tree(), where_);
  if (options_.hyperparameters) write_hyperparameters(run);
  writer_->flush(where_);
}

void TensorBoard::write_hyperparameters(const TrainingRun& run) {
  std::vector<std::pair<std::string, HyperParameter>> values = options_.values;
  if (const optim::Optimizer* optimizer = run.optimizer()) {
    values.emplace_back("optimizer", std::string(optimizer->name()));
    for (const auto& [name, value] : optimizer->settings()) values.emplace_back(name, value);
  }
  std::vector<std::string> metrics;
  for (const std::string& figure : run.figures()) metrics.push_back("epoch/" + figure);
  writer_->add_hyperparameters(values, metrics, where_);
}

void TensorBoard::step_finish(TrainingRun& run) {
  const StepInfo& info = run.info();
  steps_ = info.epoch * info.steps + info.step + 1;
  const int64_t step = earlier_steps_ + steps_;
  if (writer_ && step % options_.scalars_every == 0)
    writer_->add_scalar("step/loss", info.loss, step, where_);
}

void TensorBoard::epoch_finish(TrainingRun& run) {
  if (!writer_) return;
  epochs_ = run.info().epoch + 1;
  const int64_t epoch = earlier_epochs_ + epochs_;
  const EpochRecord record = run.epoch();
  for (const std::string& name : run.figures())
    if (const auto figure = record.figure(name)) writer_->add_scalar("epoch/" + name, *figure, epoch, where_);
  if (const optim::Optimizer* optimizer = run.optimizer())
    for (const std::string& setting : optimizer->learning_rates()) {
      const std::string group = setting == "lr" ? "" : "/" + setting.substr(0, setting.size() - 3);
      writer_->add_scalar("epoch/learning_rate" + group, optimizer->scheduled_learning_rate(setting), epoch,
                          where_);
    }
  if (options_.histograms_every > 0 && epoch % options_.histograms_every == 0) write_histograms(run, epoch);
  writer_->flush(where_);
}

void TensorBoard::write_histograms(const TrainingRun& run, int64_t epoch) {
  std::vector<std::pair<std::string, Variable>> parameters;
  if (options_.module) {
    parameters = options_.module->parameters();
  } else {
    std::map<std::string, int> taken;
    for (const Variable& leaf : run.leaves()) {
      if (!is_parameter(leaf.node()->op())) continue;
      std::string name(leaf.node()->op().name());
      if (const int number = taken[name]++) name += fmt::format("_{}", number);
      parameters.emplace_back(name, leaf);
    }
  }
  for (auto& [path, parameter] : parameters) {
    for (char& c : path)
      if (c == '.') c = '/';
    writer_->add_histogram("parameters/" + path, parameter.value(), epoch, where_);
  }
}

void TensorBoard::teardown(TrainingRun&) {
  if (writer_) writer_->flush(where_);
  writer_.reset();
}

}  // namespace espalier
