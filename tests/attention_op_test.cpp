// Scaled dot-product attention: its values against plain loops and composed operations, masks, grouped heads,
// dropout, memory, plans, replicas, errors.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "espalier/core/check_gradient.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/attention.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::AttentionOptions;
using esp::Tensor;
using esp::Variable;

namespace {

/// softmax(scale · q kᵀ + mask) v by matrix products, with masks as whole matrices.
Variable composed(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& o) {
  const int64_t group = q.rank() > 2 ? q.shape()[-3] / k.shape()[-3] : 1;
  const auto repeated = [&](const Variable& x) {
    return group == 1 ? x : esp::repeat_interleave(x, group, int64_t{-3});
  };
  const double scale = o.scale ? *o.scale : 1 / std::sqrt(static_cast<double>(q.shape()[-1]));
  Variable scores = esp::matmul(q, esp::transpose(repeated(k))) * scale;
  const double hidden = -1e30;
  const int64_t queries = q.shape()[-2], keys = k.shape()[-2];
  if (o.mask.defined() && o.mask.dtype() == esp::DType::boolean)
    scores = esp::where(o.mask, scores, hidden);
  else if (o.mask.defined())
    scores = scores + o.mask;
  if (o.key_mask.defined()) {
    Variable mask = esp::unsqueeze(o.key_mask, -2);
    if (q.rank() > 2) mask = esp::unsqueeze(mask, -3);
    scores = esp::where(mask, scores, hidden);
  }
  if (o.causal) {
    Tensor seen = esp::zeros({queries, keys}, esp::boolean);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) seen.at<bool>({i, j}) = j <= i + o.past;
    scores = esp::where(seen, scores, hidden);
  }
  return esp::matmul(esp::softmax(scores), repeated(v));
}

Tensor booleans(const esp::Shape& shape, int64_t every, int64_t first = 1) {
  Tensor mask(shape, esp::boolean);
  int64_t i = first;
  for (bool& b : mask.span<bool>()) b = i++ % every != 0;
  return mask;
}

struct Sizes {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
};

/// Compares values and gradients with those of `composed`.
void check_composed(const Sizes& s, const AttentionOptions& options, esp::DType dtype = esp::float64,
                    double tolerance = 1e-12) {
  const auto operand = [&](const esp::Shape& shape, uint64_t which) {
    return esp::variable(numbers(shape, -1, 1, which).to(dtype));
  };
  const Variable q = operand({s.batch, s.heads, s.queries, s.width}, 1),
                 k = operand({s.batch, s.key_heads, s.keys, s.width}, 2),
                 v = operand({s.batch, s.key_heads, s.keys, s.value_width}, 3);
  const Variable y = esp::scaled_dot_product_attention(q, k, v, options), z = composed(q, k, v, options);
  BOOST_TEST(difference(z.value(), y.value()) < tolerance);
  const Tensor weights = numbers(y.shape(), -1, 1, 4).to(dtype);
  const Variable a = esp::sum(y * weights), b = esp::sum(z * weights);
  for (const Variable& x : {q, k, v})
    BOOST_TEST(difference(b.gradient(x).value(), a.gradient(x).value()) < 10 * tolerance);
  if (options.mask.defined() && options.mask.dtype() == dtype)
    BOOST_TEST(difference(b.gradient(options.mask).value(), a.gradient(options.mask).value()) <
               10 * tolerance);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attention_op)

BOOST_AUTO_TEST_CASE(equals_composed_operations) {
  for (const Sizes& s : {Sizes{2, 3, 3, 5, 7, 4, 4},
                         {1, 4, 2, 70, 130, 16, 8},
                         {2, 2, 1, 64, 121, 20, 36},
                         {1, 1, 1, 129, 2, 3, 1},
                         {1, 2, 2, 1, 250, 65, 17}})
    BOOST_TEST_CONTEXT(s.queries << " queries, " << s.keys << " keys, width " << s.width) {
      const int64_t past = std::max<int64_t>(0, s.keys - s.queries);
      check_composed(s, {});
      check_composed(s, {.scale = 0.3});
      check_composed(s, {.causal = true});
      check_composed(s, {.causal = true, .past = past});
      check_composed(s, {.mask = booleans({s.queries, s.keys}, 3)});
      check_composed(s, {.mask = booleans({s.batch, s.heads, 1, s.keys}, 4, 3)});
      check_composed(s, {.mask = esp::variable(numbers({s.heads, s.queries, s.keys}, -2, 2, 5))});
      check_composed(s, {.mask = esp::variable(numbers({s.batch, 1, s.queries, 1}, -2, 2, 6)),
                         .key_mask = booleans({s.batch, s.keys}, 5),
                         .causal = true});
      check_composed(s, {}, esp::float32, 2e-5);
      check_composed(s, {.causal = true, .past = past}, esp::float32, 2e-5);
    }
}

