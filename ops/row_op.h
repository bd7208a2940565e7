// Ops on each row along the last axis: for other axes views exchange it with the one that is meant.
#pragma once
#include <algorithm>

#include "espalier/core/deferred/stacked.h"
#include "espalier/ops/last_axis.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

/// An op that mixes the elements of a row, and of no two rows. Its output has the spec of its input, reals,
/// unless a subclass infers another.
struct RowOp : Op, Batchable {
  explicit RowOp(const OpTraits& traits) : Op(traits) {}
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis + 1 == in[0]->shape.rank();
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    check_has_axis(*in[0], name());
    return {*in[0]};
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    return in.size() == 1 && in[0]->shape.rank() > 1 ? InputSet::all() : InputSet::none();
  }
  Gradients batched(const Stacked& in) const override {
    if (in.size() != 1) return {};
    const Variable x = in.stacked(0);
    Gradients outputs{apply(in.op(), {&x}, std::source_location::current())};
    const Edge first(outputs[0]);
    for (uint32_t k = 1; k < first.node()->outputs.size(); ++k) outputs.push_back(Variable(first.node(), k));
    return outputs;
  }
};

/// Calls `f(begin)` with the number of the first element of each row of contiguous elements, on several
/// threads where that pays: an element costs as much as `cost` elements of a pointwise op. Rows have
/// elements.
template <class F>
void for_each_row(const Shape& shape, int64_t cost, F&& f) {
  const int64_t n = shape[-1];
  parallel_for(rows_along_last(shape), std::max<int64_t>(1, detail::grain / (cost * n)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) f(row * n);
               });
}

}  // namespace espalier
