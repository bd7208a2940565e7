// ModuleList and ModuleDict: modules of one type, by number or by name.
#pragma once
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// Modules that are called by one's own code: they are named "0", "1", … Copies share the list. Layers of any
/// kind can be in a ModuleList<> and be called as Layer.
template <std::derived_from<Module> M = Layer>
class ModuleList : public Module {
 public:
  ModuleList() = default;
  ModuleList(std::initializer_list<M> modules) {
    for (const M& module : modules) append(module);
  }

  /// Throws Error if this is a part of `module`.
  ModuleList& append(M module, Where where = Where::current()) {
    modules_->push_back(add(std::to_string(size()), std::move(module), where));
    return *this;
  }
  size_t size() const { return modules_->size(); }
  /// Throws IndexError.
  M& operator[](size_t i) const {
    if (i >= size())
      throw IndexError("ModuleList: there is no module " + std::to_string(i) + " among " +
                       std::to_string(size()));
    return (*modules_)[i];
  }
  auto begin() const { return modules_->begin(); }
  auto end() const { return modules_->end(); }

 private:
  std::shared_ptr<std::vector<M>> modules_ = std::make_shared<std::vector<M>>();
};

/// Modules by name, in the order of adding. Copies share the dictionary.
template <std::derived_from<Module> M = Layer>
class ModuleDict : public Module {
 public:
  using Item = std::pair<std::string, M>;

  ModuleDict() = default;
  ModuleDict(std::initializer_list<Item> items) {
    for (const auto& [name, module] : items) insert(name, module);
  }

  /// Throws Error as Module::add.
  ModuleDict& insert(std::string name, M module, Where where = Where::current()) {
    add(name, module, where);
    items_->emplace_back(std::move(name), std::move(module));
    return *this;
  }
  size_t size() const { return items_->size(); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Throws IndexError.
  M& operator[](std::string_view name) const {
    if (Item* item = find(name)) return item->second;
    throw IndexError("ModuleDict: there is no module '" + std::string(name) + "'");
  }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }

 private:
  Item* find(std::string_view name) const {
    for (Item& item : *items_)
      if (item.first == name) return &item;
    return nullptr;
  }
  std::shared_ptr<std::vector<Item>> items_ = std::make_shared<std::vector<Item>>();
};

}  // namespace espalier::nn
