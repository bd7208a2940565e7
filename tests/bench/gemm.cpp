#include "gemm.h"

#include <cblas.h>
#include <dnnl.h>

#include <cstdio>

#include "timing.h"

namespace bench {

void gemm(Library library, const Product& p, const float* a, const float* b, float* c) {
  const int lda = p.transpose_a ? p.m : p.k, ldb = p.transpose_b ? p.k : p.n;
  if (library == Library::openblas)
    cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
                p.transpose_b ? CblasTrans : CblasNoTrans, p.m, p.n, p.k, 1, a, lda, b, ldb, 0, c, p.n);
  else
    dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1, a, lda, b, ldb, 0, c,
               p.n);
}

GemmFloor::GemmFloor() {
  for (int i = 0; i < kProducts; ++i) {
    const Product& p = kStepProducts[i];
    auto fill = [](std::vector<float>& values, int count) {
      values.resize(static_cast<size_t>(count));
      for (size_t j = 0; j < values.size(); ++j) values[j] = static_cast<float>(j % 17) / 8 - 1;
    };
    fill(cases_[i].a, p.m * p.k), fill(cases_[i].b, p.k * p.n), fill(cases_[i].c, p.m * p.n);
  }
}

void GemmFloor::measure() {
  constexpr int kRuns = 21;
  for (int i = 0; i < kProducts; ++i) {
    Case& data = cases_[i];
    std::vector<double> times[2];
    for (int run = -2; run < kRuns; ++run)  // the first two runs warm up
      for (Library library : {Library::openblas, Library::onednn}) {
        const double time = bench::seconds(
            [&] { gemm(library, kStepProducts[i], data.a.data(), data.b.data(), data.c.data()); });
        if (run >= 0) times[static_cast<int>(library)].push_back(time);
      }
    for (int library = 0; library < 2; ++library) data.seconds[library].push_back(median(times[library]));
  }
}

double GemmFloor::seconds(int product, Library library) const {
  return median(cases_[product].seconds[static_cast<int>(library)]);
}

Library GemmFloor::best(int product) const {
  return seconds(product, Library::openblas) <= seconds(product, Library::onednn) ? Library::openblas
                                                                                  : Library::onednn;
}

double GemmFloor::microseconds() const {
  double sum = 0;
  for (int i = 0; i < kProducts; ++i) sum += seconds(i, best(i));
  return sum * 1e6;
}

void GemmFloor::print() const {
  for (int i = 0; i < kProducts; ++i) {
    const Product& p = kStepProducts[i];
    std::printf("# %-9s %4d x %4d x %4d  OpenBLAS %6.1f us  oneDNN %6.1f us  best %5.1f GFLOP/s\n", p.name,
                p.m, p.n, p.k, seconds(i, Library::openblas) * 1e6, seconds(i, Library::onednn) * 1e6,
                2e-9 * p.m * p.n * p.k / seconds(i, best(i)));
  }
}

}  // namespace bench
