// Similarities and distances of vectors.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/ops/functions/distance.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

double norm(const std::vector<double>& x, double p) {
  double sum = 0, largest = 0;
  for (const double element : x) {
    sum += std::pow(std::abs(element), p);
    largest = std::max(largest, std::abs(element));
  }
  return std::isinf(p) ? largest : std::pow(sum, 1 / p);
}

/// cdist for a [n, d] and b [m, d].
Reference distances(double p) {
  return [=](const std::vector<Array>& in) {
    const int64_t n = in[0].shape[0], m = in[1].shape[0], d = in[0].shape[1];
    return Array({n, m}, [&](const Index& i) {
      std::vector<double> x;
      for (int64_t k = 0; k < d; ++k) x.push_back(in[0]({i[0], k}) - in[1]({i[1], k}));
      return norm(x, p);
    });
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(distances_of_vectors)

BOOST_AUTO_TEST_CASE(cosine_similarity) {
  check_op({.name = "cosine_similarity",
            .op = [](const Variables& x) { return esp::cosine_similarity(x[0], x[1]); },
            .inputs = {numbers({3, 4}, 0.5, 2), numbers({4}, -2, -0.5, 1)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({3}, [&](const Index& i) {
                    double ab = 0, aa = 0, bb = 0;
                    for (int64_t k = 0; k < 4; ++k) {
                      const double a = in[0]({i[0], k}), b = in[1]({k});
                      ab += a * b, aa += a * a, bb += b * b;
                    }
                    return ab / std::sqrt(aa * bb);
                  });
                },
            .roundings = 4});
  // Vectors of zeros have a similarity and a gradient of 0.
  const Variable zero = esp::variable(esp::zeros({3})), one = esp::ones({3});
  const Variable s = esp::cosine_similarity(zero, one);
  BOOST_TEST(s.item() == 0);
  const esp::Tensor slope = s.gradient(zero).value();
  for (const float g : slope.span<float>()) BOOST_TEST(std::isfinite(g));
  BOOST_TEST(esp::cosine_similarity(esp::ones({2, 3}), esp::ones({2, 3}), 0).shape() == Shape({3}));
}

BOOST_AUTO_TEST_CASE(cosine_similarity_of_a_vector_with_rows) {
  const Tensor vector = numbers({4}, -2, -0.5, 1), rows = numbers({3, 4}, 0.5, 2);
  const Tensor expected = esp::cosine_similarity(rows, vector).value();
  for (const int64_t axis : {-1, 1}) {  // counted in the shape that both are brought to
    const Tensor found = esp::cosine_similarity(vector, rows, axis).value();
    BOOST_TEST((found.shape() == Shape({3}) && difference(found, expected) < 1e-15));
  }
}

BOOST_AUTO_TEST_CASE(pairwise_distance) {
  for (const double p : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)})
    check_op({.name = "pairwise_distance",
              .op = [=](const Variables& x) { return esp::pairwise_distance(x[0], x[1], {.p = p}); },
              .inputs = {numbers({3, 4}, 1, 2), numbers({3, 4}, -2, -1, 1)},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array({3}, [&](const Index& i) {
                      std::vector<double> x;
                      for (int64_t k = 0; k < 4; ++k) x.push_back(in[0]({i[0], k}) - in[1]({i[0], k}) + 1e-6);
                      return norm(x, p);
                    });
                  },
              .tolerance32 = 1e-5,
              .roundings = 4});
  BOOST_TEST(esp::pairwise_distance(esp::ones({2, 3}), esp::zeros({3}), {.keep_dims = true}).shape() ==
             Shape({2, 1}));
}

BOOST_AUTO_TEST_CASE(cdist) {
  for (const double p : {1.0, 2.0, 2.5, static_cast<double>(INFINITY)})
    check_op({.name = "cdist",
              .op = [=](const Variables& x) { return esp::cdist(x[0], x[1], p); },
              .inputs = {numbers({3, 2}, 1, 2), numbers({4, 2}, -2, -1, 1)},
              .reference = distances(p),
              .tolerance32 = 1e-5,
              .roundings = 4});
  // By a product of matrices.
  check_op({.name = "cdist of many rows",
            .op = [](const Variables& x) { return esp::cdist(x[0], x[1]); },
            .inputs = {numbers({27, 2}, 1, 2), numbers({2, 2}, -2, -1, 1)},
            .reference = distances(2),
            .tolerance32 = 1e-4,
            .roundings = 4});
  BOOST_TEST(esp::cdist(esp::ones({5, 1, 2, 3}), esp::zeros({4, 6, 3})).shape() == Shape({5, 4, 2, 6}));
  // Equal rows have a distance and a gradient of 0, and second derivatives are numbers.
  for (const int64_t rows : {2, 30}) {
    const Variable x = esp::variable(numbers({rows, 3}));
    const Variable d = esp::cdist(x, x);
    const Variable g = esp::sum(d).gradient(x),
                   second = esp::sum(g * numbers({rows, 3}, -1, 1, 1)).gradient(x);
    for (int64_t i = 0; i < rows; ++i) BOOST_TEST(d.value().at<double>({i, i}) < 1e-6);
    for (const Variable& v : {g, second})
      for (const double element : v.value().span<double>()) BOOST_TEST(std::isfinite(element));
  }
}

BOOST_AUTO_TEST_CASE(distances_refuse_what_does_not_fit) {
  const Variable a = esp::ones({3, 4}), b = esp::ones({3, 5});
  BOOST_CHECK_EXCEPTION(esp::cdist(a, b), esp::ShapeError, says({"cdist", "[3, 4]", "[3, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::cdist(a, a, 0), esp::Error, says({"cdist", "p is 0", here()}));
  BOOST_CHECK_EXCEPTION(esp::cdist(a, esp::cast(a, esp::float64)), esp::TypeError, says({"cdist", here()}));
  BOOST_CHECK_EXCEPTION(esp::pairwise_distance(a, b), esp::ShapeError, says({"pairwise_distance", here()}));
  BOOST_CHECK_EXCEPTION(esp::pairwise_distance(a, a, {.p = -1}), esp::Error, says({"p is -1", here()}));
  BOOST_CHECK_EXCEPTION(esp::cosine_similarity(a, b), esp::ShapeError, says({"cosine_similarity", here()}));
  BOOST_CHECK_EXCEPTION(esp::cosine_similarity(a, a, 2), esp::ShapeError, says({"axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::cosine_similarity(a, a, 1, 0), esp::Error, says({"epsilon", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
