// KvCache: the keys and values of the steps that a decoder has seen.
#pragma once
#include <cstdint>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::nn {

/// For generating step by step, one for each attention: a step computes keys and values of what is new alone.
/// That of a decoder's layer also keeps the keys and values of the memory that it attends to.
/// It holds numbers, through which no gradient passes, in memory that doubles when it is full. It is eager:
/// the number of steps is no size of a plan. A plan computes a whole sequence instead, by `causal`.
///
/// Copies have the steps of the original and go on by themselves: they share memory until a second one
/// appends, which copies the steps then. A cache that was moved from is empty.
class KvCache {
 public:
  using Where = std::source_location;

  KvCache() = default;
  /// Has memory for so many steps from the first on. Error for a negative number.
  explicit KvCache(int64_t capacity, Where where = Where::current());
  KvCache(const KvCache&) = default;
  KvCache(KvCache&& other) noexcept { *this = std::move(other); }
  KvCache& operator=(const KvCache&) = default;
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache() = default;

  /// Adds steps: k [batch, heads, time, width] and v [batch, heads, time, value width]. ShapeError and
  /// TypeError unless they are as those before but for the time; UnsupportedError downstream of a feed.
  void append(const Variable& k, const Variable& v, Where where = Where::current());
  /// All steps. Views: they stay what they are, whatever becomes of the cache. Error while there are none.
  Variable keys(Where where = Where::current()) const;
  Variable values(Where where = Where::current()) const;
  int64_t length() const { return length_; }
  /// Row i of the batch goes on from what row rows[i] had: a beam search keeps its best. The keys and values
  /// of a memory follow, so that a step is given the whole memory as before. `rows` are int32 or int64, [n].
  /// IndexError (of rows on a GPU at the next synchronization), TypeError, ShapeError.
  void select(const Tensor& rows, Where where = Where::current());
  /// Which row of the first steps each row goes on from, int64 [n], by all calls of `select`; undefined
  /// before the first one. A mask of a memory follows the rows by gather(mask, cache.rows()).
  const Tensor& rows() const { return rows_; }
  /// Keeps the first steps alone; of none, nothing is kept. IndexError unless there are so many. Where views
  /// of what is cut off are held, the next `append` copies what is kept.
  void truncate(int64_t length, Where where = Where::current());

 private:
  friend class MultiHeadAttention;
  struct Memory;
  /// What MultiHeadAttention::step has made of a memory.
  struct Projected {
    Variable attended, keys, values;
    std::vector<Variable> parameters;  ///< that made it
    uint64_t written;                  ///< when, as an id of nodes
    bool no_grad;
    Tensor rows;  ///< of `attended` that keys and values have, since a `select`; undefined: all
  };

  std::shared_ptr<Memory> memory_;
  std::shared_ptr<const Projected> projected_;
  Tensor rows_;
  int64_t length_ = 0, capacity_ = 0;
};

}  // namespace espalier::nn
