// Conversion of rows between float16 and float32.
#pragma once
#include <cstdint>

#include "espalier/core/half.h"

namespace espalier {

/// out[i] = a[i · sa], as rows of scalar::Cast are.
void widen_float16_row(int64_t n, void* out, const void* a, int64_t sa);
/// The same, rounded to nearest; ties to even.
void round_float16_row(int64_t n, void* out, const void* a, int64_t sa);

}  // namespace espalier
