// Models of ONNX files: trained, frozen, saved, and with axes of any size.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "espalier/onnx.h"
#include "onnx/node_file.h"
#include "onnx/runs.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::difference;
using espalier::testing::run_inference;
using espalier::testing::TemporaryFolder;

namespace {

struct Saved {
  esp::nn::Sequential net;
  esp::Variable x, y;
};

/// A classifier of rows of 6 numbers, as "net.onnx".
Saved write_classifier(const TemporaryFolder& folder) {
  esp::seed(5);
  Saved saved{esp::nn::Sequential{esp::nn::Dense(16), esp::nn::BatchNorm(), esp::nn::Relu(),
                                  esp::nn::Dropout(0.5), esp::nn::Dense(3)},
              {},
              {}};
  saved.net.train(false);
  saved.x = esp::placeholder("x", {4, 6});
  saved.y = saved.net(saved.x);
  esp::onnx::save(folder / "net.onnx", {{"x", saved.x}}, {{"y", saved.y}},
                  {.parameters = saved.net.parameters()});
  return saved;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_models)

BOOST_AUTO_TEST_CASE(a_saved_tree_is_read_again) {
  const TemporaryFolder folder;
  const Saved saved = write_classifier(folder);
  const esp::onnx::Model model = esp::onnx::load(folder / "net.onnx");
  BOOST_TEST(model.opset() == 20);
  BOOST_TEST(model.inputs().size() == 1u);
  BOOST_TEST(model.outputs()[0].first == "y");
  BOOST_CHECK_THROW(model.output("z"), esp::Error);
  // Rows of other counts than the tree was written with.
  for (const int64_t rows : {1, 4, 9}) {
    const esp::Tensor x = esp::randn({rows, 6});
    BOOST_TEST(difference(run_inference(saved.y, x), run_inference(model.output(), x)) < 1e-6);
  }
  // Parameters have the names of the module, and their modules.
  BOOST_TEST(difference(model.parameter("0.weight").value(), saved.net.parameter("0.weight").value()) == 0);
}

BOOST_AUTO_TEST_CASE(padding_in_front_is_not_that_behind) {
  const TemporaryFolder folder;
  const esp::Variable x = esp::placeholder("x", {2, 3, 6, 7}),
                      kernels = esp::parameter(esp::randn({4, 3, 2, 4}));
  const esp::Variable y = esp::conv(x, kernels, {.padding = esp::ConvolutionPadding::same()});
  esp::onnx::save(folder / "net.onnx", {{"x", x}}, {{"y", y}});
  const esp::Tensor images = esp::randn({2, 3, 6, 7});
  BOOST_TEST(difference(run_inference(y, images),
                        run_inference(esp::onnx::load(folder / "net.onnx").output(), images)) < 1e-5);
}

BOOST_AUTO_TEST_CASE(infinity_is_no_nan_in_uneven_means) {
  const TemporaryFolder folder;
  const esp::Variable x = esp::placeholder("x", {1, 1, 5});
  const esp::Variable y = esp::adaptive_avg_pool(x, {3});  // of elements 0 and 1; 1, 2 and 3; 3 and 4
  esp::onnx::save(folder / "a.onnx", {{"x", x}}, {{"y", y}});
  const float infinity = std::numeric_limits<float>::infinity();
  const esp::Tensor from_file =
      run_inference(esp::onnx::load(folder / "a.onnx").output(),
                    esp::tensor_from(std::vector{infinity, 1.0f, 2.0f, 6.0f, 7.0f}, {1, 1, 5}));
  BOOST_TEST(from_file.at<float>({0, 0, 0}) == infinity);
  BOOST_TEST(std::abs(from_file.at<float>({0, 0, 1}) - 3.0f) < 1e-6f);
  BOOST_TEST(std::abs(from_file.at<float>({0, 0, 2}) - 6.5f) < 1e-6f);
}

BOOST_AUTO_TEST_CASE(a_model_is_trained_frozen_and_saved) {
  const TemporaryFolder folder;
  write_classifier(folder);
  const esp::Tensor x = esp::randn({32, 6});
  const esp::Variable rows(x);
  const esp::Tensor labels = esp::argmax(esp::slice(rows, 1, 0, 3), 1).value();
  const esp::data::Distributor feed({x, labels}, {.batch_size = 8});
  const auto columns = feed.get_output_graphs<2>();
  esp::onnx::Model model = esp::onnx::load(folder / "net.onnx", {.inputs = {{"x", columns[0]}}});
  const esp::Variable loss = esp::softmax_cross_entropy(model.output(), columns[1]);
  const esp::Tensor frozen = model.parameter("0.bias").value().clone();
  esp::set_trainable(model.parameter("0.bias"), false);
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Adam(0.02)});
  executor.execute({.epochs = 1, .progress = false});
  const double first = executor.value().item();
  executor.execute({.epochs = 60, .progress = false});
  BOOST_TEST(executor.value().item() < 0.5 * first);
  BOOST_TEST(difference(model.parameter("0.bias").value(), frozen) == 0);

  esp::nn::save(model, folder / "trained.safetensors");
  esp::onnx::Model other = esp::onnx::load(folder / "net.onnx");
  esp::nn::load(other, folder / "trained.safetensors");
  const esp::Variable fed = esp::onnx::load(folder / "net.onnx").output();
  BOOST_TEST(difference(run_inference(other.output(), x), run_inference(fed, x)) > 0.01);
  BOOST_TEST(difference(other.parameter("4.weight").value(), model.parameter("4.weight").value()) == 0);
}

