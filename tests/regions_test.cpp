// Pooling of regions of images, and non-maximum suppression.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/ops/functions/regions.h"
#include "espalier/ops/functions/suppression.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

esp::Tensor integers(const std::vector<int64_t>& list, const esp::Shape& shape) {
  return esp::tensor_from(list, shape);
}

esp::Tensor reals(const std::vector<double>& list, const esp::Shape& shape, esp::DType dtype) {
  return esp::tensor_from(list, shape).to(dtype);
}

/// The four elements around a place, times what they count in the bilinear sample there.
std::array<double, 4> corners(const Array& x, int64_t image, int64_t channel, double y, double z) {
  const int64_t height = x.shape[2], width = x.shape[3];
  if (y < -1 || y > static_cast<double>(height) || z < -1 || z > static_cast<double>(width)) return {};
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  z = std::clamp(z, 0.0, static_cast<double>(width - 1));
  const auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(z);
  const int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const double v = y - static_cast<double>(top), w = z - static_cast<double>(left);
  const auto at = [&](int64_t i, int64_t j) { return x({image, channel, i, j}); };
  return {(1 - v) * (1 - w) * at(top, left), (1 - v) * w * at(top, right), v * (1 - w) * at(bottom, left),
          v * w * at(bottom, right)};
}
Reference aligned_regions(int64_t bins, double scale, int64_t samples, bool aligned, bool largest = false) {
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
      std::vector<double> all;
      for (const double y : ys)
        for (const double z : zs)
          for (const double each : corners(x, static_cast<int64_t>(boxes({o[0], 0})), o[1], y, z))
            all.push_back(each);
      if (all.empty()) return 0.0;
      if (largest) return *std::ranges::max_element(all);
      return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(ys.size() * zs.size());
    });
  };
}
Reference pooled_regions(int64_t bins, double scale) {
  return [=](const std::vector<Array>& in) {
    const Array &x = in[0], &boxes = in[1];
    return Array({boxes.shape[0], x.shape[1], bins, bins}, [&](const Index& o) {
      const auto axis = [&](int64_t low, int64_t high, int64_t number, int64_t size) {
        const double first = std::round(boxes({o[0], low}) * scale);
        const double bin =
            std::max(std::round(boxes({o[0], high}) * scale) - first + 1, 1.0) / static_cast<double>(bins);
        const auto place = [&](double at) {
          return static_cast<int64_t>(std::clamp(at + first, 0.0, static_cast<double>(size)));
        };
        return std::pair(place(std::floor(static_cast<double>(number) * bin)),
                         place(std::ceil(static_cast<double>(number + 1) * bin)));
      };
      const auto [top, bottom] = axis(2, 4, o[2], x.shape[2]);
      const auto [left, right] = axis(1, 3, o[3], x.shape[3]);
      double largest = -INFINITY;
      for (int64_t i = top; i < bottom; ++i)
        for (int64_t j = left; j < right; ++j)
          largest = std::max(largest, x({static_cast<int64_t>(boxes({o[0], 0})), o[1], i, j}));
      return largest == -INFINITY ? 0 : largest;
    });
  };
}

const esp::Tensor boxes_of_images =
    reals({0, 0.25, 0.5, 3.75, 2.5, 1, -1.5, 1, 2, 3.25, 1, 1, 1, 1.5, 1.25}, {3, 5}, esp::float64);

