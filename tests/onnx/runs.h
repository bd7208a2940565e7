// What tests of ONNX files compare.
#pragma once
#include <boost/test/unit_test.hpp>

#include "espalier/espalier.h"

namespace espalier::testing {

/// The largest difference of two elements of tensors of one shape.
inline double difference(const Tensor& a, const Tensor& b) {
  BOOST_TEST_REQUIRE(a.shape() == b.shape());
  return max(abs(Variable(a) - Variable(b))).item();
}

/// The inference of a tree whose only input is the placeholder "x".
inline Tensor run_inference(const Variable& y, const Tensor& x) {
  return y.get_executor({.mode = Mode::inference}).run({{"x", x}});
}

}  // namespace espalier::testing
