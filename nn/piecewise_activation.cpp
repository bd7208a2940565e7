#include "espalier/nn/piecewise_activation.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/function_state.h"
#include "espalier/ops/functions/piecewise_activation.h"

namespace espalier::nn {

namespace {

class PReluState : public LayerStateOf<PReluState> {
 public:
  PReluState(int64_t slopes, double slope, DType dtype) : LayerStateOf("PRelu"), slopes_(slopes) {
    declare("weight", {-1}, init::Constant(slope));
    create_with("number of slopes", slopes, dtype);
  }
  Variable forward(const Variable& x) override {
    fit(x, {{-1, slopes_ == 1 || x.rank() == 0 ? slopes_ : x.shape()[x.rank() > 1 ? 1 : 0]}});
    return prelu(x, parameter("weight"));
  }

 private:
  int64_t slopes_;
};

class RReluState : public LayerStateOf<RReluState> {
 public:
  RReluState(double lower, double upper) : lower_(lower), upper_(upper) {}
  std::string_view printed_kind() const override { return "RRelu"; }
  Variable forward(const Variable& x) override {
    return training() ? rrelu(x, lower_, upper_) : leaky_relu(x, (lower_ + upper_) / 2);
  }

 private:
  double lower_, upper_;
};

}  // namespace

LeakyRelu::LeakyRelu(double slope)
    : LayerOf(layer_of([=](const Operand& x) { return leaky_relu(x, slope); })) {}
PRelu::PRelu(int64_t slopes, double slope, DType dtype, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return std::make_shared<PReluState>(slopes, slope, dtype);
      })) {}
RRelu::RRelu(double lower, double upper) : LayerOf(std::make_shared<RReluState>(lower, upper)) {}
Elu::Elu(double alpha) : LayerOf(layer_of([=](const Operand& x) { return elu(x, alpha); })) {}
Celu::Celu(double alpha) : LayerOf(layer_of([=](const Operand& x) { return celu(x, alpha); })) {}
Selu::Selu() : LayerOf(layer_of([](const Operand& x) { return selu(x); })) {}
Relu6::Relu6() : LayerOf(layer_of([](const Operand& x) { return relu6(x); })) {}
Hardtanh::Hardtanh(double low, double high)
    : LayerOf(layer_of([=](const Operand& x) { return hardtanh(x, low, high); })) {}
Hardsigmoid::Hardsigmoid() : LayerOf(layer_of([](const Operand& x) { return hardsigmoid(x); })) {}
Hardswish::Hardswish() : LayerOf(layer_of([](const Operand& x) { return hardswish(x); })) {}
Softshrink::Softshrink(double lambda)
    : LayerOf(layer_of([=](const Operand& x) { return softshrink(x, lambda); })) {}
Hardshrink::Hardshrink(double lambda)
    : LayerOf(layer_of([=](const Operand& x) { return hardshrink(x, lambda); })) {}
Threshold::Threshold(double bound, double value)
    : LayerOf(layer_of([=](const Operand& x) { return threshold(x, bound, value); })) {}

}  // namespace espalier::nn
