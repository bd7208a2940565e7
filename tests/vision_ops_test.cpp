// Pooling by norms and by random windows, and its reverse.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/lambda.h"
#include "espalier/nn/vision_pooling.h"
#include "espalier/ops/functions/fractional_pooling.h"
#include "espalier/ops/functions/global_pooling.h"
#include "espalier/ops/functions/lp_pooling.h"
#include "espalier/ops/functions/pooling.h"
#include "espalier/ops/functions/unpooling.h"
#include "espalier/ops/ops.h"
#include "layer_training.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// The p-norm of each window of [n, c, sizes…], without padding.
Reference lp_of_windows(double p, const Index& kernel, const Index& stride, const Index& dilation) {
  return [=](const std::vector<Array>& in) {
    const Array& x = in[0];
    esp::Shape y{x.shape[0], x.shape[1]};
    for (size_t a = 0; a < kernel.size(); ++a)
      y.dims().push_back((x.shape.dims()[a + 2] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1);
    return Array(y, [&](const Index& o) {
      double sum = 0;
      each_index(esp::Shape(kernel), [&](const Index& k) {
        Index at = o;
        for (size_t a = 0; a < k.size(); ++a) at[a + 2] = o[a + 2] * stride[a] + k[a] * dilation[a];
        sum += std::pow(std::abs(x(at)), p);
      });
      return std::pow(sum, 1 / p);
    });
  };
}

/// Zeros, and the elements of [n, c, sizes…] at their places in the planes of `shape`.
Reference unpooled(const Index& places, const esp::Shape& shape) {
  return [=](const std::vector<Array>& in) {
    return Array(shape, [&](const Index& o) {
      int64_t place = 0;
      for (size_t axis = 2; axis < o.size(); ++axis) place = place * shape.dims()[axis] + o[axis];
      double y = 0;
      size_t next = 0;
      each_index(in[0].shape, [&](const Index& i) {
        if (places[next++] == place && i[0] == o[0] && i[1] == o[1]) y = in[0](i);
      });
      return y;
    });
  };
}

esp::Tensor integers(const std::vector<int64_t>& list, const esp::Shape& shape) {
  return esp::tensor_from(list, shape);
}

esp::Tensor reals(const std::vector<double>& list, const esp::Shape& shape, esp::DType dtype) {
  return esp::tensor_from(list, shape).to(dtype);
}

/// The largest element of the windows of planes [n, c, height, width]; in[1] are the samples.
Reference fractional_windows(const Index& kernel, const Index& count) {
  return [=](const std::vector<Array>& in) {
    const Array& x = in[0];
    return Array({x.shape[0], x.shape[1], count[0], count[1]}, [&](const Index& o) {
      const auto begin = [&](size_t axis) {
        const int64_t free = x.shape.dims()[axis + 2] - kernel[axis], window = o[axis + 2];
        if (window == count[axis] - 1) return free;
        const double s = in[1]({o[0], o[1], static_cast<int64_t>(axis)}),
                     a = static_cast<double>(free) / static_cast<double>(count[axis] - 1);
        return static_cast<int64_t>((static_cast<double>(window) + s) * a) - static_cast<int64_t>(s * a);
      };
      double largest = -INFINITY;
      for (int64_t i = 0; i < kernel[0]; ++i)
        for (int64_t j = 0; j < kernel[1]; ++j)
          largest = std::max(largest, x({o[0], o[1], begin(0) + i, begin(1) + j}));
      return largest;
    });
  };
}

const OpCase cases[] = {
    {"lp_pool of 2",
     [](const Variables& in) { return esp::lp_pool(in[0], {.kernel = 2, .stride = 1}); },
     {numbers({2, 2, 5})},
     lp_of_windows(2, {2}, {1}, {1})},
    {"lp_pool of 3 with dilation",
     [](const Variables& in) {
       return esp::lp_pool(in[0], {.kernel = 2, .p = 3, .stride = 1, .dilation = 2});
     },
     {numbers({1, 2, 6})},
     lp_of_windows(3, {2}, {1}, {2})},
    {"lp_pool of 1.5",
     [](const Variables& in) { return esp::lp_pool(in[0], {.kernel = 3, .p = 1.5}); },
     {numbers({2, 1, 6}, 0.5, 2)},
     lp_of_windows(1.5, {3}, {3}, {1})},
    {"lp_pool of two axes",
     [](const Variables& in) {
       return esp::lp_pool(in[0], {.kernel = {2, 3}, .stride = {1, 2}, .dilation = {2, 1}});
     },
     {numbers({1, 2, 4, 5})},
     lp_of_windows(2, {2, 3}, {1, 2}, {2, 1})},
    {"lp_pool of 3, of three axes",
     [](const Variables& in) {
       return esp::lp_pool(in[0], {.kernel = {2, 1, 2}, .p = 3, .stride = 1});
     },
     {numbers({1, 2, 3, 2, 3})},
     lp_of_windows(3, {2, 1, 2}, {1, 1, 1}, {1, 1, 1})},
    {"global_lp_pool",
     [](const Variables& in) { return esp::global_lp_pool(in[0], 3); },
     {numbers({1, 2, 4})},
     lp_of_windows(3, {4}, {4}, {1})},
    {"fractional_max_pool",
     [](const Variables& in) {
       return esp::fractional_max_pool(in[0], {.kernel = {2, 1}, .parts = esp::PerAxis{2, 3}}, in[1]);
     },
     {numbers({2, 1, 4, 7}), reals({0.3, 0.7, 0.9, 0.1}, {2, 1, 2}, esp::float64)},
     fractional_windows({2, 1}, {2, 3}),
     2,
     {0}},
    {"fractional_max_pool_with_indices",
     [](const Variables& in) {
       const auto both = esp::fractional_max_pool_with_indices(in[0], {.kernel = 2, .parts = 3}, in[1]);
       return esp::gather(esp::flatten(in[0]), both.indices);
     },
     {numbers({1, 1, 7}), reals({0.5}, {1, 1, 1}, esp::float64)},
     [](const std::vector<Array>& in) {
       return Array({1, 1, 3}, [&](const Index& o) {
         const int64_t begins[] = {0, 2, 5}, at = begins[o[2]];
         return std::max(in[0]({0, 0, at}), in[0]({0, 0, at + 1}));
       });
     },
     2,
     {0}},
    {"max_unpool",
     [](const Variables& in) {
       return esp::max_unpool(in[0], integers({3, 0, 2, 1}, {1, 2, 2}).to(in[0].device()), {.kernel = 2});
     },
     {numbers({1, 2, 2})},
     unpooled({3, 0, 2, 1}, {1, 2, 4})},
    {"max_unpool of two axes, with a place that is named twice",
     [](const Variables& in) {
       const esp::Tensor places = integers({5, 2, 12, 11, 0, 3, 3, 15}, {1, 2, 2, 2});
       return esp::max_unpool(in[0], places.to(in[0].device()), {.kernel = 2});
     },
     {numbers({1, 2, 2, 2})},
     unpooled({5, 2, 12, 11, 0, 3, 3, 15}, {1, 2, 4, 4})},
    {"max_unpool of three axes",
     [](const Variables& in) {
       const esp::Tensor places = integers({9, 2, 4, 15, 0, 11, 13, 6}, {2, 1, 1, 2, 2});
       return esp::max_unpool(in[0], places.to(in[0].device()), {.kernel = {2, 1, 2}});
     },
     {numbers({2, 1, 1, 2, 2})},
     unpooled({9, 2, 4, 15, 0, 11, 13, 6}, {2, 1, 2, 2, 4})},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(vision_ops)

BOOST_AUTO_TEST_CASE(op_table) {
  for (const OpCase& c : cases) BOOST_TEST_CONTEXT(c.name) check_op(c);
}

BOOST_AUTO_TEST_CASE(lp_pool_makes_up_for_what_windows_lack_behind_the_padding) {
  const Variable x = reals({1, 2, 3, 4, 5, 6}, {1, 1, 6}, esp::float64);
  const Variable y = esp::lp_pool(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil = true});
  // The padding counts, as in avg_pool; of the last window a third lies behind it.
  const esp::Tensor squares = reals({5, 29, 77, 36 * 3 / 2.0}, {1, 1, 4}, esp::float64);
  BOOST_TEST(difference(esp::square(y).value(), squares) < 1e-12);
}

BOOST_AUTO_TEST_CASE(lp_pool_of_zeros_has_a_gradient_of_zero) {
  const Variable x = esp::variable(esp::zeros({1, 1, 4}));
  const Variable y = esp::sum(esp::lp_pool(x, {.kernel = 2}));
  y.backward();
  BOOST_TEST(difference(y.gradient(x).value(), esp::zeros({1, 1, 4})) == 0);
}

BOOST_AUTO_TEST_CASE(max_unpool_is_the_reverse_of_max_pool) {
  const Variable x = numbers({2, 3, 4, 6});
  const auto [values, indices] = esp::max_pool_with_indices(x, {.kernel = 2});
  const Variable back = esp::max_unpool(values, indices, {.kernel = 2});
  BOOST_TEST(back.shape().str() == x.shape().str());
  BOOST_TEST(
      difference(esp::max_pool(esp::where(esp::equal(back, 0.0), esp::full_like(x, -9), back), {.kernel = 2})
                     .value(),
                 values.value()) == 0);
  const Variable larger = esp::max_unpool(values, indices, {.kernel = 2, .size = esp::PerAxis{5, 7}});
  BOOST_TEST(larger.shape().str() == esp::Shape({2, 3, 5, 7}).str());
  BOOST_CHECK_THROW(esp::max_unpool(values, indices, {.kernel = 2, .size = esp::PerAxis{6, 7}}),
                    esp::ShapeError);
  BOOST_CHECK_THROW(esp::max_unpool(values, indices, {.kernel = 2, .padding = 3}), esp::ShapeError);
}

BOOST_AUTO_TEST_CASE(fractional_windows_follow_the_samples) {
  // Seven elements in three windows of two: steps of 2.5, from 0.5 on.
  const Variable x = reals({1, 9, 2, 3, 8, 5, 4}, {1, 1, 7}, esp::float32);
  const Variable samples = reals({0.5}, {1, 1, 1}, esp::float32);
  const auto both = esp::fractional_max_pool_with_indices(x, {.kernel = 2, .parts = 3}, samples);
  BOOST_TEST(difference(both.values.value(), reals({9, 3, 5}, {1, 1, 3}, esp::float32)) == 0);
  BOOST_TEST(difference(both.indices.value(), integers({1, 3, 5}, {1, 1, 3})) == 0);
}

BOOST_AUTO_TEST_CASE(the_first_nan_of_a_fractional_window_is_its_largest_element) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Variable x = reals({1, nan, 7, nan, 2}, {1, 1, 5}, esp::float64);
  const auto both = esp::fractional_max_pool_with_indices(x, {.kernel = 5, .parts = 1});
  BOOST_TEST(difference(both.indices.value(), integers({1}, {1, 1, 1})) == 0);
}

