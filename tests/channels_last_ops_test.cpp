// Convolutions and pooling of values whose channels come last.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

esp::Axes to_last(size_t rank) {
  esp::Dims order{0};
  for (size_t i = 2; i < rank; ++i) order.push_back(static_cast<int64_t>(i));
  order.push_back(1);
  return esp::Axes(order);
}
esp::Axes from_last(size_t rank) {
  esp::Dims order{0, static_cast<int64_t>(rank) - 1};
  for (size_t i = 1; i + 1 < rank; ++i) order.push_back(static_cast<int64_t>(i));
  return esp::Axes(order);
}
Variable last(const Variable& x) { return esp::transpose(x, to_last(x.rank())); }
Variable second(const Variable& x) { return esp::transpose(x, from_last(x.rank())); }

Variable call(const esp::OpPtr& op, const Variables& inputs) {
  std::vector<const Variable*> pointers;
  for (const Variable& v : inputs) pointers.push_back(&v);
  return esp::apply(op, std::span<const Variable* const>(pointers), std::source_location::current());
}
Array by(const esp::OpPtr& op, const std::vector<Array>& in) {
  Variables inputs;
  for (const Array& a : in) {
    esp::Tensor t = esp::zeros(a.shape, esp::float64);
    std::ranges::copy(a.values, t.span<double>().begin());
    inputs.emplace_back(t);
  }
  return Array(call(op, inputs).value());
}
/// The op for channels as axis 1, or for channels as the last axis.
esp::OpPtr op_for(std::string_view name, esp::Attributes attributes, bool channels_last) {
  attributes.emplace_back("channels_last", channels_last);
  return esp::make_op(name, attributes);
}
/// Checks an op with the channels last against the one with channels as axis 1. `moved`: the inputs that are
/// given with channels last.
void check_moved(const std::string& name, const esp::Attributes& attributes,
                 const std::vector<esp::Tensor>& inputs, const std::vector<bool>& moved, bool result_moved,
                 std::vector<size_t> differentiable = {}) {
  const esp::OpPtr plain = op_for(name, attributes, false), op = op_for(name, attributes, true);
  check_op({.name = name,
            .op =
                [=](const Variables& v) {
                  Variables in;
                  for (size_t k = 0; k < v.size(); ++k) in.push_back(moved[k] ? last(v[k]) : v[k]);
                  const Variable y = call(op, in);
                  return result_moved ? second(y) : y;
                },
            .inputs = inputs,
            .reference = [plain](const std::vector<Array>& in) { return by(plain, in); },
            .differentiable = std::move(differentiable),
            .tolerance32 = 2e-5});
}

