// Which leaves of a step are settings of its optimizer.
#pragma once
#include <vector>

#include "espalier/executor/training/setup.h"

namespace espalier {

/// The settings of the optimizer, such as learning rates: scalar states that updates alone read and that no
/// step writes. A state of the tree is none, whatever its name, and neither is a count that updates advance.
std::vector<Variable> optimizer_settings(const Setup& setup);

}  // namespace espalier
