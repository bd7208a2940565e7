#include "espalier/nn/onnx/graph_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/feed.h"
#include "espalier/core/op_names.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/ops/user_words.h"

namespace espalier::onnx {

namespace {

/// The names that the nodes of a graph read, also of graphs in it.
void add_inputs_of(const pb::GraphProto& graph, std::set<std::string>& names) {
  for (const pb::NodeProto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
    for (const pb::AttributeProto& attribute : node.attribute())
      if (attribute.has_g()) add_inputs_of(attribute.g(), names);
  }
}

bool shows_its_input(const Op& op) {
  constexpr std::string_view all[] = {"stop_gradient",  "checked_steps",   "checked_lengths",
                                      "checked_target", "checked_weights", "checked_indices",
                                      "recompute",      "recompute_input", "recompute_capture"};
  return std::ranges::count(all, op.name()) > 0;
}

}  // namespace

GraphWriter::GraphWriter(pb::GraphProto& graph, const SaveOptions& options) : graph_(graph) {
  for (const auto& [name, variable] : options.parameters)
    if (variable.defined()) given_names_.emplace(variable.node(), name);
}

int64_t GraphWriter::Call::axis(std::string_view attribute, int64_t rank) const {
  const int64_t axis = espalier::attribute<int64_t>(op, attribute);
  return axis < 0 ? axis + rank : axis;
}

std::string GraphWriter::fresh(std::string_view hint) {
  std::string name(hint);
  for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", hint, i);
  return name;
}

pb::NodeProto& GraphWriter::begin(std::string_view type, const Names& inputs, int outputs) {
  pb::NodeProto& node = *graph_.add_node();
  node.set_op_type(std::string(type));
  for (const std::string& input : inputs) node.add_input(input);
  const std::string name = fresh(type);
  node.set_name(name);
  for (int i = 0; i < outputs; ++i) node.add_output(i ? fresh(fmt::format("{}.{}", name, i)) : name);
  return node;
}

void GraphWriter::set(pb::NodeProto& node, std::string_view attribute, int64_t value) {
  pb::AttributeProto& added = *node.add_attribute();
  added.set_name(std::string(attribute));
  added.set_type(pb::AttributeProto::INT);
  added.set_i(value);
}
void GraphWriter::set(pb::NodeProto& node, std::string_view attribute, double value) {
  pb::AttributeProto& added = *node.add_attribute();
  added.set_name(std::string(attribute));
  added.set_type(pb::AttributeProto::FLOAT);
  added.set_f(static_cast<float>(value));
}
void GraphWriter::set(pb::NodeProto& node, std::string_view attribute, const std::vector<int64_t>& values) {
  pb::AttributeProto& added = *node.add_attribute();
  added.set_name(std::string(attribute));
  added.set_type(pb::AttributeProto::INTS);
  for (const int64_t value : values) added.add_ints(value);
}

void GraphWriter::set_text(pb::NodeProto& node, std::string_view attribute, const std::string& value) {
  pb::AttributeProto& added = *node.add_attribute();
  added.set_name(std::string(attribute));
  added.set_type(pb::AttributeProto::STRING);
  added.set_s(value);
}
void GraphWriter::set_texts(pb::NodeProto& node, std::string_view attribute,
                            const std::vector<std::string>& values) {
  pb::AttributeProto& added = *node.add_attribute();
  added.set_name(std::string(attribute));
  added.set_type(pb::AttributeProto::STRINGS);
  for (const std::string& value : values) added.add_strings(value);
}

std::string GraphWriter::constant(const Tensor& tensor) {
  const std::string name = fresh("constant");
  write_tensor(tensor, name, *graph_.add_initializer());
  return name;
}
std::string GraphWriter::integers(const std::vector<int64_t>& values) {
  return constant(tensor_from(values, {static_cast<int64_t>(values.size())}));
}
std::string GraphWriter::number(double value, DType dtype) {
  return constant(is_real(dtype) ? tensor(value, float64).to(dtype)
                                 : tensor(static_cast<int64_t>(value)).to(dtype));
}

const std::string& GraphWriter::name_of(const Edge& edge) const {
  const auto known = names_.find({edge.node(), edge.output()});
  if (known == names_.end())
    throw UnsupportedError(fmt::format("an input of the file is one output of '{}', and another one is read",
                                       edge.node()->op().name()));
  return known->second;
}

double GraphWriter::number_of(const Edge& edge, const Op& op) const {
  if (!is_constant(edge.node()->op()) || edge.spec().shape.elements() != 1)
    throw UnsupportedError(
        fmt::format("'{}' with a setting that is no constant cannot be written", op.name()));
  return edge.variable().value().to(cpu()).to(float64).item();
}

void GraphWriter::add_inputs(const NamedVariables& inputs) {
  int64_t batch = -1;  // the number of rows
  bool first_input = true;
  for (const auto& [name, variable] : inputs) {
    if (!variable.defined()) throw Error(fmt::format("the input '{}' is an undefined Variable", name));
    if (name.empty() || !taken_.insert(name).second)
      throw Error(fmt::format("'{}' cannot name an input: it is empty or taken", name));
    names_[{variable.node(), variable.output()}] = name;
    pb::ValueInfoProto& info = *graph_.add_input();
    info.set_name(name);
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(type_in_file(variable.dtype()));
    type.mutable_shape();
    for (int64_t axis = 0; axis < static_cast<int64_t>(variable.rank()); ++axis) {
      const int64_t size = variable.shape()[axis];
      auto& dim = *type.mutable_shape()->add_dim();
      const bool first = axis == 0 && variable.node()->lazy;
      const bool open = is_open_axis(variable, axis);
      if (first && batch < 0) batch = size;
      // Axes of one name have one size: open ones may have others.
      if (first && size == batch && (first_input || !open))
        dim.set_dim_param("batch");
      else if (first || open)
        dim.set_dim_param(fmt::format("{}_{}", name, axis));
      else
        dim.set_dim_value(size);
    }
    first_input = false;
  }
}

void GraphWriter::write_leaf(const Node& node) {
  const auto given = given_names_.find(&node);
  const std::string name = fresh(given != given_names_.end() ? given->second : std::string(node.op().name()));
  const Variable leaf(const_cast<Node*>(&node));
  write_tensor(leaf.value(), name, *graph_.add_initializer());
  names_[{&node, 0}] = name;
}

namespace {

/// With the user's function that has made the node, and its line.
std::string with_place(const std::string& reason, const Node& node) {
  return reason + node.where.place(reason, fmt::format("{}:{}", node.where.file_name(), node.where.line()));
}

}  // namespace

void GraphWriter::write_node(const Node& node) {
  if (node.is_leaf()) return write_leaf(node);
  if (const auto* feed = node.op().feed())
    throw Error(fmt::format("the tree reads '{}', which is none of the inputs", (*feed)->name()));
  const OpPtr instead = node.op().for_inference();
  Call call{node, instead ? *instead : node.op(), {}};
  for (const Edge& edge : node.inputs) call.inputs.push_back(name_of(edge));
  std::string name;
  if (chooses_by_phase(call.op))
    name = call.inputs.back();
  else if (shows_its_input(call.op))
    name = call.inputs[0];
  else if (is_op(call.op, "multiply"))  // what is kept by a dropout
    for (const size_t i : {0, 1}) {
      const OpPtr factor = node.inputs[i].node()->op().for_inference();
      if (factor && is_op(*factor, "full_like") && attribute<double>(*factor, "value") == 1)
        name = call.inputs[1 - i];
    }
  std::string reason = fmt::format("ONNX has nothing that computes {}", in_user_words(call.op));
  try {
    if (is_custom_op(call.op)) throw UnsupportedError(reason);
    for (const auto write : {write_elementwise, write_functions, write_layout, write_indexing,
                             write_reduction, write_windows, write_attention, write_recurrence, write_loop})
      if (name.empty()) name = write(*this, call);
  } catch (const UnsupportedError& error) {
    reason = error.what();
  }
  if (name.empty()) {
    // It is refused if something needs it in the end: patterns of several nodes may be written as one.
    name = fresh("refused");
    refused_[name] = with_place(reason, node);
  }
  names_[{&node, 0}] = name;
  for (uint32_t i = 1; i < node.outputs.size(); ++i) {
    if (names_.contains({&node, i})) continue;
    names_[{&node, i}] = fmt::format("{}.{}", name, i);
    const auto whole = refused_.find(name);
    refuse(
        names_[{&node, i}],
        whole != refused_.end()
            ? whole->second
            : with_place(fmt::format("output {} of {} cannot be written", i, in_user_words(call.op)), node));
  }
}

void GraphWriter::write(const Variable& root) {
  TreeWalk walk(root.node());
  std::vector<Node*> nodes;
  while (Node* node = walk.next()) {
    // Those that are known, and those at one of whose outputs the file begins.
    if (const auto first = names_.lower_bound({node, 0}); first != names_.end() && first->first.first == node)
      continue;
    nodes.push_back(node);
    // Of a choice by phase only the part for inference is walked.
    if (chooses_by_phase(node->op()))
      walk.enter(node->inputs[node->inputs.size() - 1].node());
    else
      walk.enter_inputs(*node);
  }
  sort_by_age(nodes);
  for (const Node* node : nodes) {
    if (chooses_by_phase(node->op())) {
      names_[{node, 0}] = name_of(node->inputs[node->inputs.size() - 1]);
      continue;
    }
    write_node(*node);
  }
}

void GraphWriter::add_outputs(const NamedVariables& outputs) {
  std::set<std::string> names, wanted;
  for (const auto& [name, variable] : outputs) {
    if (!variable.defined()) throw Error(fmt::format("the output '{}' is an undefined Variable", name));
    if (name.empty() || taken_.contains(name) || !names.insert(name).second)
      throw Error(fmt::format("'{}' cannot name an output: it is empty or taken", name));
  }
  taken_.insert(names.begin(), names.end());
  for (const auto& [name, variable] : outputs) {
    write(variable);
    add_output(name, variable);
    wanted.insert(name);
  }
  prune(wanted);
}

void GraphWriter::add_output(const std::string& name, const Variable& variable) {
  pb::NodeProto& node = *graph_.add_node();
  node.set_op_type("Identity");
  node.set_name("output " + name);
  node.add_input(name_of(Edge(variable)));
  node.add_output(name);
  describe(name, variable.dtype(), variable.rank(), *graph_.add_output());
}

void GraphWriter::describe(const std::string& name, DType dtype, size_t rank, pb::ValueInfoProto& info) {
  info.set_name(name);
  auto& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(type_in_file(dtype));
  type.mutable_shape();
  for (size_t axis = 0; axis < rank; ++axis) type.mutable_shape()->add_dim();
}

void GraphWriter::write_body(const LoopBody& body, const Names& inputs, pb::GraphProto& graph) {
  GraphWriter inner(graph, *this);
  graph.set_name(inner.fresh("step"));
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const Variable& input = body.inputs[i];
    const bool captured = i >= body.states + body.sequences;
    const std::string name = captured ? inputs[i] : inner.fresh(i < body.states ? "state" : "element");
    inner.names_[{input.node(), input.output()}] = name;
    if (!captured) describe(name, input.dtype(), input.rank(), *graph.add_input());
  }
  std::set<std::string> wanted;
  for (const Variable& output : body.outputs) {
    inner.write(output);
    const std::string name = inner.fresh("result");
    inner.add_output(name, output);
    wanted.insert(name);
  }
  inner.prune(wanted);
  taken_ = std::move(inner.taken_);
}

void GraphWriter::prune(const std::set<std::string>& outputs) {
  std::set<std::string> wanted = outputs;
  std::vector<pb::NodeProto> kept;
  for (int i = graph_.node_size() - 1; i >= 0; --i) {
    const pb::NodeProto& node = graph_.node(i);
    if (std::ranges::none_of(node.output(), [&](const std::string& name) { return wanted.contains(name); }))
      continue;
    wanted.insert(node.input().begin(), node.input().end());
    for (const pb::AttributeProto& attribute : node.attribute())
      if (attribute.has_g()) add_inputs_of(attribute.g(), wanted);
    kept.push_back(node);
  }
  for (const std::string& name : wanted)
    if (const auto refused = refused_.find(name); refused != refused_.end())
      throw UnsupportedError(refused->second);
  graph_.clear_node();
  for (auto node = kept.rbegin(); node != kept.rend(); ++node) *graph_.add_node() = *node;
  google::protobuf::RepeatedPtrField<pb::TensorProto> initializers;
  for (pb::TensorProto& tensor : *graph_.mutable_initializer())
    if (wanted.contains(tensor.name())) initializers.Add()->Swap(&tensor);
  graph_.mutable_initializer()->Swap(&initializers);
}

}  // namespace espalier::onnx
