#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/tree.h"
#include "espalier/core/version.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/text.h"
#include "espalier/ops/loop/scan_draws.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

namespace {

using Json = nlohmann::json;

/// What the tree and the steps of its loops have in common.
struct FileParts {
  const Setup& setup;
  PlanContainer& container;
  Json loops = Json::array();
  std::map<const LoopBody*, size_t> numbers = {};  ///< of loops
  std::map<const Node*, size_t> constant_tensors = {};
};

/// The nodes of a step, in the order of writing, as the text lists them.
class TreeText {
 public:
  /// `loop`: that whose step it is.
  explicit TreeText(FileParts& parts, const LoopBody* loop = nullptr) : parts_(parts), loop_(loop) {}

  Json add(const std::vector<Node*>& nodes) {
    Json list = Json::array();
    for (const Node* node : nodes) {
      if (position_.find(node) != NodeMap::none) continue;  // an operand
      list.push_back(text_of(*node));
      if (loop_ && node->op().is_random()) list.back()["draw"] = loop_->draws.at(node);
      add_position(node);
    }
    return list;
  }
  /// The step of a loop.
  Json step() {
    const LoopBody& loop = *loop_;
    Json text{{"states", loop.states}, {"sequences", loop.sequences}, {"operands", Json::array()}};
    if (loop.random_nodes) text["random_nodes"] = loop.random_nodes;
    if (loop.backwards) text["backwards"] = true;
    if (loop.gradient_of) text["gradient_of"] = number_of(*loop.gradient_of);
    for (const Variable& operand : loop.inputs) {
      text["operands"].push_back(plan_text_of(Spec{operand.dtype(), operand.shape()}));
      add_position(operand.node());
    }
    text["nodes"] = add(loop.nodes);
    text["outputs"] = values(loop.outputs);
    return text;
  }
  Json value(const Variable& variable) const {
    return Json::array({position_.find(variable.node()), variable.output()});
  }
  Json values(const std::vector<Variable>& variables) const {
    Json list = Json::array();
    for (const Variable& variable : variables) list.push_back(value(variable));
    return list;
  }

 private:
  void add_position(const Node* node) { position_.insert(node, static_cast<uint32_t>(position_.size())); }

  /// Of a loop in the list, behind those that it runs.
  size_t number_of(const LoopBody& loop) {
    if (const auto known = parts_.numbers.find(&loop); known != parts_.numbers.end()) return known->second;
    parts_.loops.push_back(TreeText(parts_, &loop).step());
    return parts_.numbers[&loop] = parts_.loops.size() - 1;
  }

  Json text_of(const Node& node) {
    if (node.is_leaf()) return leaf(node);
    if (const auto* feed = node.op().feed()) return source(**feed, node);
    Json text{{"op", node.op().name()}, {"inputs", Json::array()}};
    for (const Edge& input : node.inputs) {
      text["inputs"].push_back(position_.find(input.node()));
      text["inputs"].push_back(input.output());
    }
    if (node.tag != Tag::forward) text["tag"] = node.tag == Tag::backward ? 1 : 2;
    if (node.stops_gradient) text["no_grad"] = true;
    if (const LoopBodyPtr loop = body_of_draws(node.op())) {
      text["loop"] = number_of(*loop);
      return text;
    }
    if (const LoopBodyPtr loop = loop_body_of(node.op())) {
      text["loop"] = number_of(*loop);
      const ScanForm form = scan_form_of(node.op());
      text["reverse"] = form.reverse;
      text["keeps_states"] = form.keeps != 0;
      return text;
    }
    if (is_custom_op(node.op())) {
      check_registered(node);
      text["custom"] = true;
      return text;
    }
    const Attributes attributes = node.op().attributes();
    check_remade(node, attributes);
    if (!attributes.empty()) text["attributes"] = plan_text_of(attributes);
    return text;
  }

  Json leaf(const Node& node) {
    ensure_value(const_cast<Node&>(node));
    const Op& op = node.op();
    const char* kind = is_constant(op)    ? "constant"
                       : is_parameter(op) ? "parameter"
                       : is_trainable(op) ? "variable"
                                          : "state";
    Json text{{"leaf", kind}, {"tensor", tensor_of(node)}};
    if (!is_constant(op)) text["name"] = op.name();
    if (node.frozen) text["frozen"] = true;
    return text;
  }

  size_t tensor_of(const Node& leaf) {
    std::vector<Tensor>& tensors = parts_.container.tensors;
    if (const auto known = parts_.constant_tensors.find(&leaf); known != parts_.constant_tensors.end())
      return known->second;
    tensors.push_back(leaf.outputs[0].value.to(cpu()).contiguous_copy());
    if (is_constant(leaf.op())) parts_.constant_tensors[&leaf] = tensors.size() - 1;
    return tensors.size() - 1;
  }

  Json source(const Feed& feed, const Node& node) const {
    const auto& feeds = parts_.setup.feeds.all();
    const auto number = std::ranges::find(feeds, &feed, [](const auto& f) { return f.get(); });
    return {{"feed", number - feeds.begin()}, {"output", node.op().feed_output()}};
  }

  static void check_registered(const Node& node) {
    if (is_registered(node.op())) return;
    UnsupportedError error(
        fmt::format("save: the custom op '{}' is not registered, so that no program could find it again: "
                    "register_custom_op(op)",
                    node.op().name()));
    error.locate(node.where);
    throw error;
  }
  static void check_remade(const Node& node, const Attributes& attributes) {
    try {
      const Op& op = node.op();
      if (takes_inputs(op.name(), node.inputs.size()) && make_op(op.name(), attributes)->equals(op)) return;
    } catch (const Error&) {
    }
    UnsupportedError error(fmt::format(
        "save: a file cannot hold the op '{}', which has state beside its attributes", node.op().name()));
    error.locate(node.where);
    throw error;
  }

