#include <cstring>
#include <vector>

#include "espalier/core/files/crc64.h"
#include "espalier/executor/load.h"
#include "fuzz_file.h"

using namespace espalier;

namespace {

/// The bytes as the text of a plan file, whose checksums are right, before room for tensors.
std::vector<uint8_t> as_text(const uint8_t* bytes, size_t size) {
  const size_t begin = (64 + size + 63) / 64 * 64;
  std::vector<uint8_t> file(begin + 256);
  if (size) std::memcpy(file.data() + 64, bytes, size);
  const auto crc_of = [&](size_t from, size_t to) {
    Crc64 crc;
    crc.add(file.data() + from, to - from);
    return crc.value();
  };
  std::memcpy(file.data(),
              "\x89"
              "ESPLAN\n\1",
              9);
  const uint64_t numbers[] = {size, begin, file.size(), crc_of(64, 64 + size),
                              crc_of(64 + size, file.size())};
  std::memcpy(file.data() + 16, numbers, sizeof numbers);
  const uint64_t prefix = crc_of(0, 56);
  std::memcpy(file.data() + 56, &prefix, sizeof prefix);
  return file;
}

}  // namespace

// A file that begins as a plan file does is one; other bytes are the text of one.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto read = [](const std::filesystem::path& path) { (void)plan_file_info(path); };
  if (size > 8 && bytes[0] == 0x89) return testing::fuzz(bytes, size, read);
  const std::vector<uint8_t> file = as_text(bytes, size);
  return testing::fuzz(file.data(), file.size(), read);
}
