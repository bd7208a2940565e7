// ONNX files that tests write node by node.
#pragma once
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "espalier/nn/onnx/tensors.h"
#include "espalier/onnx.h"
#include "temporary_folder.h"

namespace espalier::testing {

/// A file of nodes; axes of its inputs that have a name instead of a size are dynamic.
class NodeFile {
 public:
  NodeFile() {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(17);
  }
  NodeFile& input(const std::string& name, const std::vector<std::string>& axes) {
    return describe(*graph().add_input(), name, axes);
  }
  NodeFile& output(const std::string& name) { return describe(*graph().add_output(), name, {}); }
  NodeFile& integers(const std::string& name, const std::vector<int64_t>& values) {
    return constant(name, tensor_from(values, {static_cast<int64_t>(values.size())}));
  }
  NodeFile& constant(const std::string& name, const Tensor& value) {
    onnx::write_tensor(value, name, *graph().add_initializer());
    return *this;
  }
  NodeFile& node(const std::string& type, const std::vector<std::string>& inputs, const std::string& output) {
    onnx::pb::NodeProto& node = *graph().add_node();
    node.set_op_type(type);
    node.set_name("the " + type);
    for (const std::string& name : inputs) node.add_input(name);
    node.add_output(output);
    last_ = &node;
    return *this;
  }
  /// One more output of the last node.
  NodeFile& also(const std::string& output) {
    last_->add_output(output);
    return *this;
  }
  NodeFile& with(const std::string& attribute, int64_t value) {
    add(attribute, onnx::pb::AttributeProto::INT).set_i(value);
    return *this;
  }
  NodeFile& with_real(const std::string& attribute, float value) {
    add(attribute, onnx::pb::AttributeProto::FLOAT).set_f(value);
    return *this;
  }
  NodeFile& with_text(const std::string& attribute, const std::string& value) {
    add(attribute, onnx::pb::AttributeProto::STRING).set_s(value);
    return *this;
  }
  NodeFile& with_texts(const std::string& attribute, const std::vector<std::string>& values) {
    onnx::pb::AttributeProto& proto = add(attribute, onnx::pb::AttributeProto::STRINGS);
    for (const std::string& value : values) proto.add_strings(value);
    return *this;
  }
  /// A vector of sizes of axes of `x`, as "1", and of numbers, as "#8".
  NodeFile& sizes(const std::string& x, const std::string& name, const std::vector<std::string>& parts) {
    node("Shape", {x}, name + ".shape");
    std::vector<std::string> names;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string part = name + "." + std::to_string(i);
      if (parts[i][0] == '#')
        integers(part, {std::stoll(parts[i].substr(1))});
      else
        integers(part + ".at", {std::stoll(parts[i])}).node("Gather", {name + ".shape", part + ".at"}, part);
      names.push_back(part);
    }
    return node("Concat", names, name).with("axis", 0);
  }
  std::filesystem::path in(const TemporaryFolder& folder) const {
    return folder.write("model.onnx", model_.SerializeAsString());
  }

 private:
  onnx::pb::GraphProto& graph() { return *model_.mutable_graph(); }
  onnx::pb::AttributeProto& add(const std::string& attribute, onnx::pb::AttributeProto::AttributeType type) {
    onnx::pb::AttributeProto& proto = *last_->add_attribute();
    proto.set_name(attribute);
    proto.set_type(type);
    return proto;
  }
  NodeFile& describe(onnx::pb::ValueInfoProto& info, const std::string& name,
                     const std::vector<std::string>& axes) {
    info.set_name(name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(1);
    tensor.mutable_shape();
    for (const std::string& axis : axes)
      if (std::isdigit(axis[0]))
        tensor.mutable_shape()->add_dim()->set_dim_value(std::stoll(axis));
      else
        tensor.mutable_shape()->add_dim()->set_dim_param(axis);
    return *this;
  }

  onnx::pb::ModelProto model_;
  onnx::pb::NodeProto* last_ = nullptr;
};

}  // namespace espalier::testing
