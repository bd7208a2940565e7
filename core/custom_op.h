// custom_op: an operation of the user's own.
#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// What a custom op's gradient is made of.
struct CustomGradient {
  std::vector<Variable> inputs;
  Variable output;
  /// The gradient that arrives at the output, of its shape.
  Variable output_gradient;
};

struct CustomOpOptions {
  /// What errors, print_tree and plans call it.
  std::string name = {};
  /// Computes the output from the inputs, which are contiguous and must not be written. It must give the same
  /// for the same inputs, and may be called from any thread.
  std::function<Tensor(const std::vector<Tensor>&)> forward = {};
  /// Whether `forward` computes where its inputs are. Otherwise inputs on a GPU come to it as copies on the
  /// CPU, and its output goes back.
  bool takes_device_tensors = false;
  /// Whether each row of the output is made of the same row of the inputs, whatever their axis of rows, and
  /// however many rows there are. Only then can replicas have a share of a batch's rows each.
  bool row_by_row = false;
  /// The gradient with respect to each input, made by calling ops, or an empty Variable where there is none.
  /// Gradients that are larger than their input are summed down where the input was broadcast. Without it,
  /// the op has no gradient. It may call `gradient` itself, but not through the op's own output: see
  /// `stop_gradient`.
  std::function<std::vector<Variable>(const CustomGradient&)> gradient = {};
  /// The dtype and shape of the output. Without it, what is downstream of a feed runs `forward` once on zeros
  /// of each new combination of shapes to find out.
  std::function<Spec(const std::vector<Spec>&)> infer = {};
  /// How many inputs it has. Another number of them, which a plan file may claim as well, throws ShapeError
  /// before any of these functions is called. Without it, they must check it themselves.
  std::optional<size_t> inputs = {};
};

class CustomOp {
 public:
  CustomOp(const CustomOp&) = default;  // and no moves: what is moved from stays valid
  CustomOp& operator=(const CustomOp&) = default;
  /// One application. Throws ShapeError or TypeError when `forward` does not give what `infer` said, and lets
  /// through whatever the user's functions throw: an Error has the line in the function, and names function
  /// and op.
  Variable operator()(const std::vector<Variable>& inputs,
                      std::source_location where = std::source_location::current()) const;
  /// Of one input: `op(x)`.
  template <std::same_as<Variable> V>
  Variable operator()(const V& input, std::source_location where = std::source_location::current()) const {
    return (*this)(std::vector<Variable>{input}, where);
  }

 private:
  class Impl;
  explicit CustomOp(std::shared_ptr<const Impl> op) : op_(std::move(op)) {}
  friend CustomOp custom_op(CustomOpOptions options, std::source_location where);
  friend void register_custom_op(const CustomOp& op, std::source_location where);

  std::shared_ptr<const Impl> op_;
};

/// Throws Error without a name or `forward`.
CustomOp custom_op(CustomOpOptions options, std::source_location where = std::source_location::current());

/// Names an op for plan files: a program that loads one finds the custom ops in it by their names, and so
/// must have registered an op of each of these names, which computes the same. May be called from any thread.
/// Throws Error if another op of that name is registered.
void register_custom_op(const CustomOp& op, std::source_location where = std::source_location::current());

class Op;
bool is_custom_op(const Op& op);
bool is_registered(const Op& custom_op);
/// The registered op of that name; null if there is none.
std::shared_ptr<const Op> registered_custom_op(std::string_view name);

}  // namespace espalier
