// The GPU's pointwise kernels against the CPU's: every op, element type and arrangement of operands.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

#include "espalier/core/bind_context.h"
#include "espalier/core/cpu/widen.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/bitwise.h"
#include "espalier/ops/functions/exponential.h"
#include "espalier/ops/functions/piecewise_activation.h"
#include "espalier/ops/functions/rounding.h"
#include "espalier/ops/functions/smooth_activation.h"
#include "espalier/ops/functions/special.h"
#include "espalier/ops/functions/trigonometry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr esp::DType dtypes[] = {esp::float32, esp::float64, esp::int32,   esp::int64,
                                 esp::boolean, esp::float16, esp::bfloat16};

/// Numbers of both signs, and the limits of the type.
esp::Tensor values(const esp::Shape& shape, esp::DType dtype, uint64_t which) {
  if (esp::is_half(dtype)) return values(shape, esp::float32, which).to(dtype);
  esp::Tensor result = numbers(shape, -3, 3, which).to(dtype);
  const int64_t n = result.elements();
  esp::visit(dtype, [&]<class T>(esp::TypeTag<T>) {
    using Limits = std::numeric_limits<T>;
    T* data = result.data<T>();
    const T special[] = {T(0),
                         T(-0.0),
                         Limits::max(),
                         Limits::lowest(),
                         Limits::infinity(),
                         -Limits::infinity(),
                         Limits::quiet_NaN(),
                         T(1),
                         T(-1),
                         Limits::denorm_min()};
    for (int64_t i = 0; i < n; ++i)
      if ((i + static_cast<int64_t>(which)) % 7 == 3) data[i] = special[i % std::size(special)];
  });
  return result;
}

esp::Tensor with_axes(const esp::Tensor& x, const std::vector<size_t>& axes) {
  esp::Layout layout = x.layout();
  for (size_t i = 0; i < axes.size(); ++i) {
    layout.shape.dims()[i] = x.shape().dims()[axes[i]];
    layout.strides[i] = x.strides()[axes[i]];
  }
  return esp::Tensor(x.storage(), layout, x.dtype());
}

/// A layout of operands; the function makes operand k with this element type.
struct Arrangement {
  const char* name;
  std::function<esp::Tensor(esp::DType, size_t k)> operand;
};
const Arrangement arrangements[] = {
    {"whole",
     [](esp::DType t, size_t k) {
       return values({3, 700}, t, k);
     }},
    {"a few", [](esp::DType t, size_t k) { return values({3}, t, k); }},
    {"odd places",
     [](esp::DType t, size_t k) {
       const auto begin = static_cast<int64_t>(k);
       return values({605}, t, k).slice(0, begin + 1, begin + 600);
     }},
    {"words", [](esp::DType t, size_t k) { return values({610}, t, k).slice(0, 4, 604); }},
    {"rows",
     [](esp::DType t, size_t k) {
       return k ? values({16}, t, k) : values({33, 16}, t, k);
     }},
    {"narrow rows",
     [](esp::DType t, size_t k) {
       return k ? values({10}, t, k) : values({33, 10}, t, k);
     }},
    {"columns",
     [](esp::DType t, size_t k) {
       return values({33, k ? 1 : 16}, t, k);
     }},
    {"numbers",
     [](esp::DType t, size_t k) {
       return k ? values({}, t, k) : values({5, 40}, t, k);
     }},
    {"a number", [](esp::DType t, size_t k) { return values({}, t, k); }},
    {"transposed",
     [](esp::DType t, size_t k) {
       return k == 1 ? values({32, 48}, t, k) : with_axes(values({48, 32}, t, k), {1, 0});
     }},
    {"with gaps",
     [](esp::DType t, size_t k) {
       return values({20, 40}, t, k).slice(1, 4, 36);
     }},
    {"five axes",
     [](esp::DType t, size_t k) {
       const esp::Tensor x = with_axes(values({5, 4, 3, 2, 4}, t, k), {1, 0, 4, 3, 2});
       return k == 2 ? x.slice(2, 1, 2) : x;
     }},
    {"none",
     [](esp::DType t, size_t k) {
       return values({4, k ? 1 : 0}, t, k);
     }},
};

