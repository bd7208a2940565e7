// Whether kernels that are being bound measure their algorithms.
#pragma once
#include "espalier/core/scoped_value.h"

namespace espalier::cu {

/// During its lifetime, kernels that this thread binds choose the algorithms of libraries by measurement,
/// since they will be repeated; otherwise they use what was measured before, else the library's first
/// suggestion.
class MeasuringScope {
 public:
  MeasuringScope();
  /// Whether one lives in this thread: what was measured before is taken.
  static bool lives();
  /// The same, but false where `may_tune` is.
  static bool wanted();

 private:
  ScopedValue<bool> scope_;
};

}  // namespace espalier::cu
