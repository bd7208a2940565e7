#include "espalier/nn/embedding_table.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/node.h"
#include "espalier/ops/indexing/look_up.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

EmbeddingTable::EmbeddingTable(std::string_view kind, int64_t count, int64_t width, EmbeddingOptions options)
    : LayerState(kind),
      kind_(kind),
      dtype_(options.dtype),
      padding_(options.padding_index),
      max_norm_(options.max_norm) {
  if (count <= 0 || width <= 0)
    throw Error(fmt::format("{}: {} vectors of width {}; both must be at least one", kind, count, width));
  if (!is_real(dtype_))
    throw TypeError(fmt::format("{}: the dtype must be a real one, not {}", kind, name(dtype_)));
  if (padding_ && *padding_ < 0) *padding_ += count;
  if (padding_ && (*padding_ < 0 || *padding_ >= count))
    throw Error(
        fmt::format("{}: the padding_index {} is none of {} rows", kind, *options.padding_index, count));
  if (max_norm_ && !(*max_norm_ > 0))
    throw Error(fmt::format("{}: max_norm is {}; it must be above 0", kind, *max_norm_));
  declare(
      "weight", {count, width},
      [initializer = std::move(options.initializer), padding = padding_](const Shape& shape, DType dtype) {
        Tensor weight = initializer(shape, shape[0], shape[1], dtype);
        if (!padding) return weight;
        Tensor row = weight.slice(0, *padding, *padding + 1);
        copy_elements(zeros({1, shape[1]}, dtype), row);
        return weight;
      },
      dtype_);
}

Variable EmbeddingTable::look_up(const Variable& indices) {
  if (indices.dtype() != int32 && indices.dtype() != int64)
    throw TypeError(
        fmt::format("{}: indices must be int32 or int64, not {}; their shape is {}; cast() them first", kind_,
                    name(indices.dtype()), indices.shape().str()));
  // Like a layer that its first input creates, it starts where that is. Later calls may be of several
  // threads.
  if (const std::atomic_ref<bool> called(called_); !called.load(std::memory_order_acquire)) {
    for (const Entry& entry : entries())
      if (const Variable& leaf = entry.slot.value; leaf.device() != indices.device())
        assign(*leaf.node(), leaf.value().to(indices.device()));
    called.store(true, std::memory_order_release);
  }
  note_input(indices);
  Variable rows = espalier::look_up(kind_, parameter("weight"), indices, false);
  if (max_norm_) {
    const Variable wide = widened(rows);  // squares of 16-bit numbers overflow
    const Variable norm = sqrt(sum(square(stop_gradient(wide)), -1, true));
    rows = rounded(wide * minimum(*max_norm_ / (norm + 1e-7), 1.0), rows.dtype());
  }
  if (padding_) rows = where(unsqueeze(counted(indices), -1), rows, stop_gradient(rows));
  return rows;
}

Variable EmbeddingTable::counted(const Variable& indices) const {
  return padding_ ? not_equal(indices, *padding_) : Variable();
}

}  // namespace espalier::nn