/// The largest difference of two elements, relative to 1 + the larger, and the elements; infinite if only one
/// is NaN, or for zeros of different sign.
struct Difference {
  double by = 0, expected = 0, got = 0;
};
Difference largest_difference(const esp::Tensor& a, const esp::Tensor& b) {
  Difference worst;
  const esp::Tensor x = a.to(esp::float64), y = b.to(esp::float64);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i];
    if (std::isnan(p) && std::isnan(q)) continue;
    if (p == q && std::signbit(p) == std::signbit(q)) continue;
    double by = std::abs(p - q) / (1 + std::max(std::abs(p), std::abs(q)));
    if (!(by > 0)) by = std::numeric_limits<double>::infinity();
    if (by > worst.by) worst = {by, p, q};
  }
  return worst;
}

double tolerance(esp::DType dtype) {
  switch (dtype) {
    case esp::DType::float64: return 1e-13;
    case esp::DType::float32: return 4e-6;
    case esp::DType::float16: return 1e-3;
    case esp::DType::bfloat16: return 8e-3;
    default: return 0;
  }
}

void run_on_cpu(const esp::Op& op, const esp::KernelCall& call) {
  if (esp::needs_widening(op, call))
    esp::run_widened(op, call);
  else
    op.run_cpu(call);
}

/// Runs an op on both devices; `in_place`: the input to overwrite, if the op may.
void check(const esp::Op& op, const std::vector<esp::Tensor>& inputs, int in_place, const std::string& what,
           double roundings = 1) {
  std::vector<esp::Spec> specs;
  std::vector<esp::Tensor> moved;
  esp::InputSpecs in;
  for (const esp::Tensor& x : inputs) specs.push_back(x.spec());
  for (const esp::Tensor& x : inputs) moved.push_back(on_gpu(x));
  for (const esp::Spec& spec : specs) in.push_back(&spec);
  const esp::Spec result = op.infer(in)[0];

  esp::Tensor expected(result.shape, result.dtype);
  esp::Tensor out(result.shape, result.dtype, esp::gpu());
  esp::KernelCall there, here;
  if (in_place >= 0) {
    const auto k = static_cast<size_t>(in_place);
    if (!op.can_write_over(0, k) || !(result == specs[k]) || !inputs[k].contiguous()) return;
    out = moved[k];
  }
  for (const esp::Tensor& x : inputs) here.inputs.push_back(&x);
  for (const esp::Tensor& x : moved) there.inputs.push_back(&x);
  here.outputs = {&expected};
  there.outputs = {&out};
  run_on_cpu(op, here);
  esp::bind_kernel(op, there)->run({});
  esp::Tensor back(result.shape, result.dtype);
  esp::copy_elements(out, back);
  const Difference worst = largest_difference(expected, back);
  BOOST_TEST(worst.by <= roundings * tolerance(result.dtype), what << (in_place >= 0 ? ", in place" : "")
                                                                   << ": " << worst.got << " instead of "
                                                                   << worst.expected);
}

