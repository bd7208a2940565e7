// First and second derivatives of cells and attention layers, with respect to inputs and parameters.
#include <boost/test/unit_test.hpp>

#include "espalier/core/check_gradient.h"
#include "espalier/core/random.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/functional_call.h"
#include "espalier/nn/transformer.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t kIn = 3, kHidden = 2;
constexpr esp::DType kType = esp::float64;

using Inputs = std::vector<Variable>;

/// Checks the derivatives of `call`, which runs the layer.
void check(const std::string& name, const Module& layer, const std::vector<Shape>& shapes,
           const std::function<Variable(const Inputs&)>& call) {
  std::vector<Tensor> values;
  for (const Shape& shape : shapes) values.push_back(numbers(shape, -1, 1, values.size()));
  const auto parameters = layer.parameters();
  for (const auto& [path, p] : parameters) values.push_back(numbers(p.shape(), -0.8, 0.9, values.size()));
  const auto result = esp::check_gradient(
      [&](const Inputs& in) {
        std::vector<std::pair<std::string, Variable>> given;
        for (size_t i = 0; i < parameters.size(); ++i)
          given.emplace_back(parameters[i].first, in[shapes.size() + i]);
        return functional_call(layer, given, [&] { return call(in); });
      },
      values, {.order = 2, .tolerance = 1e-5});
  BOOST_TEST(result.passed, name << ": " << result.message);
}

void check_lstm(const std::string& name, LSTMCellOptions options) {
  options.dtype = kType;
  const LSTMCell cell(kIn, kHidden, options);
  const int64_t width = options.projection ? options.projection : kHidden;
  check(name, cell, {{2, kIn}, {2, width}, {2, kHidden}}, [&](const Inputs& in) {
    const auto [h, c] = cell(in[0], {in[1], in[2]});
    return esp::sum(h, 1, true) * c;
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cell_derivatives)

BOOST_AUTO_TEST_CASE(recurrent_cells) {
  const auto next = [](const auto& cell) { return [&cell](const Inputs& in) { return cell(in[0], in[1]); }; };
  const std::vector<Shape> shapes{{2, kIn}, {2, kHidden}};
  const RNNCell rnn(kIn, kHidden, {.dtype = kType});
  check("RNNCell", rnn, shapes, next(rnn));
  const GRUCell gru(kIn, kHidden, {.dtype = kType});
  check("GRUCell", gru, shapes, next(gru));
  check_lstm("LSTMCell", {});
  check_lstm("projection", {.projection = 1});
  check_lstm("peepholes", {.peepholes = true});
  check_lstm("coupled", {.coupled = true});
  check_lstm("layer_norm", {.layer_norm = true});
  check_lstm("all", {.projection = 1, .peepholes = true, .coupled = true, .layer_norm = true});
}

BOOST_AUTO_TEST_CASE(attention_layers) {
  esp::seed(2);
  const std::vector<Shape> shapes{{1, 2, 4}, {1, 3, 4}};
  const auto attention = [&](const std::string& name, MultiHeadAttentionOptions options,
                             const AttentionMasks& masks) {
    options.dtype = kType;
    const MultiHeadAttention layer(4, 2, options);
    check(name, layer, shapes, [&](const Inputs& in) { return layer(in[0], in[1], in[1], masks); });
  };
  attention("MultiHeadAttention", {}, {});
  attention("one head of keys", {.key_heads = 1}, {.causal = true});
  attention("rotary, with a mask", {.rotary = RotaryOptions{}}, {.mask = numbers({2, 3}, -1, 1, 9)});
  attention("learned key", {.add_bias_kv = true}, {});
  const TransformerOptions options{.feedforward = 3,
                                   .dropout = 0,
                                   .activation = [](const Variable& x) { return esp::tanh(x); },
                                   .dtype = kType};
  const TransformerEncoderLayer encoder(4, 2, options);
  check("TransformerEncoderLayer", encoder, {shapes[0]},
        [&](const Inputs& in) { return encoder(in[0], {.causal = true}); });
  const TransformerDecoderLayer decoder(4, 2, options);
  check("TransformerDecoderLayer", decoder, shapes, [&](const Inputs& in) { return decoder(in[0], in[1]); });
}

BOOST_AUTO_TEST_SUITE_END()
