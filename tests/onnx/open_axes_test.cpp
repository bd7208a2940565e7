// ONNX files whose axes have other sizes from run to run: written, read, and fed with batches of any size.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/onnx.h"
#include "onnx/node_file.h"
#include "onnx/runs.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::difference;
using File = espalier::testing::NodeFile;
using espalier::testing::run_inference;
using espalier::testing::TemporaryFolder;

namespace {

using Rows = std::function<esp::Variable(const esp::Variable&)>;

/// What a file makes of `x` is `wanted`, row by row: by its own placeholder, a feed whose last batch is
/// short, at once and in a plan, and a placeholder run with fewer rows than it has.
void check_rows(const std::filesystem::path& file, const esp::Tensor& x, const Rows& wanted) {
  const auto of_rows = [&](int64_t begin, int64_t end) {
    const esp::Tensor part = x.slice(0, begin, end);
    return std::pair(part, wanted(esp::Variable(part)).value());
  };
  const int64_t rows = x.shape()[0], batch = rows - 1;
  const auto [all, of_all] = of_rows(0, rows);
  const auto [front, of_front] = of_rows(0, batch);
  const auto [last, of_last] = of_rows(batch, rows);
  const esp::onnx::Model open = esp::onnx::load(file);
  BOOST_TEST(difference(run_inference(open.output(), all), of_all) < 1e-5);
  BOOST_TEST(difference(run_inference(open.output(), last), of_last) < 1e-5);

  const esp::data::Distributor feed({x}, {.batch_size = batch});
  const auto [column] = feed.get_output_graphs<1>();
  const esp::onnx::Model fed = esp::onnx::load(file, {.inputs = {{"x", column}}});
  BOOST_TEST(fed.inputs()[0].second.node() == column.node());
  const esp::Executor executor = fed.output().get_executor({.mode = esp::Mode::inference});
  executor.step();
  BOOST_TEST(difference(executor.value(), of_front) < 1e-5);
  executor.step();
  BOOST_TEST(difference(executor.value(), of_last) < 1e-5);
  esp::Variable eager = fed.output();
  BOOST_TEST(difference(eager.forward().value(), of_front) < 1e-5);
  BOOST_TEST(difference(eager.forward().value(), of_last) < 1e-5);

  const esp::Variable fixed = esp::placeholder("x", front.shape());
  const esp::onnx::Model given = esp::onnx::load(file, {.inputs = {{"x", fixed}}});
  BOOST_TEST(difference(run_inference(given.output(), front), of_front) < 1e-5);
  BOOST_TEST(difference(run_inference(given.output(), last), of_last) < 1e-5);

  // What was read is written, and read again.
  const std::filesystem::path again = file.parent_path() / "again.onnx";
  esp::onnx::save(again, {{"x", open.inputs()[0].second}}, {{"y", open.output()}});
  BOOST_TEST(difference(run_inference(esp::onnx::load(again).output(), all), of_all) < 1e-5);
}

/// A tree over open axes comes back from its file.
void check_written(const TemporaryFolder& folder, const esp::Shape& sizes, const esp::Tensor& x,
                   const Rows& f) {
  const esp::Variable in = esp::placeholder("x", sizes), y = f(in);
  esp::onnx::save(folder / "tree.onnx", {{"x", in}}, {{"y", y}});
  BOOST_TEST(difference(run_inference(esp::onnx::load(folder / "tree.onnx").output(), x),
                        run_inference(y, x)) < 1e-5);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_open_axes)

/// PyTorch's exporter writes a GroupNorm so.
BOOST_AUTO_TEST_CASE(a_zero_of_reshape_is_the_axis_of_each_batch) {
  const TemporaryFolder folder;
  const auto file = File()
                        .input("x", {"n", "4", "2"})
                        .output("y")
                        .integers("groups", {0, 2, -1})
                        .integers("axis", {2})
                        .node("Reshape", {"x", "groups"}, "r")
                        .node("ReduceSum", {"r", "axis"}, "s")
                        .node("Sub", {"r", "s"}, "d")
                        .node("Shape", {"x"}, "shape")
                        .node("Reshape", {"d", "shape"}, "y")
                        .in(folder);
  check_rows(file, esp::randn({3, 4, 2}), [](const esp::Variable& x) {
    const esp::Variable r = esp::unflatten(x, 1, {2, 2});
    return x - esp::reshape(r * 0.0 + esp::sum(r, {2, 3}, true), x.shape());
  });
  // An axis that was given a size is that of each run, too.
  const esp::onnx::Model model = esp::onnx::load(file, {.sizes = {{"n", 2}}});
  const esp::Tensor x = esp::randn({3, 4, 2}), y = run_inference(esp::onnx::load(file).output(), x);
  BOOST_TEST(difference(run_inference(model.output(), x.slice(0, 2, 3)), y.slice(0, 2, 3)) == 0);
}

/// Rows of all steps, multiplied and given back their axes, in the ways that exporters write.
BOOST_AUTO_TEST_CASE(sizes_of_two_open_axes_stay_apart) {
  const TemporaryFolder folder;
  const esp::Tensor weight = esp::randn({8, 6}), x = esp::randn({3, 5, 8});
  const Rows wanted = [&](const esp::Variable& v) {
    return esp::sum(esp::reshape(esp::matmul(esp::reshape(v, {-1, 8}), esp::Variable(weight)),
                                 {v.shape()[0], v.shape()[1], 6}),
                    1);
  };
  const auto file_with = [&](const std::function<void(File&)>& sizes) {
    File file;
    file.input("x", {"b", "t", "8"}).output("y").constant("w", weight).integers("axis", {1});
    file.integers("flat", {-1, 8}).node("Reshape", {"x", "flat"}, "rows").node("MatMul", {"rows", "w"}, "m");
    sizes(file);
    file.node("Reshape", {"m", "sizes"}, "r").node("ReduceSum", {"r", "axis"}, "y").with("keepdims", 0);
    return file.in(folder);
  };
  check_rows(file_with([](File& f) { f.sizes("x", "sizes", {"0", "1", "#6"}); }), x, wanted);
  check_rows(file_with([](File& f) { f.sizes("x", "sizes", {"0", "1", "#-1"}); }), x, wanted);
  check_rows(file_with([](File& f) { f.sizes("x", "sizes", {"0", "#-1", "#6"}); }), x, wanted);
  check_rows(file_with([](File& f) {
               f.node("Shape", {"x"}, "shape").integers("begin", {0}).integers("end", {-1});
               f.node("Slice", {"shape", "begin", "end"}, "front").integers("six", {6});
               f.node("Concat", {"front", "six"}, "sizes").with("axis", 0);
             }),
             x, wanted);
}

/// b·t as one axis, divided again; of one nominal size each, their order counts.
BOOST_AUTO_TEST_CASE(products_of_sizes_and_quotients) {
  const TemporaryFolder folder;
  const auto file = File()
                        .input("x", {"b", "t", "8"})
                        .output("y")
                        .sizes("x", "b", {"0"})
                        .sizes("x", "t", {"1"})
                        .integers("two", {2})
                        .integers("four", {4})
                        .node("Mul", {"b", "two"}, "2b")
                        .node("Mul", {"2b", "t"}, "2bt")
                        .node("Concat", {"2bt", "four"}, "rows")
                        .with("axis", 0)
                        .node("Reshape", {"x", "rows"}, "r")
                        .node("Div", {"2bt", "2b"}, "t again")
                        .node("Concat", {"t again", "2b", "four"}, "swapped")
                        .with("axis", 0)
                        .node("Reshape", {"r", "swapped"}, "y")
                        .in(folder);
  const esp::Tensor x = esp::randn({3, 5, 8});
  BOOST_TEST(difference(run_inference(esp::onnx::load(file).output(), x), x.reshape({5, 6, 4})) == 0);
  // Another number would be in its place.
  const auto refused = File()
                           .input("x", {"b", "t", "8"})
                           .output("y")
                           .sizes("x", "b", {"0"})
                           .integers("one", {1})
                           .integers("rest", {-1})
                           .node("Max", {"b", "one"}, "most")
                           .node("Concat", {"most", "rest"}, "sizes")
                           .with("axis", 0)
                           .node("Reshape", {"x", "sizes"}, "y")
                           .in(folder);
  BOOST_CHECK_THROW(esp::onnx::load(refused), esp::UnsupportedError);
}

/// PyTorch's exporter writes `token.expand(n, -1, -1)` so: sizes of -1 become 1 before they are expanded to.
BOOST_AUTO_TEST_CASE(how_many_sizes_there_are_is_a_number) {
  const TemporaryFolder folder;
  const esp::Tensor token = esp::randn({1, 1, 4});
  const auto file = File()
                        .input("x", {"n", "3", "4"})
                        .output("y")
                        .constant("token", token)
                        .constant("minus", esp::tensor(int64_t{-1}))
                        .sizes("x", "sizes", {"0", "#-1", "#-1"})
                        .node("Shape", {"sizes"}, "count")
                        .constant("one", esp::tensor(int64_t{1}))
                        .node("Expand", {"one", "count"}, "ones")
                        .node("Mul", {"ones", "minus"}, "kept")
                        .node("Equal", {"sizes", "kept"}, "stays")
                        .node("Where", {"stays", "ones", "sizes"}, "wanted")
                        .node("Expand", {"token", "wanted"}, "tokens")
                        .node("Concat", {"tokens", "x"}, "y")
                        .with("axis", 1)
                        .in(folder);
  check_rows(file, esp::randn({3, 3, 4}), [&](const esp::Variable& x) {
    return esp::concat({esp::broadcast_to(token, {x.shape()[0], 1, 4}), x}, 1);
  });
}

/// Numbers of sizes in other places: repeats, halves, and as reals.
BOOST_AUTO_TEST_CASE(sizes_that_repeat_and_divide) {
  const TemporaryFolder folder;
  const esp::Tensor x = esp::randn({3, 7, 2});
  const auto repeated = File()
                            .input("x", {"b", "t", "2"})
                            .output("y")
                            .sizes("x", "repeats", {"1", "#2"})
                            .constant("row", esp::tensor_from(std::vector{1.0f, 2.0f}, {2, 1}))
                            .node("Tile", {"row", "repeats"}, "y")
                            .in(folder);
  const esp::Tensor row = esp::tensor_from(std::vector{1.0f, 2.0f}, {2, 1});
  BOOST_TEST(difference(run_inference(esp::onnx::load(repeated).output(), x),
                        esp::tile(esp::Variable(row), {7, 2}).value()) == 0);
  const auto halves = File()
                          .input("x", {"b", "t", "2"})
                          .output("y")
                          .sizes("x", "t", {"1"})
                          .integers("two", {2})
                          .integers("first", {0})
                          .integers("second", {1})
                          .node("Div", {"t", "two"}, "half")
                          .node("Slice", {"x", "first", "half", "second"}, "y")
                          .in(folder);
  for (const int64_t t : {7, 6, 2})
    BOOST_TEST(difference(run_inference(esp::onnx::load(halves).output(), x.slice(1, 0, t)),
                          x.slice(1, 0, t / 2)) == 0);
  const auto means = File()
                         .input("x", {"b", "t", "2"})
                         .output("y")
                         .sizes("x", "sizes", {"0", "1"})
                         .node("ReduceProd", {"sizes"}, "count")
                         .with("keepdims", 0)
                         .node("Cast", {"count"}, "real")
                         .with("to", 1)
                         .node("ReduceSum", {"x"}, "sum")
                         .with("keepdims", 1)
                         .node("Div", {"sum", "real"}, "mean")
                         .node("Sub", {"x", "mean"}, "y")
                         .in(folder);
  check_rows(means, x, [&](const esp::Variable& v) { return v - esp::mean(v) * 2; });
}

BOOST_AUTO_TEST_CASE(trees_over_open_axes_come_back) {
  const TemporaryFolder folder;
  const esp::Tensor x = esp::randn({3, 5, 8});
  esp::nn::Dense dense(8, 8);
  esp::nn::TransformerEncoderLayer encoder(8, 2, {.feedforward = 16, .dropout = 0, .norm_first = true});
  encoder.train(false);
  const std::vector<Rows> trees{
      [&](const esp::Variable& v) { return esp::sum(dense(v), 1); },
      [&](const esp::Variable& v) { return v + dense(v); },
      [&](const esp::Variable& v) { return encoder(v); },
      [&](const esp::Variable& v) { return v + esp::flip(v, 1); },
      [&](const esp::Variable& v) { return esp::flip(v); },
  };
  for (const Rows& tree : trees)
    for (const esp::Shape& sizes : {esp::Shape{-1, -1, 8}, {-1, 5, 8}, {3, -1, 8}})
      check_written(folder, sizes, x, tree);
}

/// As TorchScript's exporter writes default states, masks and positions.
BOOST_AUTO_TEST_CASE(constants_in_the_shape_of_open_axes) {
  const TemporaryFolder folder;
  const esp::Tensor x = esp::randn({4, 3, 3});
  const auto states = File()
                          .input("x", {"b", "t", "3"})
                          .output("y")
                          .sizes("x", "sizes", {"#2", "0", "#3"})
                          .node("ConstantOfShape", {"sizes"}, "zeros")
                          .integers("axis", {0})
                          .node("ReduceSum", {"zeros", "axis"}, "none")
                          .with("keepdims", 0)
                          .integers("one", {1})
                          .node("Unsqueeze", {"none", "one"}, "n")
                          .node("Add", {"x", "n"}, "y")
                          .in(folder);
  check_rows(states, x, [](const esp::Variable& v) { return v; });
  const auto masks = File()
                         .input("x", {"b", "t", "3"})
                         .output("y")
                         .sizes("x", "sizes", {"1", "1"})
                         .constant("one", esp::tensor_from(std::vector{1.0f}, {1}))
                         .node("Expand", {"one", "sizes"}, "ones")
                         .node("Trilu", {"ones"}, "mask")
                         .with("upper", 0)
                         .node("MatMul", {"mask", "x"}, "y")
                         .in(folder);
  check_rows(masks, x, [](const esp::Variable& v) { return esp::cumsum(v, 1); });
  const auto positions = File()
                             .input("x", {"b", "t", "3"})
                             .output("y")
                             .constant("table", esp::arange(30, esp::float32).reshape({10, 3}))
                             .node("Shape", {"x"}, "shape")
                             .constant("at", esp::tensor(int64_t{1}))
                             .node("Gather", {"shape", "at"}, "t")
                             .constant("zero", esp::tensor(int64_t{0}))
                             .node("Range", {"zero", "t", "at"}, "range")
                             .node("Gather", {"table", "range"}, "part")
                             .integers("begin", {0})
                             .node("Unsqueeze", {"t", "begin"}, "end")
                             .node("Slice", {"table", "begin", "end"}, "same")
                             .node("Sub", {"part", "same"}, "none")
                             .node("Add", {"x", "none"}, "y")
                             .in(folder);
  const esp::onnx::Model model = esp::onnx::load(positions);
  BOOST_TEST(difference(run_inference(model.output(), x), x) == 0);
}

BOOST_AUTO_TEST_CASE(a_model_is_trained_on_replicas_and_in_parts) {
  const TemporaryFolder folder;
  const auto file = File()
                        .input("x", {"b", "t", "8"})
                        .output("y")
                        .constant("w", esp::full({8, 8}, 0.1))
                        .sizes("x", "sizes", {"0", "1", "#2", "#4"})
                        .node("MatMul", {"x", "w"}, "m")
                        .node("Reshape", {"m", "sizes"}, "r")
                        .node("Relu", {"r"}, "y")
                        .in(folder);
  const esp::Tensor x = esp::randn({5, 3, 8});
  std::vector<double> losses;
  for (const int kind : {0, 1, 2}) {
    const esp::data::Distributor feed({x}, {.batch_size = 4});
    const auto [column] = feed.get_output_graphs<1>();
    const esp::onnx::Model model = esp::onnx::load(file, {.inputs = {{"x", column}}});
    esp::ExecutorOptions options{.optimizer = esp::optim::Sgd(0.1)};
    if (kind == 1) options.devices = {esp::cpu(0), esp::cpu(1)};
    if (kind == 2) options.accumulate = 2;
    const esp::Variable r = esp::reshape(model.output(), {-1});
    const esp::Executor executor = esp::mean(esp::square(r)).get_executor(options);
    for (int step = 0; step < 2; ++step) losses.push_back(executor.step().loss);
    BOOST_TEST(std::abs(losses[losses.size() - 2] - losses[0]) < 1e-5);
    BOOST_TEST(std::abs(losses.back() - losses[1]) < 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(names_that_the_file_does_not_have) {
  const TemporaryFolder folder;
  const auto file = File().input("x", {"batch", "time", "8"}).output("y").node("Relu", {"x"}, "y").in(folder);
  const auto reason = [&](const esp::onnx::LoadOptions& options) {
    try {
      esp::onnx::load(file, options);
    } catch (const esp::DataError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  const std::string sizes = reason({.sizes = {{"bach", 3}}}),
                    inputs = reason({.inputs = {{"X", esp::tensor(1.0f)}}});
  BOOST_TEST(sizes.find("'bach'") != sizes.npos, sizes);
  BOOST_TEST(sizes.find("'batch', 'time'") != sizes.npos, sizes);
  BOOST_TEST(inputs.find("no input 'X'; it has 'x'") != inputs.npos, inputs);
  const std::string twice = reason({.sizes = {{"batch", 3}, {"time", 2}, {"batch", 4}}}),
                    given = reason({.inputs = {{"x", esp::ones({4, 3, 8})}, {"x", esp::ones({2, 3, 8})}}});
  BOOST_TEST(twice.find("'batch' was given twice") != twice.npos, twice);
  BOOST_TEST(given.find("'x' was given twice") != given.npos, given);
  for (const std::string& text : {sizes, inputs, twice, given}) {
    BOOST_TEST(text.find("model.onnx") != text.npos, text);
    BOOST_TEST(text.find("open_axes_test.cpp:") != text.npos, text);
  }
  BOOST_CHECK_THROW(esp::onnx::load(file, {.inputs = {{"x", esp::ones({4, 3, 8})}}, .sizes = {{"batch", 5}}}),
                    esp::ShapeError);
  BOOST_CHECK_THROW(esp::onnx::load(file, {.inputs = {{"x", esp::ones({4, 8})}}}), esp::ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
