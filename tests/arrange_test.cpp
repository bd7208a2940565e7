// Elements in another order, repeated, padded and cut, each beside plain loops.
#include "espalier/ops/functions/arrange.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/views/axis_views.h"
#include "moved_elements.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::PadMode;
using V = const esp::Variable&;

namespace {

bool same_storage(V a, V b) { return a.value().storage().get() == b.value().storage().get(); }
std::vector<double> doubles(V x) { return Array(x.value()).values; }
using List = std::vector<double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(arrange)

BOOST_AUTO_TEST_CASE(slices_with_steps) {
  struct Cut {
    int64_t axis, begin, end, step;
    List positions;
  };
  using esp::open_end;
  const esp::Variable x = esp::arange(6, esp::float64);
  for (const Cut& c : {Cut{0, 0, open_end, 2, {0, 2, 4}},
                       {0, 1, 6, 2, {1, 3, 5}},
                       {0, 1, -1, 3, {1, 4}},
                       {0, -1, open_end, -1, {5, 4, 3, 2, 1, 0}},
                       {0, 4, 0, -2, {4, 2}},
                       {0, -2, -5, -1, {4, 3, 2}},
                       {-1, 2, 2, 5, {}},
                       {0, 3, 3, -1, {}},
                       {0, 2, open_end, 1, {2, 3, 4, 5}},
                       {0, 0, 6, 100, {0}}})
    BOOST_TEST(doubles(esp::slice(x, c.axis, c.begin, c.end, c.step)) == c.positions);
  BOOST_TEST(esp::slice(esp::zeros({0}), 0, -1, open_end, -1).shape() == esp::Shape({0}));
  BOOST_TEST(same_storage(esp::slice(x, 0, 1, open_end, 2), x));
  check_moved({{"slice",
                [](V v) { return esp::slice(v, 1, 1, 5, 2); },
                {3, 5},
                {3, 2},
                [](const Index& i) {
                  return Index{i[0], 1 + 2 * i[1]};
                }},
               {"slice",
                [](V v) { return esp::slice(v, 0, -1, esp::open_end, -2); },
                {4, 2},
                {2, 2},
                [](const Index& i) {
                  return Index{3 - 2 * i[0], i[1]};
                }},
               {"slice",
                [](V v) { return esp::slice(v, -1, 1, esp::open_end); },
                {2, 3},
                {2, 2},
                [](const Index& i) {
                  return Index{i[0], i[1] + 1};
                }}});
}

BOOST_AUTO_TEST_CASE(slices_written) {
  const esp::Variable x = esp::arange(6), values = esp::variable(esp::tensor({-1.0, -2.0, -3.0}));
  BOOST_TEST(doubles(esp::slice_scatter(x, values, 0, 0, esp::open_end, 2)) == (List{-1, 1, -2, 3, -3, 5}));
  BOOST_TEST(doubles(esp::slice_scatter(x, values, 0, -1, esp::open_end, -2)) == (List{0, -3, 2, -2, 4, -1}));
  BOOST_TEST(doubles(esp::slice_scatter(x, 9.0, 0, 2, 4)) == (List{0, 1, 9, 9, 4, 5}));
  const auto f = [](const Variables& v) { return esp::square(esp::slice_scatter(v[0], v[1], 1, 3, 0, -2)); };
  BOOST_TEST(esp::check_gradient(f, {numbers({2, 4}), numbers({2, 1})}, {.order = 2}).passed);
  BOOST_CHECK_EXCEPTION(esp::slice_scatter(x, values, 0, 0, 2), esp::ShapeError, says({"arrange_test.cpp:"}));
  BOOST_CHECK_EXCEPTION(esp::slice_scatter(x, esp::tensor({1, 2}), 0, 0, 2), esp::TypeError,
                        says({"slice_scatter", "int"}));
}

BOOST_AUTO_TEST_CASE(flips_and_rolls) {
  check_moved(
      {{"flip",
        [](V x) { return esp::flip(x, 1); },
        {3, 4},
        {3, 4},
        [](const Index& i) {
          return Index{i[0], 3 - i[1]};
        }},
       {"flip",
        [](V x) {
          return esp::flip(x, {0, -1});
        },
        {3, 2, 4},
        {3, 2, 4},
        [](const Index& i) {
          return Index{2 - i[0], i[1], 3 - i[2]};
        }},
       {"flip",
        [](V x) { return esp::flip(x); },
        {3, 4},
        {3, 4},
        [](const Index& i) {
          return Index{2 - i[0], 3 - i[1]};
        }},
       {"flip", [](V x) { return esp::flip(x); }, {0, 4}, {0, 4}, [](const Index& i) { return i; }},
       {"roll",
        [](V x) { return esp::roll(x, 1, 0); },
        {3, 2},
        {3, 2},
        [](const Index& i) {
          return Index{(i[0] + 2) % 3, i[1]};
        }},
       {"roll",
        [](V x) { return esp::roll(x, -6, -1); },
        {2, 5},
        {2, 5},
        [](const Index& i) {
          return Index{i[0], (i[1] + 1) % 5};
        }},
       {"roll", [](V x) { return esp::roll(x, 7, 0); }, {0, 5}, {0, 5}, [](const Index& i) { return i; }}});
}

BOOST_AUTO_TEST_CASE(pads) {
  const auto inside = [](int64_t i, int64_t n) { return i >= 0 && i < n; };
  check_moved({{"pad",
                [](V x) {
                  return esp::pad(x, {{1, 2}, {0, 1}});
                },
                {2, 3},
                {5, 4},
                [=](const Index& i) -> std::optional<Index> {
                  if (!inside(i[0] - 1, 2) || !inside(i[1], 3)) return std::nullopt;
                  return Index{i[0] - 1, i[1]};
                }},
               {"pad, cut off",
                [](V x) {
                  return esp::pad(x, {{-1, 2}});
                },
                {2, 3},
                {2, 4},
                [=](const Index& i) -> std::optional<Index> {
                  if (!inside(i[1] + 1, 3)) return std::nullopt;
                  return Index{i[0], i[1] + 1};
                }},
               {"pad nothing",
                [](V x) {
                  return esp::pad(x, {{0, 0}});
                },
                {2, 3},
                {2, 3},
                [](const Index& i) { return i; }},
               {"pad an empty one",
                [](V x) {
                  return esp::pad(x, {{1, 1}, {0, 0}});
                },
                {0, 3},
                {2, 3},
                [](const Index&) { return std::nullopt; }},
               {"reflect",
                [](V x) {
                  return esp::pad(x, {{2, 1}, {0, 2}}, {.mode = PadMode::reflect});
                },
                {3, 4},
                {6, 6},
                [](const Index& i) {
                  const auto mirror = [](int64_t k, int64_t n) {
                    return k < 0 ? -k : k >= n ? 2 * n - 2 - k : k;
                  };
                  return Index{mirror(i[0] - 2, 3), mirror(i[1], 4)};
                }},
               {"replicate",
                [](V x) {
                  return esp::pad(x, {{2, 1}, {0, 2}}, {.mode = PadMode::replicate});
                },
                {3, 4},
                {6, 6},
                [](const Index& i) {
                  return Index{std::clamp<int64_t>(i[0] - 2, 0, 2), std::clamp<int64_t>(i[1], 0, 3)};
                }},
               {"circular",
                [](V x) {
                  return esp::pad(x, {{2, 1}, {0, 4}}, {.mode = PadMode::circular});
                },
                {3, 4},
                {6, 8},
                [](const Index& i) {
                  return Index{(i[0] + 1) % 3, i[1] % 4};
                }}});
  BOOST_TEST(doubles(esp::pad(esp::tensor({1.0, 2.0}), {{1, 1}}, {.value = -7})) == (List{-7, 1, 2, -7}));
  BOOST_TEST(esp::pad(esp::tensor({1, 2}), {{0, 1}}, {.value = 3}).value().at<int64_t>({2}) == 3);
}

BOOST_AUTO_TEST_CASE(repeats) {
  check_moved({{"tile",
                [](V x) {
                  return esp::tile(x, {2, 3});
                },
                {2, 3},
                {4, 9},
                [](const Index& i) {
                  return Index{i[0] % 2, i[1] % 3};
                }},
               {"tile the last axis",
                [](V x) { return esp::tile(x, {2}); },
                {2, 3},
                {2, 6},
                [](const Index& i) {
                  return Index{i[0], i[1] % 3};
                }},
               {"tile to more axes",
                [](V x) {
                  return esp::tile(x, {2, 1, 2});
                },
                {2, 3},
                {2, 2, 6},
                [](const Index& i) {
                  return Index{i[1], i[2] % 3};
                }},
               {"tile no time",
                [](V x) {
                  return esp::tile(x, {0, 2});
                },
                {2, 3},
                {0, 6},
                [](const Index& i) { return i; }},
               {"repeat_interleave",
                [](V x) { return esp::repeat_interleave(x, 3, 0); },
                {2, 3},
                {6, 3},
                [](const Index& i) {
                  return Index{i[0] / 3, i[1]};
                }},
               {"repeat_interleave by counts",
                [](V x) {
                  return esp::repeat_interleave(x, esp::tensor({2, 0, 1}).to(x.device()), -1);
                },
                {2, 3},
                {2, 3},
                [](const Index& i) {
                  return Index{i[0], i[1] < 2 ? 0 : 2};
                }},
               {"repeat_on_axis",
                [](V x) { return esp::repeat_on_axis(x, 3, 1); },
                {2, 2},
                {2, 3, 2},
                [](const Index& i) {
                  return Index{i[0], i[2]};
                }}});
}

BOOST_AUTO_TEST_CASE(parts) {
  const esp::Variable x = numbers({5, 2});
  const auto sizes = [](const std::vector<esp::Variable>& parts) {
    std::vector<int64_t> list;
    for (const esp::Variable& part : parts) list.push_back(part.shape()[0]);
    return list;
  };
  using Sizes = std::vector<int64_t>;
  BOOST_TEST(sizes(esp::split(x, 2)) == (Sizes{2, 2, 1}));
  BOOST_TEST(sizes(esp::split(x, {1, 0, 4})) == (Sizes{1, 0, 4}));
  BOOST_TEST(sizes(esp::chunk(x, 2)) == (Sizes{3, 2}));
  BOOST_TEST(sizes(esp::chunk(x, 4)) == (Sizes{2, 2, 1}));
  BOOST_TEST(sizes(esp::split(esp::zeros({0, 2}), 3)) == (Sizes{0}));
  const auto columns = esp::unbind(x, 1);
  BOOST_TEST(columns.size() == 2u);
  BOOST_TEST(difference(columns[1].value(), esp::slice(x, 1, 1, 2).value().reshape({5})) == 0);
  BOOST_TEST(difference(esp::concat(esp::split(x, 2)).value(), x.value()) == 0);
  check_op({.name = "unbind",
            .op =
                [](const Variables& v) {
                  const auto rows = esp::unbind(v[0]);
                  if (rows.empty()) throw esp::ShapeError("there is no row");
                  return rows[0] * rows[2];
                },
            .inputs = {numbers({3, 2})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2}, [&](const Index& i) { return in[0]({0, i[0]}) * in[0]({2, i[0]}); });
                }});
}

