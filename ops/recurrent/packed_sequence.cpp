#include "espalier/ops/recurrent/packed_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace data {

namespace {

/// The rows of x with these numbers.
Variable rows_of(const Variable& x, const std::vector<int64_t>& numbers) {
  const Tensor list = tensor_from(numbers, Shape{static_cast<int64_t>(numbers.size())});
  return gather(x, list.to(x.device()), 0);
}

/// A packing has numbers of rows, which an open axis gets with a batch.
void check_open(const Variable& x, std::string_view function) {
  if (has_open_axes(x))
    throw UnsupportedError(
        fmt::format("{}: a shape of {} has an open axis (-1); a packing needs all lengths when it is made",
                    function, x.shape().str()));
}

/// Sequences of one packing differ by their lengths alone.
void check_alike(const Variable& first, const Variable& x) {
  if (!std::ranges::equal(first.shape().begin() + 1, first.shape().end(), x.shape().begin() + 1,
                          x.shape().end()))
    throw ShapeError(fmt::format("pack: sequences of shapes {} and {} differ behind the first axis",
                                 first.shape().str(), x.shape().str()));
  if (x.dtype() != first.dtype())
    throw TypeError(
        fmt::format("pack: one sequence is {} and another {}", name(first.dtype()), name(x.dtype())));
  if (x.device() != first.device())
    throw DeviceError(fmt::format("pack: one sequence is on {} and another on {}; use to(device)",
                                  first.device().str(), x.device().str()));
}

/// Everything but the rows.
PackedSequence packing_of(const std::vector<int64_t>& lengths) {
  PackedSequence packed;
  const size_t count = lengths.size();
  packed.sorted_indices.resize(count);
  std::iota(packed.sorted_indices.begin(), packed.sorted_indices.end(), 0);
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::ranges::stable_sort(packed.sorted_indices, std::greater(), length);
  packed.unsorted_indices.resize(count);
  for (size_t i = 0; i < count; ++i)
    packed.unsorted_indices[static_cast<size_t>(packed.sorted_indices[i])] = static_cast<int64_t>(i);
  size_t running = count;
  for (int64_t t = 0; t < length(packed.sorted_indices[0]); ++t) {
    while (length(packed.sorted_indices[running - 1]) <= t) --running;
    packed.batch_sizes.push_back(static_cast<int64_t>(running));
  }
  return packed;
}

/// Where each step begins.
std::vector<int64_t> begins_of(const PackedSequence& packed) {
  std::vector<int64_t> begins;
  int64_t begin = 0;
  for (const int64_t size : packed.batch_sizes) begins.push_back(begin), begin += size;
  return begins;
}

/// The numbers that the rows of the packing have in what `number(sequence, t)` counts.
template <class F>
std::vector<int64_t> numbers_of(const PackedSequence& packed, const F& number) {
  std::vector<int64_t> numbers;
  for (size_t t = 0; t < packed.batch_sizes.size(); ++t)
    for (size_t b = 0; b < static_cast<size_t>(packed.batch_sizes[t]); ++b)
      numbers.push_back(number(packed.sorted_indices[b], static_cast<int64_t>(t)));
  return numbers;
}

}  // namespace

void PackedSequence::check(std::string_view function) const {
  const auto refuse = [&](const std::string& why) {
    throw ShapeError(fmt::format("{}: a packing of {} sequences, {} steps and data {}: {}", function,
                                 sequences(), batch_sizes.size(), data.shape().str(), why));
  };
  const auto count = static_cast<int64_t>(sequences());
  int64_t rows = 0, before = count;
  for (const int64_t size : batch_sizes) {
    if (size < 1 || size > before) refuse(fmt::format("a step of {} rows comes after {}", size, before));
    rows += before = size;
  }
  if (count == 0 || batch_sizes.empty() || batch_sizes[0] != count)
    refuse("the first step has a row of each sequence");
  if (data.rank() == 0 || data.shape()[0] != rows) refuse(fmt::format("the steps have {} rows", rows));
  bool inverse = sorted_indices.size() == unsorted_indices.size();
  for (size_t i = 0; inverse && i < sequences(); ++i) {
    const int64_t number = sorted_indices[i];
    inverse = number >= 0 && number < count &&
              unsorted_indices[static_cast<size_t>(number)] == static_cast<int64_t>(i);
  }
  if (!inverse) refuse("sorted_indices and unsorted_indices are not inverse permutations");
}

std::vector<int64_t> PackedSequence::lengths(Where where) const {
  located(where, [&] { check("PackedSequence::lengths"); });
  std::vector<int64_t> lengths(sequences(), 0);
  for (const int64_t size : batch_sizes)
    for (size_t b = 0; b < static_cast<size_t>(size); ++b) ++lengths[static_cast<size_t>(sorted_indices[b])];
  return lengths;
}

std::vector<Variable> PackedSequence::unpack(Where where) const {
  const CallScope scope(where);
  return located(where, [&] {
    check("unpack");
    const std::vector<int64_t> begins = begins_of(*this), all = lengths();
    std::vector<Variable> sequences;
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<int64_t> numbers;
      for (size_t t = 0; t < static_cast<size_t>(all[i]); ++t)
        numbers.push_back(begins[t] + unsorted_indices[i]);
      sequences.push_back(rows_of(data, numbers));
    }
    return sequences;
  });
}

