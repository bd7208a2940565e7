// Functions as layers: Identity, Lambda, Unflatten.
#pragma once
#include <functional>

#include "espalier/nn/layer.h"

namespace espalier::nn {

class Identity : public LayerOf<Identity> {
 public:
  Identity();
};

/// Any function of a Variable, without parameters of its own. A clone calls a copy of the function.
class Lambda : public LayerOf<Lambda> {
 public:
  /// Throws Error if the function is empty.
  explicit Lambda(std::function<Variable(const Variable&)> function, Where where = Where::current());
};

/// One axis becomes several, the reverse of Flatten: `Unflatten(1, {3, 8, 8})` makes [n, 192] into
/// [n, 3, 8, 8]. One size may be -1. Throws ShapeError when the input has no such axis, or another size.
class Unflatten : public LayerOf<Unflatten> {
 public:
  Unflatten(int64_t axis, Shape sizes);
};

}  // namespace espalier::nn
