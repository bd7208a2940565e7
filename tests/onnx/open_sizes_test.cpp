// ONNX files that compute with the sizes of open axes: sums and differences of them, and numbers of each run.
#include <boost/test/unit_test.hpp>

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

BOOST_AUTO_TEST_SUITE(onnx_open_sizes)

/// As exporters write a step of a decoder with a cache: rows of a mask and of positions, from the end of the
/// past on.
BOOST_AUTO_TEST_CASE(sums_of_sizes_and_differences) {
  const TemporaryFolder folder;
  const auto sums = [](File file) -> File {
    return file.input("past", {"b", "p", "3"})
        .input("x", {"b", "t", "3"})
        .output("y")
        .sizes("past", "p", {"1"})
        .sizes("x", "t", {"1"})
        .integers("none", {})
        .integers("first", {0})
        .integers("second", {1})
        .integers("last", {9'000'000'000'000'000'000})
        .node("Add", {"p", "t"}, "total")
        .node("Concat", {"past", "x"}, "all")
        .with("axis", 1);
  };
  const auto positions = sums(File())
                             .constant("table", esp::arange(60, esp::float32).reshape({20, 3}))
                             .constant("one", esp::tensor(int64_t{1}))
                             .node("Reshape", {"p", "none"}, "begin")
                             .node("Reshape", {"total", "none"}, "end")
                             .node("Range", {"begin", "end", "one"}, "range")
                             .node("Gather", {"table", "range"}, "y")
                             .in(folder);
  const esp::Tensor past = esp::randn({2, 4, 3}), x = esp::randn({2, 3, 3}), none = esp::randn({2, 0, 3});
  const esp::Tensor table = esp::arange(60, esp::float32).reshape({20, 3});
  const auto run = [](const esp::onnx::Model& model, const esp::Tensor& before, const esp::Tensor& now) {
    const esp::Executor executor = model.output().get_executor({.mode = esp::Mode::inference});
    return executor.run({{"past", before}, {"x", now}});
  };
  const esp::onnx::Model places = esp::onnx::load(positions);
  BOOST_TEST(difference(run(places, past, x), table.slice(0, 4, 7)) == 0);
  BOOST_TEST(difference(run(places, none, x), table.slice(0, 0, 3)) == 0);
  BOOST_TEST(difference(run(places, x, past), table.slice(0, 3, 7)) == 0);

  // Of the whole mask the rows of x and the columns of all, by three ways to say where the rows begin.
  const esp::Tensor mask = esp::tril(esp::ones({20, 20})).value();
  const auto wanted = [&](int64_t before, int64_t now) {
    return esp::matmul(esp::Variable(mask.slice(0, before, before + now).slice(1, 0, before + now)),
                       esp::Variable(esp::concat({past.slice(1, 0, before), x.slice(1, 0, now)}, 1)))
        .value();
  };
  const auto masked = [&](File file) {
    return file.constant("mask", mask)
        .node("Slice", {"mask", "begin", "total", "first"}, "rows")
        .node("Slice", {"rows", "first", "total", "second"}, "part")
        .node("MatMul", {"part", "all"}, "y")
        .in(folder);
  };
  const auto file = [&](int way) {
    if (way == 0) return masked(sums(File()).node("Sub", {"total", "t"}, "begin"));
    if (way == 1) return masked(sums(File()).node("Identity", {"p"}, "begin"));
    return sums(File())
        .node("Neg", {"t"}, "begin")
        .constant("mask", mask)
        .node("Slice", {"mask", "first", "total", "first"}, "square")
        .node("Slice", {"square", "first", "total", "second"}, "columns")
        .node("Slice", {"columns", "begin", "last", "first"}, "part")
        .node("MatMul", {"part", "all"}, "y")
        .in(folder);
  };
  for (int way = 0; way < 3; ++way) {
    const esp::onnx::Model model = esp::onnx::load(file(way));
    for (const auto& [before, now] : {std::pair(4, 3), {4, 1}, {1, 3}, {0, 2}})
      BOOST_TEST(
          difference(run(model, past.slice(1, 0, before), x.slice(1, 0, now)), wanted(before, now)) < 1e-5,
          "way " << way << ", " << before << " and " << now);
  }
}

/// As numbers beside what a batch has, and in comparisons; behind windows too.
BOOST_AUTO_TEST_CASE(sizes_that_a_batch_computes_with) {
  const TemporaryFolder folder;
  const esp::Tensor x = esp::randn({2, 9, 3});
  const auto checked = [&](File file, const std::function<esp::Variable(const esp::Variable&)>& wanted) {
    const esp::onnx::Model model = esp::onnx::load(file.in(folder));
    for (const int64_t t : {9, 4, 3})
      BOOST_TEST(difference(run_inference(model.output(), x.slice(1, 0, t)),
                            wanted(esp::Variable(x.slice(1, 0, t))).value()) < 1e-6,
                 t);
  };
  const auto begun = [] {
    return File()
        .input("x", {"b", "t", "3"})
        .output("y")
        .sizes("x", "t", {"1"})
        .integers("two", {2})
        .integers("one", {1});
  };
  checked(begun()
              .node("Div", {"t", "two"}, "half")
              .integers("none", {})
              .node("Squeeze", {"half"}, "middle")
              .node("Gather", {"x", "middle"}, "y")
              .with("axis", 1),
          [](const esp::Variable& v) {
            const int64_t t = v.shape()[1];
            return esp::squeeze(esp::slice(v, 1, t / 2, t / 2 + 1), {1});
          });
  checked(begun()
              .constant("places", esp::arange(9, esp::int64))
              .node("Sub", {"t", "two"}, "end")
              .node("Less", {"places", "end"}, "seen")
              .constant("first", esp::zeros({}, esp::int64))
              .node("Cast", {"seen"}, "mask")
              .with("to", 1)
              .node("ReduceSum", {"x", "one"}, "sums")
              .with("keepdims", 0)
              .node("ReduceSum", {"mask"}, "count")
              .with("keepdims", 0)
              .node("Mul", {"sums", "count"}, "y"),
          [](const esp::Variable& v) { return esp::sum(v, 1) * static_cast<double>(v.shape()[1] - 2); });
  // The mean over what windows leave, as PyTorch writes y.sum(1) / y.shape[1].
  checked(File()
              .input("x", {"b", "t", "3"})
              .output("y")
              .integers("one", {1})
              .integers("far", {1'000'000'000})
              .integers("two", {2})
              .node("Slice", {"x", "one", "far", "one", "two"}, "odd")
              .node("Shape", {"odd"}, "shape")
              .node("Gather", {"shape", "one"}, "n")
              .node("ReduceSum", {"odd", "one"}, "sums")
              .with("keepdims", 0)
              .node("Cast", {"n"}, "real")
              .with("to", 1)
              .node("Div", {"sums", "real"}, "y"),
          [](const esp::Variable& v) {
            return esp::mean(v[{esp::all, esp::range(1, esp::end, 2)}], 1);
          });
}

BOOST_AUTO_TEST_SUITE_END()
