// The matrix products of a workload, alone: no way of computing a step can be faster than they are, each by
// the library that is best at it. Their sum is the floor that the workloads are compared with.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <vector>

namespace bench {

// c[m, n] = op(a) op(b), where op(a) is [m, k] and op(b) is [k, n]; a and b are stored transposed where it
// says so. A batch of them lies one after the other.
struct Product {
  const char* name;
  int m, n, k;
  bool transpose_a, transpose_b;
  int batch = 1;
};

enum class Library { openblas, onednn_gemm, onednn_matmul };
inline constexpr std::array kLibraries = {Library::openblas, Library::onednn_gemm, Library::onednn_matmul};

// One product, ready to be run by any library.
class Gemm {
 public:
  explicit Gemm(const Product& product);
  void operator()(Library library, const float* a, const float* b, float* c) const;

 private:
  Product product_;
  std::shared_ptr<struct MatmulPrimitive> primitive_;
};

// Times every product by every library, on all threads and on one: small products are not worth sharing.
// measure() adds one round to what is known.
class GemmFloor {
 public:
  explicit GemmFloor(std::span<const Product> products, int runs = 21);
  void measure();
  double seconds() const;  // of one step, each product by the library that is best at it
  void print() const;      // one line per product, for people

  // Runs a product by the library that was best at it.
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
    size_t best = 0;  // of the ways
  };
  static void run(const Case& one, const Way& way, const float* a, const float* b, float* c);

  std::vector<Case> cases_;
  int runs_;
};

}  // namespace bench
