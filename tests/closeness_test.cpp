// Comparisons with a tolerance.
#include "espalier/ops/functions/closeness.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(closeness)

BOOST_AUTO_TEST_CASE(within_the_tolerance_of_b) {
  constexpr double inf = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  const esp::Tensor a = esp::tensor({1.0, 1.0, 0.0, inf, inf, inf, nan, 1e-9, 100.0}),
                    b = esp::tensor({1.000001, 1.001, 1e-3, inf, -inf, 5.0, nan, 0.0, 100.001});
  const std::vector<double> expected = {1, 0, 0, 1, 0, 0, 0, 1, 1};
  BOOST_TEST(Array(esp::isclose(a, b).value()).values == expected);
  BOOST_TEST(Array(esp::isclose(a, b, {.equal_nan = true}).value()).values[6] == 1);
  BOOST_TEST(Array(esp::isclose(a, b, {.relative = 0, .absolute = 0}).value()).values[0] == 0);
  BOOST_TEST(esp::allclose(esp::tensor({1.0, 2.0}), esp::tensor({{1.0, 2.0}})).value().item() == 1);
  BOOST_TEST(esp::allclose(esp::tensor({1.0, 2.0}), 1.0).value().item() == 0);
  BOOST_TEST(esp::allclose(3.0, 3.0).value().item() == 1);
}

BOOST_AUTO_TEST_CASE(types_plans_and_devices) {
  const esp::Tensor a = numbers({2, 3}, 0.5, 2), near = numbers({2, 3}, 1.001, 1.002, 1),
                    b = (Variable(a) * near).value();
  const auto closer = [](const std::vector<Array>& in, const Index& i, double relative) {
    return std::abs(in[0](i) - in[1](i)) <= relative * std::abs(in[1](i));
  };
  for (const double relative : {0.1, 1e-7}) {
    const esp::CloseOptions options{.relative = relative, .absolute = 0};
    check_op({.name = "isclose",
              .op = [=](const Variables& v) { return esp::isclose(v[0], v[1], options); },
              .inputs = {a, b},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array(in[0].shape, [&](const Index& i) { return closer(in, i, relative); });
                  },
              .order = 0});
    check_op({.name = "allclose",
              .op = [=](const Variables& v) { return esp::allclose(v[0], v[1], options); },
              .inputs = {a, b},
              .reference =
                  [=](const std::vector<Array>& in) {
                    bool all = true;
                    each_index(in[0].shape, [&](const Index& i) { all = all && closer(in, i, relative); });
                    return Array({}, [&](const Index&) { return all; });
                  },
              .order = 0});
  }
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  BOOST_CHECK_EXCEPTION(esp::isclose(esp::tensor({1, 2}), esp::tensor({1, 2})), esp::TypeError,
                        says({"isclose", "int", "closeness_test.cpp:"}));
  BOOST_CHECK_EXCEPTION(esp::allclose(1.0, 2.0, {.absolute = -1}), esp::Error, says({"allclose", "-1"}));
}

BOOST_AUTO_TEST_SUITE_END()
