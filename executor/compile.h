// From a tree to a plan: the stages stand in compile.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "espalier/executor/plan/compile_options.h"
#include "espalier/executor/plan/plan_data.h"

namespace espalier {

/// Makes the plan of a step, for batches of these sizes. Throws OutOfMemory if the budget cannot be kept.
std::shared_ptr<const PlanData> compile(const StepTree& tree, const FeedSizes& rows,
                                        const CompileOptions& options);

/// The stages that can be left out by name, in their order.
std::vector<std::string> pass_names();
/// Those that make nodes for which there is no C code.
std::vector<std::string> passes_without_code();

}  // namespace espalier
