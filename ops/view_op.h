// The base of views: other layouts of the elements of input 0.
#pragma once
#include "espalier/core/channels_last.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

/// Runs only where a copy is needed: strides cannot express the view, or the input may be overwritten later.
struct ViewOp : Op {
  explicit ViewOp(bool transposes_matrix = false)
      : Op({.kind = OpKind::view,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .transposes_matrix = transposes_matrix,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::none()}) {}
  void run_cpu(const KernelCall& call) const override {
    const Tensor& in = *call.inputs[0];
    const std::optional<Layout> layout = view(in.layout(), call.outputs[0]->spec());
    copy_elements(Tensor(in.storage(), *layout, in.dtype()), *call.outputs[0]);
  }
  /// A view that keeps the shape is the identity; what moves elements within it overrides this.
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return *in.specs[0] == out ? std::optional<size_t>(0) : std::nullopt;
  }
};

/// Another shape of the same elements, in the same row-major order. Further inputs give sizes.
struct ReshapeView : ViewOp, Batchable {
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout;
    if (!reshape_layout(in, out.shape, layout)) return std::nullopt;
    return layout;
  }
  void run_cpu(const KernelCall& call) const override {
    Layout layout(call.inputs[0]->shape());  // the output in the shape of the input
    layout.offset = call.outputs[0]->layout().offset;
    Tensor same(call.outputs[0]->storage(), std::move(layout), call.outputs[0]->dtype());
    copy_elements(*call.inputs[0], same);
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    if (rule.wants(0)) result[0] = reshape_like(rule.output_gradient(), rule.input(0));
    return result;
  }
  /// If it keeps batch and channels, and divides or merges the other axes.
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    const Shape &from = in[0]->shape, &to = out.shape;
    if (from.rank() < 3 || to.rank() < 3 || to.elements() == 0 || from[0] != to[0] || from[1] != to[1])
      return {};
    const Shape last = espalier::with_channels_last(to);
    return {.op = make_op("reshape", {{"shape", std::vector<int64_t>(last.begin(), last.end())}}),
            .inputs = 1};
  }
  Gradients batched(const Stacked& in) const override {
    return {in.stacked(0).reshape(in.with_rows(in.infer()[0].shape))};
  }
};

}  // namespace espalier
