#include "espalier/nn/onnx/model_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/node.h"
#include "espalier/core/tree.h"
#include "espalier/core/values_later.h"
#include "espalier/nn/onnx/errors.h"
#include "espalier/nn/onnx/functions.h"
#include "espalier/nn/onnx/registry.h"
#include "espalier/nn/onnx/size_values.h"
#include "espalier/nn/onnx/tensors.h"

namespace espalier::onnx {

namespace {

/// Functions that call each other, and graphs inside of graphs.
constexpr int most_depth = 64;

/// An axis has no more elements: numbers that are made of two sizes have 64 bits.
constexpr int64_t longest_axis = int64_t{1} << 40;

void check_sizes(const std::string& what, const Shape& shape) {
  for (const int64_t size : shape)
    if (size > longest_axis) throw UnsupportedError(fmt::format("{} has an axis of {} elements", what, size));
  (void)shape.elements();  // which have to be counted
}

bool is_main_domain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

std::string full_name(const pb::NodeProto& node) {
  return is_main_domain(node.domain()) ? node.op_type() : node.domain() + "." + node.op_type();
}

std::string quoted(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

}  // namespace

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->around)
    if (const auto known = scope->values.find(name); known != scope->values.end()) return &known->second;
  return nullptr;
}

ModelReader::ModelReader(const pb::ModelProto& proto, std::filesystem::path file, const LoadOptions& options,
                         const std::source_location& where)
    : proto_(proto), file_(std::move(file)), options_(options), where_(where) {}

void ModelReader::read_opsets() {
  for (const auto& opset : proto_.opset_import())
    opsets_[is_main_domain(opset.domain()) ? "" : opset.domain()] = opset.version();
  if (!opsets_.contains("")) opsets_[""] = 1;
  model_.opset_ = opsets_[""];
}

Tensor ModelReader::tensor_of(const pb::TensorProto& proto) {
  Tensor tensor = read_tensor(proto, file_);
  if (depth_ > 0) count_copy(tensor);
  return tensor;
}

/// Each call of a function or an inner graph copies its constants, and each Identity an initializer, so that
/// a small file could ask for any number of bytes.
void ModelReader::count_copy(const Tensor& tensor) {
  copied_bytes_ += static_cast<int64_t>(tensor.bytes());
  if (copied_bytes_ > options_.largest_constant &&
      copied_bytes_ - options_.largest_constant > static_cast<int64_t>(proto_.ByteSizeLong()))
    throw UnsupportedError(
        fmt::format("copies of initializers and the constants of its loops, branches and functions take more "
                    "bytes than the file and LoadOptions::largest_constant, which is {}",
                    options_.largest_constant));
}

void ModelReader::read_initializers(const pb::GraphProto& graph, Scope& scope, bool outermost) {
  if (graph.sparse_initializer_size()) throw UnsupportedError("the file has sparse initializers");
  for (const pb::TensorProto& initializer : graph.initializer()) {
    const std::string& name = initializer.name();
    const Tensor tensor = tensor_of(initializer);
    if (name.empty()) throw FileError("an initializer has no name");
    if (scope.values.contains(name))
      throw FileError(fmt::format("there are two initializers named '{}'", name));
    const bool weight = outermost && is_real(tensor.dtype()) && tensor.rank() > 0;
    scope.values.emplace(name, weight ? add_weight(name, tensor) : Value{Variable(tensor, where_), true});
  }
}

/// A parameter, or a buffer if it is a running statistic.
Value ModelReader::add_weight(const std::string& name, const Tensor& tensor) {
  weights_.emplace(name, tensor);
  if (statistics_.contains(name)) {
    std::string last;
    return {module_of(name, last).add_buffer(last, tensor, where_)};
  }
  parameters_.emplace_back(name, parameter(tensor, name, where_));
  return {parameters_.back().second};
}

/// Exporters write equal weights once, and the others as an Identity: each is a weight of its own. An output
/// of the file shows the weight itself.
bool ModelReader::adds_equal_weight(const pb::NodeProto& node) {
  if (node.op_type() != "Identity" || !is_main_domain(node.domain()) || node.input_size() != 1 ||
      node.output_size() != 1 || node.attribute_size())
    return false;
  const auto first = weights_.find(node.input(0));
  const std::string& name = node.output(0);
  if (first == weights_.end() || name.empty() || scope_.values.contains(name) ||
      std::ranges::any_of(proto_.graph().output(), [&](const auto& output) { return output.name() == name; }))
    return false;
  count_copy(first->second);
  scope_.values.emplace(name, add_weight(name, first->second.clone()));
  return true;
}

