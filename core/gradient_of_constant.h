// GradientOfConstant: what gradient() throws of a leaf, which may be so only since NoGrad lives.
#pragma once
#include "espalier/core/error.h"

namespace espalier {

class GradientOfConstant : public Error {
 public:
  using Error::Error;
};

}  // namespace espalier
