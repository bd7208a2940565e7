#include "samples.h"

#include "espalier/core/files/file.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/onnx.h"

namespace espalier::testing {

namespace {

namespace pb = onnx::pb;

Variable convolutions(const Variable& x) {  // [2, 1, 6, 6]
  nn::Sequential net{
      nn::Conv2d(2, {.kernel = 3, .padding = 1}), nn::BatchNorm(), nn::Relu(),   nn::MaxPool2d({.kernel = 2}),
      nn::Conv2d(2, {.kernel = 2, .groups = 2}),  nn::Flatten(),   nn::Dense(3), nn::Softmax()};
  net.train(false);
  return net(x);
}

Variable layers(const Variable& x) {  // [3, 4]
  nn::Sequential net{nn::Dense(4), nn::LayerNorm(), nn::Gelu(), nn::Dropout(0.5), nn::Dense(2)};
  net.train(false);
  const Variable y = net(x);
  return where(y > 0, sqrt(abs(y)), mean(y, 1, true)) + pad(slice(y, 1, 0, 1), {{1, 0}}, {.value = 2});
}

Variable attention(const Variable& x) {  // [2, 3, 4]
  const auto heads = [](const Variable& v) { return permute(reshape(v, {-1, 3, 2, 2}), {0, 2, 1, 3}); };
  nn::Dense query(4), key(4), value(4);
  const Variable q = heads(query(x)), k = heads(key(x)), v = heads(value(x));
  const Variable weights = softmax(matmul(q, transpose(k)) * 0.7);
  return x + reshape(permute(matmul(weights, v), {0, 2, 1, 3}), {-1, 3, 4});
}

Variable cells(const Variable& x) {  // [2, 2, 3]
  nn::LSTMCell lstm(2);
  nn::GRUCell gru(2);
  nn::LSTMState state = lstm(squeeze(slice(x, 1, 0, 1), 1));
  state = lstm(squeeze(slice(x, 1, 1, 2), 1), state);
  return gru(state.h);
}

pb::NodeProto& add_node(google::protobuf::RepeatedPtrField<pb::NodeProto>& nodes, const std::string& type,
                        std::initializer_list<std::string> inputs,
                        std::initializer_list<std::string> outputs) {
  pb::NodeProto& node = *nodes.Add();
  node.set_op_type(type);
  for (const auto& input : inputs) node.add_input(input);
  for (const auto& output : outputs) node.add_output(output);
  return node;
}

pb::GraphProto& add_graph(pb::NodeProto& node, const std::string& name) {
  pb::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(pb::AttributeProto::GRAPH);
  return *attribute.mutable_g();
}

/// x is doubled by a function in a loop of three steps, in a branch that is taken.
std::string control_flow() {
  pb::ModelProto model;
  model.set_ir_version(9);
  model.add_opset_import()->set_version(20);
  pb::GraphProto& graph = *model.mutable_graph();
  graph.add_input()->set_name("x");
  auto& type = *graph.mutable_input(0)->mutable_type()->mutable_tensor_type();
  type.set_elem_type(1);
  type.mutable_shape()->add_dim()->set_dim_param("batch");
  type.mutable_shape()->add_dim()->set_dim_value(3);
  pb::FunctionProto& twice = *model.add_functions();
  twice.set_name("Twice");
  twice.set_domain("own");
  twice.add_input("a");
  twice.add_output("b");
  add_node(*twice.mutable_node(), "Add", {"a", "a"}, {"b"});
  onnx::write_tensor(tensor(int64_t{3}), "count", *graph.add_initializer());
  onnx::write_tensor(tensor(int64_t{1}).to(boolean), "yes", *graph.add_initializer());
  pb::NodeProto& branch = add_node(*graph.mutable_node(), "If", {"yes"}, {"y"});
  pb::GraphProto& other = add_graph(branch, "else_branch");
  add_node(*other.mutable_node(), "Neg", {"x"}, {"no"});
  other.add_output()->set_name("no");
  pb::GraphProto& taken = add_graph(branch, "then_branch");
  pb::NodeProto& loop = add_node(*taken.mutable_node(), "Loop", {"count", "yes", "x"}, {"end"});
  taken.add_output()->set_name("end");
  pb::GraphProto& body = add_graph(loop, "body");
  for (const char* name : {"i", "more", "before"}) body.add_input()->set_name(name);
  add_node(*body.mutable_node(), "Identity", {"more"}, {"further"});
  add_node(*body.mutable_node(), "Twice", {"before"}, {"after"}).set_domain("own");
  for (const char* name : {"further", "after"}) body.add_output()->set_name(name);
  graph.add_output()->set_name("y");
  return model.SerializeAsString();
}

}  // namespace

std::vector<SampleFile> sample_files(const std::filesystem::path& folder) {
  seed(3);
  std::vector<SampleFile> files;
  const auto add = [&](const std::string& name, const Shape& shape, Variable (*net)(const Variable&)) {
    const Variable x = placeholder("x", shape);
    onnx::save(folder / (name + ".onnx"), {{"x", x}}, {{"y", net(x)}});
    files.push_back({name, read_file(folder / (name + ".onnx"))});
  };
  add("convolutions", {2, 1, 6, 6}, convolutions);
  add("layers", {3, 4}, layers);
  add("attention", {2, 3, 4}, attention);
  add("cells", {2, 2, 3}, cells);
  AtomicFile file(folder / "control_flow.onnx");
  file.write(control_flow());
  file.commit();
  files.push_back({"control_flow", control_flow()});
  return files;
}

}  // namespace espalier::testing
