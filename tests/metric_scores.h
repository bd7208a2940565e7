// Logits and labels for tests of metrics.
#pragma once
#include <cmath>
#include <cstdint>

#include "espalier/espalier.h"
#include "testing.h"

namespace espalier::testing {

constexpr int64_t rows = 23, classes = 4;

inline bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * (1 + std::abs(a)); }

/// Logits of rows and labels, of which class 3 is never predicted nor a label.
struct Scores {
  Tensor logits = numbers({rows, classes}, -2, 2), labels = zeros({rows}, int64);
  Scores() {
    for (int64_t i = 0; i < rows; ++i) {
      logits.at<double>({i, 3}) = -9;
      labels.at<int64_t>({i}) = i * i % 3;
    }
  }
  ConfusionMatrix matrix() const { return {argmax(logits, 1).value(), labels, classes}; }
};

}  // namespace espalier::testing
