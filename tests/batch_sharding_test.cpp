// The relation of values to the rows of the batch, compared with values computed from all rows and from some.
#include "espalier/executor/sharding/batch_sharding.h"
#include "espalier/executor/sharding/random_rows.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/functions/windows.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/recurrence.h"
#include "espalier/ops/shape_like_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::BatchSharding, esp::Shape, esp::Variable;

namespace {

/// A batch of rows with two axes each, labels, and parameters, which do not depend on the batch.
struct Leaves {
  Variable x = esp::placeholder("x", {4, 3, 2}, esp::float64), y = esp::placeholder("y", {4}, esp::int64),
           flat = esp::flatten(x, 1), w = esp::parameter(numbers({6}, 0.5, 2, 1), "w"),
           m = esp::parameter(numbers({6, 5}, -1, 1, 2), "m");

  const esp::Feed* feed(const Variable& source) const { return source.node()->op().feed()->get(); }
  esp::Graph frozen(const Variable& root, int64_t rows) const {
    return esp::freeze({root, esp::sum(x), esp::sum(y)}, {}, {{feed(x), {rows}}, {feed(y), {rows}}}, true);
  }
  esp::BatchValue sharding(const Variable& root, esp::BatchSizes sizes, bool local = false) const {
    const esp::Graph part = frozen(root, sizes.part), other = frozen(root, sizes.other);
    const esp::ValueRef result = part.results[0];
    return esp::batch_sharding(part, other, sizes, local)[result.node][result.output];
  }
  std::string cause(const Variable& root, bool local = false) const {
    const esp::Graph graph = frozen(root, 2);
    return std::string(graph.nodes[sharding(root, {2, 5}, local).cause].op->name());
  }
  /// The root's value for the rows `begin` to `end` of a batch of five.
  esp::Tensor value(const Variable& root, int64_t begin, int64_t end) const {
    const Variable all =
        root + esp::cast(esp::sum(x) * 0.0 + esp::cast(esp::sum(y), esp::float64) * 0.0, root.dtype());
    esp::Tensor labels({5}, esp::int64);
    for (int64_t i = 0; i < 5; ++i) labels.span<int64_t>()[static_cast<size_t>(i)] = i * 2 % 3;
    return all.get_executor().run(
        {{"x", numbers({5, 3, 2}, 0.5, 2, 7).slice(0, begin, end)}, {"y", labels.slice(0, begin, end)}});
  }
};

/// The elements of a value that belong to row `row` of `rows`, according to `said`.
std::vector<double> of_row(const esp::Tensor& value, const esp::BatchValue& said, int64_t row, int64_t rows) {
  std::vector<int64_t> position;  // along the axis
  for (int64_t turn = 0, at = 0; turn < said.repeats; ++turn)
    for (const int64_t width : said.block_sizes) {
      for (int64_t i = 0; i < width; ++i) position.push_back(at + row * width + i);
      at += rows * width;
    }
  std::vector<double> elements;
  const Array array(value);
  for (const int64_t at : position) {
    Shape others = value.shape();
    others.dims()[said.axis] = 1;
    each_index(others, [&](Index index) {
      index[said.axis] = at;
      elements.push_back(array(index));
    });
  }
  return elements;
}

/// Compares a sharding with values computed from all five rows, and from three and two of them.
void check_sharding(const Leaves& leaves, const Variable& root, const esp::BatchValue& said) {
  const Array whole(leaves.value(root, 0, 5)), front(leaves.value(root, 0, 3)),
      back(leaves.value(root, 3, 5));
  if (said.sharding == BatchSharding::rows) {
    for (int64_t row = 0; row < 5; ++row) {
      const std::vector<double> all = of_row(leaves.value(root, 0, 5), said, row, 5),
                                own = row < 3 ? of_row(leaves.value(root, 0, 3), said, row, 3)
                                              : of_row(leaves.value(root, 3, 5), said, row - 3, 2);
      BOOST_REQUIRE(all.size() == own.size());
      BOOST_REQUIRE(all.size() * 5 == whole.values.size());
      for (size_t i = 0; i < all.size(); ++i)
        BOOST_TEST(all[i] == own[i], boost::test_tools::tolerance(1e-12));
    }
    return;
  }
  BOOST_REQUIRE(whole.values.size() == front.values.size());
  double worst = 0;
  for (size_t i = 0; i < whole.values.size(); ++i) {
    const double a = front.values[i], b = back.values[i];
    const double expected = said.sharding == BatchSharding::sum    ? a + b
                            : said.sharding == BatchSharding::mean ? (3 * a + 2 * b) / 5
                                                                   : a;
    worst = std::max(worst, std::abs(whole.values[i] - expected));
    if (said.sharding == BatchSharding::replicated) worst = std::max(worst, std::abs(a - b));
  }
  BOOST_TEST(worst < 1e-12);
}

struct Case {
  std::string name;
  Variable root;
  BatchSharding sharding;
  size_t axis = 0;
  int64_t repeats = 1;
  esp::Dims block_sizes = {1};
};

void check(const Leaves& leaves, const std::vector<Case>& cases) {
  for (const Case& c : cases) BOOST_TEST_CONTEXT(c.name) {
      for (const esp::BatchSizes sizes : {esp::BatchSizes{2, 5}, {1, 2}, {4, 8}, {5, 3}}) {
        const esp::BatchValue found = leaves.sharding(c.root, sizes);
        BOOST_TEST(static_cast<int>(found.sharding) == static_cast<int>(c.sharding));
        if (c.sharding != BatchSharding::rows) continue;
        BOOST_TEST(found.axis == c.axis);
        BOOST_TEST(found.repeats == c.repeats);
        BOOST_TEST((found.block_sizes == c.block_sizes));
      }
      if (c.sharding != BatchSharding::unshardable)
        check_sharding(leaves, c.root, leaves.sharding(c.root, {2, 5}));
    }
}

/// An unshardable value, and the op that causes this.
struct Refused {
  std::string cause;
  Variable root;
};
void check_refused(const Leaves& leaves, const std::vector<Refused>& cases) {
  for (const Refused& c : cases) BOOST_TEST_CONTEXT(c.cause << ": " << leaves.frozen(c.root, 2).str()) {
      for (const esp::BatchSizes sizes : {esp::BatchSizes{2, 5}, {4, 8}, {5, 3}})
        BOOST_TEST((leaves.sharding(c.root, sizes).sharding == BatchSharding::unshardable));
      BOOST_TEST(leaves.cause(c.root) == c.cause);
    }
}

constexpr BatchSharding same = BatchSharding::replicated, rows = BatchSharding::rows,
                        mean = BatchSharding::mean, sum = BatchSharding::sum;

}  // namespace

