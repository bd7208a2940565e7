// Views, concatenation and slices.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// The elements in row-major order, in another shape.
Reference reshaped(const esp::Shape& shape) {
  return [=](const std::vector<Array>& in) {
    size_t next = 0;
    return Array(shape, [&](const Index&) { return in[0].values.at(next++); });
  };
}

bool shares(const esp::Variable& a, const esp::Variable& b) {
  return a.value().storage().get() == b.value().storage().get();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(view)

BOOST_AUTO_TEST_CASE(same_order_other_shape) {
  struct Row {
    const char* name;
    std::function<esp::Variable(const esp::Variable&)> op;
    esp::Shape from, to;
  };
  using V = const esp::Variable&;
  const Row rows[] = {
      {"reshape",
       [](V x) {
         return esp::reshape(x, {3, 4});
       },
       {2, 6},
       {3, 4}},
      {"reshape",
       [](V x) {
         return esp::reshape(x, {-1, 2});
       },
       {2, 6},
       {6, 2}},
      {"reshape", [](V x) { return esp::reshape(x, {}); }, {1, 1}, {}},
      {"reshape",
       [](V x) {
         return esp::reshape(x, {1, -1});
       },
       {},
       {1, 1}},
      {"reshape",
       [](V x) {
         return esp::reshape(x, {3, 0});
       },
       {0, 5},
       {3, 0}},
      {"flatten", [](V x) { return esp::flatten(x); }, {2, 3, 2}, {12}},
      {"flatten", [](V x) { return esp::flatten(x, 1); }, {2, 3, 2}, {2, 6}},
      {"flatten", [](V x) { return esp::flatten(x, -1); }, {2, 3, 2}, {2, 3, 2}},
      {"flatten", [](V x) { return esp::flatten(x); }, {}, {1}},
      {"flatten", [](V x) { return esp::flatten(x, 1); }, {2, 0, 2}, {2, 0}},
      {"squeeze", [](V x) { return esp::squeeze(x); }, {1, 3, 1, 2}, {3, 2}},
      {"squeeze",
       [](V x) {
         return esp::squeeze(x, {0, -2});
       },
       {1, 3, 1, 2},
       {3, 2}},
      {"squeeze", [](V x) { return esp::squeeze(x, 2); }, {1, 3, 1, 2}, {1, 3, 2}},
      {"squeeze", [](V x) { return esp::squeeze(x); }, {}, {}},
      {"unsqueeze", [](V x) { return esp::unsqueeze(x, 1); }, {3, 2}, {3, 1, 2}},
      {"unsqueeze", [](V x) { return esp::unsqueeze(x, -1); }, {3, 2}, {3, 2, 1}},
      {"unsqueeze", [](V x) { return esp::unsqueeze(x, 0); }, {}, {1}},
      {"unsqueeze_axes",
       [](V x) {
         return esp::unsqueeze_axes(x, {0, 2});
       },
       {3, 2},
       {1, 3, 1, 2}},
      {"reshape_like",
       [](V x) {
         return esp::reshape_like(x, esp::Variable(esp::zeros({4, 3})));
       },
       {2, 6},
       {4, 3}},
  };
  for (const Row& row : rows)
    check_op({.name = row.name,
              .op = [&](const Variables& x) { return row.op(x[0]); },
              .inputs = {numbers(row.from)},
              .reference = reshaped(row.to)});
}

BOOST_AUTO_TEST_CASE(other_orders) {
  check_op({.name = "transpose",
            .op = [](const Variables& x) { return esp::transpose(x[0]); },
            .inputs = {numbers({2, 3, 4})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 4, 3}, [&](const Index& i) { return in[0]({i[0], i[2], i[1]}); });
                }});
  check_op({.name = "transpose",
            .op =
                [](const Variables& x) {
                  return esp::transpose(x[0], {2, 0, -2});
                },
            .inputs = {numbers({2, 3, 4})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({4, 2, 3}, [&](const Index& i) { return in[0]({i[1], i[2], i[0]}); });
                }});
  for (const esp::Shape& shape : {esp::Shape{}, {3}, {0}})
    check_op({.name = "transpose",
              .op = [](const Variables& x) { return esp::transpose(x[0]); },
              .inputs = {numbers(shape)},
              .reference = reshaped(shape)});
}

