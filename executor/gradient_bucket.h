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
      : parameters_(std::move(parameters)), scattered_(scattered) {}
  std::string_view name() const override { return "gradient_bucket"; }
  bool only_copies() const override { return true; }
  Attributes attributes() const override {
    Attributes attributes{{"members", static_cast<int64_t>(parameters_.size())}};
    if (scattered_) attributes.emplace_back("scattered", true);
    return attributes;
  }
  Specs infer(const InputSpecs& in) const override;
  void run_cpu(const KernelCall& call) const override;
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
class GradientArrival : public Op {
 public:
  std::string_view name() const override { return "gradient_arrival"; }
  bool passes_through() const override { return true; }
  Specs infer(const InputSpecs& in) const override;
  bool equals(const Op& other) const override { return this == &other; }
};

inline const GradientBucket* as_bucket(const Op& op) { return dynamic_cast<const GradientBucket*>(&op); }
inline bool is_arrival(const Op& op) { return dynamic_cast<const GradientArrival*>(&op) != nullptr; }

}  // namespace espalier
