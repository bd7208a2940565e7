// A build without CUDA: no tensor is on a GPU, so none of these is ever called.
#include "espalier/core/error.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

[[noreturn]] Bound none() { throw DeviceError("this build of Espalier has no CUDA kernels"); }

}  // namespace

Bound bind_pointwise(const KernelCall&, std::string_view) { none(); }
Bound bind_fill(const KernelCall&, double) { none(); }
Bound bind_dropout_mask(const KernelCall&, double) { none(); }
Bound bind_reduce(const KernelCall&, Fold, const Dims&) { none(); }
Bound bind_argmax(const KernelCall&, size_t) { none(); }
Bound bind_softmax(const KernelCall&) { none(); }
Bound bind_log_softmax(const KernelCall&) { none(); }
Bound bind_log_softmax_pick(const KernelCall&) { none(); }
Bound bind_log_softmax_pick_gradient(const KernelCall&) { none(); }
Bound bind_gather(const KernelCall&, size_t) { none(); }
Bound bind_scatter_add_like(const KernelCall&, size_t) { none(); }
Bound bind_pick(const KernelCall&) { none(); }
Bound bind_put_like(const KernelCall&) { none(); }
Bound bind_one_hot(const KernelCall&, int64_t) { none(); }
Bound bind_matmul(const KernelCall&, MatmulForm) { none(); }

}  // namespace espalier::cu
