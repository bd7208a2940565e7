#include "espalier/nn/dense.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier::nn {

namespace {

class DenseState : public LayerStateOf<DenseState> {
 public:
  DenseState(int64_t out, DenseOptions options) : LayerStateOf("Dense"), out_(out), has_bias_(options.bias) {
    if (out <= 0) throw Error(fmt::format("Dense: {} outputs; it needs at least one", out));
    if (options.dtype && !is_real(*options.dtype))
      throw TypeError(fmt::format("Dense: the dtype must be a real one, not {}", name(*options.dtype)));
    declare("weight", {out, -1}, std::move(options.initializer), options.dtype);
    if (has_bias_) declare("bias", {out}, init::Zeros(), options.dtype);
  }
  void create_for(int64_t in) {
    if (in <= 0) throw Error(fmt::format("Dense: {} inputs; it needs at least one", in));
    create(cpu(), float32, {{-1, in}});
  }

  Variable forward(const Variable& x) override {
    if (x.rank() < 2)
      throw ShapeError(fmt::format("Dense: an input of shape {} has no batch axis; reshape it to [n, width]",
                                   x.shape().str()));
    fit(x, {{-1, x.shape()[-1]}});
    return x.rank() == 2 ? transform(x) : unfold(transform(fold(x)), x);
  }

 private:
  Variable transform(const Variable& x) const {
    const Variable weight = parameter("weight");
    constexpr MatmulForm form{.transpose_a = false, .transpose_b = true};
    const auto where = std::source_location::current();
    if (!has_bias_) return apply(matmul_op(form), {&x, &weight}, where);
    const Variable bias = parameter("bias");
    // Plans fuse the bias themselves. In 16 bits one node rounds once, where the two of a plan round twice.
    const bool apart = x.node()->lazy || build_context().lazy || is_half(weight.dtype());
    if (!apart) return apply(sum_of_products_op(form, true), {&bias, &x, &weight}, where);
    return apply(matmul_op(form), {&x, &weight}, where) + bias;
  }

  // All leading axes as one, and back. The first size stays open where it can: batches differ in theirs.
  static Variable fold(const Variable& x) {
    const int64_t in = x.shape()[-1];
    return reshape(x, {in > 0 ? -1 : Shape(Dims(x.shape().begin(), x.shape().end() - 1)).elements(), in});
  }
  Variable unfold(const Variable& y, const Variable& x) const {
    if (x.node()->lazy) return unfold_like(y, x);  // any axis may be that of the batch
    Shape shape = x.shape();
    shape.dims().back() = out_;
    if (std::all_of(shape.begin() + 1, shape.end(), [](int64_t size) { return size > 0; }))
      shape.dims()[0] = -1;
    return reshape(y, shape);
  }

  int64_t out_;
  bool has_bias_;
};

}  // namespace

Dense::Dense(int64_t out, DenseOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<DenseState>(out, std::move(options)); })) {}

Dense::Dense(const Sizes& sizes, DenseOptions options, const Where& where)
    : Dense(sizes.out, std::move(options), where) {
  const CallScope scope(where);
  located(where, [&] { static_cast<DenseState&>(layer_state()).create_for(sizes.in); });
}

}  // namespace espalier::nn
