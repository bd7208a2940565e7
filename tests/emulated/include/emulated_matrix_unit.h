// Tensor cores: ldmatrix and mma.m16n8k16 for 16-bit elements, and mma.m16n8k8 for TF32, as the PTX ISA has
// them, 9.7.14.5.
#pragma once
#include <cstdint>
#include <cstring>

#include "emulated_device.h"

namespace emulated {

/// What the lanes of a warp show each other.
struct LaneOperands {
  const void* row;
  const uint32_t* a;
  uint32_t b[2];
};
/// One for each thread of the running block.
inline LaneOperands* lane_operands() { return static_cast<LaneOperands*>(device().lane_operands); }

/// Element `index` of a register of two.
inline uint16_t half_of(uint32_t pair, unsigned index) { return static_cast<uint16_t>(pair >> (16 * index)); }

inline void load_matrices(uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) __trap();  // a misaligned address
  const unsigned linear = device().linear, lane = linear % 32;
  LaneOperands* const warp = lane_operands() + (linear - lane);
  warp[lane].row = row;
  __syncwarp();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    to[matrix] = 0;
    for (unsigned k = 0; k < 2; ++k) {
      const unsigned along = 2 * (lane % 4) + k, across = lane / 4;
      const void* from = warp[8 * matrix + (transposed ? along : across)].row;
      uint16_t element;
      std::memcpy(&element, static_cast<const char*>(from) + 2 * (transposed ? across : along), 2);
      to[matrix] |= uint32_t{element} << (16 * k);
    }
  }
  __syncwarp();
}

/// Shows the lane's operands to the others, whose operands it returns.
inline const LaneOperands* show_operands(const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const unsigned linear = device().linear, lane = linear % 32;
  LaneOperands* const warp = lane_operands() + (linear - lane);
  warp[lane].a = a;
  warp[lane].b[0] = b0;
  warp[lane].b[1] = b1;
  __syncwarp();
  return warp;
}

/// `value` makes a float of an element's bits.
template <class Value>
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Value&& value) {
  const LaneOperands* warp = show_operands(a, b0, b1);
  const unsigned lane = device().linear % 32, g = lane / 4, t = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned lower = i / 2, column = 2 * t + i % 2;  // of rows g and g + 8
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned other = k % 8 / 2, right = k / 8;
      sum += value(half_of(warp[4 * g + other].a[2 * right + lower], k % 2)) *
             value(half_of(warp[4 * column + other].b[right], k % 2));
    }
    sums[i] += sum;
  }
  __syncwarp();
}

/// Rounded to the nearest number of 10 bits of mantissa; ties away from 0.
inline uint32_t to_tf32(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return finite ? (bits + 0x1000u) & ~0x1fffu : (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : bits;
}

/// Of TF32: a register holds one element, of which the unit reads the upper 19 bits.
inline void multiply_add_tf32(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const LaneOperands* warp = show_operands(a, b0, b1);
  const unsigned lane = device().linear % 32, g = lane / 4, t = lane % 4;
  const auto value = [](uint32_t bits) { return __uint_as_float(bits & 0xffffe000u); };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned lower = i / 2, column = 2 * t + i % 2;  // of rows g and g + 8
    float sum = 0;
    for (unsigned k = 0; k < 8; ++k)
      sum += value(warp[4 * g + k % 4].a[k / 4 * 2 + lower]) * value(warp[4 * column + k % 4].b[k / 4]);
    sums[i] += sum;
  }
  __syncwarp();
}

}  // namespace emulated
