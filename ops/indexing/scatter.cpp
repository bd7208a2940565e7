// Writing at indices: slices along an axis, or elements each with an index of its own.
#include <algorithm>
#include <memory>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/indexing/choosing_op.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/indexing/pick_elements.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/view_op.h"

namespace espalier {

namespace {

Variable put_chosen(const Chosen& form, const Variable& x, const Variable& indices, const Variable& values);
Variable take_last(const Chosen& form, const Variable& x, const Variable& indices);

std::string_view put_name(const Chosen& form) { return form.along ? "put_along_axis" : "scatter"; }

/// x with values at the indices; the last of several for one place. Inputs: x, indices, values.
class Put : public ChoosingOp {
 public:
  explicit Put(const Chosen& form)
      : ChoosingOp(
            form,
            {.takes_halves = true, .in_place = InputSet::only(0), .gradient_reads = InputSet::only(1)}) {}
  std::string_view name() const override { return put_name(form_); }
  Specs infer(const InputSpecs& in) const override {
    check_values(in);
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    write_values(call, [&](auto at, const Tensor& values, const AxisBlocks& b, int64_t count) {
      visit_size(out.dtype(), [&]<class T>(TypeTag<T>) {
        const T* from = static_cast<const T*>(values.address());
        T* to = static_cast<T*>(out.address());
        // One thread writes to each line, in the order of the indices: the last one stays.
        const bool along = form_.along;
        parallel_for(b.lines(), std::max<int64_t>(64, detail::grain / count),
                     [=](int64_t begin, int64_t end) {
                       detail::each_block(begin, end, b.inner, [=](int64_t o, int64_t first, int64_t last) {
                         T* block = to + o * b.size * b.inner;
                         const T* put = from + o * count * b.inner;
                         const int64_t before = along ? o * count * b.inner : 0;
                         const auto index = [=](int64_t i) { return at(before + i); };
                         if (b.inner == 1)
                           detail::each_place(block, b.size, index, count,
                                              [=](int64_t c, int64_t place) { block[place] = put[c]; });
                         else if (along)
                           for (int64_t c = 0; c < count; ++c)
                             for (int64_t i = first; i < last; ++i)
                               block[index(c * b.inner + i) * b.inner + i] = put[c * b.inner + i];
                         else
                           for (int64_t c = 0; c < count; ++c)
                             std::copy(put + c * b.inner + first, put + c * b.inner + last,
                                       block + index(c) * b.inner + first);
                       });
                     });
      });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), indices = rule.input(1);
    return {rule.wants(0) ? put_chosen(form_, g, indices, zeros_like(rule.input(2))) : Variable(), Variable(),
            rule.wants(2) ? take_last(form_, g, indices) : Variable()};
  }
};

/// The transpose of Put with regard to its values: the elements of x at the indices, and zeros for all but
/// the last of several that choose one place.
class TakeLast : public ChoosingOp {
 public:
  explicit TakeLast(const Chosen& form)
      : ChoosingOp(form, {.linearity = Linearity::first,
                          .takes_halves = true,
                          .picks_from = InputSet::only(0),
                          .gradient_reads = InputSet::only(1)}) {}
  std::string_view name() const override { return "take_last"; }
  Specs infer(const InputSpecs& in) const override {
    return {{in[0]->dtype, form_.shape(*in[0], *in[1], put_name(form_))}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const Tensor x = call.inputs[0]->contiguous_copy();
    visit_size(out.dtype(), [&]<class T>(TypeTag<T>) {
      const T* from = static_cast<const T*>(x.address());
      T* to = static_cast<T*>(out.address());
      each_chosen(*call.inputs[1], x.shape(), out.shape(),
                  [=](int64_t element, int64_t place, bool last) { to[element] = last ? from[place] : T{}; });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    return {put_chosen(form_, zeros_like(rule.input(0)), rule.input(1), rule.output_gradient()), Variable()};
  }

 private:
  /// Calls f(element, place, last) for each element of what is chosen, with its place in x, and whether it is
  /// the last that has this place. Elements are divided among threads.
  template <class F>
  void each_chosen(const Tensor& indices, const Shape& x, const Shape& chosen, F&& f) const {
    const AxisBlocks b(x, resolve_axis(form_.axis, x.rank(), name()));
    const int64_t lines = b.lines(), count = lines == 0 ? 0 : chosen.elements() / lines;
    with_indices(seen_indices(indices, chosen), b.size, put_name(form_), true, [&](auto at, int64_t) {
      if (lines * count == 0) return;
      const auto lists = form_.along ? lines : 1;
      std::vector<uint8_t> is_last(static_cast<size_t>(lists * count));
      const int64_t inner = form_.along ? b.inner : 1;
      parallel_for(lists, std::max<int64_t>(1, detail::grain / (count + b.size)),
                   [&](int64_t begin, int64_t end) {
                     std::vector<int64_t> seen_in(static_cast<size_t>(b.size), -1);
                     for (int64_t line = begin; line < end; ++line)
                       for (int64_t c = count; c-- > 0;) {
                         const int64_t place = (line / inner * count + c) * inner + line % inner;
                         int64_t& list = seen_in[static_cast<size_t>(at(place))];
                         is_last[static_cast<size_t>(place)] = list != line;
                         list = line;
                       }
                   });
      const int64_t rows = b.outer * count;
      parallel_for(rows, std::max<int64_t>(1, detail::grain / b.inner), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t o = row / count, c = row % count;
          for (int64_t i = 0; i < b.inner; ++i) {
            const int64_t place = form_.along ? row * b.inner + i : c;
            f(row * b.inner + i, (o * b.size + at(place)) * b.inner + i,
              is_last[static_cast<size_t>(place)] != 0);
          }
        }
      });
    });
  }
};

/// `values` repeated to the shape of what is chosen. Inputs: values, x and indices, of which it reads the
/// shapes.
class BroadcastToChosen : public ViewOp {
 public:
  BroadcastToChosen(const Chosen& form, std::string function) : form_(form), function_(std::move(function)) {}
  std::string_view name() const override { return "broadcast_to_chosen"; }
  Attributes attributes() const override {
    return {{"axis", form_.axis}, {"along", form_.along}, {"function", function_}};
  }
  Specs infer(const InputSpecs& in) const override {
    const Shape &values = in[0]->shape, chosen = form_.shape(*in[1], *in[2], function_);
    bool fits = values.rank() <= chosen.rank();
    for (size_t i = 1; fits && i <= values.rank(); ++i) {
      const int64_t size = values.dims()[values.rank() - i];
      fits = size == 1 || size == chosen.dims()[chosen.rank() - i];
    }
    if (!fits)
      throw ShapeError(
          fmt::format("{}: values of shape {} cannot be repeated to {}, which the indices choose", function_,
                      values.str(), chosen.str()));
    return {{in[0]->dtype, chosen}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    return broadcast_layout(in, out.shape);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {sum_to_like(rule.output_gradient(), rule.input(0)), Variable(), Variable()};
  }

 private:
  Chosen form_;
  std::string function_;  // that the user called, for errors
};

Variable put_chosen(const Chosen& form, const Variable& x, const Variable& indices, const Variable& values) {
  return apply(std::make_shared<Put>(form), {&x, &indices, &values}, std::source_location::current());
}
Variable take_last(const Chosen& form, const Variable& x, const Variable& indices) {
  return apply(std::make_shared<TakeLast>(form), {&x, &indices}, std::source_location::current());
}

Variable put_values(const Chosen& form, const Operand& x, const Operand& indices, const Operand& values) {
  const auto op = std::make_shared<Put>(form);
  const Variable &to = x.defined(op->name()), &at = indices.defined(op->name());
  const Variable put = chosen_values(form, op->name(), x, indices, values);
  return apply(op, {&to, &at, &put}, x.where(), x.is_last());
}

Variable with_added(std::string_view function, const Operand& x, const Operand& indices,
                    const Operand& values, int64_t axis) {
  const CallScope scope(x.where(), function);
  const Variable added = chosen_values({axis, false}, function, x, indices, values);
  return x.variable() + scatter_add_like(added, indices.variable(), x.variable(), axis, function);
}

}  // namespace

Variable chosen_values(const Chosen& form, std::string_view function, const Operand& x,
                       const Operand& indices, const Operand& values) {
  const Variable &to = x.defined(function), &at = indices.defined(function), &given = values.like(to);
  if (given.defined() && given.dtype() != to.dtype())
    located(x.where(), [&] {
      throw TypeError(fmt::format("{}: values of {} (shape {}) for an x of {} (shape {}); cast() one of them",
                                  function, name(given.dtype()), given.shape().str(), name(to.dtype()),
                                  to.shape().str()));
    });
  const Shape chosen = located(x.where(), [&] {
    return form.shape({to.dtype(), to.shape()}, {at.dtype(), at.shape()}, function);
  });
  if (given.defined() && given.shape() == chosen) return given;
  // Such values might be repeated where those of PyTorch's functions of these names are one for each index.
  if (!form.along && at.rank() > 1 && given.defined() && given.shape() == at.shape())
    located(x.where(), [&] {
      throw ShapeError(fmt::format(
          "{0}: values of shape {1}, as the indices have; along axis {2} of {3} these choose slices: values "
          "are of shape {4}, or broadcast to it (reshape them). One value for each index is {5}",
          function, given.shape().str(), form.axis, to.shape().str(), chosen.str(),
          function == "scatter"       ? "put_along_axis, PyTorch's scatter"
          : function == "scatter_max" ? "max_along_axis, PyTorch's scatter_reduce"
          : function == "scatter_min" ? "min_along_axis, PyTorch's scatter_reduce"
                                      : "add_along_axis, PyTorch's scatter_add"));
    });
  return apply(std::make_shared<BroadcastToChosen>(form, std::string(function)), {&given, &to, &at},
               x.where());
}

Variable put_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return put_values({axis, true}, x, indices, values);
}
Variable scatter(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return put_values({axis, false}, x, indices, values);
}
Variable add_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  const CallScope scope(x.where());
  constexpr std::string_view function = "add_along_axis";
  const Variable added = chosen_values({axis, true}, function, x, indices, values);
  return x.variable() + add_along_axis_like(added, indices.variable(), x.variable(), axis, function);
}
Variable scatter_add(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return with_added("scatter_add", x, indices, values, axis);
}
Variable index_add(const Operand& x, const Operand& indices, const Operand& values, int64_t axis) {
  return with_added("index_add", x, indices, values, axis);
}

void add_scatter_ops(OpRegistry& ops) {
  const auto form = [](AttributeReader& a) { return Chosen{a.integer("axis"), a.flag("along")}; };
  for (const auto name : {"scatter", "put_along_axis"})
    ops.add(name, 3, [=](AttributeReader& a) { return std::make_shared<Put>(form(a)); });
  ops.add("take_last", 2, [=](AttributeReader& a) { return std::make_shared<TakeLast>(form(a)); });
  ops.add("broadcast_to_chosen", 3, [=](AttributeReader& a) {
    const Chosen chosen = form(a);
    return std::make_shared<BroadcastToChosen>(chosen, a.text("function"));
  });
}

}  // namespace espalier