BOOST_FIXTURE_TEST_SUITE(batch_sharding, Leaves)

BOOST_AUTO_TEST_CASE(rows_seen_under_other_shapes) {
  const Variable t = esp::transpose(flat);                      // [6, rows]
  const Variable t3 = esp::transpose(x, esp::Axes({1, 0, 2}));  // [3, rows, 2]
  check(*this,
        {
            {"as it is", x, rows, 0},
            {"with an inner axis", esp::reshape(x, {-1, 2}), rows, 0, 1, {3}},
            {"with all inner axes", esp::reshape(x, {-1}), rows, 0, 1, {6}},
            {"and cut again", esp::reshape(esp::reshape(x, {-1}), {-1, 6}), rows, 0},
            {"and cut otherwise", esp::reshape(x, {-1, 3}), rows, 0, 1, {2}},
            {"transposed", t, rows, 1},
            {"transposed twice", esp::transpose(t), rows, 0},
            {"with an outer axis", esp::reshape(t, {-1}), rows, 0, 6},
            {"with a part of it", esp::reshape(esp::reshape(t, {-1}), {2, -1}), rows, 1, 3},
            {"with a part of a larger part", esp::reshape(esp::reshape(t, {2, -1}), {3, -1}), rows, 1, 2},
            {"with outer and inner axes", esp::reshape(t3, {-1}), rows, 0, 3, {2}},
            {"with an outer axis, one inside", esp::reshape(t3, {-1, 2}), rows, 0, 3},
            {"with an inner axis, one outside", esp::reshape(t3, {3, -1}), rows, 1, 1, {2}},
            {"with an inner axis, flattened", esp::flatten(t3, 1), rows, 1, 1, {2}},
            {"between more axes", esp::reshape(t, {2, 3, -1}), rows, 2},
            {"with axes of size 1", esp::unsqueeze(esp::unsqueeze(x, 0), 2), rows, 1},
            {"without them", esp::squeeze(esp::unsqueeze(x, 0)), rows, 0},
            {"sliced across", esp::slice(x, 1, 1, 3), rows, 0},
            {"sliced across, transposed", esp::slice(t, 0, 2, 5), rows, 1},
            {"all of it", esp::slice(t, 0, 0, 6), rows, 1},
            {"broadcast", esp::broadcast_to(esp::sum(x, 0, true), {4, 3, 2}), sum},
            {"repeated outside", esp::transpose(flat) * 1.0 + esp::zeros({2, 6, 1}, esp::float64), rows, 2},
        });
  check_refused(*this, {
                           {"slice", esp::slice(x, 0, 0, 1)},
                           {"slice", esp::slice(x, 0, 1, -1)},
                           {"reshape", esp::reshape(t, {-1, 6})},     // [6, rows] as [rows, 6]
                           {"reshape", esp::reshape(flat, {6, -1})},  // [rows, 6] as [6, rows]
                           {"reshape", esp::reshape(esp::slice(t, 0, 0, 2), {-1, 2})},
                           {"reshape", esp::reshape(t3, {-1, 3, 2})},
                       });
}

