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
  (void)dynamic_cast<const ContainerState&>(*container.state()).clone(made_);
}

void ClonedParts::reset(Module& handle) const { handle = HandleOfState(made_.at(handle.state().get())); }

}  // namespace espalier::nn
