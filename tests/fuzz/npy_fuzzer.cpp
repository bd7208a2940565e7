#include "espalier/data/npy.h"
#include "fuzz_file.h"

using namespace espalier;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return testing::fuzz(bytes, size, [](const std::filesystem::path& path) { (void)data::read_npy(path); });
}
