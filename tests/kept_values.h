// Values that kernels keep, for tests that bind kernels without a runtime.
#pragma once
#include "espalier/core/kept_values.h"

namespace espalier::testing {

/// Values of a session whose leaves do not change.
class OneVersion : public KeptValues {
 public:
  uint64_t version() override { return 1; }
  std::shared_ptr<KeptValue> of(const std::string& key, int64_t bytes) override {
    return store_.of(key, bytes);
  }

 private:
  KeptValueStore store_;
};

}  // namespace espalier::testing
