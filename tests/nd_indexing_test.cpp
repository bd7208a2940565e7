// Elements at indices along several axes, at strides, and in reverse order within sequences.
#include "espalier/ops/functions/nd_indexing.h"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/subscript.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/as_strided.h"
#include "espalier/ops/functions/sequence_axes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max();

Tensor integers(const std::vector<int64_t>& values, const Shape& shape) {
  return esp::tensor_from(values, shape);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nd_indexing)

BOOST_AUTO_TEST_CASE(gather_nd) {
  const Tensor places = integers({1, 2, -1, 0, 0, -3, 1, 2}, {2, 2, 2});
  const int64_t rows[] = {1, 2, 0, 1}, columns[] = {2, 0, 0, 2};
  check_op({.name = "gather_nd",
            .op = [=](const Variables& v) { return esp::gather_nd(v[0], places.to(v[0].device())); },
            .inputs = {numbers({3, 3, 2})},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({2, 2, 2}, [&](const Index& i) {
                    return in[0]({rows[i[0] * 2 + i[1]], columns[i[0] * 2 + i[1]], i[2]});
                  });
                }});
  const Tensor x = numbers({2, 3});
  BOOST_TEST(difference(esp::gather(x, integers({1, 0}, {2})).value(),
                        esp::gather_nd(x, integers({1, 0}, {2, 1})).value()) == 0);
  BOOST_TEST(esp::gather_nd(x, integers({1, 2}, {2}).to(esp::int32)).item() == x.at<double>({1, 2}));
  BOOST_TEST(esp::gather_nd(x, esp::zeros({0, 2}, esp::int64)).shape() == Shape({0}));
}

BOOST_AUTO_TEST_CASE(scatter_nd) {
  const Tensor places = integers({1, 2, 2, 0}, {2, 2});
  const auto is_named = [](const Index& i) { return (i[0] == 1 && i[1] == 2) || (i[0] == 2 && i[1] == 0); };
  const auto row_of = [](const Index& i) { return i[0] == 1 ? int64_t{0} : int64_t{1}; };
  for (const bool adds : {false, true})
    check_op({.name = adds ? "scatter_nd_add" : "scatter_nd",
              .op =
                  [=](const Variables& v) {
                    const Tensor at = places.to(v[0].device());
                    return adds ? esp::scatter_nd_add(v[0], at, v[1]) : esp::scatter_nd(v[0], at, v[1]);
                  },
              .inputs = {numbers({3, 3, 2}), numbers({2, 2}, -2, 2, 1)},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array({3, 3, 2}, [&](const Index& i) {
                      const double value = is_named(i) ? in[1]({row_of(i), i[2]}) : 0;
                      return is_named(i) && !adds ? value : in[0](i) + value;
                    });
                  }});
  const Tensor twice = integers({0, 1, 0, 1}, {2, 2});
  const Tensor two = esp::tensor({3.0f, 4.0f}), x = esp::zeros({2, 2});
  BOOST_TEST(esp::scatter_nd(x, twice, two).value().at<float>({0, 1}) == 4);
  BOOST_TEST(esp::scatter_nd_add(x, twice, two).value().at<float>({0, 1}) == 7);
  BOOST_TEST(esp::sum(esp::scatter_nd(x, twice, 5)).item() == 5);
}

