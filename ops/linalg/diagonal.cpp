// Diagonals of matrices, and matrices of diagonals.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "espalier/core/countable.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/compare.h"
#include "espalier/ops/functions/diagonal.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/view_op.h"

namespace espalier {

namespace {

/// A diagonal of the matrices on two axes.
struct DiagonalPlace {
  int64_t offset, axis1, axis2;

  /// Where its elements lie: the other axes, then one for the diagonal.
  Layout layout(const Layout& in, std::string_view op) const {
    const Dims& sizes = in.shape.dims();
    const size_t a = resolve_axis(axis1, sizes.size(), op), b = resolve_axis(axis2, sizes.size(), op);
    if (a == b) throw ShapeError(fmt::format("{}: both axes are axis {} of {}", op, axis1, in.shape.str()));
    Layout out;
    out.offset = in.offset;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (i == a || i == b) continue;
      out.shape.dims().push_back(sizes[i]);
      out.strides.push_back(in.strides[i]);
    }
    const int64_t below = offset < 0 ? -std::max(offset, -sizes[a]) : 0,
                  beside = offset > 0 ? std::min(offset, sizes[b]) : 0;
    const int64_t count = std::min(sizes[a] - below, sizes[b] - beside);
    if (count > 0) out.offset += below * in.strides[a] + beside * in.strides[b];
    out.shape.dims().push_back(count);
    out.strides.push_back(in.strides[a] + in.strides[b]);
    return out;
  }
  Attributes attributes() const { return {{"offset", offset}, {"axis1", axis1}, {"axis2", axis2}}; }
};

Variable diagonal_at(const DiagonalPlace& place, const Variable& x,
                     const std::source_location& where = std::source_location::current());
Variable put_diagonal_like(const DiagonalPlace& place, const Variable& x, const Variable& like);

struct Diagonal : ViewOp {
  explicit Diagonal(const DiagonalPlace& place) : place_(place) {}
  std::string_view name() const override { return "diagonal"; }
  Attributes attributes() const override { return place_.attributes(); }
  Specs infer(const InputSpecs& in) const override {
    return {{in[0]->dtype, place_.layout(Layout(in[0]->shape), name()).shape}};
  }
  std::optional<Layout> view(const Layout& in, const Spec&) const override {
    return place_.layout(in, name());
  }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override { return std::nullopt; }
  Gradients gradient(const GradientRule& rule) const override {
    return {put_diagonal_like(place_, rule.output_gradient(), rule.input(0))};
  }

 private:
  DiagonalPlace place_;
};

/// The transpose of Diagonal: zeros in the shape of the second input, but on the diagonal.
class PutDiagonalLike : public Op {
 public:
  explicit PutDiagonalLike(const DiagonalPlace& place)
      : Op({.linearity = Linearity::first,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::none()}),
        place_(place) {}
  std::string_view name() const override { return "put_diagonal_like"; }
  Attributes attributes() const override { return place_.attributes(); }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis + 1 == in[0]->shape.rank();
  }
  Specs infer(const InputSpecs& in) const override {
    if (const Shape part = place_.layout(Layout(in[1]->shape), name()).shape; !(in[0]->shape == part))
      throw ShapeError(fmt::format("{}: {} in place of the diagonals {} of {}", name(), in[0]->shape.str(),
                                   part.str(), in[1]->shape.str()));
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    Tensor part(out.storage(), place_.layout(out.layout(), name()), out.dtype());
    copy_elements(*call.inputs[0], part);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {diagonal_at(place_, rule.output_gradient()), Variable()};
  }

 private:
  DiagonalPlace place_;
};

Variable diagonal_at(const DiagonalPlace& place, const Variable& x, const std::source_location& where) {
  return apply(std::make_shared<Diagonal>(place), {&x}, where);
}
Variable put_diagonal_like(const DiagonalPlace& place, const Variable& x, const Variable& like) {
  return apply(std::make_shared<PutDiagonalLike>(place), {&x, &like}, std::source_location::current());
}

