// SubstitutesScope: nodes read other Variables in place of leaves, for a while.
#pragma once
#include <unordered_map>

#include "espalier/core/scoped_value.h"
#include "espalier/core/variable.h"

namespace espalier {

/// What is read in place of a leaf.
using LeafSubstitutes = std::unordered_map<const Node*, Variable>;

/// While it lives, nodes that are made in this thread read the substitutes. Those of outer scopes hold on.
class SubstitutesScope {
 public:
  explicit SubstitutesScope(LeafSubstitutes substitutes);

 private:
  LeafSubstitutes all_;
  ScopedValue<const LeafSubstitutes*> scope_;
};

/// Those of this thread; null if there are none.
const LeafSubstitutes* leaf_substitutes();
/// What is read in place of x, or x.
Variable substitute_of(const Variable& x);

/// For `apply`, which has substituted already.
class WithoutSubstitutes {
 public:
  WithoutSubstitutes();

 private:
  ScopedValue<const LeafSubstitutes*> scope_;
};

}  // namespace espalier
