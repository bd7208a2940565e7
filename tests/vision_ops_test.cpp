// Pooling by norms, by random windows and of regions, its reverse, and non-maximum suppression.
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
#include "espalier/ops/functions/regions.h"
#include "espalier/ops/functions/suppression.h"
#include "espalier/ops/functions/unpooling.h"
#include "espalier/ops/ops.h"
#include "layer_training.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// The p-norm of each window of [n, c, size], without padding.
Reference lp_of_windows(double p, int64_t kernel, int64_t stride, int64_t dilation) {
  return [=](const std::vector<Array>& in) {
    const Array& x = in[0];
    const int64_t count = (x.shape[2] - dilation * (kernel - 1) - 1) / stride + 1;
    return Array({x.shape[0], x.shape[1], count}, [&](const Index& o) {
      double sum = 0;
      for (int64_t k = 0; k < kernel; ++k)
        sum += std::pow(std::abs(x({o[0], o[1], o[2] * stride + k * dilation})), p);
      return std::pow(sum, 1 / p);
    });
  };
}

esp::Tensor integers(const std::vector<int64_t>& list, const esp::Shape& shape) {
  return esp::tensor_from(list, shape);
}

esp::Tensor reals(const std::vector<double>& list, const esp::Shape& shape, esp::DType dtype) {
  return esp::tensor_from(list, shape).to(dtype);
}

/// Bilinear, as the formula says, one sample after the other.
double bilinear(const Array& x, int64_t image, int64_t channel, double y, double z) {
  const int64_t height = x.shape[2], width = x.shape[3];
  if (y < -1 || y > static_cast<double>(height) || z < -1 || z > static_cast<double>(width)) return 0;
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  z = std::clamp(z, 0.0, static_cast<double>(width - 1));
  const auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(z);
  const int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const double v = y - static_cast<double>(top), w = z - static_cast<double>(left);
  const auto at = [&](int64_t i, int64_t j) { return x({image, channel, i, j}); };
  return (1 - v) * ((1 - w) * at(top, left) + w * at(top, right)) +
         v * ((1 - w) * at(bottom, left) + w * at(bottom, right));
}
Reference aligned_regions(int64_t bins, double scale, int64_t samples, bool aligned) {
  return [=](const std::vector<Array>& in) {
    const Array &x = in[0], &boxes = in[1];
    return Array({boxes.shape[0], x.shape[1], bins, bins}, [&](const Index& o) {
      const double offset = aligned ? 0.5 : 0;
      const auto axis = [&](int64_t low, int64_t high, int64_t number) {
        const double start = boxes({o[0], low}) * scale - offset;
        double length = boxes({o[0], high}) * scale - offset - start;
        if (!aligned) length = std::max(length, 1.0);
        const double bin = length / static_cast<double>(bins);
        const int64_t each = samples > 0 ? samples : static_cast<int64_t>(std::ceil(bin));
        std::vector<double> places;
        for (int64_t i = 0; i < each; ++i)
          places.push_back(start + bin * static_cast<double>(number) +
                           (static_cast<double>(i) + 0.5) * bin / static_cast<double>(each));
        return places;
      };
      const std::vector<double> ys = axis(2, 4, o[2]), zs = axis(1, 3, o[3]);
      double sum = 0;
      for (const double y : ys)
        for (const double z : zs) sum += bilinear(x, static_cast<int64_t>(boxes({o[0], 0})), o[1], y, z);
      return sum / static_cast<double>(std::max<size_t>(1, ys.size() * zs.size()));
    });
  };
}

const esp::Tensor boxes_of_images =
    reals({0, 0.25, 0.5, 3.75, 2.5, 1, -1.5, 1, 2, 3.25, 1, 1, 1, 1.5, 1.25}, {3, 5}, esp::float64);

