#include "espalier/ops/linalg/lapack.h"

#include <cblas.h>

#include <algorithm>
#include <cstddef>

// The routines of Fortran; the lengths of texts come last.
extern "C" {
void sgetrf_(const blasint*, const blasint*, float*, const blasint*, blasint*, blasint*);
void dgetrf_(const blasint*, const blasint*, double*, const blasint*, blasint*, blasint*);
void sgetrs_(const char*, const blasint*, const blasint*, const float*, const blasint*, const blasint*,
             float*, const blasint*, blasint*, size_t);
void dgetrs_(const char*, const blasint*, const blasint*, const double*, const blasint*, const blasint*,
             double*, const blasint*, blasint*, size_t);
void spotrf_(const char*, const blasint*, float*, const blasint*, blasint*, size_t);
void dpotrf_(const char*, const blasint*, double*, const blasint*, blasint*, size_t);
void sgelqf_(const blasint*, const blasint*, float*, const blasint*, float*, float*, const blasint*,
             blasint*);
void dgelqf_(const blasint*, const blasint*, double*, const blasint*, double*, double*, const blasint*,
             blasint*);
void sorglq_(const blasint*, const blasint*, const blasint*, float*, const blasint*, const float*, float*,
             const blasint*, blasint*);
void dorglq_(const blasint*, const blasint*, const blasint*, double*, const blasint*, const double*, double*,
             const blasint*, blasint*);
void sgesdd_(const char*, const blasint*, const blasint*, float*, const blasint*, float*, float*,
             const blasint*, float*, const blasint*, float*, const blasint*, blasint*, blasint*, size_t);
void dgesdd_(const char*, const blasint*, const blasint*, double*, const blasint*, double*, double*,
             const blasint*, double*, const blasint*, double*, const blasint*, blasint*, blasint*, size_t);
void ssyevd_(const char*, const char*, const blasint*, float*, const blasint*, float*, float*, const blasint*,
             blasint*, const blasint*, blasint*, size_t, size_t);
void dsyevd_(const char*, const char*, const blasint*, double*, const blasint*, double*, double*,
             const blasint*, blasint*, const blasint*, blasint*, size_t, size_t);
}

