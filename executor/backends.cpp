// The one place that knows which backends are built: their kernels, their sessions, and how their ranks form
// groups.
#include "espalier/core/backends.h"
#include "espalier/executor/communicators/groups.h"
#include "espalier/executor/runtime/session.h"

#if ESPALIER_WITH_CUDA
#include "espalier/core/cuda/backend.h"
#include "espalier/executor/communicators/cuda/communicator_devices.h"
#include "espalier/executor/fused/cuda/kernels.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/linalg/cuda/kernels.h"
#endif
#if ESPALIER_WITH_NCCL
#include "espalier/executor/communicators/nccl/communicator_nccl.h"
#endif

namespace espalier {

namespace {

#if ESPALIER_WITH_CUDNN
constexpr auto add_convolution_kernels = cu::add_cudnn_kernels;
constexpr auto add_convolution_epilogue_kernels = cu::add_cudnn_epilogue_kernels;
#elif ESPALIER_WITH_CUDA
constexpr auto add_convolution_kernels = cu::add_convolution_kernels;
constexpr auto add_convolution_epilogue_kernels = cu::add_convolution_epilogue_kernels;
#endif

}  // namespace

Backends make_backends() {
  Backends backends;
#if ESPALIER_WITH_CUDA
  KernelRegistry kernels("cuda");
  for (const auto add :
       {cu::add_pointwise_kernels,  cu::add_random_kernels,    cu::add_sampling_kernels,
        cu::add_reduce_kernels,     cu::add_argmax_kernels,    cu::add_softmax_kernels,
        cu::add_along_axis_kernels, cu::add_index_kernels,     cu::add_scatter_kernels,
        cu::add_row_kernels,        cu::add_matmul_kernels,    cu::add_fused_kernels,
        cu::add_window_kernels,     add_convolution_kernels,   cu::add_pooling_kernels,
        cu::add_product_kernels,    cu::add_ctc_kernels,       cu::add_scan_kernels,
        cu::add_search_kernels,     cu::add_sort_kernels,      cu::add_lu_kernels,
        cu::add_factor_kernels,     cu::add_triangle_kernels,  cu::add_fused_matmul_kernels,
        cu::add_sparsemax_kernels,  cu::add_region_kernels,    cu::add_checked_indices_kernel,
        cu::add_recurrence_kernels, cu::add_attention_kernels, add_convolution_epilogue_kernels})
    add(kernels);
  backends.emplace(DeviceType::cuda, BackendEntry{cuda_backend, cuda_devices, std::move(kernels)});
#endif
  return backends;
}

SessionMakers make_session_makers() {
  SessionMakers makers{{DeviceType::cpu, make_cpu_session}};
#if ESPALIER_WITH_CUDA
  makers.emplace(DeviceType::cuda, make_cuda_session);
#endif
  return makers;
}

GroupMakers make_group_makers() {
  GroupMakers makers;
  add_cpu_groups(makers);
#if ESPALIER_WITH_CUDA
  add_cuda_groups(makers);
#endif
#if ESPALIER_WITH_NCCL
  add_nccl_groups(makers);  // after CUDA: it takes precedence
#endif
  return makers;
}

}  // namespace espalier
