// ModuleList and ModuleDict: modules of one type, by number or by name.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/name_at.h"
#include "espalier/nn/cloned_parts.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// Modules that are called by one's own code: they are named "0", "1", … Copies share the list. Layers of any
/// kind can be in a ModuleList<> and be called as Layer.
template <std::derived_from<Module> M = Layer>
class ModuleList : public ModuleOf<ModuleList<M>> {
 public:
  using Where = Module::Where;

  ModuleList() = default;
  ModuleList(std::initializer_list<M> modules, Where where = Where::current()) : ModuleList() {
    for (const M& module : modules) append(module, where);
  }

  /// Throws Error if this is a part of `module`.
  ModuleList& append(M module, Where where = Where::current()) {
    modules_->push_back(this->add(std::to_string(size()), std::move(module), where));
    return *this;
  }
  size_t size() const { return modules_->size(); }
  /// Negative numbers count from the end. Throws IndexError.
  M& operator[](const NumberAt& module) const {
    const auto count = static_cast<int64_t>(size()), number = module.number,
               at = number < 0 ? number + count : number;
    if (at >= 0 && at < count) return (*modules_)[static_cast<size_t>(at)];
    return located(module.where, [&]() -> M& {
      throw IndexError("ModuleList: there is no module " + std::to_string(number) + " among " +
                       std::to_string(count));
    });
  }
  /// Puts another one in its place. Throws as operator[] and Module::replace.
  M& replace(const NumberAt& module, M other) const {
    M& place = (*this)[module];
    const std::string name = std::to_string(&place - modules_->data());
    return place = Module::replace(name, std::move(other), module.where);
  }
  auto begin() const { return modules_->begin(); }
  auto end() const { return modules_->end(); }

  /// For ClonedParts.
  ModuleList with_parts(const ClonedParts& parts) const {
    ModuleList copy(*this);
    parts.reset(copy);
    copy.modules_ = std::make_shared<std::vector<M>>();
    for (const M& module : *this) copy.modules_->push_back(parts.of(module));
    return copy;
  }

 private:
  std::shared_ptr<std::vector<M>> modules_ = std::make_shared<std::vector<M>>();
};

/// Modules by name, in the order of adding. Copies share the dictionary.
template <std::derived_from<Module> M = Layer>
class ModuleDict : public ModuleOf<ModuleDict<M>> {
 public:
  using Item = std::pair<std::string, M>;

  using Where = Module::Where;

  ModuleDict() = default;
  /// Throws Error as `insert`.
  ModuleDict(std::initializer_list<Item> items, Where where = Where::current()) : ModuleDict() {
    for (const auto& [name, module] : items) insert(name, module, where);
  }

  /// Throws Error as Module::add.
  ModuleDict& insert(std::string name, M module, Where where = Where::current()) {
    this->add(name, module, where);
    items_->emplace_back(std::move(name), std::move(module));
    return *this;
  }
  size_t size() const { return items_->size(); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Throws IndexError.
  M& operator[](const NameAt& name) const {
    if (Item* item = find(name.text)) return item->second;
    return located(name.where, [&]() -> M& {
      throw IndexError("ModuleDict: there is no module '" + std::string(name.text) + "'");
    });
  }
  /// Puts another one in its place. Throws as operator[] and Module::replace.
  M& replace(const NameAt& name, M other) const {
    M& place = (*this)[name];
    return place = Module::replace(name.text, std::move(other), name.where);
  }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }

  /// For ClonedParts.
  ModuleDict with_parts(const ClonedParts& parts) const {
    ModuleDict copy(*this);
    parts.reset(copy);
    copy.items_ = std::make_shared<std::vector<Item>>();
    for (const auto& [name, module] : *this) copy.items_->emplace_back(name, parts.of(module));
    return copy;
  }

 private:
  Item* find(std::string_view name) const {
    for (Item& item : *items_)
      if (item.first == name) return &item;
    return nullptr;
  }
  std::shared_ptr<std::vector<Item>> items_ = std::make_shared<std::vector<Item>>();
};

}  // namespace espalier::nn
