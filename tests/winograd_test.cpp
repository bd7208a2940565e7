// Winograd's algorithm for convolutions beside the direct one.
#include "espalier/ops/functions/winograd.h"

#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct Direct {
  Direct() { esp::set_winograd(false); }
  ~Direct() { esp::set_winograd(true); }
};

/// The result of a convolution with padding, and the gradients of both operands.
std::vector<esp::Tensor> results(const esp::Tensor& x, const esp::Tensor& kernels,
                                 const esp::Padding& padding, bool plan) {
  const Variable a = esp::variable(x), b = esp::variable(kernels);
  const Variable y = esp::conv(a, b, {.padding = {padding, padding}});
  const Variable loss = esp::sum(y * esp::sin(y * 3.0));

  std::vector<esp::Tensor> all;
  for (const Variable& v : {y, loss.gradient(a), loss.gradient(b)}) {
    if (!plan) {
      all.push_back(v.value().clone());
      continue;
    }
    const esp::Executor executor = v.get_executor({.mode = esp::Mode::inference});
    executor.execute({.progress = false});
    all.push_back(executor.value().clone());
  }
  return all;
}

/// A precondition of tests of Winograd's algorithm: oneDNN has kernels of it for some processors only. They
/// round differently.
boost::test_tools::assertion_result has_winograd(boost::unit_test::test_unit_id) {
  const esp::Tensor x = numbers({4, 32, 24, 24}, -1, 1, 1).to(esp::float32),
                    kernels = numbers({48, 32, 3, 3}, -0.1, 0.1, 2).to(esp::float32);
  const std::vector<esp::Tensor> fast = results(x, kernels, {1, 1}, false);
  const Direct off;
  boost::test_tools::assertion_result result(difference(fast[0], results(x, kernels, {1, 1}, false)[0]) > 0);
  result.message() << "oneDNN has no kernel of Winograd's algorithm for this processor";
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(winograd)

/// Sizes for which it is taken, with whole tiles and without, and sizes for which it is not.
BOOST_AUTO_TEST_CASE(agrees_with_direct_convolutions, *boost::unit_test::precondition(has_winograd)) {
  struct Sizes {
    esp::Shape x, kernels;
    esp::Padding padding;
  };
  for (const auto& [shape, kernel_shape, padding] :
       {Sizes{{4, 32, 24, 24}, {48, 32, 3, 3}, {1, 1}}, Sizes{{9, 64, 15, 18}, {32, 64, 3, 3}, {0, 0}},
        Sizes{{1, 32, 47, 50}, {32, 32, 3, 3}, {1, 1}}, Sizes{{4, 32, 24, 24}, {32, 32, 3, 3}, {2, 2}},
        Sizes{{1, 40, 50, 50}, {36, 40, 3, 3}, {1, 1}}, Sizes{{2, 32, 29, 29}, {48, 32, 3, 3}, {0, 1}},
        Sizes{{2, 32, 29, 29}, {48, 32, 3, 3}, {1, 0}}}) {
    const esp::Tensor x = numbers(shape, -1, 1, 1).to(esp::float32),
                      kernels = numbers(kernel_shape, -0.1, 0.1, 2).to(esp::float32);
    for (const bool plan : {false, true}) {
      const std::vector<esp::Tensor> fast = results(x, kernels, padding, plan);
      const Direct off;
      const std::vector<esp::Tensor> direct = results(x, kernels, padding, plan);
      for (size_t i = 0; i < direct.size(); ++i) {
        const double scale = std::sqrt(esp::mean(esp::square(Variable(direct[i]))).item());
        const double error = esp::max(esp::abs(Variable(fast[i]) - Variable(direct[i]))).item();
        BOOST_TEST(error < 4e-5 * scale, shape.str() << i << plan);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(is_switched_off_and_on) {
  BOOST_TEST(esp::uses_winograd());
  {
    const Direct off;
    BOOST_TEST(!esp::uses_winograd());
  }
  BOOST_TEST(esp::uses_winograd());
}

BOOST_AUTO_TEST_SUITE_END()
