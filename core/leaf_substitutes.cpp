#include "espalier/core/leaf_substitutes.h"

#include <utility>

#include "espalier/core/node.h"

namespace espalier {

namespace {

thread_local const LeafSubstitutes* substitutes = nullptr;

LeafSubstitutes with_outer(LeafSubstitutes inner) {
  LeafSubstitutes all = substitutes ? *substitutes : LeafSubstitutes();
  for (auto& [leaf, value] : inner) all.insert_or_assign(leaf, substitute_of(value));
  return all;
}

}  // namespace

SubstitutesScope::SubstitutesScope(LeafSubstitutes inner)
    : all_(with_outer(std::move(inner))), scope_(substitutes, &all_) {}

const LeafSubstitutes* leaf_substitutes() { return substitutes; }

Variable substitute_of(const Variable& x) {
  if (!substitutes) return x;
  const auto found = substitutes->find(x.node());
  return found == substitutes->end() ? x : found->second;
}

WithoutSubstitutes::WithoutSubstitutes() : scope_(substitutes, nullptr) {}

}  // namespace espalier