BOOST_AUTO_TEST_CASE(grids) {
  for (const auto indexing : {esp::MeshIndexing::ij, esp::MeshIndexing::xy}) {
    const bool xy = indexing == esp::MeshIndexing::xy;
    for (const size_t which : {0, 1, 2})
      check_op({.name = "meshgrid",
                .op = [=](const Variables& x) { return esp::meshgrid(x, indexing)[which] * 1.0; },
                .inputs = {numbers({2}), numbers({3}, -2, 2, 1), numbers({2}, -2, 2, 2)},
                .reference =
                    [=](const std::vector<Array>& in) {
                      return Array(xy ? esp::Shape{3, 2, 2} : esp::Shape{2, 3, 2}, [&](const Index& i) {
                        return in[which]({i[xy && which < 2 ? 1 - which : which]});
                      });
                    },
                .differentiable = {which}});
  }
  const auto both = esp::broadcast_tensors({esp::ones({3, 1}), esp::ones({2})});
  BOOST_TEST(both[1].shape() == esp::Shape({3, 2}));
}

BOOST_AUTO_TEST_CASE(orders_of_axes) {
  check_moved({{"permute",
                [](V x) {
                  return esp::permute(x, {2, 0, 1});
                },
                {2, 3, 4},
                {4, 2, 3},
                [](const Index& i) {
                  return Index{i[1], i[2], i[0]};
                }},
               {"movedim",
                [](V x) { return esp::movedim(x, 0, -1); },
                {2, 3, 4},
                {3, 4, 2},
                [](const Index& i) {
                  return Index{i[2], i[0], i[1]};
                }},
               {"movedim",
                [](V x) {
                  return esp::movedim(x, {0, 1}, {2, 0});
                },
                {2, 3, 4},
                {3, 4, 2},
                [](const Index& i) {
                  return Index{i[2], i[0], i[1]};
                }},
               {"swapaxes",
                [](V x) { return esp::swapaxes(x, 0, -1); },
                {2, 3, 4},
                {4, 3, 2},
                [](const Index& i) {
                  return Index{i[2], i[1], i[0]};
                }},
               {"unflatten",
                [](V x) {
                  return esp::unflatten(x, 1, {2, -1});
                },
                {2, 6},
                {2, 2, 3},
                [](const Index& i) {
                  return Index{i[0], 3 * i[1] + i[2]};
                }},
               {"merge_axes",
                [](V x) {
                  return esp::merge_axes(esp::transpose(x), {2, 1});
                },
                {2, 3, 2},
                {4, 3},
                [](const Index& i) {
                  return Index{i[0] / 2, i[1], i[0] % 2};
                }},
               {"atleast_3d",
                [](V x) { return esp::atleast_3d(x); },
                {3},
                {1, 3, 1},
                [](const Index& i) { return Index{i[1]}; }}});
  BOOST_TEST(esp::atleast_1d(1.0).shape() == esp::Shape({1}));
  BOOST_TEST(esp::atleast_2d(esp::ones({3})).shape() == esp::Shape({1, 3}));
  BOOST_TEST(esp::atleast_3d(esp::ones({3, 2})).shape() == esp::Shape({3, 2, 1}));
}

