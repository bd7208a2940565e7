// Layers on each device, eager, deferred and as plans: values and gradients are those of eager evaluation on
// the CPU.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/subscript.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/crf.h"
#include "espalier/nn/multi_head_attention.h"
#include "espalier/nn/recurrent.h"
#include "espalier/nn/transformer.h"
#include "espalier/nn/tree_lstm.h"
#include "espalier/ops/ops.h"
#include "layer_figures.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Device;
using esp::Variable;

namespace {

constexpr esp::DType dtype = esp::float64;

esp::Tensor integers(const std::vector<int64_t>& values, const esp::Shape& shape, Device device) {
  return esp::tensor_from(values, shape).to(device);
}
esp::Tensor reals(const esp::Shape& shape, Device device, int64_t step = 5) {
  return figure_numbers(shape, step, 13, 8).to(device);
}

/// A program of a module: the outputs that are compared.
struct Case {
  const char* name;
  std::function<std::shared_ptr<nn::Module>()> make;
  std::function<Variables(const nn::Module&, Device)> outputs;
};

template <class Layer>
Case case_of(const char* name, std::function<Layer()> make,
             std::function<Variables(const Layer&, Device)> outputs) {
  struct Holder : nn::Module {
    explicit Holder(Layer made) : layer(add("layer", std::move(made))) {}
    Layer layer;
  };
  return {name, [make] { return std::make_shared<Holder>(make()); },
          [outputs](const nn::Module& module, Device device) {
            return outputs(static_cast<const Holder&>(module).layer, device);
          }};
}

/// A layer that is none: parameters `u` and `w` for a function.
struct Matrices : nn::Module {
  Variable u = add_parameter("u", figure_numbers({3, 4}, 3, 11, 9)),
           w = add_parameter("w", figure_numbers({4, 4}, 5, 11, 9));
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto lengths = [](Device device) { return nn::Lengths(integers({4, 2, 0}, {3}, device)); };
  all.push_back(case_of<nn::Lstm>(
      "Lstm of two layers and directions",
      [] { return nn::Lstm(3, 4, {.layers = 2, .bidirectional = true, .dtype = dtype}); },
      [lengths](const nn::Lstm& lstm, Device device) -> Variables {
        const auto whole = lstm(reals({4, 3, 3}, device)),
                   cut = lstm(reals({4, 3, 3}, device), lengths(device));
        return {whole.outputs, whole.state.h, whole.state.c, cut.outputs, cut.state.c};
      }));
  all.push_back(case_of<nn::Lstm>(
      "Lstm with peepholes and a projection",
      [] { return nn::Lstm(3, 4, {.projection = 2, .peepholes = true, .dtype = dtype}); },
      [](const nn::Lstm& lstm, Device device) -> Variables {
        const auto whole = lstm(reals({4, 3, 3}, device));
        return {whole.outputs, whole.state.c};
      }));
  all.push_back(case_of<nn::Gru>(
      "Gru", [] { return nn::Gru(3, 4, {.bidirectional = true, .batch_first = true, .dtype = dtype}); },
      [lengths](const nn::Gru& gru, Device device) -> Variables {
        const auto whole = gru(reals({3, 4, 3}, device)),
                   cut = gru(reals({3, 4, 3}, device), lengths(device));
        return {whole.outputs, whole.state, cut.outputs};
      }));
  all.push_back(
      {"scan", [] { return std::make_shared<Matrices>(); },
       [](const nn::Module& module, Device device) -> Variables {
         const auto& m = static_cast<const Matrices&>(module);
         const esp::ScanStep step = [&](const Variables& h, const Variables& x) -> esp::ScanResult {
           const Variable next = tanh(matmul(x[0], m.u) + matmul(h[0], m.w));
           return {{next}, {next * 0.5}};
         };
         const esp::ScanResult result = esp::scan(step, {reals({2, 4}, device)}, {reals({5, 2, 3}, device)});
         return {result.state[0], result.outputs[0]};
       }});
  all.push_back(case_of<nn::MultiHeadAttention>(
      "MultiHeadAttention", [] { return nn::MultiHeadAttention(4, 2, {.dtype = dtype}); },
      [](const nn::MultiHeadAttention& attention, Device device) -> Variables {
        const Variable x = reals({2, 5, 4}, device), memory = reals({2, 3, 4}, device, 7);
        return {attention(x), attention(x, {.causal = true}), attention(x, memory, memory)};
      }));
  all.push_back(case_of<nn::Crf>(
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
  all.push_back({"ctc_loss", [] { return std::make_shared<Matrices>(); },
                 [](const nn::Module& module, Device device) -> Variables {
                   const auto& m = static_cast<const Matrices&>(module);
                   const Variable x = matmul(reals({5, 2, 3}, device), m.u) + sum(m.w, 0);
                   const Variable loss =
                       esp::ctc_loss(log_softmax(x, 2), integers({1, 2, 3, 2, 2, 0}, {2, 3}, device),
                                     integers({5, 4}, {2}, device), integers({3, 2}, {2}, device));
                   return {loss};
                 }});
  all.push_back(case_of<nn::TransformerEncoder>(
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
  all.push_back(case_of<nn::Transformer>(
      "Transformer",
      [] {
        return nn::Transformer({.width = 4, .heads = 2, .encoder_layers = 1, .decoder_layers = 1},
                               {.feedforward = 6, .dropout = 0, .norm_first = true, .dtype = dtype});
      },
      [](const nn::Transformer& transformer, Device device) -> Variables {
        return {transformer(reals({2, 3, 4}, device), reals({2, 4, 4}, device, 7))};
      }));
  all.push_back(case_of<nn::ChildSumTreeLstm>(
      "ChildSumTreeLstm", [] { return nn::ChildSumTreeLstm(3, 4, {.dtype = dtype}); },
      [](const nn::ChildSumTreeLstm& cell, Device device) -> Variables {
        const auto a = cell(reals({1, 3}, device)), b = cell(reals({1, 3}, device, 7)),
                   both = cell(reals({1, 3}, device, 9), {a, b}), root = cell(Variable(), {both, a, b});
        return {root.h, root.c};
      }));
  all.push_back(case_of<nn::LSTMCell>(
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

enum class By { eager, deferred, plan };

/// The outputs, and the gradients of their weighed sum by all parameters.
std::vector<esp::Tensor> results_of(const Case& c, Device device, By way) {
  const std::shared_ptr<nn::Module> module = c.make();
  give_figure_values(*module);
  module->to(device);
  std::optional<esp::Deferred> waits;
  if (way == By::deferred) waits.emplace();
  const Variables outputs = c.outputs(*module, device);
  Variable loss;
  for (const Variable& output : outputs) {
    const Variable part = sum(output * reals(output.shape(), device, 7));
    loss = loss.defined() ? loss + part : part;
  }
  std::vector<esp::Tensor> results;
  const auto keep = [&](const esp::Tensor& value) { results.push_back(value.to(esp::cpu())); };
  if (way == By::plan) {
    esp::Executor executor = loss.get_executor({.mode = esp::Mode::inference});
    keep(executor.run({}));
    return results;
  }
  keep(loss.value());
  for (const Variable& output : outputs) keep(output.value());
  for (const auto& [path, p] : parameters_by_name(*module)) keep(loss.gradient(p).value());
  return results;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layers_device)

BOOST_AUTO_TEST_CASE(layers_compute_what_they_do_eagerly_on_the_cpu) {
  std::vector<Device> devices = gpus_to_test();
  devices.push_back(esp::cpu());
  for (const Case& c : cases()) {
    const std::vector<esp::Tensor> expected = results_of(c, esp::cpu(), By::eager);
    for (const Device device : devices)
      for (const By way : {By::eager, By::deferred, By::plan})
        BOOST_TEST_CONTEXT(c.name << " on " << device << ", way " << static_cast<int>(way)) {
          const std::vector<esp::Tensor> results = results_of(c, device, way);
          BOOST_REQUIRE(results.size() == (way == By::plan ? 1 : expected.size()));
          for (size_t i = 0; i < results.size(); ++i) BOOST_TEST(difference(expected[i], results[i]) < 1e-10);
        }
  }
}

BOOST_AUTO_TEST_SUITE_END()
