// Collective: the description of a collective call, which the ranks compare before any data moves.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/call_site.h"
#include "espalier/core/tensor.h"

namespace espalier {

/// The operation that combines the elements of all ranks.
enum class Reduction : uint8_t { sum, mean, max, min };
/// "sum", "mean", "max" or "min".
std::string_view name(Reduction reduction);

/// Every collective has this normal form, so a backend implements three kinds. The `elements` of one array,
/// the whole, are divided into a range for each rank:
/// - reduce: each rank contributes a whole, and receives the reduction of its range, or of the whole;
/// - gather: each rank contributes its range, and receives the whole;
/// - barrier: nothing moves.
struct Collective {
  enum class Kind : uint8_t { reduce, gather, barrier };
  struct Range {
    int64_t begin = 0, count = 0;
  };

  /// The function that was called, as errors name it; a string literal.
  std::string_view name = "barrier";
  Kind kind = Kind::barrier;
  Reduction reduction = Reduction::sum;
  /// Of the tensor that this rank contributes.
  Spec spec;
  /// Factors of the ranks' contributions to a sum, rank by rank; empty for a plain reduction.
  std::vector<double> weights;
  int64_t elements = 0;
  /// Rank r has the elements bounds[r] to bounds[r + 1] (excluded). Empty: every rank receives the whole.
  std::vector<int64_t> bounds;
  /// The caller chose the bounds, so errors show them.
  bool custom_bounds = false;
  /// The rank whose range is the whole, in a broadcast; -1 in other collectives.
  int root = -1;
  /// Whether this rank requests a stop, see Communicator::request_stop.
  bool stop_requested = false;
  /// The line of the call; with the name of the function that the user called, if that is another one.
  CallSite where;
  /// Hash and text of the collective that this one is a step of, if it is one.
  uint64_t parent = 0;
  std::string parent_text;

  Range range(int rank) const;
  /// True if all ranks have ranges of one length.
  bool equal_ranges() const;

  /// Whether two ranks called the same. Lines and stop requests may differ.
  bool matches(const Collective& other) const;
  /// Equal for collectives that match; different ones collide with negligible probability.
  uint64_t hash() const;
  /// "all_reduce of float32 [100, 10] (train.cpp:12)", "all_reduce_weighted by 2, 0.5 of ...", and within a
  /// function "evaluate (train.cpp:12; all_gather of int64 [3])".
  std::string str() const;
};

/// The memory of one rank in a collective; all null in a barrier.
struct RankBuffers {
  const Tensor* input = nullptr;
  Tensor* output = nullptr;
  /// First element that the rank contributes, and first one that it receives: of a whole or of its range, as
  /// the kind says.
  const char* from = nullptr;
  char* to = nullptr;
};

}  // namespace espalier
