// x[…], comparisons as operators, and operations as methods.
#include "espalier/core/subscript.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "moved_elements.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::ellipsis, esp::end, esp::new_axis, esp::range;
using V = const esp::Variable&;

BOOST_AUTO_TEST_SUITE(subscript)

BOOST_AUTO_TEST_CASE(moves_elements) {
  const esp::Tensor at = esp::tensor({2, 0, -1});
  check_moved({
      {"x[1]",
       [](V x) { return x[1]; },
       {3, 4},
       {4},
       [](const Index& i) {
         return Index{1, i[0]};
       }},
      {"x[-1]",
       [](V x) { return x[-1]; },
       {3, 4},
       {4},
       [](const Index& i) {
         return Index{2, i[0]};
       }},
      {"x[{1, 2}]",
       [](V x) {
         return x[{1, 2}];
       },
       {3, 4},
       {},
       [](const Index&) {
         return Index{1, 2};
       }},
      {"x[{}]", [](V x) { return x[{}]; }, {2, 3}, {2, 3}, [](const Index& i) { return i; }},
      {"x[range]",
       [](V x) { return x[range(1, 3)]; },
       {4, 2},
       {2, 2},
       [](const Index& i) {
         return Index{i[0] + 1, i[1]};
       }},
      {"x[range to the end]",
       [](V x) { return x[range(-2, end)]; },
       {4, 2},
       {2, 2},
       [](const Index& i) {
         return Index{i[0] + 2, i[1]};
       }},
      {"x[range backwards]",
       [](V x) {
         return x[{range(), range(-1, end, -2)}];
       },
       {2, 5},
       {2, 3},
       [](const Index& i) {
         return Index{i[0], 4 - 2 * i[1]};
       }},
      {"x[{0, {}, range}]",
       [](V x) {
         return x[{0, {}, range(1, end)}];
       },
       {2, 3, 3},
       {3, 2},
       [](const Index& i) {
         return Index{0, i[0], i[1] + 1};
       }},
      {"x[{ellipsis, 1}]",
       [](V x) {
         return x[{ellipsis, 1}];
       },
       {2, 3, 2},
       {2, 3},
       [](const Index& i) {
         return Index{i[0], i[1], 1};
       }},
      {"x[{0, ellipsis, new_axis, -1}]",
       [](V x) {
         return x[{0, ellipsis, new_axis, -1}];
       },
       {2, 3, 2},
       {3, 1},
       [](const Index& i) {
         return Index{0, i[0], 1};
       }},
      {"x[{all, 1}]",
       [](V x) {
         return x[{esp::all, 1}];
       },
       {2, 3},
       {2},
       [](const Index& i) {
         return Index{i[0], 1};
       }},
      {"x[all]", [](V x) { return x[esp::all]; }, {2, 3}, {2, 3}, [](const Index& i) { return i; }},
      {"x[{new_axis, ellipsis}]",
       [](V x) {
         return x[{new_axis, ellipsis}];
       },
       {2},
       {1, 2},
       [](const Index& i) { return Index{i[1]}; }},
      {"x[indices]",
       [=](V x) { return x[at.to(x.device())]; },
       {3, 2},
       {3, 2},
       [](const Index& i) {
         return Index{i[0] == 1 ? 0 : 2, i[1]};
       }},
      {"x[{range, indices, 0}]",
       [=](V x) {
         return x[{range(0, 1), at.to(x.device()), 0}];
       },
       {2, 3, 2},
       {1, 3},
       [](const Index& i) {
         return Index{0, i[1] == 1 ? 0 : 2, 0};
       }},
      {"x[mask]",
       [](V x) {
         return x[esp::Tensor(esp::tensor({{true, false}, {true, true}}).to(x.device()))];
       },
       {2, 2, 2},
       {3, 2},
       [](const Index& i) {
         return Index{i[0] == 0 ? 0 : 1, i[0] == 1 ? 0 : i[0] / 2, i[1]};
       }},
  });
  const esp::Variable x = numbers({3, 4});
  BOOST_TEST(x[1].value().storage().get() == x.value().storage().get());
  const esp::Variable seen = x[{range(), new_axis, 2}];
  BOOST_TEST(seen.value().storage().get() == x.value().storage().get());
}

