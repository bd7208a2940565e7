#include <cstring>

#include "espalier/core/files/safetensors.h"
#include "espalier/core/files/safetensors_map.h"
#include "fuzz_file.h"

using namespace espalier;

// What is mapped is what is read.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return testing::fuzz(bytes, size, [](const std::filesystem::path& path) {
    FileNotes notes;
    const NamedTensors read = read_safetensors(path, &notes), mapped = map_safetensors(path);
    if (read.size() != mapped.size()) std::abort();
    for (size_t i = 0; i < read.size(); ++i) {
      const Tensor &a = read[i].second, &b = mapped[i].second;
      if (a.spec() != b.spec()) std::abort();
      if (a.bytes() > 0 && std::memcmp(a.address(), b.address(), a.bytes()) != 0) std::abort();
    }
  });
}