const OpCase cases[] = {
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
    {"roi_align with many samples",
     [](const Variables& in) {
       return esp::roi_align(in[0], in[1], {.size = 1, .scale = 20, .aligned = true});
     },
     {numbers({2, 1, 3, 4}), boxes_of_images},
     aligned_regions(1, 20, 0, true),
     2,
     {0},
     1e-12,
     1e-4,
     0},
    {"roi_align by the largest corner",
     [](const Variables& in) {
       return esp::roi_align(in[0], in[1], {.size = 2, .aligned = true, .largest = true});
     },
     {numbers({2, 2, 4, 5}), boxes_of_images},
     aligned_regions(2, 1, 0, true, true),
     2,
     {0}},
    {"roi_align by the largest corner, with samples and scale",
     [](const Variables& in) {
       return esp::roi_align(in[0], in[1], {.size = 3, .scale = 0.75, .samples = 2, .largest = true});
     },
     {numbers({2, 1, 3, 4}), boxes_of_images},
     aligned_regions(3, 0.75, 2, false, true),
     2,
     {0}},
    {"roi_pool",
     [](const Variables& in) { return esp::roi_pool(in[0], in[1], {.size = 2, .scale = 0.5}); },
     {numbers({2, 2, 3, 4}), boxes_of_images},
     pooled_regions(2, 0.5),
     2,
     {0}},
};

std::vector<esp::Device> devices() {
  std::vector<esp::Device> all = gpus_to_test();
  all.push_back(esp::cpu());
  return all;
}

