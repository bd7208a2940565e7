#include "espalier/ops/random/logit_rows.h"

#include <fmt/format.h>

#include <limits>

#include "espalier/core/error.h"

namespace espalier {

namespace {

template <class T>
void check_rows(std::span<const T> all, int64_t classes, std::string_view function) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  for (size_t at = 0; at < all.size(); at += static_cast<size_t>(classes)) {
    bool some = false, wrong = false;
    for (const T x : all.subspan(at, static_cast<size_t>(classes))) {
      some |= x > -infinity;
      wrong |= !(x < infinity);
    }
    if (wrong || !some)
      throw NumericError(fmt::format("{}: row {} of the logits {}", function,
                                     at / static_cast<size_t>(classes),
                                     wrong ? "contains NaN or +∞" : "is −∞ for all classes"));
  }
}

}  // namespace

void check_logit_rows(const Tensor& logits, std::string_view function) {
  if (logits.elements() == 0) return;
  const int64_t classes = logits.shape()[-1];
  const bool wide = logits.dtype() == float64 || logits.dtype() == float32;
  const Tensor all = (wide ? logits : logits.to(float32)).contiguous_copy();
  if (all.dtype() == float64)
    check_rows(all.span<double>(), classes, function);
  else
    check_rows(all.span<float>(), classes, function);
}

}  // namespace espalier
