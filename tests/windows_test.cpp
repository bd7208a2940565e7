// Windows that slide over axes, and elements moved between channels and places.
#include "espalier/ops/functions/windows.h"

#include <boost/test/unit_test.hpp>

#include <limits>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/views/windows.h"
#include "moved_elements.h"

namespace esp = espalier;
using namespace espalier::testing;
using V = const esp::Variable&;

namespace {

struct Form2d {
  int64_t kernel[2], stride[2], padding[2], dilation[2], size[2];
  int64_t count(int a) const {
    return (size[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1;
  }
  esp::WindowOptions options() const {
    return {.kernel = {kernel[0], kernel[1]},
            .stride = {stride[0], stride[1]},
            .padding = {padding[0], padding[1]},
            .dilation = {dilation[0], dilation[1]}};
  }
  /// The place in the image of an element of the columns, if it is within.
  std::optional<Index> source(const Index& i) const {
    const int64_t k[2] = {i[1] / kernel[1] % kernel[0], i[1] % kernel[1]};
    const int64_t w[2] = {i[2] / count(1), i[2] % count(1)};
    Index at{i[0], i[1] / (kernel[0] * kernel[1]), 0, 0};
    for (int a = 0; a < 2; ++a) {
      const int64_t place = w[a] * stride[a] + k[a] * dilation[a] - padding[a];
      if (place < 0 || place >= size[a]) return std::nullopt;
      at[static_cast<size_t>(2 + a)] = place;
    }
    return at;
  }
};
const Form2d forms[] = {
    {{2, 3}, {1, 2}, {1, 1}, {1, 1}, {3, 5}},
    {{2, 2}, {2, 1}, {0, 2}, {2, 1}, {5, 3}},
    {{1, 1}, {1, 1}, {0, 0}, {1, 1}, {2, 2}},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(windows)

BOOST_AUTO_TEST_CASE(slide) {
  check_moved({{"sliding_windows",
                [](V x) { return esp::sliding_windows(x, 1, 2); },
                {2, 4},
                {2, 3, 2},
                [](const Index& i) {
                  return Index{i[0], i[1] + i[2]};
                }},
               {"sliding_windows",
                [](V x) { return esp::sliding_windows(x, 0, 2, 2, 3); },
                {6, 2},
                {2, 2, 2},
                [](const Index& i) {
                  return Index{2 * i[0] + 3 * i[2], i[1]};
                }}});
  check_op({.name = "add_windows",
            .op = [](const Variables& x) { return esp::add_windows(x[0], 5, 0, 2, 1); },
            .inputs = {numbers({2, 2, 3})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({5, 2}, [&](const Index& i) {
                    double sum = 0;
                    for (int64_t w = 0; w < 2; ++w)
                      if (const int64_t k = i[0] - 2 * w; k >= 0 && k < 3) sum += in[0]({w, i[1], k});
                    return sum;
                  });
                },
            .roundings = 2});
}

BOOST_AUTO_TEST_CASE(columns_of_images) {
  for (const Form2d& f : forms) {
    const int64_t elements = f.kernel[0] * f.kernel[1], count = f.count(0) * f.count(1);
    check_moved({{"unfold",
                  [&](V x) { return esp::unfold(x, f.options()); },
                  {2, 2, f.size[0], f.size[1]},
                  {2, 2 * elements, count},
                  [&](const Index& i) { return f.source(i); }}});
    check_op({.name = "fold",
              .op =
                  [&](const Variables& x) {
                    return esp::fold(x[0], {f.size[0], f.size[1]}, f.options());
                  },
              .inputs = {numbers({1, 2 * elements, count})},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array({1, 2, f.size[0], f.size[1]}, [&](const Index& to) {
                      double sum = 0;
                      each_index(in[0].shape, [&](const Index& i) {
                        if (f.source(i) == to) sum += in[0](i);
                      });
                      return sum;
                    });
                  },
              .roundings = 4});
  }
  // One axis, and three.
  check_moved({{"unfold",
                [](V x) { return esp::unfold(x, {.kernel = 2, .stride = 2}); },
                {1, 2, 4},
                {1, 4, 2},
                [](const Index& i) {
                  return Index{0, i[1] / 2, i[1] % 2 + 2 * i[2]};
                }},
               {"unfold",
                [](V x) {
                  return esp::unfold(x, {.kernel = {1, 2, 1}});
                },
                {1, 1, 2, 2, 2},
                {1, 2, 4},
                [](const Index& i) {
                  return Index{0, 0, i[2] / 2, i[1], i[2] % 2};
                }}});
}

BOOST_AUTO_TEST_CASE(shuffles) {
  check_moved({{"pixel_shuffle",
                [](V x) { return esp::pixel_shuffle(x, 2); },
                {1, 8, 2, 3},
                {1, 2, 4, 6},
                [](const Index& i) {
                  return Index{0, 4 * i[1] + 2 * (i[2] % 2) + i[3] % 2, i[2] / 2, i[3] / 2};
                }},
               {"pixel_unshuffle",
                [](V x) { return esp::pixel_unshuffle(x, 2); },
                {2, 4, 6},
                {8, 2, 3},
                [](const Index& i) {
                  return Index{i[0] / 4, 2 * i[1] + i[0] / 2 % 2, 2 * i[2] + i[0] % 2};
                }},
               {"channel_shuffle",
                [](V x) { return esp::channel_shuffle(x, 2); },
                {2, 6, 2},
                {2, 6, 2},
                [](const Index& i) {
                  return Index{i[0], i[1] % 2 * 3 + i[1] / 2, i[2]};
                }}});
}

BOOST_AUTO_TEST_CASE(short_batches_of_a_plan) {
  const esp::Variable x = esp::placeholder("x", {4, 4, 6, -1}, esp::float64);
  for (const auto op : {+[](V v) { return esp::unfold(v, {.kernel = 3, .stride = 2, .padding = 1}); },
                        +[](V v) { return esp::pixel_shuffle(v, 2); },
                        +[](V v) {
                          return esp::gather(esp::channel_shuffle(v, 2), esp::tensor({1, 0}), 1);
                        }}) {
    const esp::Executor executor = op(x).get_executor();
    for (const int64_t rows : {4, 2, 3}) {
      const esp::Tensor some = numbers({rows, 4, 6, rows + 3});
      BOOST_TEST(difference(op(some).value(), executor.run({{"x", some}})) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const esp::Variable x = esp::ones({1, 3, 4, 4});
  BOOST_CHECK_EXCEPTION(esp::sliding_windows(x, 2, 5), esp::ShapeError,
                        says({"sliding_windows", "[1, 3, 4, 4]", "5", here()}));
  BOOST_CHECK_EXCEPTION(esp::sliding_windows(x, 2, 0), esp::Error, says({"sliding_windows", "0", here()}));
  BOOST_TEST((esp::unfold(esp::ones({1, 1, 2}), {.kernel = 4, .padding = 1}).shape() == esp::Shape{1, 4, 1}));
  BOOST_CHECK_THROW(esp::unfold(esp::ones({1, 1, 2}), {.kernel = 5, .padding = 1}), esp::ShapeError);
  BOOST_CHECK_THROW(esp::unfold(esp::ones({1, 1, 0}), {.kernel = 1, .padding = 1}), esp::ShapeError);
  BOOST_CHECK_EXCEPTION(esp::unfold(esp::ones({2, 2}), {.kernel = 1}), esp::ShapeError,
                        says({"unfold", "[2, 2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::unfold(x, {.kernel = {1, 1, 1}}), esp::ShapeError,
                        says({"unfold", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::unfold(x, {.kernel = 2, .padding = -1}), esp::Error,
                        says({"unfold", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::unfold(x, {.kernel = 6}), esp::ShapeError, says({"6", here()}));
  BOOST_CHECK_EXCEPTION(esp::fold(esp::ones({1, 4, 5}), {3, 3}, {.kernel = 2}), esp::ShapeError,
                        says({"fold", "[1, 4, 5]", "[3, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::pixel_shuffle(x, 2), esp::ShapeError, says({"pixel_shuffle", "3", "4", here()}));
  for (const int64_t factor :
       {int64_t{0}, int64_t{-2}, int64_t{1} << 32, std::numeric_limits<int64_t>::max()})
    BOOST_CHECK_EXCEPTION(esp::pixel_shuffle(x, factor), esp::Error,
                          says({"pixel_shuffle", "factor", std::to_string(factor), here()}));
  BOOST_CHECK_EXCEPTION(esp::pixel_unshuffle(x, 0), esp::Error,
                        says({"pixel_unshuffle", "factor", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::pixel_unshuffle(x, 3), esp::ShapeError,
                        says({"pixel_unshuffle", "4", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::channel_shuffle(x, 2), esp::ShapeError,
                        says({"channel_shuffle", "3", "2", here()}));
}

BOOST_AUTO_TEST_CASE(windows_longer_than_64_bits_count) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t dilation : {int64_t{1} << 61, int64_t{1} << 62, most - 99999999, most})
    BOOST_CHECK_THROW(esp::sliding_windows(esp::ones({4}), 0, 9, 1, dilation), esp::ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
