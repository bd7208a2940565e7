// What the ops share that write at chosen places of a tensor.
#pragma once
#include <string_view>

#include "espalier/ops/indexing/chosen.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/indexing/pick_elements.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

/// An op for the elements of input 0 that the indices, input 1, choose.
class ChoosingOp : public Op {
 public:
  ChoosingOp(const Chosen& form, const OpTraits& traits) : Op(traits), form_(form) {}
  Attributes attributes() const override { return {{"axis", form_.axis}, {"along", form_.along}}; }
  /// What is written to a place depends on all indices.
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    const size_t a = resolve_axis(form_.axis, in[0]->shape.rank(), name());
    if (form_.along || input == 0) return axis == a;
    return input == 1 || (axis >= a && axis < a + in[1]->shape.rank());
  }

 protected:
  /// Throws unless input 2 has the dtype of input 0, and the shape of what is chosen.
  void check_values(const InputSpecs& in) const {
    check_same_dtype(*in[0], *in[2], name());
    const Shape chosen = form_.shape(*in[0], *in[1], name());
    if (!(in[2]->shape == chosen))
      throw ShapeError(
          fmt::format("{}: values of shape {} in place of {}", name(), in[2]->shape.str(), chosen.str()));
  }
  /// The indices, one for each element of what is chosen if they are along the axis.
  Tensor seen_indices(const Tensor& indices, const Shape& chosen) const {
    if (!form_.along || chosen.elements() == 0) return indices;
    return Tensor(indices.storage(), broadcast_layout(indices.layout(), chosen), indices.dtype());
  }

  /// Copies input 0 to the output, unless it is there, and calls f(at, values, blocks, count) if there are
  /// values to write: `at` gives the place of a value, of which each line has `count`.
  template <class F>
  void write_values(const KernelCall& call, const F& f) const {
    Tensor& out = *call.outputs[0];
    const Tensor values = call.inputs[2]->contiguous_copy();
    const AxisBlocks b(out.shape(), resolve_axis(form_.axis, out.rank(), name()));
    const int64_t lines = b.lines(), count = lines == 0 ? 0 : values.elements() / lines;
    with_indices(seen_indices(*call.inputs[1], values.shape()), b.size, name(), true, [&](auto at, int64_t) {
      if (out.address() != call.inputs[0]->address()) copy_elements(*call.inputs[0], out);
      if (values.elements() != 0) f(at, values, b, count);
    });
  }

  Chosen form_;
};

/// The values that a user gave to `function`, in the shape of what is chosen; a number takes the dtype of x.
Variable chosen_values(const Chosen& form, std::string_view function, const Operand& x,
                       const Operand& indices, const Operand& values);

}  // namespace espalier
