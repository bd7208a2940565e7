#include "espalier/ops/functions/closeness.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

Variable close_elements(const Operand& x, const Operand& y, const CloseOptions& options,
                        std::string_view function) {
  const Variable& a = x.is_number() ? x.like(y.defined(function)) : x.defined(function);
  const Variable& b = y.is_number() ? y.like(a) : y.defined(function);
  if (!is_real(a.dtype()))
    throw TypeError(fmt::format("{}: {} has no tolerance: compare integers and bools with equal()", function,
                                name(a.dtype())));
  if (!(options.relative >= 0 && options.absolute >= 0))
    throw Error(fmt::format("{}: tolerances of {} and {}: they are at least 0", function, options.relative,
                            options.absolute));
  const Variable within = less_equal(abs(a - b), options.absolute + options.relative * abs(b));
  Variable result = logical_or(equal(a, b), logical_and(within, logical_and(isfinite(a), isfinite(b))));
  if (options.equal_nan) result = logical_or(result, logical_and(isnan(a), isnan(b)));
  return result;
}

}  // namespace

Variable isclose(const Operand& a, const Operand& b, const CloseOptions& options) {
  const CallScope scope(a.where());
  return located(a.where(), [&] { return close_elements(a, b, options, "isclose"); });
}

Variable allclose(const Operand& a, const Operand& b, const CloseOptions& options) {
  const CallScope scope(a.where());
  return located(a.where(), [&] { return all(close_elements(a, b, options, "allclose")); });
}

}  // namespace espalier
