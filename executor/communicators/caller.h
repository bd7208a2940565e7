// CallerScope: the function of the user's that communicates, as errors on all ranks name it.
#pragma once
#include "espalier/core/call_site.h"
#include "espalier/core/scoped_value.h"

namespace espalier {

/// While it lives, what this thread communicates by itself is part of a function that the user called there,
/// unless an outer one lives already.
class CallerScope {
 public:
  /// `function`, a literal, is its name.
  CallerScope(const std::source_location& where, const char* function);

 private:
  CallSite site_;
  ScopedValue<const CallSite*> scope_;
};

/// While it lives, there is none: a function of the user's runs, which may call others.
class WithoutCaller {
 public:
  WithoutCaller();

 private:
  ScopedValue<const CallSite*> scope_;
};

/// That call, or the line `own` if there is none.
CallSite caller_or(const std::source_location& own = std::source_location::current());

}  // namespace espalier
