#include "espalier/nn/simplex.h"

#include "espalier/nn/function_state.h"

namespace espalier::nn {

namespace {

class GumbelSoftmaxState : public LayerStateOf<GumbelSoftmaxState> {
 public:
  explicit GumbelSoftmaxState(GumbelSoftmaxOptions options)
      : LayerStateOf("GumbelSoftmax"), options_(options) {}
  Variable forward(const Variable& x) override {
    GumbelSoftmaxOptions calm = options_;
    calm.noise = false;
    if (!options_.noise || !training()) return gumbel_softmax(x, calm);
    return in_train_phase(gumbel_softmax(x, options_), [&] { return gumbel_softmax(x, calm); });
  }

 private:
  GumbelSoftmaxOptions options_;
};

}  // namespace

Sparsemax::Sparsemax(int64_t axis)
    : LayerOf(layer_of([axis](const Operand& x) { return sparsemax(x, axis); })) {}
GumbelSoftmax::GumbelSoftmax(GumbelSoftmaxOptions options)
    : LayerOf(std::make_shared<GumbelSoftmaxState>(options)) {}

}  // namespace espalier::nn
