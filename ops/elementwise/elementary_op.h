// Ops with one operand that differ in a functor and a gradient rule.
#pragma once
#include <string_view>

#include "espalier/ops/pointwise.h"

namespace espalier {

using Var = const Variable&;
inline constexpr OpPrecision follows = OpPrecision::follows;

/// The name of an op as an argument of a template.
struct OpName {
  consteval OpName(const char* name) {
    for (size_t i = 0; name[i]; ++i) text[i] = name[i];
  }
  char text[24] = {};
};

// Functions of one operand: name, functor, and gradient rule, a function of the output's gradient g and of
// either the output y or the operand x, the only value that the rule reads.

template <OpName op_name, class F, auto rule_by_output, OpPrecision precision = OpPrecision::full>
struct ByOutput : UnaryOp<F, Reals> {
  ByOutput()
      : UnaryOp<F, Reals>(
            {.precision = precision, .gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule_by_output(rule.output_gradient(), rule.output())};
  }
};

template <OpName op_name, class F, auto rule_by_input, OpPrecision precision = OpPrecision::full>
struct ByInput : UnaryOp<F, Reals> {
  ByInput() : UnaryOp<F, Reals>({.precision = precision}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule_by_input(rule.output_gradient(), rule.input())};
  }
};

/// A function of x and a number, which is the second operand: no gradient passes to it.
template <OpName op_name, class F, auto rule_by_input, OpPrecision precision = OpPrecision::follows>
struct WithNumber : BinaryOp<F, Reals> {
  WithNumber() : BinaryOp<F, Reals>({.precision = precision}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.wants(0) ? rule_by_input(rule.output_gradient(), rule.input(0), rule.input(1)) : Variable(),
            Variable()};
  }
};

/// Piecewise constant, for numbers of type `Types`: the gradient is 0.
template <OpName op_name, class F, class Types, class Result = Same>
struct FlatUnary : UnaryOp<F, Types, Result> {
  FlatUnary() : UnaryOp<F, Types, Result>({.gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
};
template <OpName op_name, class F, class Types, class Result = Same>
struct FlatBinary : BinaryOp<F, Types, Result> {
  FlatBinary() : BinaryOp<F, Types, Result>({.gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }
};

}  // namespace espalier
