// What the handles of one module share. For writers of layers; users derive from Module instead.
#pragma once
#include <optional>
#include <unordered_map>

#include "espalier/nn/module.h"

namespace espalier::nn {

/// A parameter which is there, or one of which the first call or a file has yet to tell the rest.
struct ParameterSlot {
  /// Sizes below zero are not known yet; the same negative number is the same size everywhere in one module.
  Shape pattern;
  /// Empty while unknown; the unknown ones of one module will all be the same.
  std::optional<DType> dtype;
  Variable value;
};

class LayerState;

class ModuleState {
 public:
  struct Entry {
    std::string name;
    std::shared_ptr<ModuleState> child;  ///< or a parameter, if there is none
    ParameterSlot slot;
  };
  struct NamedSlot {
    std::string path;
    ParameterSlot* slot;
    const ModuleState* owner;
  };
  /// What has been cloned so far, so that a layer used twice is one layer in the clone too.
  using Clones = std::unordered_map<const ModuleState*, std::shared_ptr<LayerState>>;

  ModuleState() = default;
  virtual ~ModuleState() = default;

  void add_child(std::string name, std::shared_ptr<ModuleState> child);
  void add_slot(std::string name, ParameterSlot slot);
  /// Every parameter below, each once, in the order of adding.
  std::vector<NamedSlot> slots();
  void train(bool on);
  bool training() const { return training_; }

 protected:
  ModuleState(const ModuleState&) = default;
  std::vector<Entry>& entries() { return entries_; }
  /// After a copy of the state: parameters and children of its own.
  void own_entries(Clones& made);

 private:
  void check_name(const std::string& name) const;
  bool contains(const ModuleState* other) const;

  std::vector<Entry> entries_;
  bool training_ = true;
};

class LayerState : public ModuleState {
 public:
  virtual Variable forward(const Variable& x) = 0;
  virtual std::shared_ptr<LayerState> clone(Clones& made) const = 0;
};

/// Clones a layer by its copy constructor, which need not care for parameters and children.
template <class Self>
class LayerStateOf : public LayerState {
 public:
  std::shared_ptr<LayerState> clone(Clones& made) const override {
    auto copy = std::make_shared<Self>(static_cast<const Self&>(*this));
    made.emplace(this, copy);
    copy->own_entries(made);
    return copy;
  }
};

}  // namespace espalier::nn
