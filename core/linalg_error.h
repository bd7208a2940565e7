// The error of decompositions of matrices.
#pragma once
#include "espalier/core/error.h"

namespace espalier {

/// A matrix that is singular or not positive definite, or whose decomposition did not converge. The message
/// names its place in the batch.
class LinAlgError : public Error {
 public:
  using Error::Error;
};

}  // namespace espalier
