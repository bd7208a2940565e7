// Winograd's algorithm for convolutions beside the direct one.
#include "espalier/ops/functions/winograd.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/device.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/convolution/winograd_convolution.h"
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

/// A precondition of tests of convolutions that choose Winograd's algorithm, which some processors only do.
/// It rounds differently.
boost::test_tools::assertion_result has_winograd(boost::unit_test::test_unit_id) {
  const esp::Tensor x = numbers({4, 32, 24, 24}, -1, 1, 1).to(esp::float32),
                    kernels = numbers({48, 32, 3, 3}, -0.1, 0.1, 2).to(esp::float32);
  const std::vector<esp::Tensor> fast = results(x, kernels, {1, 1}, false);
  const Direct off;
  boost::test_tools::assertion_result result(difference(fast[0], results(x, kernels, {1, 1}, false)[0]) > 0);
  result.message() << "convolutions do not take Winograd's algorithm on this processor";
  return result;
}

struct Sizes {
  int64_t batch, in, out, rows, columns;
  esp::Padding of_rows, of_columns;

  int64_t y_rows() const { return rows + of_rows.before + of_rows.after - 2; }
  int64_t y_columns() const { return columns + of_columns.before + of_columns.after - 2; }
  esp::Shape x() const { return {batch, in, rows, columns}; }
  esp::Shape y() const { return {batch, out, y_rows(), y_columns()}; }
  esp::Shape kernels() const { return {out, in, 3, 3}; }
  esp::ConvolutionSizes convolution() const {
    esp::ConvolutionSizes s;
    s.batch = batch;
    s.in_channels = in;
    s.out_channels = out;
    s.in = {1, rows, columns};
    s.out = {1, y_rows(), y_columns()};
    s.kernel = {1, 3, 3};
    s.before = {0, of_rows.before, of_columns.before};
    return s;
  }
};

/// Whole tiles and parts of tiles, tiles that lie in the padding, channels that fill vectors and others.
const Sizes sizes[] = {
    {2, 16, 32, 8, 8, {1, 1}, {1, 1}}, {3, 5, 17, 9, 7, {1, 1}, {1, 1}},   {1, 1, 1, 3, 3, {0, 0}, {0, 0}},
    {1, 40, 3, 1, 1, {1, 1}, {1, 1}},  {2, 18, 24, 6, 11, {0, 0}, {2, 2}}, {1, 33, 16, 13, 5, {2, 2}, {0, 1}},
    {5, 8, 9, 2, 10, {2, 0}, {1, 2}},  {1, 3, 64, 21, 30, {1, 1}, {1, 1}}, {70, 16, 16, 5, 4, {1, 1}, {1, 1}},
    {1, 4, 5, 6, 6, {3, 0}, {4, 3}},   {1, 3, 4, 5, 5, {0, 9}, {9, 0}},
};

/// x, kernels and y in float64.
struct Operands {
  explicit Operands(const Sizes& s)
      : x(numbers(s.x(), -1, 1, 1)),
        kernels(numbers(s.kernels(), -0.3, 0.3, 2)),
        y(numbers(s.y(), -1, 1, 3)) {}
  esp::Tensor x, kernels, y;
};

esp::Tensor channels_last(const esp::Tensor& t) {
  return Variable(t).permute({0, 2, 3, 1}).value().contiguous_copy();
}
esp::Tensor channels_second(const esp::Tensor& t) {
  return Variable(t).permute({0, 3, 1, 2}).value().contiguous_copy();
}

