// The container of a plan file: a text and tensors, with checksums over all of it.
//
//   0   8  "\x89ESPLAN\n"
//   8   4  the version of the format       12  4  0
//  16   8  bytes of the text               24  8  where the tensors begin, a multiple of 64
//  32   8  bytes of the file               40  8  CRC-64 of the text
//  48   8  CRC-64 of all behind the text   56  8  CRC-64 of these first 56 bytes
//  64      the text, JSON; zeros up to the tensors; each tensor begins at a multiple of 64
//
// Numbers are little-endian. The text's "tensors" are an array of [dtype, sizes, offset from the first].
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

/// Files of this version and of older ones are read.
inline constexpr uint32_t plan_format_version = 3;
/// Without loops; the first version has no outputs that are Metrics either.
inline constexpr uint32_t plan_format_with_metrics = 2, plan_format_without_metrics = 1;

struct PlanContainer {
  nlohmann::json text;  ///< an object
  std::vector<Tensor> tensors;
  uint32_t version = plan_format_without_metrics;  ///< the least that can hold it
};

/// Writes a whole file, or none. The text must not have "tensors". Throws FileError.
void write_plan_container(const std::filesystem::path& path, const PlanContainer& container);

/// Maps the tensors, on the CPU; each is the only one in its memory, and a plan may write there. Throws
/// FileError for files that are not whole, of another format, or of a newer version. What the file states is
/// checked before memory is made for it.
PlanContainer read_plan_container(const std::filesystem::path& path);

}  // namespace espalier
