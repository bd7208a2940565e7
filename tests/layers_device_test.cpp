// Layers on each device, eager, deferred and as plans: values, gradients and trained parameters are those of
// eager evaluation on the CPU.
#include <boost/test/unit_test.hpp>

#include "device_cases.h"
#include "espalier/core/subscript.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/crf.h"
#include "espalier/nn/multi_head_attention.h"
#include "espalier/nn/recurrent.h"
#include "espalier/nn/transformer.h"
#include "espalier/nn/tree_lstm.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Device;
using esp::Variable;

namespace {

constexpr esp::DType dtype = esp::float64;

std::vector<DeviceCase> cases() {
  std::vector<DeviceCase> all;
  const auto lengths = [](Device device) { return nn::Lengths(integers({4, 2, 0}, {3}, device)); };
  all.push_back(device_case<nn::Lstm>(
      "Lstm of two layers and directions",
      [] { return nn::Lstm(3, 4, {.layers = 2, .bidirectional = true, .dtype = dtype}); },
      [lengths](const nn::Lstm& lstm, Device device) -> Variables {
        const auto whole = lstm(reals({4, 3, 3}, device)),
                   cut = lstm(reals({4, 3, 3}, device), lengths(device));
        return {whole.outputs, whole.state.h, whole.state.c, cut.outputs, cut.state.c};
      }));
  all.push_back(device_case<nn::Lstm>(
      "Lstm with peepholes and a projection",
      [] { return nn::Lstm(3, 4, {.projection = 2, .peepholes = true, .dtype = dtype}); },
      [](const nn::Lstm& lstm, Device device) -> Variables {
        const auto whole = lstm(reals({4, 3, 3}, device));
        return {whole.outputs, whole.state.c};
      }));
  all.push_back(device_case<nn::Gru>(
      "Gru", [] { return nn::Gru(3, 4, {.bidirectional = true, .batch_first = true, .dtype = dtype}); },
      [lengths](const nn::Gru& gru, Device device) -> Variables {
        const auto whole = gru(reals({3, 4, 3}, device)),
                   cut = gru(reals({3, 4, 3}, device), lengths(device));
        return {whole.outputs, whole.state, cut.outputs};
      }));
  all.push_back(matrices_case("scan", [](const Matrices& m, Device device) -> Variables {
    const esp::ScanStep step = [&](const Variables& h, const Variables& x) -> esp::ScanResult {
      const Variable next = tanh(matmul(x[0], m.u) + matmul(h[0], m.w));
      return {{next}, {next * 0.5}};
    };
    const esp::ScanResult result = esp::scan(step, {reals({2, 4}, device)}, {reals({5, 2, 3}, device)});
    return {result.state[0], result.outputs[0]};
  }));
  all.push_back(device_case<nn::MultiHeadAttention>(
      "MultiHeadAttention", [] { return nn::MultiHeadAttention(4, 2, {.dtype = dtype}); },
      [](const nn::MultiHeadAttention& attention, Device device) -> Variables {
        const Variable x = reals({2, 5, 4}, device), memory = reals({2, 3, 4}, device, 7);
        return {attention(x), attention(x, {.causal = true}), attention(x, memory, memory)};
      }));
  all.push_back(device_case<nn::Crf>(
      "Crf", [] { return nn::Crf(3, {.dtype = dtype}); },
      [](const nn::Crf& crf, Device device) -> Variables {
        const Variable x = reals({2, 4, 3}, device);
        const Variable tags = integers({0, 2, 1, 1, 2, 2, 0, 1}, {2, 4}, device);
        esp::Tensor mask = esp::ones({2, 4}, esp::boolean);
        mask.at<bool>({1, 3}) = false;
        const Variable counts = mask.to(device);
        return {crf.log_likelihood(x, tags), crf.log_likelihood(x, tags, counts),
                crf.decode(x, counts).cast(dtype)};
      }));
  all.push_back(matrices_case("ctc_loss", [](const Matrices& m, Device device) -> Variables {
    const Variable x = matmul(reals({5, 2, 3}, device), m.u) + sum(m.w, 0);
    const Variable loss = esp::ctc_loss(log_softmax(x, 2), integers({1, 2, 3, 2, 2, 0}, {2, 3}, device),
                                        integers({5, 4}, {2}, device), integers({3, 2}, {2}, device));
    return {loss};
  }));
  all.push_back(device_case<nn::TransformerEncoder>(
      "KvCache",
      [] {
        return nn::TransformerEncoder(
            2, 4, 2, {.feedforward = 6, .dropout = 0, .rotary = nn::RotaryOptions{}, .dtype = dtype});
      },
      [](const nn::TransformerEncoder& encoder, Device device) -> Variables {
        const Variable x = reals({2, 4, 4}, device);
        nn::KvCaches caches;
        Variables steps{encoder(x, {.causal = true})};
        const esp::NoGrad none;
        steps.push_back(encoder.step(slice(x, 1, 0, 2), caches));
        steps.push_back(encoder.step(slice(x, 1, 2, 3), caches));
        steps.push_back(encoder.step(slice(x, 1, 3, 4), caches));
        return steps;
      }));
  all.push_back(device_case<nn::Transformer>(
      "Transformer",
      [] {
        return nn::Transformer({.width = 4, .heads = 2, .encoder_layers = 1, .decoder_layers = 1},
                               {.feedforward = 6, .dropout = 0, .norm_first = true, .dtype = dtype});
      },
      [](const nn::Transformer& transformer, Device device) -> Variables {
        return {transformer(reals({2, 3, 4}, device), reals({2, 4, 4}, device, 7))};
      }));
  all.push_back(device_case<nn::ChildSumTreeLstm>(
      "ChildSumTreeLstm", [] { return nn::ChildSumTreeLstm(3, 4, {.dtype = dtype}); },
      [](const nn::ChildSumTreeLstm& cell, Device device) -> Variables {
        const auto a = cell(reals({1, 3}, device)), b = cell(reals({1, 3}, device, 7)),
                   both = cell(reals({1, 3}, device, 9), {a, b}), root = cell(Variable(), {both, a, b});
        return {root.h, root.c};
      }));
  all.push_back(device_case<nn::NaryTreeLstm>(
      "NaryTreeLstm", [] { return nn::NaryTreeLstm(3, 4, {.dtype = dtype}); },
      [](const nn::NaryTreeLstm& cell, Device device) -> Variables {
        const auto a = cell(reals({2, 3}, device)), b = cell(reals({2, 3}, device, 7)),
                   both = cell(reals({2, 3}, device, 9), {a, b}), root = cell(Variable(), {both, a});
        return {root.h, root.c};
      }));
  all.push_back(device_case<nn::TransformerEncoderLayer>(
      "TransformerEncoderLayer",
      [] { return nn::TransformerEncoderLayer(4, 2, {.feedforward = 6, .dropout = 0, .dtype = dtype}); },
      [](const nn::TransformerEncoderLayer& layer, Device device) -> Variables {
        return {layer(reals({2, 3, 4}, device), {.causal = true})};
      }));
  all.push_back(device_case<nn::LSTMCell>(
      "LSTMCell", [] { return nn::LSTMCell(3, 4, {.dtype = dtype}); },
      [](const nn::LSTMCell& cell, Device device) -> Variables {
        std::vector<Variable> ends;
        for (const int64_t steps : {3, 1, 2}) {
          nn::LSTMState state = cell(reals({1, 3}, device, steps));
          for (int64_t t = 1; t < steps; ++t) state = cell(reals({1, 3}, device, steps + t), state);
          ends.push_back(state.h + state.c);
        }
        return {esp::stack(ends, 1)};
      }));
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layers_device)

BOOST_AUTO_TEST_CASE(layers_compute_what_they_do_eagerly_on_the_cpu) { check_on_devices(cases()); }
BOOST_AUTO_TEST_CASE(plans_train_them_as_eagerly_on_the_cpu) { check_training_on_devices(cases()); }

BOOST_AUTO_TEST_SUITE_END()
