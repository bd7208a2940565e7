// Small ONNX files of several kinds of networks.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace espalier::testing {

struct SampleFile {
  std::string name, bytes;
};

/// Files that this writes into `folder`, and their bytes: convolutions, normalizations, attention, recurrent
/// cells, and a loop with a function and a branch.
std::vector<SampleFile> sample_files(const std::filesystem::path& folder);

}  // namespace espalier::testing
