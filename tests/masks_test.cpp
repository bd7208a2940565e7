// Elements chosen by a condition.
#include "espalier/ops/functions/masks.h"

#include <boost/test/unit_test.hpp>
#include <functional>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/core/subscript.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(masks)

BOOST_AUTO_TEST_CASE(fills) {
  const esp::Tensor mask = esp::tensor({{true, false, true}});
  check_op({.name = "masked_fill",
            .op = [](const Variables& x) { return esp::masked_fill(x[0], x[1], x[2]); },
            .inputs = {numbers({2, 3}), mask, numbers({2, 1}, -2, 2, 1)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 3}, [&](const Index& i) { return in[1](i) != 0 ? in[2](i) : in[0](i); });
                }});
  BOOST_TEST(
      esp::masked_fill(esp::ones({2}, esp::int64), esp::tensor({false, true}), 7).value().at<int64_t>({1}) ==
      7);
}

BOOST_AUTO_TEST_CASE(selects) {
  const esp::Variable x = esp::variable(numbers({2, 3})), mask = esp::greater(x, 0.0);
  const esp::Variable chosen = esp::masked_select(x, mask);
  std::vector<double> expected;
  for (const double value : Array(x.value()).values)
    if (value > 0) expected.push_back(value);
  BOOST_TEST(!expected.empty());
  BOOST_TEST(Array(chosen.value()).values == expected);
  const esp::Tensor slope = esp::sum(esp::square(chosen)).gradient(x).value();
  const Array at(x.value()), found(slope);
  for (size_t i = 0; i < 6; ++i) BOOST_TEST(found.values[i] == (at.values[i] > 0 ? 2 * at.values[i] : 0));
  const auto f = [](const Variables& v) {
    return esp::masked_select(v[0], esp::tensor({true, false, true})) *
           esp::masked_select(v[0], esp::tensor({false, true, true}));
  };
  BOOST_TEST(esp::check_gradient(f, {numbers({1, 3})}, {.order = 2}).passed);
  BOOST_TEST(esp::masked_select(x, esp::tensor({{true}, {false}})).shape() == esp::Shape({3}));
  BOOST_TEST(esp::masked_select(x, false).shape() == esp::Shape({0}));
}

BOOST_AUTO_TEST_CASE(scatters_in_order) {
  const esp::Variable x = esp::variable(esp::tensor({{1.0, 2.0}, {3.0, 4.0}})),
                      source = esp::variable(esp::tensor({7.0, 8.0, 9.0}));
  const esp::Tensor mask = esp::tensor({{true, false}, {true, true}});
  const esp::Variable y = esp::masked_scatter(x, mask, source);
  BOOST_TEST(Array(y.value()).values == (std::vector<double>{7, 2, 8, 9}));
  const esp::Variable loss = esp::sum(esp::square(y));
  BOOST_TEST(Array(loss.gradient(x).value()).values == (std::vector<double>{0, 4, 0, 0}));
  BOOST_TEST(Array(loss.gradient(source).value()).values == (std::vector<double>{14, 16, 18}));
  BOOST_CHECK_THROW(esp::masked_scatter(x, mask, esp::tensor({1.0, 2.0})).value(), esp::IndexError);
  BOOST_CHECK_EXCEPTION(esp::masked_scatter(x, x, source), esp::TypeError,
                        says({"masked_scatter", "not bool"}));
}

BOOST_AUTO_TEST_CASE(positions) {
  const esp::Tensor found = esp::nonzero(esp::tensor({{0, 2}, {0, 0}, {3, 4}})).value();
  BOOST_TEST(found.shape() == esp::Shape({3, 2}));
  BOOST_TEST(difference(found, esp::tensor({{0, 1}, {2, 0}, {2, 1}})) == 0);
  BOOST_TEST(esp::nonzero(esp::zeros({2, 2})).shape() == esp::Shape({0, 2}));
  BOOST_TEST(esp::nonzero(5.0).shape() == esp::Shape({1, 0}));
  BOOST_TEST(esp::nonzero(esp::tensor({0.0f, 0.5f}).to(esp::float16)).value().item() == 1);
}

BOOST_AUTO_TEST_CASE(shapes_that_depend_on_values_are_refused_in_plans) {
  const esp::Variable fed = esp::placeholder("x", {4});
  BOOST_CHECK_EXCEPTION(esp::masked_select(fed, esp::greater(fed, 0.0f)), esp::UnsupportedError,
                        says({"masked_select", "where()", here()}));
  BOOST_CHECK_EXCEPTION(esp::nonzero(fed), esp::UnsupportedError, says({"nonzero", "where()", here()}));
  const esp::Variable p = esp::parameter(numbers({5}));
  const esp::Variable loss = esp::sum(esp::masked_select(p, esp::greater(p, -10.0)));
  BOOST_CHECK_EXCEPTION(loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1)})
                            .execute({.progress = false}),
                        esp::UnsupportedError, says({"masked_select", "where()"}));
  // What is chosen by a constant has its shape in a plan as well.
  const esp::Variable fixed = esp::sum(esp::masked_select(p, esp::tensor({true, false, true, false, false})));
  fixed.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1)})
      .execute({.progress = false});
}

