// Checked settings of pooling, and values at the places that it finds.
#pragma once
#include <optional>
#include <string_view>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/windows.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier {

/// The number of axes behind batch and channels. Throws ShapeError unless it is one, two or three.
size_t axes_to_pool(const Variable& x, std::string_view function);

struct SlidingWindows {
  PerAxis kernel;
  std::optional<PerAxis> stride = {};
  PerAxis padding = 0;
  PerAxis dilation = 1;
  bool ceil = false;
};
/// The windows over so many axes. Throws Error for numbers that make no sense.
PoolForm form_of(const SlidingWindows& windows, size_t axes, std::string_view function);
/// The same over `x`. Throws ShapeError where no window fits.
PoolForm sliding_form(const Variable& x, const SlidingWindows& windows, std::string_view function);

/// Throws TypeError for bool and small integers.
void check_pooled_numbers(const Variable& x, std::string_view function);
/// Throws TypeError unless `x` is real.
void check_pooled_reals(const Variable& x, std::string_view function);

/// The elements of planes at row-major places in them.
Variable elements_at(const Variable& x, const Variable& indices);

}  // namespace espalier
