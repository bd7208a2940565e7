#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/tree.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/text.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

using Json = nlohmann::json;

/// The feeds of a tree that is made again.
class LoadedFeeds {
 public:
  LoadedFeeds(const PlanText& in, const std::vector<SavedFeed>& saved,
              const std::vector<data::Distributor>& data)
      : in_(in) {
    const auto fed = std::ranges::count_if(saved, [](const SavedFeed& feed) { return !feed.placeholder; });
    if (!data.empty() && std::cmp_not_equal(data.size(), fed))
      throw DataError(
          fmt::format("load_executor: the plan has {} feeds with data, and {} were given", fed, data.size()));
    auto next = data.begin();
    for (const SavedFeed& feed : saved) {
      if (feed.placeholder || data.empty()) {
        feeds_.push_back({});
        for (size_t i = 0; i < feed.specs.size(); ++i)
          feeds_.back().push_back(placeholder(feed.columns[i], feed.specs[i].shape, feed.specs[i].dtype));
      } else {
        check_fit(feed, *next->feed());
        feeds_.push_back((next++)->get_output_graphs());
      }
    }
  }

  /// A node of its own for each place in the tree, so that its age is that of the saved one.
  Variable source(int64_t feed, int64_t output, const std::source_location& where) const {
    if (feed >= std::ssize(feeds_) || output >= std::ssize(feeds_[static_cast<size_t>(feed)]))
      in_.fail(fmt::format("has a source of the output {} of the feed {}, which there is not", output, feed));
    const Node& known = *feeds_[static_cast<size_t>(feed)][static_cast<size_t>(output)].node();
    Variable source(new Node(known.op_, where));
    source.node()->outputs.push_back({known.outputs[0].spec, Tensor()});
    source.node()->lazy = true;
    return source;
  }

 private:
  static void check_fit(const SavedFeed& saved, const Feed& feed) {
    std::vector<Spec> specs = feed.specs();
    for (const OpenAxis& open : feed.open_axes()) specs[open.output].shape.dims()[open.axis] = -1;
    const auto fits = [](const Spec& there, const Spec& here) {
      bool fit = there.dtype == here.dtype && there.shape.rank() == here.shape.rank();
      for (size_t i = 1; fit && i < there.shape.rank(); ++i)
        fit = there.shape.dims()[i] == here.shape.dims()[i] || there.shape.dims()[i] == -1;
      return fit;
    };
    if (std::ranges::equal(saved.specs, specs, fits)) return;
    const auto list = [](const std::vector<Spec>& specs) {
      std::string text;
      for (const Spec& spec : specs) text += fmt::format(" {} {}", name(spec.dtype), spec.shape.str());
      return text;
    };
    throw DataError(fmt::format("load_executor: the plan was fed{}, and the data shows{}", list(saved.specs),
                                list(specs)));
  }

  const PlanText& in_;
  std::vector<std::vector<Variable>> feeds_;
};

/// The tensors of a file, each of which belongs to one leaf or to the run.
class ListedTensors {
 public:
  ListedTensors(const PlanText& in, const std::vector<Tensor>& tensors)
      : in_(in), tensors_(tensors), taken_(tensors.size()) {}

  const Tensor& take(const Json& number) {
    const auto most = static_cast<int64_t>(tensors_.size()) - 1;
    const auto i = static_cast<size_t>(in_.integer(number, "a tensor", 0, most));
    if (taken_[i]) in_.fail(fmt::format("names the tensor {} twice", i));
    taken_[i] = true;
    return tensors_[i];
  }

 private:
  const PlanText& in_;
  const std::vector<Tensor>& tensors_;
  std::vector<bool> taken_;
};

/// Makes the nodes of a file, one after the other. Each reads only nodes before it.
class TreeReader {
 public:
  TreeReader(const PlanText& in, ListedTensors& tensors, const LoadedFeeds& feeds,
             const std::source_location& where)
      : in_(in), tensors_(tensors), feeds_(feeds), where_(where) {}

  void read(const Json& nodes) {
    for (const Json& node : in_.list(nodes, "the list of nodes")) {
      try {
        made_.push_back(make(node));
      } catch (const FileError&) {
        throw;
      } catch (const Error& error) {
        in_.fail(fmt::format("has a node {} that cannot be made: {}", made_.size(), error.what()));
      }
    }
  }

  /// An output of a node, for one that reads it or as a result of the tree.
  Variable value(const Json& node, const Json& output) const {
    const auto last = static_cast<int64_t>(made_.size()) - 1;
    const Variable& made = made_[static_cast<size_t>(in_.integer(node, "a node before", 0, last))];
    if (made.node()->op().has_side_effects()) in_.fail("has a node that reads an assignment");
    // A node that was left out stands for one output of another.
    const bool alias = made.output() != 0;
    const int64_t outputs = alias ? 1 : static_cast<int64_t>(made.node()->outputs.size());
    const int64_t number = in_.integer(output, "an output of a node", 0, outputs - 1);
    return alias ? made : Variable(made.node(), static_cast<uint32_t>(number));
  }
  Variable value(const Json& pair) const {
    const Json& both = in_.array(pair, "a value", 2);
    return value(both[0], both[1]);
  }
  /// An assignment of the step.
  Variable update(const Json& pair) const {
    const Json& both = in_.array(pair, "an update", 2);
    const auto last = static_cast<int64_t>(made_.size()) - 1;
    const Variable& made = made_[static_cast<size_t>(in_.integer(both[0], "an update", 0, last))];
    if (!made.node()->op().has_side_effects()) in_.fail("has an update that assigns nothing");
    return made;
  }