/// Checks all layouts and element types of an op; `same(k)` is true if operand k has the element type, and
/// false if it is bool.
void check_all(const esp::Variable& made, size_t operands, const std::function<bool(size_t)>& same) {
  const esp::Op& op = made.node()->op();
  int taken = 0;
  for (esp::DType dtype : dtypes)
    for (const Arrangement& arrangement : arrangements) {
      std::vector<esp::Tensor> inputs;
      for (size_t k = 0; k < operands; ++k)
        inputs.push_back(arrangement.operand(same(k) ? dtype : esp::boolean, k));
      const std::string what =
          std::string(op.name()) + " of " + std::string(esp::name(dtype)) + ", " + arrangement.name;
      try {
        for (int in_place = -1; in_place < static_cast<int>(operands); ++in_place)
          check(op, inputs, in_place, what);
        ++taken;
      } catch (const esp::TypeError&) {
        continue;  // unsupported type
      }
    }
  BOOST_TEST(taken > 0, op.name() << " takes no element type");
}
void check_all(const esp::Variable& made, size_t operands) {
  check_all(made, operands, [](size_t) { return true; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_pointwise, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(one_operand) {
  const esp::Variable x(esp::ones({2})), b(esp::ones({2}, esp::boolean));
  for (const esp::Variable& made :
       {esp::negative(x), esp::abs(x), esp::sign(x), esp::floor(x), esp::square(x), esp::exp(x), esp::log(x),
        esp::sqrt(x), esp::sin(x), esp::cos(x), esp::tanh(x), esp::sigmoid(x), esp::relu(x), esp::erf(x),
        esp::gelu(x), esp::logical_not(b)})
    check_all(made, 1);
}

BOOST_AUTO_TEST_CASE(further_functions) {
  const esp::Variable x(esp::ones({2})), whole(esp::ones({2}, esp::int64));
  for (const esp::Variable& made : {esp::rsqrt(x),
                                    esp::reciprocal(x),
                                    esp::cube(x),
                                    esp::exp2(x),
                                    esp::expm1(x),
                                    esp::log1p(x),
                                    esp::log2(x),
                                    esp::log10(x),
                                    esp::tan(x),
                                    esp::asin(x),
                                    esp::acos(x),
                                    esp::atan(x),
                                    esp::sinh(x),
                                    esp::cosh(x),
                                    esp::asinh(x),
                                    esp::acosh(x),
                                    esp::atanh(x),
                                    esp::erfc(x),
                                    esp::erfinv(x),
                                    esp::lgamma(x),
                                    esp::digamma(x),
                                    esp::ceil(x),
                                    esp::round(x),
                                    esp::trunc(x),
                                    esp::isnan(x),
                                    esp::isinf(x),
                                    esp::isfinite(x),
                                    esp::silu(x),
                                    esp::mish(x),
                                    esp::log_sigmoid(x),
                                    esp::softsign(x),
                                    esp::tanhshrink(x),
                                    esp::selu(x),
                                    esp::hardswish(x),
                                    esp::hardsigmoid(x),
                                    esp::bitwise_not(whole),
                                    esp::gelu(x, esp::GeluApproximation::tanh)})
    check_all(made, 1);
  const esp::Variable scalar(esp::tensor(0.5)), b(esp::ones({2}, esp::boolean));
  for (const esp::Variable& made :
       {esp::atan2(x, x), esp::hypot(x, x), esp::logaddexp(x, x), esp::xlogy(x, x), esp::fmod(x, x),
        esp::remainder(x, x), esp::floor_divide(x, x), esp::heaviside(x, x), esp::clamp_min(x, x),
        esp::clamp_max(x, x), esp::prelu(x, scalar), esp::softshrink(x), esp::hardshrink(x),
        esp::logical_xor(b, b), esp::bitwise_and(whole, whole), esp::bitwise_or(whole, whole),
        esp::bitwise_xor(whole, whole), esp::bitwise_left_shift(whole, whole),
        esp::bitwise_right_shift(whole, whole)})
    check_all(made, 2);
}

BOOST_AUTO_TEST_CASE(two_operands) {
  const esp::Variable x(esp::ones({2})), b(esp::ones({2}, esp::boolean));
  for (const esp::Variable& made :
       {esp::add(x, x), esp::subtract(x, x), esp::multiply(x, x), esp::divide(x, x), esp::power(x, x),
        esp::maximum(x, x), esp::minimum(x, x), esp::equal(x, x), esp::not_equal(x, x), esp::less(x, x),
        esp::less_equal(x, x), esp::greater(x, x), esp::greater_equal(x, x), esp::logical_and(b, b),
        esp::logical_or(b, b), esp::relu_gradient(x, x), esp::gelu_gradient(x, x)})
    check_all(made, 2);
}

BOOST_AUTO_TEST_CASE(three_operands) {
  const esp::Variable x(esp::ones({2})), b(esp::ones({2}, esp::boolean));
  check_all(esp::where(b, x, x), 3, [](size_t k) { return k > 0; });
}

BOOST_AUTO_TEST_CASE(between_element_types) {
  for (esp::DType from : dtypes)
    for (esp::DType to : dtypes)
      if (from != to) check_all(esp::cast(esp::Variable(esp::ones({2}, from)), to), 1);
}

BOOST_AUTO_TEST_CASE(many_operands) {
  const esp::Variable x(esp::ones({2}));
  const esp::Variable made = esp::add_all({x, x, x});
  for (size_t n : {3, 8, 9, 20})
    for (esp::DType dtype : {esp::float32, esp::float64, esp::int32, esp::int64, esp::float16})
      for (int64_t size : {1, 7, 1000})
        for (const auto& view : {+[](const esp::Tensor& t) { return t; },
                                 +[](const esp::Tensor& t) { return t.slice(0, 1, t.shape()[0] - 1); },
                                 +[](const esp::Tensor& t) {
                                   return with_axes(t, {1, 0});
                                 }}) {
          std::vector<esp::Tensor> inputs;
          for (size_t k = 0; k < n; ++k) inputs.push_back(view(numbers({3, size}, -9, 9, k).to(dtype)));
          for (int in_place : {-1, 0})
            check(made.node()->op(), inputs, in_place, "add_all of " + std::to_string(n),
                  esp::is_half(dtype) ? 4.0 * static_cast<double>(n) : 1);  // pairs may be added first
        }
}

BOOST_AUTO_TEST_CASE(one_number_everywhere) {
  const esp::Tensor x = esp::zeros({1});
  for (esp::DType dtype : dtypes)
    for (int64_t n : {0, 1, 3, 16, 17, 1001})
      for (int64_t begin : {0, 1, 3}) {
        esp::Tensor expected = esp::zeros({n + 4}, dtype), got = on_gpu(expected);
        esp::Tensor here = expected.slice(0, begin, begin + n), there = got.slice(0, begin, begin + n);
        const esp::Variable like(esp::zeros({2}, dtype));
        const esp::Variable made = esp::full_like(like, dtype == esp::boolean ? 1 : -7);
        esp::KernelCall on_cpu, on_device;
        on_cpu.inputs = on_device.inputs = {&x};
        on_cpu.outputs = {&here};
        on_device.outputs = {&there};
        run_on_cpu(made.node()->op(), on_cpu);
        esp::bind_kernel(made.node()->op(), on_device)->run({});
        esp::Tensor back({n + 4}, dtype);
        esp::copy_elements(got, back);
        BOOST_TEST(largest_difference(expected, back).by == 0,
                   n << " of " << esp::name(dtype) << " from " << begin);
      }
}

BOOST_AUTO_TEST_CASE(dropout_masks) {
  const esp::Variable made = esp::dropout(esp::Variable(esp::ones({2})), 0.3).node()->inputs[1].variable();
  for (esp::DType dtype : {esp::float32, esp::float64, esp::float16, esp::bfloat16})
    for (int64_t n : {0, 1, 4, 1023, 5000})
      for (int64_t begin : {0, 1}) {
        const esp::RandomStream random{0x1234567890abcdef, 77};
        esp::Tensor expected = esp::full({n + 1}, -1, dtype), got = on_gpu(expected),
                    based = on_gpu(expected);
        esp::Tensor here = expected.slice(0, begin, begin + n);
        esp::KernelCall call;
        call.inputs = {&here};
        call.outputs = {&here};
        call.random = random;
        run_on_cpu(made.node()->op(), call);

        esp::Tensor there = got.slice(0, begin, begin + n);
        call.outputs = {&there};
        esp::bind_kernel(made.node()->op(), call)->run(random);
        // The same numbers, with the base of the stream in device memory.
        const esp::Tensor base =
            on_gpu(esp::tensor({static_cast<int64_t>(random.seed), static_cast<int64_t>(random.stream) - 5}));
        esp::Tensor there_too = based.slice(0, begin, begin + n);
        call.outputs = {&there_too};
        call.random_base = static_cast<const uint64_t*>(base.address());
        esp::bind_kernel(made.node()->op(), call)->run({0, 5});
        for (const esp::Tensor& result : {got, based}) {
          esp::Tensor back({n + 1}, dtype);
          esp::copy_elements(result, back);
          BOOST_TEST(largest_difference(expected, back).by == 0,
                     n << " of " << esp::name(dtype) << " from " << begin);
        }
      }
}

/// A pointwise op with an arbitrary functor name.
struct Unheard : esp::Op {
  explicit Unheard(std::string_view functor) : Op({.kind = esp::OpKind::pointwise}), functor_(functor) {}
  std::string_view name() const override { return "unheard"; }
  esp::Specs infer(const esp::InputSpecs& in) const override { return {*in[0]}; }
  esp::ElementLoops loops(const esp::InputSpecs&) const override { return {.functor = functor_}; }
  std::string_view functor_;
};

BOOST_AUTO_TEST_CASE(what_there_is_no_kernel_for) {
  const esp::Tensor x = on_gpu(esp::ones({2}, esp::boolean));
  esp::Tensor out = on_gpu(esp::ones({2}, esp::boolean));
  esp::KernelCall call;
  call.inputs = {&x};
  call.outputs = {&out};
  BOOST_CHECK_THROW(esp::bind_kernel(Unheard("scalar::Exp"), call), esp::UnsupportedError);
  BOOST_CHECK_THROW(esp::bind_kernel(Unheard("scalar::Unheard"), call), esp::UnsupportedError);
  BOOST_CHECK_EXCEPTION(
      esp::bind_kernel(Unheard(""), call), esp::UnsupportedError, [](const esp::UnsupportedError& error) {
        return std::string(error.what()).find("unheard is not supported for bool on cuda") == 0;
      });
}

BOOST_AUTO_TEST_SUITE_END()
