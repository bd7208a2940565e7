// Damaged, foreign and hostile ONNX files are refused with a reason.
#include <boost/test/unit_test.hpp>

#include "espalier/core/files/file.h"
#include "espalier/nn/onnx/registry.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/onnx.h"
#include "temporary_folder.h"

namespace esp = espalier;
namespace pb = espalier::onnx::pb;
using espalier::testing::TemporaryFolder;

namespace {

pb::ValueInfoProto& describe(pb::ValueInfoProto& info, const std::string& name,
                             std::initializer_list<int64_t> sizes, int type = 1) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape();
  for (const int64_t size : sizes) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (size >= 0)
      dim.set_dim_value(size);
    else
      dim.set_dim_param("n");
  }
  return info;
}

pb::NodeProto& add_node(pb::GraphProto& graph, const std::string& type,
                        std::initializer_list<std::string> inputs,
                        std::initializer_list<std::string> outputs) {
  pb::NodeProto& node = *graph.add_node();
  node.set_op_type(type);
  node.set_name("the " + type);
  for (const auto& input : inputs) node.add_input(input);
  for (const auto& output : outputs) node.add_output(output);
  return node;
}

/// A model of x [2, 3] without nodes.
pb::ModelProto model_of(std::initializer_list<int64_t> x = {2, 3}) {
  pb::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(18);
  describe(*model.mutable_graph()->add_input(), "x", x);
  describe(*model.mutable_graph()->add_output(), "y", {});
  return model;
}

void add_integers(pb::GraphProto& graph, const std::string& name, std::vector<int64_t> values) {
  esp::onnx::write_tensor(esp::tensor_from(values, {static_cast<int64_t>(values.size())}), name,
                          *graph.add_initializer());
}

std::string reason_for(const TemporaryFolder& folder, const pb::ModelProto& model,
                       const esp::onnx::LoadOptions& options = {}) {
  const auto file = folder.write("model.onnx", model.SerializeAsString());
  try {
    esp::onnx::load(file, options);
  } catch (const esp::Error& error) {
    return error.what();
  }
  return "read";
}

void check_reason(const std::string& reason, const std::string& part) {
  BOOST_TEST(reason.find(part) != std::string::npos, reason << " does not have: " << part);
  BOOST_TEST(reason.find("model.onnx") != std::string::npos, reason);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_files)

BOOST_AUTO_TEST_CASE(foreign_files_are_refused) {
  const TemporaryFolder folder;
  BOOST_CHECK_THROW(esp::onnx::load(folder / "none.onnx"), esp::FileError);
  for (const std::string& bytes :
       {std::string(), std::string("hello"), std::string(1000, '\0'), std::string(1000, '\xff')})
    BOOST_CHECK_THROW(esp::onnx::load(folder.write("f.onnx", bytes)), esp::FileError);
}

/// A reason, or a value: no operator looks for an input behind the end.
BOOST_AUTO_TEST_CASE(operators_without_their_inputs_are_refused) {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::string>> inputs{{}, {""}, {"x"}, {"", "x"}, {"x", "", "x"}};
  size_t refused = 0;
  for (const std::string& type : esp::onnx::registry().names())
    for (const auto& names : inputs) {
      pb::ModelProto model = model_of();
      pb::NodeProto& node = add_node(*model.mutable_graph(), type, {}, {"y"});
      for (const std::string& name : names) node.add_input(name);
      refused += reason_for(folder, model) != "read";
    }
  BOOST_TEST(refused > 600);
  pb::ModelProto model = model_of();
  add_node(*model.mutable_graph(), "ConstantOfShape", {}, {"y"});
  check_reason(reason_for(folder, model), "node 'the ConstantOfShape' (ConstantOfShape): it has no input 0");
}

BOOST_AUTO_TEST_CASE(contradictions_are_named) {
  const TemporaryFolder folder;
  {
    pb::ModelProto model = model_of();
    check_reason(reason_for(folder, model), "nothing makes the output 'y'");
    add_node(*model.mutable_graph(), "Relu", {"z"}, {"y"});
    check_reason(reason_for(folder, model),
                 "node 'the Relu' (Relu) reads 'z', which nothing before it makes");
  }
  {
    pb::ModelProto model = model_of();  // each reads the other
    add_node(*model.mutable_graph(), "Add", {"x", "y"}, {"z"});
    add_node(*model.mutable_graph(), "Relu", {"z"}, {"y"});
    check_reason(reason_for(folder, model), "reads 'y', which nothing before it makes");
  }
  {
    pb::ModelProto model = model_of();
    add_node(*model.mutable_graph(), "Relu", {"x"}, {"x"});
    check_reason(reason_for(folder, model), "two values named 'x'");
  }
  {
    pb::ModelProto model = model_of();
    add_node(*model.mutable_graph(), "Frobnicate", {"x"}, {"y"});
    check_reason(reason_for(folder, model), "the operator Frobnicate of opset 18 is not supported");
  }
  {
    pb::ModelProto model = model_of();
    pb::NodeProto& node = add_node(*model.mutable_graph(), "Relu", {"x"}, {"y"});
    pb::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("slope");
    attribute.set_type(pb::AttributeProto::FLOAT);
    check_reason(reason_for(folder, model), "its attribute 'slope' is not supported");
  }
  {
    pb::ModelProto model = model_of();
    add_integers(*model.mutable_graph(), "shape", {4, 4});
    add_node(*model.mutable_graph(), "Reshape", {"x", "shape"}, {"y"});
    check_reason(reason_for(folder, model), "node 'the Reshape' (Reshape)");
  }
  {
    pb::ModelProto model = model_of();
    describe(*model.mutable_graph()->add_input(), "b", {2}, 4);
    check_reason(reason_for(folder, model), "UINT16");
  }
}

