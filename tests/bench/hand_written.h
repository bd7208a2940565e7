// The MLP written without a library: the matrix products of the step and plain loops over preallocated
// buffers.
#pragma once
#include <cstdint>
#include <vector>

#include "gemm.h"

namespace bench {

class HandWritten {
 public:
  explicit HandWritten(const GemmFloor& floor);  // runs each product by its fastest library
  double train(int epochs);                      // the mean loss of the last epoch

 private:
  float step(const int64_t* rows);

  const GemmFloor& floor_;
  std::vector<float> x_, y_;                           // the data
  std::vector<float> w1_, b1_, w2_, b2_;               // the parameters, weights as [out, in]
  std::vector<float> dw1_, dw2_;                       // their gradients
  std::vector<float> batch_x_, batch_y_, h_, o_, dh_;  // intermediate values of a step
};

}  // namespace bench