BOOST_AUTO_TEST_CASE(repeated) {
  const Reference repeat = [](const std::vector<Array>& in) {
    return Array({4, 2, 3}, [&](const Index& i) { return in[0](i); });
  };
  for (const esp::Shape& shape : {esp::Shape{}, {3}, {2, 1}, {1, 1, 1}, {4, 2, 3}}) {
    check_op({.name = "broadcast_to",
              .op =
                  [](const Variables& x) {
                    return esp::broadcast_to(x[0], {4, 2, 3});
                  },
              .inputs = {numbers(shape)},
              .reference = repeat});
    check_op({.name = "expand_as",
              .op = [](const Variables& x) { return esp::expand_as(x[0], x[1]); },
              .inputs = {numbers(shape), numbers({4, 2, 3})},
              .reference = repeat,
              .differentiable = {0}});
  }
  BOOST_TEST(esp::broadcast_to(esp::ones({1, 3}), {0, 3}).shape() == esp::Shape({0, 3}));
}

BOOST_AUTO_TEST_CASE(parts) {
  struct Row {
    int64_t axis, begin, end, first, size;
  };
  for (const Row& r :
       {Row{1, 1, 3, 1, 2}, {-1, -2, 4, 2, 2}, {1, 0, -1, 0, 3}, {1, 2, 2, 2, 0}, {1, -4, -1, 0, 3}}) {
    check_op({.name = "slice",
              .op = [&](const Variables& x) { return esp::slice(x[0], r.axis, r.begin, r.end); },
              .inputs = {numbers({3, 4})},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array({3, r.size}, [&](const Index& i) { return in[0]({i[0], i[1] + r.first}); });
                  }});
    check_op({.name = "pad_like",
              .op = [&](const Variables& x) { return esp::pad_like(x[0], x[1], r.axis, r.begin); },
              .inputs = {numbers({3, r.size}), numbers({3, 4})},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array({3, 4}, [&](const Index& i) {
                      const bool inside = i[1] >= r.first && i[1] < r.first + r.size;
                      return inside ? in[0]({i[0], i[1] - r.first}) : 0;
                    });
                  },
              .differentiable = {0}});
  }
  check_op({.name = "slice",
            .op = [](const Variables& x) { return esp::slice(x[0], 0, 1, 3); },
            .inputs = {numbers({3, 2, 2})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 2, 2}, [&](const Index& i) { return in[0]({i[0] + 1, i[1], i[2]}); });
                }});
}

BOOST_AUTO_TEST_CASE(together) {
  for (int64_t axis : {0, 1, -1}) {
    const size_t a = axis == 0 ? 0 : 1;
    esp::Shape one{3, 3}, two{3, 3}, none{3, 3}, all{3, 3};
    one.dims()[a] = 1, two.dims()[a] = 2, none.dims()[a] = 0;
    const std::vector<esp::Tensor> parts = {numbers(two), numbers(none), numbers(one, -2, 2, 1)};
    check_op({.name = "concat",
              .op = [&](const Variables& x) { return esp::concat(x, axis); },
              .inputs = parts,
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array(all, [&](Index i) {
                      if (i[a] < 2) return in[0](i);
                      i[a] = 0;
                      return in[2](i);
                    });
                  }});
    check_op({.name = "concat_part",
              .op =
                  [&](const Variables& x) {
                    Variables like;
                    for (const esp::Tensor& part : parts)
                      like.emplace_back(part.to(x[0].dtype()).to(x[0].device()));
                    return esp::concat_part(x[0], like, 2, axis);
                  },
              .inputs = {numbers(all)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array(one, [&](Index i) {
                      i[a] = 2;
                      return in[0](i);
                    });
                  }});
  }
  check_op({.name = "concat of one variable twice",
            .op =
                [](const Variables& x) {
                  return esp::concat({x[0], x[0]});
                },
            .inputs = {numbers({2})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({4}, [&](const Index& i) { return in[0]({i[0] % 2}); });
                }});
  for (int64_t axis : {0, 1, 2, -1, -2, -3}) {
    const size_t a = static_cast<size_t>(axis < 0 ? axis + 3 : axis);
    std::vector<int64_t> shape{2, 3};
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(a), 2);
    check_op({.name = "stack",
              .op = [&](const Variables& x) { return esp::stack(x, axis); },
              .inputs = {numbers({2, 3}), numbers({2, 3}, -2, 2, 1)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array(shape, [&](Index i) {
                      const auto which = static_cast<size_t>(i[a]);
                      i.erase(i.begin() + static_cast<std::ptrdiff_t>(a));
                      return in[which](i);
                    });
                  }});
  }
  check_op({.name = "stack of scalars",
            .op = [](const Variables& x) { return esp::stack(x); },
            .inputs = {numbers({}), numbers({}, -2, 2, 1)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2}, [&](const Index& i) { return in[static_cast<size_t>(i[0])].values[0]; });
                }});
}

