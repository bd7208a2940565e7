// Groups: several optimizers as one.
#pragma once
#include <vector>

#include "espalier/optim/optimizer.h"
#include "espalier/optim/parameter_list.h"

namespace espalier::optim {

struct Group {
  ParameterList parameters;
  Optimizer optimizer;
};

/// An optimizer for each group of parameters, with its own rate, decay, clipping and schedule:
///
///     optim::Groups({{net.body.parameters(), optim::Adam(1e-4)}, {net.head.parameters(), optim::Sgd(0.1)}})
///
/// It goes wherever an Optimizer does. Parameters in no group stay as they are, and norms are clipped over a
/// group. Settings and states are those of the groups, with their numbers: "0.lr", "1.schedule_step"; or ask
/// the optimizers themselves, whose copies share them.
///
/// Throws Error if there is no group, a group is empty (a layer that has not learned its input width has no
/// parameters yet), a parameter is in two groups, or one optimizer is.
class Groups : public Optimizer {
 public:
  Groups(const std::vector<Group>& groups, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