BOOST_AUTO_TEST_CASE(short_batches_of_a_plan) {
  const esp::Variable x = esp::placeholder("x", {4, 3}, esp::float64);
  for (const auto op : {+[](V v) { return v[-1]; }, +[](V v) { return v[range(1, end)]; },
                        +[](V v) {
                          return v[{range(-1, end, -1), 0}];
                        }}) {
    const esp::Executor executor = op(x).get_executor();
    for (const int64_t rows : {4, 2}) {
      const esp::Tensor some = numbers({rows, 3});
      BOOST_TEST(difference(op(some).value(), executor.run({{"x", some}})) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(operators) {
  const esp::Variable a = esp::tensor({1, 2, 3}), b = esp::tensor({3, 2, 1});
  const auto flags = [](V x) { return Array(x.value()).values; };
  using List = std::vector<double>;
  BOOST_TEST(flags(a < b) == (List{1, 0, 0}));
  BOOST_TEST(flags(a <= 2) == (List{1, 1, 0}));
  BOOST_TEST(flags(a > b) == (List{0, 0, 1}));
  BOOST_TEST(flags(2 >= a) == (List{1, 1, 0}));
  BOOST_TEST(flags(a > 1 && b > 1) == (List{0, 1, 0}));
  BOOST_TEST(flags(a > 2 || b > 2) == (List{1, 0, 1}));
  BOOST_TEST(flags(!(a > 1)) == (List{1, 0, 0}));
  BOOST_TEST(flags(-a % 2) == (List{1, 0, 1}));
  BOOST_TEST((a < b).dtype() == esp::boolean);
}

BOOST_AUTO_TEST_CASE(methods) {
  const esp::Variable x = numbers({2, 3}, 0.5, 2);
  const auto same = [](V a, V b) { return a.shape() == b.shape() && difference(a.value(), b.value()) == 0; };
  BOOST_TEST(same(x.sum(1), esp::sum(x, 1)));
  BOOST_TEST(same(x.mean(), esp::mean(x)));
  BOOST_TEST(same(x.max(0, true), esp::max(x, 0, true)));
  BOOST_TEST(same(x.min({0, 1}), esp::min(x)));
  BOOST_TEST(same(x.argmax(), esp::argmax(x)));
  BOOST_TEST(same(x.reshape({3, -1}), esp::reshape(x, {3, 2})));
  BOOST_TEST(same(x.flatten(), esp::flatten(x)));
  BOOST_TEST(same(x.transpose(), esp::transpose(x)));
  BOOST_TEST(same(x.permute({1, 0}), esp::transpose(x)));
  BOOST_TEST(same(x.unsqueeze(0).squeeze(), x));
  BOOST_TEST(x.cast(esp::int32).dtype() == esp::int32);
  BOOST_TEST(same(x.abs().sqrt().square(), esp::square(esp::sqrt(esp::abs(x)))));
  BOOST_TEST(same(x.exp().log(), esp::log(esp::exp(x))));
  BOOST_TEST(same(x.relu().sigmoid().tanh(), esp::tanh(esp::sigmoid(esp::relu(x)))));
  const esp::Variable w = esp::variable(2.0);
  BOOST_TEST((w * w.detach()).gradient(w).item() == 2);
}

BOOST_AUTO_TEST_CASE(mistakes_name_shapes_and_line) {
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(x[3], esp::IndexError, says({"3", "axis 0", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION((x[{0, -5}]), esp::IndexError, says({"-5", "[4]", here()}));
  BOOST_CHECK_EXCEPTION((x[{0, 0, 0}]), esp::IndexError, says({"3", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION((x[{ellipsis, ellipsis}]), esp::IndexError, says({"ellipsis", here()}));
  BOOST_CHECK_EXCEPTION(x[esp::any], esp::Error, says({"function", "all", here()}));
  BOOST_CHECK_EXCEPTION(x[range(0, 5)], esp::IndexError, says({"5", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(x[range(1, 0)], esp::IndexError,
                        says({"no steps of 1", "from 1 to 0", "axis 0", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(x[range(0, 2, -1)], esp::IndexError, says({"no steps of -1", "from 0 to 2", here()}));
  BOOST_CHECK_EXCEPTION(x[range(0, end, 0)], esp::Error, says({"0", here()}));
  BOOST_CHECK_EXCEPTION(x[esp::tensor({7})], esp::IndexError, says({"7", here()}));
  BOOST_CHECK_EXCEPTION(x[esp::tensor({0.5})], esp::TypeError, says({"float32", here()}));
  BOOST_CHECK_EXCEPTION(x[esp::tensor({true, false})], esp::ShapeError, says({"[2]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION((x[{esp::tensor({0}), new_axis, esp::tensor({1})}]), esp::UnsupportedError,
                        says({"side by side", "take_along_axis", here()}));
  BOOST_CHECK_EXCEPTION((x[{esp::tensor({0}), esp::tensor({true, false, true, false})}]),
                        esp::UnsupportedError, says({"integers", here()}));
  BOOST_CHECK_EXCEPTION((x[{esp::tensor({0}), esp::tensor({4})}]), esp::IndexError,
                        says({"[]", "4", here()}));
  BOOST_CHECK_EXCEPTION((x[{esp::tensor({0, 1}), esp::tensor({1, 2, 0})}]), esp::ShapeError,
                        says({"[2]", "[3]", here()}));
  BOOST_CHECK_EXCEPTION((x[{esp::tensor({0.5}), esp::tensor({1})}]), esp::TypeError,
                        says({"[]", "float32", here()}));
  BOOST_CHECK_EXCEPTION(x[esp::Variable()], esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(esp::Variable()[0], esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(x.sum(2), esp::ShapeError, says({"sum", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(x.reshape({5}), esp::ShapeError, says({"reshape", "[5]", here()}));
  const esp::Variable fed = esp::placeholder("x", {3});
  BOOST_CHECK_EXCEPTION(fed[fed > 0], esp::UnsupportedError, says({"where()", here()}));
}

BOOST_AUTO_TEST_CASE(tensors_side_by_side_are_coordinates) {
  const esp::Tensor rows = esp::tensor({2, 0, -1}), columns = esp::tensor({1, 3, 0});
  check_moved({
      {"x[{rows, columns}]",
       [=](V x) {
         return x[{rows.to(x.device()), columns.to(x.device())}];
       },
       {3, 4},
       {3},
       [](const Index& i) {
         const int64_t row[] = {2, 0, 2}, column[] = {1, 3, 0};
         return Index{row[i[0]], column[i[0]]};
       }},
      {"x[{rows, columns}] with axes behind",
       [=](V x) {
         return x[{rows.to(x.device()), columns.to(x.device())}];
       },
       {3, 4, 2},
       {3, 2},
       [](const Index& i) {
         const int64_t row[] = {2, 0, 2}, column[] = {1, 3, 0};
         return Index{row[i[0]], column[i[0]], i[1]};
       }},
      {"x[{range(), rows, columns, 1}]",
       [=](V x) {
         return x[{range(), rows.to(x.device()), columns.to(x.device()), 1}];
       },
       {2, 3, 4, 2},
       {2, 3},
       [](const Index& i) {
         const int64_t row[] = {2, 0, 2}, column[] = {1, 3, 0};
         return Index{i[0], row[i[1]], column[i[1]], 1};
       }},
      {"coordinates are broadcast",
       [=](V x) {
         return x[{esp::unsqueeze(rows.to(x.device()), 1), columns.to(x.device()), ellipsis}];
       },
       {3, 4, 2},
       {3, 3, 2},
       [](const Index& i) {
         const int64_t row[] = {2, 0, 2}, column[] = {1, 3, 0};
         return Index{row[i[0]], column[i[1]], i[2]};
       }},
  });
}

BOOST_AUTO_TEST_CASE(mistakes_in_coordinates_name_the_brackets) {
  const esp::Variable x = esp::zeros({4, 5});
  const auto without_variable = [](const std::exception& error) {
    return std::string(error.what()).find("Variable") == std::string::npos &&
           std::string(error.what()).starts_with("[]: ");
  };
  const esp::Tensor outside = esp::tensor({9}), first = esp::tensor({0});
  BOOST_CHECK_EXCEPTION((x[{outside, first}]), esp::IndexError, without_variable);
  BOOST_CHECK_EXCEPTION((x[{outside, first}]), esp::IndexError, says({"index 9", "size 4", here()}));
  const esp::Tensor two = esp::tensor({0, 1}), three = esp::tensor({0, 1, 2});
  BOOST_CHECK_EXCEPTION((x[{two, three}]), esp::ShapeError, without_variable);
  BOOST_CHECK_EXCEPTION((x[{two, three}]), esp::ShapeError, says({"[2]", "[3]", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
