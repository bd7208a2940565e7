#include "espalier/executor/fused/folds.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace espalier {

namespace {

template <class T, Fold F>
void fold_rows(int64_t rows, int64_t n, void* to, const void* from) {
  T* out = static_cast<T*>(to);
  const T* in = static_cast<const T*>(from);
  for (int64_t r = 0; r < rows; ++r, in += n) {
    if constexpr (F == Fold::max)
      out[r] = detail::extreme_row<scalar::Maximum>(in, n);
    else if constexpr (F == Fold::min)
      out[r] = detail::extreme_row<scalar::Minimum>(in, n);
    else
      out[r] = detail::sum_row(in, n, 1);
    if constexpr (F == Fold::mean)
      out[r] = static_cast<T>(static_cast<double>(out[r]) / static_cast<double>(n));
  }
}

template <class T>
FoldRowsFunction rows_of(Fold fold) {
  switch (fold) {
    case Fold::sum: return fold_rows<T, Fold::sum>;
    case Fold::mean: return fold_rows<T, Fold::mean>;
    case Fold::max: return fold_rows<T, Fold::max>;
    case Fold::min: return fold_rows<T, Fold::min>;
  }
  return nullptr;
}

template <class T>
void fold_column(int64_t position, int64_t period, int64_t n, void* to, const void* from) {
  vectorized([=]() __attribute__((always_inline)) {
    double* sums = static_cast<double*>(to);
    const T* in = static_cast<const T*>(from);
    for (int64_t left = n, at = position; left > 0; at = 0) {
      const int64_t count = std::min(left, period - at);
      for (int64_t i = 0; i < count; ++i) sums[at + i] += static_cast<double>(in[i]);
      in += count;
      left -= count;
    }
  });
}

template <class T>
void fold_all(int64_t n, double* total, const void* in) {
  *total += static_cast<double>(detail::sum_row(static_cast<const T*>(in), n, 1));
}

template <class T>
void gather(int64_t n, char* to, const char* from, int64_t stride) {
  T* out = reinterpret_cast<T*>(to);
  if (stride == sizeof(T)) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if (stride == 0) {
    std::fill_n(out, n, *reinterpret_cast<const T*>(from));
  } else {
    for (int64_t i = 0; i < n; ++i, from += stride) out[i] = *reinterpret_cast<const T*>(from);
  }
}

}  // namespace

FoldRowsFunction fold_rows_function(Fold fold, DType dtype) {
  return dtype == DType::float32 ? rows_of<float>(fold) : rows_of<double>(fold);
}
FoldColumnFunction fold_column_function(DType dtype) {
  return dtype == DType::float32 ? fold_column<float> : fold_column<double>;
}
FoldAllFunction fold_all_function(DType dtype) {
  return dtype == DType::float32 ? fold_all<float> : fold_all<double>;
}

void gather_row(int64_t n, char* to, const char* from, int64_t stride, uint32_t bytes) {
  switch (bytes) {
    case 1: return gather<uint8_t>(n, to, from, stride);
    case 2: return gather<uint16_t>(n, to, from, stride);
    case 4: return gather<uint32_t>(n, to, from, stride);
    default: return gather<uint64_t>(n, to, from, stride);
  }
}

#ifdef __SSE2__

void stream_row(size_t bytes, char* to, const char* from) {
  size_t i = 0;
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0)
    for (; i + 16 <= bytes; i += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  std::memcpy(to + i, from + i, bytes - i);
}
void stream_fence() { _mm_sfence(); }

#else

void stream_row(size_t bytes, char* to, const char* from) { std::memcpy(to, from, bytes); }
void stream_fence() {}

#endif

}  // namespace espalier
