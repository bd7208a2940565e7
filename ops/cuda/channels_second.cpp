#include "espalier/ops/cuda/channels_second.h"

#include <algorithm>

#include "espalier/core/op_registry.h"

namespace espalier::cu {

namespace {

/// A view of a tensor whose last axis stands before its `axes` axes of places.
Tensor with_channels_second(const Tensor& x, size_t axes) {
  Layout layout = x.layout();
  const auto move = [&](Dims& list) {
    std::rotate(list.end() - static_cast<std::ptrdiff_t>(axes) - 1, list.end() - 1, list.end());
  };
  move(layout.shape.dims());
  move(layout.strides);
  return Tensor(x.storage(), layout, x.dtype());
}

/// What the kernel of the other op holds on to.
struct Moved {
  OpPtr op;
  std::vector<Tensor> inputs;
  Tensor output, output_seen;  ///< its copy, and the view that it is copied to
  Bound kernel;
};

}  // namespace

Bound bind_channels_second(const Op& op, const KernelCall& call, size_t axes,
                           std::initializer_list<size_t> kept, bool keeps_output,
                           const std::function<Bound(const Op&, const KernelCall&)>& bind) {
  Attributes attributes = op.attributes();
  for (auto& [name, value] : attributes)
    if (name == "channels_last") value = false;
  const auto moved = std::make_shared<Moved>();
  moved->op = make_op(op.name(), attributes);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool same = std::find(kept.begin(), kept.end(), i) != kept.end();
    moved->inputs.push_back(same ? *call.inputs[i] : with_channels_second(*call.inputs[i], axes));
  }
  KernelCall other = call;
  for (size_t i = 0; i < call.inputs.size(); ++i) other.inputs[i] = &moved->inputs[i];
  if (!keeps_output) {
    moved->output_seen = with_channels_second(*call.outputs[0], axes);
    const Tensor& seen = moved->output_seen;
    moved->output = Tensor(seen.shape(), seen.dtype(), seen.device());
    other.outputs[0] = &moved->output;
  }
  moved->kernel = bind(*moved->op, other);
  return bound([moved](RandomStream random) {
    moved->kernel->run(random);
    if (moved->output_seen.defined()) copy_elements(moved->output, moved->output_seen);
  });
}

}  // namespace espalier::cu
