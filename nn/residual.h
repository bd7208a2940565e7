// Residual: adds what its layers compute to their input.
#pragma once
#include "espalier/nn/container.h"

namespace espalier::nn {

/// x + f(x), where f calls the elements in order, as Sequential does; they are named "body.0", "body.1", …
/// He et al., Deep residual learning for image recognition, 2015. Throws ShapeError if f changes the shape.
class Residual : public LayerOf<Residual> {
 public:
  template <SequentialElement First, SequentialElement... More>
  explicit Residual(First first, More... more)
      : Residual(Sequential().append(std::move(first), std::move(more)...), Whole{}) {}

 private:
  struct Whole {};
  Residual(const Sequential& body, Whole);
};

}  // namespace espalier::nn