PaddedSequences PackedSequence::pad(PadOptions options, Where where) const {
  const CallScope scope(where);
  return located(where, [&] {
    check("pad");
    const std::vector<int64_t> begins = begins_of(*this), all = lengths();
    const auto longest = static_cast<int64_t>(batch_sizes.size()), count = static_cast<int64_t>(all.size());
    const int64_t steps = options.length ? options.length : longest;
    if (steps < longest)
      throw Error(fmt::format("pad: to a length of {}, and a sequence is {} long", options.length, longest));
    std::vector<int64_t> numbers;
    const auto number = [&](int64_t i, int64_t t) {
      const auto at = static_cast<size_t>(i);
      return t < all[at] ? begins[static_cast<size_t>(t)] + unsorted_indices[at] : data.shape()[0];
    };
    const int64_t outer = options.batch_first ? count : steps, inner = options.batch_first ? steps : count;
    for (int64_t a = 0; a < outer; ++a)
      for (int64_t b = 0; b < inner; ++b)
        numbers.push_back(options.batch_first ? number(a, b) : number(b, a));
    Shape one = data.shape(), shape{outer, inner};
    one.dims()[0] = 1;
    shape.dims().append(one.begin() + 1, one.end());
    const Variable filler = full(one, options.value, data.dtype()).to(data.device());
    return PaddedSequences{reshape(rows_of(concat({data, filler}, 0), numbers), shape), all};
  });
}

PackedSequence PackedSequence::with(Variable rows, Where where) const {
  return located(where, [&] {
    if (rows.rank() == 0 || rows.shape()[0] != data.shape()[0])
      throw ShapeError(fmt::format("PackedSequence::with: {} rows take the place of {}: shape {}",
                                   rows.rank() ? rows.shape()[0] : 0, data.shape()[0], rows.shape().str()));
    return PackedSequence{std::move(rows), batch_sizes, sorted_indices, unsorted_indices};
  });
}

PackedSequence pack(const std::vector<Variable>& sequences, std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    if (sequences.empty()) throw Error("pack: there are no sequences");
    std::vector<int64_t> lengths, begins;
    int64_t begin = 0;
    for (const Variable& sequence : sequences) {
      check_open(sequence, "pack");
      if (sequence.rank() == 0 || sequence.shape()[0] < 1)
        throw ShapeError(fmt::format("pack: a sequence of shape {} has no elements; it must be [length, …]",
                                     sequence.shape().str()));
      check_alike(sequences[0], sequence);
      lengths.push_back(sequence.shape()[0]);
      begins.push_back(begin);
      begin += lengths.back();
    }
    PackedSequence packed = packing_of(lengths);
    packed.data =
        rows_of(concat(sequences, 0),
                numbers_of(packed, [&](int64_t i, int64_t t) { return begins[static_cast<size_t>(i)] + t; }));
    return packed;
  });
}

PackedSequence pack_padded(const Variable& x, const std::vector<int64_t>& lengths, PackPaddedOptions options,
                           std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    check_open(x, "pack_padded");
    const Shape& shape = x.shape();
    if (shape.rank() < 2)
      throw ShapeError(fmt::format("pack_padded: {} has no axes of steps and sequences", shape.str()));
    const int64_t count = shape[options.batch_first ? 0 : 1], steps = shape[options.batch_first ? 1 : 0];
    if (static_cast<int64_t>(lengths.size()) != count || count == 0)
      throw ShapeError(
          fmt::format("pack_padded: {} lengths for {} sequences, {}", lengths.size(), count, shape.str()));
    for (const int64_t length : lengths)
      if (length < 1 || length > steps)
        throw ShapeError(
            fmt::format("pack_padded: a length of {} in {}, which has {} steps", length, shape.str(), steps));
    Shape rows{count * steps};
    rows.dims().append(shape.begin() + 2, shape.end());
    PackedSequence packed = packing_of(lengths);
    packed.data = rows_of(reshape(x, rows), numbers_of(packed, [&](int64_t i, int64_t t) {
                            return options.batch_first ? i * steps + t : t * count + i;
                          }));
    return packed;
  });
}

PackedSequence pack_padded_by(const Variable& x, const Tensor& lengths, PackPaddedOptions options,
                              std::source_location where) {
  const std::vector<int64_t> each = located(where, [&] {
    if (!lengths.defined() || (lengths.dtype() != int32 && lengths.dtype() != int64))
      throw TypeError(fmt::format("pack_padded: lengths must be int32 or int64, not {}",
                                  lengths.defined() ? name(lengths.dtype()) : "undefined"));
    if (lengths.rank() != 1)
      throw ShapeError(fmt::format("pack_padded: lengths of shape {} are not [n]", lengths.shape().str()));
    const Tensor numbers = lengths.to(cpu()).to(int64).contiguous_copy();
    const auto all = numbers.span<int64_t>();
    return std::vector<int64_t>(all.begin(), all.end());
  });
  return pack_padded(x, each, options, where);
}

}  // namespace data

Variable RnnView::Iterator::operator*() const {
  return slice(view_->packed_.data, 0, row_, row_ + view_->packed_.batch_sizes[step_]);
}

}  // namespace espalier
