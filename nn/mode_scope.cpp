#include "espalier/nn/mode_scope.h"

#include "espalier/nn/module_state.h"

namespace espalier::nn {

ModeScope::ModeScope(const Module& module, bool training) {
  before_.emplace_back(module.state(), module.state()->own_mode());
  for (size_t i = 0; i < before_.size(); ++i) {
    const std::shared_ptr<ModuleState> parent = before_[i].first;
    for (const ModuleState::Entry& part : parent->parts())
      if (part.child) before_.emplace_back(part.child, part.child->own_mode());
  }
  module.state()->train(training);
  if (!training) phase_.emplace();
}

ModeScope::~ModeScope() {
  for (const auto& [part, training] : before_) part->train(training);
}

}  // namespace espalier::nn
