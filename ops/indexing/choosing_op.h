// What the ops share that write at chosen places of a tensor.
#pragma once
#include <string_view>

#include "espalier/ops/indexing/chosen.h"
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

  Chosen form_;
};

/// The values that a user gave to `function`, in the shape of what is chosen; a number takes the dtype of x.
Variable chosen_values(const Chosen& form, std::string_view function, const Operand& x,
                       const Operand& indices, const Operand& values);

}  // namespace espalier
