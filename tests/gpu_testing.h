// Helpers of tests with tensors on a GPU.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "espalier/core/tensor.h"

namespace espalier::testing {

/// A precondition of suites that need a GPU.
inline boost::test_tools::assertion_result has_gpu(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(!all_gpus().empty());
  result.message() << "there is no GPU";
  return result;
}

/// Copies a tensor to the GPU with the same strides.
inline Tensor on_gpu(const Tensor& x) {
  const auto size = static_cast<int64_t>(x.storage()->bytes / size_of(x.dtype()));
  const Tensor all(x.storage(), Layout(Shape{size}), x.dtype());
  return Tensor(all.to(gpu()).storage(), x.layout(), x.dtype());
}

/// The largest difference from a tensor on the CPU, relative to the largest element.
inline double relative_difference(const Tensor& got, const Tensor& expected) {
  const Tensor a = got.to(cpu()).to(float32), b = expected.to(float32);
  double largest = 0, by = 0;
  for (int64_t i = 0; i < b.elements(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    largest = std::max(largest, std::abs(y));
    by = std::isnan(x) ? INFINITY : std::max(by, std::abs(x - y));
  }
  return largest > 0 ? by / largest : by;
}

}  // namespace espalier::testing
