// Operators whose meaning an attribute changes: scatters that combine, and operands broadcast from an axis
// on.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/files/file.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/onnx.h"
#include "temporary_folder.h"

namespace esp = espalier;
namespace pb = espalier::onnx::pb;
using espalier::testing::TemporaryFolder;

namespace {

/// A model of one node, of constants: inputs without a value are left out. Its output is that of a number.
class OneNode {
 public:
  OneNode(int64_t opset, const std::string& type, const std::vector<esp::Tensor>& inputs, int output = 0) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    pb::GraphProto& graph = *model_.mutable_graph();
    pb::NodeProto& node = *graph.add_node();
    node.set_op_type(type);
    for (size_t i = 0; i < inputs.size(); ++i) {
      node.add_input(inputs[i].defined() ? "x" + std::to_string(i) : "");
      if (!inputs[i].defined()) continue;
      esp::onnx::write_tensor(inputs[i], node.input(static_cast<int>(i)), *graph.add_initializer());
    }
    for (int i = 0; i < output; ++i) node.add_output("");
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

/// An LSTM of one unit over a sequence of numbers.
struct OneUnit {
  Floats w, r, bias, peepholes;  // of the gates i, o, f, c; peepholes of i, o, f

  /// The state c behind the sequence.
  float last_c(const Floats& x) const {
    const auto sigmoid = [](float v) { return 1 / (1 + std::exp(-v)); };
    float h = 0, c = 0;
    for (const float v : x) {
      const auto gate = [&](size_t i) { return w[i] * v + r[i] * h + bias[i]; };
      const float before = c;
      c = sigmoid(gate(2) + peepholes[2] * before) * before +
          sigmoid(gate(0) + peepholes[0] * before) * std::tanh(gate(3));
      h = sigmoid(gate(1) + peepholes[1] * c) * std::tanh(c);
    }
    return c;
  }
  OneNode node(const Floats& x, const esp::Tensor& lengths) const {
    const auto list = [](const Floats& values, const esp::Shape& shape) {
      return esp::tensor_from(values, shape);
    };
    Floats both = bias;
    both.resize(8);  // that of the recurrent weights is 0
    return OneNode(14, "LSTM",
                   {list(x, {static_cast<int64_t>(x.size()), 1, 1}), list(w, {1, 4, 1}), list(r, {1, 4, 1}),
                    list(both, {1, 8}), lengths, esp::Tensor(), esp::Tensor(), list(peepholes, {1, 3})},
                   2)
        .set("hidden_size", 1);
  }
};

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

BOOST_AUTO_TEST_CASE(regions_are_means_or_the_largest_corners) {
  const esp::Tensor x = esp::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}).reshape({1, 1, 2, 2});
  const esp::Tensor box = esp::tensor({{0.0f, 0.0f, 2.0f, 2.0f}}),
                    image = esp::tensor_from<int64_t>({0}, {1});
  const auto align = [&](const char* mode) {
    return OneNode(16, "RoiAlign", {x, box, image}).set("mode", mode).set("sampling_ratio", 1).result();
  };
  BOOST_TEST(align("avg") == Floats{2.5}, boost::test_tools::per_element());
  BOOST_TEST(align("max") == Floats{1}, boost::test_tools::per_element());  // 4 / 4
  BOOST_CHECK_THROW(align("min"), esp::UnsupportedError);
}

BOOST_AUTO_TEST_CASE(slices_take_steps_beyond_the_ends) {
  const esp::Tensor x = esp::tensor({1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
  const auto slice = [&](int64_t begin, int64_t end, int64_t step) {
    const auto one = [](int64_t number) { return esp::tensor_from<int64_t>({number}, {1}); };
    return OneNode(13, "Slice", {x, one(begin), one(end), one(0), one(step)}).result();
  };
  BOOST_TEST(slice(-1, INT64_MIN, -2) == (Floats{5, 3, 1}), boost::test_tools::per_element());
  BOOST_TEST(slice(3, INT64_MIN, INT64_MIN) == Floats{4}, boost::test_tools::per_element());
  BOOST_TEST(slice(3, INT64_MAX, INT64_MAX) == Floats{4}, boost::test_tools::per_element());
  BOOST_TEST(slice(-9, 2, 1) == (Floats{1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_centered_has_more_behind) {
  const auto centered = [](const Floats& x, int64_t size) {
    return OneNode(18, "CenterCropPad",
                   {esp::tensor_from(x, {static_cast<int64_t>(x.size())}),
                    esp::tensor_from<int64_t>({size}, {1})})
        .result();
  };
  BOOST_TEST(centered({1, 2}, 5) == (Floats{0, 1, 2, 0, 0}), boost::test_tools::per_element());
  BOOST_TEST(centered({1, 2, 3, 4}, 1) == Floats{2}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_lstm_with_peepholes_keeps_its_state_behind_the_end) {
  const OneUnit unit{
      {0.5f, -0.4f, 0.3f, 0.9f}, {0.2f, 0.6f, -0.7f, 0.8f}, {0.1f, -0.2f, 0.4f, 0.3f}, {0.5f, 0.9f, -0.6f}};
  const Floats x{0.7f, -1.2f, 0.4f};
  BOOST_TEST(std::abs(unit.node(x, esp::Tensor()).result()[0] - unit.last_c(x)) < 1e-6);
  const esp::Tensor two = esp::tensor_from<int32_t>({2}, {1});
  const float shorter = unit.last_c({0.7f, -1.2f});
  BOOST_TEST(std::abs(unit.node(x, two).result()[0] - shorter) < 1e-6);
  BOOST_TEST(std::abs(shorter - unit.last_c(x)) > 0.01);
}

BOOST_AUTO_TEST_SUITE_END()
