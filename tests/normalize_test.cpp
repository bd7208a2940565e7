// Normalization: the operation and its layer.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

Array normalized(const std::vector<Array>& in, double epsilon) {
  const int64_t n = in[0].shape[-1];
  return Array(in[0].shape, [&](const Index& at) {
    Index i = at;
    double mean = 0, variance = 0;
    for (i.back() = 0; i.back() < n; ++i.back()) mean += in[0](i) / static_cast<double>(n);
    for (i.back() = 0; i.back() < n; ++i.back())
      variance += std::pow(in[0](i) - mean, 2) / static_cast<double>(n);
    return (in[0](at) - mean) / std::sqrt(variance + epsilon) * in[1](at) + in[2](at);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(normalize)

BOOST_AUTO_TEST_CASE(layer_norm) {
  for (const esp::Shape& shape : {esp::Shape{3, 5}, {2, 2, 4}, {6}, {2, 1}, {0, 3}})
    check_op({.name = "layer_norm",
              .op = [](const Variables& x) { return esp::layer_norm(x[0], x[1], x[2], 0.1); },
              .inputs = {numbers(shape), numbers({shape[-1]}, 0.5, 2, 1), numbers({shape[-1]}, -1, 1, 2)},
              .reference = [](const std::vector<Array>& in) { return normalized(in, 0.1); }});
  check_op({.name = "layer_norm with numbers",
            .op = [](const Variables& x) { return esp::layer_norm(x[0], 1, 0); },
            .inputs = {numbers({3, 5})},
            .reference =
                [](const std::vector<Array>& in) {
                  const Array one(esp::tensor(1)), zero(esp::tensor(0));
                  return normalized({in[0], one, zero}, 1e-5);
                },
            .tolerance32 = 2e-4});  // for rows of equal numbers, the result is a rounding error
}

/// Where no gradient will be asked for, rows are computed one by one.
BOOST_AUTO_TEST_CASE(rows_without_a_gradient) {
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16})
    for (const esp::Shape& shape :
         {esp::Shape{7, 64}, {1, 5000}, {3, 2, 33}, {2, 2048}, {9, 1}, {0, 4}, {4, 0}}) {
      const esp::Tensor x = numbers(shape, -2, 3).to(dtype), gain = numbers({shape[-1]}, 0.5, 2, 1).to(dtype),
                        bias = numbers({shape[-1]}, -1, 1, 2).to(dtype);
      const esp::Tensor trained = esp::layer_norm(esp::parameter(x), gain, bias).value();
      const double bound = dtype == esp::float64 ? 1e-13 : dtype == esp::float32 ? 1e-5 : 2e-3;
      BOOST_TEST(difference(esp::layer_norm(x, gain, bias).value(), trained) <= bound);
      const esp::NoGrad none;
      BOOST_TEST(difference(esp::layer_norm(esp::parameter(x), gain, bias).value(), trained) <= bound);
      const esp::Variable turned = esp::transpose(esp::transpose(x).value().contiguous_copy());
      BOOST_TEST(difference(esp::layer_norm(turned, gain, bias).value(), trained) <= bound);
    }
}

BOOST_AUTO_TEST_CASE(unit_vectors_and_local_responses) {
  check_op({.name = "normalize",
            .op = [](const Variables& x) { return esp::normalize(x[0], {.p = 2}); },
            .inputs = {numbers({2, 3}, 0.5, 2)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array(in[0].shape, [&](const Index& at) {
                    double sum = 0;
                    for (int64_t i = 0; i < 3; ++i) sum += std::pow(in[0]({at[0], i}), 2);
                    return in[0](at) / std::sqrt(sum);
                  });
                },
            .roundings = 3});
  for (const int64_t size : {2, 3})
    check_op({.name = "local_response_norm",
              .op =
                  [=](const Variables& x) {
                    return esp::local_response_norm(x[0], {.size = size, .alpha = 0.5, .k = 2});
                  },
              .inputs = {numbers({2, 4, 2})},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array(in[0].shape, [&](const Index& at) {
                      double sum = 0;
                      for (int64_t c = at[1] - size / 2; c < at[1] - size / 2 + size; ++c)
                        if (c >= 0 && c < 4) sum += std::pow(in[0]({at[0], c, at[2]}), 2);
                      return in[0](at) / std::pow(2 + 0.5 / static_cast<double>(size) * sum, 0.75);
                    });
                  },
              .roundings = 3});
}

