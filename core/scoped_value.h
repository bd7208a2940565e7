// ScopedValue: another value of a variable for a while.
#pragma once
#include <utility>

namespace espalier {

/// Sets `variable`, one of this thread's, during its lifetime, and sets it back at its end.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T now) : variable_(variable), before_(std::exchange(variable, std::move(now))) {}
  ~ScopedValue() { variable_ = std::move(before_); }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& variable_;
  T before_;
};

}  // namespace espalier
