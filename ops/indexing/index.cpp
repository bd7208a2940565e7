// Gathering and scattering by index.
#include <algorithm>
#include <string>
#include <utility>

#include "espalier/core/deferred/stacked.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/element_bits.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/indexing/look_up.h"
#include "espalier/ops/indexing/pick_elements.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// The shape of a tensor as [outer, axis, inner].
struct Blocks {
  int64_t outer = 1, size, inner = 1;
  Blocks(const Shape& shape, size_t axis) : size(shape.dims()[axis]) {
    for (size_t i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape.dims()[i];
  }
};

/// The shape of what `indices` choose along an axis of x.
Shape gathered_shape(const Shape& x, size_t axis, const Shape& indices) {
  Dims dims(x.begin(), x.begin() + axis);
  dims.append(indices.begin(), indices.end());
  dims.append(x.begin() + axis + 1, x.end());
  return Shape(std::move(dims));
}

class Gather : public Op, public Batchable {
 public:
  explicit Gather(int64_t axis)
      : Op({.linearity = Linearity::first,
            .takes_halves = true,
            .picks_from = InputSet::only(0),
            .gradient_reads = InputSet::only(1)}),
        axis_(axis) {}
  std::string_view name() const override { return "gather"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    check_indices(*in[1], named_in_errors());
    const Shape& x = in[0]->shape;
    return {{in[0]->dtype, gathered_shape(x, resolve_axis(axis_, x.rank(), name()), in[1]->shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const Blocks b(x.shape(), resolve_axis(axis_, x.rank(), name()));
    const int64_t bytes = b.inner * static_cast<int64_t>(size_of(x.dtype()));
    const char* from = static_cast<const char*>(x.address());
    char* to = static_cast<char*>(call.outputs[0]->address());
    with_indices(*call.inputs[1], b.size, named_in_errors(), from_end(), [&](auto at, int64_t count) {
      if (bytes == 0) return;
      constexpr int64_t grain = 256 * 1024;  // bytes, at least, for each thread
      parallel_for(b.outer * count, std::max<int64_t>(1, grain / bytes), [=](int64_t first, int64_t last) {
        detail::each_block(first, last, count, [=](int64_t o, int64_t begin, int64_t end) {
          detail::pick_rows(to + o * count * bytes, from + o * b.size * bytes, bytes, at, begin, end);
        });
      });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    const auto axis = static_cast<int64_t>(resolve_axis(axis_, rule.input(0).rank(), name()));
    return {scatter_add_like(rule.output_gradient(), rule.input(1), rule.input(0), axis, named_in_errors(),
                             from_end()),
            Variable()};
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    return resolve_axis(axis_, in[0]->shape.rank(), name()) == 0 ? InputSet::only(1) : InputSet::none();
  }
  Gradients batched(const Stacked& in) const override {
    if (!in.is_shared(0) || resolve_axis(axis_, in.rank(0), name()) != 0) return {};
    return {apply(in.op(), {&in[0], &in[1]}, std::source_location::current())};
  }

 protected:
  virtual std::string_view named_in_errors() const { return name(); }
  /// Whether negative indices count from the end.
  virtual bool from_end() const { return true; }

 private:
  int64_t axis_;
};

/// gather along the first axis, for a function or layer that errors name.
class LookUp : public Gather {
 public:
  LookUp(std::string function, bool from_end)
      : Gather(0), function_(std::move(function)), from_end_(from_end) {}
  std::string_view name() const override { return "look_up"; }
  Attributes attributes() const override { return {{"function", function_}, {"from_end", from_end_}}; }

 protected:
  std::string_view named_in_errors() const override { return function_; }
  bool from_end() const override { return from_end_; }

 private:
  std::string function_;
  bool from_end_;
};

/// The transpose of gather. One thread adds to each element, in the order of the indices: deterministic.
class ScatterAddLike : public Op {
 public:
  ScatterAddLike(int64_t axis, std::string function, bool from_end)
      : Op({.linearity = Linearity::first,
            .adds_back = true,
            .deferred = axis == 0,
            .reads = InputSet::first(2),
            .gradient_reads = InputSet::only(1),
            .sums_over_rows = true}),
        axis_(axis),
        function_(std::move(function)),
        from_end_(from_end) {}
  std::string_view name() const override { return "scatter_add_like"; }
  Attributes attributes() const override {
    return {{"axis", axis_}, {"function", function_}, {"from_end", from_end_}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_indices(*in[1], function_);
    const Shape& like = in[2]->shape;
    const Shape chosen = gathered_shape(like, resolve_axis(axis_, like.rank(), name()), in[1]->shape);
    if (!(in[0]->shape == chosen))
      throw ShapeError(fmt::format("scatter_add_like: {} in place of {}, which indices {} choose of {}",
                                   in[0]->shape.str(), chosen.str(), in[1]->shape.str(), like.str()));
    return {{in[0]->dtype, like}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const Blocks b(out.shape(), resolve_axis(axis_, out.rank(), name()));
    const Tensor x = call.inputs[0]->contiguous_copy();
    with_indices(*call.inputs[1], b.size, function_, from_end_, [&](auto at, int64_t count) {
      visit(out.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Numbers::accepts<T>)
          add_rows(static_cast<T*>(out.address()), static_cast<const T*>(x.address()), b, at, count);
      });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {gather(rule.output_gradient(), rule.input(1), axis_), Variable(), Variable()};
  }

 private:
  template <class T, class At>
  static void add_rows(T* to, const T* from, const Blocks& b, At at, int64_t count) {
    // Threads divide the columns, in ranges so wide that they rarely write to the same cache line.
    const int64_t rows = b.outer * (b.size + count);
    const int64_t grain = std::max<int64_t>(64, detail::grain / std::max<int64_t>(rows, 1));
    parallel_for(b.inner, grain, [=](int64_t begin, int64_t end) {
      const int64_t n = end - begin;
      if (n == b.inner)
        std::fill_n(to, b.outer * b.size * n, T{});
      else
        for (int64_t row = 0; row < b.outer * b.size; ++row) std::fill_n(to + row * b.inner + begin, n, T{});
      for (int64_t o = 0; o < b.outer; ++o) {
        T* sums = to + o * b.size * b.inner + begin;
        const T* added = from + o * count * b.inner + begin;
        if (b.inner == 1)
          detail::each_place(sums, b.size, at, count, [=](int64_t i, int64_t place) {
            sums[place] = scalar::Add()(sums[place], added[i]);
          });
        else
          for (int64_t i = 0; i < count; ++i) {
            T* sum = sums + at(i) * b.inner;
            detail::binary_row<scalar::Add, T, T>(n, sum, sum, 1, added + i * b.inner, 1);
          }
      }
    });
  }

  int64_t axis_;
  std::string function_;  // that the user called, for errors
  bool from_end_;
};

/// Calls `f(row, index)` for each index into the last axis, of size `size`. Negative indices are errors:
/// indices are mostly classes, and -1 marks a missing label. `function` is what the user called; those by
/// other names than pick, put_like and one_hot are losses and metrics of labels.
template <class F>
void each_row(const Tensor& indices, int64_t size, std::string_view function, F&& f) {
  const bool labels = function != "pick" && function != "put_like" && function != "one_hot";
  with_indices(
      indices, size, function, false,
      [&](auto at, int64_t count) {
        for (int64_t row = 0; row < count; ++row) f(row, at(row));
      },
      labels);
}

/// Throws unless there is an index into the last axis of x for each of its rows.
void check_row_indices(const Shape& x, const Spec& indices, std::string_view op, std::string_view function) {
  check_indices(indices, function);
  if (x.rank() == 0 || !std::equal(x.begin(), x.end() - 1, indices.shape.begin(), indices.shape.end()))
    throw ShapeError(fmt::format("{}: indices of shape {} must have the shape {} without its last axis", op,
                                 indices.shape.str(), x.str()));
}

class Pick : public Op, public Batchable {
 public:
  explicit Pick(std::string function)
      : Op({.linearity = Linearity::first, .takes_halves = true, .gradient_reads = InputSet::only(1)}),
        function_(std::move(function)) {}
  std::string_view name() const override { return "pick"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_row_indices(in[0]->shape, *in[1], name(), function_);
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    visit_size(x.dtype(), [&]<class T>(TypeTag<T>) {
      const T* from = static_cast<const T*>(x.address());
      T* out = detail::output<T>(call);
      each_row(*call.inputs[1], n, function_, [&](int64_t row, int64_t i) { out[row] = from[row * n + i]; });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    return {put_like(rule.output_gradient(), rule.input(1), rule.input(0), function_), Variable()};
  }

  InputSet row_inputs(const InputSpecs& in) const override {
    return in[0]->shape.rank() > 1 ? InputSet::all() : InputSet::none();
  }
  Gradients batched(const Stacked& in) const override {
    const Variable x = in.stacked(0), indices = in.stacked(1);
    return {apply(in.op(), {&x, &indices}, std::source_location::current())};
  }

 private:
  std::string function_;  // that the user called, for errors
};

/// The transpose of pick.
class PutLike : public Op {
 public:
  explicit PutLike(std::string function)
      : Op({.linearity = Linearity::first,
            .takes_halves = true,
            .reads = InputSet::first(2),
            .gradient_reads = InputSet::only(1)}),
        function_(std::move(function)) {}
  std::string_view name() const override { return "put_like"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_row_indices(in[2]->shape, *in[1], name(), function_);
    if (!(in[0]->shape == in[1]->shape))
      throw ShapeError(
          fmt::format("put_like: {} at indices of shape {}", in[0]->shape.str(), in[1]->shape.str()));
    return {{in[0]->dtype, in[2]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = out.shape()[-1];
    visit_size(out.dtype(), [&]<class T>(TypeTag<T>) {
      T* to = static_cast<T*>(out.address());
      const T* from = static_cast<const T*>(x.address());
      std::fill_n(to, out.elements(), T{});
      each_row(*call.inputs[1], n, function_, [&](int64_t row, int64_t i) { to[row * n + i] = from[row]; });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), &indices = rule.input(1);
    return {apply(kept_op<Pick>(function_), {&g, &indices}, std::source_location::current()), Variable(),
            Variable()};
  }

 private:
  std::string function_;  // that the user called, for errors
};

class OneHot : public Op, public Batchable {
 public:
  OneHot(int64_t classes, DType dtype)
      : Op({.takes_halves = true, .gradient_reads = InputSet::none()}), classes_(classes), dtype_(dtype) {}
  std::string_view name() const override { return "one_hot"; }
  Attributes attributes() const override {
    return {{"classes", classes_}, {"dtype", std::string(espalier::name(dtype_))}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_indices(*in[0], name());
    if (classes_ < 1)
      throw ShapeError(fmt::format("one_hot: the number of classes is {}; it must be at least 1", classes_));
    Dims dims = in[0]->shape.dims();
    dims.push_back(classes_);
    return {{dtype_, Shape(std::move(dims))}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    visit_size(out.dtype(), [&]<class T>(TypeTag<T>) {
      T* to = static_cast<T*>(out.address());
      const T one = element_bits<T>(1, out.dtype());
      std::fill_n(to, out.elements(), T{});
      each_row(*call.inputs[0], classes_, name(),
               [&](int64_t row, int64_t i) { to[row * classes_ + i] = one; });
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
  Gradients batched(const Stacked& in) const override {
    const Variable indices = in.stacked(0);
    return {apply(in.op(), {&indices}, std::source_location::current())};
  }

 private:
  int64_t classes_;
  DType dtype_;
};

}  // namespace

Variable gather(const Operand& x, const Operand& indices, int64_t axis) {
  return apply(kept_op<Gather>(axis), {&x.variable(), &indices.variable()}, x.where());
}
Variable look_up(std::string_view function, const Variable& table, const Variable& indices, bool from_end) {
  return apply(kept_op<LookUp>(function, from_end), {&table, &indices}, std::source_location::current());
}
Variable scatter_add_like(const Variable& x, const Variable& indices, const Variable& like, int64_t axis,
                          std::string_view function, bool from_end) {
  return apply(kept_op<ScatterAddLike>(axis, function, from_end), {&x, &indices, &like},
               std::source_location::current());
}
Variable pick(const Operand& x, const Operand& indices) {
  static const OpPtr op = std::make_shared<Pick>("pick");
  return apply(op, {&x.variable(), &indices.variable()}, x.where());
}
Variable pick_for(std::string_view function, const Variable& x, const Variable& labels) {
  return apply(kept_op<Pick>(function), {&x, &labels}, std::source_location::current());
}
Variable put_like(const Variable& x, const Variable& indices, const Variable& like,
                  std::string_view function) {
  return apply(kept_op<PutLike>(function), {&x, &indices, &like}, std::source_location::current());
}
Variable one_hot(const Operand& indices, int64_t classes, DType dtype) {
  return apply(kept_op<OneHot>(classes, dtype), {&indices.variable()}, indices.where());
}

void add_index_ops(OpRegistry& ops) {
  ops.add("pick", 2, [](AttributeReader& a) { return std::make_shared<Pick>(a.text("function")); });
  ops.add("put_like", 3,
          [](AttributeReader& a) { return std::make_shared<PutLike>(a.text("function", "put_like")); });
  ops.add("gather", 2, [](AttributeReader& a) { return std::make_shared<Gather>(a.integer("axis")); });
  ops.add("look_up", 2, [](AttributeReader& a) {
    return std::make_shared<LookUp>(a.text("function"), a.flag("from_end"));
  });
  ops.add("scatter_add_like", 3, [](AttributeReader& a) {
    const int64_t axis = a.integer("axis");
    const bool from_end = a.flag("from_end", true);
    return std::make_shared<ScatterAddLike>(axis, a.text("function", "scatter_add_like"), from_end);
  });
  ops.add("one_hot", 1, [](AttributeReader& a) {
    return std::make_shared<OneHot>(a.integer("classes", 1), a.dtype("dtype"));
  });
}

}  // namespace espalier
