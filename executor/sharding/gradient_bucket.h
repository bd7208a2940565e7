// GradientBucket: where the gradients of all parameters meet before anything is updated.
#pragma once
#include "espalier/core/node.h"

namespace espalier {

/// Hands on the gradients of these parameters, each as it is. Updates read its outputs, which the memory plan
/// lays side by side: there replicas can add up all gradients at once. Producers write there if they can,
/// and the kernel copies what lies elsewhere. In a plan with replicas the kernel also sends them on their
/// way.
class GradientBucket : public Op {
 public:
  /// An undefined Variable stands for the loss, which replicas add up as they do gradients.
  /// `scattered`: only the owner of a parameter gets the sum of its gradients.
  explicit GradientBucket(std::vector<Variable> parameters, bool scattered = false)
      : Op({.effect = Effect::communicates, .only_copies = true}),
        parameters_(std::move(parameters)),
        scattered_(scattered) {}
  std::string_view name() const override { return "gradient_bucket"; }
  Attributes attributes() const override {
    Attributes attributes{{"members", static_cast<int64_t>(parameters_.size())}};
    if (scattered_) attributes.emplace_back("scattered", true);
    return attributes;
  }
  Specs infer(const InputSpecs& in) const override;
  void run_cpu(const KernelCall& call) const override;
  /// With ReplicaServices, a kernel that also sends.
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  bool equals(const Op& other) const override { return this == &other; }

  /// Whose gradient each input and output is, oldest parameter first.
  const std::vector<Variable>& parameters() const { return parameters_; }
  bool scattered() const { return scattered_; }

 private:
  std::vector<Variable> parameters_;
  bool scattered_ = false;
};

/// Waits until what the buckets have sent is there. Its inputs are all that the buckets hand on; its outputs
/// are the same buffers, with the sums over all replicas. No leaf is written before it: a step in which a
/// replica fails changes nothing.
class WaitForGradients : public Op {
 public:
  WaitForGradients() : Op({.effect = Effect::communicates, .runs_on_host = true, .aliases_inputs = true}) {}
  std::string_view name() const override { return "wait_for_gradients"; }
  Specs infer(const InputSpecs& in) const override;
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  bool equals(const Op& other) const override { return this == &other; }
};

inline const GradientBucket* as_bucket(const Op& op) { return dynamic_cast<const GradientBucket*>(&op); }
inline bool waits_for_gradients(const Op& op) {
  return dynamic_cast<const WaitForGradients*>(&op) != nullptr;
}

}  // namespace espalier