/// Any number of axes before the heads, and operands whose axes have been moved.
BOOST_AUTO_TEST_CASE(leading_axes_are_one_batch) {
  const Variable q = esp::variable(numbers({3, 2, 5, 4, 6}, -1, 1, 1)),
                 k = esp::variable(numbers({3, 2, 7, 2, 6}, -1, 1, 2)),
                 v = esp::variable(numbers({3, 2, 7, 2, 3}, -1, 1, 3)),
                 mask = esp::variable(numbers({2, 1, 5, 7}, -1, 1, 4));
  const Tensor key_mask = booleans({3, 2, 7}, 3);
  const auto heads_first = [](const Variable& x) { return esp::permute(x, {0, 1, 3, 2, 4}); };
  const auto one_batch = [&](const Variable& x) {
    return esp::reshape(x, {6, x.shape()[-3], x.shape()[-2], x.shape()[-1]});
  };
  const Variable a = heads_first(q), b = heads_first(k), c = heads_first(v);
  const Variable y = esp::scaled_dot_product_attention(a, b, c, {.mask = mask, .key_mask = key_mask});
  const Variable z = esp::scaled_dot_product_attention(
      one_batch(a), one_batch(b), one_batch(c),
      {.mask = one_batch(esp::broadcast_to(mask, {3, 2, 1, 5, 7})), .key_mask = key_mask.reshape({6, 7})});
  BOOST_TEST(difference(one_batch(y).value(), z.value()) == 0);
  const Tensor weights = numbers(z.shape(), -1, 1, 5);
  const Variable of_y = esp::sum(one_batch(y) * weights), of_z = esp::sum(z * weights);
  for (const Variable& x : {q, k, v, mask})
    BOOST_TEST(difference(of_y.gradient(x).value(), of_z.gradient(x).value()) < 1e-14);
}

/// Of as much work as several threads are worth.
BOOST_AUTO_TEST_CASE(threads_change_nothing) {
  const Variable q = esp::variable(numbers({3, 4, 130, 40}, -1, 1, 1)),
                 k = esp::variable(numbers({3, 2, 140, 40}, -1, 1, 2)),
                 v = esp::variable(numbers({3, 2, 140, 24}, -1, 1, 3));
  const Tensor weights = numbers({3, 4, 130, 24}, -1, 1, 4);
  const auto results = [&](int threads) {
    const int before = esp::num_threads();
    esp::set_num_threads(threads);
    const Variable y = esp::scaled_dot_product_attention(q, k, v, {.causal = true, .past = 3});
    const Variable loss = esp::sum(y * weights);
    std::vector<Tensor> all{y.value()};
    for (const Variable& x : {q, k, v}) all.push_back(loss.gradient(x).value());
    esp::set_num_threads(before);
    return all;
  };
  const std::vector<Tensor> one = results(1);
  BOOST_TEST(difference(one[0], composed(q, k, v, {.causal = true, .past = 3}).value()) < 1e-12);
  for (const int threads : {2, 3, 5}) {
    const std::vector<Tensor> several = results(threads);
    for (size_t i = 0; i < one.size(); ++i)
      BOOST_TEST(difference(one[i], several[i]) == 0, threads << " threads, result " << i);
  }
}

