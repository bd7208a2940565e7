// Sizes of open axes in C++ code: they cannot be read, and no other number is taken for one.
#include <boost/test/unit_test.hpp>

#include <string>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(open_sizes)

BOOST_AUTO_TEST_CASE(the_sizes_of_open_axes_cannot_be_read) {
  const int line = __LINE__ + 1;
  const Variable x = esp::placeholder("x", {-1, 7, -1});
  const auto refused =
      says({"axis", "open (-1)", "[-1, 7, -1]", "axis_size", "open_sizes_test.cpp:" + std::to_string(line)});
  BOOST_CHECK_EXCEPTION((void)x.shape()[0], esp::UnsupportedError, refused);
  BOOST_CHECK_EXCEPTION((void)x.shape()[-1], esp::UnsupportedError, refused);
  BOOST_CHECK_EXCEPTION((void)x.shape().elements(), esp::UnsupportedError, refused);
  const esp::Shape copy = x.shape();
  BOOST_CHECK_EXCEPTION((void)copy[0], esp::UnsupportedError, refused);
  BOOST_TEST(x.shape()[1] == 7);
  BOOST_TEST(x.shape().rank() == 3);
  BOOST_TEST(x.shape().str() == "[-1, 7, -1]");
  // So are sizes made of them, however they are made.
  const auto shape_of = [](const Variable& v) { return v.shape().str(); };
  BOOST_TEST(shape_of(esp::slice(x, 2, 1, -1)) == "[-1, 7, -1]");
  BOOST_TEST(shape_of(esp::flatten(x, 1)) == "[-1, -1]");
  BOOST_TEST(shape_of(esp::sum(x, 0)) == "[7, -1]");
  BOOST_TEST(shape_of(esp::slice(x, 2, 0, 543)) == "[-1, 7, 543]");
  BOOST_TEST(shape_of(esp::max_pool(esp::unsqueeze(x, 0), {.kernel = {2, 3}})) == "[1, -1, 3, -1]");
  BOOST_CHECK_THROW((void)esp::slice(x, 2, 1, -1).shape()[2], esp::UnsupportedError);
  BOOST_TEST(esp::slice(x, 2, 0, 543).shape()[2] == 543);
  // In a step of a scan too.
  BOOST_CHECK_EXCEPTION(esp::scan(
                            [](const std::vector<Variable>&, const std::vector<Variable>& in) {
                              return esp::ScanResult{{}, {in[0] * static_cast<double>(in[0].shape()[1])}};
                            },
                            {}, {esp::placeholder("steps", {3, 2, -1})}),
                        esp::UnsupportedError, says({"open (-1)", "axis 1"}));
}

/// Widths and numbers are no sizes of the tree, however near they are to parts of what stands for these.
BOOST_AUTO_TEST_CASE(numbers_that_no_size_has_made) {
  const Variable x = esp::placeholder("x", {-1, 4});
  const esp::Tensor in = numbers({3, 4}).to(esp::float32);
  for (const int64_t width : {271, 542, 543, 1084, 1085, 2168, 4336, 8672}) {
    const Variable y = esp::sum(esp::nn::Dense(width)(x), 1);
    BOOST_TEST(y.get_executor({.mode = esp::Mode::inference}).run({{"x", in}}).shape() == esp::Shape{3});
  }
  for (const double number : {271.0, 542.0, 813.0, 33.875, 1 / 271.0})
    BOOST_TEST(difference((x * number).get_executor({.mode = esp::Mode::inference}).run({{"x", in}}),
                          (Variable(in) * number).value()) == 0);
}

/// Nothing is created, so that a layer can learn its width from another input.
BOOST_AUTO_TEST_CASE(layers_learn_no_width_from_an_open_axis) {
  const Variable x = esp::placeholder("x", {-1, -1}), steps = esp::placeholder("steps", {2, 3, -1}),
                 images = esp::placeholder("images", {-1, -1, 8, 8});
  const auto refuses = [](auto layer, const Variable& in, const char* name) {
    BOOST_CHECK_EXCEPTION((void)layer(in), esp::UnsupportedError,
                          says({name, in.shape().str().c_str(), "open axis (-1)", "open_sizes_test.cpp:"}));
  };
  esp::nn::Dense dense(4);
  refuses(dense, x, "Dense");
  BOOST_TEST((dense(esp::ones({2, 3})).shape() == esp::Shape{2, 4}));
  BOOST_CHECK_EXCEPTION((void)dense(x), esp::ShapeError,
                        says({"Dense", "sizes -1 and 3", "write 3 in the placeholder"}));
  refuses(esp::nn::LayerNorm(), x, "LayerNorm");
  refuses(esp::nn::RmsNorm(), x, "RmsNorm");
  refuses(esp::nn::BatchNorm(), x, "BatchNorm");
  refuses(esp::nn::Conv2d(4, {.kernel = 3}), images, "Conv2d");
  refuses(esp::nn::Conv2d(6, {.kernel = 3, .groups = 3}), images, "Conv2d");
  refuses(esp::nn::ConvTranspose2d(4, {.kernel = 3}), images, "ConvTranspose2d");
  refuses(esp::nn::Lstm(4), steps, "Lstm");
  refuses(esp::nn::GRUCell(4), x, "GRUCell");
  refuses(esp::nn::Dense(2), esp::flatten(steps, 1), "Dense");
  esp::nn::Bilinear pairs(2);
  const Variable known = esp::placeholder("known", {-1, 5});
  BOOST_CHECK_EXCEPTION((void)pairs(known, x), esp::UnsupportedError, says({"Bilinear", "[-1, -1]"}));
  BOOST_CHECK_EXCEPTION((void)pairs(x, known), esp::UnsupportedError, says({"Bilinear", "[-1, -1]"}));
  BOOST_TEST(pairs.parameters().empty());
}

