// Small products of matrices, whose operands are in the caches.
#pragma once
#include <cstdint>

namespace espalier {

/// Rows of operands `b` and `c` are computed in vectors of 64 bytes: their columns are padded to a multiple
/// of so many elements.
template <class T>
inline constexpr int64_t panel_lanes = 64 / static_cast<int64_t>(sizeof(T));
template <class T>
constexpr int64_t in_lanes(int64_t n) {
  return (n + panel_lanes<T> - 1) / panel_lanes<T> * panel_lanes<T>;
}

/// c[m, n] = Σ a(m, k) · b[k, n], or added to c. a(m, k) is at a[m · a_row + k · a_step]; rows of b and c are
/// contiguous, and n is a multiple of panel_lanes<T>.
template <class T>
struct PanelProduct {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_step;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  bool add = false;
};

/// T is float or double. On the calling thread.
template <class T>
void multiply(const PanelProduct<T>& product);

}  // namespace espalier
