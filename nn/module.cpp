#include "espalier/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <unordered_set>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

Module::Module() : state_(std::make_shared<ModuleState>()) {}

void Module::add_child(std::string name, const Module& child, const Where& where) {
  located(where, [&] { state_->add_child(std::move(name), child.state_); });
}

void Module::replace_part(std::string_view path, std::shared_ptr<ModuleState> part,
                          const Where& where) const {
  located(where, [&] {
    const size_t dot = path.rfind('.');
    std::shared_ptr<ModuleState> parent = state_;
    if (dot != path.npos) {
      parent = state_->part(path.substr(0, dot));
      if (parent && !parent->calls_parts())
        throw Error(
            fmt::format("'{}' is a member of a {}, which calls it: replace it there", path, parent->kind()));
    }
    if (!parent || !parent->replace_child(path.substr(dot == path.npos ? 0 : dot + 1), std::move(part)))
      throw Error(fmt::format("this module has no part '{}'", path));
  });
}

void check_is_parameter(std::string_view what, const Variable& x) {
  if (x.defined() && is_parameter(x.node()->op())) return;
  throw Error(fmt::format("{}: it is {}, not a parameter", what,
                          !x.defined()               ? "undefined"
                          : x.node()->op().is_leaf() ? fmt::format("a {}", x.node()->op().name())
                                                     : "the result of an operation"));
}

Variable Module::add_parameter(std::string name, const Tensor& value, Where where) {
  return add_parameter(name, espalier::parameter(value, name, where), where);
}

Variable Module::add_parameter(std::string name, const Variable& parameter, Where where) {
  return located(where, [&] {
    check_is_parameter(fmt::format("'{}' cannot be added", name), parameter);
    state_->add_slot(std::move(name), {parameter.shape(), parameter.dtype(), parameter});
    return parameter;
  });
}

Variable Module::add_buffer(std::string name, const Tensor& value, Where where) {
  return located(where, [&] {
    const Variable buffer = espalier::state(value, name, where);
    state_->add_slot(std::move(name), {value.shape(), value.dtype(), buffer, {}, true});
    return buffer;
  });
}

std::vector<std::pair<std::string, Variable>> Module::list(bool buffers) const {
  std::vector<std::pair<std::string, Variable>> list;
  for (auto& [path, slot, owner] : state_->slots())
    if (slot->value.defined() && slot->buffer == buffers) list.emplace_back(path, slot->value);
  return list;
}

Variable Module::find(std::string_view path, bool buffer, const Where& where) const {
  return located(where, [&]() -> Variable {
    if (const ParameterSlot* slot = state_->slot(path).first; slot && slot->value.defined()) {
      if (slot->buffer == buffer) return slot->value;
      throw Error(slot->buffer ? fmt::format("'{}' is a buffer, not a parameter: use buffer()", path)
                               : fmt::format("'{}' is a parameter, not a buffer: use parameter()", path));
    }
    throw Error(fmt::format("this module has no {} '{}', or has not learned its shape yet",
                            buffer ? "buffer" : "parameter", path));
  });
}

std::vector<std::pair<std::string, Variable>> Module::parameters() const { return list(false); }
std::vector<std::pair<std::string, Variable>> Module::buffers() const { return list(true); }
Variable Module::parameter(std::string_view path, Where where) const { return find(path, false, where); }
Variable Module::buffer(std::string_view path, Where where) const { return find(path, true, where); }

void Module::to(Device device, Where where) const {
  located(where, [&] {
    (void)backend(device);  // throws where there is none
    std::vector<std::pair<Variable, Tensor>> moved;
    for (const auto& [path, slot, owner] : state_->slots())
      if (const Variable& leaf = slot->value; leaf.defined() && leaf.device() != device)
        moved.emplace_back(leaf, leaf.value().to(device));
    compute_all_waiting();
    for (const auto& [leaf, value] : moved) assign(*leaf.node(), value);
    for_each_scope(*state_, [&](const std::string&, ContainerState& scope) {
      for (auto& [path, tensor] : scope.loaded) tensor.value = tensor.value.to(device);
    });
  });
}

void Module::train(bool on) const { state_->train(on); }
bool Module::training() const { return state_->training(); }
void Module::trainable(bool on) const { state_->set_trainable(on); }
bool Module::trainable() const { return state_->trainable(); }

namespace {

/// What a layer stands for, if it does.
const ModuleState& called(const ModuleState& module) {
  for (const ModuleState::Entry& entry : module.parts())
    if (entry.child && entry.name.empty()) return called(*entry.child);
  return module;
}

/// Prints a module and all below it as a tree.
class TreePrinter {
 public:
  explicit TreePrinter(std::ostream& out) : out_(out) {}

  void print(const ModuleState& module, size_t depth = 0) {
    const ModuleState& shown = called(module);
    const bool again = !seen_.insert(&shown).second;
    out_ << shown.printed_kind() << (again ? " (above)" : "") << '\n';
    if (again) return;
    for (const ModuleState::Entry& entry : shown.parts()) {
      if (!entry.child) {
        print(entry, depth + 1);
        continue;
      }
      out_ << std::string(2 * (depth + 1), ' ') << entry.name << ": ";
      print(*entry.child, depth + 1);
    }
  }

