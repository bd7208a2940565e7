#include "espalier/nn/embedding.h"

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/embedding_table.h"

namespace espalier::nn {

namespace {

class EmbeddingState : public LayerStateOf<EmbeddingState, EmbeddingTable> {
 public:
  EmbeddingState(int64_t count, int64_t width, EmbeddingOptions options)
      : LayerStateOf("Embedding", count, width, std::move(options)) {}
  Variable forward(const Variable& x) override { return look_up(x); }
};

}  // namespace

Embedding::Embedding(int64_t count, int64_t width, EmbeddingOptions options, Where where)
    : LayerOf(located(where,
                      [&] { return std::make_shared<EmbeddingState>(count, width, std::move(options)); })) {
  const CallScope scope(where);
  located(where, [&] { static_cast<EmbeddingState&>(layer_state()).create_on_cpu(); });
}

}  // namespace espalier::nn