BOOST_AUTO_TEST_CASE(rows_far_from_zero_keep_their_digits) {
  const esp::Tensor x = (numbers({4, 64}).to(esp::float32) + 1000.0f).value();
  const esp::Tensor y = esp::layer_norm(x, 1, 0).value();
  const std::vector<Array> in = {Array(x), Array(esp::tensor(1)), Array(esp::tensor(0))};
  BOOST_TEST(difference(normalized(in, 1e-5), y) < 2e-4);
}

BOOST_AUTO_TEST_CASE(sixteen_bit_rows_are_computed_in_float32) {
  const double third = std::sqrt(1.0 / 5), whole = 3 * third;
  for (const auto& [dtype, values] :
       {std::pair<esp::DType, esp::Tensor>{esp::float16, esp::tensor({0.0f, 200.0f, 400.0f, 600.0f})},
        {esp::bfloat16, esp::tensor({100.0f, 100.5f, 101.0f, 101.5f})}}) {
    const esp::Tensor y = esp::layer_norm(values.to(dtype), 1, 0).value().to(esp::float32);
    const double expected[] = {-whole, -third, third, whole};
    for (int64_t i = 0; i < 4; ++i) BOOST_TEST(std::abs(y.at<float>({i}) - expected[i]) < 4e-3);
  }
}