Variable ModelReader::make_input(const pb::ValueInfoProto& info) {
  const std::string what = fmt::format("input '{}'", info.name());
  if (!info.type().has_tensor_type()) throw UnsupportedError(fmt::format("{} is no tensor", what));
  const auto& type = info.type().tensor_type();
  const DType dtype = need_dtype(type.elem_type(), what);
  if (!type.has_shape()) throw UnsupportedError(fmt::format("{} has no shape", what));
  Dims dims;
  for (const auto& dim : type.shape().dim()) {
    const auto named =
        std::ranges::find_if(options_.sizes, [&](const auto& size) { return size.first == dim.dim_param(); });
    const bool open = !dim.has_dim_value();
    const int64_t size = !open ? dim.dim_value() : named != options_.sizes.end() ? named->second : -1;
    if (size < (open ? -1 : 0)) throw FileError(fmt::format("{} has an axis of size {}", what, size));
    dims.push_back(size);
  }
  for (const int64_t size : dims)
    if (size > longest_axis) throw UnsupportedError(fmt::format("{} has an axis of size {}", what, size));
  return placeholder(info.name(), Shape(dims), dtype, where_);
}

/// The names in `options` are those of the file.
void ModelReader::check_options() const {
  std::set<std::string> inputs, axes;
  for (const pb::ValueInfoProto& info : proto_.graph().input()) {
    if (scope_.values.contains(info.name())) continue;  // an initializer is its default
    inputs.insert(info.name());
    for (const auto& dim : info.type().tensor_type().shape().dim())
      if (!dim.dim_param().empty()) axes.insert(dim.dim_param());
  }
  std::set<std::string> given;
  const auto once = [&](std::string_view option, const std::string& name) {
    if (!given.insert(name).second)
      throw DataError(fmt::format("LoadOptions::{}: '{}' was given twice", option, name));
  };
  for (const auto& [name, variable] : options_.inputs) {
    if (!inputs.contains(name))
      throw DataError(fmt::format("the file has no input '{}'; it has {}", name, quoted(inputs)));
    once("inputs", name);
  }
  given.clear();
  for (const auto& [name, size] : options_.sizes) {
    if (!axes.contains(name))
      throw DataError(
          fmt::format("LoadOptions::sizes: no axis of an input is named '{}' in the file; it has {}", name,
                      quoted(axes)));
    once("sizes", name);
  }
}

/// What `own` is for the tree: something that stands for it, if axes of the batch have no number in the file.
Variable ModelReader::given_input(const pb::ValueInfoProto& info, const Variable& own) {
  const auto& type = info.type().tensor_type();
  std::set<size_t> open = axes_of_batch(own);
  if (type.has_shape()) {
    if (static_cast<size_t>(type.shape().dim_size()) != own.rank())
      throw ShapeError(fmt::format("the input '{}' has {} axes in the file, and {} is given", info.name(),
                                   type.shape().dim_size(), own.shape().str()));
    for (int axis = 0; axis < type.shape().dim_size(); ++axis) {
      const auto& dim = type.shape().dim(axis);
      const auto named = std::ranges::find_if(
          options_.sizes, [&](const auto& size) { return size.first == dim.dim_param(); });
      if (dim.has_dim_value() || named != options_.sizes.end()) open.erase(static_cast<size_t>(axis));
      if (named != options_.sizes.end() && named->second != own.shape()[axis])
        throw ShapeError(fmt::format("the input '{}' has {} for its axis '{}', and LoadOptions::sizes {}",
                                     info.name(), size_text(own.shape()[axis]), named->first, named->second));
    }
  }
  return open.empty() ? own : stand_ins_.add(info.name(), own, open);
}

void ModelReader::read_inputs() {
  for (const pb::ValueInfoProto& info : proto_.graph().input()) {
    if (scope_.values.contains(info.name())) continue;  // an initializer is its default
    const auto own =
        std::ranges::find_if(options_.inputs, [&](const auto& input) { return input.first == info.name(); });
    Value value;
    if (own == options_.inputs.end()) {
      value.variable = make_input(info);
    } else {
      value.variable = own->second;
      if (!value.variable.defined())
        throw Error(fmt::format("the input '{}' is an undefined Variable", info.name()));
      const int32_t type = info.type().tensor_type().elem_type();
      if (type && value.variable.dtype() != need_dtype(type, fmt::format("input '{}'", info.name())))
        throw TypeError(fmt::format("the input '{}' is {} in the file, not {}", info.name(), type_text(type),
                                    name(value.variable.dtype())));
      value.constant = is_constant(value.variable.node()->op());
      value.variable = given_input(info, value.variable);
    }
    if (!scope_.values.emplace(info.name(), value).second)
      throw FileError(fmt::format("there are two inputs named '{}'", info.name()));
    model_.inputs_.emplace_back(info.name(), own == options_.inputs.end() ? value.variable : own->second);
  }
}

