// Recurrent operators over any number of steps, compared with PyTorch and with the same ones written out.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/onnx.h"
#include "onnx/node_file.h"
#include "onnx/runs.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::difference;
using espalier::testing::NodeFile;
using espalier::testing::run_inference;
using espalier::testing::TemporaryFolder;

namespace {

/// sin(k), sin(k + 1), …
esp::Tensor sines(const esp::Shape& shape, int64_t& k) {
  esp::Tensor t = esp::zeros({shape.elements()});
  for (float& v : t.span<float>()) v = std::sin(static_cast<float>(k++));
  return t.reshape(shape);
}

struct Kind {
  std::string type;
  std::vector<int64_t> order;  ///< PyTorch's gates in that of ONNX
  std::vector<float> of_torch;
};

const std::vector<Kind> kinds{
    {"LSTM", {0, 3, 1, 2}, {0.13919f,  -0.498246f, 0.004132f,  -0.06254f,  -0.399101f, 0.151155f,
                            0.023237f, -0.409776f, -0.578345f, 0.111863f,  0.028692f,  -0.317364f,
                            0.174663f, -0.54728f,  0.003162f,  -0.024562f, -0.383346f, 0.149757f,
                            0.016464f, -0.369212f, -0.606597f, 0.210848f,  0.044625f,  -0.326477f}},
    {"GRU", {1, 0, 2}, {0.450661f, -0.111806f, 0.714945f, 0.870745f,  0.384399f, 0.02255f,
                        0.423336f, 0.238044f,  0.281795f, -0.052558f, 0.821934f, 0.155851f,
                        0.495764f, -0.098807f, 0.747164f, 0.891958f,  0.429258f, -0.023888f,
                        0.45449f,  0.262658f,  0.311711f, -0.063497f, 0.800004f, 0.053832f}},
    {"RNN", {0}, {0.716291f, 0.377956f,  0.861829f, 0.578058f,  -0.859711f, -0.784825f,
                  0.707165f, -0.945986f, 0.9697f,   -0.889097f, 0.879602f,  -0.440303f,
                  0.793097f, 0.372738f,  0.875701f, 0.618347f,  -0.856218f, -0.678038f,
                  0.763907f, -0.906281f, 0.94106f,  -0.914841f, 0.875503f,  -0.684683f}},
};

esp::Tensor in_order(const esp::Tensor& rows, const Kind& kind) {
  const auto gates = static_cast<int64_t>(kind.order.size()), width = rows.shape()[0] / gates;
  std::vector<esp::Tensor> parts;
  for (const int64_t gate : kind.order) parts.push_back(rows.slice(0, gate * width, (gate + 1) * width));
  return esp::concat(std::vector<esp::Variable>(parts.begin(), parts.end()), 0).value();
}

/// How a network is written.
struct Form {
  Kind kind;
  std::string direction = "forward";
  bool batch_first = false, lengths = false, states = false, bias = true;
  bool relu = false;         ///< of an RNN
  bool written_out = false;  ///< by a bound that nothing reaches
  std::vector<std::string> x = {};

  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
};

/// Y, Y_h and Y_c of 3 inputs and 4 units, with 2 rows.
std::filesystem::path file_of(const TemporaryFolder& folder, const Form& form) {
  const int64_t rows = 4 * static_cast<int64_t>(form.kind.order.size()), d = form.directions();
  int64_t k = 0;
  NodeFile file;
  file.input("x", form.x).output("y").output("h");
  file.constant("w", sines({d, rows, 3}, k)).constant("r", sines({d, rows, 4}, k));
  if (form.bias) file.constant("b", sines({d, 2 * rows}, k));
  if (form.lengths) file.constant("lengths", esp::tensor_from(std::vector{4, 2}, {2}).to(esp::int32));
  const esp::Shape states = form.batch_first ? esp::Shape{2, d, 4} : esp::Shape{d, 2, 4};
  if (form.states) file.constant("h0", sines(states, k)).constant("c0", sines(states, k));
  const bool lstm = form.kind.type == "LSTM";
  if (lstm) file.output("c");
  std::vector<std::string> inputs{"x", "w", "r", form.bias ? "b" : "", form.lengths ? "lengths" : ""};
  inputs.push_back(form.states ? "h0" : "");
  if (lstm) inputs.push_back(form.states ? "c0" : "");
  file.node(form.kind.type, inputs, "y").also("h").with("hidden_size", 4);
  if (lstm) file.also("c");
  file.with_text("direction", form.direction).with("layout", form.batch_first);
  if (form.kind.type == "GRU") file.with("linear_before_reset", 1);
  if (form.written_out) file.with_real("clip", 1e6f);
  if (form.relu) file.with_texts("activations", std::vector<std::string>(static_cast<size_t>(d), "Relu"));
  return file.in(folder);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_recurrent)

/// nn.LSTM, GRU and RNN of PyTorch 2.15, with two directions and batch_first, as its exporter writes them.
BOOST_AUTO_TEST_CASE(networks_of_pytorch_over_open_time) {
  const TemporaryFolder folder;
  std::vector<float> numbers;
  for (int i = 0; i < 12; ++i) numbers.push_back(std::cos(static_cast<float>(i)));
  const esp::Tensor x = esp::tensor_from(numbers, {2, 3, 2});
  for (const Kind& kind : kinds) {
    const int64_t rows = 2 * static_cast<int64_t>(kind.order.size());
    int64_t k = 0;
    std::vector<esp::Variable> w, r, b;
    for (int d = 0; d < 2; ++d) {
      w.push_back(esp::unsqueeze(in_order(sines({rows, 2}, k), kind), 0));
      r.push_back(esp::unsqueeze(in_order(sines({rows, 2}, k), kind), 0));
      for (int i = 0; i < 2; ++i) b.push_back(esp::unsqueeze(in_order(sines({rows}, k), kind), 0));
    }
    const esp::Variable biases = esp::reshape(esp::concat(b, 0), {2, 2 * rows});
    NodeFile file;
    file.input("x", {"b", "t", "2"}).output("y").integers("merged", {0, 0, -1});
    file.constant("w", esp::concat(w, 0).value()).constant("r", esp::concat(r, 0).value());
    file.constant("bias", biases.value()).node("Identity", {"x"}, "x again");
    // Steps, directions, batch: as [batch, steps, directions · hidden].
    file.node(kind.type, {"x again", "w", "r", "bias"}, "all").with("hidden_size", 2).with("layout", 1);
    file.with_text("direction", "bidirectional");
    if (kind.type == "GRU") file.with("linear_before_reset", 1);
    file.node("Reshape", {"all", "merged"}, "y");
    const esp::Tensor y = run_inference(esp::onnx::load(file.in(folder)).output(), x);
    BOOST_TEST(difference(y, esp::tensor_from(kind.of_torch, {2, 3, 4})) < 2e-6, kind.type);
  }
}

BOOST_AUTO_TEST_CASE(any_number_of_steps_is_as_written_out) {
  const TemporaryFolder folder;
  std::vector<Form> forms;
  for (const Kind& kind : kinds)
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      forms.push_back({.kind = kind, .direction = direction});
      forms.push_back({.kind = kind, .direction = direction, .states = true, .bias = false});
      forms.push_back({.kind = kind, .direction = direction, .lengths = true, .states = true});
      forms.push_back({.kind = kind, .direction = direction, .batch_first = true, .states = true});
    }
  forms.push_back({.kind = kinds[2], .direction = "bidirectional", .relu = true});
  for (Form& form : forms)
    for (const int64_t steps : {4, 6}) {
      const std::vector<std::string> outputs = form.kind.type == "LSTM"
                                                   ? std::vector<std::string>{"y", "h", "c"}
                                                   : std::vector<std::string>{"y", "h"};
      const std::string fixed = std::to_string(steps);
      const esp::Tensor x = form.batch_first ? esp::randn({2, steps, 3}) : esp::randn({steps, 2, 3});
      std::vector<esp::Tensor> results[2];
      for (const bool written_out : {false, true}) {
        const std::string time = written_out ? fixed : "t";
        form.written_out = written_out;
        form.x = form.batch_first ? std::vector<std::string>{"2", time, "3"}
                                  : std::vector<std::string>{time, "2", "3"};
        const esp::onnx::Model model = esp::onnx::load(file_of(folder, form));
        for (const std::string& name : outputs)
          results[written_out].push_back(run_inference(model.output(name), x));
      }
      for (size_t i = 0; i < outputs.size(); ++i)
        BOOST_TEST(difference(results[0][i], results[1][i]) < 1e-5,
                   form.kind.type << " " << form.direction << ", " << steps << " steps: " << outputs[i]);
    }
}

