// Writes small ONNX files, for the fuzzer to begin with: fuzz_onnx_seeds <folder>.
#include <filesystem>
#include <iostream>

#include "../onnx/samples.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "fuzz_onnx_seeds <folder>\n";
    return 1;
  }
  std::filesystem::create_directories(argv[1]);
  espalier::testing::sample_files(argv[1]);
  return 0;
}
