// Layer: a Module that turns one Variable into another.
//
// Layers are handles whose derived classes add constructors only: any of them can be stored as Layer.
#pragma once
#include "espalier/nn/module.h"

namespace espalier::nn {

class LayerState;

class Layer : public Module {
 public:
  /// The layer applied to `x`. All nodes made inside carry the line of this call, and so do its errors.
  Variable operator()(const Variable& x, Where where = Where::current()) const;

 protected:
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
  /// Throws UnsupportedError when it holds a module that is not the library's.
  Self clone(Where where = Where::current()) const {
    Self copy(static_cast<const Self&>(*this));
    static_cast<Layer&>(copy) = clone_layer(where);
    return copy;
  }

 protected:
  using Layer::Layer;
};

}  // namespace espalier::nn
