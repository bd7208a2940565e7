#include "espalier/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

Module::Module() : state_(std::make_shared<ModuleState>()) {}

void Module::add_child(std::string name, const Module& child, const Where& where) {
  located(where, [&] { state_->add_child(std::move(name), child.state_); });
}

Variable Module::add_parameter(std::string name, const Tensor& value, Where where) {
  return add_parameter(name, espalier::parameter(value, name, where), where);
}

Variable Module::add_parameter(std::string name, const Variable& parameter, Where where) {
  return located(where, [&] {
    if (!parameter.defined() || !is_parameter(parameter.node()->op()))
      throw Error(fmt::format("'{}' cannot be added: it is {}, not a parameter", name,
                              !parameter.defined() ? "undefined"
                              : parameter.node()->op().is_leaf()
                                  ? fmt::format("a {}", parameter.node()->op().name())
                                  : "the result of an operation"));
    state_->add_slot(std::move(name), {parameter.shape(), parameter.dtype(), parameter});
    return parameter;
  });
}

std::vector<std::pair<std::string, Variable>> Module::parameters() const {
  std::vector<std::pair<std::string, Variable>> list;
  for (auto& [path, slot, owner] : state_->slots())
    if (slot->value.defined()) list.emplace_back(path, slot->value);
  return list;
}

Variable Module::parameter(std::string_view path, Where where) const {
  for (const auto& [name, value] : parameters())
    if (name == path) return value;
  Error error(fmt::format("this module has no parameter '{}', or has not learned its shape yet", path));
  error.locate(where);
  throw error;
}

void Module::to(Device device, Where where) {
  located(where, [&] {
    (void)backend(device);  // throws where there is none
    std::vector<std::pair<Variable, Tensor>> moved;
    for (const auto& [path, parameter] : parameters())
      if (parameter.device() != device) moved.emplace_back(parameter, parameter.value().to(device));
    for (const auto& [parameter, value] : moved) assign(*parameter.node(), value);
  });
}

void Module::train(bool on) { state_->train(on); }
bool Module::training() const { return state_->training(); }

void ModuleState::check_name(const std::string& name) const {
  if (name.empty()) throw Error("a part of a module needs a name");
  if (name.find('.') != std::string::npos)
    throw Error(fmt::format("'{}' cannot name a part of a module: dots separate the names of a path", name));
  if (std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; }))
    throw Error(fmt::format("this module already has a part named '{}'", name));
}

bool ModuleState::contains(const ModuleState* other) const {
  return this == other || std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
           return entry.child && entry.child->contains(other);
         });
}

void ModuleState::add_child(std::string name, std::shared_ptr<ModuleState> child) {
  check_name(name);
  if (child->contains(this)) throw Error(fmt::format("a module cannot be a part of itself: '{}'", name));
  entries_.push_back({std::move(name), std::move(child), {}});
}

void ModuleState::add_slot(std::string name, ParameterSlot slot) {
  check_name(name);
  entries_.push_back({std::move(name), nullptr, std::move(slot)});
}

std::vector<ModuleState::NamedSlot> ModuleState::slots() {
  std::vector<NamedSlot> list;
  std::unordered_set<const void*> seen{this};
  auto visit = [&](auto& self, ModuleState& module, const std::string& prefix) -> void {
    for (Entry& entry : module.entries_) {
      if (!entry.child) {
        const Node* node = entry.slot.value.node();
        if (!node || seen.insert(node).second) list.push_back({prefix + entry.name, &entry.slot, &module});
      } else if (seen.insert(entry.child.get()).second) {
        self(self, *entry.child, prefix + entry.name + ".");
      }
    }
  };
  visit(visit, *this, "");
  return list;
}

void ModuleState::train(bool on) {
  training_ = on;
  for (Entry& entry : entries_)
    if (entry.child) entry.child->train(on);
}

void ModuleState::own_entries(Clones& made) {
  for (Entry& entry : entries_) {
    if (!entry.child) {
      if (Variable& v = entry.slot.value; v.defined())
        v = espalier::parameter(v.value().clone(), v.node()->op().name(), v.node()->where);
      continue;
    }
    if (const auto known = made.find(entry.child.get()); known != made.end()) {
      entry.child = known->second;
      continue;
    }
    const auto* layer = dynamic_cast<const LayerState*>(entry.child.get());
    if (!layer)
      throw UnsupportedError(
          fmt::format("clone: '{}' is a module of your own; copy it by saving and loading", entry.name));
    entry.child = layer->clone(made);
  }
}

}  // namespace espalier::nn
