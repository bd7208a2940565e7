// Padding as layers: the last axes of the input grow at both ends.
#pragma once
#include <vector>

#include "espalier/nn/layer.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

/// `pad` with these options: the last Padding is of the last axis. Throws its errors.
class Pad : public LayerOf<Pad> {
 public:
  explicit Pad(std::vector<Padding> paddings, PadOptions options = {});
};

// The same with a mode of its own: `ZeroPad({{1, 1}, {2, 2}})` pads images [n, channels, height, width].
class ZeroPad : public LayerOf<ZeroPad> {
 public:
  explicit ZeroPad(std::vector<Padding> paddings);
};
class ConstantPad : public LayerOf<ConstantPad> {
 public:
  ConstantPad(std::vector<Padding> paddings, double value);
};
class ReflectionPad : public LayerOf<ReflectionPad> {
 public:
  explicit ReflectionPad(std::vector<Padding> paddings);
};
class ReplicationPad : public LayerOf<ReplicationPad> {
 public:
  explicit ReplicationPad(std::vector<Padding> paddings);
};
class CircularPad : public LayerOf<CircularPad> {
 public:
  explicit CircularPad(std::vector<Padding> paddings);
};

}  // namespace espalier::nn
