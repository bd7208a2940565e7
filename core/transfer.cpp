// Moving a Variable to another device, as part of the tree.
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"

namespace espalier {

namespace {

class Transfer : public Op {
 public:
  Transfer(Device from, Device to)
      : Op({.only_copies = true, .gradient_reads = InputSet::none(), .output_device = to}),
        from_(from),
        to_(to) {}
  std::string_view name() const override { return "to"; }
  Attributes attributes() const override { return {{"from", from_.str()}, {"device", to_.str()}}; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.output_gradient().to(from_, rule.where())};
  }

 private:
  Device from_, to_;
};

}  // namespace

void add_transfer_op(OpRegistry& ops) {
  ops.add("to", 1, [](AttributeReader& a) {
    return std::make_shared<Transfer>(a.device("from"), a.device("device"));
  });
}

Variable Variable::to(Device device, Where where) const {
  return located(where, [&] {
    (void)backend(device);  // throws where there is none
    if (this->device() == device) return *this;
    return apply(std::make_shared<Transfer>(this->device(), device), {this}, where);
  });
}

}  // namespace espalier
