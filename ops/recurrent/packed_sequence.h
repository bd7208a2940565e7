// Sequences of several lengths side by side, without padding.
#pragma once
#include <concepts>
#include <source_location>
#include <string_view>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::data {

/// Padded sequences, [steps, sequences, …] or with the batch first.
struct PaddedSequences {
  Variable values;
  std::vector<int64_t> lengths;
};
struct PadOptions {
  double value = 0;  ///< behind the end of a sequence
  bool batch_first = false;
  int64_t length = 0;  ///< of the result: at least that of the longest sequence, which 0 stands for
};

/// The sequences sorted by length, the longest first, and their elements by time steps: step t has one row of
/// each sequence that is longer than t, so that its rows are the first of those of the step before.
struct PackedSequence {
  Variable data;                          ///< [all rows, …]
  std::vector<int64_t> batch_sizes;       ///< the rows of each step
  std::vector<int64_t> sorted_indices;    ///< the number that each of the sorted sequences had
  std::vector<int64_t> unsorted_indices;  ///< where each sequence is among the sorted ones

  using Where = std::source_location;
  size_t sequences() const { return sorted_indices.size(); }
  /// In the order in which the sequences were given, as everything that leaves the packing.
  std::vector<int64_t> lengths(Where where = Where::current()) const;
  /// Sequence i as [length i, …].
  std::vector<Variable> unpack(Where where = Where::current()) const;
  /// Throws Error if `length` is less than that of a sequence.
  PaddedSequences pad(PadOptions options = {}, Where where = Where::current()) const;
  /// The same packing of other rows, [all rows, …]. Throws ShapeError if there are more or fewer.
  PackedSequence with(Variable rows, Where where = Where::current()) const;
  /// Throws ShapeError, naming `function`, unless the members are as above: the sizes are positive, do not
  /// rise, begin with the number of sequences and add up to the rows; the lists of numbers are permutations,
  /// each the inverse of the other. What takes a packing calls it.
  void check(std::string_view function) const;
};

/// Packs sequences [length, …], each with at least one element and all of one dtype, on one device, with
/// equal axes behind the first. Throws Error if there are none, ShapeError, TypeError or DeviceError for
/// others, UnsupportedError for an open axis.
PackedSequence pack(const std::vector<Variable>& sequences,
                    std::source_location where = std::source_location::current());
template <std::same_as<Tensor> T>  // braces are a list of Variables
PackedSequence pack(const std::vector<T>& sequences,
                    std::source_location where = std::source_location::current()) {
  return pack(std::vector<Variable>(sequences.begin(), sequences.end()), where);
}

struct PackPaddedOptions {
  bool batch_first = false;
};
/// Packs the first `lengths[i]` steps of sequence i of x [steps, sequences, …], or with the batch first.
/// Throws ShapeError unless there are as many lengths as sequences, all in [1, steps], UnsupportedError for
/// an open axis.
PackedSequence pack_padded(const Variable& x, const std::vector<int64_t>& lengths,
                           PackPaddedOptions options = {},
                           std::source_location where = std::source_location::current());

PackedSequence pack_padded_by(const Variable& x, const Tensor& lengths, PackPaddedOptions options,
                              std::source_location where);
/// The same with lengths in a Tensor, int32 or int64, as `padded` collates them. TypeError for others.
template <std::same_as<Tensor> T>  // braces are a list of numbers
PackedSequence pack_padded(const Variable& x, const T& lengths, PackPaddedOptions options = {},
                           std::source_location where = std::source_location::current()) {
  return pack_padded_by(x, lengths, options, where);
}

}  // namespace espalier::data

namespace espalier {

/// The time steps of packed sequences: `for (Variable step : rnn_view(packed))`. Each is [running, …], a row
/// for every sequence that has not ended, the longest sequences first.
class RnnView {
 public:
  explicit RnnView(data::PackedSequence packed) : packed_(std::move(packed)) {}

  class Iterator {
   public:
    Variable operator*() const;
    Iterator& operator++() {
      row_ += view_->packed_.batch_sizes[step_++];
      return *this;
    }
    bool operator==(const Iterator& other) const { return step_ == other.step_; }

   private:
    friend RnnView;
    Iterator(const RnnView* view, size_t step) : view_(view), step_(step) {}
    const RnnView* view_;
    size_t step_;
    int64_t row_ = 0;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }
  size_t size() const { return packed_.batch_sizes.size(); }

 private:
  data::PackedSequence packed_;
};

inline RnnView rnn_view(data::PackedSequence packed) { return RnnView(std::move(packed)); }

}  // namespace espalier
