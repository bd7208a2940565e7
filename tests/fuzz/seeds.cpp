// Writes small files that readers accept, for fuzzers to begin with: fuzz_seeds <folder>.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "../file_samples.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/tensor.h"
#include "espalier/data/csv_table.h"
#include "espalier/data/idx.h"
#include "espalier/data/libsvm.h"
#include "espalier/data/npy.h"

using namespace espalier;
namespace fs = std::filesystem;

namespace {

void write_seed(const fs::path& folder, const char* name, const std::string& bytes) {
  fs::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "fuzz_seeds <folder>\n";
    return 1;
  }
  const fs::path folder = argv[1];
  using testing::from_hex;
  write_seed(folder / "npz", "stored", from_hex(testing::npz_stored));
  write_seed(folder / "npz", "deflated", from_hex(testing::npz_deflated));
  for (const auto& [name, image] :
       {std::pair("rgb.png", testing::png_rgb), std::pair("palette.png", testing::png_palette),
        std::pair("gray16.png", testing::png_gray16), std::pair("bits.png", testing::png_bits),
        std::pair("gray.jpeg", testing::jpeg_gray), std::pair("rgb.jpeg", testing::jpeg_rgb)})
    write_seed(folder / "image", name, from_hex(image));
  write_seed(folder / "idx", "gzip", from_hex(testing::idx_gzip));
  write_seed(folder / "csv", "numbers", std::string(1, '\0') + "1,2.5\n-3e4,+5\n");
  write_seed(folder / "csv", "words", "\1a,\"b \"\"c\"\"\"\n1,red\n,\"blue\"\n# c\nNA,red\n");
  write_seed(folder / "libsvm", "rows", "+1 qid:1 1:0.5 3:-2e1 # c\n-1 qid:2 2:1\n");
  const std::string plan =
      R"({"accumulate":1,"espalier":"0.1.0","feeds":[{"name":"x","outputs":[{"name":"x","spec":["float32",[-1,3]]}],)"
      R"("placeholder":true}],"mode":"inference","nodes":[{"feed":0,"output":0},{"leaf":"parameter","name":"w",)"
      R"("tensor":0},{"attributes":[["transpose_a","flag",false],["transpose_b","flag",false]],"inputs":[0,0,1,0],)"
      R"("op":"matmul"}],"outputs":[],"precision":0,"run":"{}","run_tensors":[],"tensors":[["float32",[3,2],0]],)"
      R"("value":[2,0],"within_run":false})";
  write_seed(folder / "plan", "text", plan);
  const Tensor x = arange(6).reshape({2, 3});
  for (const char* name : {"npy", "safetensors"}) fs::create_directories(folder / name);
  data::write_idx(folder / "idx" / "plain", x);
  data::write_npy(folder / "npy" / "plain", x);
  write_safetensors(folder / "safetensors" / "plain", {{"x", x}, {"flags", x.to(boolean)}},
                    {{"by", "seeds"}});
}