  FileParts& parts_;
  const LoopBody* loop_;
  NodeMap position_;
};

/// The names of what feeds with data show: those given, or column_0, column_1, …
class ColumnNames {
 public:
  ColumnNames(const Setup& setup, const std::vector<std::string>& given) : names_(given) {
    size_t columns = 0;
    for (const auto& feed : setup.feeds.all())
      if (!feed->is_placeholder()) columns += feed->specs().size();
    std::set<std::string> names(given.begin(), given.end());
    if (!given.empty() && (given.size() != columns || names.count("") || names.size() != columns))
      throw Error(fmt::format("save: {} columns need as many names, all different; given are '{}'", columns,
                              fmt::join(given, "', '")));
    for (size_t i = given.size(); i < columns; ++i)
      names.insert(names_.emplace_back(fmt::format("column_{}", i)));
    for (const auto& feed : setup.feeds.all())
      if (feed->is_placeholder() && !names.insert(feed->name()).second)
        throw Error(fmt::format("save: a column is named '{}', as a placeholder is", feed->name()));
  }
  std::string next() { return names_[next_++]; }

 private:
  std::vector<std::string> names_;
  size_t next_ = 0;
};

Json feeds_text(const Setup& setup, const std::vector<std::string>& given) {
  ColumnNames names(setup, given);
  Json list = Json::array();
  for (const auto& feed : setup.feeds.all()) {
    std::vector<Spec> specs = feed->specs();
    for (const OpenAxis& open : feed->open_axes()) specs[open.output].shape.dims()[open.axis] = -1;
    Json outputs = Json::array();
    for (const Spec& spec : specs)
      outputs.push_back(
          {{"name", feed->is_placeholder() ? feed->name() : names.next()}, {"spec", plan_text_of(spec)}});
    list.push_back({{"name", feed->name()}, {"placeholder", feed->is_placeholder()}, {"outputs", outputs}});
  }
  return list;
}

/// The outputs, those that are Metrics by the names of their functions.
Json outputs_text(const Setup& setup, const TreeText& tree) {
  Json list = Json::array();
  for (const auto& [name, output] : setup.options.outputs) {
    if (output.finish())
      list.push_back({{"name", name},
                      {"means", tree.values(output.variables())},
                      {"function", internal::name_of_metric_function(output.finish())}});
    else
      list.push_back({{"name", name}, {"value", tree.value(output.variables()[0])}});
  }
  return list;
}

bool is_metric(const std::pair<std::string, PlanOutput>& output) { return bool(output.second.finish()); }

void check_outputs(const Setup& setup) {
  for (const auto& [name, output] : setup.options.outputs)
    if (output.finish() && internal::name_of_metric_function(output.finish()).empty())
      throw UnsupportedError(fmt::format(
          "save: the output '{}' is a Metric of a function that has no name, so that no program could "
          "find it again: register_metric_function(name, means, function)",
          name));
}

}  // namespace

void write_plan(const std::filesystem::path& path, const Setup& setup, const SavedRun& run,
                const std::vector<std::string>& columns) {
  check_outputs(setup);
  const BuiltStep step = setup.training() ? setup.built_step() : BuiltStep();
  PlanContainer container{Json::object(), {}};
  Json& text = container.text;
  text["espalier"] = version;
  text["mode"] = setup.training() ? "training" : "inference";
  text["precision"] = static_cast<int>(setup.options.precision);
  text["accumulate"] = setup.options.accumulate;
  text["feeds"] = feeds_text(setup, columns);

  std::vector<Variable> roots = step.updates;
  roots.push_back(setup.root);
  for (const auto& [name, output] : setup.options.outputs)
    roots.insert(roots.end(), output.variables().begin(), output.variables().end());
  for (const auto& [parameter, gradient] : step.gradients) roots.insert(roots.end(), {parameter, gradient});
  FileParts parts{setup, container};
  TreeText tree(parts);
  text["nodes"] = tree.add(nodes_below(TreeWalk(roots)));
  text["value"] = tree.value(setup.root);
  text["outputs"] = outputs_text(setup, tree);
  if (std::ranges::any_of(setup.options.outputs, is_metric)) container.version = plan_format_with_metrics;
  if (!parts.loops.empty()) {
    text["loops"] = std::move(parts.loops);
    container.version = plan_format_version;
  }
  if (setup.training()) {
    text["updates"] = tree.values(step.updates);
    text["gradients"] = Json::array();
    for (const auto& [parameter, gradient] : step.gradients)
      text["gradients"].push_back(tree.values({parameter, gradient}));
    if (step.succeeded.defined()) text["succeeded"] = tree.value(step.succeeded);
    if (step.loss_scale)
      text["loss_scale"] = tree.values({step.loss_scale->factor(), step.loss_scale->good_steps()});
  }

  text["run"] = checkpoint_text(run.state);
  text["within_run"] = run.within;
  text["run_tensors"] = Json::array();
  for (auto& [name, tensor] : checkpoint_tensors(run.state)) {
    text["run_tensors"].push_back({name, container.tensors.size()});
    container.tensors.push_back(std::move(tensor));
  }
  write_plan_container(path, container);
}

}  // namespace espalier
