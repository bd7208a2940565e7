// Whether products are measured when they are bound.
#pragma once
#include "espalier/core/scoped_value.h"

namespace espalier {

/// Whether this thread may measure products to choose a library or an algorithm: true, unless a TuneScope
/// says otherwise. If not, it takes what was measured before, else the first suggestion.
bool may_tune();

/// Sets that of this thread during its lifetime.
class TuneScope {
 public:
  explicit TuneScope(bool tune);

 private:
  ScopedValue<bool> scope_;
};

/// Whether this process computes each product so few times that the code which oneDNN makes for it, 3 to 30
/// ms of work, costs more than it saves: small products then take OpenBLAS, whatever was measured. False
/// unless a program says so before its first product.
bool runs_once();
void set_runs_once(bool once);

}  // namespace espalier
