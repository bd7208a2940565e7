// The settings of a training by name: those of an executor that was loaded from a file have no Optimizer to
// ask.
#pragma once
#include <map>
#include <source_location>
#include <string>
#include <string_view>

#include "espalier/executor/executor.h"

namespace espalier {

/// The scalars that are no parameters, by name: settings of the optimizer, such as "lr", and its counts, such
/// as "step". Groups of an optimizer have one each of a name; then the value is that of the first.
std::map<std::string, double> scalar_states(const Executor& executor,
                                            std::source_location where = std::source_location::current());

/// Gives all scalars of that name a value, from the next step on: "lr" is the learning rate, which a schedule
/// multiplies, of all groups of the optimizer; a state of the tree that has the same name is set, too. One of
/// them alone is set as any leaf is: Executor::leaves() lists those of a name in the order of the groups, and
/// set_value(info.leaf, full({}, 0.01, info.leaf.dtype())) writes it. An Optimizer that the executor was made
/// with must be set itself (Optimizer::set, for a group "1.lr"), since it knows its settings. Throws Error,
/// naming those that there are, if there is none of that name, and for a value that is negative or not
/// finite.
void set_scalar_state(const Executor& executor, std::string_view name, double value,
                      std::source_location where = std::source_location::current());

}  // namespace espalier