BOOST_AUTO_TEST_CASE(guarantees_of_ops) {
  const auto loops = [](const std::vector<Array>& x) {
    const Array &q = x[0], &k = x[1], &v = x[2];
    const int64_t keys = k.shape[-2], width = q.shape[-1];
    esp::Shape shape = q.shape;
    shape.dims()[3] = v.shape[-1];
    return Array(shape, [&](const Index& at) {
      double total = 0, sum = 0;
      for (int64_t j = 0; j <= std::min(keys - 1, at[2] + 1); ++j) {
        double score = 0;
        for (int64_t e = 0; e < width; ++e)
          score += q({at[0], at[1], at[2], e}) * k({at[0], at[1] / 2, j, e});
        const double weight = std::exp(score / std::sqrt(static_cast<double>(width)));
        total += weight;
        sum += weight * v({at[0], at[1] / 2, j, at[3]});
      }
      return sum / total;
    });
  };
  check_op({.name = "causal attention of grouped heads",
            .op =
                [](const Variables& x) {
                  return esp::scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true, .past = 1});
                },
            .inputs = {numbers({2, 4, 3, 3}, -1, 1, 1), numbers({2, 2, 5, 3}, -1, 1, 2),
                       numbers({2, 2, 5, 2}, -1, 1, 3)},
            .reference = loops,
            .roundings = 8});
}

BOOST_AUTO_TEST_CASE(second_and_third_derivatives) {
  const Tensor mask = booleans({2, 3}, 3);
  const auto f = [&](const Variables& x) {
    return esp::scaled_dot_product_attention(x[0], x[1], x[2], {.mask = x[3], .key_mask = mask});
  };
  const std::vector<Tensor> inputs{numbers({2, 2, 3, 2}, -1, 1, 1), numbers({2, 1, 3, 2}, -1, 1, 2),
                                   numbers({2, 1, 3, 2}, -1, 1, 3), numbers({2, 3, 3}, -1, 1, 4)};
  const auto second = esp::check_gradient(f, inputs, {.order = 2, .tolerance = 5e-6});
  BOOST_TEST(second.passed, second.message);
  const auto once = [&](const Variables& x) {
    const Variable y = f(x);
    const Variable loss = esp::sum(y * numbers(y.shape(), -1, 1, 7));
    const Variable q = loss.gradient(x[0]), k = loss.gradient(x[1]), v = loss.gradient(x[2]);
    return esp::sum(q * q) + esp::sum(k * q) + esp::sum(v * v);
  };
  const auto third = esp::check_gradient(once, inputs, {.order = 2, .tolerance = 5e-5});
  BOOST_TEST(third.passed, third.message);
}

BOOST_AUTO_TEST_CASE(a_query_that_sees_no_key_gives_zeros) {
  Tensor mask = esp::zeros({2, 3}, esp::boolean);
  mask.at<bool>({1, 2}) = true;
  const Variable q = esp::variable(numbers({1, 1, 2, 4}, -1, 1, 1)), k = esp::variable(numbers({1, 1, 3, 4})),
                 v = esp::variable(numbers({1, 1, 3, 4}, -1, 1, 2));
  const Variable y = esp::scaled_dot_product_attention(q, k, v, {.mask = mask});
  BOOST_TEST(difference(esp::slice(y, 2, 0, 1).value(), esp::zeros({1, 1, 1, 4}, esp::float64)) == 0);
  BOOST_TEST(difference(esp::slice(y, 2, 1, 2).value(), esp::slice(v, 2, 2, 3).value()) < 1e-15);
  const Tensor dq = esp::sum(y).gradient(q).value();
  BOOST_TEST(difference(dq, esp::zeros(dq.shape(), esp::float64)) == 0);
  const Variable none = esp::scaled_dot_product_attention(q, esp::slice(k, 2, 0, 0), esp::slice(v, 2, 0, 0));
  BOOST_TEST(difference(none.value(), esp::zeros({1, 1, 2, 4}, esp::float64)) == 0);
}

