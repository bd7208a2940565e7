// The parts of modules, by name and by path.
#include <fmt/format.h>

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

}  // namespace espalier::nn