BOOST_AUTO_TEST_CASE(gain_and_bias_do_not_widen) {
  const esp::Variable x = esp::ones({1, 4});
  BOOST_CHECK_EXCEPTION(esp::layer_norm(x, esp::ones({3, 4}), 0), esp::ShapeError,
                        says({"layer_norm", "[3, 4]", "[1, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::layer_norm(x, 1, esp::ones({2, 1, 4})), esp::ShapeError,
                        says({"layer_norm", "[2, 1, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::layer_norm(x, esp::ones({4}, esp::float64), 0), esp::TypeError,
                        says({"layer_norm", "float64", here()}));
  BOOST_TEST((esp::layer_norm(esp::ones({3, 4}), esp::ones({3, 1}), 0).shape() == esp::Shape{3, 4}));
}

BOOST_AUTO_TEST_CASE(layer_learns_its_width) {
  const esp::nn::LayerNorm layer(1e-3);
  BOOST_TEST(layer.parameters().empty());
  const esp::Tensor x = numbers({2, 3, 4});
  const std::vector<Array> in = {Array(x), Array(esp::tensor(1)), Array(esp::tensor(0))};
  BOOST_TEST(difference(normalized(in, 1e-3), layer(x).value()) < 1e-12);
  BOOST_TEST(layer.parameter("weight").dtype() == esp::float64);
  BOOST_TEST(layer.parameter("weight").shape() == esp::Shape({4}));
  BOOST_TEST(layer.parameter("bias").shape() == esp::Shape({4}));
  BOOST_TEST(layer.parameters()[0].first == "weight");
  esp::set_value(layer.parameter("weight"), esp::full({4}, 2, esp::float64));
  esp::set_value(layer.parameter("bias"), esp::full({4}, 5, esp::float64));
  const std::vector<Array> other = {in[0], Array(esp::tensor(2)), Array(esp::tensor(5))};
  BOOST_TEST(difference(normalized(other, 1e-3), layer(x).value()) < 1e-12);

  const TemporaryFolder folder;
  esp::nn::save(layer, folder / "norm.safetensors");
  const esp::nn::LayerNorm loaded(1e-3);
  esp::nn::load(loaded, folder / "norm.safetensors");
  BOOST_TEST(difference(layer(x).value(), loaded(x).value()) == 0);
  BOOST_TEST(difference(layer(x).value(), layer.clone()(x).value()) == 0);
}

BOOST_AUTO_TEST_CASE(layers_without_bias_or_weight) {
  using esp::nn::LayerNorm;
  const esp::Tensor x = numbers({3, 4}, -1, 1, 1);
  const esp::Tensor gain = numbers({4}, 1, 2, 2);
  const std::vector<Array> in{Array(x), Array(gain), Array(esp::tensor(0.0, esp::float64))};
  for (const LayerNorm& layer : {LayerNorm({.epsilon = 1e-3, .bias = false}),
                                 LayerNorm(4, {.epsilon = 1e-3, .bias = false, .dtype = esp::float64})}) {
    (void)layer(x);
    BOOST_TEST(layer.parameters().size() == 1u);
    esp::set_value(layer.parameter("weight"), gain);
    BOOST_TEST(difference(normalized(in, 1e-3), layer(x).value()) < 1e-12);
    const esp::Variable fed = esp::placeholder("x", {-1, 4}, esp::float64);
    const esp::Executor frozen = layer(fed).get_executor({.mode = esp::Mode::inference});
    BOOST_TEST(difference(frozen.run({{"x", x}}), layer(x).value()) < 1e-14);
  }
  for (const bool bias : {true, false}) {
    const LayerNorm plain({.affine = false, .bias = bias}), of_four(4, {.affine = false, .bias = bias});
    BOOST_TEST(difference(plain(x).value(), esp::layer_norm(x, 1, 0).value()) == 0);
    BOOST_TEST(difference(of_four(x).value(), plain(x).value()) == 0);
    BOOST_TEST(plain.parameters().empty());
    BOOST_CHECK_EXCEPTION(of_four(esp::ones({2, 3})), esp::ShapeError,
                          says({"LayerNorm", "[2, 3]", "4", here()}));
  }
}

BOOST_AUTO_TEST_CASE(mistakes) {
  using esp::nn::LayerNorm;
  BOOST_CHECK_EXCEPTION(LayerNorm(0), esp::Error, says({"LayerNorm", "0", here()}));
  BOOST_CHECK_EXCEPTION(LayerNorm(NAN), esp::Error, says({"LayerNorm", "nan", here()}));
  const LayerNorm layer;
  layer(esp::ones({2, 4}));
  BOOST_CHECK_EXCEPTION(layer(esp::ones({4, 2})), esp::ShapeError,
                        says({"LayerNorm", "[4, 2]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(layer(esp::tensor(1.0)), esp::ShapeError, says({"LayerNorm", "scalar", here()}));
  BOOST_CHECK_EXCEPTION(layer(esp::ones({2, 4}, esp::float64)), esp::TypeError,
                        says({"LayerNorm", "float64", "float32", here()}));
  BOOST_CHECK_EXCEPTION(layer(esp::ones({2, 4}, esp::int64)), esp::TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::layer_norm(esp::tensor(1.0), 1, 0), esp::ShapeError,
                        says({"layer_norm", here()}));
  BOOST_CHECK_EXCEPTION(esp::layer_norm(esp::ones({2, 4}), 1, 0, 0), esp::Error,
                        says({"layer_norm", here()}));
  BOOST_CHECK_THROW(esp::layer_norm(esp::ones({2, 4}), esp::ones({3}), 0), esp::ShapeError);
}

/// The sum of equal numbers is rounded; their differences from the mean are not.
BOOST_AUTO_TEST_CASE(equal_elements_become_zeros) {
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16})
    for (const int64_t n : {1, 3, 7, 100, 1000, 4097})
      for (const double value : {0.1, -0.3, 123.456, 3.0e4}) {
        const esp::Tensor x = esp::full({2, n}, value, dtype);
        const esp::Variable fed = esp::placeholder("x", {2, n}, dtype);
        const esp::Executor frozen = esp::layer_norm(fed, 1, 0).get_executor({.mode = esp::Mode::inference});
        BOOST_TEST(difference(esp::layer_norm(x, 1, 0).value(), esp::zeros({2, n}, dtype)) == 0);
        const esp::Tensor gain = esp::ones({n}, dtype), bias = esp::zeros({n}, dtype);
        BOOST_TEST(difference(esp::layer_norm(x, gain, bias).value(), esp::zeros({2, n}, dtype)) == 0);
        BOOST_TEST(difference(frozen.run({{"x", x}}), esp::zeros({2, n}, dtype)) == 0);
      }
}

BOOST_AUTO_TEST_SUITE_END()
