#include "espalier/ops/recurrent/step_loop.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

const RecurrenceForm& checked(const Variable& x, const RecurrenceForm& form, std::string_view what) {
  if (form.batch_sizes.empty() && is_open_axis(x, 0))
    throw UnsupportedError(
        fmt::format("{}: each step has nodes of its own, and the number of steps is open", what));
  return form;
}

}  // namespace

StepLoop::StepLoop(const Variable& x, const RecurrenceForm& form, std::string_view what)
    : form_(checked(x, form, what)), rows_(step_rows_of(form, x.shape())) {}

Variable StepLoop::of_step(const Variable& all, int64_t k) const {
  if (packed()) return slice(all, 0, rows_.begin(k), rows_.begin(k) + rows_.rows(k));
  const int64_t at = position(k);
  return squeeze(slice(all, 0, at, at + 1), {0});
}
Variable StepLoop::first_rows(const Variable& state, int64_t k) const {
  return rows_.rows(k) == all_rows(k) ? state : slice(state, 0, 0, rows_.rows(k));
}
Variable StepLoop::with_rows(const Variable& next, const Variable& state, int64_t k) const {
  if (rows_.rows(k) == all_rows(k)) return next;
  return concat({next, slice(state, 0, rows_.rows(k), all_rows(k))}, 0);
}
Variable StepLoop::joined(std::vector<Variable> steps) const {
  if (form_.reverse) std::reverse(steps.begin(), steps.end());
  return packed() ? concat(steps, 0) : stack(steps, 0);
}

}  // namespace espalier
