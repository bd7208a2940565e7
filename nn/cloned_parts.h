// ClonedParts: how modules that hold others are cloned. For writers of modules.
#pragma once
#include <concepts>
#include <memory>
#include <unordered_map>

#include "espalier/nn/layer.h"

namespace espalier::nn {

/// A new state for a module that only holds others and parameters.
std::shared_ptr<ModuleState> container_state();

/// The states of such a module and of all its parts, cloned, and handles on them.
class ClonedParts {
 public:
  /// Throws UnsupportedError when it holds a module that is not the library's.
  explicit ClonedParts(const Module& container);

  /// The clone of a part, or of the module itself. A class that holds other handles has a member
  /// `with_parts`, which makes the clone.
  template <std::derived_from<Module> M>
  M of(const M& part) const {
    if constexpr (requires {
                    { part.with_parts(*this) } -> std::same_as<M>;
                  }) {
      return part.with_parts(*this);
    } else {
      M copy(part);
      reset(copy);
      return copy;
    }
  }
  /// Makes a handle one on the clone of what it is on.
  void reset(Module& handle) const;

 private:
  std::unordered_map<const ModuleState*, std::shared_ptr<ModuleState>> made_;
};

}  // namespace espalier::nn
