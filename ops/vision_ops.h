// What adds the ops of images to a registry (core/op_registry.h).
#pragma once

namespace espalier {

class OpRegistry;

void add_checked_indices_op(OpRegistry& ops);
void add_fractional_pool_op(OpRegistry& ops);
void add_region_ops(OpRegistry& ops);
void add_suppression_op(OpRegistry& ops);

}  // namespace espalier
