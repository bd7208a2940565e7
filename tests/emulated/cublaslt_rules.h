// The products that cuBLASLt accepts.
#pragma once
#include <string>

#include "matmul.h"
#include "runtime.h"

namespace emulated {

/// Returns true if the sizes of the operands match.
bool consistent(const Product& p);
/// Returns true if there is an algorithm for the problem.
bool supported(const Product& p);
/// A description of an access of a product beyond its memory, or "".
std::string out_of_bounds(const Runtime& r, const Product& p, double beta);

}  // namespace emulated