BOOST_AUTO_TEST_CASE(layers_over_open_time_come_back) {
  const TemporaryFolder folder;
  const esp::Variable x = esp::placeholder("x", {-1, -1, 6});
  const esp::nn::Lstm lstm(6, 5, {.layers = 2, .bidirectional = true, .batch_first = true});
  const esp::nn::Gru gru(6, 5, {.batch_first = true});
  for (const esp::Variable& y : {lstm(x).outputs, gru(x).outputs}) {
    esp::onnx::save(folder / "net.onnx", {{"x", x}}, {{"y", y}});
    const esp::onnx::Model model = esp::onnx::load(folder / "net.onnx");
    for (const esp::Shape& sizes : {esp::Shape{2, 7, 6}, {3, 1, 6}}) {
      const esp::Tensor value = esp::randn(sizes);
      BOOST_TEST(difference(run_inference(model.output(), value), run_inference(y, value)) < 1e-6);
    }
    BOOST_CHECK_THROW(run_inference(model.output(), esp::zeros({2, 0, 6})), esp::ShapeError);
  }
}

BOOST_AUTO_TEST_CASE(settings_that_need_a_number_of_steps) {
  const TemporaryFolder folder;
  const Form form{.kind = kinds[0], .written_out = true, .x = {"t", "2", "3"}};
  const std::filesystem::path file = file_of(folder, form);
  BOOST_CHECK_EXCEPTION(esp::onnx::load(file), esp::UnsupportedError, [](const esp::UnsupportedError& e) {
    return std::string(e.what()).find("its axis of time is open") != std::string::npos;
  });
  BOOST_TEST(esp::onnx::load(file, {.sizes = {{"t", 4}}}).output("y").shape()[0] == 4);
}

BOOST_AUTO_TEST_SUITE_END()
