#include "espalier/data/views/row_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "espalier/core/error.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

void check_source(const DatasetPtr& dataset, std::string_view call) {
  if (!dataset) throw DataError(fmt::format("{}: there is no dataset: the pointer is null", call));
}

uint64_t derived_seed(uint64_t seed, uint64_t number) {
  if (number == 0) return seed;
  // Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014.
  uint64_t z = seed + number * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void check_rows(std::span<const int64_t> rows, int64_t there_are) {
  for (const int64_t row : rows)
    if (row < 0 || row >= there_are)
      throw IndexError(fmt::format("row {} of a dataset with {} rows", row, there_are));
}

std::vector<Tensor> room_for_rows(const Dataset& dataset, int64_t rows, std::span<const int64_t> open_sizes) {
  std::vector<Tensor> outputs;
  size_t open = 0;
  for (Spec spec : dataset.specs()) {
    if (spec.shape.rank() == 0) throw DataError("specs() of a dataset has a scalar: it has no rows");
    spec.shape.dims()[0] = rows;
    for (int64_t& size : spec.shape.dims())
      if (size == -1 && open < open_sizes.size()) size = open_sizes[open++];
    outputs.emplace_back(spec.shape, spec.dtype);
  }
  return outputs;
}

int64_t open_axes_of(const std::vector<Spec>& specs) {
  int64_t count = 0;
  for (const Spec& spec : specs) count += std::count(spec.shape.begin(), spec.shape.end(), -1);
  return count;
}

namespace detail {

bool follow_each_other(std::span<const int64_t> positions) {
  for (size_t i = 1; i < positions.size(); ++i)
    if (positions[i] != positions[i - 1] + 1) return false;
  return true;
}

std::vector<Tensor> slices_of(std::span<Tensor> outputs, int64_t begin, int64_t end) {
  std::vector<Tensor> slices;
  for (const Tensor& output : outputs) slices.push_back(output.slice(0, begin, end));
  return slices;
}

std::vector<Tensor> room_like(std::span<Tensor> outputs, int64_t rows) {
  std::vector<Tensor> room;
  for (const Tensor& output : outputs) {
    Shape shape = output.shape();
    shape.dims()[0] = rows;
    room.emplace_back(shape, output.dtype());
  }
  return room;
}

void copy_rows(std::span<const Tensor> from, std::span<const int64_t> positions, std::span<Tensor> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    const size_t bytes = from[i].bytes() / positions.size();
    const char* at = static_cast<const char*>(from[i].address());
    for (size_t row = 0; row < positions.size() && bytes > 0; ++row)
      std::memcpy(static_cast<char*>(to[i].address()) + static_cast<size_t>(positions[row]) * bytes,
                  at + row * bytes, bytes);
  }
}

}  // namespace detail

std::vector<Spec> RowView::specs() const {
  std::vector<Spec> specs = source_->specs();
  for (Spec& spec : specs)
    if (spec.shape.rank() > 0) spec.shape.dims()[0] = rows_;
  return specs;
}

void RowView::read_in(const ReadContext& context, std::span<const int64_t> rows,
                      std::span<Tensor> outputs) const {
  check_rows(rows, rows_);
  const std::vector<SourceRow> picked = pick(context, rows);
  std::map<int64_t, std::pair<std::vector<int64_t>, std::vector<int64_t>>> by_showing;  // rows, positions
  for (size_t i = 0; i < picked.size(); ++i) {
    auto& [of_source, positions] = by_showing[picked[i].showing];
    of_source.push_back(picked[i].row);
    positions.push_back(static_cast<int64_t>(i));
  }
  for (const auto& [showing, part] : by_showing) {
    const auto& of_source = part.first;
    const auto& positions = part.second;
    const ReadContext own{context.epoch, derived_seed(context.seed, static_cast<uint64_t>(showing))};
    if (by_showing.size() == 1)
      checked_read(*source_, own, of_source, outputs);
    else
      read_at(positions, outputs, [&](std::span<Tensor> to) { checked_read(*source_, own, of_source, to); });
  }
}

std::vector<int64_t> RowView::open_sizes(std::span<const int64_t> rows) const {
  check_rows(rows, rows_);
  std::vector<int64_t> of_source;
  for (const SourceRow& picked : pick({}, rows)) of_source.push_back(picked.row);
  return source_->open_sizes(of_source);
}

}  // namespace espalier::data