BOOST_AUTO_TEST_CASE(values_made_row_by_row) {
  const Variable t = esp::transpose(flat), inner = esp::reshape(x, {-1, 2}),
                 outer = esp::reshape(esp::transpose(x, esp::Axes({1, 0, 2})), {-1, 2});
  const Variable narrow = esp::slice(flat, 1, 0, 2), joined = esp::concat({narrow, inner}, 0);
  check(*this,
        {
            {"pointwise", esp::tanh(flat * w) + esp::sum(esp::square(w)), rows, 0},
            {"of transposed", esp::exp(t), rows, 1},
            {"of outer axes", inner * esp::square(inner), rows, 0, 1, {3}},
            {"over rows", esp::mean(x, 2), rows, 0},
            {"over what is before them", esp::max(t, 0), rows, 0},
            {"argmax", esp::cast(esp::argmax(flat, 1), esp::float64), rows, 0},
            {"softmax", esp::softmax(flat, 1), rows, 0},
            {"softmax of transposed", esp::softmax(t, 0), rows, 1},
            {"log_softmax of an inner axis", esp::log_softmax(inner, 1), rows, 0, 1, {3}},
            {"layer_norm", esp::layer_norm(flat, w, w), rows, 0},
            {"matmul", esp::matmul(flat, m), rows, 0},
            {"matmul of transposed", esp::matmul(esp::transpose(m), t), rows, 1},
            {"matmul of inner axes", esp::matmul(inner, esp::slice(m, 0, 0, 2)), rows, 0, 1, {3}},
            {"matmul of outer axes", esp::matmul(outer, esp::slice(m, 0, 0, 2)), rows, 0, 3},
            {"batched matmul", esp::matmul(x, esp::transpose(x)), rows, 0},
            {"batched matmul with one matrix", esp::matmul(x, esp::slice(m, 0, 0, 2)), rows, 0},
            {"gather by rows", esp::gather(m, y, 0), rows, 0},
            {"gather by rows along another axis", esp::gather(m, y, 1), rows, 1},
            {"gather from rows", esp::gather(flat, esp::argmax(m, 0), 1), rows, 0},
            {"take along another axis", esp::take_along_axis(flat, esp::unsqueeze(y, 1), 1), rows, 0},
            {"take by rows", esp::take_along_axis(esp::slice(m, 1, 0, 1), esp::unsqueeze(y, 1), 0), rows, 0},
            {"put along another axis", esp::put_along_axis(flat, esp::unsqueeze(y, 1), 0.5, 1), rows, 0},
            {"add along another axis", esp::add_along_axis(flat, esp::unsqueeze(y, 1), 0.5, 1), rows, 0},
            {"scatter beside the rows", esp::scatter(flat, esp::tensor({1, 3}), 0.5, 1), rows, 0},
            {"flip beside the rows", esp::flip(flat, 1), rows, 0},
            {"padded beside the rows", esp::pad(flat, {{1, 2}}, {.mode = esp::PadMode::reflect}), rows, 0},
            {"repeated", esp::repeat_interleave(flat, 3, 0), rows, 0, 1, {3}},
            {"tiled", esp::tile(flat, {2, 1}), rows, 0, 2},
            {"windows beside the rows", esp::sliding_windows(x, 1, 2), rows, 0},
            {"pick", esp::pick(flat, y), rows, 0},
            {"one_hot", esp::one_hot(y, 3, esp::float64), rows, 0},
            {"where", esp::where(esp::greater(flat, w), flat, w), rows, 0},
            {"like rows", esp::ones_like(outer), rows, 0, 3},
            {"concat across", esp::concat({flat, flat * w}, 1), rows, 0},
            {"concat across with what has no rows",
             esp::concat({esp::transpose(flat), esp::transpose(flat)}, 0), rows, 1},
            {"concat along", esp::concat({flat, flat * w, flat}, 0), rows, 0, 3},
            {"concat of outer axes", esp::concat({outer, outer}, 0), rows, 0, 6},
            {"concat of inner axes", esp::concat({inner, inner}, 0), rows, 0, 2, {3}},
            {"concat of some and some", joined, rows, 0, 1, {1, 3}},
            {"concat of those", esp::concat({joined, joined}, 0), rows, 0, 2, {1, 3}},
            {"and with inner axes", esp::reshape(esp::concat({joined, joined}, 0), {-1}), rows, 0, 2, {2, 6}},
            {"two of them", joined * esp::concat({narrow * 2.0, inner * 2.0}, 0), rows, 0, 1, {1, 3}},
            {"of all kinds", esp::concat({narrow, narrow, inner, narrow}, 0), rows, 0, 1, {1, 1, 3, 1}},
        });
  check_refused(
      *this,
      {
          {"multiply", inner * outer},  // mixes rows
          {"multiply", joined * esp::concat({inner, narrow}, 0)},
          {"softmax", esp::softmax(esp::reshape(x, {-1}), 0)},
          {"softmax", esp::softmax(t, 1)},
          {"log_softmax", esp::log_softmax(flat, 0)},
          {"subtract", esp::layer_norm(t, esp::ones({1}, esp::float64), esp::zeros({1}, esp::float64))},
          {"softmax", esp::ones_like(esp::softmax(t, 1))},  // as many as rows
          {"gather", esp::gather(flat, esp::minimum(y, int64_t{1}), 0)},
          {"gather", esp::gather(flat, esp::minimum(esp::argmax(m, 0), int64_t{1}), 0)},
          {"take_along_axis", esp::take_along_axis(flat, esp::minimum(esp::unsqueeze(y, 1), int64_t{1}), 0)},
          {"scatter", esp::scatter(flat, int64_t{0}, w)},
          {"scatter", esp::scatter(w, y, 0.5)},
          {"flip", esp::flip(flat, 0)},
          {"roll", esp::roll(flat, 1, 0)},
          {"pad_constant", esp::pad(t, {{1, 1}})},
          {"slice_steps", esp::slice(flat, 0, 0, esp::open_end, 2)},
          {"argmax", esp::cast(esp::argmax(flat, 0), esp::float64)},
          {"max", esp::max(flat, 0)},
          {"min", esp::min(x)},
          {"matmul", esp::matmul(flat, t)},
          {"add", flat + esp::unsqueeze(flat, 1)},
          {"concat", esp::concat({flat, esp::slice(esp::transpose(m), 0, 0, 2)}, 0)},
      });
}

