// Whether products are measured when they are bound.
#pragma once

namespace espalier {

/// Whether this thread may measure products to choose a library or an algorithm: true, unless a TuneScope
/// says otherwise. If not, it takes what was measured before, else the first suggestion.
bool may_tune();

/// Sets that of this thread during its lifetime.
class TuneScope {
 public:
  explicit TuneScope(bool tune);
  ~TuneScope();
  TuneScope(const TuneScope&) = delete;
  TuneScope& operator=(const TuneScope&) = delete;

 private:
  bool before_;
};

}  // namespace espalier
