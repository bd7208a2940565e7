// Functions of reals, called with what they do not take: where one throws, the error has the line of the
// call.
#include <boost/test/unit_test.hpp>

#include <functional>

#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Operand;
using esp::Variable;

namespace {

using OfOne = Variable (*)(const Operand&);
const std::pair<const char*, OfOne> of_one_operand[] = {
    {"abs", esp::abs},
    {"acos", esp::acos},
    {"acosh", esp::acosh},
    {"argmax", [](const Operand& x) { return esp::argmax(x); }},
    {"argmin", [](const Operand& x) { return esp::argmin(x); }},
    {"asin", esp::asin},
    {"asinh", esp::asinh},
    {"atan", esp::atan},
    {"atanh", esp::atanh},
    {"ceil", esp::ceil},
    {"celu", [](const Operand& x) { return esp::celu(x); }},
    {"celu of 0.7", [](const Operand& x) { return esp::celu(x, 0.7); }},
    {"clamp", [](const Operand& x) { return esp::clamp(x, -0.5, 0.5); }},
    {"cos", esp::cos},
    {"cosh", esp::cosh},
    {"cov", [](const Operand& x) { return esp::cov(x); }},
    {"cube", esp::cube},
    {"cummax", [](const Operand& x) { return esp::cummax(x).values; }},
    {"cummin", [](const Operand& x) { return esp::cummin(x).values; }},
    {"cumprod", [](const Operand& x) { return esp::cumprod(x); }},
    {"cumsum", [](const Operand& x) { return esp::cumsum(x); }},
    {"det", esp::det},
    {"diff", [](const Operand& x) { return esp::diff(x); }},
    {"digamma", esp::digamma},
    {"eigvalsh", esp::eigvalsh},
    {"elu", [](const Operand& x) { return esp::elu(x); }},
    {"erf", esp::erf},
    {"erfc", esp::erfc},
    {"erfinv", esp::erfinv},
    {"exp", esp::exp},
    {"exp2", esp::exp2},
    {"expm1", esp::expm1},
    {"floor", esp::floor},
    {"frac", esp::frac},
    {"gelu", [](const Operand& x) { return esp::gelu(x); }},
    {"gelu by tanh", [](const Operand& x) { return esp::gelu(x, esp::GeluApproximation::tanh); }},
    {"glu", [](const Operand& x) { return esp::glu(x); }},
    {"hardmax", [](const Operand& x) { return esp::hardmax(x); }},
    {"hardshrink", [](const Operand& x) { return esp::hardshrink(x); }},
    {"hardsigmoid", esp::hardsigmoid},
    {"hardswish", esp::hardswish},
    {"hardtanh", [](const Operand& x) { return esp::hardtanh(x); }},
    {"histogram", [](const Operand& x) { return esp::histogram(x, 3, 0, 1); }},
    {"inverse", esp::inverse},
    {"isfinite", esp::isfinite},
    {"isinf", esp::isinf},
    {"isnan", esp::isnan},
    {"isneginf", esp::isneginf},
    {"isposinf", esp::isposinf},
    {"kthvalue", [](const Operand& x) { return esp::kthvalue(x, 1).values; }},
    {"leaky_relu", [](const Operand& x) { return esp::leaky_relu(x); }},
    {"lgamma", esp::lgamma},
    {"log", esp::log},
    {"log10", esp::log10},
    {"log1p", esp::log1p},
    {"log2", esp::log2},
    {"log_sigmoid", esp::log_sigmoid},
    {"log_softmax", [](const Operand& x) { return esp::log_softmax(x); }},
    {"logcumsumexp", [](const Operand& x) { return esp::logcumsumexp(x); }},
    {"logical_not", esp::logical_not},
    {"logsumexp", [](const Operand& x) { return esp::logsumexp(x, -1); }},
    {"mean", [](const Operand& x) { return esp::mean(x); }},
    {"median", [](const Operand& x) { return esp::median(x); }},
    {"mish", esp::mish},
    {"nan_to_num", [](const Operand& x) { return esp::nan_to_num(x); }},
    {"nanmean", [](const Operand& x) { return esp::nanmean(x); }},
    {"nanquantile", [](const Operand& x) { return esp::nanquantile(x, 0.3); }},
    {"nansum", [](const Operand& x) { return esp::nansum(x); }},
    {"negative", esp::negative},
    {"norm", [](const Operand& x) { return esp::norm(x); }},
    {"norm of order 3", [](const Operand& x) { return esp::norm(x, {}, {.p = 3}); }},
    {"normalize", [](const Operand& x) { return esp::normalize(x); }},
    {"pdist", [](const Operand& x) { return esp::pdist(x); }},
    {"pinv", [](const Operand& x) { return esp::pinv(x); }},
    {"polygamma", [](const Operand& x) { return esp::polygamma(1, x); }},
    {"prod", [](const Operand& x) { return esp::prod(x); }},
    {"quantile", [](const Operand& x) { return esp::quantile(x, 0.3); }},
    {"reciprocal", esp::reciprocal},
    {"relu", esp::relu},
    {"relu6", esp::relu6},
    {"round", esp::round},
    {"rrelu", [](const Operand& x) { return esp::rrelu(x); }},
    {"rsqrt", esp::rsqrt},
    {"selu", esp::selu},
    {"sigmoid", esp::sigmoid},
    {"sign", esp::sign},
    {"silu", esp::silu},
    {"sin", esp::sin},
    {"sinc", esp::sinc},
    {"sinh", esp::sinh},
    {"slogdet", [](const Operand& x) { return esp::slogdet(x).sign; }},
    {"softmax", [](const Operand& x) { return esp::softmax(x); }},
    {"softplus", [](const Operand& x) { return esp::softplus(x); }},
    {"softshrink", [](const Operand& x) { return esp::softshrink(x); }},
    {"softsign", esp::softsign},
    {"sort", [](const Operand& x) { return esp::sort(x).values; }},
    {"sparsemax", [](const Operand& x) { return esp::sparsemax(x); }},
    {"sqrt", esp::sqrt},
    {"square", esp::square},
    {"mean_variance_normalization", [](const Operand& x) { return esp::mean_variance_normalization(x, 0); }},
    {"std", [](const Operand& x) { return esp::std(x); }},
    {"sum", [](const Operand& x) { return esp::sum(x); }},
    {"svdvals", esp::svdvals},
    {"tan", esp::tan},
    {"tanh", esp::tanh},
    {"tanhshrink", esp::tanhshrink},
    {"threshold", [](const Operand& x) { return esp::threshold(x, 0.1, 0.7); }},
    {"topk", [](const Operand& x) { return esp::topk(x, 1).values; }},
    {"trapezoid", [](const Operand& x) { return esp::trapezoid(x); }},
    {"trunc", esp::trunc},
    {"var", [](const Operand& x) { return esp::var(x); }},
};

using OfTwo = Variable (*)(const Operand&, const Operand&);
const std::pair<const char*, OfTwo> of_two_operands[] = {
    {"add", esp::add},
    {"atan2", esp::atan2},
    {"clamp_max", esp::clamp_max},
    {"clamp_min", esp::clamp_min},
    {"divide", esp::divide},
    {"equal", esp::equal},
    {"floor_divide", esp::floor_divide},
    {"fmod", esp::fmod},
    {"greater", esp::greater},
    {"greater_equal", esp::greater_equal},
    {"heaviside", esp::heaviside},
    {"hypot", esp::hypot},
    {"less", esp::less},
    {"less_equal", esp::less_equal},
    {"logaddexp", esp::logaddexp},
    {"logical_and", esp::logical_and},
    {"logical_or", esp::logical_or},
    {"maximum", esp::maximum},
    {"minimum", esp::minimum},
    {"multiply", esp::multiply},
    {"not_equal", esp::not_equal},
    {"power", esp::power},
    {"remainder", esp::remainder},
    {"subtract", esp::subtract},
    {"xlogy", esp::xlogy},
    {"prelu", esp::prelu},
    {"mean_squared_error", esp::mean_squared_error},
    {"smooth_l1_loss", [](const Operand& a, const Operand& b) { return esp::smooth_l1_loss(a, b); }},
    {"huber_loss", [](const Operand& a, const Operand& b) { return esp::huber_loss(a, b); }},
    {"binary_cross_entropy",
     [](const Operand& a, const Operand& b) { return esp::binary_cross_entropy(a, b); }},
    {"lerp", [](const Operand& a, const Operand& b) { return esp::lerp(a, b, 0.3); }},
    {"cosine_similarity", [](const Operand& a, const Operand& b) { return esp::cosine_similarity(a, b); }},
    {"cdist", [](const Operand& a, const Operand& b) { return esp::cdist(a, b); }},
    {"cross", [](const Operand& a, const Operand& b) { return esp::cross(a, b); }},
    {"dot", esp::dot},
    {"inner", esp::inner},
    {"kron", esp::kron},
    {"matmul", esp::matmul},
    {"outer", esp::outer},
    {"solve", esp::solve},
    {"lstsq", esp::lstsq},
    {"vecdot", [](const Operand& a, const Operand& b) { return esp::vecdot(a, b); }},
};

/// What is thrown, if anything, is an Error with a line of this file.
void check(const std::string& name, const std::function<void()>& call) {
  try {
    call();
  } catch (const esp::Error& e) {
    const std::string text = e.what();
    BOOST_TEST(text.find("function_lines_test.cpp:") != std::string::npos, name << ": " << text);
  }
}

constexpr esp::DType others[] = {esp::int64, esp::boolean, esp::uint8};

}  // namespace

