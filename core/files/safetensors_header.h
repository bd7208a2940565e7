// What a safetensors file says of its tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "espalier/core/files/element_types.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors.h"

namespace espalier {

inline constexpr const char* safetensors_notes = "__metadata__";

struct SafetensorsEntry {
  std::string name = {};
  Spec spec = {};                     ///< of the tensor
  const ElementType* type = nullptr;  ///< of its elements in the file
  uint64_t begin = 0;                 ///< of its bytes, from where the data begin
  uint64_t end = 0;
};

/// The entries in the order of their data, which are what follows in the file, without gaps. Throws
/// FileError.
std::vector<SafetensorsEntry> read_safetensors_entries(InputFile& file, FileNotes* notes);

/// The tensor of these bytes, which are `bytes` of an entry. Throws FileError for a number that the dtype
/// does not have.
Tensor convert_safetensors_entry(const InputFile& file, const SafetensorsEntry& entry, const char* bytes);

}  // namespace espalier
