// The op of recurrent layers against loops in double, with its derivatives, in plans, packed and reversed.
#include "espalier/ops/recurrent/recurrence.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::RecurrenceForm;
using esp::RecurrentCell;
using esp::Variable;

namespace {

constexpr int64_t width = 3, steps = 4, batch = 2;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// States of all steps, the last ones, and of an LSTM the last c, as one vector. The last of `in` may be
/// lengths.
Array reference(const RecurrenceForm& form, bool bias, bool lengths, const std::vector<Array>& in) {
  const bool lstm = form.cell == RecurrentCell::lstm;
  const Array &x = in[0], &weight = in[1];
  std::vector<double> h = in[2].values, c = lstm ? in[3].values : h;
  const int64_t all = width * esp::gates_of(form.cell);
  std::vector<int64_t> counts(form.batch_sizes.begin(), form.batch_sizes.end());
  if (counts.empty()) counts.assign(steps, batch);
  std::vector<int64_t> begins{0};
  for (const int64_t count : counts) begins.push_back(begins.back() + count);
  std::vector<double> out(static_cast<size_t>(begins.back() * width));
  for (size_t k = 0; k < counts.size(); ++k) {
    const size_t t = form.reverse ? counts.size() - 1 - k : k;
    for (int64_t b = 0; b < counts[t]; ++b) {
      if (lengths && static_cast<double>(t) >= in.back().values[static_cast<size_t>(b)]) continue;
      const auto of = [&](const std::vector<double>& v, int64_t row, int64_t j) {
        return v[static_cast<size_t>(row * width + j)];
      };
      std::vector<double> a(static_cast<size_t>(all)), s(static_cast<size_t>(all));
      for (int64_t g = 0; g < all; ++g) {
        const auto at = static_cast<size_t>(g);
        a[at] = x.values[static_cast<size_t>((begins[t] + b) * all + g)];
        for (int64_t j = 0; j < width; ++j) s[at] += of(weight.values, g, j) * of(h, b, j);
        if (!bias) continue;
        a[at] += in[lstm ? 4 : 3].values[at];
        s[at] += in[lstm ? 5 : 4].values[at];
      }
      for (int64_t j = 0; j < width; ++j) {
        const auto sum = [&](int64_t gate) {
          const auto at = static_cast<size_t>(gate * width + j);
          return a[at] + s[at];
        };
        const auto at = static_cast<size_t>(b * width + j);
        switch (form.cell) {
          case RecurrentCell::tanh: h[at] = std::tanh(sum(0)); break;
          case RecurrentCell::relu: h[at] = std::max(0.0, sum(0)); break;
          case RecurrentCell::lstm:
            c[at] = sigmoid(sum(1)) * c[at] + sigmoid(sum(0)) * std::tanh(sum(2));
            h[at] = sigmoid(sum(3)) * std::tanh(c[at]);
            break;
          case RecurrentCell::gru: {
            const auto n = static_cast<size_t>(2 * width + j);
            const double fresh = std::tanh(a[n] + sigmoid(sum(0)) * s[n]), z = sigmoid(sum(1));
            h[at] = (1 - z) * fresh + z * h[at];
          }
        }
        out[static_cast<size_t>((begins[t] + b) * width + j)] = h[at];
      }
    }
  }
  out.insert(out.end(), h.begin(), h.end());
  if (lstm) out.insert(out.end(), c.begin(), c.end());
  const auto size = static_cast<int64_t>(out.size());
  return Array({size}, [&](const Index& i) { return out[static_cast<size_t>(i[0])]; });
}

Variable run(const RecurrenceForm& form, const Variables& v, bool bias = false, bool lengths = false) {
  const bool lstm = form.cell == RecurrentCell::lstm;
  esp::RecurrenceInputs in{v[0], v[1], v[2]};
  if (lstm) in.c = v[3];
  if (bias) in.bias_ih = v[lstm ? 4 : 3], in.bias_hh = v[lstm ? 5 : 4];
  if (lengths) in.lengths = v.back();
  const esp::RecurrenceOutputs out = esp::recurrence(in, form);
  std::vector<Variable> parts{esp::reshape(out.h, {-1}), esp::reshape(out.last_h, {-1})};
  if (lstm) parts.push_back(esp::reshape(out.last_c, {-1}));
  return esp::concat(parts, 0);
}

void check(const RecurrenceForm& form, bool bias, bool lengths = false) {
  const int64_t all = width * esp::gates_of(form.cell);
  std::vector<esp::Tensor> inputs{
      form.batch_sizes.empty() ? numbers({steps, batch, all}, -1, 1) : numbers({4, all}, -1, 1),
      numbers({all, width}, -1, 1, 1), numbers({batch, width}, -1, 1, 2)};
  if (form.cell == RecurrentCell::lstm) inputs.push_back(numbers({batch, width}, -1, 1, 3));
  if (bias) inputs.push_back(numbers({all}, -1, 1, 4)), inputs.push_back(numbers({all}, -1, 1, 5));
  std::vector<size_t> differentiable(inputs.size());
  std::iota(differentiable.begin(), differentiable.end(), size_t{0});
  if (lengths) inputs.push_back(esp::tensor_from(std::vector<int64_t>{4, 2}, {2}));
  check_op({.name = std::string(esp::name(form.cell)) + (form.reverse ? " reversed" : "") +
                    (form.batch_sizes.empty() ? "" : " packed") + (bias ? "" : " without bias") +
                    (lengths ? " with lengths" : ""),
            .op = [=](const Variables& v) { return run(form, v, bias, lengths); },
            .inputs = inputs,
            .reference = [=](const std::vector<Array>& in) { return reference(form, bias, lengths, in); },
            .differentiable = differentiable,
            .roundings = 0});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recurrence)

BOOST_AUTO_TEST_CASE(cells_forwards) {
  for (const RecurrentCell cell :
       {RecurrentCell::tanh, RecurrentCell::relu, RecurrentCell::lstm, RecurrentCell::gru})
    check({.cell = cell}, true);
}
BOOST_AUTO_TEST_CASE(cells_backwards_without_bias) {
  for (const RecurrentCell cell : {RecurrentCell::tanh, RecurrentCell::lstm, RecurrentCell::gru})
    check({.cell = cell, .reverse = true}, false);
}
BOOST_AUTO_TEST_CASE(packed_rows) {
  for (const bool reverse : {false, true})
    for (const RecurrentCell cell : {RecurrentCell::tanh, RecurrentCell::lstm, RecurrentCell::gru})
      check({.cell = cell, .reverse = reverse, .batch_sizes = {2, 1, 1}}, true);
}

BOOST_AUTO_TEST_CASE(padded_rows) {
  for (const bool reverse : {false, true})
    for (const RecurrentCell cell : {RecurrentCell::tanh, RecurrentCell::lstm, RecurrentCell::gru})
      check({.cell = cell, .reverse = reverse}, !reverse, true);
}

/// Wide enough that weights are packed for the products.
BOOST_AUTO_TEST_CASE(wide_recurrences_in_float32) {
  for (const RecurrentCell cell : {RecurrentCell::tanh, RecurrentCell::lstm, RecurrentCell::gru})
    for (const bool reverse : {false, true}) {
      const int64_t units = 65, all = units * esp::gates_of(cell);
      const RecurrenceForm form{cell, reverse, {3, 2, 2}};
      const auto loss = [&](esp::DType dtype) {
        const auto leaf = [&](const esp::Shape& shape, uint64_t which) {
          return esp::variable(numbers(shape, -0.2, 0.2, which).to(dtype));
        };
        Variables v{leaf({7, all}, 0), leaf({all, units}, 1), leaf({3, units}, 2)};
        if (cell == RecurrentCell::lstm) v.push_back(leaf({3, units}, 3));
        const Variable y = run(form, v), sum = esp::sum(y * y);
        std::vector<esp::Tensor> all_values{y.value()};
        for (const Variable& each : v) all_values.push_back(sum.gradient(each).value());
        return all_values;
      };
      const auto narrow = loss(esp::float32), wide = loss(esp::float64);
      for (size_t i = 0; i < wide.size(); ++i)
        BOOST_TEST(difference(narrow[i].to(esp::float64), wide[i]) < 2e-5, esp::name(cell) << " " << i);
    }
}

BOOST_AUTO_TEST_CASE(attributes_that_are_out_of_range) {
  const auto make = [](esp::Attributes attributes) { return esp::make_op("recurrence", attributes); };
  const std::vector<int64_t> growing{1, 2};
  BOOST_CHECK_THROW(make({{"cell", std::string("elman")},
                          {"reverse", false},
                          {"batch_sizes", std::vector<int64_t>{}},
                          {"bias", true},
                          {"keeps", false}}),
                    esp::Error);
  BOOST_CHECK_THROW(make({{"cell", std::string("gru")},
                          {"reverse", false},
                          {"batch_sizes", growing},
                          {"bias", true},
                          {"keeps", true}}),
                    esp::Error);
}

BOOST_AUTO_TEST_CASE(batch_sizes_that_rise_are_refused) {
  const Variable weight = numbers({width, width}, -1, 1), x = numbers({4, width}, -1, 1);
  for (const esp::Dims& sizes : {esp::Dims{1, 3}, esp::Dims{2, 0, 2}, esp::Dims{5, -1}})
    BOOST_CHECK_EXCEPTION(esp::recurrence({x, weight, numbers({sizes[0], width}, -1, 1)},
                                          {.cell = RecurrentCell::tanh, .batch_sizes = sizes}),
                          esp::ShapeError, says({"recurrence", "batch sizes", "not rise"}));
}

BOOST_AUTO_TEST_CASE(lengths_of_another_shape_are_refused) {
  const Variable weight = numbers({width, width}, -1, 1), h = numbers({2, width}, -1, 1);
  const auto run_with = [&](const esp::Tensor& x, const esp::Dims& sizes, const esp::Tensor& lengths) {
    (void)esp::recurrence({.x = x, .weight = weight, .h = h, .lengths = lengths},
                          {.cell = RecurrentCell::tanh, .batch_sizes = sizes});
  };
  const esp::Tensor x = numbers({4, 2, width}, -1, 1), rows = numbers({4, width}, -1, 1);
  const auto is_told = says({"recurrence", "lengths", "[batch]"});
  BOOST_CHECK_EXCEPTION(run_with(x, {}, esp::zeros({3}, esp::int64)), esp::ShapeError, is_told);
  BOOST_CHECK_EXCEPTION(run_with(rows, {2, 2}, esp::zeros({2}, esp::int64)), esp::ShapeError, is_told);
}

BOOST_AUTO_TEST_SUITE_END()