Value ModelReader::folded(Variable variable, const FileNode& node) const {
  if (!node.constant() || node.random() || !variable.defined()) return {variable, false};
  if (variable.node()->lazy) return {variable, false};
  TreeWalk walk(variable.node());
  while (const Node* below = walk.next()) {
    for (const Output& output : below->outputs)
      if (!below->is_leaf() && output.spec.bytes() > options_.largest_constant)
        throw UnsupportedError(fmt::format(
            "{}: a constant of shape {} would take {} bytes, more than "
            "LoadOptions::largest_constant, which is {}",
            node.label(), output.spec.shape.str(), output.spec.bytes(), options_.largest_constant));
    walk.enter_inputs(*below);
  }
  if (is_constant(variable.node()->op())) return {variable, true};
  return {Variable(variable.value(where_), where_), true};
}

void ModelReader::translate(const pb::NodeProto& node, Scope& scope, const Opsets& opsets) {
  if (++nodes_ > options_.most_nodes)
    throw UnsupportedError(fmt::format(
        "its loops, branches and functions have more nodes than LoadOptions::most_nodes, which is {}",
        options_.most_nodes));
  std::vector<Value> inputs;
  for (const std::string& name : node.input()) {
    const Value* value = name.empty() ? nullptr : scope.find(name);
    if (!name.empty() && !value)
      throw FileError(fmt::format("node '{}' ({}) reads '{}', which nothing before it makes", node.name(),
                                  full_name(node), name));
    inputs.push_back(value ? *value : Value{});
  }
  std::vector<Value> outputs;
  const auto domain = opsets.find(is_main_domain(node.domain()) ? "" : node.domain());
  const int64_t opset = domain == opsets.end() ? 1 : domain->second;
  const Translate translate =
      is_main_domain(node.domain()) ? registry().find(node.op_type(), opset) : nullptr;
  if (translate) {
    FileNode file_node(
        node, opset, inputs, options_.largest_constant,
        [&](const pb::TensorProto& tensor) { return tensor_of(tensor); },
        [&](const pb::GraphProto& graph, const std::vector<Value>& values) {
          return run(graph, values, scope, opsets);
        });
    with_prefix(file_node.label(), [&] {
      const Outputs made = located(where_, [&] {
        if (std::vector<Value> read = with_sizes_read(file_node); !read.empty())
          file_node.set_inputs(std::move(read));
        return translate(file_node);
      });
      file_node.check_attributes();
      Outputs constants;
      for (size_t i = 0; i < made.size(); ++i) {
        if (made[i].defined()) check_sizes(fmt::format("its output {}", i), made[i].shape());
        outputs.push_back(folded(made[i], file_node));
        constants.push_back(outputs[i].constant ? outputs[i].variable : Variable());
      }
      const auto sizes = sizes_after(file_node, translate, constants);
      for (size_t i = 0; i < sizes.size() && i < outputs.size(); ++i) outputs[i].sizes = sizes[i];
      if (!file_node.made_sizes().empty()) outputs[0].sizes = file_node.made_sizes();
      if (node.op_type() == "Shape" && node.attribute_size() == 0) outputs[0].shape_of = file_node[0];
    });
  } else if (const pb::FunctionProto* function = find_function(proto_, node)) {
    outputs = call(*function, node, inputs);
  } else {
    throw UnsupportedError(fmt::format("node '{}': the operator {} of opset {} is not supported", node.name(),
                                       full_name(node), opset));
  }
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    if (static_cast<size_t>(i) >= outputs.size() || !outputs[static_cast<size_t>(i)].variable.defined())
      throw UnsupportedError(
          fmt::format("node '{}' ({}): its output {} is not supported", node.name(), full_name(node), i));
    if (!scope.values.emplace(name, outputs[static_cast<size_t>(i)]).second)
      throw FileError(fmt::format("there are two values named '{}'", name));
  }
}

void ModelReader::translate(const pb::GraphProto& graph) {
  for (const pb::NodeProto& node : graph.node())
    if (!adds_equal_weight(node)) translate(node, scope_, opsets_);
}

