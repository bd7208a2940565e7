// ModeScope: training or inference mode for a while.
#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "espalier/core/train_phase.h"
#include "espalier/nn/module.h"

namespace espalier::nn {

/// Sets the mode of a module and all its parts, and sets each back at its end. In inference mode whatever the
/// module calls is for inference: also modules that are no parts of it, as those that a Lambda holds.
class ModeScope {
 public:
  ModeScope(const Module& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::optional<InferencePhase> phase_;
  std::vector<std::pair<std::shared_ptr<ModuleState>, bool>> before_;  // parts behind what they are parts of
};

}  // namespace espalier::nn
