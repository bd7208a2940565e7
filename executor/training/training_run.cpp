// What callbacks see of a Trainer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/tree.h"
#include "espalier/executor/callback.h"
#include "espalier/executor/training/trainer.h"

namespace espalier {

namespace {

constexpr std::string_view validation_prefix = "validation_";  // of the figures of validation

}  // namespace

std::optional<double> EpochRecord::figure(std::string_view name) const {
  if (name == "loss") return loss_mean;
  if (name == "validation_loss")
    return std::isnan(validation_loss) ? std::nullopt : std::optional(validation_loss);
  if (const auto found = outputs.find(std::string(name)); found != outputs.end()) return found->second;
  if (!name.starts_with(validation_prefix)) return {};
  const auto found = validation_outputs.find(std::string(name.substr(validation_prefix.size())));
  return found == validation_outputs.end() ? std::nullopt : std::optional(found->second);
}

const History& TrainingRun::history() const { return trainer_.run_.state().history; }

EpochRecord TrainingRun::epoch() const {
  const RunState& state = trainer_.run_.state();
  if (state.begun || state.history.epochs.empty()) return trainer_.run_.record_now();
  return state.history.epochs.back();
}

std::vector<std::string> TrainingRun::figures() const {
  std::vector<std::string> names{"loss"};
  const std::vector<std::string> outputs = names_of(trainer_.setup_.figures);
  names.insert(names.end(), outputs.begin(), outputs.end());
  if (!trainer_.setup_.options.validation) return names;
  names.emplace_back("validation_loss");
  for (const std::string& output : outputs) names.push_back(std::string(validation_prefix) + output);
  return names;
}

void TrainingRun::check_figure(std::string_view caller, std::string_view name) const {
  const std::vector<std::string> known = figures();
  if (std::ranges::find(known, name) != known.end()) return;
  throw Error(fmt::format("{}: epochs of this run have no figure '{}', only {}{}", caller, name,
                          fmt::join(known, ", "),
                          trainer_.setup_.options.validation ? "" : "; there is no validation feed"));
}

double TrainingRun::figure(std::string_view name, Where where) const {
  return located(where, [&] {
    check_figure("figure", name);
    if (const auto figure = epoch().figure(name)) return *figure;
    throw Error(fmt::format("figure: '{}' is not known before the validation of the epoch", name));
  });
}

std::vector<double> Trainer::sums(const TrainingRun& run, std::string_view caller, std::string_view figure) {
  run.check_figure(caller, figure);
  const Trainer& trainer = run.trainer_;
  const auto own = names_of(trainer.setup_.figures);
  if (std::ranges::find(own, figure) != own.end()) return trainer.run_.sums_of(figure, false);
  if (!figure.starts_with(validation_prefix)) return {};
  return trainer.run_.sums_of(figure.substr(validation_prefix.size()), true);
}

Tensor TrainingRun::output(std::string_view name, Where where) const {
  return located(where, [&] { return trainer_.output(name); });
}

const Variable& TrainingRun::tree() const { return trainer_.setup_.root; }

std::vector<Variable> TrainingRun::leaves() const {
  std::vector<Variable> leaves;
  for (Node* node : nodes_below(TreeWalk(tree().node())))
    if (node->is_leaf() && !is_constant(node->op()) && !node->op().feed()) leaves.emplace_back(node);
  return leaves;
}

const optim::Optimizer* TrainingRun::optimizer() const {
  const auto& optimizer = trainer_.setup_.options.optimizer;
  return optimizer ? &*optimizer : nullptr;
}

bool TrainingRun::is_first() const { return trainer_.job_.is_first(); }
bool TrainingRun::failed() const { return trainer_.failed_; }
void TrainingRun::stop() const { trainer_.stop(); }

}  // namespace espalier
