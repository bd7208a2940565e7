#include "espalier/ops/recurrent/sequence_checks.h"

#include <fmt/format.h>

#include <string>

#include "espalier/core/error.h"
#include "espalier/core/first_input.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

class CheckedSteps : public FirstInput {
 public:
  explicit CheckedSteps(std::string function) : function_(std::move(function)) {}
  std::string_view name() const override { return "checked_steps"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  Specs infer(const InputSpecs& in) const override {
    const Shape& shape = in[0]->shape;
    if (shape.rank() == 0 || shape[0] == 0)
      throw ShapeError(fmt::format("{}: an input of {} steps; it needs at least one", function_,
                                   shape.rank() ? "0" : "no"));
    return FirstInput::infer(in);
  }

 private:
  std::string function_;  // that the user called
};

/// From (lengths, x): the lengths.
class CheckedLengths : public Op {
 public:
  explicit CheckedLengths(std::string function)
      : Op({.reads = InputSet::only(0),
            .in_place = InputSet::only(0),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}),
        function_(std::move(function)) {}
  std::string_view name() const override { return "checked_lengths"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs&) const override {
    return axis != (input == 0 ? 0u : 1u);
  }
  Specs infer(const InputSpecs& in) const override {
    if (in[0]->dtype != DType::int64)
      throw TypeError(fmt::format("{}: lengths are int64, not {}", function_, espalier::name(in[0]->dtype)));
    if (in[1]->shape.rank() < 2 || !(in[0]->shape == Shape{in[1]->shape[1]}))
      throw ShapeError(fmt::format("{}: lengths of shape {} for an input [steps, batch, …] of shape {}",
                                   function_, in[0]->shape.str(), in[1]->shape.str()));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor given = call.inputs[0]->contiguous_copy();
    const int64_t steps = call.inputs[1]->shape()[0];
    for (const int64_t length : given.span<int64_t>())
      if (length < 0 || length > steps)
        throw IndexError(fmt::format("{}: a length of {} in an input of {} steps", function_, length, steps));
    if (call.inputs[0]->address() != call.outputs[0]->address()) copy_elements(given, *call.outputs[0]);
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }

 private:
  std::string function_;  // that the user called
};

}  // namespace

bool has_open_steps(const Variable& x) { return x.rank() > 0 && is_open_axis(x, 0); }

Variable checked_steps(const Variable& x, std::string_view function) {
  const auto op = std::make_shared<CheckedSteps>(std::string(function));
  if (has_open_steps(x)) return apply(op, {&x}, std::source_location::current());
  const Spec spec{x.dtype(), x.shape()};
  InputSpecs specs;
  specs.push_back(&spec);
  (void)op->infer(specs);
  return x;
}

Variable checked_lengths(const Variable& lengths, const Variable& x, std::string_view function) {
  if (lengths.dtype() != int32 && lengths.dtype() != int64)
    throw TypeError(
        fmt::format("{}: lengths must be int32 or int64, not {}", function, name(lengths.dtype())));
  Variable wide = cast(lengths, int64);
  if (!wide.node()->lazy && wide.device() != x.device()) wide = wide.to(x.device());  // a list of the user
  return apply(std::make_shared<CheckedLengths>(std::string(function)), {&wide, &x},
               std::source_location::current());
}

void add_sequence_check_ops(OpRegistry& ops) {
  ops.add("checked_steps", 1,
          [](AttributeReader& a) { return std::make_shared<CheckedSteps>(a.text("function")); });
  ops.add("checked_lengths", 2,
          [](AttributeReader& a) { return std::make_shared<CheckedLengths>(a.text("function")); });
}

}  // namespace espalier
