// Recurrent cells, layers and builders, attention and decoding on each device: results are those of eager
// evaluation on the CPU.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <type_traits>

#include "device_cases.h"
#include "espalier/core/random.h"
#include "espalier/core/subscript.h"
#include "espalier/nn/builders.h"
#include "espalier/nn/cached_decoding.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/recurrent.h"
#include "espalier/nn/transformer.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Device;
using esp::Variable;
using Cases = std::vector<DeviceCase>;

namespace {

constexpr esp::DType dtype = esp::float64;

template <class State>
Variables parts(const State& state) {
  if constexpr (std::is_same_v<State, nn::LSTMState>)
    return {state.h, state.c};
  else
    return {state};
}
template <class Output>
Variables outputs_and_state(const Output& result) {
  Variables all = parts(result.state);
  if constexpr (std::is_same_v<decltype(result.outputs), Variable>) {
    all.push_back(result.outputs);
  } else {
    all.push_back(result.outputs.data);
    all.push_back(result.outputs.pad({.value = 0.5, .batch_first = true}).values);
  }
  return all;
}
Variables operator+(Variables a, const Variables& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class Cell, class Options>
DeviceCase cell_case(std::string name, Options options) {
  options.dtype = dtype;
  return device_case<Cell>(
      std::move(name), [options] { return Cell(3, 4, options); },
      [](const Cell& cell, Device device) {
        auto state = cell(reals({2, 3}, device));
        for (const int64_t step : {7, 9}) state = cell(reals({2, 3}, device, step), state);
        return parts(state);
      });
}

esp::data::PackedSequence packed_reals(Device device) {
  return esp::data::pack(
      {Variable(reals({2, 3}, device)), reals({4, 3}, device, 7), reals({1, 3}, device, 9)});
}

/// Of dense and of packed sequences, from no state and from a given one.
template <class Layer, class Options>
DeviceCase layer_case(std::string name, Options options, bool training = false) {
  options.dtype = dtype;
  return device_case<Layer>(
      std::move(name),
      [options, training] {
        Layer layer(3, 4, options);
        layer.train(training);
        return layer;
      },
      [](const Layer& layer, Device device) {
        const auto whole = layer(reals({4, 3, 3}, device));
        return outputs_and_state(whole) + outputs_and_state(layer(packed_reals(device), whole.state));
      });
}

template <class Builder, class Options>
DeviceCase builder_case(std::string name, Options options) {
  options.dtype = dtype;
  return device_case<Builder>(
      std::move(name), [options] { return Builder(3, 4, {.layers = 2, .cell = options}); },
      [](const Builder& builder, Device device) {
        Builder rnn = builder;
        rnn.start();
        for (const int64_t step : {5, 7, 9}) (void)rnn.add_input(reals({2, 3}, device, step));
        Variables all = parts(rnn.states()[0]) + parts(rnn.states()[1]);
        rnn.rewind();
        all.push_back(rnn.add_input(reals({2, 3}, device, 4)));
        return all;
      });
}

Cases recurrent_cases() {
  Cases all{
      cell_case<nn::RNNCell>("RNNCell", nn::RNNCellOptions{}),
      cell_case<nn::RNNCell>("RNNCell with relu", nn::RNNCellOptions{.nonlinearity = nn::Nonlinearity::relu}),
      cell_case<nn::GRUCell>("GRUCell", nn::CellOptions{}),
      cell_case<nn::LSTMCell>("LSTMCell, coupled", nn::LSTMCellOptions{.coupled = true}),
      cell_case<nn::LSTMCell>("LSTMCell with layer_norm", nn::LSTMCellOptions{.layer_norm = true}),
      cell_case<nn::LSTMCell>("LSTMCell with peepholes", nn::LSTMCellOptions{.peepholes = true}),
      cell_case<nn::LSTMCell>(
          "LSTMCell with everything",
          nn::LSTMCellOptions{.projection = 2, .peepholes = true, .coupled = true, .layer_norm = true}),
      layer_case<nn::Rnn>("Rnn", nn::RnnOptions{.layers = 2, .bidirectional = true}),
      layer_case<nn::Gru>("Gru", nn::RecurrentOptions{}),
      layer_case<nn::Lstm>("Lstm", nn::LstmOptions{.layers = 2, .bidirectional = true}),
      layer_case<nn::Lstm>("Lstm with variational dropout",
                           nn::LstmOptions{.layers = 2, .dropout = 0.5, .variational = true}),
      layer_case<nn::Lstm>("Lstm with weight_noise", nn::LstmOptions{.weight_noise = 0.5}),
      layer_case<nn::Lstm>("Lstm, coupled with layer_norm",
                           nn::LstmOptions{.coupled = true, .layer_norm = true}),
      builder_case<nn::LstmBuilder>("LstmBuilder", nn::LSTMCellOptions{}),
      builder_case<nn::GruBuilder>("GruBuilder", nn::CellOptions{}),
  };
  all.push_back(device_case<nn::RNNCell>(
      "rnn_view", [] { return nn::RNNCell(3, 4, {.dtype = dtype}); },
      [](const nn::RNNCell& cell, Device device) -> Variables {
        Variables ends;
        Variable h = esp::zeros({3, 4}, dtype).to(device);
        for (const Variable step : esp::rnn_view(packed_reals(device))) {
          h = cell(step, h[{esp::range(0, step.shape()[0])}]);
          ends.push_back(h);
        }
        const auto sequences = packed_reals(device).unpack();
        return ends + Variables{sequences[1] * sum(h)};
      }));
  return all;
}

/// With random numbers, which are the same on all devices.
Cases random_cases() {
  return {
      layer_case<nn::Rnn>("Rnn with dropout", nn::RnnOptions{.layers = 2, .dropout = 0.5}, true),
      layer_case<nn::Lstm>("Lstm with variational dropout",
                           nn::LstmOptions{.layers = 2, .dropout = 0.5, .variational = true}, true),
      layer_case<nn::Gru>("Gru with weight_noise", nn::RecurrentOptions{.weight_noise = 0.5}, true),
  };
}

DeviceCase attention_case(std::string name, nn::MultiHeadAttentionOptions options,
                          std::function<Variables(const nn::MultiHeadAttention&, Device)> outputs) {
  options.dtype = dtype;
  return device_case<nn::MultiHeadAttention>(
      std::move(name), [options] { return nn::MultiHeadAttention(8, 4, options); }, std::move(outputs));
}

/// Four steps, computed together, and one after the other from a cache.
Variables causal_steps(const nn::MultiHeadAttention& attention, Device device) {
  const Variable x = reals({2, 4, 8}, device);
  nn::KvCache cache;
  Variables all{attention(x, {.causal = true})};
  const esp::NoGrad none;
  for (int64_t t = 0; t < 4; ++t) all.push_back(attention.step(slice(x, 1, t, t + 1), cache));
  nn::KvCache chosen = cache;
  chosen.select(esp::tensor({1, 0, 1}));  // on the CPU
  chosen.truncate(3);
  all.push_back(attention.step(reals({3, 1, 8}, device, 7), chosen));
  return all + Variables{cache.keys(), cache.values(), chosen.keys()};
}

esp::Tensor two_lengths(Device device) {
  return esp::tensor({{true, true, true, false}, {true, true, false, false}}).to(device);
}

Cases attention_cases() {
  const auto masked = [](const nn::MultiHeadAttention& attention, Device device) -> Variables {
    const Variable x = reals({2, 4, 8}, device);
    const esp::Tensor keys = two_lengths(device);
    const auto [y, weights] = attention.with_weights(x, x, x, {.key_mask = keys, .causal = true}, false);
    return {attention(x, {.key_mask = keys, .causal = true}), attention(x, {.key_mask = keys}), y, weights};
  };
  return {
      attention_case("fewer heads of keys, with masks", {.key_heads = 2}, masked),
      attention_case("rotary positions, with masks", {.key_heads = 1, .rotary = nn::RotaryOptions{}}, masked),
      attention_case("a learned key", {.add_bias_kv = true},
                     [](const nn::MultiHeadAttention& attention, Device device) -> Variables {
                       const Variable x = reals({2, 4, 8}, device);
                       return {attention(x), attention(x, {.key_mask = two_lengths(device)})};
                     }),
      attention_case("sinusoidal positions and alibi", {},
                     [](const nn::MultiHeadAttention& attention, Device device) -> Variables {
                       const esp::Tensor x = reals({2, 4, 8}, device),
                                         table = esp::nn::sinusoidal_positions(4, 8, dtype).to(device),
                                         distances = nn::alibi(4, 4, 4, 0, dtype).to(device);
                       return {attention(x + table), attention(nn::SinusoidalPositions(2)(x)),
                               attention(x, {.mask = distances})};
                     }),
      attention_case("steps", {.key_heads = 2, .rotary = nn::RotaryOptions{.interleaved = true}},
                     causal_steps),
      attention_case("steps with a memory", {.key_heads = 2},
                     [](const nn::MultiHeadAttention& attention, Device device) -> Variables {
                       const Variable x = reals({2, 3, 8}, device), memory = reals({2, 5, 8}, device, 7);
                       nn::KvCache cache;
                       Variables all{attention(x, memory, memory)};
                       for (int64_t t = 0; t < 3; ++t)
                         all.push_back(attention.step(slice(x, 1, t, t + 1), memory, cache));
                       return all;
                     }),
  };
}

constexpr int64_t vocabulary = 6, width = 8;

struct Gpt : nn::Module {
  Variable step(const Variable& tokens, nn::KvCaches& caches) const {
    return 9 * out(layers.step(embedding(tokens), caches)[{esp::range(), -1}]);
  }
  nn::Decoding from_prompt(Device device) const {
    const esp::NoGrad none;
    nn::KvCaches caches;
    (void)step(integers({1, 2, 3, 4, 5, 1}, {3, 2}, device), caches);
    return nn::with_caches([this](const Variable& tokens, nn::KvCaches& now) { return step(tokens, now); },
                           caches, 3, device);
  }
  nn::Embedding embedding = add("embedding", nn::Embedding(vocabulary, width, {.dtype = dtype}));
  nn::TransformerEncoder layers =
      add("layers",
          nn::TransformerEncoder(
              2, width, 2, {.feedforward = 16, .dropout = 0, .rotary = nn::RotaryOptions{}, .dtype = dtype}));
  nn::Dense out = add("out", nn::Dense(width, vocabulary, {.dtype = dtype}));
};

using Tokens = std::vector<std::vector<int64_t>>;
const std::vector<int64_t> first{2, 3, 5};

Tokens generated(const Gpt& gpt, Device device, const nn::GenerateOptions& options) {
  const auto [step, state] = gpt.from_prompt(device);
  return nn::generate(step, first, state, options);
}

Cases truncation_cases() {
  Cases all;
  for (const esp::TokenSampling& options : {esp::TokenSampling{.temperature = 0.7},
                                            {.top_k = 2},
                                            {.top_p = 0.6},
                                            {.temperature = 1.5, .top_k = 3, .top_p = 0.8}})
    all.push_back(matrices_case("options " + std::to_string(all.size()),
                                [options](const Matrices& m, Device device) -> Variables {
                                  const Variable logits = matmul(reals({2, 5, 3}, device), 6 * m.u);
                                  const esp::TokenSampling one{
                                      .temperature = options.temperature, .top_k = 1, .top_p = options.top_p};
                                  return {softmax(esp::truncated_logits(logits, options), -1),
                                          esp::cast(esp::sample_logits(logits, one), dtype) + sum(m.w)};
                                }));
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sequence_device)

BOOST_AUTO_TEST_CASE(recurrent_cells_layers_and_builders) { check_on_devices(recurrent_cases()); }

BOOST_AUTO_TEST_CASE(dropout_and_noise_in_training_mode) {
  each_on_devices(random_cases(), [](const DeviceCase& c, Device device) {
    const auto drawn = [&](Device where) {
      esp::seed(3);
      return results_of(c, where, By::eager);
    };
    check_alike(drawn(esp::cpu()), drawn(device));
  });
}

BOOST_AUTO_TEST_CASE(attention_with_masks_positions_and_caches) { check_on_devices(attention_cases()); }

BOOST_AUTO_TEST_CASE(training) {
  check_training_on_devices(recurrent_cases());
  check_training_on_devices(attention_cases());
}

BOOST_AUTO_TEST_CASE(truncated_logits) { check_on_devices(truncation_cases()); }

BOOST_AUTO_TEST_CASE(decoded_tokens) {
  const auto gpt_on = [](Device device) {
    Gpt gpt;
    give_figure_values(gpt);
    gpt.to(device);
    return gpt;
  };
  const Gpt expected = gpt_on(esp::cpu());
  size_t ends = 0;
  const Tokens greedy = generated(expected, esp::cpu(), {.most_tokens = 8});
  for (const Device device : gpus_and_cpu()) BOOST_TEST_CONTEXT("on " << device) {
      const Gpt gpt = gpt_on(device);
      BOOST_TEST((generated(gpt, device, {.most_tokens = 8}) == greedy));
      for (const esp::TokenSampling& one : {esp::TokenSampling{.temperature = 1e-9},
                                            {.top_k = 1},
                                            {.top_p = 1e-9},
                                            {.temperature = 2, .top_k = 1}})
        BOOST_TEST((generated(gpt, device, {.most_tokens = 8, .sampling = one}) == greedy));
      for (int64_t end_token = 0; end_token < vocabulary; ++end_token) {
        const nn::GenerateOptions until{.most_tokens = 8, .end_token = end_token};
        const Tokens found = generated(gpt, device, until);
        BOOST_TEST((found == generated(expected, esp::cpu(), until)));
        for (const auto& tokens : found) ends += tokens.size() < 8;

        const auto searched = [&](const Gpt& model, Device where) {
          const auto [step, state] = model.from_prompt(where);
          return nn::beam_search(step, first, state,
                                 {.beams = 3, .best = 2, .most_tokens = 5, .end_token = end_token});
        };
        const auto best = searched(gpt, device), same = searched(expected, esp::cpu());
        BOOST_TEST_REQUIRE(best.size() == 3);
        for (size_t i = 0; i < best.size(); ++i)
          for (size_t j = 0; j < 2; ++j) {
            BOOST_TEST((best[i].at(j).tokens == same[i].at(j).tokens));
            BOOST_TEST(std::abs(best[i][j].log_probability - same[i][j].log_probability) < 1e-10);
          }
      }
    }
  BOOST_TEST(ends > 0);
}

BOOST_AUTO_TEST_SUITE_END()