BOOST_AUTO_TEST_CASE(more_inputs_than_a_word_has_bits) {
  Variables parts;
  for (int i = 0; i < 100; ++i)
    parts.push_back(i % 3 ? esp::variable({float(i)}) : esp::Variable(esp::full({1}, i)));
  const esp::Variable last = parts.back(), twice = last * 2;
  parts.push_back(twice);
  const esp::Variable y = esp::sum(esp::square(esp::concat(parts)));
  for (size_t i = 0; i < 99; ++i) BOOST_TEST(y.gradient(parts[i]).item() == 2.0 * static_cast<double>(i));
  BOOST_TEST(y.gradient(last).item() == 99 * 2 + 99 * 2 * 2 * 2);
  BOOST_TEST(y.gradient(twice).item() == 99 * 2 * 2);
  BOOST_TEST(y.gradient(last).gradient(last).item() == 2 + 8);
  const esp::Variable x = esp::variable({2.0f});
  BOOST_TEST(esp::sum(esp::square(esp::concat(Variables(100, x)))).gradient(x).item() == 400);
}

BOOST_AUTO_TEST_CASE(integers_and_bools_have_layouts_too) {
  const esp::Variable flags = esp::tensor({{true, false}, {false, false}});
  BOOST_TEST(esp::concat({flags, esp::transpose(flags)}).value().at<bool>({2, 0}));
  BOOST_TEST(esp::slice(flags, 1, 1, 2).dtype() == esp::boolean);
  BOOST_TEST(esp::reshape(esp::arange(6, esp::int32), {2, 3}).value().at<int32_t>({1, 0}) == 3);
}

BOOST_AUTO_TEST_CASE(buffers_are_shared_where_strides_allow_it) {
  const esp::Variable x = numbers({2, 3, 4});
  BOOST_TEST(shares(esp::transpose(x), x));
  BOOST_TEST(shares(esp::reshape(x, {6, 4}), x));
  BOOST_TEST(shares(esp::slice(x, 1, 0, 2), x));
  BOOST_TEST(shares(esp::broadcast_to(x, {5, 2, 3, 4}), x));
  BOOST_TEST(shares(esp::squeeze(esp::unsqueeze(esp::transpose(x), 0)), x));
  BOOST_TEST(!shares(esp::reshape(esp::transpose(x), {24}), x));
  // An axis of a slice can be split, and adjacent axes with matching strides can be merged.
  const esp::Variable part = esp::slice(x, 2, 1, 3);  // [2, 3, 2], 4 apart
  BOOST_TEST(shares(esp::reshape(part, {6, 2}), x));
  BOOST_TEST(shares(esp::reshape(part, {3, 1, 2, 2, 1}), x));
  BOOST_TEST(esp::reshape(part, {3, 2, 2}).value().at<double>({1, 0, 1}) ==
             part.value().at<double>({0, 2, 1}));
  BOOST_TEST(!shares(esp::reshape(part, {12}), x));
  BOOST_TEST(!shares(esp::reshape(part, {2, 6}), x));
}

