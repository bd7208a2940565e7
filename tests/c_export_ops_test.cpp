// Executor::export_c: single ops as C code compute what executors compute.
#include <boost/test/unit_test.hpp>

#include <limits>

#include "espalier/core/op_registry.h"
#include "espalier/executor/c_export/function.h"
#include "espalier/ops/indexing/look_up.h"
#include "exported_functions.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

using V = const Variable&;

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export_ops)

BOOST_AUTO_TEST_CASE(functions_of_one_number_are_those_of_the_library) {
  check_functions(values({5, 7}),
                  {[](V x) { return esp::exp(x); },
                   [](V x) { return esp::sin(x); },
                   [](V x) { return esp::cos(x); },
                   [](V x) { return esp::tanh(x); },
                   [](V x) { return esp::sigmoid(x); },
                   [](V x) { return esp::relu(x); },
                   [](V x) { return esp::gelu(x); },
                   [](V x) { return esp::gelu(x * 4.0); },
                   [](V x) { return esp::erf(x); },
                   [](V x) { return esp::silu(x); },
                   [](V x) { return esp::softplus(x); },
                   [](V x) { return esp::elu(x); },
                   [](V x) { return esp::selu(x); },
                   [](V x) { return esp::leaky_relu(x, 0.1); },
                   [](V x) { return esp::hardswish(x * 3.0); },
                   [](V x) { return esp::hardsigmoid(x * 3.0); },
                   [](V x) { return esp::log(esp::abs(x) + 0.5); },
                   [](V x) { return esp::sqrt(esp::square(x) + 1.0); },
                   [](V x) { return esp::power(esp::abs(x) + 0.1, 2.5); },
                   [](V x) { return esp::floor(x * 3.0); },
                   [](V x) { return esp::round(x * 3.0); },
                   [](V x) { return esp::sign(x); },
                   [](V x) { return esp::log1p(esp::abs(x)); },
                   [](V x) { return esp::mish(x * 9.0); },
                   [](V x) { return esp::lgamma(x); },
                   [](V x) { return esp::remainder(x * 7.0, 0.75) + esp::remainder(x, -0.6); },
                   [](V x) { return esp::floor_divide(x * 7.0, 0.75) - esp::floor_divide(x, -0.6); },
                   [](V x) { return esp::fmod(x * 7.0, 0.75); },
                   [](V x) {
                     const Variable n = esp::cast(x * 10.0, esp::int64);
                     return esp::floor_divide(n, 3) * 100 + esp::remainder(n, -4) * 10 + esp::fmod(n, 5);
                   },
                   [](V x) { return esp::expm1(x); },
                   [](V x) { return esp::maximum(x, 0.3); },
                   [](V x) { return esp::minimum(x, -0.3); },
                   [](V x) { return esp::clamp(x, -0.5, 0.5); },
                   [](V x) { return x / (esp::abs(x) + 1.0); },
                   [](V x) { return esp::where(esp::greater(x, 0.2), x, -x * 2.0); },
                   [](V x) { return esp::cast(x * 10.0, esp::int64); },
                   [](V x) { return esp::cast(esp::cast(x * 10.0, esp::int32) * 3, esp::float32); },
                   [](V x) { return esp::cast(esp::less_equal(x, 0.0), esp::float32); }});
}

