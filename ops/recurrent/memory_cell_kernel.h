// The kernels of memory cells on a CPU.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

void run_memory_cell(const Op& op, const KernelCall& call);
void run_memory_cell_gradient(const Op& op, const KernelCall& call);

}  // namespace espalier
