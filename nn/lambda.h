// Functions as layers: Identity, Lambda, Unflatten.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/nn/layer.h"

namespace espalier::nn {

class Identity : public LayerOf<Identity> {
 public:
  Identity();
};

/// Any function of a Variable. The modules that it calls are given with their names, and are parts of this
/// one: with those it does not name it has no parameters to save, move, train or count.
///
///     Lambda([net](const Variable& x) { return net(x) + x; }, {{"net", net}})
///
/// A clone calls a copy of the function, which cannot call copies of modules: clone() throws UnsupportedError
/// if there are any.
class Lambda : public LayerOf<Lambda> {
 public:
  using Modules = std::vector<std::pair<std::string, Module>>;

  /// Throws Error if the function is empty, and for names as Module::add.
  explicit Lambda(std::function<Variable(const Variable&)> function, Where where = Where::current());
  Lambda(std::function<Variable(const Variable&)> function, const Modules& modules,
         Where where = Where::current());
};

/// One axis becomes several, the reverse of Flatten: `Unflatten(1, {3, 8, 8})` makes [n, 192] into
/// [n, 3, 8, 8]. One size may be -1. Throws ShapeError when the input has no such axis, or another size.
class Unflatten : public LayerOf<Unflatten> {
 public:
  Unflatten(int64_t axis, Shape sizes);
};

}  // namespace espalier::nn