BOOST_AUTO_TEST_SUITE(function_lines)

BOOST_AUTO_TEST_CASE(one_operand) {
  for (const esp::DType dtype : others) {
    const Variable x = esp::ones({4, 4}, dtype);
    for (const auto& [name, f] : of_one_operand) check(name, [&f = f, &x] { f(x); });
  }
}

BOOST_AUTO_TEST_CASE(two_operands) {
  const Variable real = esp::ones({4, 4});
  for (const esp::DType dtype : others) {
    const Variable x = esp::ones({4, 4}, dtype);
    for (const auto& [name, f] : of_two_operands) {
      check(name, [&f = f, &x] { f(x, x); });
      check(name, [&f = f, &x] { f(x, 0.5); });
      check(name, [&f = f, &x] { f(0.5, x); });
      check(name, [&f = f, &x, &real] { f(x, real); });
      check(name, [&f = f, &x, &real] { f(real, x); });
    }
  }
}

BOOST_AUTO_TEST_CASE(the_element_type_is_named) {
  const Variable x = esp::ones({3}, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::leaky_relu(x), esp::TypeError,
                        says({"leaky_relu: takes real numbers, not int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::elu(x, 2), esp::TypeError, says({"elu: takes real numbers", here()}));
  BOOST_CHECK_EXCEPTION(esp::hypot(0.5, x), esp::TypeError, says({"hypot: takes real numbers", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
