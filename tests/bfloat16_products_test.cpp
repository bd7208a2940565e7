// Products of bfloat16 by a primitive of oneDNN, on processors that are faster with it; on others they are
// widened, and the same holds.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <thread>

#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/matmul/bfloat16_product.h"
#include "espalier/ops/ops.h"
#include "kept_values.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr double unit = 0x1p-8;  // half a unit in the last place of 1

esp::Tensor rounded(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::bfloat16);
}
Variable wide(const esp::Tensor& x) { return esp::cast(Variable(x), esp::float64); }
double largest(const Variable& v) { return esp::max(esp::abs(v)).item(); }

/// The inner two axes in the other order, in memory as well.
esp::Tensor transposed_copy(const esp::Tensor& x) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < x.rank(); ++i) order.push_back(static_cast<int64_t>(i));
  std::swap(order.end()[-1], order.end()[-2]);
  return esp::transpose(Variable(x), order).value().contiguous_copy();
}
/// The same elements, of which every second one of a larger tensor is one.
esp::Tensor spread(const esp::Tensor& x) {
  const auto last = static_cast<int64_t>(x.rank()) - 1;
  const Variable twice = esp::stack({Variable(x), Variable(x)}, last + 1);
  esp::Tensor all = twice.value().contiguous_copy();
  esp::Layout layout(x.shape());
  for (int64_t& stride : layout.strides) stride *= 2;
  return esp::Tensor(all.storage(), layout, x.dtype());
}

struct Case {
  esp::Shape a, b, y;  // a is [..., m, k], b [..., k, n]
};
const Case cases[] = {
    {{3, 5}, {5, 4}, {3, 4}},
    {{1, 1}, {1, 1}, {1, 1}},
    {{1, 300}, {300, 7}, {1, 7}},
    {{64, 33}, {33, 1}, {64, 1}},
    {{129, 64}, {64, 130}, {129, 130}},
    {{2, 3, 5}, {2, 5, 4}, {2, 3, 4}},
    {{6, 3, 5}, {5, 4}, {6, 3, 4}},
    {{3, 5}, {6, 5, 4}, {6, 3, 4}},
    {{2, 1, 7, 8}, {1, 3, 8, 9}, {2, 3, 7, 9}},
    {{2, 3, 2, 4, 5}, {3, 1, 5, 6}, {2, 3, 2, 4, 6}},
};

/// As float64 computes it.
void check_close(const esp::Tensor& y, const esp::Tensor& a, const esp::Tensor& b) {
  const Variable expected = esp::matmul(wide(a), wide(b)),
                 sizes = esp::matmul(esp::abs(wide(a)), esp::abs(wide(b)));
  BOOST_TEST(largest((wide(y) - expected) / (sizes + 1e-3)) < unit + 1e-5,
             "of " << a.shape().str() << " and " << b.shape().str());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bfloat16_products)

BOOST_AUTO_TEST_CASE(all_forms_and_layouts) {
  if (!esp::has_bfloat16_products(esp::bfloat16)) {
    BOOST_TEST_MESSAGE("this processor is not faster with bfloat16: its products are widened");
    return;
  }
  OneVersion kept;
  for (const Case& c : cases) {
    const esp::Tensor a = rounded(c.a, 1), b = rounded(c.b, 2);
    for (int form = 0; form < 4; ++form)
      for (const bool has_gaps : {false, true}) {
        const bool ta = form & 1, tb = form & 2;
        esp::Tensor x = ta ? transposed_copy(a) : a, z = tb ? transposed_copy(b) : b;
        if (has_gaps) x = spread(x), z = spread(z);
        esp::Tensor y(c.y, esp::bfloat16);
        esp::Bfloat16Product product(x, z, y, {ta, tb}, {}, nullptr);
        product.run();
        product.run();
        check_close(y, a, b);
        // Of a float32 b, which is rounded in each run.
        const esp::Tensor wide_b = z.to(esp::float32);
        esp::Tensor other(c.y, esp::bfloat16);
        esp::Bfloat16Product(x, wide_b, other, {ta, tb}, {}, nullptr).run();
        BOOST_TEST(difference(other, y) <= unit);
        // And of one that is kept, by the same key for the same b only.
        for (int round = 0; round < 2; ++round) {
          esp::Bfloat16Product(x, wide_b, other, {ta, tb}, {}, &kept).run();
          BOOST_TEST(difference(other, y) <= unit);
        }
      }
  }
}

BOOST_AUTO_TEST_CASE(sums_are_float32) {
  // 2,000 ones are 2,000, which 16 bits would stop adding at 256.
  const Variable x = esp::placeholder("x", {4, 2000}, esp::bfloat16);
  const esp::Executor executor =
      esp::matmul(x, esp::ones({2000, 3}).to(esp::bfloat16)).get_executor({.mode = esp::Mode::inference});
  const esp::Tensor y = executor.run(esp::Feeds{{"x", esp::ones({4, 2000}).to(esp::bfloat16)}});
  BOOST_TEST(y.to(esp::float32).span<float>()[5] == 2000);
}

