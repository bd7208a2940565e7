// Tensor cores: ldmatrix and mma.m16n8k16 for 16-bit elements, as the PTX ISA has them, 9.7.14.5.
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
inline LaneOperands lane_operands[1024];  // one block runs at a time

/// Element `index` of a register of two.
inline uint16_t half_of(uint32_t pair, unsigned index) { return static_cast<uint16_t>(pair >> (16 * index)); }

inline void load_matrices(uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) __trap();  // a misaligned address
  const unsigned linear = device().linear, lane = linear % 32;
  const LaneOperands* warp = lane_operands + (linear - lane);
  lane_operands[linear].row = row;
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

/// `value` makes a float of an element's bits.
template <class Value>
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Value&& value) {
  const unsigned linear = device().linear, lane = linear % 32, g = lane / 4, t = lane % 4;
  const LaneOperands* warp = lane_operands + (linear - lane);
  lane_operands[linear].a = a;
  lane_operands[linear].b[0] = b0;
  lane_operands[linear].b[1] = b1;
  __syncwarp();
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

}  // namespace emulated
