// Indices that are only checked.
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

Bound bind_checked_indices(const Op& op, const KernelCall& call) {
  const Tensor &given = *call.inputs[0], &like = *call.inputs[1];
  const size_t axis = resolve_axis(attribute<int64_t>(op, "axis"), like.rank(), op.name());
  Bound look = bind_look(call, given, like.shape().dims()[axis], attribute<std::string>(op, "function"),
                         attribute<bool>(op, "from_end"));
  return bound([from = &given, to = call.outputs[0], look = std::move(look)](RandomStream random) {
    look->run(random);
    if (from->address() != to->address()) copy_elements(*from, *to);
  });
}

}  // namespace

void add_checked_indices_kernel(KernelRegistry& kernels) {
  kernels.add("checked_indices", bind_checked_indices);
}

}  // namespace espalier::cu
