#include "espalier/nn/maxout.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier::nn {

namespace {

class MaxoutState : public LayerStateOf<MaxoutState> {
 public:
  MaxoutState(int64_t out, int64_t pieces, const Dense& maps)
      : LayerStateOf("Maxout"), out_(out), pieces_(pieces) {
    add_child("maps", maps.state());
  }
  Variable forward(const Variable& x) override {
    const Variable y = static_cast<LayerState&>(*entries()[0].child).call(x);
    const Variable rows = max(reshape(fold_rows(y), {-1, out_, pieces_}), -1);
    return x.rank() == 2 ? rows : unfold_like(rows, x);
  }

 private:
  int64_t out_, pieces_;
};

}  // namespace

Maxout::Maxout(const Sizes& sizes, DenseOptions options, const Where& where)
    : LayerOf(located(where, [&] {
        const auto& [in, out, pieces] = sizes;
        if (out <= 0 || pieces <= 0)
          throw Error(fmt::format("Maxout: {} outputs of {} pieces; both must be at least 1", out, pieces));
        int64_t width = 0;
        if (__builtin_mul_overflow(out, pieces, &width))
          throw ShapeError(
              fmt::format("Maxout: {} outputs of {} pieces are more than 64 bits can count", out, pieces));
        const Dense maps =
            in ? Dense(*in, width, std::move(options), where) : Dense(width, std::move(options), where);
        return std::make_shared<MaxoutState>(out, pieces, maps);
      })) {}

Maxout::Maxout(int64_t out, int64_t pieces, DenseOptions options, Where where)
    : Maxout(Sizes{{}, out, pieces}, std::move(options), where) {}

}  // namespace espalier::nn
