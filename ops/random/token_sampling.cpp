#include "espalier/ops/functions/token_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/sampling.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/random/logit_rows.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

void check(const Variable& x, const TokenSampling& o, const char* function) {
  if (!is_real(x.dtype()))
    throw TypeError(fmt::format("{}: logits must be of a real type, not {}", function, name(x.dtype())));
  if (x.rank() == 0 || x.shape()[-1] == 0)
    throw ShapeError(fmt::format("{}: logits of shape {} have no classes", function, x.shape().str()));
  if (!(o.temperature > 0 && std::isfinite(o.temperature)))
    throw Error(
        fmt::format("{}: the temperature is {}; it must be finite and above 0", function, o.temperature));
  if (o.top_k < 0) throw Error(fmt::format("{}: top_k is {}; it must not be negative", function, o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1))
    throw Error(fmt::format("{}: top_p is {}; it must be above 0 and at most 1", function, o.top_p));
}

/// Distances from the largest logit of a row are divided, which do not overflow at the top.
Variable tempered(const Variable& x, double temperature) {
  if (temperature == 1) return x;
  const double least = x.dtype() == float64 ? std::numeric_limits<double>::min()
                                            : static_cast<double>(std::numeric_limits<float>::min());
  return (x - max(x, -1, true)) / std::max(temperature, least);
}

/// NumericError for a row that is no distribution, if the logits are on the host.
void check_rows(const Variable& x, const char* function) {
  const Node& node = *x.node();
  if (node.lazy || node.waits || !node.has_value() || x.device().type != DeviceType::cpu) return;
  check_logit_rows(x.value(), function);
}

Variable truncated(const Variable& given, const TokenSampling& o) {
  const Variable x = tempered(widened(given), o.temperature);
  const int64_t classes = x.shape()[-1], k = o.top_k == 0 ? classes : std::min(o.top_k, classes);
  if (k == classes && o.top_p == 1) return x;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const ValuesAndIndices best = topk(x, k);
  Variable kept = best.values;
  if (o.top_p < 1) {
    const Variable p = softmax(kept);
    const Variable better = cumsum(p) - p;  // exactly 0 for the first
    kept = where(less(better, o.top_p), kept, full_like(kept, -infinity));
  }
  return put_along_axis(full_like(x, -infinity), best.indices, kept, -1);
}

}  // namespace

Variable truncated_logits(const Operand& logits, const TokenSampling& options) {
  const CallScope scope(logits.where());
  return located(logits.where(), [&] {
    const Variable& x = logits.defined("truncated_logits");
    check(x, options, "truncated_logits");
    return truncated(x, options);
  });
}

Variable sample_logits(const Operand& logits, const TokenSampling& options) {
  const CallScope scope(logits.where());
  return located(logits.where(), [&] {
    const Variable& x = logits.defined("sample_logits");
    check(x, options, "sample_logits");
    check_rows(x, "sample_logits");
    return categorical(truncated(x, options));
  });
}

}  // namespace espalier