BOOST_AUTO_TEST_CASE(large_scores_and_nan) {
  Tensor q = numbers({3, 4}, -1, 1, 1).to(esp::float32), k = numbers({5, 4}, -1, 1, 2).to(esp::float32);
  const Tensor v = numbers({5, 4}, -1, 1, 3).to(esp::float32);
  const AttentionOptions large{.scale = 1e5};
  BOOST_TEST(difference(composed(q, k, v, large).value(),
                        esp::scaled_dot_product_attention(q, k, v, large).value()) < 1e-6);
  q.at<float>({1, 2}) = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = esp::scaled_dot_product_attention(q, k, v).value();
  for (int64_t i = 0; i < 3; ++i) BOOST_TEST(std::isnan(y.at<float>({i, 0})) == (i == 1));
}

BOOST_AUTO_TEST_CASE(weights_are_those_that_the_values_are_summed_with) {
  const Tensor q = numbers({2, 4, 5, 3}, -1, 1, 1), k = numbers({2, 4, 6, 3}, -1, 1, 2),
               v = numbers({2, 4, 6, 2}, -1, 1, 3);
  const Tensor mask = numbers({5, 6}, -1, 1, 4), seen = esp::greater(numbers({2, 6}, -1, 1, 5), 0.0).value();
  esp::seed(5);
  for (const AttentionOptions& options : {AttentionOptions{.dropout = 0.5},
                                          {.mask = mask, .dropout = 0.5},
                                          {.key_mask = seen, .dropout = 0.5}}) {
    const auto [y, weights] = esp::scaled_dot_product_attention_and_weights(q, k, v, options);
    BOOST_TEST(difference(esp::matmul(weights, v).value(), y.value()) < 1e-14);
  }
  const Tensor p = q.to(esp::float32), r = k.to(esp::float32), s = v.to(esp::float32);
  const auto [y, weights] = esp::scaled_dot_product_attention_and_weights(p, r, s, {.dropout = 0.5});
  BOOST_TEST(difference(esp::matmul(weights, s).value(), y.value()) < 1e-6);
}

BOOST_AUTO_TEST_CASE(a_key_mask_has_the_shape_of_batch_and_keys) {
  const Tensor q = numbers({2, 1, 3, 4}, -1, 1, 1);
  for (const esp::Shape& shape : {esp::Shape{3}, esp::Shape{1, 3}, esp::Shape{2, 4}, esp::Shape{2, 1, 3}})
    BOOST_CHECK_THROW(
        esp::scaled_dot_product_attention(q, q, q, {.key_mask = esp::ones(shape, esp::boolean)}),
        esp::ShapeError);
}

