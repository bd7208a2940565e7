// Plans for devices that need not be present.
#pragma once
#include "espalier/executor/training/setup.h"

namespace espalier {

/// The plan of the first of so many devices, for whole batches. Throws Error unless there is one at least,
/// and what Setup and compiling throw.
std::shared_ptr<const PlanData> compile_for(const Variable& root, const PlanOptions& options);

}  // namespace espalier
