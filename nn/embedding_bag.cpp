#include "espalier/nn/embedding_bag.h"

#include <fmt/format.h>

#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/embedding_table.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class EmbeddingBagState : public LayerStateOf<EmbeddingBagState, EmbeddingTable> {
 public:
  EmbeddingBagState(int64_t count, int64_t width, const EmbeddingBagOptions& options)
      : LayerStateOf(
            "EmbeddingBag", count, width,
            EmbeddingOptions{options.initializer, options.dtype, options.padding_index, options.max_norm}),
        mode_(options.mode) {}

  Variable forward(const Variable& x) override { return forward(x, {}); }
  Variable forward(const Variable& x, const Variable& weights) {
    if (x.rank() == 0) throw ShapeError("EmbeddingBag: indices of shape [] have no axis of a bag");
    if (weights.defined()) check_weights(x, weights);
    Variable rows = look_up(x);
    if (weights.defined()) rows = rows * unsqueeze(weights, -1);
    const Variable kept = counted(x);
    if (x.shape()[-1] == 0) return sum(rows, -2);  // bags without words are 0
    if (!kept.defined())
      return mode_ == BagMode::sum ? sum(rows, -2) : mode_ == BagMode::mean ? mean(rows, -2) : max(rows, -2);
    const Variable chosen = unsqueeze(kept, -1);
    const Variable count = sum(cast(chosen, rows.dtype()), -2);
    if (mode_ == BagMode::max) {
      const Variable largest =
          max(where(chosen, rows, full_like(rows, -std::numeric_limits<double>::infinity())), -2);
      return where(greater(count, 0.0), largest, zeros_like(largest));
    }
    const Variable total = sum(where(chosen, rows, zeros_like(rows)), -2);
    return mode_ == BagMode::sum ? total : total / maximum(count, 1.0);
  }

 private:
  void check_weights(const Variable& x, const Variable& weights) const {
    if (mode_ != BagMode::sum) throw Error("EmbeddingBag: weights are for the mode sum");
    if (!(weights.shape() == x.shape()))
      throw ShapeError(
          fmt::format("EmbeddingBag: weights of shape {} and indices of shape {} must have one shape",
                      weights.shape().str(), x.shape().str()));
    if (weights.dtype() != parameter("weight").dtype())
      throw TypeError(fmt::format("EmbeddingBag: weights are {} and the parameter {}", name(weights.dtype()),
                                  name(parameter("weight").dtype())));
  }

  BagMode mode_;
};

}  // namespace

EmbeddingBag::EmbeddingBag(int64_t count, int64_t width, EmbeddingBagOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<EmbeddingBagState>(count, width, options); })) {
  const CallScope scope(where);
  located(where, [&] { static_cast<EmbeddingBagState&>(layer_state()).create_on_cpu(); });
}

Variable EmbeddingBag::operator()(const Variable& indices, const Variable& weights, Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    (void)indices.shape(), (void)weights.shape();  // an undefined Variable throws here
    auto& state = static_cast<EmbeddingBagState&>(layer_state());
    return state.after_hooks(indices, state.forward(indices, weights));
  });
}

}  // namespace espalier::nn