BOOST_AUTO_TEST_CASE(reductions_softmax_and_shapes_follow_any_layout) {
  check_functions(
      values({3, 4, 5}, 2),
      {[](V x) { return esp::sum(x); }, [](V x) { return esp::mean(x, 1); },
       [](V x) { return esp::max(esp::transpose(x), 0); }, [](V x) { return esp::min(x, -1); },
       [](V x) {
         return esp::sum(esp::transpose(x), {0, 2});
       },
       [](V x) { return esp::argmax(x, 1); }, [](V x) { return esp::argmin(esp::transpose(x), -1); },
       [](V x) { return esp::softmax(x, -1); }, [](V x) { return esp::softmax(esp::transpose(x), 1); },
       [](V x) { return esp::log_softmax(x * 3.0, 1); },
       [](V x) {
         return esp::transpose(x, {2, 0, 1});
       },
       [](V x) {
         return esp::reshape(esp::transpose(x), {5, 12}) * 2.0;
       },
       [](V x) { return esp::slice(x, 1, 1, 3) + esp::slice(x, 1, 2, 4); },
       [w = esp::variable(values({3, 4, 5}, 4))](V x) {
         return esp::sum(esp::square(esp::slice(x * w, 1, -3, -1))).gradient(w);
       },
       [](V x) { return x - esp::mean(x, 2, true); },
       [](V x) { return esp::square(x - esp::mean(x, 0, true)) + esp::sum(x, 1, true); },
       [](V x) {
         return esp::concat({esp::slice(x, 2, 0, 2), esp::slice(x, 2, 3, 5)}, 1);
       },
       [w = esp::variable(values({2, 2}, 3))](V x) {
         return esp::sum(x) * esp::stack({w, esp::transpose(w), w * 2.0}, 1);  // one op, beside no feed
       },
       [](V x) { return esp::layer_norm(x, Variable(values({5}, 8)), Variable(values({5}, 9))); }});
}

