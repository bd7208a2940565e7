// Collective: what a rank is about to do together with the others, so that they can compare before they do
// it.
#pragma once
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

/// What becomes of the elements which all ranks have at one place.
enum class Reduction : uint8_t { sum, mean, max, min };
/// "sum", "mean", "max" or "min".
std::string_view name(Reduction reduction);

struct Collective {
  enum class Kind : uint8_t {
    all_reduce,
    all_reduce_weighted,
    reduce_scatter,
    all_gather,
    reduce_parts,
    gather_parts,
    broadcast,
    barrier
  };

  Kind kind = Kind::barrier;
  Reduction reduction = Reduction::sum;
  int root = 0;
  /// What each rank brings.
  Spec spec;
  /// By what each rank's values are multiplied, rank by rank; empty if by nothing.
  std::vector<double> weights;
  /// Where the part of each rank begins, and the end of the last; empty if there are no such parts.
  std::vector<int64_t> bounds;
  /// Whether this rank is marked, see Communicator::raise.
  bool raised = false;
  std::source_location where;
  /// If it is a part of another one: that one's hash and description.
  uint64_t whole = 0;
  std::string whole_text;

  /// Whether two ranks mean the same; they may call it on different lines, and be marked or not.
  bool matches(const Collective& other) const;
  /// Equal for what matches, and hardly ever otherwise.
  uint64_t hash() const;
  /// "all_reduce of float32 [100, 10] (train.cpp:12)", "all_reduce_weighted by 2, 0.5 of ..."
  std::string str() const;
};

}  // namespace espalier