/// Boxes of a billion elements, of which the image has few.
esp::Tensor huge_boxes(esp::DType dtype) {
  return reals({0, -1e9, -1e9, 1e9, 1e9, 0, 0, -5e8, 2e9, 7e8}, {2, 5}, dtype);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(regions)

BOOST_AUTO_TEST_CASE(op_table) {
  for (const OpCase& c : cases) check_op(c);
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

BOOST_AUTO_TEST_CASE(corners_that_count_nothing_are_0) {
  for (const esp::Device device : devices()) BOOST_TEST_CONTEXT(device) {
      const auto aligned = [&](double element, const std::vector<double>& box) {
        const Variable x = esp::full({1, 1, 4, 4}, element, esp::float32).to(device);
        return esp::roi_align(x, reals(box, {1, 5}, esp::float32).to(device),
                              {.size = 1, .samples = 2, .aligned = true, .largest = true})
            .item();
      };
      // Samples between elements, at elements, beyond the last ones, outside, and a box without a size.
      BOOST_TEST(aligned(-2, {0, 0.5, 0.5, 2.5, 2.5}) == -0.5);
      BOOST_TEST(aligned(-2, {0, 0, 0, 2, 2}) == 0);
      BOOST_TEST(aligned(-2, {0, 3.75, 0.5, 4.25, 2.5}) == 0);
      BOOST_TEST(aligned(-2, {0, 0.5, 0.5, 12.5, 2.5}) == 0);
      BOOST_TEST(aligned(-INFINITY, {0, -19, 0, -9, 2}) == 0);
      BOOST_TEST(aligned(INFINITY, {0, 0, 0, 2, 2}) == INFINITY);
      BOOST_TEST(std::isnan(aligned(NAN, {0, 0.5, 0.5, 2.5, 2.5})));
    }
}

// Samples outside of the image are passed over, or this would not end.
BOOST_AUTO_TEST_CASE(roi_align_of_huge_boxes) {
  for (const esp::Device device : devices())
    for (const esp::DType dtype : {esp::float32, esp::float64}) {
      const Variable x = esp::variable(esp::ones({1, 1, 4, 4}, dtype).to(device));
      const Variable y = esp::roi_align(x, huge_boxes(dtype).to(device), {.size = 2});
      BOOST_TEST(esp::max(esp::abs(y)).item() < 1e-4);
      BOOST_TEST(esp::max(esp::abs(esp::sum(y).gradient(x))).item() < 1e-4);
      const Variable largest = esp::roi_align(x, huge_boxes(dtype).to(device), {.size = 2, .largest = true});
      BOOST_TEST(esp::max(largest).item() <= 1);
    }
  // One sample of 2^20 along each axis of the bin is in the image.
  const Variable x = esp::ones({1, 1, 1, 1}, esp::float64);
  const double width = static_cast<double>(1 << 20);
  const esp::Tensor box = reals({0, 0, 0, width, width}, {1, 5}, esp::float64);
  BOOST_TEST(esp::roi_align(x, box, {.size = 1}).item() == 1 / width / width);
}

BOOST_AUTO_TEST_CASE(samples_without_bound_are_refused) {
  const Variable x = esp::ones({1, 1, 4, 4}), boxes = huge_boxes(esp::float32);
  BOOST_CHECK_EXCEPTION(esp::roi_align(x, boxes, {.size = {100, 1}, .samples = 1 << 16}), esp::ShapeError,
                        says({"roi_align", "100 bins with 65536 samples", here()}));
  BOOST_CHECK_EXCEPTION(esp::roi_pool(x, boxes, {.size = 1 << 20}), esp::ShapeError,
                        says({"roi_pool", "1048576 bins", here()}));
}

BOOST_AUTO_TEST_CASE(suppression) {
  for (const esp::Device device : devices()) BOOST_TEST_CONTEXT(device) {
      const auto placed = [&](const std::vector<double>& list, const esp::Shape& shape) {
        return Variable(reals(list, shape, esp::float32).to(device));
      };
      const auto are = [&](const Variable& rows, const std::vector<int64_t>& list) {
        return rows.device() == device && difference(rows.value(), integers(list, rows.shape())) == 0;
      };
      const Variable boxes = placed({0, 0, 2, 2, 0, 0, 2, 1.9, 3, 3, 4, 4, 0, 0, 1, 1}, {4, 4});
      const Variable scores = placed({0.5, 0.9, 0.7, 0.9}, {4});
      const Variable classes = integers({0, 1, 0, 0}, {4}).to(device);
      BOOST_TEST(are(esp::nms(boxes, scores, 0.5), {1, 3, 2}));
      BOOST_TEST(are(esp::nms(boxes, scores, 0.2), {1, 2}));
      BOOST_TEST(are(esp::batched_nms(boxes, scores, classes, 0.2), {1, 3, 2}));
      BOOST_TEST(are(esp::nms(boxes, placed({0.5, 0.9, std::nan(""), 0.9}, {4}), 0.5), {2, 1, 3}));
      const Variable rows = esp::non_max_suppression(
          esp::unsqueeze(boxes, 0), esp::reshape(esp::concat({scores, esp::flip(scores)}), {1, 2, 4}),
          {.most = 2, .threshold = 0.5, .least_score = 0.6});
      BOOST_TEST(are(rows, {0, 0, 1, 0, 0, 3, 0, 1, 0, 0, 1, 2}));
      BOOST_TEST(are(esp::nms(placed({}, {0, 4}), placed({}, {0}), 0.5), {}));
      const Variable centered = placed({1, 1, 2, 2, 1, 1, 2, 1.9}, {1, 2, 4});
      const Variable first =
          esp::non_max_suppression(centered, placed({0, 0}, {1, 1, 2}), {.threshold = 0.5, .centered = true});
      BOOST_TEST(are(first, {0, 0, 0}));
      const Variable above_zero = esp::non_max_suppression(
          centered, placed({0, 0}, {1, 1, 2}), {.threshold = 0.5, .least_score = 0.0, .centered = true});
      BOOST_TEST(are(above_zero, {}));
      BOOST_TEST(are(esp::non_max_suppression(centered, placed({0, 0}, {1, 1, 2}), {.most = 0}), {}));
      BOOST_CHECK_THROW(esp::non_max_suppression(centered, placed({0, 0}, {1, 1, 2}), {.most = -1}),
                        esp::Error);
      BOOST_CHECK_THROW(
          esp::non_max_suppression(centered, placed({0, 0}, {1, 1, 2}), {.least_score = std::nan("")}),
          esp::Error);
      BOOST_CHECK_THROW(esp::nms(esp::placeholder("boxes", {4, 4}), scores, 0.5), esp::UnsupportedError);
    }
}

BOOST_AUTO_TEST_SUITE_END()
