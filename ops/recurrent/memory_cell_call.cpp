#include "espalier/ops/recurrent/memory_cell_call.h"

namespace espalier {

namespace {

bool has_new_blocks(const MemoryCellForm& form, int64_t summand) {
  for (int64_t before = 0; before < summand; ++before)
    if (form.same_blocks(before, summand)) return false;
  return true;
}

}  // namespace

int64_t summand_of_gradient(const MemoryCellForm& form, int64_t gradient) {
  int64_t summand = 0;
  for (int64_t left = gradient;; ++summand)
    if (has_new_blocks(form, summand) && left-- == 0) return summand;
}
int64_t gradients_of_summands(const MemoryCellForm& form) {
  int64_t count = 0;
  for (int64_t summand = 0; summand < form.summands(); ++summand) count += has_new_blocks(form, summand);
  return count;
}
int64_t gradient_of_summand(const MemoryCellForm& form, int64_t summand) {
  int64_t gradient = 0;
  while (!form.same_blocks(summand_of_gradient(form, gradient), summand)) ++gradient;
  return gradient;
}

std::optional<int64_t> distance_of_rows(const Layout& layout) {
  const size_t rank = layout.shape.rank();
  if (layout.shape[-1] != 1 && layout.strides[rank - 1] != 1) return std::nullopt;
  std::optional<int64_t> step;
  int64_t next = 0;
  for (size_t i = rank - 1; i-- > 0;) {
    const int64_t size = layout.shape.dims()[i], stride = layout.strides[i];
    if (size == 1) continue;
    if (!step)
      step = stride;
    else if (stride != next)
      return std::nullopt;
    next = stride * size;
  }
  return step.value_or(0);
}

}  // namespace espalier
