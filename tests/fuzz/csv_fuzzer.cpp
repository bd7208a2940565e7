#include "espalier/data/csv.h"
#include "espalier/data/csv_table.h"
#include "fuzz_file.h"

using namespace espalier;

// The first byte chooses reader and dtype.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const auto dtype = static_cast<DType>(bytes[0] / 4 % 7);
  return testing::fuzz(bytes + 1, size - 1, [&](const std::filesystem::path& path) {
    if (bytes[0] % 4 == 0)
      (void)data::read_csv(path, {.dtype = dtype});
    else
      (void)data::read_csv_table(path, {.header = bytes[0] % 4 == 1, .comment = '#', .dtype = dtype});
  });
}
