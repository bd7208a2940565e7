#include "espalier/executor/fused/convolution_epilogue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "espalier/core/op_names.h"

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
    return so_far_ == code.size() - 1 ? std::optional(std::move(made_)) : std::nullopt;
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
    return is_of_type(operand.dtype) &&
           (shape.elements() == 1 || (shape.rank() > places_ && *(shape.end() - places_ - 1) == channels &&
                                      shape.elements() == channels));
  }
  /// That of y, or float32 between conversions.
  bool is_of_type(DType dtype) const {
    return dtype == output_.dtype || (is_half(output_.dtype) && dtype == DType::float32);
  }
  bool is_so_far(const Argument& a) const {
    return so_far_ ? a.from == Argument::From::value && a.index == *so_far_
                   : a.from == Argument::From::input && a.index == result_;
  }
  /// The input that an argument is, converted or not.
  std::optional<size_t> input(const Argument& a) const {
    if (a.from == Argument::From::input) return a.index;
    const auto known = a.from == Argument::From::value ? converted_.find(a.index) : converted_.end();
    return known == converted_.end() ? std::nullopt : std::optional(known->second);
  }
  std::optional<double> number(const Argument& a) const {
    if (a.from != Argument::From::constant) return std::nullopt;
    return program_.constants[a.index].value;
  }

  bool take(const Instruction& n, size_t i) {
    if (n.kind != Instruction::Kind::map || !is_of_type(n.dtype) || !is_seen_like_output(n.shape))
      return false;
    if (is_op(*n.op, "cast")) return take_conversion(n, i);
    if (n.extent != Extent::full) return false;
    const bool taken = n.arguments.size() == 1   ? is_so_far(n.arguments[0]) && take_activation(n)
                       : n.arguments.size() == 2 ? take_binary(n)
                                                 : false;
    so_far_ = i;
    return taken;
  }
  /// Values are not rounded on the way: the last conversion alone says what y will be.
  bool take_conversion(const Instruction& n, size_t i) {
    made_.casts = true;
    if (is_so_far(n.arguments[0])) {
      so_far_ = i;
      return true;
    }
    const auto from = input(n.arguments[0]);
    if (from) converted_.emplace(i, *from);
    return from.has_value();
  }
  bool take_binary(const Instruction& n) {
    const bool first = is_so_far(n.arguments[0]);
    const Argument& other = n.arguments[first ? 1 : 0];
    if (!first && !is_so_far(n.arguments[1])) return false;
    if (first && is_so_far(other)) return false;
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
    const auto from = input(other);
    if (!from || *from == result_) return false;  // it is read in another way than by the chain
    const Spec& operand = *inputs_[*from];
    if (steps_by_[*from] && is_of_channels(operand)) {
      if (made_.residual && kind != Arithmetic::add && kind != Arithmetic::subtract) return false;
      made_.steps.push_back({*kind, *from});
      return true;
    }
    if (kind != Arithmetic::add || made_.residual || !is_of_type(operand.dtype) ||
        !is_seen_like_output(operand.shape))
      return false;
    made_.residual = *from;
    made_.wide_residual = operand.dtype == DType::float32 && is_half(output_.dtype);
    return true;
  }

  const Program& program_;
  const size_t result_;
  const Spec& output_;
  const InputSpecs& inputs_;
  const std::vector<bool>& steps_by_;
  const size_t places_;
  std::optional<size_t> so_far_;        // the last value of the chain; before any, y
  std::map<size_t, size_t> converted_;  // values that are inputs in another type
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
