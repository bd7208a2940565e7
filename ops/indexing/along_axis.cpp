// Elements chosen along one axis, each by an index of its own, and the transpose of that.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "espalier/core/channels_last.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/indexing/chosen.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/indexing/pick_elements.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/view_op.h"

namespace espalier {

namespace {

/// Calls f(o, begin, end) for ranges of the inner axis of each block, on several threads: lines along the
/// axis are independent of each other.
template <class F>
void each_range_of_lines(const AxisBlocks& b, int64_t count, F&& f) {
  const int64_t inner = std::max<int64_t>(b.inner, 1);
  parallel_for(b.lines(), std::max<int64_t>(16, detail::grain / std::max<int64_t>(count, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t line = begin; line < end;) {
                   const int64_t o = line / inner, first = line % inner;
                   const int64_t last = std::min(inner, first + end - line);
                   f(o, first, last);
                   line += last - first;
                 }
               });
}

/// Calls f(at), where at(i) is the index of element i of what is chosen. Throws IndexError.
template <class F>
void with_indices_along(const Tensor& indices, const Shape& chosen, int64_t size, std::string_view op,
                        F&& f) {
  Tensor seen = indices;
  if (chosen.elements() > 0)
    seen = Tensor(indices.storage(), broadcast_layout(indices.layout(), chosen), indices.dtype());
  with_indices(seen, size, op, true, [&](auto at, int64_t) { f(at); });
}

class TakeAlongAxis : public Op {
 public:
  explicit TakeAlongAxis(int64_t axis)
      : Op({.linearity = Linearity::first,
            .takes_halves = true,
            .picks_from = InputSet::only(0),
            .gradient_reads = InputSet::only(1)}),
        axis_(axis) {}
  std::string_view name() const override { return "take_along_axis"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    return {{in[0]->dtype, Chosen{axis_, true}.shape(*in[0], *in[1], name())}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const size_t axis = resolve_axis(axis_, out.rank(), name());
    const Tensor x = call.inputs[0]->contiguous_copy();
    const AxisBlocks b(x.shape(), axis);
    const int64_t count = out.shape().dims()[axis];
    with_indices_along(*call.inputs[1], out.shape(), b.size, name(), [&](auto at) {
      visit_size(out.dtype(), [&]<class T>(TypeTag<T>) {
        const T* from = static_cast<const T*>(x.address());
        T* to = static_cast<T*>(out.address());
        if (b.inner == 1) {
          parallel_for(b.outer, std::max<int64_t>(1, detail::grain / std::max<int64_t>(count, 1)),
                       [=](int64_t begin, int64_t end) {
                         detail::pick_in_lines(to, from, b.size, count, at, begin, end);
                       });
          return;
        }
        each_range_of_lines(b, count, [=](int64_t o, int64_t begin, int64_t end) {
          for (int64_t c = 0; c < count; ++c) {
            const int64_t row = (o * count + c) * b.inner;
            for (int64_t i = begin; i < end; ++i)
              to[row + i] = from[(o * b.size + at(row + i)) * b.inner + i];
          }
        });
      });
    });
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    return {add_along_axis_like(rule.output_gradient(), rule.input(1), rule.input(0), axis_, name()),
            Variable()};
  }

 private:
  int64_t axis_;
};

/// The transpose: one thread adds to each element, in the order of the indices, so sums are deterministic.
class AddAlongAxisLike : public Op {
 public:
  AddAlongAxisLike(int64_t axis, std::string function)
      : Op({.linearity = Linearity::first,
            .adds_back = true,
            .reads = InputSet::first(2),
            .gradient_reads = InputSet::only(1),
            .sums_over_rows = true}),
        axis_(axis),
        function_(std::move(function)) {}
  std::string_view name() const override { return "add_along_axis_like"; }
  Attributes attributes() const override { return {{"axis", axis_}, {"function", function_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input < 2 && axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    const Shape chosen = Chosen{axis_, true}.shape(*in[2], *in[1], function_);
    if (!(in[0]->shape == chosen))
      throw ShapeError(fmt::format("add_along_axis_like: values of shape {} in place of {}",
                                   in[0]->shape.str(), chosen.str()));
    return {{in[0]->dtype, in[2]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const size_t axis = resolve_axis(axis_, out.rank(), name());
    const Tensor x = call.inputs[0]->contiguous_copy();
    const AxisBlocks b(out.shape(), axis);
    const int64_t count = x.shape().dims()[axis];
    with_indices_along(*call.inputs[1], x.shape(), b.size, function_, [&](auto at) {
      visit(out.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Numbers::accepts<T>) {
          const T* from = static_cast<const T*>(x.address());
          T* to = static_cast<T*>(out.address());
          each_range_of_lines(b, count + b.size, [=](int64_t o, int64_t begin, int64_t end) {
            if (b.inner == 1)
              std::fill_n(to + o * b.size, b.size, T{});
            else
              for (int64_t k = 0; k < b.size; ++k)
                std::fill_n(to + (o * b.size + k) * b.inner + begin, end - begin, T{});
            if (b.inner == 1) {
              T* sums = to + o * b.size;
              const T* added = from + o * count;
              const auto in_line = [=](int64_t c) { return at(o * count + c); };
              detail::each_place(sums, b.size, in_line, count, [=](int64_t c, int64_t place) {
                sums[place] = scalar::Add()(sums[place], added[c]);
              });
              return;
            }
            for (int64_t c = 0; c < count; ++c) {
              const int64_t row = (o * count + c) * b.inner;
              for (int64_t i = begin; i < end; ++i) {
                T& sum = to[(o * b.size + at(row + i)) * b.inner + i];
                sum = scalar::Add()(sum, from[row + i]);
              }
            }
          });
        }
      });
    });
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable(), Variable()};
    return {take_along_axis(rule.output_gradient(), rule.input(1), axis_), Variable(), Variable()};
  }

 private:
  int64_t axis_;
  std::string function_;  // that the user called, for errors
};

/// `x` repeated to the sizes of `like`, but for one axis.
struct BroadcastBeside : ViewOp {
  explicit BroadcastBeside(int64_t axis) : axis_(axis) {}
  std::string_view name() const override { return "broadcast_beside"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    const Shape &x = in[0]->shape, &like = in[1]->shape;
    const size_t axis = resolve_axis(axis_, x.rank(), "take_along_axis");
    Shape beside = like;
    if (x.rank() == like.rank()) beside.dims()[axis] = x.dims()[axis];
    return {{in[0]->dtype, broadcast(x, beside, "take_along_axis")}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    return broadcast_layout(in, out.shape);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {sum_to_like(rule.output_gradient(), rule.input(0)), Variable()};
  }

 private:
  int64_t axis_;
};

/// Whether `x` must be repeated beside the axis.
bool is_repeated_beside(const Variable& x, const Variable& indices, int64_t axis) {
  const Dims &from = x.shape().dims(), &list = indices.shape().dims();
  const auto rank = static_cast<int64_t>(from.size());
  if (from.size() != list.size() || axis < -rank || axis >= rank) return false;
  const auto a = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  for (size_t i = 0; i < from.size(); ++i)
    if (i != a && from[i] == 1 && list[i] != 1) return true;
  return false;
}

}  // namespace

Variable take_along_axis(const Operand& x, const Operand& indices, int64_t axis) {
  const Variable &from = x.defined("take_along_axis"), &at = indices.defined("take_along_axis");
  const auto op = std::make_shared<TakeAlongAxis>(axis);
  if (!is_repeated_beside(from, at, axis)) return apply(op, {&from, &at}, x.where());
  const Variable repeated = apply(std::make_shared<BroadcastBeside>(axis), {&from, &at}, x.where());
  return apply(op, {&repeated, &at}, x.where());
}

Variable add_along_axis_like(const Variable& x, const Variable& indices, const Variable& like, int64_t axis,
                             std::string_view function) {
  return apply(std::make_shared<AddAlongAxisLike>(axis, std::string(function)), {&x, &indices, &like},
               std::source_location::current());
}

void add_along_axis_ops(OpRegistry& ops) {
  ops.add("take_along_axis", 2,
          [](AttributeReader& a) { return std::make_shared<TakeAlongAxis>(a.integer("axis")); });
  ops.add("add_along_axis_like", 3, [](AttributeReader& a) {
    const int64_t axis = a.integer("axis");
    return std::make_shared<AddAlongAxisLike>(axis, a.text("function", "add_along_axis_like"));
  });
  ops.add("broadcast_beside", 2,
          [](AttributeReader& a) { return std::make_shared<BroadcastBeside>(a.integer("axis")); });
}

}  // namespace espalier
