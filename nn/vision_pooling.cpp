#include "espalier/nn/vision_pooling.h"

#include <fmt/format.h>

#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/function_state.h"
#include "espalier/ops/functions/global_pooling.h"

namespace espalier::nn {

namespace {

void check_axes(const Variable& x, std::string_view kind, size_t axes) {
  if (x.rank() != axes + 2)
    throw ShapeError(fmt::format("{}: takes [batch, channels] and {} more {}, not {}", kind, axes,
                                 axes == 1 ? "axis" : "axes", x.shape().str()));
}

std::shared_ptr<LayerState> lp_layer(std::string_view kind, size_t axes, LpPoolOptions options) {
  return layer_of(kind, [kind, axes, options = std::move(options)](const Variable& x) {
    check_axes(x, kind, axes);
    return lp_pool(x, options);
  });
}
std::shared_ptr<LayerState> fractional_layer(std::string_view kind, size_t axes,
                                             FractionalPoolOptions options) {
  return layer_of(kind, [kind, axes, options = std::move(options)](const Variable& x) {
    check_axes(x, kind, axes);
    return fractional_max_pool(x, options);
  });
}

/// A layer of two inputs that is one function.
template <class Function>
class PairState : public LayerStateOf<PairState<Function>> {
 public:
  PairState(std::string_view kind, Function function)
      : LayerStateOf<PairState>(kind), function_(std::move(function)) {}
  Variable forward(const Variable&) override {
    throw Error(fmt::format("{}: it needs two inputs", this->kind()));
  }

  static Variable call(LayerState& state, const Variable& a, const Variable& b, const Module::Where& where) {
    const CallScope scope(where, state.kind());
    return located(*build_context().where, [&] {
      (void)a.shape(), (void)b.shape();  // an undefined Variable throws here
      auto& own = static_cast<PairState&>(state);
      return own.after_hooks(a, own.function_(a, b));
    });
  }

 private:
  Function function_;
};

struct Unpool {
  std::string_view kind;
  size_t axes;
  MaxUnpoolOptions options;
  Variable operator()(const Variable& x, const Variable& indices) const {
    check_axes(x, kind, axes);
    return max_unpool(x, indices, options);
  }
};
struct Align {
  RoiAlignOptions options;
  Variable operator()(const Variable& x, const Variable& boxes) const { return roi_align(x, boxes, options); }
};
struct Pool {
  RoiPoolOptions options;
  Variable operator()(const Variable& x, const Variable& boxes) const { return roi_pool(x, boxes, options); }
};

std::shared_ptr<LayerState> unpool_layer(std::string_view kind, size_t axes, MaxUnpoolOptions options) {
  return std::make_shared<PairState<Unpool>>(kind, Unpool{kind, axes, std::move(options)});
}

}  // namespace

LPPool1d::LPPool1d(LpPoolOptions options) : LayerOf(lp_layer("LPPool1d", 1, std::move(options))) {}
LPPool2d::LPPool2d(LpPoolOptions options) : LayerOf(lp_layer("LPPool2d", 2, std::move(options))) {}
LPPool3d::LPPool3d(LpPoolOptions options) : LayerOf(lp_layer("LPPool3d", 3, std::move(options))) {}

FractionalMaxPool2d::FractionalMaxPool2d(FractionalPoolOptions options)
    : LayerOf(fractional_layer("FractionalMaxPool2d", 2, std::move(options))) {}
FractionalMaxPool3d::FractionalMaxPool3d(FractionalPoolOptions options)
    : LayerOf(fractional_layer("FractionalMaxPool3d", 3, std::move(options))) {}

GlobalMaxPool::GlobalMaxPool() : LayerOf(layer_of([](const Variable& x) { return global_max_pool(x); })) {}
GlobalAvgPool::GlobalAvgPool() : LayerOf(layer_of([](const Variable& x) { return global_avg_pool(x); })) {}
GlobalLPPool::GlobalLPPool(double p)
    : LayerOf(layer_of([p](const Variable& x) { return global_lp_pool(x, p); })) {}

MaxUnpool1d::MaxUnpool1d(MaxUnpoolOptions options)
    : LayerOf(unpool_layer("MaxUnpool1d", 1, std::move(options))) {}
MaxUnpool2d::MaxUnpool2d(MaxUnpoolOptions options)
    : LayerOf(unpool_layer("MaxUnpool2d", 2, std::move(options))) {}
MaxUnpool3d::MaxUnpool3d(MaxUnpoolOptions options)
    : LayerOf(unpool_layer("MaxUnpool3d", 3, std::move(options))) {}
Variable MaxUnpool1d::operator()(const Variable& x, const Variable& indices, Where where) const {
  return PairState<Unpool>::call(layer_state(), x, indices, where);
}
Variable MaxUnpool2d::operator()(const Variable& x, const Variable& indices, Where where) const {
  return PairState<Unpool>::call(layer_state(), x, indices, where);
}
Variable MaxUnpool3d::operator()(const Variable& x, const Variable& indices, Where where) const {
  return PairState<Unpool>::call(layer_state(), x, indices, where);
}

RoiAlign::RoiAlign(RoiAlignOptions options)
    : LayerOf(std::make_shared<PairState<Align>>("RoiAlign", Align{std::move(options)})) {}
RoiPool::RoiPool(RoiPoolOptions options)
    : LayerOf(std::make_shared<PairState<Pool>>("RoiPool", Pool{std::move(options)})) {}
Variable RoiAlign::operator()(const Variable& x, const Variable& boxes, Where where) const {
  return PairState<Align>::call(layer_state(), x, boxes, where);
}
Variable RoiPool::operator()(const Variable& x, const Variable& boxes, Where where) const {
  return PairState<Pool>::call(layer_state(), x, boxes, where);
}

}  // namespace espalier::nn
