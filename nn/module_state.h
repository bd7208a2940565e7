// What the handles of one module share. Writers of layers need layer_state.h; users derive from Module.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "espalier/core/train_phase.h"
#include "espalier/nn/init.h"
#include "espalier/nn/module.h"

namespace espalier::nn {

/// A parameter or a buffer, or the declaration of one whose open sizes come with the first input or from a
/// file.
struct ParameterSlot {
  using Initialize = std::function<Tensor(const Shape& shape, DType dtype)>;

  /// Negative sizes are open; equal ones are the same size throughout the module.
  Shape pattern;
  /// Empty while open; open ones of a module are all the same.
  std::optional<DType> dtype;
  Variable value;
  /// The initial value: an Initializer, or a function that gives one the fans. Empty for a parameter that
  /// was added with its value.
  Initialize initialize = {};
  /// A state, which is not trained.
  bool buffer = false;
  /// The initial value is made of that of the slot `of` of the same module, whatever its pattern says.
  std::string of = {};
  std::function<Tensor(const Tensor& value)> derive = {};
  /// Files of other programs may lack it: then it keeps its value, or starts with its initial one.
  bool optional = false;

  /// A leaf of its kind with that value.
  Variable make(const Tensor& value, std::string_view name, const std::source_location& where) const;
};

/// Throws Error, which begins with `what`, unless x is a parameter.
void check_is_parameter(std::string_view what, const Variable& x);

class LayerState;

/// Clones by original: a layer that is used twice, or a parameter of two layers, is one in the clone too.
struct ModuleClones {
  std::unordered_map<const ModuleState*, std::shared_ptr<ModuleState>> modules;
  std::unordered_map<const Node*, Variable> leaves;
};

class ModuleState {
 public:
  struct Entry {
    /// Empty for the child that a layer stands for: the child's parts have the paths of its own.
    std::string name;
    std::shared_ptr<ModuleState> child;  ///< or a parameter or buffer, if there is none
    ParameterSlot slot;
  };
  struct NamedSlot {
    std::string path;
    ParameterSlot* slot;
    ModuleState* owner;
  };
  struct NamedModule {
    std::string path;
    std::shared_ptr<ModuleState> module;
  };
  using Clones = ModuleClones;

  ModuleState() = default;
  virtual ~ModuleState() = default;

  void add_child(std::string name, std::shared_ptr<ModuleState> child);
  void add_slot(std::string name, ParameterSlot slot);
  /// False if there is no child of that name. Throws Error if this is a part of `child`, or the one of that
  /// name is a layer and `child` is none.
  bool replace_child(std::string_view name, std::shared_ptr<ModuleState> child);
  /// Whether its children are called as they are listed here, and not as members of a class.
  virtual bool calls_parts() const { return false; }
  /// Every parameter and buffer below, each once, in the order of adding.
  std::vector<NamedSlot> slots();
  /// Its parts, or all modules below, each once, in the order of adding.
  std::vector<NamedModule> children() const;
  std::vector<NamedModule> modules() const;
  /// The part of that path; null if there is none.
  std::shared_ptr<ModuleState> part(std::string_view path) const;
  /// The parameter or buffer of that path, and the module that it is of; null if there is none.
  std::pair<ParameterSlot*, ModuleState*> slot(std::string_view path);
  /// How errors and summaries name it: "Dense".
  virtual std::string_view kind() const { return "module"; }
  /// How prints name it.
  virtual std::string_view printed_kind() const { return kind(); }
  /// Its own parameters, buffers and children.
  const std::vector<Entry>& parts() const { return entries_; }
  void train(bool on);
  /// Its own mode, unless this thread is in the phase of inference (core/train_phase.h).
  bool training() const { return training_ && !in_inference_phase(); }
  bool own_mode() const { return training_; }
  void set_trainable(bool on);
  bool trainable() const { return trainable_; }
  /// Gives a slot its leaf; parameters of a module that is frozen are.
  void fill(ParameterSlot& slot, Variable value) const;

 protected:
  ModuleState(const ModuleState&) = default;
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }
  /// Makes the module one that this stands for.
  void stand_for(std::shared_ptr<ModuleState> child);
  /// After a copy of the state: parameters and children of its own.
  void own_entries(Clones& made);

 private:
  void check_name(const std::string& name) const;
  bool contains(const ModuleState* other) const;
  void list_modules(std::vector<NamedModule>& list, std::unordered_set<const ModuleState*>& seen,
                    const std::string& prefix, bool below) const;

  std::vector<Entry> entries_;
  bool training_ = true;
  bool trainable_ = true;
};

/// What a scope has loaded for paths that are not written yet.
struct LoadedTensor {
  Tensor value;
  std::string file;
  bool convert = false;  ///< reals become those of the part
};
using LoadedTensors = std::map<std::string, LoadedTensor>;

/// The state of a module that only holds others and parameters: a list, a dictionary, a scope.
class ContainerState : public ModuleState {
 public:
  /// Of a scope: its parts are made as they are named, and take what was loaded for them.
  bool is_scope = false;
  LoadedTensors loaded = {};
  /// What was loaded for the part of that name, by paths in it; and lets go of it.
  LoadedTensors loaded_for(const std::string& part) const;
  void forget_loaded(const std::string& part);

  /// Throws UnsupportedError when it holds a module of one's own without `with_parts`.
  std::shared_ptr<ContainerState> clone(Clones& made) const;
};

/// Calls `f` with all scopes at and below a module, and what their paths begin with: "" or "a.b.".
void for_each_scope(ModuleState& module,
                    const std::function<void(const std::string& path, ContainerState& scope)>& f);

/// Gives the parameters and buffers of a part what a scope has loaded for it. `name` is that of the part.
/// Throws FileError, naming the file, for another shape or dtype, and unless both have the same paths;
/// nothing has changed then.
void take_loaded(ModuleState& part, const std::string& name, const LoadedTensors& loaded,
                 const std::source_location& where);

}  // namespace espalier::nn
