#include "espalier/core/kernel_registry.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

namespace {

/// run_cpu, called on the host with tensors of another device.
struct OnHost : BoundKernel {
  OnHost(const Op& o, const KernelCall& c) : op(o), call(c) {}
  void run(RandomStream) override { op.run_cpu(call); }
  bool can_be_captured() const override { return false; }
  const Op& op;
  KernelCall call;
};

}  // namespace

void KernelRegistry::put(std::string_view op, KernelBinder binder) {
  if (!binders_.emplace(std::string(op), std::move(binder)).second)
    throw Error(fmt::format("'{}' has two kernels on {}", op, device_));
}

const KernelBinder* KernelRegistry::find(const Op& op) const {
  auto found = binders_.find(op.name());
  if (found == binders_.end() && op.is_pointwise()) found = binders_.find(std::string_view());
  return found == binders_.end() ? nullptr : &found->second;
}

std::unique_ptr<BoundKernel> KernelRegistry::bind(const Op& op, const KernelCall& call,
                                                  const BindContext& context) const {
  if (op.runs_everywhere()) {
    if (auto kernel = op.bind_cpu(call, context)) return kernel;
    if (op.traits().runs_on_host) return std::make_unique<OnHost>(op, call);
    return bound([&op, call](RandomStream) { op.run_cpu(call); });
  }
  const KernelBinder* binder = find(op);
  if (!binder) op.unsupported(call, device_);
  return (*binder)(op, call, context);
}

}  // namespace espalier