BOOST_AUTO_TEST_CASE(windows_that_begin_in_padding_behind_are_none) {
  const TemporaryFolder folder;
  struct Case {
    int64_t size, stride;
    std::vector<int64_t> pads;
    std::vector<float> wanted;
  };
  for (const Case& c : std::vector<Case>{{4, 2, {0, 1}, {1, 3}},
                                         {5, 2, {0, 1}, {1, 3, 4}},
                                         {4, 1, {0, 1}, {1, 2, 3, 3}},
                                         {4, 2, {1, 0}, {0, 2, 3}},
                                         {4, 3, {0, 1}, {1, 3}}}) {
    pb::ModelProto model = model_of({1, 1, c.size});
    pb::NodeProto& node = add_node(*model.mutable_graph(), "MaxPool", {"x"}, {"y"});
    const auto set = [&](const char* name, const std::vector<int64_t>& values) {
      pb::AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(name);
      attribute.set_type(pb::AttributeProto::INTS);
      for (const int64_t value : values) attribute.add_ints(value);
    };
    set("kernel_shape", {2});
    set("strides", {c.stride});
    set("pads", c.pads);
    pb::AttributeProto& ceil = *node.add_attribute();
    ceil.set_name("ceil_mode");
    ceil.set_type(pb::AttributeProto::INT);
    ceil.set_i(1);
    const auto loaded = esp::onnx::load(folder.write("pool.onnx", model.SerializeAsString()));
    const esp::Tensor x = esp::Variable(esp::arange(0, c.size)).reshape({1, 1, c.size}).value();
    const esp::Tensor y = loaded.output().get_executor({.mode = esp::Mode::inference}).run({{"x", x}});
    BOOST_TEST_REQUIRE(y.elements() == static_cast<int64_t>(c.wanted.size()));
    for (int64_t i = 0; i < y.elements(); ++i)
      BOOST_TEST(y.at<float>({0, 0, i}) == c.wanted[static_cast<size_t>(i)]);
  }
}

BOOST_AUTO_TEST_CASE(sizes_are_checked_before_memory_is_made) {
  const TemporaryFolder folder;
  {
    pb::ModelProto model = model_of();
    pb::TensorProto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(1);
    tensor.add_dims(1'000'000);
    tensor.add_dims(1'000'000);
    tensor.set_raw_data("abcd");
    check_reason(reason_for(folder, model),
                 "tensor 'w': it has 4 bytes, and its shape [1000000, 1000000] needs 4000000000000");
    tensor.set_dims(1, INT64_MAX);
    check_reason(reason_for(folder, model), "its shape is out of range");
    tensor.set_dims(1, -1);
    check_reason(reason_for(folder, model), "an axis of size -1");
  }
  {
    pb::ModelProto model = model_of();
    add_integers(*model.mutable_graph(), "shape", {100'000, 100'000});
    add_node(*model.mutable_graph(), "ConstantOfShape", {"shape"}, {"c"});
    add_node(*model.mutable_graph(), "ReduceSum", {"c"}, {"y"});
    check_reason(reason_for(folder, model), "LoadOptions::largest_constant");
  }
  {
    pb::ModelProto model = model_of();  // functions that call themselves
    pb::FunctionProto& function = *model.add_functions();
    function.set_name("F");
    function.set_domain("own");
    function.add_input("a");
    function.add_output("b");
    pb::NodeProto& inner = *function.add_node();
    inner.set_op_type("F");
    inner.set_domain("own");
    inner.add_input("a");
    inner.add_output("b");
    add_node(*model.mutable_graph(), "F", {"x"}, {"y"}).set_domain("own");
    check_reason(reason_for(folder, model), "functions call each other without end");
  }
}

