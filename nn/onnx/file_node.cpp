#include "espalier/nn/onnx/file_node.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/core/node.h"
#include "espalier/core/tree.h"
#include "espalier/nn/onnx/model.h"

namespace espalier::onnx {

namespace {

/// The names of the feeds that a Variable depends on.
std::vector<std::string> inputs_below(const Variable& x) {
  std::vector<std::string> names;
  TreeWalk walk(x.node());
  while (const Node* node = walk.next()) {
    if (const auto* feed = node->op().feed()) names.push_back((*feed)->name());
    walk.enter_inputs(*node);
  }
  return names;
}

}  // namespace

std::string FileNode::label() const {
  return proto_.name().empty() ? fmt::format("node {}", type())
                               : fmt::format("node '{}' ({})", proto_.name(), type());
}

void FileNode::refuse(const std::string& reason) const {
  throw UnsupportedError(fmt::format("{}: {}", label(), reason));
}
void FileNode::fail(const std::string& reason) const {
  throw FileError(fmt::format("{}: {}", label(), reason));
}

void FileNode::check_constant(const Shape& shape, DType dtype) const {
  const double bytes = static_cast<double>(shape.elements()) * static_cast<double>(size_of(dtype));
  if (bytes > static_cast<double>(largest_constant_))
    refuse(fmt::format(
        "a constant of shape {} would take more bytes than LoadOptions::largest_constant, which is {}",
        shape.str(), largest_constant_));
}

void FileNode::check_steps(int64_t steps) const {
  constexpr int64_t most_steps = 10'000;
  if (steps > most_steps) refuse(fmt::format("it has more than {} steps", most_steps));
}

void FileNode::fail_without(size_t input) const { fail(fmt::format("it has no input {}", input)); }

const Variable& FileNode::operator[](size_t i) const {
  if (!has(i)) fail_without(i);
  return inputs_[i].variable;
}

std::vector<Variable> FileNode::all() const {
  std::vector<Variable> variables;
  for (size_t i = 0; i < count(); ++i) variables.push_back((*this)[i]);
  return variables;
}

bool FileNode::constant() const {
  if (known_) return true;
  for (const Value& input : inputs_)
    if (input.variable.defined() && !input.constant) return false;
  return true;
}

bool FileNode::known(size_t i) const {
  const Node& node = *(*this)[i].node();
  return inputs_[i].constant || node.is_leaf();
}

Tensor FileNode::tensor(size_t i) const {
  const Variable& x = (*this)[i];
  if (known(i)) return x.value().to(cpu()).contiguous_copy();
  const std::vector<std::string> names = inputs_below(x);
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", name);
  throw ConstantNeeded(
      fmt::format(
          "{}: the values of its input {} ('{}') must be known when the tree is written{}", label(), i,
          proto_.input(static_cast<int>(i)),
          names.empty() ? std::string() : fmt::format("; they depend on the inputs {} of the model", text)),
      names);
}

std::vector<int64_t> FileNode::open_integers(size_t i) const {
  const Tensor values = tensor(i);
  if (is_real(values.dtype()) || values.dtype() == boolean)
    fail(fmt::format("its input {} is {}, where integers are needed", i, espalier::name(values.dtype())));
  const Tensor wide = values.to(int64);
  const auto span = wide.span<int64_t>();
  return {span.begin(), span.end()};
}

std::vector<int64_t> FileNode::integers(size_t i) const {
  std::vector<int64_t> values = open_integers(i);
  for (const Size& size : inputs_[i].sizes)
    if (size.is_open()) refuse_open(i);
  return values;
}

void FileNode::refuse_open(size_t i) const {
  refuse(
      fmt::format("its input {} depends on the size of an open axis; give that axis a size "
                  "(LoadOptions::sizes)",
                  i));
}

std::vector<Size> FileNode::sizes_or_sums(size_t i, bool sums) const {
  const std::vector<int64_t> values = open_integers(i);
  std::vector<Size> sizes = inputs_[i].sizes;
  if (sizes.empty())
    for (const int64_t value : values) sizes.push_back({value});
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (!sizes[k].follows_else || (sums && !sizes[k].terms.empty())) continue;
    if (sizes[k].is_open()) refuse_open(i);
    sizes[k] = {values[k]};
  }
  return sizes;
}