BOOST_AUTO_TEST_CASE(the_least_and_the_largest_of_integers_have_64_bits) {
  const Tensor x = esp::tensor({{7'000'000'000, 5'000'000'000}, {6'000'000'000, 9'000'000'000}});
  check_functions(
      x, {[](V v) { return esp::min(v, 0); }, [](V v) { return esp::max(-v, 1); },
          [](V v) { return esp::min(esp::cast(esp::floor_divide(v, 1'000'000'000), esp::int32), 0); },
          [](V v) { return esp::max(esp::cast(esp::floor_divide(v, -1'000'000'000), esp::int32), 1); },
          [](V v) { return esp::min(v); }, [](V v) { return esp::max(-v); }});
}

BOOST_AUTO_TEST_CASE(padding_and_turning_follow_any_layout) {
  using esp::PadMode;
  check_functions(values({3, 4, 5}, 2),
                  {[](V x) {
                     return esp::pad(x, {{1, 2}, {0, 3}}, {.value = 0.5});
                   },
                   [](V x) {
                     return esp::pad(esp::transpose(x), {{2, 1}}, {.mode = PadMode::reflect});
                   },
                   [](V x) {
                     return esp::pad(x, {{3, 2}, {1, 4}}, {.mode = PadMode::replicate});
                   },
                   [](V x) {
                     return esp::pad(esp::transpose(x), {{4, 2}}, {.mode = PadMode::circular});
                   },
                   [](V x) {
                     return esp::flip(x, {0, 2});
                   },
                   [](V x) { return esp::flip(esp::transpose(x), 1) * 2.0; },
                   [](V x) { return esp::slice(x, 2, -1, esp::open_end, -2); },
                   [](V x) { return esp::slice(x, 1, 1, esp::open_end, 2) + 1.0; },
                   [](V x) {
                     return esp::roll(x, 3, 1) - esp::roll(esp::transpose(x, {0, 1, 2}), -1, 2);
                   }});
}

BOOST_AUTO_TEST_CASE(attention_and_its_gradient) {
  const Tensor q = values({2, 4, 5, 6}, 1), mask = values({5, 5}, 2), v = values({2, 2, 5, 3}, 3);
  const Variable seen = esp::greater(Variable(values({2, 1, 5, 5}, 4)), -1.0);
  check_functions(
      values({2, 2, 5, 6}, 5),
      with_gradients(
          {[=](V x) { return esp::scaled_dot_product_attention(Variable(q), x, Variable(v)); },
           [=](V x) {
             return esp::scaled_dot_product_attention(Variable(q), Variable(q), esp::concat({x, x}, 1));
           },
           [=](V x) { return esp::scaled_dot_product_attention(x, x, x, {.causal = true}); },
           [=](V x) {
             return esp::scaled_dot_product_attention(x, x, Variable(v), {.mask = Variable(mask)});
           },
           [=](V x) { return esp::scaled_dot_product_attention(x, x, Variable(v), {.mask = seen}); },
           [=](V x) {
             const Variable queries = esp::slice(x, 2, 0, 2);
             return esp::scaled_dot_product_attention(queries, x, Variable(v), {.causal = true, .past = 2});
           },
           [=](V x) {  // the first query sees no key
             const Variable rows = esp::reshape(Variable(esp::arange(5, esp::float32)), {5, 1});
             return esp::scaled_dot_product_attention(x, x, x, {.mask = esp::greater(rows, 0.5)});
           }}));
  esp::seed(2);
  const esp::nn::TransformerEncoder encoder(1, 6, 2, {.feedforward = 8});
  check_functions(values({2, 5, 6}, 8), with_gradients({[=](V x) { return encoder(x); }}));
}

BOOST_AUTO_TEST_CASE(recurrences_and_their_gradients) {
  esp::seed(2);
  const esp::nn::Lstm lstm(6, 4), both(6, 4, {.bidirectional = true});
  const esp::nn::Gru gru(6, 4), backwards(6, 4, {.bidirectional = true});
  const esp::nn::Rnn rnn(6, 4), relu(6, 4, {.nonlinearity = esp::nn::Nonlinearity::relu, .bias = false});
  const auto lengths = [](V) {
    return esp::nn::Lengths(Variable(esp::tensor_from(std::vector<int64_t>{2, 3}, {2})));
  };
  check_functions(values({3, 2, 6}, 6),
                  with_gradients({[=](V x) { return lstm(x).outputs; }, [=](V x) { return gru(x).outputs; },
                                  [=](V x) { return rnn(x).outputs; }, [=](V x) { return relu(x).outputs; },
                                  [=](V x) { return lstm(x).state.h + lstm(x).state.c; },
                                  [=](V x) { return both(x, lengths(x)).outputs; },
                                  [=](V x) { return both(x, lengths(x)).state.c; },
                                  [=](V x) { return backwards(x, lengths(x)).outputs; },
                                  [=](V x) { return gru(x, lengths(x)).state; }}));
}

BOOST_AUTO_TEST_CASE(scans_and_their_gradients) {
  using esp::ScanResult;
  using Variables = std::vector<Variable>;
  const Tensor weight = values({3, 3}, 1, -1, 1), bias = values({3}, 2), first = values({2, 3}, 3);
  const auto cell = [=](const Variables& state, const Variables& in) {
    const Variable next = esp::tanh(esp::matmul(state[0], Variable(weight)) + in[0] + Variable(bias)) * 0.7;
    return ScanResult{{next}, {next * in[0] + 1.5, esp::sum(next, 1)}};
  };
  const auto swapped = [](const Variables& state, const Variables& in) {  // each is the other's next
    return ScanResult{{state[1] * 0.5 + in[1], state[0]}, {esp::transpose(in[0]) + 1.0}};
  };
  const auto nested = [=](const Variables& state, const Variables& in) {
    const auto inner = [&](const Variables& s, const Variables& y) {
      return ScanResult{{esp::sin(s[0] + y[0] * esp::sum(in[0], 1))}, {}};
    };
    return ScanResult{{esp::scan(inner, {state[0]}, {esp::transpose(in[0])}).state[0]}, {}};
  };
  const auto unread = [](const Variables& state,
                         const Variables&) {  // neither its element nor a number is read
    return ScanResult{{state[0] * 0.5}, {esp::zeros({2, 0}), esp::full({2}, 3)}};
  };
  const auto empty = [](const Variables& state, const Variables& in) {
    return ScanResult{{state[0] + esp::sum(in[0]) + in[1]}, {in[0] * 2.0, state[0]}};
  };
  const auto zero = [](V x) { return esp::zeros_like(esp::squeeze(esp::slice(x, 0, 0, 1), 0)); };
  check_functions(
      values({4, 2, 3}, 5),
      with_gradients({[=](V x) { return esp::scan(cell, {Variable(first)}, {x}).state[0]; },
                      [=](V x) { return esp::scan(cell, {zero(x)}, {x * 0.5}).outputs[0]; },
                      [=](V x) { return esp::scan(cell, {zero(x)}, {x}, {.reverse = true}).outputs[1]; },
                      [=](V x) { return esp::scan(cell, {zero(x)}, {x}, {.segment = 2}).outputs[0]; },
                      [=](V x) {
                        return esp::scan(swapped, {zero(x), zero(x) + 1.0}, {x, esp::cos(x)}).state[1];
                      },
                      [=](V x) {
                        return esp::scan(swapped, {zero(x), zero(x)}, {x, x}).outputs[0];
                      },
                      [=](V x) { return esp::scan(unread, {zero(x) + esp::sum(x, 0)}, {x}).state[0]; },
                      [=](V x) {
                        return esp::scan(empty, {zero(x)}, {esp::slice(x, 2, 1, 1), x}).outputs[1];
                      },
                      [=](V x) {
                        const Variable state = esp::sum(zero(x), 1);
                        return esp::scan(nested, {state}, {x}).state[0];
                      }}));
}

BOOST_AUTO_TEST_CASE(scans_that_drop_have_code_for_inference) {
  const auto dropping = [](const std::vector<Variable>& state, const std::vector<Variable>& in) {
    return esp::ScanResult{{esp::dropout(state[0] + in[0], 0.3)}, {}};
  };
  check_functions(values({3, 2}),
                  {[=](V x) { return esp::scan(dropping, {esp::zeros({2})}, {x}).state[0]; }});
}

BOOST_AUTO_TEST_CASE(scans_that_draw_have_no_code) {
  const TemporaryFolder folder;
  const auto noisy = [](const std::vector<Variable>& state, const std::vector<Variable>& in) {
    return esp::ScanResult{{state[0] + esp::randn_like(in[0])}, {}};
  };
  const Variable x = esp::placeholder("x", {3, 2});
  const auto executor =
      esp::scan(noisy, {esp::zeros({2})}, {x}).state[0].get_executor({.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION((void)executor.export_c(folder / "a.c"), esp::UnsupportedError,
                        [](const esp::UnsupportedError& error) {
                          return std::string(error.what()).find("random") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(products_take_matrices_transposed_broadcast_and_in_batches) {
  const Tensor square = values({6, 6}, 5), wide = values({7, 13}, 6), batch = values({2, 7, 3}, 7);
  check_functions(values({2, 9, 7}, 3),
                  {[=](V x) { return esp::matmul(x, Variable(wide)); },
                   [=](V x) { return esp::matmul(x, Variable(batch)); },
                   [=](V x) { return esp::matmul(esp::transpose(Variable(wide)), esp::transpose(x)); },
                   [=](V x) { return esp::matmul(x, esp::transpose(x)); },
                   [=](V x) { return esp::matmul(esp::transpose(x), x); },
                   [=](V x) { return esp::matmul(esp::slice(x, 2, 0, 6), Variable(square)); },
                   [=](V x) { return esp::matmul(esp::slice(x, 1, 0, 1), Variable(wide)); }});
}

BOOST_AUTO_TEST_CASE(convolutions_take_strides_dilations_groups_and_up_to_three_axes) {
  const Tensor k1 = values({3, 2, 3}, 1), k2 = values({4, 2, 3, 2}, 2), k3 = values({2, 2, 2, 1, 3}, 3),
               kt = values({4, 3, 3, 3}, 4);
  check_functions(values({2, 2, 9}),
                  {[=](V x) { return esp::conv(x, Variable(k1), {.stride = 2, .padding = 2}); },
                   [=](V x) { return esp::conv(x, Variable(k1), {.dilation = 3}); }});
  check_functions(
      values({2, 4, 6, 7}),
      {[=](V x) {
         return esp::conv(x, Variable(k2), {.stride = {2, 1}, .padding = 1, .groups = 2});
       },
       [=](V x) { return esp::conv_transpose(x, Variable(kt), {.stride = 2, .padding = 1}); },
       [](V x) { return esp::max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}); },
       [](V x) { return esp::avg_pool(x, {.kernel = 2, .padding = 1}); },
       [](V x) { return esp::avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil = true}); },
       [](V x) {
         return esp::adaptive_avg_pool(x, {3, 2});
       }});
  check_functions(values({1, 2, 4, 3, 5}),
                  {[=](V x) { return esp::conv(x, Variable(k3), {.padding = 1}); },
                   [=](V x) {
                     return esp::conv(x, Variable(k3), {.stride = {2, 1, 3}, .padding = 1});
                   },
                   [=](V x) {
                     return esp::conv_transpose(x, Variable(k3), {.stride = {1, 3, 2}});
                   }});
}

BOOST_AUTO_TEST_CASE(means_of_windows_beyond_the_padding) {
  // The last windows have fewer places than the others, and there are too many for a constant.
  check_functions(
      values({1, 2, 10, 8}),
      {[](V x) { return esp::avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil = true}); },
       [](V x) {
         return esp::avg_pool(x,
                              {.kernel = 3, .stride = 2, .padding = 1, .ceil = true, .count_padding = false});
       }});
}

BOOST_AUTO_TEST_CASE(pooling_shows_nan) {
  Tensor x = values({1, 2, 6, 6}, 5);
  x.at<float>({0, 0, 2, 3}) = x.at<float>({0, 1, 0, 0}) = std::numeric_limits<float>::quiet_NaN();
  const auto pooled = [](V v) { return esp::max_pool(v, {.kernel = 3, .stride = 2, .padding = 1}); };
  check_functions(x, {[=](V v) { return esp::cast(esp::isnan(pooled(v)), esp::float32); }});
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_told_apart) {
  Tensor x = values({1, 6}, 5);
  constexpr float infinite = std::numeric_limits<float>::infinity();
  x.at<float>({0, 1}) = std::numeric_limits<float>::quiet_NaN();
  x.at<float>({0, 2}) = infinite;
  x.at<float>({0, 4}) = -infinite;
  for (const auto f : {esp::isnan, esp::isinf, esp::isposinf, esp::isneginf, esp::isfinite})
    check_functions(x, {[=](V v) { return esp::cast(f(v), esp::float32); }});
}

BOOST_AUTO_TEST_CASE(indices_choose_rows_and_elements) {
  const Tensor rows = indices({4}, 5, true), along = indices({5, 2}, 3), labels = indices({5}, 3);
  check_functions(values({5, 3}), {[=](V x) { return esp::gather(x, Variable(rows), 0); },
                                   [=](V x) { return esp::gather(esp::transpose(x), Variable(rows), 1); },
                                   [=](V x) { return esp::take_along_axis(x, Variable(along), 1); },
                                   [=](V x) { return esp::pick(x, Variable(labels)); },
                                   [=](V x) { return esp::one_hot(esp::argmax(x, 1), 3, esp::float32); }});
}

BOOST_AUTO_TEST_CASE(words_are_counted_from_the_end_too) {
  const Variable table = values({7, 3});
  check_functions(esp::tensor({{-1, 0, 6}, {2, -7, -3}}),
                  {[=](V words) { return esp::look_up("words", table, words, true); }});
}

BOOST_AUTO_TEST_CASE(each_emitter_is_that_of_an_op_of_the_library) {
  for (const std::string& op : esp::c_export::emitted_ops()) {
    try {
      (void)esp::make_op(op, {});
    } catch (const esp::Error& error) {  // an attribute is missing, or it has state
      BOOST_TEST_INFO(error.what());
      BOOST_TEST(std::string(error.what()).find("there is no op") == std::string::npos);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