/// Ops that take a batch along one of their axes.
BOOST_AUTO_TEST_CASE(batches_of_attention_recurrences_and_convolutions) {
  const Variable heads = esp::unsqueeze(x, 1), one = numbers({1, 3, 2}, -1, 1, 3),
                 seen = esp::less(esp::mean(x, 2), 1.3), steps = esp::transpose(x, esp::Axes({1, 0, 2})),
                 weight = numbers({2, 2}, -1, 1, 4), first = esp::mean(x, 1),
                 kernels = numbers({4, 3, 2}, -1, 1, 5), places = esp::unsqueeze(esp::transpose(flat), 0);
  const auto attended = [](const Variable& q, const Variable& k, const esp::AttentionOptions& options = {}) {
    return esp::scaled_dot_product_attention(q, k, k, options);
  };
  const esp::RecurrenceForm form{.cell = esp::RecurrentCell::tanh};
  const auto recurrent = [&](const Variable& of, const Variable& h, const Variable& lengths = {}) {
    return esp::recurrence({.x = of, .weight = weight, .h = h, .lengths = lengths}, form).h;
  };
  check(*this, {
                   {"attention of heads", attended(x, x), rows, 0},
                   {"attention of a batch", attended(heads, heads), rows, 0},
                   {"attention with a mask of keys", attended(heads, heads, {.key_mask = seen}), rows, 0},
                   {"attention with a mask", attended(x, x, {.mask = esp::unsqueeze(seen, 1)}), rows, 0},
                   {"recurrence", recurrent(steps, first), rows, 1},
                   {"recurrence with lengths", recurrent(steps, first, y), rows, 1},
                   {"convolution", esp::conv(x, kernels), rows, 0},
                   {"transposed convolution", esp::conv_transpose(x, numbers({3, 4, 2}, -1, 1, 5)), rows, 0},
               });
  check_refused(*this, {
                           {"attention", attended(x, one)},  // heads of queries share a head of keys
                           {"attention", attended(flat, flat)},
                           {"recurrence", recurrent(x, numbers({3, 2}, -1, 1, 6))},
                           {"conv", esp::conv(places, numbers({4, 6, 1}, -1, 1, 5))},
                       });
}

