// Positions of attention: sinusoids, rotations, slopes by distance.
#include "espalier/nn/positions.h"

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/functional_call.h"
#include "espalier/nn/transformer.h"
#include "layer_figures.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(positions_of_attention)

BOOST_AUTO_TEST_CASE(positions) {
  const Tensor table = sinusoidal_positions(4, 6, esp::float64);
  BOOST_TEST(table.at<double>({3, 4}) == std::sin(3 / std::pow(10000.0, 4.0 / 6)));
  BOOST_TEST(table.at<double>({3, 5}) == std::cos(3 / std::pow(10000.0, 4.0 / 6)));
  const Tensor x = numbers({2, 3, 6});
  BOOST_TEST(difference(x.slice(1, 1, 2).clone(),
                        (SinusoidalPositions(2)(x) - table.slice(0, 2, 3)).value().slice(1, 0, 1)) >
             0);  // position 2 is that of step 0
  BOOST_TEST(difference((Variable(x.slice(1, 0, 1)) + table.slice(0, 2, 3)).value(),
                        SinusoidalPositions(2)(x.slice(1, 0, 1)).value()) < 1e-15);
  // Products of turned vectors depend on the distance alone, and norms stay.
  for (const bool interleaved : {false, true}) {
    const auto turned = [&](const Tensor& v, int64_t position) {
      return rotary(v, {.offset = position, .interleaved = interleaved});
    };
    const Tensor q = numbers({1, 6}, -1, 1, 1), k = numbers({1, 6}, -1, 1, 2);
    const double near = esp::sum(turned(q, 5) * turned(k, 3)).item(),
                 far = esp::sum(turned(q, 25) * turned(k, 23)).item();
    BOOST_TEST(std::abs(near - far) < 1e-12);
    BOOST_TEST(std::abs(near - esp::sum(turned(q, 5) * turned(k, 2)).item()) > 1e-3);
    BOOST_TEST(std::abs(esp::sum(turned(q, 9) * turned(q, 9)).item() - esp::sum(Variable(q) * q).item()) <
               1e-12);
  }
  const Tensor one = rotary(numbers({2, 4}, 1, 2), {.base = 100}).value();
  const Tensor from = numbers({2, 4}, 1, 2);
  const double angle = 1 / std::pow(100, 0.5);
  BOOST_TEST(std::abs(one.at<double>({1, 1}) - (from.at<double>({1, 1}) * std::cos(angle) -
                                                from.at<double>({1, 3}) * std::sin(angle))) < 1e-14);
  // The paper's slopes, and those of 12 heads as its program has them.
  const Tensor eight = alibi(8, 1, 2, 1, esp::float64), twelve = alibi(12, 1, 2, 1, esp::float64);
  BOOST_TEST(eight.at<double>({0, 0, 0}) == -0.5);
  BOOST_TEST(eight.at<double>({7, 0, 0}) == -std::exp2(-8));
  BOOST_TEST(eight.at<double>({7, 0, 1}) == 0);
  BOOST_TEST(twelve.at<double>({8, 0, 0}) == -std::exp2(-0.5));
  BOOST_TEST(twelve.at<double>({11, 0, 0}) == -std::exp2(-3.5));
}

BOOST_AUTO_TEST_CASE(slopes_by_distance_equal_the_mask) {
  esp::seed(4);
  const MultiHeadAttention layer(6, 3, {.alibi = true, .dtype = esp::float64});
  const MultiHeadAttention plain(6, 3, {.dtype = esp::float64});
  const Variable x = figure_numbers({2, 5, 6}, 37, 19, 8), bias = alibi(3, 5, 5, 0, esp::float64);
  const auto expected = [&](const AttentionMasks& masks) {
    return functional_call(plain, layer.parameters(), [&] { return plain(x, masks); });
  };
  const Variable seen = esp::greater(numbers({5, 5}, -1, 3, 1), 0.0) || Variable(esp::eye(5, esp::boolean));
  const Variable added = numbers({2, 1, 5, 5}, -1, 1, 2),
                 there = esp::tensor({true, true, false, true, true});
  const Variable rows = there && esp::ones({2, 1}, esp::boolean);
  const Variable whole = layer(x, {.causal = true});
  BOOST_TEST(difference(whole, expected({.mask = bias, .causal = true})) < 1e-12);
  BOOST_TEST(difference(layer(x, {.mask = added, .causal = true}),
                        expected({.mask = added + bias, .causal = true})) < 1e-12);
  BOOST_TEST(difference(layer(x, {.mask = seen, .key_mask = rows, .causal = true}),
                        expected({.mask = esp::where(seen, bias, esp::full_like(bias, -INFINITY)),
                                  .key_mask = rows,
                                  .causal = true})) < 1e-12);
  KvCache cache;
  for (int64_t t = 0; t < 5; ++t)
    BOOST_TEST(difference(esp::slice(whole, 1, t, t + 1), layer.step(esp::slice(x, 1, t, t + 1), cache)) <
               1e-12);
  BOOST_CHECK_EXCEPTION((void)MultiHeadAttention(6, 3, {.rotary = RotaryOptions{}})
                            .step(x.to(esp::float32), x.to(esp::float32), cache),
                        esp::UnsupportedError, says({"positions", ".rotary", here()}));
  const auto plan = layer(esp::placeholder("x", {-1, -1, 6}, esp::float64), {.causal = true})
                        .get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(difference(plan.run({{"x", x.value()}}), whole.value()) < 1e-12);
  BOOST_TEST(difference(layer(x), expected({.mask = bias})) < 1e-12);
  BOOST_CHECK_EXCEPTION((void)layer.step(x, x, cache), esp::UnsupportedError,
                        says({"positions", ".alibi", here()}));

  TransformerOptions o{.feedforward = 4, .dropout = 0, .alibi = true, .dtype = esp::float64};
  const TransformerEncoderLayer encoder(6, 3, o);
  o.alibi = false;
  const TransformerEncoderLayer without(6, 3, o);
  BOOST_TEST(difference(encoder(x, {.causal = true}), functional_call(without, encoder.parameters(), [&] {
                          return without(x, {.mask = bias, .causal = true});
                        })) < 1e-12);
  const TransformerDecoderLayer decoder(
      6, 3, {.feedforward = 4, .dropout = 0, .alibi = true, .dtype = esp::float64});
  BOOST_TEST(decoder(x, x, {.causal = true}).shape() == x.shape());  // but not to the memory
}

BOOST_AUTO_TEST_CASE(slopes_are_exact_near_by_in_16_bits) {
  esp::seed(5);
  const MultiHeadAttention layer(16, 4, {.alibi = true});
  const Variable x = Variable(esp::randn({1, 600, 16}));
  const Variable expected = layer(x, {.causal = true});
  MultiHeadAttention half(16, 4, {.alibi = true, .dtype = esp::bfloat16});
  std::vector<std::pair<std::string, Variable>> rounded;
  for (const auto& [path, p] : layer.parameters()) rounded.emplace_back(path, p.to(esp::bfloat16));
  const Variable found =
      functional_call(half, rounded, [&] { return half(x.to(esp::bfloat16), {.causal = true}); });
  BOOST_TEST(esp::max(esp::abs(found.to(esp::float32) - expected)).item() < 0.02);
}

BOOST_AUTO_TEST_SUITE_END()
