#include "espalier/nn/layer_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/leaf_substitutes.h"
#include "espalier/core/node.h"
#include "espalier/core/open_note.h"
#include "espalier/core/open_sizes.h"
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

Tensor LayerState::initial_value(const Entry& entry, DType dtype, Sizes sizes,
                                 const std::vector<std::pair<ParameterSlot*, Variable>>& created) const {
  const ParameterSlot& slot = entry.slot;
  if (!slot.derive) {
    Shape shape = slot.pattern;
    for (int64_t& size : shape.dims()) size = resolve(entry, size, sizes);
    return slot.initialize(shape, slot.dtype.value_or(dtype));
  }
  const ParameterSlot* of = find_slot(slot.of);
  Variable value = of->value;
  for (const auto& [known, now] : created)
    if (known == of) value = now;
  return slot.derive(value.value().to(cpu()));
}

void LayerState::create(Device device, DType dtype, Sizes sizes) {
  std::vector<std::pair<ParameterSlot*, Variable>> created;
  for (Entry& entry : entries()) {
    if (entry.child || entry.slot.value.defined()) continue;
    const Tensor value = initial_value(entry, dtype, sizes, created);
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

void LayerState::check_known(const Variable& x, Sizes sizes) const {
  for (const Entry& entry : entries()) {
    if (entry.child || entry.slot.derive || entry.slot.value.defined()) continue;
    for (const auto& [open, size] : sizes) {
      if (std::ranges::find(entry.slot.pattern.dims(), open) == entry.slot.pattern.end()) continue;
      for (size_t axis = 0; axis < x.rank(); ++axis)
        if (x.shape().dims()[axis] == size && is_open_axis(x, static_cast<int64_t>(axis)))
          throw UnsupportedError(fmt::format(
              "{}: the size that the layer would learn from the input {} for its {} {} is that "
              "of an open axis (-1), and so not known; write it in the placeholder, or give it to "
              "the layer",
              kind_, x.shape().str(), entry.name, entry.slot.pattern.str()));
    }
  }
}

void LayerState::fit(const Variable& x, Sizes sizes) {
  if (!is_real(x.dtype()))
    throw TypeError(
        fmt::format("{}: the input must be of a real type, not {}; its shape is {}; cast() it first", kind_,
                    name(x.dtype()), x.shape().str()));
  note_input(x);
  check_known(x, sizes);
  create(x.device(), x.dtype(), sizes);
  for (const Entry& entry : entries()) {
    if (entry.child || entry.slot.derive) continue;
    const Variable& value = entry.slot.value;
    const Shape &pattern = entry.slot.pattern, &shape = value.shape();
    for (size_t axis = 0; axis < pattern.rank(); ++axis)
      if (const int64_t size = resolve(entry, pattern.dims()[axis], sizes); size != shape.dims()[axis])
        throw ShapeError(
            fmt::format("{}: an input of shape {} does not fit the {} of shape {}: sizes {} and {}{}", kind_,
                        x.shape().str(), entry.name, shape.str(), size_text(size),
                        size_text(shape.dims()[axis]), open_note(size, shape.dims()[axis])));
    if (!entry.slot.dtype && value.dtype() != x.dtype())
      throw TypeError(fmt::format("{}: the input is {} and the {} {}; cast() the input", kind_,
                                  name(x.dtype()), entry.name, name(value.dtype())));
  }
}

void LayerState::note_input(const Variable& x) {
  if (!computed_.empty()) fed_ = x.node()->lazy;  // other layers may be called by several threads
}

Variable LayerState::call(const Variable& x) {
  note_input(x);
  LayerTrace* trace = LayerTrace::current();
  if (!trace) return after_hooks(x, forward(x));
  const size_t number = trace->begin(*this);
  Variable y = after_hooks(x, forward(x));
  trace->end(number, y);
  return y;
}

const ParameterSlot* LayerState::find_slot(std::string_view name) const {
  for (const Entry& entry : entries())
    if (!entry.child && entry.name == name) return &entry.slot;
  return nullptr;
}

Variable LayerState::parameter(std::string_view name) const {
  if (const ParameterSlot* slot = find_slot(name)) return substitute_of(slot->value);
  for (const Computed& known : computed_)
    if (known.how.name == name) return computed(known);
  throw Error(fmt::format("{}: no parameter '{}' was declared", kind_, name));
}

Variable LayerState::computed(const Computed& parameter) const {
  const Reparametrization& how = parameter.how;
  std::vector<Variable> values{this->parameter(how.original)};
  for (const Reparametrization::Part& part : how.parts) values.push_back(this->parameter(part.name));
  // What a state is written from is computed once, too.
  const bool once =
      std::ranges::any_of(computed_, [](const Computed& other) { return other.how.writes_states; });
  if (!once || !fed_) return how.make(values, training());
  std::vector<const Node*> nodes;
  for (const Variable& value : values) nodes.push_back(value.node());
  const bool known = parameter.last.defined() && parameter.last_of == nodes &&
                     parameter.last_training == training() &&
                     parameter.last.node()->stops_gradient == build_context().no_grad &&
                     parameter.last.device() == values[0].device();
  if (!known) {
    BuildContext now = build_context();
    now.lazy = true;  // each step computes it, as it does the layer
    const BuildScope scope(now);
    parameter.last = how.make(values, training());
    parameter.last_of = std::move(nodes);
    parameter.last_training = training();
  }
  return parameter.last;
}

std::string LayerState::title() const {
  return kind_ == "layer" ? std::string(kind_) : fmt::format("{} layer", kind_);
}

void LayerState::refuse_parameter(std::string_view name, std::string_view norm) const {
  std::string why, list;
  for (const Computed& known : computed_) {
    if (known.how.name != name) continue;
    why = fmt::format("it is computed from '{}'", known.how.original);
    for (const Reparametrization::Part& part : known.how.parts) why += fmt::format(" and '{}'", part.name);
  }
  for (const Entry& entry : entries())
    if (!entry.child && !entry.slot.buffer)
      list += fmt::format("{}'{}'", list.empty() ? "its parameters are " : ", ", entry.name);
  if (why.empty()) why = list.empty() ? "it has none" : list;
  throw Error(fmt::format("{}: the {} has no parameter '{}' of its own; {}", norm, title(), name, why));
}

const Shape& LayerState::pattern_of(std::string_view name, std::string_view norm) const {
  const ParameterSlot* slot = find_slot(name);
  if (!slot || slot->buffer) refuse_parameter(name, norm);
  return slot->value.defined() ? slot->value.shape() : slot->pattern;
}

int64_t LayerState::axis_of(std::string_view name, int64_t axis, std::string_view norm) const {
  const Shape& whole = pattern_of(name, norm);
  const int64_t rank = static_cast<int64_t>(whole.rank());
  if (axis < -rank || axis >= rank)
    throw ShapeError(fmt::format("{}: there is no axis {} in the parameter '{}' of shape {}", norm, axis,
                                 name, whole.str()));
  return axis < 0 ? axis + rank : axis;
}

void LayerState::reparametrize(std::string_view norm, Reparametrization change) {
  (void)pattern_of(change.name, norm);
  std::vector<std::string_view> names{change.original};
  for (const Reparametrization::Part& part : change.parts) names.push_back(part.name);
  for (const std::string_view taken : names)
    if (find_slot(taken))
      throw Error(fmt::format("{}: the {} has a parameter '{}' already", norm, title(), taken));
  const ParameterSlot original = *find_slot(change.name);
  std::vector<ParameterSlot> slots;  // made before anything changes
  for (const Reparametrization::Part& part : change.parts) {
    ParameterSlot slot{part.pattern, original.dtype, {}, {}, part.buffer, change.original, part.derive};
    if (original.value.defined()) {
      const Tensor value = part.derive(original.value.value().to(cpu())).to(original.value.device());
      slot.value = slot.make(value, part.name, *build_context().where);
    }
    slots.push_back(std::move(slot));
  }
  for (Entry& entry : entries()) {
    if (entry.child) continue;
    if (entry.name == change.name) entry.name = change.original;
    if (entry.slot.of == change.name) entry.slot.of = change.original;
  }
  for (size_t i = 0; i < slots.size(); ++i) add_slot(change.parts[i].name, std::move(slots[i]));
  computed_.push_back({std::move(change)});
}

}  // namespace espalier::nn
