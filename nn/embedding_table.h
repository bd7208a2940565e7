// The table of vectors of Embedding and EmbeddingBag.
#pragma once
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// Declares `weight` [count, width] and looks rows up.
class EmbeddingTable : public LayerState {
 public:
  void create_on_cpu() { create(cpu(), dtype_); }

 protected:
  EmbeddingTable(std::string_view kind, int64_t count, int64_t width, EmbeddingOptions options);
  /// The rows at `indices`, with padding and the largest norm. Throws TypeError for other indices.
  Variable look_up(const Variable& indices);
  /// True where an index is no padding; undefined without padding.
  Variable counted(const Variable& indices) const;

 private:
  std::string_view kind_;
  bool called_ = false;
  DType dtype_;
  std::optional<int64_t> padding_;
  std::optional<double> max_norm_;
};

}  // namespace espalier::nn
