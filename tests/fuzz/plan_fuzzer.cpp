#include "espalier/executor/load.h"
#include "fuzz_file.h"
#include "sealed_plan.h"

using namespace espalier;

// A file that begins as a plan file does is one; other bytes are the text of one, before room for tensors.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto read = [](const std::filesystem::path& path) { (void)plan_file_info(path); };
  if (size > 8 && bytes[0] == 0x89) return testing::fuzz(bytes, size, read);
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const std::vector<uint8_t> file = testing::sealed_plan(1, text, std::vector<uint8_t>(256));
  return testing::fuzz(file.data(), file.size(), read);
}