FileNode FileNode::with_inputs(std::vector<Value> inputs) const {
  return FileNode(proto_, opset_, std::move(inputs), largest_constant_, read_, subgraph_);
}

std::vector<double> FileNode::numbers(size_t i) const {
  const Tensor wide = tensor(i).to(float64);
  const auto span = wide.span<double>();
  return {span.begin(), span.end()};
}

int64_t FileNode::integer(size_t i) const {
  const std::vector<int64_t> values = integers(i);
  if (values.size() != 1) fail(fmt::format("its input {} has {} elements, not one", i, values.size()));
  return values[0];
}

double FileNode::number(size_t i) const {
  const std::vector<double> values = numbers(i);
  if (values.size() != 1) fail(fmt::format("its input {} has {} elements, not one", i, values.size()));
  return values[0];
}

const pb::AttributeProto* FileNode::find(std::string_view attribute,
                                         pb::AttributeProto::AttributeType type) const {
  ignore(attribute);
  for (const pb::AttributeProto& known : proto_.attribute())
    if (known.name() == attribute) {
      if (known.type() != type && known.type() != pb::AttributeProto::UNDEFINED)
        fail(fmt::format("its attribute '{}' is of another type", attribute));
      return &known;
    }
  return nullptr;
}

const pb::AttributeProto& FileNode::need(std::string_view attribute,
                                         pb::AttributeProto::AttributeType type) const {
  const pb::AttributeProto* known = find(attribute, type);
  if (!known) fail(fmt::format("its attribute '{}' is missing", attribute));
  return *known;
}

bool FileNode::has(std::string_view attribute) const {
  for (const pb::AttributeProto& known : proto_.attribute())
    if (known.name() == attribute) return true;
  return false;
}

int64_t FileNode::integer(std::string_view attribute, int64_t otherwise) const {
  const pb::AttributeProto* known = find(attribute, pb::AttributeProto::INT);
  return known ? known->i() : otherwise;
}
int64_t FileNode::integer(std::string_view attribute) const {
  return need(attribute, pb::AttributeProto::INT).i();
}

double FileNode::real(std::string_view attribute, double otherwise) const {
  const pb::AttributeProto* known = find(attribute, pb::AttributeProto::FLOAT);
  return known ? static_cast<double>(known->f()) : otherwise;
}

std::string FileNode::text(std::string_view attribute, std::string_view otherwise) const {
  const pb::AttributeProto* known = find(attribute, pb::AttributeProto::STRING);
  return known ? known->s() : std::string(otherwise);
}

std::vector<int64_t> FileNode::integers(std::string_view attribute, std::vector<int64_t> otherwise) const {
  const pb::AttributeProto* known = find(attribute, pb::AttributeProto::INTS);
  if (!known) return otherwise;
  return {known->ints().begin(), known->ints().end()};
}

std::vector<double> FileNode::reals(std::string_view attribute) const {
  const pb::AttributeProto* known = find(attribute, pb::AttributeProto::FLOATS);
  if (!known) return {};
  return {known->floats().begin(), known->floats().end()};
}

std::vector<std::string> FileNode::texts(std::string_view attribute) const {
  const pb::AttributeProto* known = find(attribute, pb::AttributeProto::STRINGS);
  if (!known) return {};
  return {known->strings().begin(), known->strings().end()};
}

Tensor FileNode::tensor(std::string_view attribute) const {
  return read_(need(attribute, pb::AttributeProto::TENSOR).t());
}

const pb::GraphProto& FileNode::graph(std::string_view attribute) const {
  return need(attribute, pb::AttributeProto::GRAPH).g();
}

void FileNode::check_attributes() const {
  for (const pb::AttributeProto& known : proto_.attribute())
    if (!read_attributes_.contains(known.name()))
      refuse(fmt::format("its attribute '{}' is not supported in opset {}", known.name(), opset_));
}

}  // namespace espalier::onnx
