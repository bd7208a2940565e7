// Groups: several optimizers as one.
#pragma once
#include <vector>

#include "espalier/optim/optimizer.h"
#include "espalier/optim/parameter_list.h"

namespace espalier::optim {

/// What a group does with its gradients before its optimizer reads them.
struct GroupOptions {
  double gradient_scale = 1;  ///< the factor of gradients, before they are clipped
  double l1 = 0;              ///< adds l1 · sign(parameter) to the gradient, after clipping
  double l2 = 0;              ///< adds l2 · parameter to the gradient, after clipping
};

struct Group {
  ParameterList parameters;
  Optimizer optimizer;
  GroupOptions options = {};
};

/// Clipping over all groups together, after that of the groups.
struct GroupsOptions {
  double clip_norm = 0;   ///< the largest norm of all gradients of all groups together; 0: any
  double clip_value = 0;  ///< the largest size of one element of a gradient; 0: any
};

/// An optimizer for each group of parameters, with its own rate, decay, clipping and schedule:
///
///     optim::Groups({{net.body.parameters(), optim::Adam(1e-4)}, {net.head.parameters(), optim::Sgd(0.1)}})
///
/// It goes wherever an Optimizer does. Parameters in no group stay as they are. A group's optimizer clips
/// norms over the group, and `.clip_norm` of Groups over all. A layer has its own decay or scale as a group:
///
///     optim::Groups({{net.body.parameters(), optim::Adam(1e-4)},
///                    {net.head.parameters(), optim::Adam(1e-3), {.gradient_scale = 0.5, .l1 = 1e-5}}})
///
/// Settings and states are those of the groups, with their numbers: "0.lr", "1.schedule_step"; or ask
/// the optimizers themselves, whose copies share them.
///
/// Throws Error if there is no group, a group is empty (a layer that has not learned its input width has no
/// parameters yet), a parameter is in two groups, one optimizer is, or an option is negative or not finite.
class Groups : public Optimizer {
 public:
  Groups(const std::vector<Group>& groups, std::source_location where = std::source_location::current())
      : Groups(groups, {}, where) {}
  Groups(const std::vector<Group>& groups, const GroupsOptions& options,
         std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