BOOST_AUTO_TEST_CASE(parts_of_an_open_axis) {
  const Variable x = esp::placeholder("x", {2, -1});
  const auto refused = [](const char* name) {
    return says({name, "of [2, -1] is open", "open_sizes_test.cpp:"});
  };
  BOOST_CHECK_EXCEPTION((void)esp::split(x, 2, 1), esp::UnsupportedError, refused("split"));
  BOOST_CHECK_EXCEPTION((void)esp::split(x, {2, 3}, -1), esp::ShapeError, says({"split", "which is open"}));
  BOOST_CHECK_EXCEPTION((void)esp::unbind(x, -1), esp::UnsupportedError, refused("unbind"));
  BOOST_CHECK_EXCEPTION((void)esp::chunk(x, 3, 1), esp::UnsupportedError, refused("chunk"));
  for (const int64_t axis : {1, -1}) {
    const esp::Executor second = esp::chunk(x, 2, axis)[1].get_executor({.mode = esp::Mode::inference});
    const esp::Tensor in = esp::cast(esp::arange(12), esp::float32).value().reshape({2, 6});
    BOOST_TEST(difference(second.run({{"x", in}}), in.slice(1, 3, 6)) == 0);
    BOOST_CHECK_EXCEPTION((void)second.run({{"x", esp::ones({2, 5})}}), esp::ShapeError, says({"chunk"}));
  }
}

BOOST_AUTO_TEST_CASE(an_open_axis_beside_a_known_size) {
  const Variable x = esp::placeholder("x", {-1, -1});
  const auto advice = [](const char* name) {
    return says({name, "an open axis (-1) has no size", "write 3 in the placeholder"});
  };
  const auto three = esp::ones({2, 3});
  BOOST_CHECK_EXCEPTION((void)(x + three), esp::ShapeError, advice("add"));
  BOOST_CHECK_EXCEPTION((void)esp::matmul(x, esp::ones({3, 4})), esp::ShapeError, advice("matmul"));
  BOOST_CHECK_EXCEPTION((void)esp::einsum("ij,kj->ik", {x, three}), esp::ShapeError, advice("einsum"));
  BOOST_CHECK_EXCEPTION((void)esp::linear(x, three), esp::ShapeError, advice("linear"));
  BOOST_CHECK_EXCEPTION((void)esp::mean_squared_error(x, three), esp::ShapeError,
                        advice("mean_squared_error"));
  BOOST_CHECK_EXCEPTION((void)esp::layer_norm(x, esp::ones({3}), 0), esp::ShapeError, advice("layer_norm"));
  BOOST_CHECK_EXCEPTION((void)esp::prelu(x, esp::ones({3})), esp::ShapeError, advice("prelu"));
  BOOST_CHECK_EXCEPTION((void)(x + esp::flatten(x)), esp::ShapeError, says({"only if they are the same"}));
  BOOST_CHECK_EXCEPTION((void)esp::reshape(x, {-1, 3, 2}), esp::ShapeError,
                        says({"reshape", "open axes (-1)", "[-1, 3, 2]", "in the placeholder"}));
  // Sizes that are known are compared as ever.
  try {
    (void)esp::matmul(esp::placeholder("y", {-1, 2}), esp::ones({3, 4}));
    BOOST_ERROR("no error");
  } catch (const esp::ShapeError& error) {
    BOOST_TEST(std::string(error.what()).find("no size") == std::string::npos);
  }
}

/// A number for each row has those of a short last batch, too.
BOOST_AUTO_TEST_CASE(a_placeholder_with_a_number_for_each_row) {
  const esp::data::Distributor feed({esp::arange(20).reshape({10, 2})}, {.batch_size = 4});
  const Variable w = esp::placeholder("w", {4});
  const Variable rows = esp::sum(feed.get_output_graphs()[0], {1}) * w;
  esp::Executor executor = rows.get_executor({.mode = esp::Mode::inference});
  for (const int64_t n : {4, 4}) (void)executor.step({{"w", esp::arange(n)}});
  BOOST_CHECK_EXCEPTION((void)executor.step({{"w", esp::arange(4)}}), esp::ShapeError,
                        says({"'w' has 4 rows here", "the batch has 2", "open_sizes_test.cpp:"}));
  (void)executor.step({{"w", esp::arange(2)}});
  BOOST_TEST((executor.value().shape() == esp::Shape{2}));
  BOOST_TEST(executor.value().at<float>({1}) == 18 + 19);
}

BOOST_AUTO_TEST_SUITE_END()