BOOST_AUTO_TEST_CASE(fractional_windows_are_drawn_anew) {
  const Variable x = numbers({4, 8, 40, 40});
  const esp::FractionalPoolOptions options{.kernel = 2, .ratio = {0.6}};
  const Variable a = esp::fractional_max_pool(x, options), b = esp::fractional_max_pool(x, options);
  BOOST_TEST(a.shape().str() == esp::Shape({4, 8, 24, 24}).str());
  BOOST_TEST(difference(a.value(), b.value()) > 0);
}

BOOST_AUTO_TEST_CASE(global_pooling) {
  const Variable x = numbers({2, 3, 4, 5});
  BOOST_TEST(difference(esp::global_max_pool(x).value(), esp::adaptive_max_pool(x, 1).value()) == 0);
  BOOST_TEST(difference(esp::global_avg_pool(x).value(), esp::adaptive_avg_pool(x, 1).value()) < 1e-14);
  BOOST_TEST(difference(esp::global_lp_pool(x, 3).value(),
                        esp::lp_pool(x, {.kernel = {4, 5}, .p = 3}).value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(layers_train_alike_eagerly_in_plans_and_on_replicas) {
  const std::function<esp::nn::LPPool1d()> norms = [] {
    return esp::nn::LPPool1d({.kernel = 2, .stride = 1});
  };
  BOOST_TEST(training_differences(norms, {2, 4}) < 1e-12);
  const std::function<esp::nn::GlobalLPPool()> planes = [] { return esp::nn::GlobalLPPool(3); };
  BOOST_TEST(training_differences(planes, {2, 4, 3}) < 1e-12);
  const std::function<esp::nn::Lambda()> reverse = [] {
    return esp::nn::Lambda([](const Variable& x) {
      const auto [values, indices] = esp::max_pool_with_indices(x, {.kernel = 2});
      return esp::max_unpool(values, indices, {.kernel = 2});
    });
  };
  BOOST_TEST(training_differences(reverse, {2, 4, 2}) < 1e-12);
  const std::function<esp::nn::Lambda()> fractional = [] {
    return esp::nn::Lambda([](const Variable& x) {
      const Variable samples = esp::mean(esp::sigmoid(x), {3}, false);
      return esp::fractional_max_pool(x, {.kernel = 2, .parts = 2}, esp::slice(samples, 2, 0, 2));
    });
  };
  BOOST_TEST(training_differences(fractional, {2, 4, 3}) < 1e-12);
}

BOOST_AUTO_TEST_SUITE_END()
