// What an executor takes and gives, to read.
#pragma once
#include <string>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// A value that is given to an executor or comes from it.
struct ValueInfo {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;  ///< -1: any size
};

/// A leaf of a tree: a parameter, a `variable` or a state.
struct LeafInfo {
  std::string name;
  bool trained = false;  ///< a parameter that is not frozen
  Variable leaf;
};

}  // namespace espalier
