#include "espalier/core/op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <typeinfo>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"

namespace espalier {

void InputSpecs::refuse(size_t i, size_t inputs) {
  throw Error(fmt::format("an op that reads input {} was given {}", i, inputs));
}

std::string to_string(const Attributes& attributes) {
  std::string text;
  for (const auto& [key, value] : attributes) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}=", key);
    text += std::visit(
        [](const auto& v) {
          if constexpr (requires { v.begin(); } && !std::is_same_v<std::decay_t<decltype(v)>, std::string>)
            return fmt::format("[{}]", fmt::join(v, ", "));
          else
            return fmt::format("{}", v);
        },
        value);
  }
  return text;
}

void detail::throw_small_integers(std::string_view op, const Spec& spec) {
  throw TypeError(
      fmt::format("{}: nothing is computed with {} (shape {}), a type of stored data; cast() it first, for "
                  "example to float32",
                  op, espalier::name(spec.dtype), spec.shape.str()));
}

void Op::check_small_integers(const InputSpecs& inputs, const Specs& outputs) const {
  const bool moves = is_leaf() || kind() == OpKind::source || runs_everywhere() || traits_.takes_halves ||
                     traits_.takes_small_integers || effect() == Effect::writes_leaf;
  if (moves) return;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_small_integer(inputs[i]->dtype) && reads_elements(i))
      detail::throw_small_integers(name(), *inputs[i]);
  for (const Spec& spec : outputs)
    if (is_small_integer(spec.dtype)) detail::throw_small_integers(name(), spec);
}

void Op::unsupported(const KernelCall& call, std::string_view device) const {
  const DType dtype = call.inputs.empty() ? call.outputs[0]->dtype() : call.inputs[0]->dtype();
  throw UnsupportedError(
      fmt::format("{} is not supported for {} on {}", name(), espalier::name(dtype), device));
}

void detail::no_attribute(const Op& op, std::string_view name) {
  throw Error(fmt::format("{} has no attribute '{}' of that type", op.name(), name));
}

bool Op::equals(const Op& other) const {
  return this == &other || (typeid(*this) == typeid(other) && attributes() == other.attributes());
}

NodeFlops product_flops(MatmulForm form, const Spec& left, int64_t results) {
  const int64_t inner = left.shape.end()[form.transpose_a ? -2 : -1];
  return {.product = 2 * static_cast<double>(results) * static_cast<double>(inner),
          .product_type = left.dtype};
}

void Op::run_cpu(const KernelCall& call) const { unsupported(call, "cpu"); }
Gradients Op::gradient(const GradientRule&) const {
  throw UnsupportedError(fmt::format("{} has no gradient", name()));
}

}  // namespace espalier
