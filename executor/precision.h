// In what a plan computes its matrix products.
#pragma once
#include <cstdint>

namespace espalier {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // GCC 12 compares scoped enumerators with names of the namespace
enum class Precision : uint8_t {
  float32,
  tf32,  ///< float32, of which CUDA's products may use 10 bits of mantissa; other devices know no difference
  bfloat16,  ///< products, and what is safe between them, in bfloat16; parameters and updates in float32
  float16,   ///< the same in float16, with the loss scaled so that small gradients do not vanish
};
#pragma GCC diagnostic pop

}  // namespace espalier
