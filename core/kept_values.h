// KeptValues: what the plans of a session make of leaves alone, and keep from run to run.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "espalier/core/bind_context.h"
#include "espalier/core/op.h"
#include "espalier/core/tensor.h"

namespace espalier {

/// A runtime offers it to the kernels of plans of inference. They share what they make of the same leaves in
/// the same way; a key says both. For one thread at a time.
class KeptValues {
 public:
  struct Value {
    Tensor memory;
    uint64_t version = 0;  ///< of the leaves of which it was made; 0: of none
  };

  virtual ~KeptValues() = default;
  /// Another number, above 0, once leaves of the session have been given other values. Called in a run.
  virtual uint64_t version() = 0;
  /// The value of that key, or a new one with so many bytes.
  std::shared_ptr<Value> of(const std::string& key, int64_t bytes) {
    std::weak_ptr<Value>& known = values_[key];
    std::shared_ptr<Value> value = known.lock();
    if (!value) {
      value = std::make_shared<Value>(Value{Tensor({bytes}, DType::boolean, Device())});
      known = value;
    }
    return value;
  }

 private:
  std::map<std::string, std::weak_ptr<Value>> values_;  // as long as a kernel has them
};

/// Which inputs of the call that is being bound are leaves or constants, or views of them, in a plan that
/// writes none. A runtime offers it beside KeptValues.
struct KeptInputs {
  InputSet inputs = InputSet::none();
};

/// Where a kernel keeps what it makes of an input alone; null if the input is not kept.
inline KeptValues* kept_values_of(const BindContext& context, size_t input) {
  const auto* kept = context.find<KeptInputs>();
  return kept && kept->inputs.contains(input) ? context.find<KeptValues>() : nullptr;
}

}  // namespace espalier