/// What Winograd's algorithm computes in float32 of the other two operands. Residuals lie as y does.
esp::Tensor computed(const Sizes& s, esp::ConvolutionResult result, const Operands& of, bool last,
                     const esp::ConvolutionAfter& after = {}, esp::Tensor bias = {},
                     esp::Tensor residual = {}) {
  const auto laid_out = [&](const esp::Tensor& t) {
    const esp::Tensor floats = t.to(esp::float32);
    return last ? channels_last(floats) : floats.contiguous_copy();
  };
  esp::Tensor x = laid_out(of.x), y = laid_out(of.y), kernels = of.kernels.to(esp::float32).contiguous_copy();
  const auto steps = [&](const esp::Tensor& t) {
    const esp::Dims& strides = t.strides();
    return last ? esp::Dims{strides[0], strides[3], strides[1], strides[2]} : strides;
  };
  const auto method = esp::winograd::convolution(
      s.convolution(), result, {steps(x), kernels.strides(), steps(y), esp::float32, last}, {}, after);
  esp::Tensor& out = result == esp::ConvolutionResult::y   ? y
                     : result == esp::ConvolutionResult::x ? x
                                                           : kernels;
  esp::Tensor packed;
  if (after.packed) {
    packed = esp::Tensor({method->packed_bytes()}, esp::boolean, esp::cpu());
    method->pack(kernels.address(), packed.address());
  }
  // What is not written would be seen.
  std::fill_n(out.data<float>(), out.elements(), std::numeric_limits<float>::quiet_NaN());
  if (residual.defined()) residual = laid_out(residual);
  method->run({x.address(), after.packed ? packed.address() : kernels.address(), y.address(),
               bias.defined() ? bias.address() : nullptr, residual.defined() ? residual.address() : nullptr});
  return result == esp::ConvolutionResult::kernels || !last ? out : channels_second(out);
}

/// The same in float64, which is computed directly.
esp::Tensor expected(const Sizes& s, esp::ConvolutionResult result, const Operands& of) {
  const Variable x = esp::variable(of.x), kernels = esp::variable(of.kernels);
  const Variable y = esp::conv(x, kernels, {.padding = {s.of_rows, s.of_columns}});
  if (result == esp::ConvolutionResult::y) return y.value();
  return esp::sum(y * of.y).gradient(result == esp::ConvolutionResult::x ? x : kernels).value();
}

constexpr esp::ConvolutionResult results_of_a_convolution[] = {
    esp::ConvolutionResult::y, esp::ConvolutionResult::x, esp::ConvolutionResult::kernels};

double root_mean_square(const Variable& v) { return std::sqrt(esp::mean(esp::square(v)).item()); }
/// The root mean square of the differences, relative to that of b.
double relative_error(const esp::Tensor& a, const esp::Tensor& b) {
  return root_mean_square(Variable(a.to(esp::float64)) - b) / root_mean_square(b);
}
bool equal_bits(const esp::Tensor& a, const esp::Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.address(), b.address(), static_cast<size_t>(a.elements()) * sizeof(float)) == 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(winograd)

BOOST_AUTO_TEST_CASE(results_are_those_of_float64) {
  const esp::VectorLevel before = esp::vector_level();
  for (const esp::VectorLevel level :
       {esp::VectorLevel::baseline, esp::VectorLevel::avx2, esp::VectorLevel::avx512}) {
    if (esp::set_vector_level(level) != level) continue;
    for (const Sizes& s : sizes) {
      const Operands operands(s);
      for (const esp::ConvolutionResult result : results_of_a_convolution) {
        const esp::Tensor exact = expected(s, result, operands);
        for (const bool last : {false, true})
          BOOST_TEST(relative_error(computed(s, result, operands, last), exact) < 3e-6,
                     s.x().str() << s.kernels().str() << int(result) << last << int(level));
      }
    }
  }
  esp::set_vector_level(before);
}

BOOST_AUTO_TEST_CASE(bias_residual_and_activation_follow) {
  using Activation = esp::ConvolutionAfter::Activation;
  for (const Sizes& s : {sizes[0], sizes[1], sizes[4]}) {
    const Operands operands(s);
    const esp::Tensor plain = expected(s, esp::ConvolutionResult::y, operands),
                      bias = numbers({s.out}, -1, 1, 4), residual = numbers(s.y(), -1, 1, 5);
    const Variable sum = plain + Variable(bias).reshape({s.out, 1, 1}) + residual;
    for (const auto& [activation, y] :
         {std::pair{Activation::none, sum}, std::pair{Activation::relu, esp::relu(sum)},
          std::pair{Activation::tanh, esp::tanh(sum)}, std::pair{Activation::sigmoid, esp::sigmoid(sum)},
          std::pair{Activation::clip, esp::clamp(sum, -0.5, 0.25)}})
      for (const bool last : {false, true})
        for (const bool packed : {false, true}) {
          const esp::ConvolutionAfter after{.bias = true,
                                            .residual = true,
                                            .activation = activation,
                                            .low = -0.5,
                                            .high = 0.25,
                                            .packed = packed};
          const esp::Tensor y32 =
              computed(s, esp::ConvolutionResult::y, operands, last, after, bias.to(esp::float32), residual);
          BOOST_TEST(relative_error(y32, y.value()) < 3e-6, s.x().str() << int(activation) << last << packed);
        }
  }
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit) {
  const int before = esp::num_threads();
  for (const Sizes& s : {Sizes{7, 40, 32, 17, 18, {1, 1}, {1, 1}}, sizes[8]}) {
    const Operands operands(s);
    for (const esp::ConvolutionResult result : results_of_a_convolution) {
      esp::set_num_threads(1);
      const esp::Tensor one = computed(s, result, operands, true);
      for (const int threads : {1, 2, 5}) {
        esp::set_num_threads(threads);
        BOOST_TEST(equal_bits(computed(s, result, operands, true), one), s.x().str()
                                                                             << int(result) << threads);
      }
    }
  }
  esp::set_num_threads(before);
}

