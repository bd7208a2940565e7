// KeptValues: what kernels make of leaves alone, and keep from run to run.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "espalier/core/bind_context.h"
#include "espalier/core/op.h"
#include "espalier/core/tensor.h"

namespace espalier {

/// Memory for what is made of leaves, for kernels in several threads.
class KeptValue {
 public:
  explicit KeptValue(int64_t bytes) : memory_({bytes}, DType::boolean, Device()) {}

  void* address() const { return const_cast<void*>(memory_.address()); }
  /// Calls `make()`, which writes the memory, unless it has been written for that version of the leaves. No
  /// kernel reads what is of an older version any more.
  template <class F>
  void update(uint64_t version, F&& make) {
    if (version_.load(std::memory_order_acquire) == version) return;
    const std::scoped_lock lock(mutex_);
    if (version_.load(std::memory_order_relaxed) == version) return;
    version_.store(0, std::memory_order_relaxed);
    make();
    version_.store(version, std::memory_order_release);
  }

 private:
  Tensor memory_;
  std::mutex mutex_;
  std::atomic<uint64_t> version_{0};  // 0: of none
};

/// Values by keys, which say of which leaves a value is made, and how. For several threads.
class KeptValueStore {
 public:
  /// The value of that key, or a new one with so many bytes.
  std::shared_ptr<KeptValue> of(const std::string& key, int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    if (values_.size() >= most_) {
      std::erase_if(values_, [](const auto& known) { return known.second.expired(); });
      most_ = 2 * values_.size() + 64;
    }
    std::weak_ptr<KeptValue>& known = values_[key];
    std::shared_ptr<KeptValue> value = known.lock();
    if (!value) {
      value = std::make_shared<KeptValue>(bytes);
      known = value;
    }
    return value;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<KeptValue>> values_;  // as long as a kernel has them
  size_t most_ = 64;
};

/// A runtime offers it to the kernels of plans of inference. They share what they make of the same leaves in
/// the same way.
class KeptValues {
 public:
  virtual ~KeptValues() = default;
  /// Another number, above 0, once leaves of the session have been given other values. Called in a run.
  virtual uint64_t version() = 0;
  /// See KeptValueStore.
  virtual std::shared_ptr<KeptValue> of(const std::string& key, int64_t bytes) = 0;
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
