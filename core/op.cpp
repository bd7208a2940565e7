#include "espalier/core/op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <typeinfo>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"

namespace espalier {

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

void Op::unsupported(const KernelCall& call, std::string_view device) const {
  const DType dtype = call.inputs.empty() ? call.outputs[0]->dtype() : call.inputs[0]->dtype();
  throw UnsupportedError(
      fmt::format("{} is not supported for {} on {}", name(), espalier::name(dtype), device));
}

bool Op::equals(const Op& other) const {
  return this == &other || (typeid(*this) == typeid(other) && attributes() == other.attributes());
}

void Op::run_cpu(const KernelCall& call) const { unsupported(call, "cpu"); }
std::unique_ptr<BoundKernel> Op::bind_cuda(const KernelCall& call) const {
  if (!only_copies()) unsupported(call, "cuda");
  return bound([this, call](RandomStream) { run_cpu(call); });
}

Gradients Op::gradient(const GradientRule&) const {
  throw UnsupportedError(fmt::format("{} has no gradient", name()));
}

void Feed::read_part(int64_t epoch, int64_t step, int64_t first, std::span<Tensor> outputs) const {
  const std::vector<Tensor> whole = batch(epoch, step);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool rows = outputs[i].rank() > 0;  // else a number for all
    copy_elements(rows ? whole[i].slice(0, first, first + outputs[i].shape()[0]) : whole[i], outputs[i]);
  }
}

std::vector<Tensor> Feed::batch(int64_t epoch, int64_t step) const {
  std::vector<Tensor> outputs;
  for (const Spec& spec : specs()) {
    Shape shape = spec.shape;
    if (shape.rank()) shape.dims()[0] = rows(step);
    outputs.emplace_back(shape, spec.dtype);
  }
  read(epoch, step, outputs);
  return outputs;
}

}  // namespace espalier
