// Defaults of the process that a test sets for itself.
#pragma once
#include "espalier/core/defaults.h"

namespace espalier::testing {

/// Sets the defaults of the process back.
struct DefaultsGuard {
  Defaults before = defaults();
  ~DefaultsGuard() { set_defaults(before); }
};

}  // namespace espalier::testing