BOOST_AUTO_TEST_CASE(values_of_the_whole_batch) {
  const Variable t = esp::transpose(flat), inner = esp::reshape(x, {-1, 2}),
                 outer = esp::reshape(esp::transpose(x, esp::Axes({1, 0, 2})), {-1, 2});
  const Variable average = esp::mean(flat, 0), total = esp::sum(flat, 0), scalar = esp::mean(x);
  const Variable narrow = esp::slice(flat, 1, 0, 2);
  check(*this,
        {
            {"mean over the rows", average, mean},
            {"mean over all", scalar, mean},
            {"mean over rows and others", esp::mean(x, esp::Axes({0, 2}), true), mean},
            {"mean over inner axes", esp::mean(inner, 0), mean},
            {"mean over outer axes", esp::mean(outer, 0), mean},
            {"mean of some and some", esp::mean(esp::concat({narrow, inner}, 0)), mean},
            {"sum over the rows", total, sum},
            {"sum over the second axis", esp::sum(t, -1), sum},
            {"cross entropy", esp::softmax_cross_entropy(flat, y), mean},
            {"added by rows",
             esp::add_along_axis_like(esp::slice(flat, 1, 0, 1), esp::unsqueeze(y, 1), esp::slice(m, 1, 0, 1),
                                      0, "take_along_axis"),
             sum},
            {"scattered by rows",
             esp::scatter_add_like(flat, y, Variable(esp::zeros({5, 6}, esp::float64)), 0, "gather"), sum},
            {"scattered by rows along another axis",
             esp::scatter_add_like(t, y, Variable(esp::zeros({6, 5}, esp::float64)), 1, "gather"), sum},
            {"squared error", esp::mean_squared_error(flat, flat * w), mean},
            {"matmul along the rows", esp::matmul(t, flat), sum},
            {"matmul along inner axes", esp::matmul(esp::transpose(inner), inner), sum},
            {"matmul along outer axes", esp::matmul(esp::transpose(outer), outer * 2.0), sum},
            {"batched matmul along the rows",
             esp::matmul(esp::transpose(x, esp::Axes({1, 2, 0})), esp::transpose(x, esp::Axes({1, 0, 2}))),
             sum},
            {"mean and constant", average + 1.0, mean},
            {"constant less mean", esp::sum(w) - average, mean},
            {"mean and what has no batch", scalar + esp::sum(esp::square(w)) * 0.1, mean},
            {"mean and mean", average * w + scalar, mean},
            {"mean times constant", 3.0 * average, mean},
            {"mean by constant", average / w, mean},
            {"mean with a matrix", esp::matmul(esp::reshape(average, {1, 6}), m), mean},
            {"mean of means", esp::mean(average), mean},
            {"sum of means", esp::sum(average, -1, true), mean},
            {"means in another shape", esp::transpose(esp::reshape(average, {2, 3})), mean},
            {"a part of them", esp::slice(average, 0, 1, 3), mean},
            {"means and constants", esp::concat({average, w}, 0), mean},
            {"less mean", esp::negative(average), mean},
            {"sum and sum", total - esp::sum(flat), sum},
            {"sum times constant", total * w / 4.0, sum},
            {"sums of sums", esp::sum(total), sum},
            {"mean of sums", esp::mean(total), sum},
            {"sums and sums", esp::concat({total, total}, 0), sum},
            {"what has no batch", esp::sqrt(esp::sum(esp::square(w))), same},
            {"like what is mixed", esp::ones_like(esp::sqrt(average)) * w, same},
            {"mean in the shape of a sum", esp::reshape_like(average * 2.0, total), mean},
            {"sum in the shape of a mean", esp::reshape_like(total * 2.0, average), sum},
        });
  check_refused(*this, {
                           {"sqrt", esp::sqrt(scalar)},
                           {"cast", esp::cast(average * 9.0, esp::int64)},
                           {"square", esp::square(average)},
                           {"multiply", average * scalar},
                           {"divide", 1.0 / average},
                           {"add", esp::sum(flat) + 1.0},
                           {"add", scalar + esp::sum(flat)},
                           {"subtract", 1.0 - total},
                           {"concat", esp::concat({total, w}, 0)},
                           {"concat", esp::concat({total, average}, 0)},
                           {"divide", total / esp::sum(flat)},
                           {"softmax", esp::softmax(average, 0)},
                           {"max", esp::max(average)},
                           {"subtract", flat - average},
                           {"multiply", flat * total},
                           {"matmul", esp::matmul(flat, esp::matmul(t, flat))},
                           {"matmul", esp::matmul(esp::transpose(inner), outer)},      // mixes rows
                           {"tanh", esp::mean(esp::sqrt(esp::tanh(average)) * flat)},  // the first
                       });
}