/// Weights are rounded once, and again when they have changed.
BOOST_AUTO_TEST_CASE(weights_follow_the_leaves) {
  esp::seed(3);
  esp::nn::Sequential net(esp::nn::Dense(40), esp::nn::Tanh(), esp::nn::Dense(8));
  const esp::Tensor rows = numbers({5, 24}, -1, 1, 4).to(esp::float32);
  (void)net(rows);
  const Variable y = net(esp::placeholder("x", {-1, 24}));
  const esp::Executor executor =
      y.get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
  const auto check = [&] {
    const Variable expected = net(rows);
    for (int round = 0; round < 2; ++round)
      BOOST_TEST(largest(Variable(executor.run(esp::Feeds{{"x", rows}})) - expected) <
                 0.02 * largest(expected));
  };
  check();
  for (auto [path, leaf] : net.parameters()) {
    esp::set_value(leaf, (Variable(leaf.value().clone()) * -2.0 + 0.125).value());
    check();
  }
  if (!esp::has_bfloat16_products(esp::bfloat16)) return;
  const esp::Executor fixed =
      net(esp::placeholder("x", {5, 24}))
          .get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
  const std::string plan = fixed.plan().str();
  BOOST_TEST(plan.find("rounded_matmul") != std::string::npos, plan);
  BOOST_TEST(plan.find("bfloat16 [40, 24]") == std::string::npos, plan);
}

/// They are rounded in the layout that is multiplied: whatever shows the leaf.
BOOST_AUTO_TEST_CASE(weights_behind_views) {
  const Variable w = esp::parameter(numbers({4, 8, 8}, -1, 1, 1).to(esp::float32), "w");
  const esp::Tensor rows = numbers({3, 8}, -1, 1, 2).to(esp::float32),
                    many = numbers({2, 3, 8}, -1, 1, 3).to(esp::float32);
  const auto every_second = [](const Variable& v, int64_t axis) {
    return esp::slice(v, axis, 0, v.shape()[axis], 2);
  };
  const struct {
    std::string name;
    esp::Tensor x;
    std::function<Variable(const Variable&)> net;
  } nets[] = {
      {"two views of one leaf", many,
       [&](const Variable& x) {
         return esp::concat({esp::matmul(x, esp::slice(w, 0, 0, 2)), esp::matmul(x, every_second(w, 0))}, 1);
       }},
      {"in another shape", rows,
       [&](const Variable& x) {
         return esp::matmul(x, w.reshape({8, 32}));
       }},
      {"columns apart", rows,
       [&](const Variable& x) {
         return esp::matmul(x, every_second(w.reshape({8, 32}), 1));
       }},
      {"transposed", rows,
       [&](const Variable& x) {
         return esp::matmul(x, esp::transpose(w.reshape({32, 8})));
       }},
  };
  for (const auto& c : nets) {
    const esp::Executor executor =
        c.net(esp::placeholder("x", c.x.shape()))
            .get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
    const Variable expected = c.net(c.x);
    for (int round = 0; round < 2; ++round)
      BOOST_TEST(largest(Variable(executor.run({{"x", c.x}})) - expected) < 0.02 * largest(expected), c.name);
    if (!esp::has_bfloat16_products(esp::bfloat16)) continue;
    const std::string plan = executor.plan().str();
    BOOST_TEST(plan.find(" matmul(") == std::string::npos, c.name << "\n" << plan);
    BOOST_TEST(plan.find("rounded_matmul") != std::string::npos, c.name << "\n" << plan);
  }
}

BOOST_AUTO_TEST_CASE(threads_share_rounded_weights) {
  esp::seed(5);
  esp::nn::Sequential net(esp::nn::Dense(64), esp::nn::Relu(), esp::nn::Dense(16));
  const esp::Tensor rows = numbers({7, 32}, -1, 1, 6).to(esp::float32);
  (void)net(rows);
  const esp::Executor executor =
      net(esp::placeholder("x", {7, 32}))
          .get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
  const esp::Tensor expected = executor.run({{"x", rows}}).clone();
  std::vector<double> differences(4, -1);
  std::vector<std::thread> threads;
  for (double& d : differences)
    threads.emplace_back([&] {
      d = 0;
      for (int i = 0; i < 20; ++i) d = std::max(d, difference(executor.run({{"x", rows}}), expected));
    });
  for (std::thread& t : threads) t.join();
  for (const double d : differences) BOOST_TEST(d == 0);
}

BOOST_AUTO_TEST_CASE(nothing_is_multiplied) {
  esp::nn::Dense layer(4);
  (void)layer(esp::zeros({1, 6}));
  const esp::Executor open =
      layer(esp::placeholder("x", {-1, 6}))
          .get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
  BOOST_TEST(open.run({{"x", esp::zeros({0, 6})}}).shape() == (esp::Shape{0, 4}));
  const Variable x = esp::placeholder("x", {-1, 6}, esp::bfloat16);
  const esp::Executor executor =
      esp::matmul(x, rounded({6, 4}, 1)).get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(executor.run(esp::Feeds{{"x", esp::zeros({0, 6}).to(esp::bfloat16)}}).shape() ==
             (esp::Shape{0, 4}));
  BOOST_TEST(executor.run(esp::Feeds{{"x", esp::zeros({2, 6}).to(esp::bfloat16)}}).shape() ==
             (esp::Shape{2, 4}));
}

BOOST_AUTO_TEST_SUITE_END()
