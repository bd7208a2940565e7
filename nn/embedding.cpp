#include "espalier/nn/embedding.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/module_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class EmbeddingState : public LayerStateOf<EmbeddingState> {
 public:
  EmbeddingState(int64_t count, int64_t width, EmbeddingOptions options)
      : count_(count), width_(width), options_(std::move(options)) {
    if (count <= 0 || width <= 0)
      throw Error(fmt::format("Embedding: {} vectors of width {}; both must be at least one", count, width));
    if (!is_real(options_.dtype))
      throw TypeError(fmt::format("Embedding: the dtype must be a real one, not {}", name(options_.dtype)));
    add_slot("weight", {{count, width}, options_.dtype, {}});
  }

  Variable forward(const Variable& x) override {
    if (x.dtype() != int32 && x.dtype() != int64)
      throw TypeError(fmt::format("Embedding: indices must be int32 or int64, not {}; their shape is {}",
                                  name(x.dtype()), x.shape().str()));
    Variable& weight = entries()[0].slot.value;
    if (!weight.defined())
      weight =
          parameter(options_.initializer({count_, width_}, count_, width_, options_.dtype).to(x.device()),
                    "weight", *building().where);
    return gather({weight, *building().where}, x);
  }

 private:
  int64_t count_, width_;
  EmbeddingOptions options_;
};

}  // namespace

Embedding::Embedding(int64_t count, int64_t width, EmbeddingOptions options, Where where)
    : LayerOf(located(where,
                      [&] { return std::make_shared<EmbeddingState>(count, width, std::move(options)); })) {}

}  // namespace espalier::nn
