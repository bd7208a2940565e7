// The matrix products of a workload, each by the fastest library. The sum of their times is a lower bound for
// a step of the workload.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <vector>

namespace bench {

// c[m, n] = op(a) op(b), where op(a) is [m, k] and op(b) is [k, n]; a and b may be stored transposed. The
// matrices of a batch are contiguous.
struct Product {
  const char* name;
  int m, n, k;
  bool transpose_a, transpose_b;
  int batch = 1;
};

enum class Library { openblas, onednn_gemm, onednn_matmul };
inline constexpr std::array kLibraries = {Library::openblas, Library::onednn_gemm, Library::onednn_matmul};

// One product, prepared for every library.
class Gemm {
 public:
  explicit Gemm(const Product& product);
  void operator()(Library library, const float* a, const float* b, float* c) const;

 private:
  Product product_;
  std::shared_ptr<struct MatmulPrimitive> primitive_;
};

// Times every product with every library, on all threads and on one, which is faster for small products. Each
// measure() adds one round.
class GemmFloor {
 public:
  explicit GemmFloor(std::span<const Product> products, int runs = 21);
  void measure();
  double seconds() const;  // for one step, each product by its fastest library
  void print() const;      // one line per product

  // Runs a product by its fastest library.
  void run(size_t product, const float* a, const float* b, float* c) const;

 private:
  struct Way {
    Library library;
    int threads;
    std::vector<double> seconds = {};  // the median of each round
  };
  struct Case {
    Product product;
    Gemm gemm;
    std::vector<float> a, b, c;
    std::vector<Way> ways;
    size_t best = 0;  // index into `ways`
  };
  static void run(const Case& one, const Way& way, const float* a, const float* b, float* c);

  std::vector<Case> cases_;
  int runs_;
};

}  // namespace bench