/// PyTorch's exporter writes equal weights once, such as those of a new BatchNorm.
BOOST_AUTO_TEST_CASE(equal_weights_written_as_identities_are_their_own) {
  const TemporaryFolder folder;
  const auto file =
      espalier::testing::NodeFile()
          .input("x", {"n", "3"})
          .output("y")
          .output("shown")
          .constant("0.weight", esp::ones({3}))
          .constant("0.bias", esp::zeros({3}))
          .node("Identity", {"0.weight"}, "0.running_var")
          .node("Identity", {"0.bias"}, "0.running_mean")
          .node("Identity", {"0.bias"}, "1.bias")
          .node("Identity", {"1.bias"}, "2.bias")
          .node("Identity", {"0.weight"}, "shown")
          .node("BatchNormalization", {"x", "0.weight", "0.bias", "0.running_mean", "0.running_var"}, "n")
          .node("Add", {"n", "1.bias"}, "a")
          .node("Mul", {"a", "a"}, "b")
          .node("Add", {"b", "2.bias"}, "y")
          .in(folder);
  const esp::data::Distributor feed({esp::randn({8, 3})}, {.batch_size = 8});
  const auto [column] = feed.get_output_graphs<1>();
  const esp::onnx::Model model = esp::onnx::load(file, {.inputs = {{"x", column}}});
  BOOST_TEST(model.buffers().size() == 2u);
  BOOST_TEST(model.parameters().size() == 4u);
  const esp::Executor executor =
      esp::mean(esp::square(model.output("y") - 1)).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST(difference(model.buffer("0.running_var").value(), esp::ones({3})) == 0);
  BOOST_TEST(difference(model.buffer("0.running_mean").value(), esp::zeros({3})) == 0);
  BOOST_TEST(difference(model.parameter("2.bias").value(), model.parameter("1.bias").value()) > 1e-4);
  // An output shows the weight itself.
  BOOST_TEST(model.output("shown").node() == model.parameter("0.weight").node());
}

BOOST_AUTO_TEST_CASE(a_model_leaves_as_a_plan_and_as_a_file) {
  const TemporaryFolder folder;
  write_classifier(folder);
  const esp::onnx::Model model = esp::onnx::load(folder / "net.onnx");
  model.output().get_executor({.mode = esp::Mode::inference}).save(folder / "net.plan");
  esp::onnx::save(folder / "again.onnx", {{"x", model.inputs()[0].second}}, {{"y", model.output()}});
  const esp::Tensor x = esp::randn({7, 6}), wanted = run_inference(model.output(), x);
  BOOST_TEST(difference(esp::load_executor(folder / "net.plan").run({{"x", x}}), wanted) < 1e-6);
  BOOST_TEST(difference(run_inference(esp::onnx::load(folder / "again.onnx").output(), x), wanted) < 1e-6);
}

BOOST_AUTO_TEST_CASE(named_axes_are_open_or_have_a_size) {
  const TemporaryFolder folder;
  write_classifier(folder);
  const esp::onnx::Model open = esp::onnx::load(folder / "net.onnx");
  BOOST_TEST(open.inputs()[0].second.shape().str() == "[-1, 6]");
  const esp::onnx::Model closed = esp::onnx::load(folder / "net.onnx", {.sizes = {{"batch", 8}}});
  BOOST_TEST(closed.inputs()[0].second.shape()[0] == 8);
}

