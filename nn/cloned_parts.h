// ClonedParts: how modules that hold others are cloned. For writers of modules.
#pragma once
#include <concepts>
#include <memory>

#include "espalier/core/error.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// A new state for a module that only holds others and parameters, and has a member `with_parts`.
std::shared_ptr<ModuleState> container_state();

class ClonedParts;
struct ModuleClones;

/// A module that holds other handles and can tell how its clone is made of cloned parts.
template <class M>
concept HasWithParts = requires(const M& module, const ClonedParts& parts) {
  { module.with_parts(parts) } -> std::same_as<M>;
};

/// The states of such a module and of all its parts, cloned, and handles on them.
class ClonedParts {
 public:
  /// Throws UnsupportedError when it holds a module of one's own without `with_parts`.
  explicit ClonedParts(const Module& container);
  /// Of clones that were made already, and outlive this.
  explicit ClonedParts(const ModuleClones& made) : made_(std::shared_ptr<void>(), &made) {}

  /// The clone of a part, or of the module itself. A class that holds other handles has a member
  /// `with_parts`, which makes the clone.
  template <std::derived_from<Module> M>
  M of(const M& part) const {
    if constexpr (HasWithParts<M>) {
      return part.with_parts(*this);
    } else {
      M copy(part);
      reset(copy);
      return copy;
    }
  }
  /// That of a parameter or buffer; what is none of its parts stays, and so does an undefined Variable.
  Variable of(const Variable& leaf) const;
  /// Makes a handle one on the clone of what it is on.
  void reset(Module& handle) const;

 private:
  std::shared_ptr<const ModuleClones> made_;
};

/// A module of one's own that can be cloned derives from it, and says which handles the clone holds:
///
///     struct Net : esp::nn::ModuleOf<Net> {
///       Net with_parts(const esp::nn::ClonedParts& parts) const {
///         Net copy(*this);
///         parts.reset(copy);
///         copy.hidden = parts.of(hidden);
///         copy.gain = parts.of(gain);
///         return copy;
///       }
///       esp::nn::Dense hidden = add("hidden", esp::nn::Dense(100));
///       esp::Variable gain = add_parameter("gain", esp::ones({100}));
///     };
template <class Self>
class ModuleOf : public Module {
 public:
  /// The same module with new parameters and buffers of equal values, by the same names; a copy would share
  /// them. Throws UnsupportedError when it holds a module of one's own without `with_parts`.
  Self clone(Where where = Where::current()) const {
    static_assert(HasWithParts<Self>,
                  "ModuleOf: the module has no `Self with_parts(const ClonedParts&) const`");
    return located(where, [&] { return static_cast<const Self&>(*this).with_parts(ClonedParts(*this)); });
  }

 protected:
  ModuleOf() : Module(container_state()) {}
};

}  // namespace espalier::nn