const OpCase cases[] = {
    {"lp_pool of 2",
     [](const Variables& in) { return esp::lp_pool(in[0], {.kernel = 2, .stride = 1}); },
     {numbers({2, 2, 5})},
     lp_of_windows(2, 2, 1, 1)},
    {"lp_pool of 3 with dilation",
     [](const Variables& in) {
       return esp::lp_pool(in[0], {.kernel = 2, .p = 3, .stride = 1, .dilation = 2});
     },
     {numbers({1, 2, 6})},
     lp_of_windows(3, 2, 1, 2)},
    {"lp_pool of 1.5",
     [](const Variables& in) { return esp::lp_pool(in[0], {.kernel = 3, .p = 1.5}); },
     {numbers({2, 1, 6}, 0.5, 2)},
     lp_of_windows(1.5, 3, 3, 1)},
    {"max_unpool",
     [](const Variables& in) {
       return esp::max_unpool(in[0], integers({3, 0, 2, 1}, {1, 2, 2}).to(in[0].device()), {.kernel = 2});
     },
     {numbers({1, 2, 2})},
     [](const std::vector<Array>& in) {
       return Array({1, 2, 4}, [&](const Index& o) {
         const int64_t places[2][2] = {{3, 0}, {2, 1}};
         for (int64_t i = 0; i < 2; ++i)
           if (places[o[1]][i] == o[2]) return in[0]({0, o[1], i});
         return 0.0;
       });
     }},
    {"roi_align",
     [](const Variables& in) { return esp::roi_align(in[0], in[1], {.size = 2, .aligned = true}); },
     {numbers({2, 2, 4, 5}), boxes_of_images},
     aligned_regions(2, 1, 0, true),
     2,
     {0}},
    {"roi_align with samples and scale",
     [](const Variables& in) {
       return esp::roi_align(in[0], in[1], {.size = 3, .scale = 0.75, .samples = 2});
     },
     {numbers({2, 1, 3, 4}), boxes_of_images},
     aligned_regions(3, 0.75, 2, false),
     2,
     {0}},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(vision_ops)

BOOST_AUTO_TEST_CASE(op_table) {
  for (const OpCase& c : cases) BOOST_TEST_CONTEXT(c.name) check_op(c);
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

BOOST_AUTO_TEST_CASE(roi_pool_takes_whole_elements) {
  const Variable x = esp::cast(esp::reshape(esp::arange(24), {1, 1, 4, 6}), esp::float32);
  const Variable boxes = reals({0, 0, 0, 5, 3, 0, 1.6, 1.4, 3.4, 2.4, 0, 9, 9, 12, 12}, {3, 5}, x.dtype());
  const Variable y = esp::roi_pool(x, boxes, {.size = 2});
  const esp::Tensor expected = reals({8, 11, 20, 23, 8, 9, 14, 15, 0, 0, 0, 0}, {3, 1, 2, 2}, x.dtype());
  BOOST_TEST(difference(y.value(), expected) == 0);
  const Variable same = esp::roi_pool(x, esp::slice(boxes, 1, 1, 5), integers({0, 0, 0}, {3}), {.size = 2});
  BOOST_TEST(difference(same.value(), expected) == 0);
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

BOOST_AUTO_TEST_CASE(suppression) {
  const Variable boxes = reals({0, 0, 2, 2, 0, 0, 2, 1.9, 3, 3, 4, 4, 0, 0, 1, 1}, {4, 4}, esp::float32);
  const Variable scores = reals({0.5, 0.9, 0.7, 0.9}, {4}, esp::float32);
  BOOST_TEST(difference(esp::nms(boxes, scores, 0.5).value(), integers({1, 3, 2}, {3})) == 0);
  BOOST_TEST(difference(esp::nms(boxes, scores, 0.2).value(), integers({1, 2}, {2})) == 0);
  BOOST_TEST(difference(esp::batched_nms(boxes, scores, integers({0, 1, 0, 0}, {4}), 0.2).value(),
                        integers({1, 3, 2}, {3})) == 0);
  const Variable rows = esp::non_max_suppression(
      esp::unsqueeze(boxes, 0), esp::reshape(esp::concat({scores, esp::flip(scores)}), {1, 2, 4}),
      {.most = 2, .threshold = 0.5, .least_score = 0.6});
  BOOST_TEST(difference(rows.value(), integers({0, 0, 1, 0, 0, 3, 0, 1, 0, 0, 1, 2}, {4, 3})) == 0);
  BOOST_TEST(esp::nms(esp::zeros({0, 4}), esp::zeros({0}), 0.5).shape().str() == esp::Shape({0}).str());
  const Variable centered = reals({1, 1, 2, 2, 1, 1, 2, 1.9}, {1, 2, 4}, esp::float32);
  BOOST_TEST(esp::non_max_suppression(centered, esp::zeros({1, 1, 2}), {.threshold = 0.5, .centered = true})
                 .shape()[0] == 1);
  BOOST_CHECK_THROW(esp::nms(esp::placeholder("boxes", {4, 4}), scores, 0.5), esp::UnsupportedError);
}

BOOST_AUTO_TEST_SUITE_END()