BOOST_AUTO_TEST_CASE(dense_over_open_axes) {
  const TemporaryFolder folder;
  const esp::nn::Dense dense(6, 4);
  const esp::Tensor x = esp::randn({2, 3, 6});
  const esp::Tensor wanted = dense(x).value();
  for (const esp::Shape& sizes : {esp::Shape{-1, -1, 6}, {2, -1, 6}, {-1, 3, 6}, {2, 3, 6}}) {
    const esp::Variable in = esp::placeholder("x", sizes);
    esp::onnx::save(folder / "dense.onnx", {{"x", in}}, {{"y", dense(in)}});
    BOOST_TEST(difference(run_inference(esp::onnx::load(folder / "dense.onnx").output(), x), wanted) < 1e-6);
  }
}

/// An input that is called as an output of a node would be; an output of a scan at which the file begins; and
/// a block that is computed again in training.
BOOST_AUTO_TEST_CASE(scans_and_recomputed_blocks_are_written) {
  const TemporaryFolder folder;
  const esp::Variable x = esp::variable(esp::ones({4, 6}));
  const auto adds = [](const std::vector<esp::Variable>& state, const std::vector<esp::Variable>& in) {
    const esp::Variable next = state[0] + in[0];
    return esp::ScanResult{{next}, {next * 2.0}};
  };
  const esp::ScanResult run = esp::scan(adds, {esp::zeros({6})}, {x});
  const esp::Variable y = esp::recompute([](const esp::Variable& v) { return v + 1.0; }, run.outputs[0]);
  esp::onnx::save(folder / "a.onnx", {{"Scan.1", x}}, {{"y", y}});
  const esp::Tensor value =
      esp::onnx::load(folder / "a.onnx").output().get_executor().run({{"Scan.1", esp::ones({4, 6})}});
  BOOST_TEST(value.at<float>({3, 5}) == 9);
  esp::onnx::save(folder / "b.onnx", {{"h", run.outputs[0]}}, {{"y", run.outputs[0] * 3.0}});
  BOOST_TEST(esp::onnx::load(folder / "b.onnx").inputs().size() == 1u);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_refused) {
  const TemporaryFolder folder;
  const esp::Variable x = esp::placeholder("x", {4, 6}), z = esp::placeholder("z", {4, 6});
  BOOST_CHECK_THROW(esp::onnx::save(folder / "a.onnx", {{"x", x}}, {{"y", x + z}}), esp::Error);
  BOOST_CHECK_THROW(esp::onnx::save(folder / "a.onnx", {{"x", x}}, {{"x", x + 1}}), esp::Error);
  BOOST_CHECK_THROW(esp::onnx::save(folder / "a.onnx", {{"x", x}}, {}), esp::Error);
  BOOST_CHECK_THROW(esp::onnx::save(folder / "a.onnx", {{"x", x}}, {{"y", esp::digamma(x)}}),
                    esp::UnsupportedError);
  const esp::Variable squares = esp::placeholder("squares", {2, 3, 3});
  BOOST_CHECK_EXCEPTION(
      esp::onnx::save(folder / "a.onnx", {{"x", squares}}, {{"y", esp::slogdet(squares).log_abs}}),
      esp::UnsupportedError, [](const esp::UnsupportedError& error) {
        const std::string_view text = error.what();
        return text.find("computes the determinant (in slogdet, ") != text.npos;
      });
  const auto step = [](const std::vector<esp::Variable>& state, const std::vector<esp::Variable>& in) {
    return esp::ScanResult{{state[0] + esp::digamma(in[0])}, {}};
  };
  // A file begins at all outputs of a node or at none, and a loop has steps.
  const auto adds = [](const std::vector<esp::Variable>& state, const std::vector<esp::Variable>& in) {
    const esp::Variable next = state[0] + in[0];
    return esp::ScanResult{{next}, {next * 2.0}};
  };
  const esp::ScanResult both = esp::scan(adds, {esp::zeros({6})}, {x}),
                        none = esp::scan(adds, {esp::zeros({6})}, {esp::slice(x, 0, 0, 0)});
  BOOST_CHECK_THROW(esp::onnx::save(folder / "a.onnx", {{"x", x}, {"h", both.state[0]}},
                                    {{"y", both.outputs[0] + both.state[0]}}),
                    esp::UnsupportedError);
  BOOST_CHECK_THROW(esp::onnx::save(folder / "a.onnx", {{"x", x}}, {{"y", none.state[0]}}),
                    esp::UnsupportedError);
  const esp::Variable sum = esp::scan(step, {esp::zeros({6})}, {x}).state[0];
  BOOST_CHECK_EXCEPTION(esp::onnx::save(folder / "a.onnx", {{"x", x}}, {{"y", sum}}), esp::UnsupportedError,
                        [](const esp::UnsupportedError& error) {
                          const std::string text = error.what();
                          return text.find("'digamma' (") != text.npos &&
                                 text.find("models_test.cpp") != text.npos;
                        });
  BOOST_TEST(folder.files() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
