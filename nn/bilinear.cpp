#include "espalier/nn/bilinear.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier::nn {

namespace {

class BilinearState : public LayerStateOf<BilinearState> {
 public:
  BilinearState(int64_t out, BilinearOptions options)
      : LayerStateOf("Bilinear"), out_(out), has_bias_(options.bias) {
    if (out <= 0) throw Error(fmt::format("Bilinear: {} outputs; it needs at least one", out));
    declare("weight", {out, -1, -2}, std::move(options.initializer));
    if (has_bias_) declare("bias", {out}, init::Zeros());
  }
  void create_for(int64_t first, int64_t second, DType dtype) {
    if (first <= 0 || second <= 0)
      throw Error(
          fmt::format("Bilinear: inputs of widths {} and {}; both must be at least 1", first, second));
    if (!is_real(dtype))
      throw TypeError(fmt::format("Bilinear: the dtype must be a real one, not {}", name(dtype)));
    create(cpu(), dtype, {{-1, first}, {-2, second}});
  }

  Variable forward(const Variable&) override { throw Error("Bilinear: it needs two inputs"); }
  Variable forward(const Variable& a, const Variable& b) {
    const Shape &x = a.shape(), &y = b.shape();
    if (x.rank() < 2 || x.rank() != y.rank() || !std::equal(x.begin(), x.end() - 1, y.begin()))
      throw ShapeError(
          fmt::format("Bilinear: inputs of shapes {} and {} must have equal axes before the last, "
                      "and at least one",
                      x.str(), y.str()));
    if (a.dtype() != b.dtype())
      throw TypeError(
          fmt::format("Bilinear: inputs of {} and {} must be of one type", name(a.dtype()), name(b.dtype())));
    const int64_t first = x[-1], second = y[-1];
    check_known(b, {{-2, second}});
    fit(a, {{-1, first}, {-2, second}});
    // [rows, first] × [first, out · second], then times b and summed.
    const Variable weight = reshape(transpose(parameter("weight"), {1, 0, 2}), {first, out_ * second});
    const Variable products = reshape(matmul(fold_rows(a), weight), {-1, out_, second});
    const Variable rows = sum(products * unsqueeze(fold_rows(b), 1), -1);
    const Variable result = x.rank() == 2 ? rows : unfold_like(rows, a);
    return has_bias_ ? result + parameter("bias") : result;
  }

 private:
  int64_t out_;
  bool has_bias_;
};

}  // namespace

Bilinear::Bilinear(int64_t out, BilinearOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<BilinearState>(out, std::move(options)); })) {}

Bilinear::Bilinear(int64_t first, int64_t second, int64_t out, BilinearOptions options, Where where)
    : Bilinear(out, options, where) {
  const CallScope scope(where);
  located(where,
          [&] { static_cast<BilinearState&>(layer_state()).create_for(first, second, options.dtype); });
}

Variable Bilinear::operator()(const Variable& a, const Variable& b, Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    (void)a.shape(), (void)b.shape();  // an undefined Variable throws here
    auto& state = static_cast<BilinearState&>(layer_state());
    return state.after_hooks(a, state.forward(a, b));
  });
}

}  // namespace espalier::nn
