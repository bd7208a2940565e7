// Operators whose meaning an attribute changes: scatters that combine, and operands broadcast from an axis
// on.
#include <boost/test/unit_test.hpp>

#include "espalier/core/files/file.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/onnx.h"
#include "temporary_folder.h"

namespace esp = espalier;
namespace pb = espalier::onnx::pb;
using espalier::testing::TemporaryFolder;

namespace {

/// A model of one node, of constants.
class OneNode {
 public:
  OneNode(int64_t opset, const std::string& type, const std::vector<esp::Tensor>& inputs) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    pb::GraphProto& graph = *model_.mutable_graph();
    pb::NodeProto& node = *graph.add_node();
    node.set_op_type(type);
    for (size_t i = 0; i < inputs.size(); ++i) {
      node.add_input("x" + std::to_string(i));
      esp::onnx::write_tensor(inputs[i], node.input(static_cast<int>(i)), *graph.add_initializer());
    }
    node.add_output("y");
    graph.add_output()->set_name("y");
    graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(1);
  }
  OneNode& set(const std::string& name, int64_t value) {
    pb::AttributeProto& attribute = add(name, pb::AttributeProto::INT);
    attribute.set_i(value);
    return *this;
  }
  OneNode& set(const std::string& name, const std::string& value) {
    pb::AttributeProto& attribute = add(name, pb::AttributeProto::STRING);
    attribute.set_s(value);
    return *this;
  }
  std::vector<float> result() const {
    const TemporaryFolder folder;
    const auto file = folder.write("model.onnx", model_.SerializeAsString());
    const esp::Tensor y = esp::onnx::load(file).output().value().contiguous_copy();
    return {y.span<float>().begin(), y.span<float>().end()};
  }

 private:
  pb::AttributeProto& add(const std::string& name, pb::AttributeProto::AttributeType type) {
    pb::AttributeProto& attribute = *model_.mutable_graph()->mutable_node(0)->add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }
  pb::ModelProto model_;
};

using Floats = std::vector<float>;

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_operators)

BOOST_AUTO_TEST_CASE(scatters_combine_all_values_of_a_place) {
  const esp::Tensor x = esp::tensor({1.0f, 2.0f, 3.0f, 4.0f}), values = esp::tensor({5.0f, -1.0f, 2.0f});
  const esp::Tensor places = esp::tensor_from<int64_t>({1, 1, -1}, {3});
  const auto elements = [&](const char* reduction) {
    return OneNode(18, "ScatterElements", {x, places, values}).set("reduction", reduction).result();
  };
  const auto slices = [&](const char* reduction) {
    const esp::Tensor column = esp::tensor_from<int64_t>({1, 1, -1}, {3, 1});
    return OneNode(18, "ScatterND", {x, column, values}).set("reduction", reduction).result();
  };
  for (const auto& [reduction, expected] : {std::pair{"max", Floats{1, 5, 3, 4}},
                                            {"min", Floats{1, -1, 3, 2}},
                                            {"mul", Floats{1, -10, 3, 8}},
                                            {"add", Floats{1, 6, 3, 6}}}) {
    BOOST_TEST(elements(reduction) == expected, boost::test_tools::per_element());
    BOOST_TEST(slices(reduction) == expected, boost::test_tools::per_element());
  }
  BOOST_CHECK_THROW(elements("mean"), esp::UnsupportedError);
}

BOOST_AUTO_TEST_CASE(operands_of_early_opsets_begin_at_an_axis) {
  const esp::Tensor x = esp::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}), y = esp::tensor({10.0f, 20.0f});
  const auto sum = [&](int64_t opset) { return OneNode(opset, "Add", {x, y}).set("broadcast", 1); };
  BOOST_TEST(sum(6).set("axis", 0).result() == (Floats{11, 12, 23, 24}), boost::test_tools::per_element());
  BOOST_TEST(sum(6).set("axis", 1).result() == (Floats{11, 22, 13, 24}), boost::test_tools::per_element());
  BOOST_TEST(sum(6).result() == (Floats{11, 22, 13, 24}), boost::test_tools::per_element());
  BOOST_CHECK_THROW(sum(6).set("axis", 2).result(), esp::FileError);
  BOOST_CHECK_THROW(sum(7).result(), esp::UnsupportedError);
}

BOOST_AUTO_TEST_CASE(cubic_samples_at_elements_are_these) {
  const esp::Tensor x = esp::rand({1, 1, 4, 4}), grid = esp::zeros({1, 1, 2, 2});
  esp::Tensor corners = grid.clone();
  for (int64_t k : {0, 1}) corners.at<float>({0, 0, 0, k}) = -1, corners.at<float>({0, 0, 1, k}) = 1;
  const Floats got =
      OneNode(20, "GridSample", {x, corners}).set("mode", "cubic").set("align_corners", 1).result();
  BOOST_TEST(std::abs(got[0] - x.at<float>({0, 0, 0, 0})) < 1e-6);
  BOOST_TEST(std::abs(got[1] - x.at<float>({0, 0, 3, 3})) < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
