#include "espalier/executor/training/plan_file/read_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/loop_operand.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/loop/scan_draws.h"
#include "espalier/ops/loop/scan_op.h"
#include "espalier/ops/ops.h"

namespace espalier {

using Json = nlohmann::json;

namespace {

/// Throws DataError for data that does not show what the feed did.
void check_fit(const SavedFeed& saved, const Feed& feed) {
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
  throw DataError(
      fmt::format("load_executor: the plan was fed{}, and the data shows{}", list(saved.specs), list(specs)));
}

}  // namespace

LoadedFeeds::LoadedFeeds(const PlanText& in, const std::vector<SavedFeed>& saved,
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

Variable LoadedFeeds::source(int64_t feed, int64_t output, const std::source_location& where) const {
  if (feed >= std::ssize(feeds_) || output >= std::ssize(feeds_[static_cast<size_t>(feed)]))
    in_.fail(fmt::format("has a source of the output {} of the feed {}, which there is not", output, feed));
  const Node& known = *feeds_[static_cast<size_t>(feed)][static_cast<size_t>(output)].node();
  Variable source(new Node(known.op_, where));
  source.node()->outputs.push_back({known.outputs[0].spec, Tensor()});
  source.node()->lazy = true;
  copy_open_axes(feeds_[static_cast<size_t>(feed)][static_cast<size_t>(output)], *source.node());
  return source;
}

size_t ListedTensors::index(const Json& number) const {
  const auto most = static_cast<int64_t>(tensors_.size()) - 1;
  return static_cast<size_t>(in_.integer(number, "a tensor", 0, most));
}

const Tensor& ListedTensors::take(const Json& number) {
  const size_t i = index(number);
  if (taken_[i]) in_.fail(fmt::format("names the tensor {} twice", i));
  taken_[i] = true;
  return tensors_[i];
}

Variable ListedTensors::constant(const Json& number, const std::source_location& where) {
  Variable& constant = constants_[index(number)];
  if (!constant.defined()) constant = make_leaf(constant_op(), take(number), where);
  return constant;
}

void TreeReader::read_loops(const Json& loops) {
  for (const Json& text : in_.list(loops, "the list of loops")) try {
      loops_->push_back(loop(text));
    } catch (const FileError&) {
      throw;
    } catch (const Error& error) {
      in_.fail(fmt::format("has a loop {} that cannot be made: {}", loops_->size(), error.what()));
    }
}

LoopBodyPtr TreeReader::loop(const Json& text) const {
  const auto body = std::make_shared<LoopBody>();
  for (const Json& spec : in_.list(in_.member(text, "operands"), "the operands of a loop"))
    body->inputs.push_back(loop_operand(in_.spec(spec, "the spec of an operand", 0), cpu()));
  TreeReader step(*this, body->inputs);
  step.read(in_.member(text, "nodes"));
  if (text.contains("random_nodes"))
    body->random_nodes =
        static_cast<size_t>(in_.integer(text["random_nodes"], "random nodes", 1, LoopBody::largest));
  const auto last_draw = static_cast<int64_t>(body->random_nodes) - 1;
  for (size_t i = 0; i < text["nodes"].size(); ++i)
    if (text["nodes"][i].contains("draw"))
      body->draws[step.made_[body->inputs.size() + i].node()] =
          static_cast<size_t>(in_.integer(text["nodes"][i]["draw"], "a draw", 0, last_draw));
  const Json& outputs = in_.list(in_.member(text, "outputs"), "the outputs of a loop");
  for (const Json& output : outputs) body->outputs.push_back(step.value(output));
  const auto operands = std::ssize(body->inputs),
             most = std::min<int64_t>(operands, std::ssize(body->outputs));
  body->states = static_cast<size_t>(in_.integer(in_.member(text, "states"), "states", 0, most));
  const int64_t others = operands - static_cast<int64_t>(body->states) - (body->random_nodes ? 1 : 0);
  body->sequences = static_cast<size_t>(in_.integer(in_.member(text, "sequences"), "sequences", 1, others));
  body->backwards = text.contains("backwards") && in_.flag(text["backwards"], "backwards");
  if (text.contains("gradient_of")) body->gradient_of = loop_before(text["gradient_of"]);
  const size_t listed = body->random_nodes;
  body->finish();
  if (body->random_nodes != listed) in_.fail("has a loop with a random node that has no draw");
  return body;
}

void TreeReader::read(const Json& nodes) {
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

Variable TreeReader::value(const Json& node, const Json& output) const {
  const auto last = static_cast<int64_t>(made_.size()) - 1;
  const Variable& made = made_[static_cast<size_t>(in_.integer(node, "a node before", 0, last))];
  if (made.node()->op().has_side_effects()) in_.fail("has a node that reads an assignment");
  // A node that was left out stands for one output of another.
  const bool alias = made.output() != 0;
  const int64_t outputs = alias ? 1 : static_cast<int64_t>(made.node()->outputs.size());
  const int64_t number = in_.integer(output, "an output of a node", 0, outputs - 1);
  return alias ? made : Variable(made.node(), static_cast<uint32_t>(number));
}

Variable TreeReader::value(const Json& pair) const {
  const Json& both = in_.array(pair, "a value", 2);
  return value(both[0], both[1]);
}

Variable TreeReader::update(const Json& pair) const {
  const Json& both = in_.array(pair, "an update", 2);
  const auto last = static_cast<int64_t>(made_.size()) - 1;
  const Variable& made = made_[static_cast<size_t>(in_.integer(both[0], "an update", 0, last))];
  if (!made.node()->op().has_side_effects()) in_.fail("has an update that assigns nothing");
  return made;
}

Variable TreeReader::make(const Json& node) const {
  if (!node.is_object()) in_.fail("has a node that is no object");
  if (node.contains("leaf")) return leaf(node);
  if (!node.contains("feed")) return applied(node);
  if (!feeds_) in_.fail("has a loop whose step has a feed");
  return feeds_->source(in_.integer(in_.member(node, "feed"), "a feed", 0, INT64_MAX),
                        in_.integer(in_.member(node, "output"), "an output", 0, INT64_MAX), where_);
}

Variable TreeReader::leaf(const Json& node) const {
  const std::string& kind = in_.text(in_.member(node, "leaf"), "the kind of a leaf");
  const Json& tensor = in_.member(node, "tensor");
  if (kind == "constant") return tensors_.constant(tensor, where_);
  if (!feeds_) in_.fail(fmt::format("has a loop whose step has a leaf of the kind '{}'", kind));
  const Tensor& value = tensors_.take(tensor);
  const std::string& name = in_.text(in_.member(node, "name"), "the name of a leaf");
  if (kind == "variable") return make_leaf(variable_op(), value, where_);
  if (kind == "state") return make_leaf(state_op(name), value, where_);
  if (kind != "parameter") in_.fail(fmt::format("has a leaf of the kind '{}'", kind));
  Variable parameter = make_leaf(parameter_op(name), value, where_);
  parameter.node()->frozen = node.contains("frozen") && in_.flag(node["frozen"], "frozen");
  return parameter;
}

Variable TreeReader::applied(const Json& node) const {
  const std::string& name = in_.text(in_.member(node, "op"), "the name of an op");
  const Json& list = in_.list(in_.member(node, "inputs"), "the inputs of a node");
  std::vector<Variable> inputs;
  if (list.size() % 2) in_.fail("has a node with half of an input");
  for (size_t i = 0; i < list.size(); i += 2) inputs.push_back(value(list[i], list[i + 1]));
  const OpPtr op = op_of(node, name, inputs.size());
  if (!op) return inputs[0];
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

/// Null for an op that is left out, as it is its first input here: leaves are on the CPU, and so is the tree;
/// the executor chooses the device.
OpPtr TreeReader::op_of(const Json& node, const std::string& name, size_t inputs) const {
  if (node.contains("loop")) return find_loop(node, name);
  if (node.contains("custom") && in_.flag(node["custom"], "custom")) return find_custom(name);
  if (!takes_inputs(name, inputs))
    in_.fail(fmt::format("has an op '{}' with {} inputs, which no tree has", name, inputs));
  Attributes attributes;
  if (node.contains("attributes")) attributes = in_.attributes(node["attributes"]);
  if (name == "to") return nullptr;
  for (auto& [key, attribute] : attributes)
    if (key == "device") attribute = cpu().str();
  return make_op(name, attributes);
}

OpPtr TreeReader::find_custom(const std::string& name) const {
  if (OpPtr op = registered_custom_op(name)) return op;
  in_.fail(fmt::format(
      "has the custom op '{}', which this program has not registered: register_custom_op(op)", name));
}

LoopBodyPtr TreeReader::loop_before(const Json& number) const {
  const auto last = std::ssize(*loops_) - 1;
  return (*loops_)[static_cast<size_t>(in_.integer(number, "a loop before", 0, last))];
}

OpPtr TreeReader::find_loop(const Json& node, const std::string& name) const {
  const LoopBodyPtr loop = loop_before(node["loop"]);
  if (name == "scan_draws") return scan_draws_op(loop);
  if (name != "scan") in_.fail(fmt::format("has an op '{}' with a loop, which is none", name));
  const bool reverse = in_.flag(in_.member(node, "reverse"), "reverse");
  return scan_op(loop, {reverse, in_.flag(in_.member(node, "keeps_states"), "keeps_states")});
}

/// What assigns leaves names one that may be assigned.
void TreeReader::check_assignment(const Op& op, const std::vector<Variable>& inputs) const {
  const bool orders = orders_assignment(op);
  if (!orders && !op.has_side_effects()) return;
  const Op& leaf = inputs[orders ? 1 : 0].node()->op();
  if (!leaf.is_leaf() || is_constant(leaf) || (orders && is_trainable(leaf)))
    in_.fail(fmt::format("has an op '{}' that assigns what cannot be assigned", op.name()));
}

}  // namespace espalier
