#include "espalier/nn/layer_state.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_trace.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

void LayerState::declare(std::string name, Shape shape, ParameterSlot::Initialize initialize,
                         std::optional<DType> dtype) {
  add_slot(std::move(name), {std::move(shape), dtype, {}, std::move(initialize)});
}

void LayerState::declare_buffer(std::string name, Shape shape, ParameterSlot::Initialize initialize,
                                std::optional<DType> dtype) {
  add_slot(std::move(name), {std::move(shape), dtype, {}, std::move(initialize), true});
}

int64_t LayerState::resolve(const Entry& entry, int64_t size, Sizes sizes) const {
  if (size >= 0) return size;
  for (const auto& [open, known] : sizes)
    if (open == size) return known;
  throw Error(
      fmt::format("{}: the size {} of {} {} stays open", kind_, size, entry.name, entry.slot.pattern.str()));
}

Variable LayerState::after_hooks(const Variable& x, Variable y) const {
  const auto hooks = hooks_;  // a hook may remove itself
  for (const auto& [id, hook] : hooks)
    if (Variable other = hook(x, y); other.defined()) y = std::move(other);
  return y;
}

int64_t LayerState::add_hook(Hook hook) {
  if (!hook) throw Error("register_forward_hook: the function is empty");
  hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

bool LayerState::remove_hook(int64_t id) {
  return std::erase_if(hooks_, [id](const auto& hook) { return hook.first == id; }) > 0;
}

void LayerState::create(Device device, DType dtype, Sizes sizes) {
  std::vector<std::pair<ParameterSlot*, Variable>> created;
  for (Entry& entry : entries()) {
    if (entry.child || entry.slot.value.defined()) continue;
    Shape shape = entry.slot.pattern;
    for (int64_t& size : shape.dims()) size = resolve(entry, size, sizes);
    const Tensor value = entry.slot.initialize(shape, entry.slot.dtype.value_or(dtype));
    created.emplace_back(&entry.slot, entry.slot.make(value.to(device), entry.name, *build_context().where));
  }
  for (auto& [slot, value] : created) fill(*slot, std::move(value));
}

void LayerState::create_with(std::string_view what, int64_t size, DType dtype) {
  if (size <= 0) throw Error(fmt::format("{}: the {} is {}; it must be at least 1", kind_, what, size));
  if (!is_real(dtype))
    throw TypeError(fmt::format("{}: the dtype must be a real one, not {}", kind_, name(dtype)));
  create(cpu(), dtype, {{-1, size}});
}

void LayerState::fit(const Variable& x, Sizes sizes) {
  if (!is_real(x.dtype()))
    throw TypeError(fmt::format("{}: the input must be of a real type, not {}; its shape is {}", kind_,
                                name(x.dtype()), x.shape().str()));
  create(x.device(), x.dtype(), sizes);
  for (const Entry& entry : entries()) {
    if (entry.child) continue;
    const Variable& value = entry.slot.value;
    const Shape &pattern = entry.slot.pattern, &shape = value.shape();
    for (size_t axis = 0; axis < pattern.rank(); ++axis)
      if (const int64_t size = resolve(entry, pattern.dims()[axis], sizes); size != shape.dims()[axis])
        throw ShapeError(
            fmt::format("{}: an input of shape {} does not fit the {} of shape {}: sizes {} and {}", kind_,
                        x.shape().str(), entry.name, shape.str(), size, shape.dims()[axis]));
    if (!entry.slot.dtype && value.dtype() != x.dtype())
      throw TypeError(fmt::format("{}: the input is {} and the {} {}; cast() the input", kind_,
                                  name(x.dtype()), entry.name, name(value.dtype())));
  }
}

Variable LayerState::call(const Variable& x) {
  LayerTrace* trace = LayerTrace::current();
  if (!trace) return after_hooks(x, forward(x));
  const size_t number = trace->begin(*this);
  Variable y = after_hooks(x, forward(x));
  trace->end(number, y);
  return y;
}

const Variable& LayerState::parameter(std::string_view name) const {
  for (const Entry& entry : entries())
    if (!entry.child && entry.name == name) return entry.slot.value;
  throw Error(fmt::format("{}: no parameter '{}' was declared", kind_, name));
}

}  // namespace espalier::nn
