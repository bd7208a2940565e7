#include "espalier/executor/fused/convolution_epilogue.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace espalier {

namespace {

using Activation = ConvolutionAfter::Activation;
using Arithmetic = ChannelProgram::Step::Kind;

std::optional<Arithmetic> kind_of(std::string_view name) {
  if (name == "add") return Arithmetic::add;
  if (name == "subtract") return Arithmetic::subtract;
  if (name == "multiply") return Arithmetic::multiply;
  if (name == "divide") return Arithmetic::divide;
  return std::nullopt;
}

class Reader {
 public:
  Reader(const Program& program, size_t result, const Spec& output, const InputSpecs& inputs,
         const std::vector<bool>& steps_by, size_t places)
      : program_(program),
        result_(result),
        output_(output),
        inputs_(inputs),
        steps_by_(steps_by),
        places_(places) {}

  std::optional<ChannelProgram> read() {
    const auto& code = program_.instructions;
    if (code.empty() || program_.outputs.size() != 1 || program_.outputs[0] != code.size() - 1 ||
        output_.shape.rank() <= places_)
      return std::nullopt;
    for (size_t i = 0; i < code.size(); ++i)
      if (!take(code[i], i)) return std::nullopt;
    return std::move(made_);
  }

 private:
  /// Whether the axes from the channels on are those of the output, which a program may see in other shapes.
  bool is_seen_like_output(const Shape& shape) const {
    return shape.rank() > places_ && shape.elements() == output_.shape.elements() &&
           std::equal(shape.end() - places_ - 1, shape.end(), output_.shape.end() - places_ - 1);
  }
  /// An operand with one number for each channel, or one in all.
  bool is_of_channels(const Spec& operand) const {
    const Shape& shape = operand.shape;
    const int64_t channels = *(output_.shape.end() - places_ - 1);
    return operand.dtype == output_.dtype &&
           (shape.elements() == 1 || (shape.rank() > places_ && *(shape.end() - places_ - 1) == channels &&
                                      shape.elements() == channels));
  }
  bool is_so_far(const Argument& a, size_t i) const {
    return i == 0 ? a.from == Argument::From::input && a.index == result_
                  : a.from == Argument::From::value && a.index == i - 1;
  }
  std::optional<double> number(const Argument& a) const {
    if (a.from != Argument::From::constant) return std::nullopt;
    return program_.constants[a.index].value;
  }

  bool take(const Instruction& n, size_t i) {
    if (n.kind != Instruction::Kind::map || n.extent != Extent::full || n.dtype != output_.dtype ||
        !is_seen_like_output(n.shape))
      return false;
    if (n.arguments.size() == 1) return is_so_far(n.arguments[0], i) && take_activation(n);
    if (n.arguments.size() != 2) return false;
    const bool first = is_so_far(n.arguments[0], i);
    const Argument& other = n.arguments[first ? 1 : 0];
    if (!first && !is_so_far(n.arguments[1], i)) return false;
    if (first && is_so_far(other, i)) return false;
    return take_bound(n, first, other) || take_step(n, first, other);
  }

  bool take_activation(const Instruction& n) {
    if (made_.activation != Activation::none) return false;
    const std::string_view name = n.op->name();
    if (name == "relu") made_.activation = Activation::relu;
    if (name == "tanh") made_.activation = Activation::tanh;
    if (name == "sigmoid") made_.activation = Activation::sigmoid;
    return made_.activation != Activation::none;
  }
  /// Both bounds of a clip; one alone is bounded by infinity.
  bool take_bound(const Instruction& n, bool first, const Argument& other) {
    const std::string_view name = n.op->name();
    const auto bound = number(other);
    if (!first || !bound || (name != "saturate_min" && name != "saturate_max")) return false;
    if (made_.activation == Activation::none) {
      made_.activation = Activation::clip;
      made_.low = -std::numeric_limits<float>::infinity();
      made_.high = std::numeric_limits<float>::infinity();
    }
    if (made_.activation != Activation::clip) return false;
    float& side = name == "saturate_min" ? made_.low : made_.high;
    if (std::isfinite(side)) return false;
    side = static_cast<float>(*bound);
    return made_.low <= made_.high;
  }
  bool take_step(const Instruction& n, bool first, const Argument& other) {
    const auto kind = kind_of(n.op->name());
    const bool turns = kind == Arithmetic::add || kind == Arithmetic::multiply;
    if (!kind || (!first && !turns) || made_.activation != Activation::none) return false;
    if (const auto constant = number(other)) {
      if (made_.residual && kind != Arithmetic::add && kind != Arithmetic::subtract) return false;
      made_.steps.push_back({*kind, std::nullopt, *constant});
      return true;
    }
    if (other.from != Argument::From::input) return false;
    const Spec& operand = *inputs_[other.index];
    if (steps_by_[other.index] && is_of_channels(operand)) {
      if (made_.residual && kind != Arithmetic::add && kind != Arithmetic::subtract) return false;
      made_.steps.push_back({*kind, other.index});
      return true;
    }
    if (kind != Arithmetic::add || made_.residual || operand.dtype != output_.dtype ||
        !is_seen_like_output(operand.shape))
      return false;
    made_.residual = other.index;
    return true;
  }

  const Program& program_;
  const size_t result_;
  const Spec& output_;
  const InputSpecs& inputs_;
  const std::vector<bool>& steps_by_;
  const size_t places_;
  ChannelProgram made_;
};

}  // namespace

bool ChannelProgram::scales() const {
  return std::ranges::any_of(steps, [](const Step& step) {
    return step.kind == Arithmetic::multiply || step.kind == Arithmetic::divide;
  });
}

bool ChannelProgram::is_biased() const {
  return (activation == Activation::none || activation == Activation::relu) && steps.size() == 1 &&
         steps[0].kind == Arithmetic::add && steps[0].input.has_value();
}

std::optional<ChannelProgram> ChannelProgram::of(const Program& program, size_t result, const Spec& output,
                                                 const InputSpecs& inputs, const std::vector<bool>& steps_by,
                                                 size_t places) {
  return Reader(program, result, output, inputs, steps_by, places).read();
}

}  // namespace espalier
