// Positions in sequences: sinusoidal and rotary ones, and biases of attention by distance.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/nn/layer.h"
#include "espalier/ops/functions/attention.h"

namespace espalier::nn {

/// Row p, columns 2i and 2i + 1: sin and cos of p / 10000^(2i / width), [length, width]. Vaswani et al.,
/// Attention is all you need, 2017. ShapeError for negative sizes, TypeError unless `dtype` is real.
Tensor sinusoidal_positions(int64_t length, int64_t width, DType dtype = float32,
                            std::source_location where = std::source_location::current());

/// x [..., time, width] plus the sinusoidal positions of its last two axes; no parameters. ShapeError for
/// less than two axes; TypeError unless x is real.
class SinusoidalPositions : public LayerOf<SinusoidalPositions> {
 public:
  /// `offset`: the position of the first step.
  explicit SinusoidalPositions(int64_t offset = 0, Where where = Where::current());
};

struct RotaryOptions {
  double base = 10000;
  int64_t offset = 0;  ///< the position of the first step
  /// Pairs are columns 2i and 2i + 1; else i and i + width / 2.
  bool interleaved = false;
};
/// Turns each pair of columns of x [..., time, width] by the angle position / base^(2i / width). Su et al.,
/// RoFormer: enhanced transformer with rotary position embedding, 2021. ShapeError for an odd width, or less
/// than two axes; TypeError unless x is real; Error unless base > 0.
Variable rotary(const Operand& x, const RotaryOptions& options = {});

/// The same as a layer without parameters.
class RotaryPositions : public LayerOf<RotaryPositions> {
 public:
  explicit RotaryPositions(RotaryOptions options = {}, Where where = Where::current());
};

/// [heads] of float64: those of n = 2^m heads are 2^(−8/n), 2^(−16/n), …; of another number those of the
/// largest power of two below it, and every other one of twice as many. Press, Smith and Lewis, Train short,
/// test long: attention with linear biases enables input length extrapolation, 2022. Error unless heads > 0.
Tensor alibi_slopes(int64_t heads, std::source_location where = std::source_location::current());
/// A mask that lowers scores by their distance: [heads, queries, keys] with −slope · |i + past − j| for query
/// i and key j, and the slopes of `alibi_slopes`. Error unless heads > 0, ShapeError for negative sizes,
/// TypeError unless `dtype` is real.
Tensor alibi(int64_t heads, int64_t queries, int64_t keys, int64_t past = 0, DType dtype = float32,
             std::source_location where = std::source_location::current());

}  // namespace espalier::nn
