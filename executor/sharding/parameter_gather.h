// ParameterGather: where replicas that share out the updates give each other what they have updated.
#pragma once
#include "espalier/core/node.h"
#include "espalier/executor/sharding/state_owners.h"

namespace espalier {

/// The end of a step: the parameters of every replica get the values that their owners have given them. Its
/// inputs are a value that has arrived from all, and this replica's assignments of parameters; it hands them
/// on as they are.
class ParameterGather : public Op {
 public:
  explicit ParameterGather(std::shared_ptr<const StateOwners> owners)
      : Op({.effect = Effect::communicates, .only_copies = true, .aliases_inputs = true}),
        owners_(std::move(owners)) {}
  std::string_view name() const override { return "gather_parameters"; }
  Attributes attributes() const override { return {{"owners", int64_t{owners_->replicas}}}; }
  Specs infer(const InputSpecs& in) const override {
    Specs specs;
    for (const Spec* spec : in) specs.push_back(*spec);
    return specs;
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  bool equals(const Op& other) const override { return this == &other; }

  const StateOwners& owners() const { return *owners_; }

 private:
  std::shared_ptr<const StateOwners> owners_;
};

inline const ParameterGather* as_parameter_gather(const Op& op) {
  return dynamic_cast<const ParameterGather*>(&op);
}

}  // namespace espalier
