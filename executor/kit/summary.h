// summary: a table of the layers of a module.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/executor/kit/net_call.h"
#include "espalier/nn/container.h"
#include "espalier/nn/module.h"

namespace espalier {

/// A call of a layer that calls no other ones.
struct LayerSummary {
  std::string path;           ///< in the module: "0", "hidden"; empty for a layer that is no part of it
  std::string kind;           ///< "Dense"; of layers without a name of their own, the operation: "relu"
  Shape output;               ///< of the input shape that was asked for
  int64_t parameters = 0;     ///< numbers; 0 in further calls of the same layer
  int64_t multiply_adds = 0;  ///< of matrix products and convolutions
  int64_t bytes = 0;          ///< of its parameters, buffers and output
};

struct ModuleSummary {
  Shape input, output;  ///< `input` is the first of them
  std::vector<Shape> inputs;
  std::vector<LayerSummary> layers;  ///< in the order of calling
  int64_t parameters = 0;            ///< numbers in all parameters of the module
  int64_t trained = 0;               ///< those that are not frozen
  int64_t buffers = 0;               ///< numbers in buffers
  int64_t parameter_bytes = 0;       ///< of parameters and buffers
  int64_t output_bytes = 0;          ///< of the outputs of all layers
  int64_t multiply_adds = 0;         ///< of matrix products and convolutions, also outside layers
};

/// The table, and a few lines of sums below it.
std::ostream& operator<<(std::ostream& out, const ModuleSummary& summary);

namespace internal {
ModuleSummary summarize(const nn::Module& module, const NetCall& net, const std::vector<Spec>& inputs,
                        const std::source_location& where);
}

/// What the module's layers make of an input of this shape, batch included. The module is called once, in
/// inference mode, with a placeholder: nothing is computed, and layers that have not learned their input
/// width do so. Throws what the module throws, and UnsupportedError for a size of -1.
template <nn::SequentialElement Net>
ModuleSummary summary(Net net, const Shape& input, DType dtype = float32,
                      std::source_location where = std::source_location::current()) {
  return internal::summarize(net, internal::net_call(net), {{dtype, input}}, where);
}
/// The same of a net of several inputs: summary(net, {{float32, {4, 3}}, {int64, {4}}}).
template <NetOfVariables Net>
requires(!internal::takes_one_input_alone<Net>) ModuleSummary
    summary(Net net, const std::vector<Spec>& inputs,
            std::source_location where = std::source_location::current()) {
  return internal::summarize(net, internal::net_call(net), inputs, where);
}

}  // namespace espalier