std::vector<Value> ModelReader::call(const pb::FunctionProto& function, const pb::NodeProto& node,
                                     const std::vector<Value>& inputs) {
  if (++depth_ > most_depth)
    throw FileError(fmt::format("function '{}': functions call each other without end", function.name()));
  Scope scope;
  for (int i = 0; i < function.input_size(); ++i)
    scope.values.emplace(function.input(i),
                         static_cast<size_t>(i) < inputs.size() ? inputs[static_cast<size_t>(i)] : Value{});
  Opsets opsets = opsets_;
  for (const auto& opset : function.opset_import())
    opsets[is_main_domain(opset.domain()) ? "" : opset.domain()] = opset.version();
  for (const pb::NodeProto& inner : function.node()) translate(with_attributes(inner, node), scope, opsets);
  std::vector<Value> outputs;
  for (const std::string& name : function.output()) {
    const Value* value = scope.find(name);
    if (!value)
      throw FileError(fmt::format("function '{}' does not make its output '{}'", function.name(), name));
    outputs.push_back(*value);
  }
  --depth_;
  return outputs;
}

std::vector<Value> ModelReader::run(const pb::GraphProto& graph, const std::vector<Value>& inputs,
                                    const Scope& around, const Opsets& opsets) {
  if (++depth_ > most_depth) throw FileError("graphs inside of graphs are too many");
  Scope scope{&around};
  read_initializers(graph, scope, false);
  if (static_cast<size_t>(graph.input_size()) != inputs.size())
    throw FileError(
        fmt::format("graph '{}' takes {} inputs, not {}", graph.name(), graph.input_size(), inputs.size()));
  for (int i = 0; i < graph.input_size(); ++i)
    scope.values.emplace(graph.input(i).name(), inputs[static_cast<size_t>(i)]);
  for (const pb::NodeProto& node : graph.node()) translate(node, scope, opsets);
  std::vector<Value> outputs;
  for (const auto& output : graph.output()) {
    const Value* value = scope.find(output.name());
    if (!value)
      throw FileError(fmt::format("graph '{}' does not make its output '{}'", graph.name(), output.name()));
    outputs.push_back(*value);
  }
  --depth_;
  return outputs;
}

nn::Module ModelReader::module_of(const std::string& path, std::string& name) {
  nn::Module module = model_;
  name = path;
  std::string before;
  // Each dot begins a module, unless the path so far is that of a parameter, or a part is empty.
  const bool plain = path.find("..") != path.npos || path.front() == '.' || path.back() == '.';
  if (plain) std::ranges::replace(name, '.', '_');
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.')) {
    const std::string part = name.substr(0, dot), whole = before + part;
    if (paths_.contains(whole)) {
      std::ranges::replace(name, '.', '_');
      break;
    }
    auto known = modules_.find(whole);
    if (known == modules_.end())
      known = modules_.emplace(whole, module.add(part, nn::Module(), where_)).first;
    module = known->second;
    name.erase(0, dot + 1);
    before = whole + ".";
  }
  while (paths_.contains(before + name) || modules_.contains(before + name)) name += "_";
  paths_.insert(before + name);
  return module;
}

void ModelReader::add_parameters() {
  TreeWalk walk;
  for (const auto& [name, output] : model_.outputs_) walk.enter(output.node());
  std::set<const Node*> used;
  while (const Node* node = walk.next()) {
    if (is_parameter(node->op())) used.insert(node);
    walk.enter_inputs(*node);
  }
  for (const auto& [path, parameter] : parameters_) {
    if (!used.contains(parameter.node())) continue;
    std::string name;
    module_of(path, name).add_parameter(name, parameter, where_);
  }
}

Model ModelReader::read() {
  const CallScope call(where_);
  const ValuesLater later;  // what is not constant is computed when it is asked for
  const pb::GraphProto& graph = proto_.graph();
  read_opsets();
  for (const pb::NodeProto& node : graph.node())
    if (node.op_type() == "BatchNormalization" && node.input_size() == 5)
      for (const int i : {3, 4}) statistics_.insert(node.input(i));
  read_initializers(graph, scope_, true);
  check_options();
  read_inputs();
  translate(graph);
  std::set<std::string> names;
  std::vector<Variable> outputs;
  for (const pb::ValueInfoProto& output : graph.output()) {
    const Value* value = scope_.find(output.name());
    if (!value) throw FileError(fmt::format("nothing makes the output '{}'", output.name()));
    if (!names.insert(output.name()).second)
      throw FileError(fmt::format("there are two outputs named '{}'", output.name()));
    outputs.push_back(value->variable);
  }
  outputs = stand_ins_.replaced(outputs);
  for (int i = 0; i < graph.output_size(); ++i)
    model_.outputs_.emplace_back(graph.output(i).name(), outputs[static_cast<size_t>(i)]);
  add_parameters();
  return model_;
}

}  // namespace espalier::onnx