// An index outside of its own axis is none of a neighbour.
BOOST_AUTO_TEST_CASE(indices_outside) {
  const Tensor x = numbers({3, 4});
  for (const auto& [row, column] : {std::pair<int64_t, int64_t>(0, 4),
                                    {0, -5},
                                    {3, 0},
                                    {-4, 0},
                                    {-4, 4},
                                    {0, most},
                                    {most, 0},
                                    {-most, 0},
                                    {2, -most}}) {
    const Tensor at = integers({row, column}, {1, 2});
    BOOST_CHECK_EXCEPTION(esp::gather_nd(x, at), esp::IndexError, says({here()}));
    BOOST_CHECK_EXCEPTION(esp::scatter_nd(x, at, 1.0), esp::IndexError, says({here()}));
  }
  BOOST_CHECK_EXCEPTION(esp::gather_nd(x, esp::zeros({2, 3}, esp::int64)), esp::ShapeError,
                        says({"gather_nd", "[2, 3]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather_nd(x, esp::zeros({2, 0}, esp::int64)), esp::ShapeError,
                        says({"gather_nd", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter_nd(x, esp::zeros({2, 2}), 1.0), esp::TypeError,
                        says({"scatter_nd", "float32", here()}));
}

BOOST_AUTO_TEST_CASE(as_strided) {
  struct Case {
    Shape shape;
    std::vector<int64_t> strides;
    int64_t offset;
  };
  for (const auto& [shape, strides, offset] :
       {Case{{3, 2}, {1, 3}, 1}, Case{{2, 2, 3}, {0, 5, 2}, 0}, Case{{4, 3}, {-3, 1}, 9}, Case{{}, {}, 7}})
    check_op({.name = "as_strided",
              .op = [=](const Variables& v) { return esp::as_strided(v[0], shape, strides, offset); },
              .inputs = {numbers({3, 4})},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array(shape, [&](const Index& i) {
                      int64_t at = offset;
                      for (size_t axis = 0; axis < i.size(); ++axis) at += i[axis] * strides[axis];
                      return in[0].values[static_cast<size_t>(at)];
                    });
                  },
              .roundings = 0});
  // The row-major order counts, not the layout.
  const Tensor x = numbers({3, 4});
  BOOST_TEST(difference(esp::as_strided(esp::transpose(x), {12}, {1}).value(),
                        esp::flatten(esp::transpose(x)).value()) == 0);
  BOOST_TEST(esp::as_strided(x, {0, 3}, {100, 1}).shape() == Shape({0, 3}));
  BOOST_TEST(esp::as_strided(esp::tensor({true, false}), {4}, {0}, 1).dtype() == esp::boolean);

  BOOST_CHECK_EXCEPTION(esp::as_strided(x, {3}, {1, 1}), esp::ShapeError,
                        says({"as_strided", "2 strides", "[3]", here()}));
  for (const auto& [stride, offset] :
       {std::pair<int64_t, int64_t>(6, 0), {-1, 1}, {1, -1}, {1, 10}, {most, 1}})
    BOOST_CHECK_EXCEPTION(esp::as_strided(x, {3}, {stride}, offset), esp::IndexError,
                          says({"as_strided", "12 elements", "[3, 4]", here()}));

  const Variable rows = esp::placeholder("x", {-1, 4}, esp::float64);
  const esp::Executor executor = esp::as_strided(rows, {2, 2}, {3, 1}, 1).get_executor();
  for (const int64_t n : {3, 2}) {
    const Tensor some = numbers({n, 4});
    BOOST_TEST(difference(esp::as_strided(some, {2, 2}, {3, 1}, 1).value(), executor.run({{"x", some}})) ==
               0);
  }
  BOOST_CHECK_THROW(executor.run({{"x", numbers({1, 4})}}), esp::IndexError);
}

BOOST_AUTO_TEST_CASE(reverse_sequence) {
  const Tensor lengths = integers({0, 4, 2}, {3});
  const int64_t counts[] = {0, 4, 2};
  check_op({.name = "reverse_sequence",
            .op = [=](const Variables& v) { return esp::reverse_sequence(v[0], lengths.to(v[0].device())); },
            .inputs = {numbers({4, 3, 2})},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({4, 3, 2}, [&](const Index& i) {
                    const int64_t n = counts[i[1]];
                    return in[0]({i[0] < n ? n - 1 - i[0] : i[0], i[1], i[2]});
                  });
                }});
  const Variable x = esp::placeholder("x", {-1, -1, 2}, esp::float64),
                 n = esp::placeholder("n", {-1}, esp::int32);
  const esp::Executor executor = esp::reverse_sequence(x, n, 1, 0).get_executor();
  for (const int64_t rows : {3, 2}) {
    const Tensor some = numbers({rows, rows + 2, 2}), some_n = esp::arange(rows, esp::int32);
    BOOST_TEST(difference(esp::reverse_sequence(some, some_n, 1, 0).value(),
                          executor.run({{"x", some}, {"n", some_n}})) == 0);
  }
  const Tensor three = numbers({4, 3});
  for (const int64_t bad : {int64_t{5}, int64_t{-1}})
    BOOST_CHECK_EXCEPTION(esp::reverse_sequence(three, integers({1, bad, 1}, {3})), esp::IndexError,
                          says({here()}));
  BOOST_CHECK_EXCEPTION(esp::reverse_sequence(three, integers({1, 1}, {2})), esp::ShapeError,
                        says({"reverse_sequence", "[2]", "[4, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::reverse_sequence(three, lengths, 1, -1), esp::ShapeError,
                        says({"reverse_sequence", "axis 1", here()}));
  BOOST_CHECK_EXCEPTION(esp::reverse_sequence(three, esp::ones({3})), esp::TypeError,
                        says({"reverse_sequence", "float32", here()}));
}

BOOST_AUTO_TEST_CASE(coordinates_along_open_axes) {
  const Variable x = esp::placeholder("x", {-1, -1, -1}, esp::float64);
  const Variable rows = esp::placeholder("rows", {-1}, esp::int64);
  const esp::Executor executor = esp::gather_nd(x, esp::stack({rows, rows - 2}, -1)).get_executor();
  const esp::Executor subscript = x[{esp::range(), rows, 1 - rows}].get_executor();
  for (const int64_t size : {3, 4}) {
    const Tensor some = numbers({size, size + 1, 3}), at = integers({0, 2, 1}, {3}).to(esp::int64);
    const Variable places = esp::stack({at, (at - int64_t{2}).value()}, -1);
    BOOST_TEST(difference(esp::gather_nd(some, places).value(), executor.run({{"x", some}, {"rows", at}})) ==
               0);
    BOOST_TEST(difference(Variable(some)[{esp::range(), at, int64_t{1} - at}].value(),
                          subscript.run({{"x", some}, {"rows", at}})) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
