#include "espalier/data/views/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/files/safetensors_map.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

constexpr const char* cache_note = "espalier_cache";

std::vector<Tensor> read_all_rows(const Dataset& dataset) {
  constexpr int64_t at_once = 256;
  const int64_t rows = dataset.rows();
  std::vector<int64_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  const std::span<const int64_t> all(numbers);
  std::vector<int64_t> sizes;
  if (open_axes_of(dataset.specs()) > 0) sizes = dataset.open_sizes(all);
  std::vector<Tensor> columns = room_for_rows(dataset, rows, sizes);
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    const int64_t end = std::min(rows, begin + at_once);
    std::vector<Tensor> part = detail::slices_of(columns, begin, end);
    checked_read(dataset, all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), part);
  }
  return columns;
}

/// What the notes of a cache file hold: its rows, its columns and its key.
std::string cache_text(const Dataset& dataset, const std::string& key) {
  std::string text = fmt::format("{} rows", dataset.rows());
  for (const Spec& spec : dataset.specs()) text += fmt::format(", {} {}", name(spec.dtype), spec.shape.str());
  return text + ": " + key;
}

std::vector<Tensor> mapped_columns(const std::filesystem::path& file, const std::string& text) {
  if (!std::filesystem::exists(file)) return {};
  FileNotes notes;
  const NamedTensors tensors = map_safetensors(file, &notes);
  const auto note = notes.find(cache_note);
  if (note == notes.end())
    throw FileError(fmt::format("{} is not the file of a cache, so it is not replaced", file.string()));
  if (note->second != text) return {};
  std::vector<Tensor> columns(tensors.size());
  for (const auto& [number, tensor] : tensors) {
    const auto column = static_cast<size_t>(std::atoi(number.c_str()));
    if (column < columns.size()) columns[column] = tensor;
  }
  return columns;
}

}  // namespace

DatasetPtr cache(DatasetPtr dataset, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "cache");
    return std::make_shared<TensorDataset>(read_all_rows(*dataset));
  });
}

DatasetPtr cache(DatasetPtr dataset, const std::filesystem::path& file, const std::string& key,
                 std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "cache");
    const std::string text = cache_text(*dataset, key);
    std::vector<Tensor> columns = mapped_columns(file, text);
    if (columns.empty()) {
      NamedTensors named;
      for (Tensor& column : read_all_rows(*dataset))
        named.emplace_back(fmt::format("{}", named.size()), std::move(column));
      write_safetensors(file, named, {{cache_note, text}}, {});
      named.clear();
      columns = mapped_columns(file, text);
    }
    return std::make_shared<TensorDataset>(columns);
  });
}

}  // namespace espalier::data
