// KvCache: the keys and values of the steps that a decoder has seen.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/variable.h"

namespace espalier::nn {

/// For generating step by step, one for each attention: a step computes keys and values of what is new alone.
/// It holds numbers, through which no gradient passes, in memory that doubles when it is full. It is eager:
/// the number of steps is no size of a plan. A plan computes a whole sequence instead, by `causal`.
class KvCache {
 public:
  using Where = std::source_location;

  KvCache() = default;
  /// Has memory for so many steps from the first on. Error for a negative number.
  explicit KvCache(int64_t capacity, Where where = Where::current());

  /// Adds steps: k [batch, heads, time, width] and v [batch, heads, time, value width]. ShapeError and
  /// TypeError unless they are as those before but for the time; UnsupportedError downstream of a feed.
  void append(const Variable& k, const Variable& v, Where where = Where::current());
  /// All steps. Views: they stay what they are when steps are added, unless some were cut off before. Error
  /// while there are none.
  Variable keys() const { return steps_of(keys_); }
  Variable values() const { return steps_of(values_); }
  int64_t length() const { return length_; }
  /// Row i of the batch goes on from what row rows[i] had: a beam search keeps its best. `rows` are int64,
  /// [n]. IndexError.
  void select(const Tensor& rows, Where where = Where::current());
  /// Keeps the first steps alone. IndexError unless there are so many.
  void truncate(int64_t length, Where where = Where::current());

 private:
  Variable steps_of(const Tensor& all) const;
  static void add(Tensor& all, const Tensor& more, int64_t length, int64_t capacity);

  Tensor keys_, values_;  // [batch, heads, capacity, width]
  int64_t length_ = 0, capacity_ = 0;
};

}  // namespace espalier::nn
