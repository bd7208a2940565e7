// The configuration of the libraries on this machine. "bench_machine core" prints the processor that OpenBLAS
// detects: an old OpenBLAS takes a new processor for a very old one and is several times slower.
#include <cblas.h>

#include <cstring>

#include "gemm.h"
#include "products.h"
#include "timing.h"

int main(int argc, char** argv) {
  std::printf("%s\n", openblas_get_corename());
  if (argc > 1 && std::strcmp(argv[1], "core") == 0) return 0;
  for (const std::span<const bench::Product> products :
       {std::span<const bench::Product>(bench::kMlpProducts),
        std::span<const bench::Product>(bench::kInferenceProducts)}) {
    bench::GemmFloor floor(products, 101);
    floor.measure();
    floor.print();
  }
}