BOOST_AUTO_TEST_CASE(what_nodes_would_make_is_bounded) {
  const TemporaryFolder folder;
  check_reason(reason_for(folder, model_of({int64_t{1} << 41, 3})), "has an axis of size 2199023255552");
  {
    pb::ModelProto model = model_of();
    add_integers(*model.mutable_graph(), "length", {int64_t{1} << 40});
    for (const char* type : {"HannWindow", "BlackmanWindow"}) {
      model.mutable_graph()->clear_node();
      add_node(*model.mutable_graph(), type, {"length"}, {"y"});
      check_reason(reason_for(folder, model), "LoadOptions::largest_constant");
    }
    model.mutable_graph()->clear_node();
    esp::onnx::write_tensor(esp::zeros({2}), "values", *model.mutable_graph()->add_initializer());
    add_integers(*model.mutable_graph(), "indices", {0});
    add_node(*model.mutable_graph(), "OneHot", {"indices", "length", "values"}, {"y"});
    check_reason(reason_for(folder, model), "LoadOptions::largest_constant");
  }
  {
    pb::ModelProto model = model_of({20'000, 1, 1});  // steps
    esp::onnx::write_tensor(esp::zeros({1, 1, 1}), "w", *model.mutable_graph()->add_initializer());
    pb::NodeProto& node = add_node(*model.mutable_graph(), "RNN", {"x", "w", "w"}, {"y"});
    pb::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("hidden_size");
    attribute.set_type(pb::AttributeProto::INT);
    attribute.set_i(1);
    pb::AttributeProto& clip = *node.add_attribute();
    clip.set_name("clip");
    clip.set_type(pb::AttributeProto::FLOAT);
    clip.set_f(1);
    check_reason(reason_for(folder, model), "it has more than 10000 steps");
  }
  {
    pb::ModelProto model = model_of();  // each function calls the one before twice: 2^40 nodes
    for (int i = 0; i < 40; ++i) {
      pb::FunctionProto& function = *model.add_functions();
      function.set_name("F" + std::to_string(i));
      function.set_domain("own");
      function.add_input("a");
      function.add_output("c");
      const std::string called = "F" + std::to_string(i - 1);
      for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "c")}) {
        pb::NodeProto& inner = *function.add_node();
        inner.set_op_type(i ? called : "Relu");
        if (i) inner.set_domain("own");
        inner.add_input(from);
        inner.add_output(to);
      }
    }
    add_node(*model.mutable_graph(), "F39", {"x"}, {"y"}).set_domain("own");
    check_reason(reason_for(folder, model, {.most_nodes = 1000}), "LoadOptions::most_nodes, which is 1000");
  }
}

BOOST_AUTO_TEST_CASE(sizes_of_open_axes_are_those_of_a_run_or_refused) {
  const TemporaryFolder folder;
  pb::ModelProto model = model_of({-1, 3});
  const auto add_cast = [&](const std::string& from) {
    pb::AttributeProto& to = *add_node(*model.mutable_graph(), "Cast", {from}, {"y"}).add_attribute();
    to.set_name("to");
    to.set_type(pb::AttributeProto::INT);
    to.set_i(1);
  };
  add_node(*model.mutable_graph(), "Size", {"x"}, {"size"});
  add_cast("size");
  const esp::onnx::Model read = esp::onnx::load(folder.write("model.onnx", model.SerializeAsString()));
  const auto executor = read.output().get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(executor.run({{"x", esp::ones({5, 3})}}).item() == 15);
  model.mutable_graph()->clear_node();
  add_node(*model.mutable_graph(), "Shape", {"x"}, {"shape"});
  add_cast("shape");
  const esp::onnx::Model shape = esp::onnx::load(folder.write("model.onnx", model.SerializeAsString()));
  const esp::Tensor sizes =
      shape.output().get_executor({.mode = esp::Mode::inference}).run({{"x", esp::ones({5, 3})}});
  BOOST_TEST(sizes.at<float>({0}) == 5);
  BOOST_TEST(sizes.at<float>({1}) == 3);
  model.mutable_graph()->clear_node();
  add_node(*model.mutable_graph(), "Shape", {"x"}, {"shape"});
  add_node(*model.mutable_graph(), "ReduceMax", {"shape"}, {"most"});
  add_cast("most");
  check_reason(reason_for(folder, model), "depends on the size of an open axis");
}

