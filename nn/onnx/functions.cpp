#include "espalier/nn/onnx/functions.h"

namespace espalier::onnx {

namespace {

const pb::AttributeProto* attribute_of(const pb::NodeProto& node, const std::string& name) {
  for (const pb::AttributeProto& attribute : node.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

void replace_references(pb::NodeProto& node, const pb::NodeProto& calling) {
  pb::NodeProto resolved(node);
  resolved.clear_attribute();
  for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
    if (!attribute.ref_attr_name().empty()) {
      const pb::AttributeProto* given = attribute_of(calling, attribute.ref_attr_name());
      if (!given) continue;  // the operator's default
      pb::AttributeProto* added = resolved.add_attribute();
      *added = *given;
      added->set_name(attribute.name());
      continue;
    }
    for (pb::NodeProto& inner : *attribute.mutable_g()->mutable_node()) replace_references(inner, calling);
    if (attribute.type() != pb::AttributeProto::GRAPH) attribute.clear_g();
    *resolved.add_attribute() = attribute;
  }
  node = resolved;
}

}  // namespace

const pb::FunctionProto* find_function(const pb::ModelProto& model, const pb::NodeProto& node) {
  for (const pb::FunctionProto& function : model.functions())
    if (function.name() == node.op_type() && function.domain() == node.domain()) return &function;
  return nullptr;
}

pb::NodeProto with_attributes(const pb::NodeProto& inner, const pb::NodeProto& calling) {
  pb::NodeProto node(inner);
  replace_references(node, calling);
  return node;
}

}  // namespace espalier::onnx
