// Differences and integrals along an axis.
#include "espalier/ops/functions/differences.h"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// An element of `in`, `by` further along an axis.
double beside(const Array& in, Index i, size_t axis, int64_t by) {
  i[axis] += by;
  return in(i);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(differences)

BOOST_AUTO_TEST_CASE(of_neighbours) {
  for (const int64_t axis : {0, 1, -1})
    for (const int64_t n : {0, 1, 2})
      check_op({.name = "diff",
                .op = [=](const Variables& x) { return esp::diff(x[0], n, axis); },
                .inputs = {numbers({3, 4})},
                .reference =
                    [=](const std::vector<Array>& in) {
                      const size_t along = axis == 0 ? 0 : 1;
                      Array result = in[0];
                      for (int64_t i = 0; i < n; ++i) {
                        const Array whole = result;
                        esp::Shape less = whole.shape;
                        --less.dims()[along];
                        result = Array(
                            less, [&](const Index& at) { return beside(whole, at, along, 1) - whole(at); });
                      }
                      return result;
                    },
                .roundings = 3});
  BOOST_TEST(Array(esp::diff(esp::tensor({1, 4, 2})).value()).values == (std::vector<double>{3, -2}));
  BOOST_TEST(Array(esp::diff(esp::tensor({true, true, false})).value()).values ==
             (std::vector<double>{0, 1}));
  BOOST_TEST(esp::diff(esp::ones({2, 3}), 5).shape() == esp::Shape({2, 0}));
}

BOOST_AUTO_TEST_CASE(trapezoids) {
  const auto area = [](const Array& y, const Index& i, size_t axis, auto&& width) {
    double sum = 0;
    for (int64_t k = 0; k + 1 < static_cast<int64_t>(y.shape.dims()[axis]); ++k) {
      Index at = i;
      at.insert(at.begin() + static_cast<int64_t>(axis), k);
      sum += (y(at) + beside(y, at, axis, 1)) / 2 * width(at);
    }
    return sum;
  };
  for (const size_t axis : {0, 1}) {
    const esp::Shape left{axis == 0 ? 4 : 3};
    const auto along = static_cast<int64_t>(axis);
    check_op({.name = "trapezoid",
              .op = [=](const Variables& x) { return esp::trapezoid(x[0], 0.5, along); },
              .inputs = {numbers({3, 4})},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array(left, [&](const Index& i) {
                      return area(in[0], i, axis, [](const Index&) { return 0.5; });
                    });
                  },
              .roundings = 6});
    check_op({.name = "trapezoid at places",
              .op = [=](const Variables& x) { return esp::trapezoid(x[0], x[1], along); },
              .inputs = {numbers({3, 4}), numbers({axis == 0 ? 3 : 4}, 0, 3, 1)},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array(left, [&](const Index& i) {
                      return area(in[0], i, axis,
                                  [&](const Index& at) { return in[1]({at[axis] + 1}) - in[1]({at[axis]}); });
                    });
                  },
              .roundings = 8});
  }
  const esp::Tensor y = numbers({2, 5}), x = numbers({2, 5}, 0, 3, 1);
  const auto rows = [&](int64_t r) {
    return esp::trapezoid(y.slice(0, r, r + 1).reshape({5}), x.slice(0, r, r + 1).reshape({5})).item();
  };
  const Array both(esp::trapezoid(y, x).value());
  for (const int64_t r : {0, 1}) BOOST_TEST(both({r}) == rows(r), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(esp::trapezoid(esp::tensor({1.0, 2.0, 3.0}), 2).item() == 8);
  BOOST_TEST(esp::trapezoid(esp::zeros({0})).item() == 0);
  BOOST_TEST(esp::trapezoid(esp::ones({1}), esp::ones({1})).item() == 0);
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(esp::diff(x, -1), esp::Error, says({"diff", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::diff(x, 1, 2), esp::ShapeError, says({"diff", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::trapezoid(x, esp::ones({3})), esp::ShapeError,
                        says({"trapezoid", "[3, 4]", "[3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::trapezoid(esp::tensor({1, 2})), esp::TypeError,
                        says({"trapezoid", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(more_differences_than_elements) {
  BOOST_TEST(esp::diff(esp::tensor({1.f, 2.f, 4.f}), int64_t{1} << 50).shape() == esp::Shape({0}));
}

BOOST_AUTO_TEST_SUITE_END()
