// The op of updates, for the registry of ops.
#pragma once

namespace espalier {

class OpRegistry;

void add_assign_op(OpRegistry& ops);

}  // namespace espalier
