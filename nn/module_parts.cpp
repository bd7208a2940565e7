// The parts of modules, by name and by path.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/nn/layer.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

namespace {

std::string names_of(const ModuleState& module) {
  std::string names;
  for (const auto& [name, part] : module.children())
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  return names.empty() ? "it has none" : "its parts are " + names;
}

}  // namespace

void ModuleState::list_modules(std::vector<NamedModule>& list, std::unordered_set<const ModuleState*>& seen,
                               const std::string& prefix, bool below) const {
  for (const Entry& entry : entries_) {
    if (!entry.child) continue;
    if (entry.name.empty()) {
      entry.child->list_modules(list, seen, prefix, below);
      continue;
    }
    if (!seen.insert(entry.child.get()).second) continue;
    list.push_back({prefix + entry.name, entry.child});
    if (below) entry.child->list_modules(list, seen, prefix + entry.name + ".", below);
  }
}

std::vector<ModuleState::NamedModule> ModuleState::children() const {
  std::vector<NamedModule> list;
  std::unordered_set<const ModuleState*> seen{this};
  list_modules(list, seen, "", false);
  return list;
}

std::vector<ModuleState::NamedModule> ModuleState::modules() const {
  std::vector<NamedModule> list;
  std::unordered_set<const ModuleState*> seen{this};
  list_modules(list, seen, "", true);
  return list;
}

std::shared_ptr<ModuleState> ModuleState::part(std::string_view path) const {
  const size_t dot = path.find('.');
  const std::string_view first = path.substr(0, dot);
  for (const Entry& entry : entries_) {
    if (!entry.child) continue;
    if (entry.name.empty()) {
      if (auto found = entry.child->part(path)) return found;
    } else if (entry.name == first) {
      return dot == std::string_view::npos ? entry.child : entry.child->part(path.substr(dot + 1));
    }
  }
  return nullptr;
}

std::pair<ParameterSlot*, ModuleState*> ModuleState::slot(std::string_view path) {
  const size_t dot = path.find('.');
  for (Entry& entry : entries_) {
    if (entry.child && entry.name.empty()) {
      if (auto found = entry.child->slot(path); found.first) return found;
    } else if (entry.name == path.substr(0, dot) && !entry.child == (dot == path.npos)) {
      return entry.child ? entry.child->slot(path.substr(dot + 1)) : std::pair(&entry.slot, this);
    }
  }
  return {};
}

std::vector<std::pair<std::string, Module>> Module::children() const {
  std::vector<std::pair<std::string, Module>> list;
  for (auto& [name, part] : state_->children()) list.emplace_back(name, Module(part));
  return list;
}

std::vector<std::pair<std::string, Module>> Module::modules() const {
  std::vector<std::pair<std::string, Module>> list;
  for (auto& [path, part] : state_->modules()) list.emplace_back(path, Module(part));
  return list;
}

Module Module::get_module(std::string_view path, Where where) const {
  return located(where, [&] {
    if (auto found = state_->part(path)) return Module(std::move(found));
    const size_t last = path.rfind('.');
    const auto above = last == std::string_view::npos ? state_ : state_->part(path.substr(0, last));
    throw Error(fmt::format("this module has no part '{}'; {}", path, names_of(above ? *above : *state_)));
  });
}

Layer Module::get_layer(std::string_view path, Where where) const {
  return located(where, [&] {
    if (auto layer = std::dynamic_pointer_cast<LayerState>(get_module(path, where).state_))
      return Layer(std::move(layer));
    throw Error(fmt::format("'{}' is a module with a call of its own, not a layer; {}", path,
                            names_of(*get_module(path, where).state_)));
  });
}

void Module::tie(std::string_view path, const Variable& parameter, Where where) const {
  located(where, [&] {
    check_is_parameter(fmt::format("'{}' cannot be tied", path), parameter);
    const auto [slot, owner] = state_->slot(path);
    if (!slot || slot->buffer) throw Error(fmt::format("this module has no parameter '{}'", path));
    if (!dynamic_cast<LayerState*>(owner))
      throw Error(
          fmt::format("'{}' is a member of a {} of your own: give the other one to its add_parameter()", path,
                      owner->kind()));
    const bool known = slot->value.defined();
    const Shape &shape = parameter.shape(), &expected = known ? slot->value.shape() : slot->pattern;
    if (!std::ranges::equal(expected, shape, [](int64_t a, int64_t b) { return a < 0 || a == b; }))
      throw ShapeError(fmt::format("'{}' of shape {} cannot be tied to a parameter of shape {}", path,
                                   expected.str(), shape.str()));
    if (const auto dtype = known ? slot->value.dtype() : slot->dtype.value_or(parameter.dtype());
        dtype != parameter.dtype())
      throw TypeError(fmt::format("'{}' of type {} cannot be tied to a parameter of type {}", path,
                                  name(dtype), name(parameter.dtype())));
    if (known && slot->value.device() != parameter.device())
      throw DeviceError(fmt::format("'{}' is on {} and cannot be tied to a parameter on {}: move one by to()",
                                    path, slot->value.device().str(), parameter.device().str()));
    slot->value = parameter;  // which stays frozen or not, whatever this module is
  });
}

}  // namespace espalier::nn
