// Values that kernels find wrong: indices out of range, numbers that are no probabilities. A kernel cannot
// throw: it records the first such value and goes on with a valid one; the next synchronisation throws.
#pragma once
#include <cstdint>
#include <string_view>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/op.h"

namespace espalier::cu {

/// One per device, in memory which the host reads as well.
struct ValueRecord {
  unsigned int complete;  ///< 1 once the rest is written
  unsigned int site;
  long long index, size;  ///< size -1 or -2: `number` is what was found, no probability or no parameter
  double number = 0;
};

/// The arguments with which a kernel reports a value: its device's record and its own number.
struct ValueReport {
  ValueRecord* record;
  /// In device memory: whether a thread has found a value. Only that one accesses the record, which is slow.
  unsigned int* found;
  unsigned int site;

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
  /// The index counted from the front, or 0 where it lies outside; negative ones count from the end if they
  /// may.
  template <class T>
  __device__ int64_t resolve(T given, int64_t size, bool from_end) const {
    const int64_t index = given < 0 && from_end ? given + size : static_cast<int64_t>(given);
    if (index >= 0 && index < size) return index;
    write(static_cast<long long>(given), size, 0);
    return 0;
  }
  __device__ void check_probability(double p) const {
    if (!(p >= 0 && p <= 1)) write(0, -1, p);
  }
  /// Reports a number that is no parameter of a distribution.
  __device__ void refuse_parameter(double number) const { write(0, -2, number); }

 private:
  __device__ void write(long long index, long long size, double number) const {
    if (*static_cast<volatile unsigned int*>(found) != 0u || atomicExch(found, 1u) != 0u) return;
    record->site = site;
    record->index = index;
    record->size = size;
    record->number = number;
    __threadfence_system();
    *static_cast<volatile unsigned int*>(&record->complete) = 1u;
  }
#endif
};

/// For the kernels of that call; `op` names it in the message ("gather: index 7 is outside an axis of size
/// 3").
ValueReport value_report(const KernelCall& call, std::string_view op);

/// Throws IndexError if a kernel of the current device has recorded an index, or Error for another number,
/// and clears the record. To be called once what ran before is synchronized.
void throw_recorded_value();

}  // namespace espalier::cu
