// Functions of one input in exported C code, beside what an executor computes.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "c_module.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"
#include "testing.h"

namespace espalier::testing {

inline Tensor values(const Shape& shape, uint64_t which = 0, double low = -2, double high = 2) {
  return numbers(shape, low, high, which).to(float32);
}
inline Tensor indices(const Shape& shape, int64_t count, bool negative = false) {
  Tensor result(shape, int64);
  int64_t next = 1;
  for (int64_t& x : result.span<int64_t>()) {
    next = (next * 7 + 3) % 101;
    x = next % count - (negative && next % 2 ? count : 0);
  }
  return result;
}

/// What functions of one input compute, side by side, in C and by an executor without these passes.
inline void check_functions(const Tensor& x,
                            const std::vector<std::function<Variable(const Variable&)>>& functions,
                            const std::vector<std::string>& without = {}) {
  const TemporaryFolder folder;
  const Variable input = placeholder("x", x.shape(), x.dtype());
  std::vector<Variable> results;
  for (const auto& function : functions) {
    const Variable y = function(input);
    results.push_back(reshape(y.dtype() == float32 ? y : cast(y, float32), {-1}));
  }
  const auto executor = concat(results, 0).get_executor({.mode = Mode::inference, .without = without});
  const Tensor expected = executor.run({{"x", x}});
  (void)executor.export_c(folder / "net.c");
  const CModule code(folder / "net.c");
  Tensor result(expected.shape());
  BOOST_TEST(code.function<int(const void*, float*)>("net_run")(x.address(), result.data<float>()) == 0);
  for (int64_t i = 0; i < result.elements(); ++i) {
    const float a = result.span<float>()[i], b = expected.span<float>()[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    BOOST_TEST_INFO("element " << i);
    BOOST_TEST((a == b || std::abs(a - b) <= 1e-5 * (1 + std::abs(b))));
  }
}

/// A function beside the gradient of a sum of its value, weighted by itself.
inline std::vector<std::function<Variable(const Variable&)>> with_gradients(
    std::vector<std::function<Variable(const Variable&)>> functions) {
  const size_t count = functions.size();
  for (size_t i = 0; i < count; ++i)
    functions.emplace_back([f = functions[i]](const Variable& x) {
      const Variable p = parameter(values(x.shape(), 19)), y = f(p + x);
      return sum(y * y + y).gradient(p);
    });
  return functions;
}

}  // namespace espalier::testing