BOOST_AUTO_TEST_CASE(known_masks_choose_from_feeds) {
  // So many that the positions need more memory than the mask.
  const int64_t n = 200;
  const esp::Tensor holds = (esp::Variable(esp::arange(n)) < 150).value();
  const esp::Tensor data = numbers({n, 3});
  const esp::Variable computed = esp::Variable(esp::arange(n)) < 150;
  const esp::Variable fed = esp::placeholder("x", {n, 3}, esp::float64);
  const esp::Variable p = esp::parameter(numbers({n, 3}));
  const auto chosen = [](const esp::Variable& x, const esp::Variable& m) { return x[m]; };
  const auto selected = [](const esp::Variable& x, const esp::Variable& m) {
    return esp::masked_select(x, esp::expand_as(esp::unsqueeze(m, 1), esp::ones({n, 3})));
  };
  using Choice = std::function<esp::Variable(const esp::Variable&, const esp::Variable&)>;
  for (const esp::Variable& mask : {esp::Variable(holds), computed})
    for (const Choice& f : {Choice(chosen), Choice(selected)}) {
      const auto loss = [&](const esp::Variable& x) { return esp::sum(esp::square(f(x * p, mask))); };
      const esp::Executor executor = loss(fed).get_executor({.mode = esp::Mode::inference});
      BOOST_TEST(executor.run({{"x", data}}).item() == loss(data).item(),
                 boost::test_tools::tolerance(1e-12));
      const esp::Executor slope = loss(fed).gradient(p).get_executor({.mode = esp::Mode::inference});
      BOOST_TEST(difference(slope.run({{"x", data}}), loss(data).gradient(p).value()) < 1e-12);
    }
  BOOST_CHECK_EXCEPTION(fed[fed > 0.0], esp::UnsupportedError, says({"x[mask]: the shape", here()}));
  // Repeated along an axis of a feed, a mask is not known.
  BOOST_CHECK_EXCEPTION(esp::masked_select(fed, esp::tensor({true, false, true})), esp::UnsupportedError,
                        says({"masked_select", here()}));
}

BOOST_AUTO_TEST_CASE(in_a_later_step_as_many_elements_are_chosen) {
  const esp::data::Distributor feed({esp::ones({6})}, {.batch_size = 1});
  const esp::Variable p = esp::parameter(esp::tensor({1.0, -3.0, 2.0}));
  const esp::Variable loss =
      esp::sum(esp::masked_select(p, esp::greater(p, 0.0))) * esp::sum(feed.get_output_graphs()[0]);
  BOOST_TEST(loss.forward().item() == 3);
  esp::set_value(p, esp::tensor({-1.0, 5.0, 2.0}));
  BOOST_TEST(loss.forward().item() == 7);
  for (const esp::Tensor& other : {esp::tensor({1.0, 5.0, 2.0}), esp::tensor({-1.0, -5.0, 2.0})}) {
    esp::set_value(p, other);
    BOOST_CHECK_EXCEPTION((void)loss.forward().item(), esp::UnsupportedError,
                          says({"masked_select", "elements now", "it chose 2"}));
  }
}

BOOST_AUTO_TEST_CASE(mistakes) {
  const esp::Variable x = esp::ones({2, 3});
  BOOST_CHECK_EXCEPTION(esp::masked_select(x, x), esp::TypeError, says({"masked_select", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::masked_select(x, esp::tensor({true, false})), esp::ShapeError,
                        says({"[2]", "[2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::masked_fill(x, x, 1.0f), esp::TypeError, says({"masked_fill", here()}));
}

/// A mask that is known chooses among as many places as it has.
BOOST_AUTO_TEST_CASE(masks_of_another_length_than_the_batch) {
  const esp::data::Distributor feed({numbers({7, 2})}, {.batch_size = 4});
  const esp::Variable x = feed.get_output_graphs()[0] * 2.0;
  const esp::Tensor two = esp::tensor({true, true, false, false});
  const esp::Variable rows = esp::sum(x[two]),
                      elements = esp::sum(esp::masked_select(
                          x, esp::expand_as(esp::unsqueeze(esp::Variable(two), 1), esp::ones({4, 2}))));
  for (const esp::Variable& y : {rows, elements}) {
    BOOST_CHECK_NO_THROW(y.forward());
    BOOST_CHECK_THROW(y.forward(), esp::ShapeError);
    BOOST_CHECK_THROW((void)y.get_executor({.mode = esp::Mode::inference}).execute({.progress = false}),
                      esp::ShapeError);
  }
}

BOOST_AUTO_TEST_SUITE_END()