BOOST_AUTO_TEST_CASE(another_shape_keeps_the_order_of_the_elements) {
  std::mt19937 random(1);
  const auto offsets = [](const esp::Layout& layout) {
    std::vector<int64_t> list;
    each_index(layout.shape, [&](const Index& index) {
      int64_t at = layout.offset;
      for (size_t i = 0; i < index.size(); ++i) at += index[i] * layout.strides[i];
      list.push_back(at);
    });
    return list;
  };
  int views = 0, copies = 0;
  for (int round = 0; round < 3000; ++round) {
    esp::Tensor x = numbers({2, 3, 4, 2});
    if (random() % 2)
      x = x.slice(static_cast<int64_t>(random() % 4), 0, 1 + static_cast<int64_t>(random() % 2));
    if (random() % 2) x = x.slice(static_cast<int64_t>(random() % 4), 0, 1);
    std::vector<int64_t> order{0, 1, 2, 3}, sizes;
    if (random() % 3 == 0) std::shuffle(order.begin(), order.end(), random);
    x = esp::transpose(x, order).value();
    if (random() % 4 == 0)
      x = esp::broadcast_to(x, esp::Shape{3, x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]}).value();
    for (int64_t left = x.elements(); left > 1;) {
      int64_t size = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(left));
      while (left % size) --size;
      sizes.push_back(size);
      left /= size;
      if (sizes.size() == 5) sizes.back() *= left, left = 1;
    }
    std::shuffle(sizes.begin(), sizes.end(), random);
    const esp::Shape to(esp::Dims(sizes.begin(), sizes.end()));
    esp::Layout result;
    const bool is_view = esp::reshape_layout(x.layout(), to, result);
    ++(is_view ? views : copies);
    if (is_view) BOOST_TEST(offsets(result) == offsets(x.layout()));
    if (is_view) BOOST_TEST((result.shape == to));
    if (to == x.shape()) BOOST_TEST(is_view);
  }
  BOOST_TEST(views > 500);
  BOOST_TEST(copies > 500);
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_shapes_and_line) {
  const esp::Variable x = esp::ones({2, 6});
  BOOST_CHECK_EXCEPTION(esp::reshape(x, {5, -1}), esp::ShapeError,
                        says({"reshape", "12", "[5, -1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::reshape(x, {-1, -1}), esp::ShapeError, says({"reshape", "[-1, -1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::reshape(x, {-2, 6}), esp::ShapeError, says({"reshape", "[-2, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::reshape(x, {0, -1}), esp::ShapeError, says({"reshape", "[0, -1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::flatten(x, 2), esp::ShapeError, says({"flatten", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::flatten(1.5, 3), esp::ShapeError, says({"flatten", "axis 3", here()}));
  constexpr int64_t huge = int64_t{1} << 62;
  BOOST_CHECK_EXCEPTION(esp::broadcast_to(1.5, {huge, 4}), esp::ShapeError, says({"64 bits", here()}));
  const esp::Variable long_one = esp::broadcast_to(1.5, {huge});
  BOOST_CHECK_EXCEPTION(esp::concat({long_one, long_one}), esp::ShapeError,
                        says({"concat", "64 bits", here()}));
  BOOST_CHECK_EXCEPTION(esp::stack({long_one, long_one}), esp::ShapeError,
                        says({"stack", "64 bits", here()}));
  BOOST_CHECK_EXCEPTION(esp::transpose(x, {0}), esp::ShapeError, says({"transpose", "[2, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::transpose(x, {0, 0}), esp::ShapeError, says({"transpose", "twice", here()}));
  BOOST_CHECK_EXCEPTION(esp::transpose(x, {0, 2}), esp::ShapeError, says({"transpose", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::squeeze(x, 1), esp::ShapeError, says({"squeeze", "[2, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::unsqueeze(x, 3), esp::ShapeError, says({"unsqueeze", "axis 3", here()}));
  BOOST_CHECK_EXCEPTION(esp::broadcast_to(x, {3, 6}), esp::ShapeError,
                        says({"broadcast_to", "[2, 6]", "[3, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::broadcast_to(x, {6}), esp::ShapeError,
                        says({"broadcast_to", "[2, 6]", "[6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::broadcast_to(x, {2, -1}), esp::ShapeError,
                        says({"broadcast_to", "[2, -1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 1, 0, 7), esp::IndexError, says({"slice", "7", "[2, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 1, -7, 3), esp::IndexError, says({"slice", "-7", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 1, 4, 3), esp::IndexError, says({"slice", "4", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::slice(x, 2, 0, 1), esp::ShapeError, says({"slice", "axis 2", here()}));
  const esp::Variable narrow = esp::ones({2, 5}), wide = esp::ones({2, 6}, esp::float64);
  BOOST_CHECK_EXCEPTION(esp::concat({x, narrow}), esp::ShapeError,
                        says({"concat", "[2, 6]", "[2, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::concat({x, esp::ones({2})}, 1), esp::ShapeError,
                        says({"concat", "[2, 6]", "[2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::concat({x, wide}), esp::TypeError,
                        says({"concat", "float32", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::concat({x, x}, 2), esp::ShapeError, says({"concat", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::concat({}), esp::ShapeError, says({"concat", here()}));
  BOOST_CHECK_EXCEPTION(esp::concat({x, esp::Variable()}), esp::Error, says({"concat", "undefined", here()}));
  BOOST_CHECK_EXCEPTION(esp::stack({x, narrow}), esp::ShapeError,
                        says({"stack", "[2, 6]", "[2, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::stack({}), esp::ShapeError, says({"stack", here()}));
  BOOST_CHECK_EXCEPTION(esp::stack({x, x}, 4), esp::ShapeError, says({"stack", "axis 4", here()}));
  BOOST_CHECK_EXCEPTION(esp::stack({x, wide}), esp::TypeError, says({"stack", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::stack({esp::Variable(), x}), esp::Error, says({"stack", "undefined", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
