#include "espalier/nn/dropout.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class DropoutState : public LayerStateOf<DropoutState> {
 public:
  explicit DropoutState(double rate) : rate_(rate) {
    if (!(rate >= 0 && rate < 1))
      throw Error(fmt::format("Dropout: the rate must be in [0, 1), not {}", rate));
  }
  Variable forward(const Variable& x) override { return training() && rate_ > 0 ? dropout(x, rate_) : x; }

 private:
  double rate_;
};

}  // namespace

Dropout::Dropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<DropoutState>(rate); })) {}

}  // namespace espalier::nn
