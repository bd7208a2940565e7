#include "espalier/nn/lambda.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/nn/function_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

/// `x` with the axis replaced by axes of these sizes. The first size of the result stays open where it can.
Variable unflatten_axis(const Variable& x, int64_t axis, const Shape& sizes) {
  const auto rank = static_cast<int64_t>(x.rank());
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    throw ShapeError(fmt::format("Unflatten: an input of shape {} has no axis {}", x.shape().str(), axis));
  const int64_t whole = x.shape()[at];
  int64_t known = 1, open = 0;
  for (const int64_t size : sizes) (size < 0 ? open : known) *= size < 0 ? 1 : size, open += size < 0;
  if (open > 1 || (open == 1 ? known == 0 || whole % known != 0 : known != whole))
    throw ShapeError(fmt::format("Unflatten: axis {} of an input of shape {} cannot become {}", axis,
                                 x.shape().str(), sizes.str()));
  Dims shape(x.shape().begin(), x.shape().begin() + at);
  for (const int64_t size : sizes) shape.push_back(size < 0 ? whole / known : size);
  for (int64_t i = at + 1; i < rank; ++i) shape.push_back(x.shape()[i]);
  if (at > 0 && std::all_of(shape.begin() + 1, shape.end(), [](int64_t size) { return size > 0; }))
    shape[0] = -1;
  return reshape(x, Shape(shape));
}

struct LambdaState : LayerStateOf<LambdaState> {
  explicit LambdaState(std::function<Variable(const Variable&)> f) : function(std::move(f)) {
    if (!function) throw Error("Lambda: the function is empty");
  }
  Variable forward(const Variable& x) override { return function(x); }
  std::string_view printed_kind() const override { return "Lambda"; }
  std::shared_ptr<LayerState> clone(Clones& made) const override {
    if (!parts().empty())
      throw UnsupportedError(
          fmt::format("Lambda: a copy of the function would call the same module '{}', not a clone of it",
                      parts().front().name));
    return LayerStateOf::clone(made);
  }

  std::function<Variable(const Variable&)> function;
};

}  // namespace

Identity::Identity() : LayerOf(layer_of([](const Variable& x) { return x; })) {}

Lambda::Lambda(std::function<Variable(const Variable&)> function, Where where)
    : Lambda(std::move(function), {}, where) {}
Lambda::Lambda(std::function<Variable(const Variable&)> function, const Modules& modules, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<LambdaState>(std::move(function)); })) {
  for (const auto& [name, module] : modules) add(name, module, where);
}

Unflatten::Unflatten(int64_t axis, Shape sizes)
    : LayerOf(layer_of(
          [axis, sizes = std::move(sizes)](const Variable& x) { return unflatten_axis(x, axis, sizes); })) {}

}  // namespace espalier::nn
