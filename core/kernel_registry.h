// KernelRegistry: the kernels of a backend, by the names of the ops. A further device adds its own, and
// touches no op.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <type_traits>

#include "espalier/core/bind_context.h"
#include "espalier/core/op.h"

namespace espalier {

/// Binds a call of an op. What the op's settings are it says itself: its traits, `attribute`, `folding`.
using KernelBinder =
    std::function<std::unique_ptr<BoundKernel>(const Op&, const KernelCall&, const BindContext&)>;

/// The specs of a call's inputs.
class CallSpecs {
 public:
  explicit CallSpecs(const KernelCall& call) {
    specs_.reserve(call.inputs.size());
    for (const Tensor* input : call.inputs) specs_.push_back(input->spec());
    for (const Spec& spec : specs_) inputs_.push_back(&spec);
  }
  CallSpecs(const CallSpecs&) = delete;
  CallSpecs& operator=(const CallSpecs&) = delete;
  const InputSpecs& inputs() const { return inputs_; }

 private:
  SmallVector<Spec, 4> specs_;
  InputSpecs inputs_;
};

class KernelRegistry {
 public:
  /// `device` is what errors call it: "cuda".
  explicit KernelRegistry(std::string device) : device_(std::move(device)) {}

  /// Throws Error if the op has a kernel already. `binder` takes an op, a call and a context, an op and a
  /// call, or a call alone.
  template <class F>
  void add(std::string_view op, F binder) {
    put(op, binder_of(std::move(binder)));
  }
  /// For pointwise ops with a functor that have no kernel by their own name.
  template <class F>
  void add_pointwise(F binder) {
    put({}, binder_of(std::move(binder)));
  }
  bool has(const Op& op) const { return find(op) != nullptr; }

  /// The op's kernel; ops that every device can run need none. Throws UnsupportedError naming op, dtype and
  /// device.
  std::unique_ptr<BoundKernel> bind(const Op& op, const KernelCall& call, const BindContext& context) const;

 private:
  template <class F>
  static KernelBinder binder_of(F f) {
    if constexpr (std::is_invocable_v<F, const KernelCall&>)
      return [f](const Op&, const KernelCall& call, const BindContext&) { return f(call); };
    else if constexpr (std::is_invocable_v<F, const Op&, const KernelCall&>)
      return [f](const Op& op, const KernelCall& call, const BindContext&) { return f(op, call); };
    else
      return f;
  }
  void put(std::string_view op, KernelBinder binder);
  const KernelBinder* find(const Op& op) const;

  std::string device_;
  std::map<std::string, KernelBinder, std::less<>> binders_;
};

}  // namespace espalier