/// Matrices on the last two axes with a diagonal of its own and zeros elsewhere.
class DiagEmbed : public Op {
 public:
  explicit DiagEmbed(int64_t offset)
      : Op({.linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        offset_(offset) {}
  std::string_view name() const override { return "diag_embed"; }
  Attributes attributes() const override { return {{"offset", offset_}}; }
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis + 1 == in[0]->shape.rank();
  }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    if (shape.rank() == 0) throw ShapeError("diag_embed: a scalar has no axis");
    int64_t size = shape.dims().back();
    if (offset_ == std::numeric_limits<int64_t>::min() ||
        __builtin_add_overflow(size, std::abs(offset_), &size))
      throw ShapeError(fmt::format("diag_embed: diagonal {} is out of reach", offset_));
    shape.dims().back() = size;
    shape.dims().push_back(size);
    check_countable(shape, "diag_embed");
    return {{in[0]->dtype, std::move(shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    Tensor part(out.storage(), DiagonalPlace{offset_, -2, -1}.layout(out.layout(), name()), out.dtype());
    copy_elements(*call.inputs[0], part);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {diagonal(rule.output_gradient(), offset_, -2, -1)};
  }

 private:
  int64_t offset_;
};

/// Copies contiguous matrices with zeros where column − row is above, or below, `diagonal`.
void copy_triangle(const Tensor& x, int64_t diagonal, bool lower, Tensor& out) {
  const int64_t rows = x.shape()[-2], columns = x.shape()[-1];
  if (x.elements() == 0) return;
  visit_size(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* from = static_cast<const T*>(x.address());
    T* to = static_cast<T*>(out.address());
    parallel_for(x.elements() / columns, std::max<int64_t>(1, detail::grain / columns),
                 [=](int64_t begin, int64_t end) {
                   for (int64_t line = begin; line < end; ++line) {
                     const int64_t row = line % rows;
                     // How many columns are before the first that is cut off, or kept.
                     const int64_t distance = std::clamp(diagonal, -rows, columns);
                     const int64_t cut = std::clamp<int64_t>(row + distance + lower, 0, columns);
                     const T* in = from + line * columns;
                     T* result = to + line * columns;
                     std::fill(lower ? result + cut : result, lower ? result + columns : result + cut, T{});
                     std::copy(lower ? in : in + cut, lower ? in + cut : in + columns,
                               lower ? result : result + cut);
                   }
                 });
  });
}

/// Whether column − row is at most, or at least, `diagonal` in the last two axes.
Variable triangle(const Operand& x, int64_t diagonal, bool lower, std::string_view function) {
  const CallScope scope(x.where(), function);
  const Variable& v = x.defined(function);
  if (v.rank() < 2)
    located(x.where(), [&] {
      throw ShapeError(fmt::format("{}: the shape {} has no matrices", function, v.shape().str()));
    });
  const Variable zero = full({}, 0, v.dtype()).to(v.device());
  const auto mask = [&] {
    const Variable rows = unsqueeze(positions_like(v, -2), 1), columns = positions_like(v, -1);
    const Variable distance = columns - rows;
    return lower ? less_equal(distance, diagonal) : greater_equal(distance, diagonal);
  };
  if (!is_eager_on_cpu(v)) return where(mask(), v, zero);
  const Variable kept = [&] {
    const ValuesLater later;
    return mask();
  }();
  const auto compute = [&](Tensor& out) { copy_triangle(v.value().contiguous_copy(), diagonal, lower, out); };
  return apply_by(compute, where_op(), {&kept, &v, &zero}, x.where());
}

}  // namespace

Variable diagonal(const Operand& x, int64_t offset, int64_t axis1, int64_t axis2) {
  return diagonal_at({offset, axis1, axis2}, x.variable(), x.where());
}
Variable diag_embed(const Operand& x, int64_t offset) {
  return apply(std::make_shared<DiagEmbed>(offset), {&x.variable()}, x.where());
}
Variable diag(const Operand& x, int64_t offset) {
  const Variable& v = x.defined("diag");
  if (v.rank() == 1) return diag_embed(x, offset);
  if (v.rank() != 2)
    located(x.where(), [&] {
      throw ShapeError(
          fmt::format("diag: takes a vector or a matrix, not the shape {}; see diagonal and diag_embed",
                      v.shape().str()));
    });
  return diagonal(x, offset);
}
Variable block_diag(const std::vector<Variable>& matrices, std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    if (matrices.empty()) throw Error("block_diag: there are no matrices");
    int64_t columns = 0;
    for (const Variable& m : matrices) {
      if (!m.defined()) throw Error("block_diag: a matrix is an undefined Variable");
      if (m.rank() > 2)
        throw ShapeError(fmt::format("block_diag: takes matrices, not the shape {}", m.shape().str()));
      columns += m.rank() == 0 ? 1 : m.shape()[-1];
    }
    std::vector<Variable> rows;
    int64_t before = 0;
    for (const Variable& m : matrices) {
      const Variable matrix = atleast_2d(m);
      const int64_t own = matrix.shape()[1];
      rows.push_back(pad(matrix, {{before, columns - before - own}}));
      before += own;
    }
    return concat(rows, 0);
  });
}
Variable trace(const Operand& x, int64_t offset, int64_t axis1, int64_t axis2) {
  return sum({diagonal(x, offset, axis1, axis2), x.where()}, -1);
}
Variable tril(const Operand& x, int64_t diagonal) { return triangle(x, diagonal, true, "tril"); }
Variable triu(const Operand& x, int64_t diagonal) { return triangle(x, diagonal, false, "triu"); }

void add_diagonal_ops(OpRegistry& ops) {
  const auto place = [](AttributeReader& a) {
    return DiagonalPlace{a.integer("offset"), a.integer("axis1"), a.integer("axis2")};
  };
  ops.add("diagonal", 1, [=](AttributeReader& a) { return std::make_shared<Diagonal>(place(a)); });
  ops.add("put_diagonal_like", 2,
          [=](AttributeReader& a) { return std::make_shared<PutDiagonalLike>(place(a)); });
  ops.add("diag_embed", 1,
          [](AttributeReader& a) { return std::make_shared<DiagEmbed>(a.integer("offset")); });
}

}  // namespace espalier