BOOST_AUTO_TEST_CASE(gradients_in_a_value_are_of_the_batch_too) {
  const Variable y = esp::sum(esp::square(flat * w));
  check(*this, {{"of rows", y.gradient(flat), rows, 0}, {"of what all share", y.gradient(w), sum}});
  const Variable z = esp::sum(esp::square(esp::reshape(x, {-1, 2})) * 0.5);
  check(*this, {{"of rows seen otherwise", z.gradient(x), rows, 0}});
  // A scalar source has no rows.
  const Variable number = esp::placeholder("number", esp::Shape{}, esp::float64);
  BOOST_TEST((sharding(number * esp::sum(w), {2, 5}).sharding == same));
  BOOST_TEST((sharding(flat * number, {2, 5}).sharding == rows));
  // The gradient of the mean depends on the number of rows.
  BOOST_TEST((sharding(esp::mean(flat).gradient(flat), {2, 5}).sharding == BatchSharding::unshardable));
}

BOOST_AUTO_TEST_CASE(an_op_of_the_user_s_own_says_whether_it_goes_row_by_row) {
  const auto twice = [](bool row_by_row) {
    return esp::custom_op({.name = "twice",
                           .forward = [](const auto& in) { return (Variable(in[0]) * 2.0).value(); },
                           .row_by_row = row_by_row});
  };
  check(*this, {{"rows", twice(true)({flat}), rows, 0},
                {"transposed", twice(true)({esp::transpose(flat)}), rows, 1},
                {"without a batch", twice(false)({w}), same}});
  check_refused(*this, {{"twice", twice(false)({flat})}, {"twice", twice(true)({esp::mean(flat)})}});
  const auto total =
      esp::custom_op({.name = "total",
                      .forward = [](const auto& in) { return esp::sum(Variable(in[0])).value(); },
                      .row_by_row = true});
  const auto repeated =
      esp::custom_op({.name = "repeated",
                      .forward =
                          [](const auto& in) {
                            return esp::concat({Variable(in[0]), Variable(in[0])}, 0).value();
                          },
                      .row_by_row = true});
  check_refused(*this, {{"total", total({flat})}, {"repeated", repeated({flat})}});  // wrong declarations
}

