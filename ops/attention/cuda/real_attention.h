// Attention without tensor cores, of any widths: Dao, "FlashAttention-2" (2023), algorithms 1 and 2, with
// tiles of scores in the registers of a block.
#pragma once
#include "espalier/ops/attention/cuda/device_attention.cuh"

namespace espalier::cu {

/// Launches it. T: float, double, Float16 and BFloat16, which are computed with as float.
template <class T>
void attend_by_reals(const DeviceAttention& a, const T* q, const T* k, const T* v, T* out,
                     Computed<T>* log_sums);
template <class T>
void attend_back_by_reals(const DeviceAttention& a, const BackwardOperands<T, Computed<T>>& o, T* dq, T* dk,
                          T* dv);

}  // namespace espalier::cu
