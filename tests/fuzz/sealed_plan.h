// Plan files with right checksums, of any text and any bytes of tensors.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "espalier/core/files/crc64.h"

namespace espalier::testing {

/// What stands before the text of a plan file, and what its tensors begin at multiples of.
inline constexpr size_t plan_prefix_bytes = 64, plan_alignment = 64;

/// A file of that version of the format.
inline std::vector<uint8_t> sealed_plan(char version, std::string_view text,
                                        const std::vector<uint8_t>& tensors) {
  const size_t end = plan_prefix_bytes + text.size(),
               begin = (end + plan_alignment - 1) / plan_alignment * plan_alignment;
  std::vector<uint8_t> file(begin);
  if (!text.empty()) std::memcpy(file.data() + plan_prefix_bytes, text.data(), text.size());
  file.insert(file.end(), tensors.begin(), tensors.end());
  const auto crc_of = [&](size_t from, size_t to) {
    Crc64 crc;
    crc.add(file.data() + from, to - from);
    return crc.value();
  };
  const char mark[] = {'\x89', 'E', 'S', 'P', 'L', 'A', 'N', '\n', version};
  std::memcpy(file.data(), mark, sizeof mark);
  const uint64_t numbers[] = {text.size(), begin, file.size(), crc_of(plan_prefix_bytes, end),
                              crc_of(end, file.size())};
  std::memcpy(file.data() + 16, numbers, sizeof numbers);
  const uint64_t prefix = crc_of(0, 56);
  std::memcpy(file.data() + 56, &prefix, sizeof prefix);
  return file;
}

}  // namespace espalier::testing