BOOST_AUTO_TEST_CASE(statistics_may_be_a_part_s_own) {
  const Variable centered = flat - esp::mean(flat, 0);
  BOOST_TEST((sharding(centered, {2, 5}).sharding == BatchSharding::unshardable));
  const esp::BatchValue own = sharding(centered, {2, 5}, true);
  BOOST_TEST((own.sharding == rows));
  BOOST_TEST(own.axis == 0u);
  BOOST_TEST((sharding(esp::mean(esp::square(centered)), {2, 5}, true).sharding == mean));
  // What is no mean any more is a part's own as well: rows may read it, but it is no value of the whole
  // batch.
  const Variable deviation = esp::sqrt(esp::mean(esp::square(centered), 0) + 1e-5);
  BOOST_TEST((sharding(deviation, {2, 5}, true).sharding == BatchSharding::local));
  BOOST_TEST((sharding(deviation * 2.0 + w, {2, 5}, true).sharding == BatchSharding::local));
  BOOST_TEST(cause(deviation * 2.0 + w, true) == "sqrt");
  BOOST_TEST((sharding(centered / deviation * w, {2, 5}, true).sharding == rows));
}

BOOST_AUTO_TEST_CASE(random_rows_are_drawn_where_they_lie) {
  const auto runs = [&](const Variable& like) {
    const Variable root = esp::dropout(like, 0.5);
    const auto at = [&](int64_t n) {
      return esp::freeze({root, esp::sum(y)}, {}, {{feed(x), {n}}, {feed(y), {n}}}, false);
    };
    esp::Graph part = at(2);
    esp::mark_random_rows(part, esp::batch_sharding(part, at(5), {2, 5}, false));
    for (const esp::GraphNode& n : part.nodes)
      if (n.op->is_random()) return n.row_runs;
    return int64_t{-1};
  };
  const Variable t = esp::transpose(flat);
  BOOST_TEST(runs(flat) == 1);
  BOOST_TEST(runs(t) == 6);
  BOOST_TEST(runs(esp::reshape(t, {-1})) == 6);
  BOOST_TEST(runs(esp::reshape(t, {3, -1})) == 6);
  BOOST_TEST(runs(esp::reshape(x, {-1})) == 1);
  BOOST_TEST(runs(esp::concat({flat, flat}, 0)) == 2);
  BOOST_TEST(runs(esp::mean(flat, 0)) == 0);  // all replicas draw the same
  BOOST_CHECK_THROW(runs(esp::concat({esp::slice(flat, 1, 0, 2), esp::reshape(x, {-1, 2})}, 0)),
                    esp::UnsupportedError);
}

BOOST_AUTO_TEST_SUITE_END()
