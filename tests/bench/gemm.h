// The matrix products of one training step of the MLP, alone: no way of computing the step can be faster than
// they are, each by the better of the two libraries. That sum is the floor which mlp.cpp compares with.
#pragma once
#include <array>
#include <vector>

namespace bench {

// c[m, n] = op(a) op(b), where op(a) is [m, k] and op(b) is [k, n]; a and b are stored transposed where it
// says so.
struct Product {
  const char* name;
  int m, n, k;
  bool transpose_a, transpose_b;
};

enum ProductIndex { kForward1, kForward2, kData2, kWeight2, kWeight1, kProducts };

constexpr std::array<Product, kProducts> kStepProducts = {{
    {"forward1", 256, 1000, 100, false, true},  // h = x w1', weights lie as [out, in]
    {"forward2", 256, 10, 1000, false, true},   // o = h w2'
    {"data2", 256, 1000, 10, false, false},     // dh = do w2
    {"weight2", 10, 1000, 256, true, false},    // dw2 = do' h
    {"weight1", 1000, 100, 256, true, false},   // dw1 = dh' x
}};

enum class Library { openblas, onednn };

void gemm(Library library, const Product& product, const float* a, const float* b, float* c);

// Times every product by both libraries, in turns; measure() adds one round to what is known.
class GemmFloor {
 public:
  GemmFloor();
  void measure();
  double microseconds() const;  // of one step, each product by the library that is better at it
  Library best(int product) const;
  void print() const;  // one line per product

 private:
  struct Case {
    std::vector<float> a, b, c;
    std::vector<double> seconds[2];  // per library: the median of each round
  };
  double seconds(int product, Library library) const;

  std::array<Case, kProducts> cases_;
};

}  // namespace bench
