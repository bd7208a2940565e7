#include "espalier/core/leaf_substitutes.h"

#include <utility>

#include "espalier/core/node.h"

namespace espalier {

namespace {

thread_local const LeafSubstitutes* substitutes = nullptr;

}  // namespace

SubstitutesScope::SubstitutesScope(LeafSubstitutes inner) : before_(substitutes) {
  if (before_) all_ = *before_;
  for (auto& [leaf, value] : inner) all_.insert_or_assign(leaf, substitute_of(value));
  substitutes = &all_;
}
SubstitutesScope::~SubstitutesScope() { substitutes = before_; }

const LeafSubstitutes* leaf_substitutes() { return substitutes; }

Variable substitute_of(const Variable& x) {
  if (!substitutes) return x;
  const auto found = substitutes->find(x.node());
  return found == substitutes->end() ? x : found->second;
}

WithoutSubstitutes::WithoutSubstitutes() : before_(std::exchange(substitutes, nullptr)) {}
WithoutSubstitutes::~WithoutSubstitutes() { substitutes = before_; }

}  // namespace espalier