/// A tile of 4×4 of the result reads a tile of 6×6 of the operand.
BOOST_AUTO_TEST_CASE(what_is_not_finite_stays_in_its_tiles) {
  const Sizes s{2, 16, 16, 12, 12, {1, 1}, {1, 1}};
  Operands operands(s);
  const esp::Tensor finite = computed(s, esp::ConvolutionResult::y, operands, true);
  for (const double value :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    operands.x = numbers(s.x(), -1, 1, 1);
    operands.x.at<double>({1, 3, 5, 2}) = value;
    const esp::Tensor y = computed(s, esp::ConvolutionResult::y, operands, true);
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t r = 0; r < 12; ++r)
        for (int64_t c = 0; c < 12; ++c) {
          const float is = y.at<float>({n, 7, r, c});
          const bool reads = n == 1 && r >= 4 && r <= 6 && c >= 1 && c <= 3,
                     same_tile = n == 1 && r >= 4 && r < 8 && c < 4;
          if (reads) BOOST_TEST(!std::isfinite(is));
          if (!same_tile) BOOST_TEST(is == finite.at<float>({n, 7, r, c}));
        }
  }
}

BOOST_AUTO_TEST_CASE(tells_which_convolutions_it_computes) {
  const esp::ConvolutionSizes s = Sizes{64, 64, 64, 24, 24, {1, 1}, {1, 1}}.convolution();
  const auto is_faster = [](const esp::ConvolutionSizes& of) {
    return esp::winograd::is_faster(of, esp::ConvolutionResult::y, {{1, 1}, {1, 1}, {1, 1}}, {});
  };
  BOOST_TEST(esp::winograd::computes(s));
  BOOST_TEST(is_faster(s));
  for (const auto& change : std::initializer_list<void (*)(esp::ConvolutionSizes&)>{
           [](esp::ConvolutionSizes& of) { of.groups = 2; },
           [](esp::ConvolutionSizes& of) { of.kernel[2] = 5; },
           [](esp::ConvolutionSizes& of) { of.kernel[0] = 3; },
           [](esp::ConvolutionSizes& of) { of.in[0] = 2; }, [](esp::ConvolutionSizes& of) { of.out[0] = 2; },
           [](esp::ConvolutionSizes& of) { of.before[0] = 1; },
           [](esp::ConvolutionSizes& of) { of.stride[1] = 2; },
           [](esp::ConvolutionSizes& of) { of.dilation[2] = 2; }}) {
    esp::ConvolutionSizes other = s;
    change(other);
    BOOST_TEST(!esp::winograd::computes(other));
    BOOST_TEST(!is_faster(other));
  }
}

