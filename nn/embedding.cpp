#include "espalier/nn/embedding.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class EmbeddingState : public LayerStateOf<EmbeddingState> {
 public:
  EmbeddingState(int64_t count, int64_t width, EmbeddingOptions options)
      : LayerStateOf("Embedding"), dtype_(options.dtype) {
    if (count <= 0 || width <= 0)
      throw Error(fmt::format("Embedding: {} vectors of width {}; both must be at least one", count, width));
    if (!is_real(dtype_))
      throw TypeError(fmt::format("Embedding: the dtype must be a real one, not {}", name(dtype_)));
    declare(
        "weight", {count, width},
        [initializer = std::move(options.initializer)](const Shape& shape, DType dtype) {
          return initializer(shape, shape[0], shape[1], dtype);
        },
        dtype_);
  }

  void create_on_cpu() { create(cpu(), dtype_); }

  Variable forward(const Variable& x) override {
    if (x.dtype() != int32 && x.dtype() != int64)
      throw TypeError(fmt::format("Embedding: indices must be int32 or int64, not {}; their shape is {}",
                                  name(x.dtype()), x.shape().str()));
    const Variable& weight = parameter("weight");
    // Like a layer that its first input creates, it starts where that is.
    if (!called_ && weight.device() != x.device()) assign(*weight.node(), weight.value().to(x.device()));
    called_ = true;
    return gather(weight, x);
  }

 private:
  bool called_ = false;
  DType dtype_;
};

}  // namespace

Embedding::Embedding(int64_t count, int64_t width, EmbeddingOptions options, Where where)
    : LayerOf(located(where,
                      [&] { return std::make_shared<EmbeddingState>(count, width, std::move(options)); })) {
  const CallScope scope(where);
  located(where, [&] { static_cast<EmbeddingState&>(layer_state()).create_on_cpu(); });
}

}  // namespace espalier::nn