 private:
  void print(const ModuleState::Entry& entry, size_t depth) {
    const ParameterSlot& slot = entry.slot;
    const Variable& leaf = slot.value;
    const auto dtype = leaf.defined() ? std::optional(leaf.dtype()) : slot.dtype;
    const bool again = leaf.defined() && !leaves_.insert(leaf.node()).second;
    const std::string_view kind = again                                ? "above"
                                  : slot.buffer                        ? "buffer"
                                  : !leaf.defined()                    ? "comes with the first input"
                                  : leaf.node() && leaf.node()->frozen ? "frozen"
                                                                       : "";
    const std::string line =
        fmt::format("{:<32} {:<8} {:<16} {}", std::string(2 * depth, ' ') + entry.name,
                    dtype ? name(*dtype) : "", (leaf.defined() ? leaf.shape() : slot.pattern).str(), kind);
    out_ << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }

  std::ostream& out_;
  std::unordered_set<const ModuleState*> seen_;
  std::unordered_set<const Node*> leaves_;
};

}  // namespace

std::string_view Module::kind_name() const { return called(*state_).printed_kind(); }

std::ostream& operator<<(std::ostream& out, const Module& module) {
  TreePrinter(out).print(*module.state());
  int64_t parameters = 0, buffers = 0;
  for (const auto& [path, slot, owner] : module.state()->slots())
    if (const Variable& leaf = slot->value; leaf.defined())
      (slot->buffer ? buffers : parameters) += leaf.shape().elements();
  return out << fmt::format("{} numbers in parameters, {} in buffers\n", parameters, buffers);
}

Variable ParameterSlot::make(const Tensor& tensor, std::string_view name,
                             const std::source_location& where) const {
  return buffer ? espalier::state(tensor, name, where) : espalier::parameter(tensor, name, where);
}

void ModuleState::fill(ParameterSlot& slot, Variable value) const {
  slot.value = std::move(value);
  if (!slot.buffer && !trainable_) espalier::set_trainable(slot.value, false);
}

void ModuleState::set_trainable(bool on) {
  trainable_ = on;
  for (Entry& entry : entries_)
    if (entry.child)
      entry.child->set_trainable(on);
    else if (const Variable& leaf = entry.slot.value; leaf.defined() && !entry.slot.buffer)
      espalier::set_trainable(leaf, on);
}

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

bool ModuleState::replace_child(std::string_view name, std::shared_ptr<ModuleState> child) {
  const auto known = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.child && !name.empty() && entry.name == name; });
  if (known == entries_.end()) return false;
  if (child->contains(this)) throw Error(fmt::format("a module cannot be a part of itself: '{}'", name));
  if (dynamic_cast<const LayerState*>(known->child.get()) && !dynamic_cast<const LayerState*>(child.get()))
    throw Error(fmt::format("'{}' is a layer, a {}, and what would replace it is none", name,
                            known->child->printed_kind()));
  known->child = std::move(child);
  return true;
}

void ModuleState::stand_for(std::shared_ptr<ModuleState> child) {
  entries_.push_back({{}, std::move(child), {}});
}

void ModuleState::add_slot(std::string name, ParameterSlot slot) {
  check_name(name);
  if (slot.value.defined()) fill(slot, slot.value);
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
        self(self, *entry.child, entry.name.empty() ? prefix : prefix + entry.name + ".");
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
      if (Variable& v = entry.slot.value; v.defined()) {
        Variable& copy = made.leaves[v.node()];
        if (!copy.defined()) {
          copy = entry.slot.make(v.value().clone(), v.node()->op().name(), v.node()->where);
          if (v.node()->frozen) espalier::set_trainable(copy, false);
        }
        v = copy;
      }
      continue;
    }
    if (const auto known = made.modules.find(entry.child.get()); known != made.modules.end()) {
      entry.child = known->second;
      continue;
    }
    if (const auto* layer = dynamic_cast<const LayerState*>(entry.child.get()))
      entry.child = layer->clone(made);
    else if (const auto* container = dynamic_cast<const ContainerState*>(entry.child.get()))
      entry.child = container->clone(made);
    else
      throw UnsupportedError(
          fmt::format("clone: {} is a module of your own, which holds handles on its parts; derive it from "
                      "nn::ModuleOf and say by with_parts how they are cloned (nn/cloned_parts.h)",
                      entry.name.empty() ? "an element" : fmt::format("'{}'", entry.name)));
  }
}

LoadedTensors ContainerState::loaded_for(const std::string& part) const {
  LoadedTensors found;
  const std::string prefix = part + ".";
  for (auto at = loaded.lower_bound(prefix); at != loaded.end() && at->first.starts_with(prefix); ++at)
    found.emplace(at->first.substr(prefix.size()), at->second);
  return found;
}

void for_each_scope(ModuleState& module,
                    const std::function<void(const std::string& path, ContainerState& scope)>& f) {
  const auto visit = [&](const std::string& path, ModuleState& part) {
    if (auto* const scope = dynamic_cast<ContainerState*>(&part); scope && scope->is_scope) f(path, *scope);
  };
  visit("", module);
  for (const auto& [path, part] : module.modules()) visit(path + ".", *part);
}

void ContainerState::forget_loaded(const std::string& part) {
  std::erase_if(loaded, [&](const auto& tensor) { return tensor.first.starts_with(part + "."); });
}

std::shared_ptr<ContainerState> ContainerState::clone(Clones& made) const {
  auto copy = std::make_shared<ContainerState>(*this);
  made.modules.emplace(this, copy);
  copy->own_entries(made);
  return copy;
}

}  // namespace espalier::nn