BOOST_AUTO_TEST_CASE(external_weights_stay_in_the_folder) {
  const TemporaryFolder folder;
  pb::ModelProto model = model_of();
  pb::TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(1);
  tensor.add_dims(3);
  tensor.set_data_location(pb::TensorProto::EXTERNAL);
  auto& entry = *tensor.add_external_data();
  entry.set_key("location");
  auto& offset = *tensor.add_external_data();
  offset.set_key("offset");
  offset.set_value("4");
  add_node(*model.mutable_graph(), "Add", {"x", "w"}, {"y"});
  for (const char* outside : {"../weights", "/etc/passwd", ""}) {
    entry.set_value(outside);
    BOOST_TEST(reason_for(folder, model) != "read");
  }
  entry.set_value("weights");
  check_reason(reason_for(folder, model), "cannot be read");
  folder.write("weights", std::string(15, '\0'));
  check_reason(reason_for(folder, model), "ends before its elements do");
  const float numbers[] = {0, 1, 2, 3};
  folder.write("weights", std::string(reinterpret_cast<const char*>(numbers), sizeof numbers));
  const esp::onnx::Model read = esp::onnx::load(folder.write("model.onnx", model.SerializeAsString()));
  BOOST_TEST(read.parameter("w").value().at<float>({0}) == 1);
  BOOST_TEST(read.parameter("w").value().at<float>({2}) == 3);

  const TemporaryFolder elsewhere;
  elsewhere.write("weights", std::string(64, '\0'));
  std::filesystem::create_symlink(elsewhere / "weights", folder / "link");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder / "links");
  for (const char* link : {"link", "links/weights"}) {
    entry.set_value(link);
    check_reason(reason_for(folder, model), "outside of the folder of the model");
  }
  // As in caches where a model and its weights are links into one folder.
  entry.set_value("link");
  elsewhere.write("real.onnx", model.SerializeAsString());
  std::filesystem::create_symlink(elsewhere / "real.onnx", folder / "linked.onnx");
  BOOST_TEST(esp::onnx::load(folder / "linked.onnx").parameter("w").value().at<float>({2}) == 0);
}

BOOST_AUTO_TEST_CASE(constants_of_functions_count_at_each_call) {
  const TemporaryFolder folder;
  pb::ModelProto model = model_of({4096, 3});
  pb::FunctionProto& function = *model.add_functions();
  function.set_name("AddConstant");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("b");
  pb::NodeProto& constant = *function.add_node();
  constant.set_op_type("Constant");
  constant.add_output("c");
  pb::AttributeProto& value = *constant.add_attribute();
  value.set_name("value");
  value.set_type(pb::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(1);
  value.mutable_t()->add_dims(1);
  value.mutable_t()->add_dims(3);
  value.mutable_t()->set_raw_data(std::string(12, '\0'));
  pb::NodeProto& sum = *function.add_node();
  sum.set_op_type("Add");
  sum.add_input("a");
  sum.add_input("c");
  sum.add_output("b");
  std::string last = "x";
  for (int i = 0; i < 500; ++i) {
    const std::string next = i == 499 ? "y" : "x" + std::to_string(i);
    add_node(*model.mutable_graph(), "AddConstant", {last}, {next}).set_domain("own");
    last = next;
  }
  BOOST_TEST(reason_for(folder, model, {.largest_constant = 1 << 20}) == "read");
  value.mutable_t()->set_dims(0, 4096);
  value.mutable_t()->set_raw_data(std::string(12 * 4096, '\0'));
  check_reason(reason_for(folder, model, {.largest_constant = 1 << 20}),
               "the constants of its loops, branches and functions take more bytes");
}

BOOST_AUTO_TEST_CASE(control_flow_is_refused_by_name_unless_it_is_known) {
  const TemporaryFolder folder;
  pb::ModelProto model = model_of();
  describe(*model.mutable_graph()->add_input(), "condition", {}, 9);
  pb::NodeProto& node = add_node(*model.mutable_graph(), "If", {"condition"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    pb::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(pb::AttributeProto::GRAPH);
    add_node(*attribute.mutable_g(), std::string(name) == "then_branch" ? "Relu" : "Neg", {"x"}, {"z"});
    describe(*attribute.mutable_g()->add_output(), "z", {});
  }
  const std::string reason = reason_for(folder, model);
  check_reason(reason, "node 'the If' (If): the values of its input 0 ('condition') must be known");
  BOOST_CHECK_THROW(esp::onnx::load(folder / "model.onnx"), esp::onnx::ConstantNeeded);
  const esp::onnx::Model known =
      esp::onnx::load(folder / "model.onnx", {.inputs = {{"condition", esp::tensor(false)}}});
  const esp::Tensor y =
      known.output().get_executor({.mode = esp::Mode::inference}).run({{"x", esp::ones({2, 3})}});
  BOOST_TEST(y.at<float>({0, 0}) == -1);
  BOOST_CHECK_THROW(esp::onnx::load(folder / "model.onnx", {.inputs = {{"other", esp::tensor(1.0f)}}}),
                    esp::Error);
  BOOST_CHECK_THROW(esp::onnx::load(folder / "model.onnx", {.inputs = {{"condition", esp::tensor(1.0f)}}}),
                    esp::TypeError);
}

BOOST_AUTO_TEST_SUITE_END()
