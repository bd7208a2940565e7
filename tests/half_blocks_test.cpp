// 16-bit reals on a CPU: rows that are converted, and ops that are computed in float32 a block at a time.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/half.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

struct Op {
  std::string name;
  std::function<Variable(const Variables&)> of;
};

/// What the op makes of float32 copies, rounded, against what it makes of the 16-bit operands.
void check(const Op& op, const std::vector<Tensor>& inputs) {
  for (const esp::DType half : {esp::float16, esp::bfloat16}) {
    Variables halves, wide;
    for (const Tensor& x : inputs) {
      const bool real = x.dtype() == esp::float64;
      halves.emplace_back(real ? x.to(half) : x);
      wide.emplace_back(real ? x.to(half).to(esp::float32) : x);
    }
    const Tensor y = op.of(halves).value(), expected = op.of(wide).value();
    BOOST_TEST_CONTEXT(op.name << " " << esp::name(half) << " " << inputs[0].shape().str()) {
      BOOST_TEST((y.dtype() == (expected.dtype() == esp::float32 ? half : expected.dtype())));
      // Sums of blocks may be rounded to the other neighbour.
      const double step = expected.dtype() != esp::float32 ? 0 : half == esp::float16 ? 0x1p-10 : 0x1p-7;
      BOOST_TEST(difference(y, expected.dtype() == esp::float32 ? expected.to(half) : expected) <= step);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(half_blocks)

BOOST_AUTO_TEST_CASE(float16_rows_at_each_vector_level) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> near;  // all numbers of float16, the floats beside them, and those halfway to the next
  for (const uint16_t bits : all) {
    const float x = esp::detail::float16_value(bits), next = esp::detail::float16_value(bits + 1);
    const float middle = x + (next - x) / 2;
    for (const float y : {x, middle})
      for (const float towards : {-INFINITY, y, INFINITY}) near.push_back(std::nextafter(y, towards));
  }
  near.push_back(std::numeric_limits<float>::max());
  near.push_back(std::numeric_limits<float>::denorm_min());
  const auto widen = esp::cast_row(esp::float16, esp::float32),
             round = esp::cast_row(esp::float32, esp::float16);
  const esp::VectorLevel before = esp::vector_level();
  for (const auto level : {esp::VectorLevel::baseline, esp::VectorLevel::avx2, esp::VectorLevel::avx512}) {
    esp::set_vector_level(level);
    std::vector<float> wide(all.size());
    widen(std::ssize(all), wide.data(), all.data(), 1);
    size_t wrong = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = esp::detail::float16_value(all[i]);
      wrong += std::isnan(expected) ? !std::isnan(wide[i]) || std::signbit(wide[i]) != std::signbit(expected)
                                    : std::memcmp(&wide[i], &expected, sizeof expected) != 0;
    }
    BOOST_TEST(wrong == 0u);
    std::vector<uint16_t> narrow(near.size());
    round(std::ssize(near), narrow.data(), near.data(), 1);
    for (size_t i = 0; i < near.size(); ++i) wrong += narrow[i] != esp::detail::float16_bits(near[i]);
    BOOST_TEST(wrong == 0u);
    float every_third[7];
    widen(7, every_third, all.data() + 15000, 3);
    for (size_t i = 0; i < 7; ++i)
      BOOST_TEST(every_third[i] == esp::detail::float16_value(all[15000 + 3 * i]));
  }
  esp::set_vector_level(before);
}

BOOST_AUTO_TEST_CASE(pointwise_ops) {
  for (const int64_t n : {1, 1023, 1024, 5000}) {
    const Tensor a = numbers({n}, -2, 2, 1), b = numbers({n}, 0.5, 2, 2), one = numbers({1}, 1, 2, 3),
                 scalar = numbers({}, 1, 2, 4);
    const Tensor mask = esp::greater(a, 0).value();
    check({"tanh", [](const auto& v) { return esp::tanh(v[0]); }}, {a});
    check({"add", [](const auto& v) { return v[0] + v[1]; }}, {a, b});
    check({"divide by one element", [](const auto& v) { return v[0] / v[1]; }}, {a, one});
    check({"subtract from a scalar", [](const auto& v) { return v[1] - v[0]; }}, {a, scalar});
    check({"where", [](const auto& v) { return esp::where(v[2], v[0], v[1]); }}, {a, b, mask});
    check({"clamp", [](const auto& v) { return esp::clamp(v[0], v[1], v[2]); }},
          {a, numbers({}, -1, -1), one});
    check({"less", [](const auto& v) { return esp::less(v[0], v[1]); }}, {a, b});
    check({"isnan", [](const auto& v) { return esp::isnan(v[0]); }}, {a});
  }
  // Operands of other layouts.
  const Tensor m = numbers({60, 70}), row = numbers({70}, 1, 2, 1);
  check({"a row for all", [](const auto& v) { return v[0] * v[1]; }}, {m, row});
  check({"transposed", [](const auto& v) { return esp::exp(esp::transpose(v[0])); }}, {m});
}

BOOST_AUTO_TEST_CASE(reductions) {
  for (const esp::Shape& shape :
       {esp::Shape{4097}, {70000}, {3, 5000}, {300, 64}, {5, 1000, 3}, {2, 70000}}) {
    const Tensor x = numbers(shape, -1, 1.2);
    for (const bool keep : {false, true}) {
      check({"sum of all", [=](const auto& v) { return esp::sum(v[0], {}, keep) / 64; }}, {x});
      check({"mean of all", [=](const auto& v) { return esp::mean(v[0], {}, keep); }}, {x});
      check({"max of all", [=](const auto& v) { return esp::max(v[0], {}, keep); }}, {x});
      check({"min of all", [=](const auto& v) { return esp::min(v[0], {}, keep); }}, {x});
      check({"mean of rows", [=](const auto& v) { return esp::mean(v[0], -1, keep); }}, {x});
      check({"max of rows", [=](const auto& v) { return esp::max(v[0], -1, keep); }}, {x});
      check({"mean of columns", [=](const auto& v) { return esp::mean(v[0], 0, keep); }}, {x});
    }
  }
  // What several threads reduce, none of it near 0.
  const Tensor positive = numbers({2, 70000}, 0.5, 1.2);
  check({"min of all", [](const auto& v) { return esp::min(v[0]); }}, {positive});
  check({"max of all", [](const auto& v) { return esp::max(-v[0]); }}, {positive});
  Tensor with_nan = numbers({9000}).to(esp::float32);
  with_nan.at<float>({8000}) = NAN;
  for (const esp::DType half : {esp::float16, esp::bfloat16}) {
    BOOST_TEST(std::isnan(esp::max(with_nan.to(half)).item()));
    BOOST_TEST(std::isnan(esp::min(with_nan.to(half)).item()));
    // More than 16 bits have, on the way to a mean.
    BOOST_TEST(esp::mean(esp::full({100'000}, 60'000, half)).item() == esp::full({}, 60'000, half).item());
  }
  BOOST_TEST(esp::sum(esp::full({100'000}, 1, esp::float16)).item() == INFINITY);
}

BOOST_AUTO_TEST_CASE(whole_rows) {
  for (const esp::Shape& shape : {esp::Shape{5000}, {300, 64}, {7, 3, 999}}) {
    const Tensor x = numbers(shape, -4, 4);
    check({"softmax", [](const auto& v) { return esp::softmax(v[0]) * 16; }}, {x});
    check({"log_softmax", [](const auto& v) { return esp::log_softmax(v[0]) / 4; }}, {x});
  }
}

BOOST_AUTO_TEST_SUITE_END()
