// The safetensors format: named tensors in one file, as PyTorch, JAX and others read and write them.
// https://huggingface.co/docs/safetensors
#pragma once
#include <concepts>
#include <filesystem>
#include <map>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Notes in a file, as its writer left them.
using FileNotes = std::map<std::string, std::string>;

/// All tensors of a file, in the order of their data, and its `__metadata__`,
/// if asked for. U16 becomes int32, U32 and U64 int64 (a number beyond it is an error),
/// F8_E4M3 and F8_E5M2 float16; other types are those of tensors. Throws FileError naming the file and what
/// is wrong with it; what the header states is checked against its size before memory is made for
/// anything.
NamedTensors read_safetensors(const std::filesystem::path& file, FileNotes* notes = nullptr,
                              std::source_location where = std::source_location::current());

/// Writes a whole file, or none: what was there before stays there until the new one is complete on disk.
/// Throws FileError naming the file and the reason, and if a name comes twice or is not UTF-8.
void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                       const FileNotes& notes = {},
                       std::source_location where = std::source_location::current());
/// The same of a std::map or std::unordered_map of names. A template, so that lists in braces are
/// NamedTensors.
template <class Map>
requires std::same_as<typename Map::key_type, std::string> && std::same_as<typename Map::mapped_type, Tensor>
void write_safetensors(const std::filesystem::path& file, const Map& tensors, const FileNotes& notes = {},
                       std::source_location where = std::source_location::current()) {
  write_safetensors(file, NamedTensors(tensors.begin(), tensors.end()), notes, where);
}

}  // namespace espalier
