#include "gemm.h"

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <dnnl.hpp>

#include "timing.h"

namespace bench {

namespace {

int leading_a(const Product& p) { return p.transpose_a ? p.m : p.k; }
int leading_b(const Product& p) { return p.transpose_b ? p.k : p.n; }

void openblas(const Product& p, const float* a, const float* b, float* c) {
  if (p.m == 1)  // a vector: gemv needs no copies
    cblas_sgemv(CblasRowMajor, p.transpose_b ? CblasNoTrans : CblasTrans, p.transpose_b ? p.n : p.k,
                p.transpose_b ? p.k : p.n, 1, b, leading_b(p), a, 1, 0, c, 1);
  else
    cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
                p.transpose_b ? CblasTrans : CblasNoTrans, p.m, p.n, p.k, 1, a, leading_a(p), b, leading_b(p),
                0, c, p.n);
}

void onednn(const Product& p, const float* a, const float* b, float* c) {
  dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1, a, leading_a(p), b,
             leading_b(p), 0, c, p.n);
}

}  // namespace

struct MatmulPrimitive {
  explicit MatmulPrimitive(const Product& p)
      : engine(dnnl::engine::kind::cpu, 0),
        stream(engine),
        a(matrix(p, p.m, p.k, p.transpose_a)),
        b(matrix(p, p.k, p.n, p.transpose_b)),
        c(matrix(p, p.m, p.n, false)),
        matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine)) {}

  static dnnl::memory::desc matrix(const Product& p, dnnl::memory::dim rows, dnnl::memory::dim columns,
                                   bool transposed) {
    return {{p.batch, rows, columns},
            dnnl::memory::data_type::f32,
            transposed ? dnnl::memory::dims{rows * columns, 1, rows}
                       : dnnl::memory::dims{rows * columns, columns, 1}};
  }

  void run(const float* a_data, const float* b_data, float* c_data) {
    matmul.execute(stream, {{DNNL_ARG_SRC, {a, engine, const_cast<float*>(a_data)}},
                            {DNNL_ARG_WEIGHTS, {b, engine, const_cast<float*>(b_data)}},
                            {DNNL_ARG_DST, {c, engine, c_data}}});
  }

  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::memory::desc a, b, c;
  dnnl::matmul matmul;
};

Gemm::Gemm(const Product& product)
    : product_(product), primitive_(std::make_shared<MatmulPrimitive>(product)) {}

void Gemm::operator()(Library library, const float* a, const float* b, float* c) const {
  if (library == Library::onednn_matmul) return primitive_->run(a, b, c);
  const auto one = library == Library::openblas ? openblas : onednn;
  const Product& p = product_;
#pragma omp parallel for if (p.batch > 1)  // inside, the libraries use one thread each
  for (int64_t i = 0; i < p.batch; ++i) one(p, a + i * p.m * p.k, b + i * p.k * p.n, c + i * p.m * p.n);
}

GemmFloor::GemmFloor(std::span<const Product> products, int runs) : runs_(runs) {
  const auto filled = [](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t j = 0; j < values.size(); ++j) values[j] = static_cast<float>(j % 17) / 8 - 1;
    return values;
  };
  for (const Product& p : products) {
    cases_.push_back({p,
                      Gemm(p),
                      filled(int64_t{p.batch} * p.m * p.k),
                      filled(int64_t{p.batch} * p.k * p.n),
                      filled(int64_t{p.batch} * p.m * p.n),
                      {}});
    for (const Library library : kLibraries) {
      cases_.back().ways.push_back({library, omp_get_max_threads()});
      if (omp_get_max_threads() > 1) cases_.back().ways.push_back({library, 1});
    }
  }
}

void GemmFloor::run(const Case& one, const Way& way, const float* a, const float* b, float* c) {
  const int before = omp_get_max_threads();
  if (way.threads != before) omp_set_num_threads(way.threads);
  one.gemm(way.library, a, b, c);
  if (way.threads != before) omp_set_num_threads(before);
}

void GemmFloor::measure() {
  for (Case& one : cases_) {
    for (Way& way : one.ways)
      way.seconds.push_back(
          median_seconds(runs_, [&] { run(one, way, one.a.data(), one.b.data(), one.c.data()); }));
    one.best = static_cast<size_t>(
        std::min_element(one.ways.begin(), one.ways.end(),
                         [](const Way& x, const Way& y) { return median(x.seconds) < median(y.seconds); }) -
        one.ways.begin());
  }
}

double GemmFloor::seconds() const {
  double sum = 0;
  for (const Case& one : cases_) sum += median(one.ways[one.best].seconds);
  return sum;
}

void GemmFloor::run(size_t product, const float* a, const float* b, float* c) const {
  run(cases_[product], cases_[product].ways[cases_[product].best], a, b, c);
}

void GemmFloor::print() const {
  constexpr const char* names[] = {"OpenBLAS", "oneDNN gemm", "oneDNN matmul"};
  for (const Case& one : cases_) {
    const Product& p = one.product;
    std::printf("# %-9s %3d x %4d x %4d x %4d ", p.name, p.batch, p.m, p.n, p.k);
    for (const Way& way : one.ways)
      std::printf(" %s(%d) %.1f us ", names[static_cast<int>(way.library)], way.threads,
                  median(way.seconds) * 1e6);
    std::printf(" best %5.1f GFLOP/s\n",
                2e-9 * p.batch * p.m * p.n * p.k / median(one.ways[one.best].seconds));
  }
}

}  // namespace bench
