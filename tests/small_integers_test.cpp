// int8, uint8 and int16: made, printed, cast, moved and compared, eagerly and in plans; nothing else.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/sequences.h"
#include "espalier/core/subscript.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/bitwise.h"
#include "espalier/ops/functions/counting.h"
#include "espalier/ops/functions/diagonal.h"
#include "espalier/ops/functions/distance.h"
#include "espalier/ops/functions/masks.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/functions/sorting.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/functions/windows.h"
#include "espalier/ops/ops.h"
#include "figures/casts.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor, esp::Variable;

namespace {

constexpr esp::DType small_types[] = {esp::int8, esp::uint8, esp::int16};

std::vector<double> list_of(const Tensor& tensor) {
  const Tensor plain = tensor.to(esp::float64).contiguous_copy();
  return {plain.data<double>(), plain.data<double>() + plain.elements()};
}

Tensor vector_of(const std::vector<double>& values, esp::DType dtype) {
  return esp::tensor_from(values, {static_cast<int64_t>(values.size())}).to(dtype);
}

/// What a plan computes of the value of a placeholder.
Tensor planned(const Tensor& x, const std::function<Variable(const Variable&)>& f) {
  const Variable in = esp::placeholder("x", x.shape(), x.dtype());
  return f(in).get_executor({.mode = esp::Mode::inference}).run({{"x", x}});
}

/// Small numbers, no two of which are equal.
Tensor counted(const esp::Shape& shape, esp::DType dtype) {
  Tensor values = esp::arange(shape.elements(), esp::int32).reshape(shape);
  return (esp::Variable(values) - (dtype == esp::uint8 ? 0 : 20)).value().to(dtype);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(small_integers)

BOOST_AUTO_TEST_CASE(casts_are_those_of_numpy) {
  for (const CastFigures& figures : cast_figures)
    BOOST_TEST_CONTEXT(esp::name(figures.from) << " to " << esp::name(figures.to)) {
      const Tensor x = vector_of(figures.values, figures.from);
      BOOST_TEST(list_of(x) == figures.values, boost::test_tools::per_element());
      const auto cast = [&](const Variable& v) { return esp::cast(v, figures.to); };
      const auto check = [&](const Tensor& result) {
        BOOST_CHECK(result.dtype() == figures.to);
        BOOST_TEST(list_of(result) == figures.results, boost::test_tools::per_element());
      };
      check(x.to(figures.to));
      check(cast(x).value());
      check(cast(sliced_from_larger(x)).value());
      check(planned(x, cast));
      const int64_t n = x.elements();
      Tensor tall({100, n}, figures.from);  // long enough for vector code
      for (int64_t row = 0; row < 100; ++row) {
        Tensor part = tall.slice(0, row, row + 1).reshape({n});
        esp::copy_elements(x, part);
      }
      const Tensor all = cast(tall).value();
      for (const int64_t row : {0, 57, 99}) check(all.slice(0, row, row + 1).reshape({n}));
      if (!esp::is_real(figures.from)) continue;
      // In a program with others, where it is a load.
      const auto fused = [&](const Variable& v) { return esp::cast(v * 1.0, figures.to); };
      check(planned(x, fused));
    }
  BOOST_TEST(cast_figures.size() == 100u);
}

BOOST_AUTO_TEST_CASE(reals_outside_go_to_the_nearest_end) {
  const double inf = INFINITY;
  const struct {
    esp::DType dtype;
    double low, high;
  } ranges[] = {{esp::int8, -128, 127}, {esp::uint8, 0, 255}, {esp::int16, -32768, 32767}};
  for (const esp::DType real : {esp::float32, esp::float64, esp::float16, esp::bfloat16})
    for (const auto& [dtype, low, high] : ranges) {
      const Tensor x = vector_of({-inf, -40000, -0.75, 40000, inf, NAN}, real);
      const std::vector<double> expected{low, low, 0, high, high, 0};
      BOOST_TEST(list_of(x.to(dtype)) == expected, boost::test_tools::per_element());
      const auto cast = [to = dtype](const Variable& v) { return esp::cast(v, to); };
      BOOST_TEST(list_of(planned(x, cast)) == expected, boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(tensors_of_them_are_made) {
  const Tensor bytes = esp::tensor_from(std::vector<uint8_t>{0, 128, 255, 7}, {2, 2});
  BOOST_CHECK(bytes.dtype() == esp::uint8);
  BOOST_TEST(bytes.bytes() == 4u);
  BOOST_TEST(bytes.at<uint8_t>({0, 1}) == 128);
  BOOST_TEST(bytes.span<uint8_t>()[2] == 255);
  BOOST_TEST(bytes.slice(0, 1, 2).slice(1, 0, 1).item<uint8_t>() == 255);
  BOOST_TEST(bytes.slice(0, 1, 2).slice(1, 0, 1).item<int8_t>() == -1);
  BOOST_TEST(bytes.slice(0, 1, 2).slice(1, 0, 1).item() == 255);
  BOOST_CHECK(esp::tensor_from(std::vector<int8_t>{-1}, {1}).dtype() == esp::int8);
  BOOST_CHECK(esp::tensor_from(std::vector<int16_t>{-1}, {1}).dtype() == esp::int16);
  BOOST_TEST(esp::tensor(300.0).item<int16_t>() == 300);
  BOOST_CHECK(esp::tensor({uint8_t{1}, uint8_t{2}}).dtype() == esp::int64);  // as other integers
  for (const esp::DType dtype : small_types) {
    BOOST_TEST(list_of(esp::tensor({{1, 2}, {3, 4}}, dtype)) == (std::vector<double>{1, 2, 3, 4}));
    BOOST_TEST(list_of(esp::zeros({2}, dtype)) == (std::vector<double>{0, 0}));
    BOOST_TEST(list_of(esp::ones({2}, dtype)) == (std::vector<double>{1, 1}));
    BOOST_TEST(list_of(esp::full({2}, 9, dtype)) == (std::vector<double>{9, 9}));
    BOOST_TEST(list_of(esp::arange(3, dtype)) == (std::vector<double>{0, 1, 2}));
    BOOST_TEST(list_of(esp::eye(2, dtype)) == (std::vector<double>{1, 0, 0, 1}));
    BOOST_TEST(list_of(esp::zeros_like(counted({2}, dtype)).value()) == (std::vector<double>{0, 0}));
    BOOST_TEST(list_of(esp::full_like(counted({2}, dtype), 5).value()) == (std::vector<double>{5, 5}));
    BOOST_TEST(list_of(esp::one_hot(esp::tensor({1, 0}), 2, dtype).value()) ==
               (std::vector<double>{0, 1, 1, 0}));
    BOOST_TEST(esp::Spec(dtype, {3, 2}).bytes() == 6 * static_cast<int64_t>(esp::size_of(dtype)));
    BOOST_CHECK_EXCEPTION(esp::full({2}, 40000, dtype), esp::TypeError,
                          says({"40000", std::string(esp::name(dtype)), here()}));
    BOOST_CHECK_EXCEPTION(esp::tensor({0.5}, dtype), esp::TypeError,
                          says({"0.5", std::string(esp::name(dtype)), here()}));
    BOOST_CHECK_THROW(esp::full_like(counted({2}, dtype), 0.5), esp::TypeError);
    BOOST_CHECK_EXCEPTION(esp::randn({2}, dtype), esp::TypeError, says({"randn", here()}));
    BOOST_CHECK_EXCEPTION(esp::parameter(esp::zeros({2}, dtype)), esp::TypeError, says({here()}));
  }
  BOOST_CHECK_EXCEPTION(esp::full({}, -1, esp::uint8), esp::TypeError, says({"-1", "uint8"}));
  BOOST_CHECK_EXCEPTION(esp::full({}, 128, esp::int8), esp::TypeError, says({"128", "int8"}));
  BOOST_CHECK_EXCEPTION((void)bytes.data<int8_t>(), esp::TypeError, says({"int8", "uint8", here()}));
  BOOST_CHECK_EXCEPTION((void)bytes.data<bool>(), esp::TypeError, says({"bool", "uint8", here()}));
  std::ostringstream text;
  text << bytes << ' ' << esp::tensor({-5, 100}, esp::int8) << ' ' << esp::int8 << ' ' << esp::uint8 << ' '
       << esp::int16;
  BOOST_TEST(text.str() == "[[0, 128],\n [255, 7]] [-5, 100] int8 uint8 int16");
}

BOOST_AUTO_TEST_CASE(what_moves_elements_takes_them) {
  const Tensor places = esp::tensor({{2, 0, -1, 1}, {1, 1, 0, 0}}), rows = esp::tensor({1, 1, 0});
  const Tensor mask =
      esp::tensor({{true, false, true, false}, {false, true, true, true}, {true, true, false, false}});
  const struct {
    const char* name;
    std::function<Variable(const Variable&)> f;
    bool only_eager = false;
  } moves[] = {
      {"reshape",
       [](const Variable& x) {
         return esp::reshape(x, {2, 6});
       }},
      {"transpose", [](const Variable& x) { return esp::transpose(x); }},
      {"slice", [](const Variable& x) { return esp::slice(x, 1, 1, 3); }},
      {"steps", [](const Variable& x) { return esp::slice(x, 1, 0, 4, 3); }},
      {"broadcast",
       [](const Variable& x) {
         return esp::broadcast_to(x, {2, 3, 4});
       }},
      {"concat",
       [](const Variable& x) {
         return esp::concat({x, esp::flip(x)}, 1);
       }},
      {"stack",
       [](const Variable& x) {
         return esp::stack({x, x}, 2);
       }},
      {"gather", [&](const Variable& x) { return esp::gather(x, rows, 0); }},
      {"gather along the last axis", [&](const Variable& x) { return esp::gather(x, rows, -1); }},
      {"take_along_axis", [&](const Variable& x) { return esp::take_along_axis(x, places, 0); }},
      {"pick", [&](const Variable& x) { return esp::pick(x, rows); }},
      {"put_along_axis",
       [&](const Variable& x) { return esp::put_along_axis(x, places, esp::slice(x, 0, 0, 2), 0); }},
      {"slice_scatter",
       [](const Variable& x) { return esp::slice_scatter(x, esp::slice(x, 0, 2, 3), 0, 0, 1); }},
      {"pad",
       [](const Variable& x) {
         return esp::pad(x, {{1, 2}, {0, 3}}, {.value = 7});
       }},
      {"pad by reflection",
       [](const Variable& x) {
         return esp::pad(x, {{1, 1}, {2, 0}}, {.mode = esp::PadMode::reflect});
       }},
      {"roll", [](const Variable& x) { return esp::roll(x, 3, 1); }},
      {"tile",
       [](const Variable& x) {
         return esp::tile(x, {2, 3});
       }},
      {"repeat_interleave", [](const Variable& x) { return esp::repeat_interleave(x, 2, 0); }},
      {"where", [&](const Variable& x) { return esp::where(mask, x, esp::flip(x)); }},
      {"where with a number", [&](const Variable& x) { return esp::where(mask, x, 3); }},
      {"masked_fill", [&](const Variable& x) { return esp::masked_fill(x, mask, 1); }},
      {"masked_select", [&](const Variable& x) { return esp::masked_select(x, mask); }, true},
      {"diagonal", [](const Variable& x) { return esp::diagonal(x); }},
      {"tril", [](const Variable& x) { return esp::tril(x); }},
      {"sliding_windows", [](const Variable& x) { return esp::sliding_windows(x, 1, 2); }},
      {"subscript",
       [](const Variable& x) {
         return x[{1, esp::range(1, 3)}];
       }},
      {"unique", [](const Variable& x) { return esp::unique(x).values; }, true},
  };
  for (const esp::DType dtype : small_types)
    for (const auto& [name, f, only_eager] : moves) BOOST_TEST_CONTEXT(name << " of " << esp::name(dtype)) {
        const Tensor x = counted({3, 4}, dtype);
        const Tensor result = f(x).value();
        const std::vector<double> expected = list_of(f(x.to(esp::float32)).value());
        BOOST_CHECK(result.dtype() == dtype);
        BOOST_TEST(list_of(result) == expected, boost::test_tools::per_element());
        BOOST_TEST(list_of(f(laid_out_in_reverse(x)).value()) == expected, boost::test_tools::per_element());
        if (!only_eager) {
          const Tensor there = planned(x, f);
          BOOST_CHECK(there.spec() == result.spec());
          BOOST_TEST(list_of(there) == expected, boost::test_tools::per_element());
        }
      }
}

BOOST_AUTO_TEST_CASE(they_are_compared_and_counted) {
  for (const esp::DType dtype : small_types) {
    const Tensor x = vector_of({0, 100, 7, 100}, dtype), y = vector_of({0, 7, 7, 1}, dtype);
    const auto equal = [&](const Variable& v) { return esp::cast(esp::equal(v, y), esp::float32) * 2.0; };
    const std::vector<double> expected{2, 0, 2, 0};
    BOOST_TEST(list_of(equal(x).value()) == expected, boost::test_tools::per_element());
    BOOST_TEST(list_of(planned(x, equal)) == expected, boost::test_tools::per_element());
    BOOST_TEST(list_of(planned(x, [](const Variable& v) { return esp::not_equal(v, 100); })) ==
               (std::vector<double>{1, 0, 1, 0}));
    BOOST_TEST(esp::count_nonzero(x).value().item() == 3);
    BOOST_TEST(list_of(esp::nonzero(x).value()) == (std::vector<double>{1, 2, 3}));
    BOOST_CHECK_EXCEPTION(esp::equal(x, 0.5), esp::TypeError, says({"0.5", "cast() them first", here()}));
    BOOST_CHECK_EXCEPTION(esp::equal(x, 40000), esp::TypeError, says({"40000", "cast() them first", here()}));
  }
  // Equal bits, but not equal numbers.
  BOOST_CHECK_EXCEPTION(esp::equal(esp::zeros({1}, esp::int8), esp::zeros({1}, esp::uint8)), esp::TypeError,
                        says({"int8", "uint8", "cast()"}));
}

BOOST_AUTO_TEST_CASE(gradients_pass_by) {
  const Variable w = esp::parameter(esp::ones({3}));
  const Variable x = esp::tensor({1, 2, 3}, esp::uint8);
  const Variable loss = esp::sum(w * esp::cast(x, esp::float32));
  BOOST_TEST(list_of(loss.gradient(w).value()) == (std::vector<double>{1, 2, 3}));
  // A quantized value has no gradient.
  const Variable quantized = esp::sum(esp::cast(esp::cast(w * 3.0, esp::int8), esp::float32) * w);
  BOOST_TEST(list_of(quantized.gradient(w).value()) == (std::vector<double>{3, 3, 3}));
}

BOOST_AUTO_TEST_CASE(nothing_is_computed_with_them) {
  const Variable f = esp::ones({2, 2});
  const struct {
    const char* op;
    std::function<Variable(const Variable&)> apply;
  } refused[] = {
      {"add", [](const Variable& x) { return x + x; }},
      {"add", [](const Variable& x) { return x + 1; }},
      {"subtract", [](const Variable& x) { return x - x; }},
      {"multiply", [](const Variable& x) { return x * 2; }},
      {"divide", [](const Variable& x) { return x / x; }},
      {"power", [](const Variable& x) { return esp::power(x, x); }},
      {"maximum", [](const Variable& x) { return esp::maximum(x, 1); }},
      {"negative", [](const Variable& x) { return -x; }},
      {"abs", [](const Variable& x) { return esp::abs(x); }},
      {"square", [](const Variable& x) { return esp::square(x); }},
      {"sqrt", [](const Variable& x) { return esp::sqrt(x); }},
      {"exp", [](const Variable& x) { return esp::exp(x); }},
      {"relu", [](const Variable& x) { return esp::relu(x); }},
      {"less", [](const Variable& x) { return esp::less(x, x); }},
      {"greater_equal", [](const Variable& x) { return x >= 1; }},
      {"logical_not", [](const Variable& x) { return esp::logical_not(x); }},
      {"logical_and", [](const Variable& x) { return esp::logical_and(x, x); }},
      {"bitwise_and", [](const Variable& x) { return esp::bitwise_and(x, x); }},
      {"where", [&](const Variable& x) { return esp::where(x, f, f); }},
      {"sum", [](const Variable& x) { return esp::sum(x); }},
      {"mean", [](const Variable& x) { return esp::mean(x, 0); }},
      {"max", [](const Variable& x) { return esp::max(x); }},
      {"prod", [](const Variable& x) { return esp::prod(x); }},
      {"argmax", [](const Variable& x) { return esp::argmax(x); }},
      {"cumsum", [](const Variable& x) { return esp::cumsum(x); }},
      {"sort", [](const Variable& x) { return esp::sort(x).values; }},
      {"topk", [](const Variable& x) { return esp::topk(x, 1).values; }},
      {"searchsorted", [](const Variable& x) { return esp::searchsorted(x, x); }},
      {"matmul", [](const Variable& x) { return esp::matmul(x, x); }},
      {"softmax", [](const Variable& x) { return esp::softmax(x); }},
      {"fold",
       [](const Variable& x) {
         return esp::scatter_add(x, esp::tensor({0, 1}), x, 0);
       }},
      {"norm", [](const Variable& x) { return esp::norm(x); }},
      {"randn_like", [](const Variable& x) { return esp::randn_like(x); }},
      {"bernoulli", [](const Variable& x) { return esp::bernoulli(x); }},
      {"dropout", [](const Variable& x) { return esp::dropout(x, 0.5); }},
      {"mean_squared_error", [](const Variable& x) { return esp::mean_squared_error(x, x); }},
      {"softmax_cross_entropy",
       [](const Variable& x) {
         return esp::softmax_cross_entropy(x, esp::tensor({0, 1}));
       }},
      {"labels",
       [&](const Variable& x) {
         return esp::softmax_cross_entropy(f, esp::reshape(esp::slice(x, 0, 0, 1), {2}));
       }},
      {"gather", [&](const Variable& x) { return esp::gather(f, x); }},
      {"one_hot", [](const Variable& x) { return esp::one_hot(x, 3); }},
      {"bincount", [](const Variable& x) { return esp::bincount(x); }},
      {"cdist", [](const Variable& x) { return esp::cdist(x, x); }},
      {"Dense", [](const Variable& x) { return esp::nn::Dense(3)(x); }},
      {"Embedding", [](const Variable& x) { return esp::nn::Embedding(3, 2)(x); }},
  };
  for (const esp::DType dtype : small_types)
    for (const auto& [op, apply] : refused) BOOST_TEST_CONTEXT(op << " of " << esp::name(dtype)) {
        const Variable x = esp::ones({2, 2}, dtype), fed = esp::placeholder("x", {2, 2}, dtype);
        const auto says_why = [&](const esp::TypeError& error) {
          const std::string text = error.what();
          const bool names = text.find(esp::name(dtype)) != std::string::npos &&
                             text.find("small_integers_test.cpp") != std::string::npos;
          const bool helps = text.find("cast() ") != std::string::npos;
          BOOST_TEST(names, text);
          BOOST_TEST(helps, text);
          return names && helps;
        };
        BOOST_CHECK_EXCEPTION(apply(x), esp::TypeError, says_why);
        BOOST_CHECK_EXCEPTION(apply(fed), esp::TypeError, says_why);
      }
  BOOST_CHECK_EXCEPTION(esp::Variable(esp::ones({2}, esp::uint8)) + 1.0f, esp::TypeError,
                        says({"add", "uint8", "[2]", "cast() it first, for example to float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::Variable(esp::ones({2}, esp::uint8)) * 0.5, esp::TypeError,
                        says({"multiply", "uint8", "cast() it first", here()}));
  BOOST_CHECK_EXCEPTION(esp::Variable(esp::ones({2}, esp::uint8)) + esp::ones({2}), esp::TypeError,
                        says({"add", "uint8", "float32", "cast() one of them", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
