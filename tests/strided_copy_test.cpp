// Copies between tensors of any strides.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <random>

#include "espalier/core/cpu/strided_copy.h"
#include "espalier/core/device.h"
#include "espalier/core/random.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A tensor of a shape whose axes lie in memory in the given order, with gaps between them.
esp::Tensor laid_out(const esp::Shape& shape, const std::vector<size_t>& order, int64_t gap,
                     esp::DType dtype) {
  esp::Layout layout(shape);
  int64_t step = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    layout.strides[*axis] = step;
    step *= shape.dims()[*axis] + gap;
  }
  layout.offset = gap;
  const esp::Tensor memory = esp::zeros({step + gap}, dtype);
  return esp::Tensor(memory.storage(), layout, dtype);
}

template <class T>
T& element(const esp::Tensor& x, int64_t index) {
  int64_t at = 0;
  for (size_t axis = x.rank(); axis-- > 0; index /= x.shape().dims()[axis])
    at += index % x.shape().dims()[axis] * x.strides()[axis];
  return static_cast<T*>(const_cast<void*>(x.address()))[at];
}

/// The elements of the memory that are not 0.
template <class T>
int64_t written(const esp::Tensor& x) {
  const auto size = static_cast<int64_t>(x.storage()->bytes / sizeof(T));
  const T* const all = static_cast<const T*>(x.storage()->data);
  return std::count_if(all, all + size, [](T value) { return value != T{0}; });
}

template <class T>
void check_copy(const esp::Shape& shape, const std::vector<size_t>& from_order, int64_t from_gap,
                const std::vector<size_t>& to_order, int64_t to_gap, esp::DType dtype) {
  const esp::Tensor from = laid_out(shape, from_order, from_gap, dtype);
  esp::Tensor to = laid_out(shape, to_order, to_gap, dtype);
  const auto number = [](int64_t i) { return static_cast<T>(i % 126 + 1); };
  for (int64_t i = 0; i < shape.elements(); ++i) element<T>(from, i) = number(i);
  esp::copy_strided(from, to);
  int64_t wrong = 0;
  for (int64_t i = 0; i < shape.elements(); ++i) wrong += element<T>(to, i) != number(i);
  BOOST_TEST(wrong == 0);
  BOOST_TEST(written<T>(to) == shape.elements());  // and nothing between them
}

}  // namespace

BOOST_AUTO_TEST_SUITE(strided_copy)

BOOST_AUTO_TEST_CASE(any_order_of_axes) {
  std::mt19937 generator(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  const int before = esp::num_threads();
  for (int i = 0; i < 300; ++i) BOOST_TEST_CONTEXT("case " << i) {
      esp::set_num_threads(1 + i % 2);
      const auto rank = static_cast<size_t>(draw(1, 4));
      esp::Dims dims;
      for (size_t axis = 0; axis < rank; ++axis) dims.push_back(draw(1, rank < 3 ? 70 : 20));
      if (i % 7 == 0) dims.back() = draw(2, 4);
      std::vector<size_t> from(rank), to(rank);
      std::iota(from.begin(), from.end(), size_t{0});
      std::iota(to.begin(), to.end(), size_t{0});
      std::shuffle(from.begin(), from.end(), generator);
      if (i % 3 == 0) std::shuffle(to.begin(), to.end(), generator);
      const int64_t from_gap = i % 4 == 0 ? 3 : 0, to_gap = i % 5 == 0 ? 2 : 0;
      const esp::Shape shape(dims);
      if (i % 3 == 0) check_copy<float>(shape, from, from_gap, to, to_gap, esp::float32);
      if (i % 3 == 1) check_copy<double>(shape, from, from_gap, to, to_gap, esp::float64);
      if (i % 3 == 2) check_copy<uint8_t>(shape, from, from_gap, to, to_gap, esp::uint8);
    }
  esp::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(large_ones_by_several_threads) {
  const int before = esp::num_threads();
  esp::set_num_threads(2);
  check_copy<float>({300, 500}, {1, 0}, 0, {0, 1}, 0, esp::float32);
  check_copy<float>({30, 50, 64}, {0, 2, 1}, 0, {0, 1, 2}, 0, esp::float32);
  check_copy<float>({64, 30, 64}, {1, 0, 2}, 0, {0, 1, 2}, 0, esp::float32);
  check_copy<int64_t>({70000, 3}, {0, 1}, 2, {0, 1}, 0, esp::int64);
  esp::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(repeated_elements) {
  for (const int64_t n : {2, 3, 4, 5, 40}) {
    const esp::Tensor x = numbers({1000, 1}, -1, 1, 1).to(esp::float32);
    esp::Layout layout(esp::Shape{1000, n});
    layout.strides = {1, 0};
    esp::Tensor y = esp::zeros({1000, n});
    esp::copy_strided(esp::Tensor(x.storage(), layout, esp::float32), y);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 1000 * n; ++i) wrong += element<float>(y, i) != element<float>(x, i / n);
    BOOST_TEST(wrong == 0);
  }
}

BOOST_AUTO_TEST_CASE(nothing_and_one_element) {
  esp::Tensor empty = esp::zeros({0, 3}), one = esp::zeros({1, 1});
  BOOST_CHECK_NO_THROW(esp::copy_strided(esp::zeros({0, 3}), empty));
  esp::copy_strided(esp::ones({1, 1}), one);
  BOOST_TEST(element<float>(one, 0) == 1);
}

BOOST_AUTO_TEST_SUITE_END()
