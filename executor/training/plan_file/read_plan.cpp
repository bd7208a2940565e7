#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/tree.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/read_tree.h"
#include "espalier/executor/training/plan_file/text.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

namespace {

using Json = nlohmann::json;

bool is_scalar_state(const Variable& v) {
  const Op& op = v.node()->op();
  return op.is_leaf() && !is_constant(op) && !is_trainable(op) && v.rank() == 0;
}

void read_step(const PlanText& in, const Json& text, const TreeReader& tree, BuiltStep& step) {
  std::set<const Node*> assigned;
  for (const Json& update : in.list(in.member(text, "updates"), "the list of updates")) {
    step.updates.push_back(tree.update(update));
    if (!assigned.insert(step.updates.back().node()->inputs[0].node()).second)
      in.fail("has a step that updates a leaf twice");
  }
  for (const Json& pair : in.list(in.member(text, "gradients"), "the list of gradients")) {
    const Json& both = in.array(pair, "a gradient", 2);
    const Variable parameter = tree.value(both[0]), gradient = tree.value(both[1]);
    if (!is_trainable(parameter.node()->op()) || parameter.dtype() != gradient.dtype() ||
        !(parameter.shape() == gradient.shape()))
      in.fail("has a gradient that is none of its parameter");
    step.gradients.emplace_back(parameter, gradient);
  }
  if (text.contains("succeeded")) {
    step.succeeded = tree.value(text["succeeded"]);
    const auto below = nodes_below(TreeWalk(step.updates));
    if (step.succeeded.dtype() != DType::boolean || step.succeeded.rank() != 0 ||
        std::ranges::find(below, step.succeeded.node()) == below.end())
      in.fail("has a condition of its updates that is none");
  }
  if (text.contains("loss_scale")) {
    const Json& both = in.array(text["loss_scale"], "the scale of the loss", 2);
    const Variable factor = tree.value(both[0]), good_steps = tree.value(both[1]);
    if (!is_scalar_state(factor) || !is_scalar_state(good_steps))
      in.fail("has a scale of the loss that is none");
    step.loss_scale.emplace(factor, good_steps);
  }
}

PlanOutput read_output(const PlanText& in, const Json& output, const TreeReader& tree,
                       const std::source_location& where) {
  if (!output.contains("function")) return tree.value(in.member(output, "value"));
  std::vector<Variable> means;
  for (const Json& mean : in.list(in.member(output, "means"), "the means of an output"))
    means.push_back(tree.value(mean));
  const std::string& function = in.text(output["function"], "the function of an output");
  try {
    return internal::metric_of(std::move(means), function, where);
  } catch (const Error& error) {
    in.fail(fmt::format("has an output that cannot be made: {}", error.what()));
  }
}

Checkpoint run_of(const PlanText& in, const std::filesystem::path& path, const Json& text,
                  ListedTensors& listed) {
  NamedTensors tensors;
  for (const Json& entry : in.list(in.member(text, "run_tensors"), "the tensors of a run")) {
    const Json& both = in.array(entry, "a tensor of a run", 2);
    tensors.emplace_back(in.text(both[0], "the name of a tensor"), listed.take(both[1]));
  }
  return checkpoint_from(path, in.text(in.member(text, "run"), "the state of a run"), std::move(tensors));
}

}  // namespace

SavedPlan read_plan(const std::filesystem::path& path, const std::vector<data::Distributor>& data,
                    const std::source_location& where) {
  const PlanContainer container = read_plan_container(path);
  const InputFile file(path);  // for the errors that name it
  const PlanText in(file);
  const Json& text = container.text;
  SavedPlan plan;
  plan.mode = saved_mode(in, text);
  plan.precision = static_cast<Precision>(
      in.integer(in.member(text, "precision"), "the precision", 0, static_cast<int>(Precision::float16)));
  plan.accumulate = static_cast<int>(in.integer(in.member(text, "accumulate"), "accumulate", 1, 1 << 20));
  plan.feeds = saved_feeds(in, in.member(text, "feeds"));
  const LoadedFeeds feeds(in, plan.feeds, data);
  ListedTensors tensors(in, container.tensors);
  TreeReader tree(in, tensors, feeds, where);
  if (text.contains("loops")) tree.read_loops(text["loops"]);
  tree.read(in.member(text, "nodes"));
  plan.root = tree.value(in.member(text, "value"));
  for (const Json& output : in.list(in.member(text, "outputs"), "the list of outputs"))
    plan.outputs.emplace_back(in.text(in.member(output, "name"), "the name of an output"),
                              read_output(in, output, tree, where));
  if (plan.mode == Mode::training) {
    read_step(in, text, tree, plan.step);
    if (plan.step.updates.empty() && !assigns_states(plan.root, plan.outputs))
      in.fail("has a training without updates");
  }
  plan.run = {run_of(in, path, text, tensors), in.flag(in.member(text, "within_run"), "within_run")};
  return plan;
}

}  // namespace espalier
