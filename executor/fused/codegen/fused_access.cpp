#include "espalier/executor/fused/codegen/fused_access.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::fused {

namespace {

struct Axis {
  int64_t size, stride;
};

/// Axes, innermost first, as terms; those of stride 0 drop out.
Terms terms_of(const std::vector<Axis>& axes) {
  Terms terms;
  int64_t divisor = 1;
  for (size_t i = 0; i < axes.size(); divisor *= axes[i].size, ++i)
    if (axes[i].stride != 0) terms.push_back({divisor, axes[i].size, axes[i].stride, i + 1 == axes.size()});
  return terms;
}

std::vector<Axis> axes_of(const Layout& layout) {
  const Layout joined = collapsed(layout);
  std::vector<Axis> axes;
  for (size_t i = joined.shape.rank(); i-- > 0;) axes.push_back({joined.shape.dims()[i], joined.strides[i]});
  return axes;
}

Reading reading_of(const std::vector<Axis>& inner, const Access& access, int64_t pack, int64_t alignment) {
  if (access.column.empty() && access.element.empty()) return Reading::same;
  const Axis& last = inner[0];
  const bool even = last.size % pack == 0 || (inner.size() == 1 && access.divided);
  if (!even && pack > 1) return Reading::each;
  if (last.stride == 0) return Reading::same;
  if (pack == 1) return Reading::all;
  if (last.stride != 1 || alignment % pack != 0) return Reading::each;
  for (const Terms* terms : {&access.row, &access.column, &access.element})
    for (const Term& term : *terms)
      if (!(term.divisor == 1 && terms != &access.row) && term.stride % pack != 0) return Reading::each;
  return Reading::all;
}

}  // namespace

std::string offset_text(const Terms& terms, const std::string& number) {
  std::string text;
  for (size_t i = terms.size(); i-- > 0;) {
    const Term& term = terms[i];
    if (!text.empty()) text += " + ";
    text += number;
    if (term.divisor != 1) text += fmt::format(" / {}", term.divisor);
    if (!term.outermost) text += fmt::format(" % {}", term.size);
    if (term.stride != 1) text += fmt::format(" * {}", term.stride);
  }
  return text.empty() ? "0" : text;
}

Terms terms_of(const Layout& layout) { return terms_of(axes_of(layout)); }

Access access(const Layout& layout, int64_t columns, int64_t pack, int64_t alignment) {
  const std::vector<Axis> axes = axes_of(layout);
  Access result;
  std::vector<Axis> inner, outer;
  int64_t covered = 1;  // by the inner axes
  for (const Axis& axis : axes) {
    const int64_t rest = columns ? columns / covered : axis.size;
    if (!columns || (columns % covered == 0 && rest % axis.size == 0)) {
      inner.push_back(axis);
      covered *= axis.size;
    } else if (columns % covered == 0 && axis.size % rest == 0) {
      if (rest > 1) inner.push_back({rest, axis.stride});
      outer.push_back({axis.size / rest, axis.stride * rest});
      covered *= rest;
    } else {
      result.divided = false;
    }
  }
  if (columns && covered != columns) result.divided = false;
  if (result.divided) {
    result.row = terms_of(outer);
    result.column = terms_of(inner);
    result.reading = reading_of(inner, result, pack, alignment);
  } else {
    result.element = terms_of(axes);
    result.reading = reading_of(axes, result, pack, alignment);
  }
  return result;
}

}  // namespace espalier::fused