BOOST_AUTO_TEST_CASE(short_batches_of_a_plan) {
  const esp::Variable x = esp::placeholder("x", {4, 6}, esp::float64);
  struct Case {
    std::string name;
    std::function<esp::Variable(V)> op;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"slice", [](V v) { return esp::slice(v, 0, -1, esp::open_end, -2); }},
           {"flip", [](V v) { return esp::flip(v); }},
           {"roll", [](V v) { return esp::roll(v, 3, 0); }},
           {"pad",
            [](V v) {
              return esp::pad(v, {{1, 2}, {-1, 3}});
            }},
           {"circular",
            [](V v) {
              return esp::pad(v, {{2, 1}, {0, 3}}, {.mode = PadMode::circular});
            }},
           {"tile",
            [](V v) {
              return esp::tile(v, {3, 2});
            }},
           {"interleave", [](V v) { return esp::repeat_interleave(v, 3, 0); }},
           {"unflatten",
            [](V v) {
              return esp::unflatten(v, 1, {2, -1});
            }},
           {"grid", [](V v) {
              return esp::meshgrid({esp::squeeze(esp::slice(v, 1, 0, 1), 1), esp::tensor({1.0, 2.0})})[0] *
                     1.0;
            }}}) {
    BOOST_TEST_CONTEXT(c.name) {
      const esp::Executor executor = c.op(x).get_executor();
      for (const int64_t rows : {4, 2, 3}) {
        const esp::Tensor some = numbers({rows, 6});
        BOOST_TEST(difference(c.op(some).value(), executor.run({{"x", some}})) == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(esp::slice(x, 0, 0, 3, 0), esp::Error, says({"slice", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 1, 0, 5, 2), esp::IndexError, says({"slice", "5", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 0, 3, 0, -1), esp::IndexError, says({"slice", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 0, 4, esp::open_end), esp::IndexError,
                        says({"slice", "the end", here()}));
  BOOST_CHECK_EXCEPTION(esp::flip(x, 2), esp::ShapeError, says({"flip", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::roll(x, 1, 2), esp::ShapeError, says({"roll", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::pad(x, {{1, 1}, {1, 1}, {1, 1}}), esp::ShapeError,
                        says({"pad", "3", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::pad(x, {{3, 0}, {0, 0}}, {.mode = PadMode::reflect}), esp::ShapeError,
                        says({"pad", "[3, 4]", "reflect", here()}));
  BOOST_CHECK_EXCEPTION(esp::pad(x, {{0, 5}}, {.mode = PadMode::circular}), esp::ShapeError,
                        says({"pad", "[3, 4]", "circular", here()}));
  BOOST_CHECK_EXCEPTION(esp::pad(esp::zeros({0}), {{0, 1}}, {.mode = PadMode::replicate}), esp::ShapeError,
                        says({"pad", "[0]", "replicate", here()}));
  BOOST_CHECK_EXCEPTION(esp::pad(x, {{-3, -2}}), esp::ShapeError, says({"pad", "3", "2", here()}));
  BOOST_CHECK_EXCEPTION(esp::pad(esp::tensor({1}), {{1, 1}}, {.value = 0.5}), esp::TypeError,
                        says({"0.5", here()}));
  BOOST_CHECK_EXCEPTION(esp::tile(x, {-1}), esp::ShapeError, says({"tile", "-1", here()}));
  BOOST_TEST(difference(esp::repeat_interleave(x, esp::tensor({2}), 0).value(),
                        esp::repeat_interleave(x, 2, 0).value()) == 0);
  BOOST_CHECK_EXCEPTION(esp::repeat_interleave(x, -1, 0), esp::ShapeError,
                        says({"repeat_interleave", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::repeat_interleave(x, esp::tensor({1, 2}), 0), esp::ShapeError,
                        says({"repeat_interleave", "[2]", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::repeat_interleave(x, esp::tensor({1, -2, 0}), 0), esp::Error,
                        says({"repeat_interleave", "-2", here()}));
  BOOST_CHECK_EXCEPTION(esp::repeat_interleave(x, esp::placeholder("n", {3}, esp::int64), 0),
                        esp::UnsupportedError, says({"repeat_interleave", "values", here()}));
  BOOST_CHECK_EXCEPTION(esp::split(x, 0), esp::Error, says({"split", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::split(x, {1, 1}), esp::ShapeError, says({"split", "[1, 1]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::chunk(x, 0), esp::Error, says({"chunk", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::unbind(x, 2), esp::ShapeError, says({"unbind", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::meshgrid({x}), esp::ShapeError, says({"meshgrid", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::broadcast_tensors({x, esp::ones({3})}), esp::ShapeError,
                        says({"broadcast_tensors", "[3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::movedim(x, {0, 1}, {0}), esp::ShapeError, says({"movedim", here()}));
  BOOST_CHECK_EXCEPTION(esp::swapaxes(x, 0, 2), esp::ShapeError, says({"swapaxes", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::unflatten(x, 1, {3, -1}), esp::ShapeError,
                        says({"unflatten", "[3, -1]", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