namespace espalier::lapack {

namespace {

template <class T>
struct Routines;
template <>
struct Routines<float> {
  static constexpr auto getrf = sgetrf_;
  static constexpr auto getrs = sgetrs_;
  static constexpr auto potrf = spotrf_;
  static constexpr auto gelqf = sgelqf_;
  static constexpr auto orglq = sorglq_;
  static constexpr auto gesdd = sgesdd_;
  static constexpr auto syevd = ssyevd_;
};
template <>
struct Routines<double> {
  static constexpr auto getrf = dgetrf_;
  static constexpr auto getrs = dgetrs_;
  static constexpr auto potrf = dpotrf_;
  static constexpr auto gelqf = dgelqf_;
  static constexpr auto orglq = dorglq_;
  static constexpr auto gesdd = dgesdd_;
  static constexpr auto syevd = dsyevd_;
};

/// Leading dimensions are at least 1.
blasint leading_dimension(int64_t n) { return static_cast<blasint>(std::max<int64_t>(n, 1)); }

/// Calls `f(work, size)` once with size -1, which asks for the best size, and once with so much memory.
template <class T, class F>
blasint with_work(F&& f) {
  T best = 0;
  if (const blasint info = f(&best, blasint{-1}); info != 0) return info;
  // A float below the true size after rounding is raised by one unit in the last place.
  const auto size = static_cast<blasint>(static_cast<double>(best) * (1 + 0x1p-22)) + 1;
  std::vector<T> work(static_cast<size_t>(size));
  return f(work.data(), size);
}

}  // namespace

template <class T>
int64_t getrf(int64_t n, T* a, int32_t* pivots) {
  const auto size = static_cast<blasint>(n), lda = leading_dimension(n);
  blasint info = 0;
  std::vector<blasint> swaps(static_cast<size_t>(n));
  Routines<T>::getrf(&size, &size, a, &lda, swaps.data(), &info);
  for (size_t i = 0; i < swaps.size(); ++i) pivots[i] = static_cast<int32_t>(swaps[i]);
  return info;
}

template <class T>
int64_t getrs(bool transposed, int64_t n, int64_t k, const T* lu, const int32_t* pivots, T* b) {
  const auto size = static_cast<blasint>(n), columns = static_cast<blasint>(k), lda = leading_dimension(n);
  blasint info = 0;
  const std::vector<blasint> swaps(pivots, pivots + n);
  Routines<T>::getrs(transposed ? "T" : "N", &size, &columns, lu, &lda, swaps.data(), b, &lda, &info, 1);
  return info;
}

template <class T>
int64_t potrf(bool upper, int64_t n, T* a) {
  const auto size = static_cast<blasint>(n), lda = leading_dimension(n);
  blasint info = 0;
  Routines<T>::potrf(upper ? "U" : "L", &size, a, &lda, &info, 1);
  return info;
}

template <class T>
int64_t gelqf(int64_t m, int64_t n, T* a, T* tau) {
  const auto rows = static_cast<blasint>(m), columns = static_cast<blasint>(n), lda = leading_dimension(m);
  return with_work<T>([&](T* work, blasint size) {
    blasint info = 0;
    Routines<T>::gelqf(&rows, &columns, a, &lda, tau, work, &size, &info);
    return info;
  });
}

template <class T>
int64_t orglq(int64_t k, int64_t n, T* a, int64_t lda, const T* tau) {
  const auto rows = static_cast<blasint>(k), columns = static_cast<blasint>(n),
             first = leading_dimension(lda);
  return with_work<T>([&](T* work, blasint size) {
    blasint info = 0;
    Routines<T>::orglq(&rows, &columns, &rows, a, &first, tau, work, &size, &info);
    return info;
  });
}

template <class T>
int64_t gesdd(int64_t m, int64_t n, T* a, T* s, T* u, T* vt) {
  const auto rows = static_cast<blasint>(m), columns = static_cast<blasint>(n), lda = leading_dimension(m),
             ldvt = leading_dimension(std::min(m, n));
  std::vector<blasint> integers(static_cast<size_t>(8 * std::min(m, n)) + 1);
  return with_work<T>([&](T* work, blasint size) {
    blasint info = 0;
    Routines<T>::gesdd(u ? "S" : "N", &rows, &columns, a, &lda, s, u, &lda, vt, &ldvt, work, &size,
                       integers.data(), &info, 1);
    return info;
  });
}

template <class T>
int64_t syevd(bool vectors, int64_t n, T* a, T* values) {
  const auto order = static_cast<blasint>(n), lda = leading_dimension(n);
  const char* const job = vectors ? "V" : "N";
  blasint info = 0, integers_size = -1;
  const blasint ask = -1;
  T best = 0;
  blasint best_integers = 0;
  Routines<T>::syevd(job, "U", &order, a, &lda, values, &best, &ask, &best_integers, &integers_size, &info, 1,
                     1);
  if (info != 0) return info;
  const auto size = static_cast<blasint>(static_cast<double>(best) * (1 + 0x1p-22)) + 1;
  std::vector<T> work(static_cast<size_t>(size));
  std::vector<blasint> integers(static_cast<size_t>(best_integers) + 1);
  integers_size = best_integers;
  Routines<T>::syevd(job, "U", &order, a, &lda, values, work.data(), &size, integers.data(), &integers_size,
                     &info, 1, 1);
  return info;
}

template int64_t getrf(int64_t, float*, int32_t*);
template int64_t getrf(int64_t, double*, int32_t*);
template int64_t getrs(bool, int64_t, int64_t, const float*, const int32_t*, float*);
template int64_t getrs(bool, int64_t, int64_t, const double*, const int32_t*, double*);
template int64_t potrf(bool, int64_t, float*);
template int64_t potrf(bool, int64_t, double*);
template int64_t gelqf(int64_t, int64_t, float*, float*);
template int64_t gelqf(int64_t, int64_t, double*, double*);
template int64_t orglq(int64_t, int64_t, float*, int64_t, const float*);
template int64_t orglq(int64_t, int64_t, double*, int64_t, const double*);
template int64_t gesdd(int64_t, int64_t, float*, float*, float*, float*);
template int64_t gesdd(int64_t, int64_t, double*, double*, double*, double*);
template int64_t syevd(bool, int64_t, float*, float*);
template int64_t syevd(bool, int64_t, double*, double*);

}  // namespace espalier::lapack
