#include "espalier/nn/dense.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/module_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class DenseState : public LayerStateOf<DenseState> {
 public:
  DenseState(int64_t out, DenseOptions options)
      : out_(out), initializer_(std::move(options.initializer)), has_bias_(options.bias) {
    if (out <= 0) throw Error(fmt::format("Dense: {} outputs; it needs at least one", out));
    add_slot("weight", {{out, -1}, std::nullopt, {}});
    if (has_bias_) add_slot("bias", {{out}, std::nullopt, {}});
  }

  Variable forward(const Variable& x) override {
    check(x);
    if (!weight().defined()) create(x.shape()[-1], x.dtype(), x.device());
    check_fit(x);
    return x.rank() == 2 ? transform(x) : unfold(transform(fold(x)), x.shape());
  }

 private:
  Variable& weight() { return entries()[0].slot.value; }
  Variable& bias() { return entries()[1].slot.value; }

  void check(const Variable& x) const {
    if (!is_real(x.dtype()))
      throw TypeError(fmt::format("Dense: the input must be of a real type, not {}; its shape is {}",
                                  name(x.dtype()), x.shape().str()));
    if (x.rank() < 2)
      throw ShapeError(fmt::format("Dense: an input of shape {} has no batch axis; reshape it to [n, width]",
                                   x.shape().str()));
  }

  void check_fit(const Variable& x) {
    const Variable& w = weight();
    if (x.shape()[-1] != w.shape()[1])
      throw ShapeError(
          fmt::format("Dense: an input of shape {} does not fit the weight of shape {}: widths {} and {}",
                      x.shape().str(), w.shape().str(), x.shape()[-1], w.shape()[1]));
    if (x.dtype() != w.dtype())
      throw TypeError(fmt::format("Dense: the input is {} and the weight {}; cast() the input",
                                  name(x.dtype()), name(w.dtype())));
  }

  void create(int64_t in, DType dtype, Device device) {
    const std::source_location& where = *building().where;
    const Variable w = parameter(initializer_({out_, in}, in, out_, dtype).to(device), "weight", where);
    if (has_bias_) bias() = parameter(zeros({out_}, dtype).to(device), "bias", where);
    weight() = w;
  }

  Variable transform(const Variable& x) {
    const Variable product = matmul(x, transpose(weight()));
    return has_bias_ ? product + bias() : product;
  }

  // All leading axes as one, and back. The first size is left open where it can be: it may be a batch's,
  // which differs from step to step.
  static Variable fold(const Variable& x) {
    const int64_t in = x.shape()[-1];
    return reshape(x, {in > 0 ? -1 : Shape(Dims(x.shape().begin(), x.shape().end() - 1)).elements(), in});
  }
  Variable unfold(const Variable& y, Shape shape) const {
    Dims& dims = shape.dims();
    dims.back() = out_;
    bool open = true;
    for (size_t axis = 1; axis < dims.size(); ++axis) open &= dims[axis] > 0;
    if (open) dims[0] = -1;
    return reshape(y, shape);
  }

  int64_t out_;
  Initializer initializer_;
  bool has_bias_;
};

}  // namespace

Dense::Dense(int64_t out, DenseOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<DenseState>(out, std::move(options)); })) {}

}  // namespace espalier::nn