esp::Attributes sliding(const esp::Dims& stride, const esp::Dims& dilation, const esp::Dims& before,
                        const esp::Dims& after, int64_t groups) {
  const auto list = [](const esp::Dims& d) { return std::vector<int64_t>(d.begin(), d.end()); };
  return {{"stride", list(stride)},
          {"dilation", list(dilation)},
          {"before", list(before)},
          {"after", list(after)},
          {"groups", groups}};
}
esp::Attributes windows(const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
                        const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation) {
  return {{"kernel", kernel},
          {"stride", stride},
          {"before", padding},
          {"after", padding},
          {"dilation", dilation},
          {"ceil", false},
          {"parts", std::vector<int64_t>{}}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(channels_last_ops)

BOOST_AUTO_TEST_CASE(convolutions_equal_those_of_channels_second) {
  struct ConvolutionRow {
    esp::Shape x, kernels;
    esp::Attributes form;
  };
  const ConvolutionRow table[] = {
      {{2, 3, 7}, {4, 3, 3}, sliding({2}, {1}, {1}, {1}, 1)},
      {{2, 4, 5, 6}, {6, 2, 3, 2}, sliding({1, 2}, {2, 1}, {1, 0}, {2, 1}, 2)},
      {{1, 4, 4, 3}, {4, 1, 3, 3}, sliding({1, 1}, {1, 1}, {1, 1}, {1, 1}, 4)},
      {{2, 2, 3, 4, 3}, {3, 2, 2, 2, 2}, sliding({1, 1, 1}, {1, 2, 1}, {0, 1, 0}, {1, 0, 0}, 1)},
      {{3, 1, 1, 1}, {1, 1, 1, 1}, sliding({1, 1}, {1, 1}, {0, 0}, {0, 0}, 1)},
  };
  for (const ConvolutionRow& row : table) {
    const esp::Tensor x = numbers(row.x, -1, 1, 1), kernels = numbers(row.kernels, -1, 1, 2);
    const esp::Tensor y = call(op_for("conv", row.form, false), {x, kernels}).value();
    const esp::Tensor g = numbers(y.shape(), -1, 1, 3);
    check_moved("conv", row.form, {x, kernels}, {true, false}, true);
    esp::Attributes transposed = row.form;
    transposed.emplace_back("more", std::vector<int64_t>(row.x.rank() - 2, 0));
    check_moved("conv_transpose", transposed, {g, kernels, x}, {true, false, true}, true, {0, 1});
    check_moved("conv_transpose", transposed, {g, kernels}, {true, false}, true);
    check_moved("conv_kernels", row.form, {x, g, kernels}, {true, true, false}, false, {0, 1});
  }
}

BOOST_AUTO_TEST_CASE(pooling_equals_that_of_channels_second) {
  struct PoolRow {
    esp::Shape x;
    esp::Attributes form;
  };
  esp::Attributes parts = windows({}, {}, {}, {});
  parts.back().second = std::vector<int64_t>{2, 3};
  const PoolRow table[] = {
      {{2, 3, 7}, windows({3}, {2}, {1}, {1})},
      {{2, 70, 5, 6}, windows({2, 3}, {1, 2}, {1, 1}, {1, 2})},
      {{1, 2, 4, 4, 3}, windows({2, 2, 2}, {2, 1, 1}, {0, 1, 1}, {1, 1, 1})},
      {{2, 5, 5, 7}, parts},
  };
  for (const PoolRow& row : table) {
    const esp::Tensor x = numbers(row.x, -1, 1, 1);
    const esp::OpPtr sums = op_for("pool_sum", row.form, false);
    const esp::Tensor g = numbers(call(sums, {x}).shape(), -1, 1, 2);
    check_moved("pool_sum", row.form, {x}, {true}, true);
    check_moved("pool_spread", row.form, {g, x}, {true, true}, true, {0});
    esp::Tensor special = esp::floor(Variable(x * 3.0)).value().clone();  // with equal elements
    special.span<double>()[3] = special.span<double>()[4] = NAN;
    for (const esp::DType dtype : {esp::float64, esp::float32, esp::float16, esp::int64, esp::int32}) {
      const Variable typed = special.to(dtype);
      const esp::Tensor plain = call(op_for("pool_argmax", row.form, false), {typed}).value();
      const Variable moved = call(op_for("pool_argmax", row.form, true), {last(typed)});
      BOOST_TEST(difference(second(moved).value(), plain) == 0, esp::name(dtype));
      const esp::Tensor largest = call(op_for("pool_max", row.form, false), {typed}).value();
      BOOST_TEST(
          difference(second(call(op_for("pool_max", row.form, true), {last(typed)})).value(), largest) == 0);
      const esp::OpPtr take = op_for("pool_take", row.form, false),
                       take_last = op_for("pool_take", row.form, true),
                       add = op_for("pool_add_like", row.form, false),
                       add_last = op_for("pool_add_like", row.form, true);
      const Variable finite = x.to(dtype), values = call(take, {finite, plain}),
                     sums = call(add, {values, plain, finite});
      BOOST_TEST(difference(second(call(take_last, {last(finite), moved})).value(), values.value()) == 0);
      BOOST_TEST(
          difference(second(call(add_last, {last(values), moved, last(finite)})).value(), sums.value()) == 0);
    }
    esp::Attributes counting = row.form;
    counting.emplace_back("with_padding", false);
    const esp::Tensor plain = call(op_for("pool_count", counting, false), {x}).value();
    BOOST_TEST(difference(second(call(op_for("pool_count", counting, true), {last(x)})).value(), plain) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
