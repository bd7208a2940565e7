// Initializers: their distributions, fans and errors.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/init.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
namespace init = espalier::nn::init;
using espalier::testing::difference;
using espalier::testing::says;
using namespace espalier::nn;

namespace {

struct Moments {
  double mean = 0, deviation = 0, low = INFINITY, high = -INFINITY;
  Moments(const Initializer& initializer, int64_t in, int64_t out, esp::DType dtype = esp::float64) {
    const esp::Tensor t = initializer({200, 500}, in, out, dtype).to(esp::float64);
    for (double x : t.span<double>()) mean += x, low = std::min(low, x), high = std::max(high, x);
    mean /= static_cast<double>(t.elements());
    for (double x : t.span<double>()) deviation += (x - mean) * (x - mean);
    deviation = std::sqrt(deviation / static_cast<double>(t.elements()));
  }
};

void is_uniform(const Initializer& initializer, double bound) {
  const Moments m(initializer, 30, 70);
  BOOST_TEST((m.low >= -bound && m.high <= bound));
  BOOST_TEST(m.high == bound, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(m.deviation == bound / std::sqrt(3.0), boost::test_tools::tolerance(1e-2));
}

void is_normal(const Initializer& initializer, double deviation) {
  const Moments m(initializer, 30, 70);
  BOOST_TEST(std::abs(m.mean) < deviation / 50);
  BOOST_TEST(m.deviation == deviation, boost::test_tools::tolerance(2e-2));
  BOOST_TEST(m.high > 3 * deviation);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(initializers)

BOOST_AUTO_TEST_CASE(formulas) {
  esp::seed(1);
  is_uniform(init::KaimingUniform(), 1 / std::sqrt(30.0));
  is_uniform(init::KaimingUniform(0), std::sqrt(6 / 30.0));
  is_uniform(init::HeUniform(), std::sqrt(6 / 30.0));
  is_uniform(init::XavierUniform(), std::sqrt(6 / 100.0));
  is_uniform(init::GlorotUniform(2), 2 * std::sqrt(6 / 100.0));
  is_uniform(init::LecunUniform(), std::sqrt(3 / 30.0));
  is_uniform(init::Uniform(-0.5, 0.5), 0.5);
  is_normal(init::HeNormal(), std::sqrt(2 / 30.0));
  is_normal(init::XavierNormal(), std::sqrt(2 / 100.0));
  is_normal(init::LecunNormal(), std::sqrt(1 / 30.0));
  is_normal(init::Normal(0, 3), 3);
  BOOST_TEST(Moments(init::Normal(5, 0.1), 1, 1, esp::float32).mean == 5, boost::test_tools::tolerance(1e-3));
  const Moments ones(init::Ones(), 1, 1, esp::float32), zeros(init::Zeros(), 1, 1);
  BOOST_TEST((ones.low == 1 && ones.high == 1 && zeros.low == 0 && zeros.high == 0));
}

BOOST_AUTO_TEST_CASE(fans_come_from_the_shape) {
  auto from_shape = [](const esp::Shape& shape, esp::DType dtype) {
    esp::seed(2);
    return init::XavierUniform()(shape, dtype);
  };
  auto given = [](const esp::Shape& shape, int64_t in, int64_t out, esp::DType dtype) {
    esp::seed(2);
    return init::XavierUniform()(shape, in, out, dtype);
  };
  BOOST_TEST(difference(from_shape({6, 4}, esp::float64), given({6, 4}, 4, 6, esp::float64)) == 0);
  BOOST_TEST(difference(from_shape({6, 4, 3, 5}, esp::float32), given({6, 4, 3, 5}, 60, 90, esp::float32)) ==
             0);
  BOOST_TEST(difference(from_shape({6}, esp::float32), given({6}, 1, 1, esp::float32)) == 0);
}

BOOST_AUTO_TEST_CASE(bad_arguments) {
  BOOST_CHECK_EXCEPTION(init::Uniform(1, 0), esp::Error, says({"1", "0"}));
  BOOST_CHECK_NO_THROW(init::Uniform(1, 1));
  BOOST_CHECK_EXCEPTION(init::Normal(0, -2), esp::Error, says({"-2"}));
  for (const double bad : {double(NAN), double(INFINITY)}) {
    BOOST_CHECK_EXCEPTION(init::Uniform(bad, 1), esp::Error, says({"Uniform: low"}));
    BOOST_CHECK_EXCEPTION(init::Uniform(0, bad), esp::Error, says({"Uniform: high"}));
    BOOST_CHECK_EXCEPTION(init::Normal(bad, 1), esp::Error, says({"Normal: mean"}));
    BOOST_CHECK_EXCEPTION(init::Normal(0, bad), esp::Error, says({"Normal: stddev"}));
    BOOST_CHECK_EXCEPTION(init::XavierUniform{bad}, esp::Error, says({"XavierUniform: gain"}));
    BOOST_CHECK_EXCEPTION(init::XavierNormal{bad}, esp::Error, says({"XavierNormal: gain"}));
    BOOST_CHECK_EXCEPTION(init::KaimingUniform{bad}, esp::Error, says({"KaimingUniform: a"}));
    BOOST_CHECK_EXCEPTION(init::KaimingNormal{bad}, esp::Error, says({"KaimingNormal: a"}));
  }
  BOOST_CHECK_THROW(init::Ones()({2}, 1, 1, esp::int64), esp::TypeError);
}

BOOST_AUTO_TEST_CASE(a_function_of_ones_own) {
  const esp::Tensor mine = esp::tensor({{1.0, 2.0}}, esp::float64);
  Dense dense(1, {.initializer = [&](const esp::Shape&) { return mine; }});
  BOOST_TEST(dense(esp::ones({1, 2})).item() == 3);
  esp::set_value(dense.parameter("weight"), esp::zeros({1, 2}));
  BOOST_TEST(mine.at<double>({0, 0}) == 1);  // the initial value was copied
  Dense wrong(2, {.initializer = [&](const esp::Shape&) { return mine; }});
  BOOST_CHECK_EXCEPTION(wrong(esp::ones({1, 2})), esp::ShapeError,
                        says({"[2, 2]", "[1, 2]", "initializers_test.cpp"}));
  BOOST_TEST(wrong.parameters().empty());
  BOOST_CHECK_THROW(Initializer(std::function<esp::Tensor(const esp::Shape&)>()), esp::Error);
}

BOOST_AUTO_TEST_CASE(draws_shift_no_other_random_numbers) {
  esp::seed(9);
  const esp::Tensor expected = esp::randn({4});
  const esp::Tensor weight = [] {
    esp::seed(9);
    Dense dense(3);
    dense(esp::ones({1, 2}));
    return dense.parameter("weight").value();
  }();
  BOOST_TEST(difference(esp::randn({4}), expected) == 0);
  esp::seed(9);
  esp::randn({4});  // other random numbers do not change it
  Dense dense(3);
  dense(esp::ones({1, 2}));
  BOOST_TEST(difference(dense.parameter("weight").value(), weight) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