 private:
  Variable make(const Json& node) const {
    if (!node.is_object()) in_.fail("has a node that is no object");
    if (node.contains("leaf")) return leaf(node);
    if (node.contains("feed"))
      return feeds_.source(in_.integer(in_.member(node, "feed"), "a feed", 0, INT64_MAX),
                           in_.integer(in_.member(node, "output"), "an output", 0, INT64_MAX), where_);
    return applied(node);
  }

  Variable leaf(const Json& node) const {
    const std::string& kind = in_.text(in_.member(node, "leaf"), "the kind of a leaf");
    const Tensor& value = tensors_.take(in_.member(node, "tensor"));
    if (kind == "constant") return make_leaf(constant_op(), value, where_);
    const std::string& name = in_.text(in_.member(node, "name"), "the name of a leaf");
    if (kind == "variable") return make_leaf(variable_op(), value, where_);
    if (kind == "state") return make_leaf(state_op(name), value, where_);
    if (kind != "parameter") in_.fail(fmt::format("has a leaf of the kind '{}'", kind));
    Variable parameter = make_leaf(parameter_op(name), value, where_);
    parameter.node()->frozen = node.contains("frozen") && in_.flag(node["frozen"], "frozen");
    return parameter;
  }

  Variable applied(const Json& node) const {
    const std::string& name = in_.text(in_.member(node, "op"), "the name of an op");
    const Json& list = in_.list(in_.member(node, "inputs"), "the inputs of a node");
    std::vector<Variable> inputs;
    if (list.size() % 2) in_.fail("has a node with half of an input");
    for (size_t i = 0; i < list.size(); i += 2) inputs.push_back(value(list[i], list[i + 1]));
    const bool custom = node.contains("custom") && in_.flag(node["custom"], "custom");
    if (!custom && !takes_inputs(name, inputs.size()))
      in_.fail(fmt::format("has an op '{}' with {} inputs, which no tree has", name, inputs.size()));
    Attributes attributes;
    if (node.contains("attributes")) attributes = in_.attributes(node["attributes"]);
    // Leaves are on the CPU, and so is the tree; the executor chooses the device.
    if (name == "to") return inputs[0];
    for (auto& [key, attribute] : attributes)
      if (key == "device") attribute = cpu().str();
    const OpPtr op = custom ? find_custom(name) : make_op(name, attributes);
    check_assignment(*op, inputs);
    BuildContext now = build_context();
    now.lazy = now.without_activations = true;
    now.no_grad = node.contains("no_grad") && in_.flag(node["no_grad"], "no_grad");
    now.tag = node.contains("tag") ? static_cast<Tag>(in_.integer(node["tag"], "a tag", 0, 2)) : Tag::forward;
    now.where = &where_;
    const BuildScope scope(now);
    std::vector<const Variable*> operands;
    for (const Variable& input : inputs) operands.push_back(&input);
    return apply(op, operands, where_);
  }

  OpPtr find_custom(const std::string& name) const {
    if (OpPtr op = registered_custom_op(name)) return op;
    in_.fail(fmt::format(
        "has the custom op '{}', which this program has not registered: register_custom_op(op)", name));
  }

  /// What assigns leaves names one that may be assigned.
  void check_assignment(const Op& op, const std::vector<Variable>& inputs) const {
    const bool orders = orders_assignment(op);
    if (!orders && !op.has_side_effects()) return;
    const Op& leaf = inputs[orders ? 1 : 0].node()->op();
    if (!leaf.is_leaf() || is_constant(leaf) || (orders && is_trainable(leaf)))
      in_.fail(fmt::format("has an op '{}' that assigns what cannot be assigned", op.name()));
  }

  const PlanText& in_;
  ListedTensors& tensors_;
  const LoadedFeeds& feeds_;
  const std::source_location where_;
  std::vector<Variable> made_;
};

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
  if (step.updates.empty()) in.fail("has a training without updates");
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
  tree.read(in.member(text, "nodes"));
  plan.root = tree.value(in.member(text, "value"));
  for (const Json& output : in.list(in.member(text, "outputs"), "the list of outputs"))
    plan.outputs.emplace_back(in.text(in.member(output, "name"), "the name of an output"),
                              read_output(in, output, tree, where));
  if (plan.mode == Mode::training) read_step(in, text, tree, plan.step);
  plan.run = {run_of(in, path, text, tensors), in.flag(in.member(text, "within_run"), "within_run")};
  return plan;
}

}  // namespace espalier
