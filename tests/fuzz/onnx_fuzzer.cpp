#include "espalier/onnx.h"
#include "fuzz_file.h"

namespace esp = espalier;

// Operators check what the file says of their inputs, so any Error is an answer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::filesystem::path path = esp::testing::fuzz_file(bytes, size);
  try {
    (void)esp::onnx::load(path, {.largest_constant = 1 << 20, .most_nodes = 1000});
  } catch (const esp::Error&) {
  }
  return 0;
}