BOOST_AUTO_TEST_CASE(dropout_drops_the_same_weights_in_gradients) {
  // With equal scores and values of 1, the result is the share of what is kept; the gradient of v tells
  // which.
  const int64_t n = 200;
  const Variable q = esp::variable(esp::zeros({1, 2, n, 3}, esp::float64)),
                 k = esp::variable(numbers({1, 2, n, 3})),
                 v = esp::variable(esp::ones({1, 2, n, n}, esp::float64));
  esp::set_value(v, esp::broadcast_to(esp::eye(n, esp::float64), {1, 2, n, n}).value().clone());
  esp::seed(3);
  const Variable y = esp::scaled_dot_product_attention(q, k, v, {.dropout = 0.25});
  const Tensor weights = y.value();  // row i has the weights of query i
  int64_t kept = 0;
  for (const double w : weights.contiguous_copy().span<double>()) {
    BOOST_REQUIRE((w == 0 || std::abs(w - 1 / (0.75 * n)) < 1e-12));
    kept += w != 0;
  }
  const double rate = static_cast<double>(kept) / static_cast<double>(2 * n * n);
  BOOST_TEST(std::abs(rate - 0.75) < 0.01);
  BOOST_TEST(difference(esp::slice(weights, 1, 0, 1).value(), esp::slice(weights, 1, 1, 2).value()) > 0.001);
  // The gradient of Σ y · g by v is weightsᵀ g.
  const Tensor g = numbers({1, 2, n, n}, -1, 1, 8);
  const Tensor expected = esp::matmul(esp::transpose(Variable(weights)), g).value();
  BOOST_TEST(difference(expected, esp::sum(y * g).gradient(v).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(plans_for_inference_do_not_drop) {
  const Tensor k = numbers({2, 7, 3}, -1, 1, 2), v = numbers({2, 7, 4}, -1, 1, 3),
               at = numbers({2, 5, 3}, -1, 1);
  const Variable q = esp::placeholder("q", {2, 5, 3}, esp::float64);
  const Variable y = esp::scaled_dot_product_attention(q, k, v, {.dropout = 0.5});
  const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(difference(executor.run({{"q", at}}), composed(at, k, v, {}).value()) < 1e-14);
  // Nor do their gradients.
  const Variable p = esp::parameter(at);
  const auto gradient = [&](const Variable& of) { return esp::sum(esp::square(of)).gradient(p); };
  const Tensor dropped = gradient(esp::scaled_dot_product_attention(p, k, v, {.dropout = 0.5}))
                             .get_executor({.mode = esp::Mode::inference})
                             .run({});
  BOOST_TEST(difference(dropped, gradient(composed(p, k, v, {})).value()) < 1e-13);
}

/// Numbers of queries that are no multiple of those whose numbers are drawn together.
BOOST_AUTO_TEST_CASE(dropout_draws_a_number_for_each_weight) {
  const int64_t keys = 400, queries = 5;
  const Variable q = esp::zeros({1, queries, 3}, esp::float64), k = numbers({1, keys, 3});
  esp::seed(4);
  const Tensor weights = esp::scaled_dot_product_attention(
                             q, k, esp::unsqueeze(esp::eye(keys, esp::float64), 0), {.dropout = 0.5})
                             .value();
  const auto kept = [&](int64_t query, int64_t key) { return weights.at<double>({0, query, key}) != 0; };
  for (int64_t a = 0; a < queries; ++a)
    for (int64_t b = 0; b < queries; ++b)
      for (int64_t shift = a < b ? 0 : 1; shift < 3; ++shift) {
        int64_t alike = 0;
        for (int64_t key = 0; key + shift < keys; ++key) alike += kept(a, key) == kept(b, key + shift);
        BOOST_TEST(alike < 0.65 * static_cast<double>(keys), a << " " << b << " " << shift);
      }
}

BOOST_AUTO_TEST_CASE(derivatives_with_dropout) {
  const auto f = [&](const Variables& x) {
    esp::seed(11);
    return esp::scaled_dot_product_attention(x[0], x[1], x[2],
                                             {.mask = x[3], .causal = true, .dropout = 0.4});
  };
  const auto result = esp::check_gradient(f,
                                          {numbers({2, 5, 2}, -1, 1, 1), numbers({1, 5, 2}, -1, 1, 2),
                                           numbers({1, 5, 3}, -1, 1, 3), numbers({2, 5, 5}, -1, 1, 4)},
                                          {.order = 2, .tolerance = 5e-6});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(mixed_precision_keeps_log_sums) {
  // Scores of some 40, which a mask makes: weights are exp(score − log sum), and bfloat16 rounds to 1 / 4
  // there.
  const auto step = [](esp::Precision precision) {
    const Variable w = esp::parameter(numbers({8, 8}, -0.5, 0.5, 3).to(esp::float32), "w");
    const Variable x = esp::placeholder("x", {2, 5, 8}, esp::float32), h = esp::matmul(x, w);
    const Variable y =
        esp::scaled_dot_product_attention(h, h, h, {.mask = esp::full({1, 1}, 40, esp::float32)});
    const auto executor = esp::mean(y * y).get_executor(
        {.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(1), .precision = precision});
    (void)executor.run({{"x", numbers({2, 5, 8}, -1, 1, 9).to(esp::float32)}});
    return w.value().clone();
  };
  const Tensor before = numbers({8, 8}, -0.5, 0.5, 3).to(esp::float32);
  const Tensor full = (Variable(step(esp::Precision::float32)) - before).value(),
               low = (Variable(step(esp::Precision::bfloat16)) - before).value();
  const double size = esp::sum(Variable(full) * full).item(),
               error = esp::sum((Variable(low) - full) * (Variable(low) - full)).item();
  BOOST_TEST(size > 0);
  BOOST_TEST(std::sqrt(error / size) < 0.02);
}

BOOST_AUTO_TEST_CASE(memory_is_linear_in_tokens) {
  const auto peak = [](int64_t tokens) {
    const auto operand = [&](uint64_t which) {
      return esp::variable(numbers({1, 1, tokens, 8}, -1, 1, which).to(esp::float32));
    };
    const Variable q = operand(1), k = operand(2), v = operand(3);
    auto& device = esp::backend(esp::cpu());
    device.reset_peak_memory(esp::cpu());
    const int64_t before = device.memory_stats(esp::cpu()).peak_bytes;
    const Variable loss = esp::sum(esp::scaled_dot_product_attention(q, k, v, {.causal = true}));
    (void)loss.gradient(q).value();
    return device.memory_stats(esp::cpu()).peak_bytes - before;
  };
  const int64_t few = peak(512), many = peak(4096);
  BOOST_TEST(many < 9 * few);
  BOOST_TEST(many < int64_t{4096} * 4096);  // a quarter of one matrix of scores
}

BOOST_AUTO_TEST_CASE(errors_name_shapes_and_the_line) {
  const Variable x = numbers({2, 3, 4, 5});
  const auto refuses = [&]<class E>(const E*, const Variable& q, const Variable& k, const Variable& v,
                                    const AttentionOptions& o, const std::string& text) {
    BOOST_CHECK_EXCEPTION((void)esp::scaled_dot_product_attention(q, k, v, o), E, [&](const E& e) {
      const std::string what = e.what();
      BOOST_TEST(what.find("scaled_dot_product_attention") != std::string::npos, what);
      BOOST_TEST(what.find(text) != std::string::npos, what);
      BOOST_TEST(what.find("attention_op_test.cpp") != std::string::npos, what);
      return true;
    });
  };
  const esp::ShapeError* shape = nullptr;
  const esp::TypeError* type = nullptr;
  const esp::Error* error = nullptr;
  refuses(shape, x, numbers({2, 3, 4, 6}), x, {}, "one width");
  refuses(shape, x, x, numbers({2, 3, 5, 5}), {}, "a value for each key");
  refuses(shape, x, numbers({2, 2, 4, 5}), numbers({2, 2, 4, 5}), {}, "multiple of key_heads");
  refuses(shape, x, numbers({2, 0, 4, 5}), numbers({2, 0, 4, 5}), {}, "multiple of key_heads");
  refuses(shape, x, numbers({1, 3, 4, 5}), numbers({1, 3, 4, 5}), {}, "same leading axes");
  refuses(shape, numbers({5}), x, x, {}, "[5]");
  refuses(shape, x, x, x, {.mask = booleans({3, 4}, 2)}, "[3, 4]");
  refuses(shape, x, x, x, {.key_mask = booleans({3, 4}, 2)}, "[2, 4]");
  refuses(type, x, x, x, {.key_mask = numbers({2, 4})}, "key_mask");
  refuses(type, x, x, x, {.mask = esp::zeros({4, 4}, esp::int64)}, "int64");
  refuses(type, x, esp::cast(x, esp::float32), x, {}, "float32");
  refuses(error, x, x, x, {.dropout = 1}, "[0, 1)");
  refuses(error, x, x, x, {.past = 2}, "causal");
  refuses(error, x, x, x, {.causal = true, .past = -1}, "is -1");
  refuses(error, x, x, x, {.scale = std::numeric_limits<double>::quiet_NaN()}, "scale");
  refuses(error, x, x, x, {.scale = std::numeric_limits<double>::infinity()}, "scale");
}

BOOST_AUTO_TEST_CASE(a_past_beyond_all_keys_shows_all) {
  const Variable q = esp::variable(numbers({1, 2, 3, 4}, -1, 1, 0)), k = numbers({1, 2, 5, 4}, -1, 1, 1),
                 v = numbers({1, 2, 5, 4}, -1, 1, 2);
  const Variable all = esp::scaled_dot_product_attention(q, k, v);
  for (const int64_t past : {int64_t{5}, int64_t{1} << 62, INT64_MAX - 1, INT64_MAX}) {
    const Variable y = esp::scaled_dot_product_attention(q, k, v, {.causal = true, .past = past});
    BOOST_TEST(difference(y.value(), all.value()) == 0);
    BOOST_TEST(difference(sum(y * y).gradient(q).value(), sum(all * all).gradient(q).value()) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
