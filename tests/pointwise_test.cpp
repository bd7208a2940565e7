// Elementwise ops: the table, and cases outside it.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <initializer_list>
#include <limits>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double NaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> list(const esp::Variable& v) {
  const esp::Tensor plain = v.value().contiguous_copy();
  return {plain.span<T>().begin(), plain.span<T>().end()};
}

struct Unary {
  const char* name;
  esp::Variable (*op)(const esp::Operand&);
  double (*f)(double);
  double low = -2, high = 2;
  int order = 2;
};

const Unary unary[] = {
    {"negative", esp::negative, [](double x) { return -x; }},
    {"abs", esp::abs, [](double x) { return x < 0 ? -x : x; }},
    {"sign, flat", [](const esp::Operand& x) { return esp::sign(x) + x * 0; },
     [](double x) { return static_cast<double>((x > 0) - (x < 0)); }},
    {"square", esp::square, [](double x) { return x * x; }},
    {"sqrt", esp::sqrt, [](double x) { return std::sqrt(x); }, 0.3, 4},
    {"exp", esp::exp, [](double x) { return std::exp(x); }},
    {"log", esp::log, [](double x) { return std::log(x); }, 0.3, 4},
    {"sin", esp::sin, [](double x) { return std::sin(x); }},
    {"cos", esp::cos, [](double x) { return std::cos(x); }},
    {"floor, flat", [](const esp::Operand& x) { return esp::floor(x) + x * 0; },
     [](double x) { return std::floor(x); }},
    {"tanh", esp::tanh, [](double x) { return std::tanh(x); }},
    {"sigmoid", esp::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"erf", esp::erf, [](double x) { return std::erf(x); }},
    {"gelu", esp::gelu, [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"relu", esp::relu, [](double x) { return x > 0 ? x : 0; }},
    {"-x", [](const esp::Operand& x) { return -x; }, [](double x) { return -x; }},
    {"zeros_like", [](const esp::Operand& x) { return esp::zeros_like(x) + x * 0; },
     [](double) { return 0.0; }},
    {"ones_like", [](const esp::Operand& x) { return esp::ones_like(x); }, [](double) { return 1.0; }, -2, 2,
     0},
    {"full_like", [](const esp::Operand& x) { return esp::full_like(x, 0.25); }, [](double) { return 0.25; },
     -2, 2, 0},
};

struct Binary {
  const char* name;
  esp::Variable (*op)(const esp::Operand&, const esp::Operand&);
  double (*f)(double, double);
  double low = -2, high = 2;
  int order = 2;
};

const Binary binary[] = {
    {"add", esp::add, [](double a, double b) { return a + b; }},
    {"subtract", esp::subtract, [](double a, double b) { return a - b; }},
    {"multiply", esp::multiply, [](double a, double b) { return a * b; }},
    {"divide", esp::divide, [](double a, double b) { return a / b; }, 0.5, 3},
    {"power", esp::power, [](double a, double b) { return std::pow(a, b); }, 0.5, 3},
    {"maximum", esp::maximum, [](double a, double b) { return a > b ? a : b; }},
    {"minimum", esp::minimum, [](double a, double b) { return a < b ? a : b; }},
    {"a + b", [](const esp::Operand& a, const esp::Operand& b) { return a + b; },
     [](double a, double b) { return a + b; }},
    {"a - b", [](const esp::Operand& a, const esp::Operand& b) { return a - b; },
     [](double a, double b) { return a - b; }},
    {"a * b", [](const esp::Operand& a, const esp::Operand& b) { return a * b; },
     [](double a, double b) { return a * b; }},
    {"a / b", [](const esp::Operand& a, const esp::Operand& b) { return a / b; },
     [](double a, double b) { return a / b; }, 0.5, 3},
    {"equal", esp::equal, [](double a, double b) { return double(a == b); }, -2, 2, 0},
    {"not_equal", esp::not_equal, [](double a, double b) { return double(a != b); }, -2, 2, 0},
    {"less", esp::less, [](double a, double b) { return double(a < b); }, -2, 2, 0},
    {"less_equal", esp::less_equal, [](double a, double b) { return double(a <= b); }, -2, 2, 0},
    {"greater", esp::greater, [](double a, double b) { return double(a > b); }, -2, 2, 0},
    {"greater_equal", esp::greater_equal, [](double a, double b) { return double(a >= b); }, -2, 2, 0},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(pointwise)

BOOST_AUTO_TEST_CASE(one_operand) {
  for (const Unary& u : unary)
    for (const esp::Shape& shape : {esp::Shape{3, 7}, {40}, {}, {0}, {2, 0, 3}})
      check_op({.name = u.name,
                .op = [&](const Variables& x) { return u.op(x[0]); },
                .inputs = {numbers(shape, u.low, u.high)},
                .reference = elementwise(u.f),
                .order = u.order});
}

/// Temporaries pass their buffers on to the result, unless a gradient reads them.
BOOST_AUTO_TEST_CASE(operands_that_end) {
  for (const Unary& u : unary)
    check_op({.name = u.name,
              .op = [&](const Variables& x) { return u.op(-(-x[0])); },
              .inputs = {numbers({3, 7}, u.low, u.high)},
              .reference = elementwise(u.f),
              .order = u.order});
  for (const Binary& b : binary)
    check_op({.name = b.name,
              .op = [&](const Variables& x) { return b.op(-(-x[0]), -(-x[1])); },
              .inputs = {numbers({3, 7}, b.low, b.high), numbers({3, 7}, b.low, b.high, 1)},
              .reference = elementwise(b.f),
              .order = b.order});
}

BOOST_AUTO_TEST_CASE(two_operands_and_broadcasting) {
  const std::pair<esp::Shape, esp::Shape> shapes[] = {
      {{2, 19}, {2, 19}}, {{2, 3}, {3}},       {{3}, {2, 3}},    {{2, 1, 3}, {4, 1}}, {{}, {2, 3}},
      {{2, 3}, {}},       {{2, 3}, {1, 1, 1}}, {{}, {}},         {{0}, {1}},          {{2, 0}, {2, 1}},
      {{0, 3}, {}},       {{1}, {33}},         {{1, 33}, {2, 1}}};
  for (const Binary& b : binary)
    for (const auto& [first, second] : shapes)
      check_op({.name = b.name,
                .op = [&](const Variables& x) { return b.op(x[0], x[1]); },
                .inputs = {numbers(first, b.low, b.high), numbers(second, b.low, b.high, 1)},
                .reference = elementwise(b.f),
                .order = b.order});
}

BOOST_AUTO_TEST_CASE(one_variable_as_both_operands) {
  for (const Binary& b : binary)
    if (b.order && std::string(b.name) != "maximum" && std::string(b.name) != "minimum")
      check_op({.name = b.name,
                .op = [&](const Variables& x) { return b.op(x[0], x[0]); },
                .inputs = {numbers({5}, b.low, b.high)},
                .reference =
                    [&](const std::vector<Array>& in) {
                      return elementwise(b.f)({in[0], in[0]});
                    }});
}

BOOST_AUTO_TEST_CASE(choices) {
  const esp::Tensor flags = esp::tensor({{true, false, true}, {false, false, true}});
  const Reference pick = [](const std::vector<Array>& in) {
    return Array(both(both(in[0].shape, in[1].shape), in[2].shape),
                 [&](const Index& i) { return in[0](i) != 0 ? in[1](i) : in[2](i); });
  };
  for (const auto& [a, b] :
       {std::pair<esp::Shape, esp::Shape>{{2, 3}, {2, 3}}, {{3}, {2, 1}}, {{}, {4, 2, 3}}})
    check_op({.name = "where",
              .op = [](const Variables& x) { return esp::where(x[0], x[1], x[2]); },
              .inputs = {flags, numbers(a), numbers(b, -2, 2, 1)},
              .reference = pick});
  check_op({.name = "where",
            .op = [](const Variables& x) { return esp::where(x[0], x[1], -3); },
            .inputs = {flags, numbers({2, 3})},
            .reference =
                [&](const std::vector<Array>& in) {
                  return pick({in[0], in[1], Array(esp::tensor(-3))});
                }});
  check_op({.name = "relu_gradient",
            .op = [](const Variables& x) { return esp::relu_gradient(x[0], x[1]); },
            .inputs = {numbers({3, 7}), numbers({3, 7}, -2, 2, 1)},
            .reference = elementwise([](double g, double y) { return y > 0 ? g : 0; })});
  check_op({.name = "gelu_gradient",
            .op = [](const Variables& x) { return esp::gelu_gradient(x[0], x[1]); },
            .inputs = {numbers({3, 7}), numbers({3, 7}, -4, 4, 1)},
            .reference = elementwise([](double g, double x) {
              const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
              return g * ((1 + std::erf(x / std::sqrt(2.0))) / 2 + x * density);
            })});
  check_op({.name = "add_all",
            .op =
                [](const Variables& x) {
                  return esp::add_all({x[0], x[1], x[0], x[2]});
                },
            .inputs = {numbers({3, 7}), numbers({3, 7}, -2, 2, 1), numbers({3, 7}, -2, 2, 2)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array(in[0].shape,
                               [&](const Index& i) { return 2 * in[0](i) + in[1](i) + in[2](i); });
                },
            .roundings = 3});
}

BOOST_AUTO_TEST_CASE(logic) {
  const esp::Tensor a = esp::tensor({{true, false}, {true, false}}), b = esp::tensor({true, false});
  check_op({.name = "logical_and",
            .op = [](const Variables& x) { return esp::logical_and(x[0], x[1]); },
            .inputs = {a, esp::transpose(a).value()},
            .reference = elementwise([](double x, double y) { return x * y; })});
  check_op({.name = "logical_or",
            .op = [](const Variables& x) { return esp::logical_or(x[0], x[1]); },
            .inputs = {a, b},
            .reference = elementwise([](double x, double y) { return std::max(x, y); })});
  check_op({.name = "logical_not",
            .op = [](const Variables& x) { return esp::logical_not(x[0]); },
            .inputs = {a},
            .reference = elementwise([](double x) { return 1 - x; })});
  BOOST_TEST(list<bool>(esp::equal(a, true)) == (std::vector<bool>{true, false, true, false}));
  BOOST_CHECK_EXCEPTION(esp::logical_and(a, esp::tensor({1, 0})), esp::TypeError,
                        says({"logical_and", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::logical_not(esp::tensor(1.0f)), esp::TypeError,
                        says({"logical_not", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::less(a, b), esp::TypeError, says({"less", "bool", here()}));
  BOOST_CHECK_EXCEPTION(a + b, esp::TypeError, says({"add", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::where(esp::tensor({1, 0}), 1.0, 0.0), esp::TypeError,
                        says({"where", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(casts) {
  for (esp::DType to : {esp::float32, esp::float64, esp::float16, esp::bfloat16})
    check_op({.name = "cast",
              .op = [=](const Variables& x) { return esp::cast(esp::cast(x[0], to), esp::float64); },
              .inputs = {esp::tensor({{-1.5, 0.25, 2.0}}, esp::float64)},
              .reference = elementwise([](double x) { return x; }),
              .order = to == esp::float64 ? 2 : 0,
              .roundings = 0});  // half_test.cpp tests all of these
  const esp::Variable x = esp::tensor({-1.7, 0.0, 1e20, -inf, NaN}, esp::float64);
  BOOST_TEST(list<int32_t>(esp::cast(x, esp::int32)) ==
             (std::vector<int32_t>{-1, 0, INT32_MAX, INT32_MIN, 0}));
  BOOST_TEST(list<int64_t>(esp::cast(x, esp::int64)) ==
             (std::vector<int64_t>{-1, 0, INT64_MAX, INT64_MIN, 0}));
  BOOST_TEST(list<bool>(esp::cast(x, esp::boolean)) == (std::vector<bool>{true, false, true, true, true}));
  BOOST_TEST(esp::cast(esp::tensor(true), esp::float32).item() == 1);
  BOOST_TEST(esp::cast(x, esp::float64).node() == x.node());  // the same node

  // A gradient has the dtype of the operand, and does not pass integers.
  const esp::Variable v = esp::variable({1.5f, 2.5f});
  const esp::Variable wide = esp::square(esp::cast(v, esp::float64));
  BOOST_TEST(wide.gradient(v).dtype() == esp::float32);
  BOOST_TEST(list<float>(wide.gradient(v)) == (std::vector<float>{3, 5}));
  const esp::Variable whole = esp::cast(esp::cast(v, esp::int64), esp::float32) * 3;
  BOOST_TEST(list<float>(whole.gradient(v)) == (std::vector<float>{0, 0}));
}

BOOST_AUTO_TEST_CASE(integers) {
  const esp::Variable top = esp::tensor({INT64_MAX, INT64_MIN}), one = esp::tensor({1, -1});
  BOOST_TEST(list<int64_t>(top + one) == (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
  BOOST_TEST(list<int64_t>(top - one) == (std::vector<int64_t>{INT64_MAX - 1, INT64_MIN + 1}));
  BOOST_TEST(list<int64_t>(top * 2) == (std::vector<int64_t>{-2, 0}));
  BOOST_TEST(list<int64_t>(-top) == (std::vector<int64_t>{-INT64_MAX, INT64_MIN}));
  BOOST_TEST(list<int64_t>(esp::abs(top)) == (std::vector<int64_t>{INT64_MAX, INT64_MIN}));
  BOOST_TEST(list<int64_t>(esp::square(esp::tensor({3, -4}))) == (std::vector<int64_t>{9, 16}));
  BOOST_TEST(list<int64_t>(esp::sign(top)) == (std::vector<int64_t>{1, -1}));
  BOOST_TEST(list<int64_t>(esp::floor(top)) == list<int64_t>(top));
  BOOST_TEST(list<int64_t>(esp::maximum(top, 5)) == (std::vector<int64_t>{INT64_MAX, 5}));
  // Beyond 2^53, where a conversion to double would lose the difference.
  const int64_t big = (int64_t{1} << 60) + 1;
  BOOST_TEST(list<bool>(esp::equal(esp::tensor({big}), esp::tensor({big - 1}))) == std::vector<bool>{false});
  BOOST_TEST(list<int64_t>(esp::tensor({big}) + esp::Variable(esp::tensor({1}))) ==
             std::vector<int64_t>{big + 1});
  const esp::Variable small = esp::tensor({INT32_MAX, 7}, esp::int32);
  BOOST_TEST(list<int32_t>(small + 1) == (std::vector<int32_t>{INT32_MIN, 8}));

  using Function = esp::Variable (*)(const esp::Operand&);
  for (const Function op :
       std::initializer_list<Function>{esp::sqrt, esp::exp, esp::log, esp::sin, esp::cos, esp::tanh,
                                       esp::sigmoid, esp::relu, esp::erf, esp::gelu})
    BOOST_CHECK_EXCEPTION(op(top), esp::TypeError, says({"int64", "real numbers", "[2]"}));
  BOOST_CHECK_EXCEPTION(top / one, esp::TypeError, says({"divide", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::power(top, 2), esp::TypeError, says({"power", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(numbers_take_the_dtype_they_meet) {
  const esp::Variable f = esp::tensor({1.0f}), d = esp::tensor({1.0}, esp::float64), i = esp::tensor({1});
  BOOST_TEST((f + 0.1).dtype() == esp::float32);
  BOOST_TEST((0.1 + f).item() == static_cast<double>(1.0f + 0.1f));
  BOOST_TEST((0.1 + d).item() == 1.1);
  BOOST_TEST((d * 3).dtype() == esp::float64);
  BOOST_TEST((i + 2).dtype() == esp::int64);
  BOOST_TEST((2 - esp::cast(i, esp::int32)).dtype() == esp::int32);
  BOOST_TEST((2.0 * i).dtype() == esp::int64);  // 2.0 is a whole number
  BOOST_TEST(esp::add(1.5, 2.5).dtype() == esp::float32);
  BOOST_CHECK_EXCEPTION(i * 0.5, esp::TypeError, says({"0.5", "int64", here()}));
  BOOST_CHECK_EXCEPTION(0.5 + i, esp::TypeError, says({"0.5", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::less(i, 0.5), esp::TypeError, says({"0.5", "int64", here()}));
  BOOST_CHECK_THROW(i * NaN, esp::TypeError);
  BOOST_CHECK_THROW(esp::cast(i, esp::int32) + (int64_t{1} << 40), esp::TypeError);
  BOOST_CHECK_EXCEPTION(esp::full_like(i, 0.5), esp::TypeError, says({"0.5", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(full_like_holds_integers_exactly) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), odd = (int64_t{1} << 53) + 1;
  const esp::Variable x = esp::placeholder("x", {-1, 2}, esp::int64);
  for (const int64_t value : {odd, -odd, most, std::numeric_limits<int64_t>::min(), most - 1, int64_t{7}}) {
    const esp::Tensor like = esp::zeros({3, 2}, esp::int64),
                      made = esp::full_like(like, value).value().contiguous_copy();
    for (const int64_t element : made.span<int64_t>()) BOOST_TEST(element == value);
    const esp::Executor executor = (esp::full_like(x, value) + x * int64_t{0}).get_executor();
    for (const int64_t rows : {3, 1}) {
      const esp::Tensor planned = executor.run({{"x", esp::ones({rows, 2}, esp::int64)}}).contiguous_copy();
      BOOST_TEST(planned.shape() == esp::Shape({rows, 2}));
      for (const int64_t element : planned.span<int64_t>()) BOOST_TEST(element == value);
    }
  }
  const esp::Variable i = esp::tensor({1}), f = esp::tensor({1.0f});
  BOOST_TEST(esp::full_like(f, odd).item() == 0x1p53);
  BOOST_TEST(esp::full_like(f, true).item() == 1);
  const esp::Variable scalar = esp::variable(esp::tensor(2.5f)),
                      filled = esp::full_like(esp::ones({2, 3}), scalar);
  BOOST_TEST(filled.shape() == esp::Shape({2, 3}));
  BOOST_TEST(esp::sum(filled).item() == 15);
  BOOST_TEST(esp::sum(filled).gradient(scalar).item() == 6);
  BOOST_CHECK_EXCEPTION(esp::full_like(f, f), esp::ShapeError, says({"full_like", "[1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::full_like(i, scalar), esp::TypeError, says({"full_like", "float32", here()}));
  BOOST_TEST(esp::full_like(f, 0.5f).item() == 0.5);
  BOOST_CHECK_EXCEPTION(esp::full_like(esp::cast(i, esp::int32), odd), esp::TypeError,
                        says({"full_like", "int32", here()}));
  BOOST_CHECK_EXCEPTION(esp::full_like(i, std::numeric_limits<uint64_t>::max()), esp::TypeError,
                        says({"full_like", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(nan_and_infinity) {
  const esp::Variable x = esp::tensor({NaN, inf, -inf, -0.0}, esp::float64);
  const auto is = [&](const esp::Variable& v, std::vector<double> wanted) {
    return difference(esp::tensor_from(wanted, {4}), v.value()) == 0;
  };
  BOOST_TEST(is(esp::relu(x), {NaN, inf, 0, 0}));
  BOOST_TEST(is(esp::maximum(x, 0.0), {NaN, inf, 0, 0}));
  BOOST_TEST(is(esp::maximum(0.0, x), {NaN, inf, 0, 0}));
  BOOST_TEST(is(esp::minimum(x, 0.0), {NaN, 0, -inf, 0}));
  BOOST_TEST(is(esp::minimum(0.0, x), {NaN, 0, -inf, 0}));
  BOOST_TEST(is(esp::abs(x), {NaN, inf, inf, 0}));
  BOOST_TEST(is(esp::tanh(x), {NaN, 1, -1, 0}));
  BOOST_TEST(is(esp::sigmoid(x), {NaN, 1, 0, 0.5}));
  BOOST_TEST(is(esp::erf(x), {NaN, 1, -1, 0}));
  BOOST_TEST(is(esp::gelu(x), {NaN, inf, 0, 0}));
  BOOST_TEST(is(esp::gelu_gradient(esp::ones_like(x), x), {NaN, 1, 0, 0.5}));
  BOOST_TEST(is(esp::exp(x), {NaN, inf, 0, 1}));
  BOOST_TEST(is(esp::log(x), {NaN, inf, NaN, -inf}));
  BOOST_TEST(is(esp::sqrt(x), {NaN, inf, NaN, 0}));
  BOOST_TEST(is(1.0 / x, {NaN, 0, 0, -inf}));
  BOOST_TEST(list<bool>(esp::equal(x, x)) == (std::vector<bool>{false, true, true, true}));
  BOOST_TEST(list<bool>(esp::not_equal(x, x)) == (std::vector<bool>{true, false, false, false}));
  BOOST_TEST(list<bool>(esp::less_equal(x, 0.0)) == (std::vector<bool>{false, false, true, true}));
  // Enough elements for the vector code, at a position inside whole vectors.
  esp::Tensor many = esp::zeros({100});
  many.at<float>({50}) = NAN;
  for (const auto& y : {esp::relu(many), esp::maximum(many, 1), esp::exp(many), esp::tanh(many)}) {
    BOOST_TEST(std::isnan(y.value().at<float>({50})));
    BOOST_TEST(!std::isnan(y.value().at<float>({49})));
  }
}

BOOST_AUTO_TEST_CASE(threads_share_large_strided_operands) {
  const int before = esp::num_threads();
  // Several outer axes: the second thread begins in the middle of all of them.
  const esp::Variable turned = esp::transpose(numbers({50, 41, 64}), {2, 1, 0}),
                      middle = numbers({1, 41, 1}, -2, 2, 1);
  esp::set_num_threads(1);
  const esp::Tensor by_one = (turned + middle).value();
  esp::set_num_threads(3);
  BOOST_TEST(difference((turned + middle).value(), by_one) == 0);
  const esp::Tensor column = numbers({100'000, 3}).slice(1, 1, 2), plain = column.clone();
  BOOST_TEST(difference(esp::abs(column).value(), esp::abs(plain).value()) == 0);
  BOOST_TEST(difference((esp::Variable(column) + plain).value(), (esp::Variable(plain) * 2.0).value()) == 0);
  esp::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(gradients_where_there_is_a_corner) {
  const esp::Variable x = esp::variable(esp::tensor({-1.0, 0.0, 2.0}, esp::float64));
  BOOST_TEST(list<double>(esp::relu(x).gradient(x)) == (std::vector<double>{0, 0, 1}));
  BOOST_TEST(list<double>(esp::abs(x).gradient(x)) == (std::vector<double>{-1, 0, 1}));
  BOOST_TEST(list<double>(esp::maximum(x, 0.0).gradient(x)) ==
             (std::vector<double>{0, 0.5, 1}));  // ties divide the gradient
  BOOST_TEST(list<double>(esp::minimum(x, x * 1.0).gradient(x)) == (std::vector<double>{1, 1, 1}));
  BOOST_TEST(list<double>(esp::power(x, 2).gradient(x)) == (std::vector<double>{-2, 0, 4}));
  const esp::Variable polynomial = esp::power(x, esp::tensor({0.0, 0.0, 1.0}, esp::float64));
  BOOST_TEST(list<double>(polynomial.gradient(x)) == (std::vector<double>{0, 0, 1}));
  const esp::Variable line = esp::power(x, 1);
  BOOST_TEST(list<double>(line.gradient(x).gradient(x)) == (std::vector<double>{0, 0, 0}));
  const esp::Variable y = esp::variable(esp::tensor(3.0, esp::float64));
  BOOST_TEST(esp::power(0.0, y).gradient(y).item() == 0);
}

BOOST_AUTO_TEST_CASE(gradients_of_powers_at_zero_and_infinity) {
  const auto slopes = [](double base, double exponent, bool both) {
    const esp::Variable x = esp::variable(esp::tensor(base, esp::float64)),
                        y = esp::variable(esp::tensor(exponent, esp::float64));
    const esp::Variable z = both ? esp::power(x, y) : esp::power(x, exponent);
    return std::pair(z.gradient(x).item(), both ? z.gradient(y).item() : 0);
  };
  for (const bool both : {false, true}) {
    for (const double x : {0.0, -0.0, 2.0, -2.0, double(INFINITY), -double(INFINITY), double(NAN)})
      BOOST_TEST(slopes(x, 0, both).first == 0, x << " to the power of 0, " << both);
    BOOST_TEST(slopes(0, 1, both).first == 1);
    BOOST_TEST(slopes(0, 2, both).first == 0);
    BOOST_TEST(slopes(INFINITY, 1, both).first == 1);
  }
  BOOST_TEST(slopes(0, 0, true).second == 0);
  BOOST_TEST(slopes(0, 2, true).second == 0);
  BOOST_TEST(slopes(0, -1, true).second == -INFINITY);
  BOOST_TEST(slopes(-2, 2, true).second == 0);
  BOOST_TEST(std::abs(slopes(2, 3, true).second - 8 * std::log(2)) < 1e-14);
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_shapes_and_line) {
  const esp::Variable a = esp::ones({2, 3}), b = esp::ones({4}), d = esp::ones({2, 3}, esp::float64);
  for (const Binary& op : binary) {
    BOOST_CHECK_EXCEPTION(op.op(a, b), esp::ShapeError, says({"[2, 3]", "[4]", "pointwise_test.cpp"}));
    BOOST_CHECK_EXCEPTION(op.op(a, d), esp::TypeError, says({"float32", "float64", "pointwise_test.cpp"}));
  }
  BOOST_CHECK_EXCEPTION(esp::add(a, b), esp::ShapeError, says({"add", here()}));
  BOOST_CHECK_EXCEPTION(a * b, esp::ShapeError, says({"multiply", here()}));
  BOOST_CHECK_EXCEPTION(esp::maximum(a, b), esp::ShapeError, says({"maximum", here()}));
  BOOST_CHECK_EXCEPTION(esp::where(esp::tensor({true, false}), a, 0.0), esp::ShapeError,
                        says({"where", "[2]", "[2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::where(esp::tensor(true), a, d), esp::TypeError,
                        says({"where", "float64", here()}));
  BOOST_CHECK_EXCEPTION(a + esp::Variable(), esp::Error, says({"add", "undefined", here()}));
  BOOST_CHECK_EXCEPTION(esp::exp(esp::Variable()), esp::Error, says({"exp", "undefined", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
