// Addressing of operands in pointwise GPU kernels; a loop stands for the kernel.
#include "espalier/ops/strided_launch.h"

#include <boost/test/unit_test.hpp>

#include "testing.h"

namespace esp = espalier;
namespace cu = espalier::cu;
using namespace espalier::testing;

namespace {

using Walks = esp::SmallVector<cu::StridedLaunch, 1>;

/// A view with permuted axes.
esp::Tensor permuted(const esp::Tensor& x, const std::vector<size_t>& axes) {
  esp::Layout layout = x.layout();
  for (size_t i = 0; i < axes.size(); ++i) {
    layout.shape.dims()[i] = x.shape().dims()[axes[i]];
    layout.strides[i] = x.strides()[axes[i]];
  }
  return esp::Tensor(x.storage(), layout, x.dtype());
}

/// Runs the launches as a kernel would: out = Σ 1000^k inputs[k].
void run(const Walks& strided_launches, size_t inputs) {
  for (const cu::StridedLaunch& walk : strided_launches) {
    for (uint32_t unit = 0; unit < walk.units; ++unit) {
      int32_t offset[cu::max_operands];
      walk.locate(unit, offset);
      const uint32_t count = std::min(walk.unit, walk.elements - unit * walk.unit);
      for (uint32_t i = 0; i < count; ++i) {
        int64_t value = 0;
        for (size_t k = inputs; k > 0; --k) {
          const int32_t at = offset[k] + static_cast<int32_t>(i) * walk.element_step[k];
          value = 1000 * value + static_cast<const int64_t*>(walk.data[k])[at];
        }
        const int32_t at = offset[0] + static_cast<int32_t>(i) * walk.element_step[0];
        static_cast<int64_t*>(walk.data[0])[at] = value;
      }
    }
  }
}

/// Launches with this reach write the whole output, from the right elements.
Walks check(const esp::Shape& shape, const std::vector<esp::Tensor>& inputs, uint32_t unit,
            int64_t reach = INT32_MAX) {
  esp::Tensor out = esp::full(shape, -1, esp::int64);
  std::vector<const esp::Tensor*> pointers;
  std::vector<Array> arrays;
  for (const esp::Tensor& in : inputs) {
    pointers.push_back(&in);
    arrays.emplace_back(in);
  }
  const Walks strided_launches = cu::strided_launches(out, pointers, unit, reach);
  run(strided_launches, inputs.size());
  const Array expected(shape, [&](const Index& index) {
    double value = 0;
    for (size_t k = arrays.size(); k > 0; --k) value = 1000 * value + arrays[k - 1](index);
    return value;
  });
  BOOST_TEST(difference(expected, out) == 0, "shape " << shape << ", reach " << reach);
  return strided_launches;
}

esp::Tensor counted(const esp::Shape& shape) {
  return esp::arange(shape.elements(), esp::int64).reshape(shape);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(walk)

BOOST_AUTO_TEST_CASE(division_by_multiplication) {
  std::vector<uint32_t> divisors{
      1, 2, 3, 4, 5, 7, 10, 641, 1 << 16, (1 << 16) + 1, INT32_MAX / 2, (1 << 30) + 1, INT32_MAX};
  for (uint32_t i = 1; i < 200; ++i) divisors.push_back(2 + i * 10'737'411u % (INT32_MAX - 2));
  for (uint32_t d : divisors) {
    const cu::FastDivide divisor(d);
    std::vector<uint32_t> numbers{
        0, 1, d - 1, d, INT32_MAX, INT32_MAX - 1, INT32_MAX / d * d, INT32_MAX / d * d - 1};
    for (uint32_t i = 1; i < 200; ++i) numbers.push_back(i * 21'474'833u % INT32_MAX);
    for (uint32_t n : numbers) BOOST_TEST(divisor.quotient(n) == n / d, n << " / " << d);
  }
}

BOOST_AUTO_TEST_CASE(every_element_once_from_the_right_place) {
  const esp::Tensor cube = counted({4, 6, 8});
  for (uint32_t unit : {1, 2, 4})
    for (int64_t reach : {int64_t{INT32_MAX}, int64_t{40}, int64_t{7}}) {
      check({7}, {counted({7})}, unit, reach);
      check({4, 6, 8}, {cube, counted({6, 1})}, unit, reach);
      check({4, 6, 8}, {counted({8}), cube, counted({})}, unit, reach);
      check({8, 4, 6}, {permuted(cube, {2, 0, 1}), counted({4, 6})}, unit, reach);
      check({8, 6, 4}, {permuted(cube, {2, 1, 0})}, unit, reach);
      check({4, 5, 8}, {cube.slice(1, 1, 6), cube.slice(1, 0, 5)}, unit, reach);
      check({1, 1}, {counted({1})}, unit, reach);
      check({}, {counted({})}, unit, reach);
      check({3, 2, 5}, {counted({3, 1, 1}), counted({2, 1}), counted({5})}, unit, reach);
    }
}

BOOST_AUTO_TEST_CASE(more_axes_than_a_walk_has) {
  const esp::Tensor x = counted({2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  const Walks strided_launches = check(x.shape(), {permuted(x, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0})}, 2);
  BOOST_TEST(strided_launches.size() == 4);
}

BOOST_AUTO_TEST_CASE(nothing_to_walk) { BOOST_TEST(check({3, 0}, {counted({3, 1})}, 4).empty()); }

BOOST_AUTO_TEST_CASE(vectors_where_addresses_allow) {
  const auto access = [](const esp::Tensor& out, const esp::Tensor& in, uint32_t unit) {
    const esp::Tensor* inputs[] = {&in};
    const Walks strided_launches = cu::strided_launches(out, inputs, unit);
    BOOST_TEST(strided_launches.size() == 1);
    return std::pair(strided_launches[0].unit, strided_launches[0].access[1]);
  };
  const auto is = [](uint32_t unit, cu::Access a) { return std::pair(unit, a); };
  using enum cu::Access;
  const esp::Tensor x = esp::zeros({8, 64}), out = esp::zeros({8, 32}), b = esp::zeros({64}, esp::boolean);
  const esp::Tensor bools = esp::zeros({32}, esp::boolean);
  BOOST_TEST((access(x, x, 4) == is(4, whole)));
  BOOST_TEST((access(out, x.slice(1, 4, 36), 4) == is(4, whole)));
  BOOST_TEST((access(out, x.slice(1, 2, 34), 4) == is(4, each)));
  BOOST_TEST((access(out, esp::zeros({8, 1}), 4) == is(4, same)));
  BOOST_TEST((access(out, esp::zeros({32}), 4) == is(4, whole)));
  BOOST_TEST((access(bools, b.slice(0, 4, 36), 16) == is(16, words)));
  BOOST_TEST((access(bools, b.slice(0, 3, 35), 16) == is(16, each)));
  // Rows of seven elements cannot use vectors, but seven elements in all can.
  const esp::Tensor narrow = x.slice(1, 0, 7);
  BOOST_TEST(access(esp::zeros({8, 7}), narrow, 4).first == 1);
  BOOST_TEST(access(esp::zeros({1, 7}), narrow.slice(0, 0, 1), 4).first == 4);
}

BOOST_AUTO_TEST_SUITE_END()
