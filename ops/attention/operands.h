// The operands of an attention on the CPU, and where their matrices are.
#pragma once
#include <cstdint>

#include "espalier/ops/attention/form.h"

namespace espalier {

/// q, k, v and the options of a call. Rows of q, k and v are contiguous.
struct AttentionOperands {
  AttentionForm form;
  AttentionSizes sizes;
  Tensor q, k, v;
  Tensor mask;      ///< broadcast to the scores, if there is one
  Tensor key_mask;  ///< if there is one
  Tensor keys;      ///< of dropout, if there are any

  /// `first`: the number of the first optional input of the call.
  AttentionOperands(const AttentionForm& form, const KernelCall& call, size_t first);
};

/// The tensor, or a copy of it whose rows are contiguous.
Tensor with_rows(const Tensor& x);
/// Where an element of axes [..., heads] or a matrix [..., heads, rows, columns] begins, in elements:
/// `behind` axes follow the heads, and `batch` counts those before them.
int64_t start_of(const Tensor& x, size_t behind, int64_t batch, int64_t head);
/// The same for axes without heads.
int64_t start_of(const Tensor& x, size_t behind, int64_t batch);

/// Hands out parts of scratch memory, aligned to 64 bytes. Without memory it counts.
template <class T>
class Scratch {
 public:
  explicit Scratch(T* at = nullptr) : at_(at) {}
  T* take(int64_t elements) {
    constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
    T* const part = at_ ? at_ + used_ : nullptr;
    used_ += (elements + line - 1) / line * line;
    return part;
  }
  int64_t used() const { return used_; }

 private:
  T* at_;
  int64_t used_ = 0;
};

/// Into how many parts work on so many independent pieces is divided, for up to that many threads: each gets
/// some 50 µs of it. `products` is the number of matrix products.
int64_t work_parts(const AttentionSizes& sizes, int products, int64_t pieces, int threads);

// The kernels, for float and double. `scratch` has scratch_elements of so many threads; the parts of the work
// that they take are those of the number of threads.
template <class T>
int64_t forward_scratch(const AttentionSizes& sizes, int threads);
template <class T>
void attend(const AttentionOperands& operands, T* out, T* log_sums, T* scratch, int threads);
template <class T>
int64_t backward_scratch(const AttentionSizes& sizes, int threads);
/// `g` and `out` have contiguous rows. Writes the gradients of q, k and v.
template <class T>
void attend_back(const AttentionOperands& operands, const Tensor& g, const Tensor& out, const T* log_sums,
                 T* dq, T* dk, T* dv, T* scratch, int threads);

}  // namespace espalier