/// Sizes near those from which on it is faster.
BOOST_AUTO_TEST_CASE(is_taken_where_it_is_faster) {
  using Result = esp::ConvolutionResult;
  const struct {
    Sizes sizes;
    Result result;
    bool last, packed, faster;
  } cases[] = {
      // Channels that lie together are transformed faster.
      {{4, 32, 32, 24, 24, {1, 1}, {1, 1}}, Result::y, true, false, true},
      {{4, 32, 32, 24, 24, {1, 1}, {1, 1}}, Result::y, false, false, false},
      // Kernels are transformed in each run, unless they are packed.
      {{1, 32, 32, 24, 24, {1, 1}, {1, 1}}, Result::y, true, false, false},
      {{1, 32, 32, 24, 24, {1, 1}, {1, 1}}, Result::y, true, true, true},
      // Parts of tiles: of 10×10 places of y, or of 12×12 places of x.
      {{32, 32, 32, 12, 12, {0, 0}, {0, 0}}, Result::y, true, false, false},
      {{32, 32, 32, 12, 12, {0, 0}, {0, 0}}, Result::kernels, true, false, false},
      {{32, 32, 32, 12, 12, {0, 0}, {0, 0}}, Result::x, true, false, true},
      {{64, 32, 32, 12, 12, {0, 0}, {0, 0}}, Result::y, true, false, true},
      // Channels that do not fill vectors.
      {{8, 17, 64, 24, 24, {1, 1}, {1, 1}}, Result::y, true, false, true},
      {{8, 17, 64, 24, 24, {1, 1}, {1, 1}}, Result::x, true, false, false},
      {{8, 17, 64, 24, 24, {1, 1}, {1, 1}}, Result::kernels, true, false, false},
      {{8, 64, 17, 24, 24, {1, 1}, {1, 1}}, Result::y, true, false, false},
      {{8, 64, 17, 24, 24, {1, 1}, {1, 1}}, Result::x, true, false, true},
      {{8, 64, 17, 24, 24, {1, 1}, {1, 1}}, Result::kernels, true, false, true},
  };
  for (const auto& c : cases) {
    const esp::ConvolutionSizes s = c.sizes.convolution();
    const esp::Dims x{1, c.last ? 1 : s.in_places()}, y{1, c.last ? 1 : s.out_places()};
    BOOST_TEST(esp::winograd::is_faster(s, c.result, {x, {1, 1}, y}, {.packed = c.packed}) == c.faster,
               c.sizes.x().str() << c.sizes.kernels().str() << int(c.result) << c.last << c.packed);
    // Both have to lie together.
    if (c.last && !c.packed && c.faster && &c == cases)
      for (const auto& strides : {esp::ConvolutionStrides{{1, 9}, {1, 1}, {1, 1}}, {{1, 1}, {1, 1}, {1, 9}}})
        BOOST_TEST(!esp::winograd::is_faster(s, c.result, strides, {}));
  }
}

/// Sizes for which it is taken, with whole tiles and without, and sizes for which it is not.
BOOST_AUTO_TEST_CASE(agrees_with_direct_convolutions, *boost::unit_test::precondition(has_winograd)) {
  struct Call {
    esp::Shape x, kernels;
    esp::Padding padding;
  };
  for (const auto& [shape, kernel_shape, padding] :
       {Call{{4, 32, 24, 24}, {48, 32, 3, 3}, {1, 1}}, Call{{9, 64, 15, 18}, {32, 64, 3, 3}, {0, 0}},
        Call{{1, 40, 50, 50}, {36, 40, 3, 3}, {1, 1}}, Call{{2, 32, 29, 29}, {48, 32, 3, 3}, {0, 1}},
        Call{{2, 32, 29, 29}, {48, 32, 3, 3}, {1, 0}}}) {
    const esp::Tensor x = numbers(shape, -1, 1, 1).to(esp::float32),
                      kernels = numbers(kernel_shape, -0.1, 0.1, 2).to(esp::float32);
    const std::vector<esp::Tensor> direct = [&] {
      const Direct off;
      return results(x, kernels, padding, false);
    }();
    for (const bool plan : {false, true}) {
      const std::vector<esp::Tensor> fast = results(x, kernels, padding, plan);
      for (size_t i = 0; i < direct.size(); ++i) {
        const double largest = esp::max(esp::abs(Variable(fast[i]) - Variable(direct[i]))).item();
        BOOST_TEST(largest < 4e-5 * root_mean_square(direct[i]), shape.str() << i << plan);
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
  if (esp::vector_level() != esp::VectorLevel::avx2) return;  // others take it of oneDNN
  const Sizes s{4, 64, 48, 24, 24, {1, 1}, {1, 1}};
  const Operands operands(s);
  const auto y = [&] {
    return esp::conv(operands.x.to(esp::float32), operands.kernels.to(esp::float32), {.padding = 1})
        .value()
        .clone();
  };
  const esp::Tensor own = computed(s, esp::ConvolutionResult::y, operands, false);
  BOOST_TEST(equal_bits(y(), own));
  const Direct off;
  BOOST_TEST(!equal_bits(y(), own));
}

BOOST_AUTO_TEST_SUITE_END()
