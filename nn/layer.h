// Layer: a Module that turns one Variable into another.
//
// Layers are handles whose derived classes add constructors only: any of them can be stored as Layer.
#pragma once
#include <functional>

#include "espalier/nn/module.h"

namespace espalier::nn {

class LayerState;

class Layer : public Module {
 public:
  /// The layer applied to `x`. All nodes made inside carry the line of this call, and so do its errors.
  Variable operator()(const Variable& x, Where where = Where::current()) const;

  /// Calls `hook(x, y)` after each call of the layer with what went in and came out, also where a Sequential
  /// calls it. A defined result takes the place of y. Handles share hooks, a clone has copies; they are
  /// called in the order of adding. Returns a number for `remove_forward_hook`. Throws Error for an empty
  /// function.
  int64_t register_forward_hook(std::function<Variable(const Variable& x, const Variable& y)> hook,
                                Where where = Where::current()) const;
  /// Throws Error if there is no such hook.
  void remove_forward_hook(int64_t id, Where where = Where::current()) const;

  Layer(const Layer&) = default;
  Layer& operator=(const Layer&) & = default;
  Layer& operator=(const Layer&) && = delete;  // see Module

 protected:
  friend class Module;
  explicit Layer(std::shared_ptr<LayerState> state);
  /// A handle of its own on a copy of this layer, with new parameters of equal values.
  Layer clone_layer(const Where& where) const;
  LayerState& layer_state() const;
  // A layer is complete: only a class of one's own may add to it.
  using Module::add;
  using Module::add_buffer;
  using Module::add_parameter;
};

/// Gives `clone()` to a layer.
template <class Self>
class LayerOf : public Layer {
 public:
  /// The same layer with new parameters of equal values; copying it would share them.
  /// Throws UnsupportedError when it holds a module of one's own without `with_parts`.
  Self clone(Where where = Where::current()) const {
    Self copy(static_cast<const Self&>(*this));
    static_cast<Layer&>(copy) = clone_layer(where);
    return copy;
  }

 protected:
  using Layer::Layer;
};

}  // namespace espalier::nn
