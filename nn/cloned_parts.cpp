#include "espalier/nn/cloned_parts.h"

#include "espalier/core/error.h"
#include "espalier/nn/module_state.h"

namespace espalier::nn {

namespace {

struct HandleOfState : Module {
  explicit HandleOfState(std::shared_ptr<ModuleState> state) : Module(std::move(state)) {}
};

}  // namespace

std::shared_ptr<ModuleState> container_state() { return std::make_shared<ContainerState>(); }

ClonedParts::ClonedParts(const Module& container) {
  auto made = std::make_shared<ModuleClones>();
  (void)dynamic_cast<const ContainerState&>(*container.state()).clone(*made);
  made_ = std::move(made);
}

Variable ClonedParts::of(const Variable& leaf) const {
  const auto known = made_->leaves.find(leaf.node());
  return known == made_->leaves.end() ? leaf : known->second;
}

void ClonedParts::reset(Module& handle) const {
  handle = HandleOfState(made_->modules.at(handle.state().get()));
}

}  // namespace espalier::nn
