// LAPACK, as OpenBLAS contains it, for column-major matrices of float or double. Functions return `info`: 0,
// or what the routine found.
#pragma once
#include <cstdint>
#include <vector>

namespace espalier::lapack {

/// Of an n × n matrix: row and column i + 1 swapped with pivots[i]. info > 0: singular.
template <class T>
int64_t getrf(int64_t n, T* a, int32_t* pivots);
/// x of a · x = b, in the place of b [n, k], from what getrf wrote.
template <class T>
int64_t getrs(bool transposed, int64_t n, int64_t k, const T* lu, const int32_t* pivots, T* b);
/// The lower or upper factor in the place of that triangle. info > 0: a leading minor is not positive.
template <class T>
int64_t potrf(bool upper, int64_t n, T* a);
/// a [m, n] = L · Q with k = min(m, n) rows of Q. L is in the lower triangle of the first k columns.
template <class T>
int64_t gelqf(int64_t m, int64_t n, T* a, T* tau);
/// The k rows of Q in the first k rows of a, whose leading dimension is `lda`.
template <class T>
int64_t orglq(int64_t k, int64_t n, T* a, int64_t lda, const T* tau);
/// a [m, n] = u · diag(s) · vt, reduced; a is overwritten. Without u and vt, s alone. info > 0: not
/// converged.
template <class T>
int64_t gesdd(int64_t m, int64_t n, T* a, T* s, T* u, T* vt);
/// Eigenvalues in ascending order of the symmetric matrix in the upper triangle of a; with `vectors`, its
/// columns become the eigenvectors. info > 0: not converged.
template <class T>
int64_t syevd(bool vectors, int64_t n, T* a, T* values);

}  // namespace espalier::lapack
