// Products of vectors and tensors, composed of contractions, multiplications and sums.
#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/arithmetic.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/linear_algebra.h"
#include "espalier/ops/functions/math.h"
#include "espalier/ops/functions/products.h"
#include "espalier/ops/functions/reduction.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/products/contract.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/views/axis_groups.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier {

namespace {

/// Runs `f(a, b)` with both operands, under the user's line.
template <class F>
Variable of_pair(const Operand& a, const Operand& b, std::string_view op, F&& f) {
  const CallScope scope(a.where(), op);
  return located(a.where(), [&] {
    const Variable &x = a.is_number() ? a.like(b.defined(op)) : a.defined(op),
                   &y = b.is_number() ? b.like(x) : b.defined(op);
    return f(x, y);
  });
}

[[noreturn]] void throw_pair(std::string_view op, std::string_view wanted, const Variable& a,
                             const Variable& b) {
  throw ShapeError(fmt::format("{}: takes {}, not {} and {}", op, wanted, a.shape().str(), b.shape().str()));
}

void check_real_pair(std::string_view op, const Variable& a, const Variable& b) {
  const Spec x{a.dtype(), a.shape()}, y{b.dtype(), b.shape()};
  check_same_dtype(x, y, op);
  check_dtype<Reals>(x, op);
}

/// The sum over pairs of axes, each counted from the front.
Variable contracted(std::string_view op, const Variable& a, const Variable& b, const Dims& of_a,
                    const Dims& of_b) {
  check_real_pair(op, a, b);
  Labelled x{a, AxisLabels(a.rank())}, y{b, AxisLabels(b.rank())};
  std::iota(x.labels.begin(), x.labels.end(), 0);
  std::iota(y.labels.begin(), y.labels.end(), static_cast<int>(a.rank()));
  std::vector<bool> summed(a.rank() + b.rank());
  for (size_t i = 0; i < of_a.size(); ++i) {
    const auto axis = static_cast<size_t>(of_a[i]), other = static_cast<size_t>(of_b[i]);
    if (a.shape().dims()[axis] != b.shape().dims()[other])
      throw ShapeError(fmt::format("{}: axis {} of {} and axis {} of {} differ in size", op, axis,
                                   a.shape().str(), other, b.shape().str()));
    summed[axis] = summed[a.rank() + other] = true;
    y.labels[other] = static_cast<int>(axis);
  }
  AxisLabels output;
  for (size_t label = 0; label < summed.size(); ++label)
    if (!summed[label]) output.push_back(static_cast<int>(label));
  return contract({std::move(x), std::move(y)}, output);
}

/// `x` with as many leading axes of size 1 as it lacks.
Variable with_rank(const Variable& x, size_t rank) {
  Dims added;
  for (size_t i = x.rank(); i < rank; ++i) added.push_back(static_cast<int64_t>(i - x.rank()));
  return unsqueeze_axes(x, added);
}

/// x₁, x₂, x₀ along an axis of size 3, or with `back` x₂, x₀, x₁.
Variable turned(const Variable& x, int64_t axis, bool back) {
  const int64_t at = back ? 2 : 1;
  return concat({slice(x, axis, at, 3), slice(x, axis, 0, at)}, axis);
}

/// The cross products of vectors along an axis, floats or doubles of one shape.
void cross_vectors(const Tensor& a, const Tensor& b, int64_t axis, Tensor& out) {
  int64_t inner = 1;  // the distance of a vector's elements
  for (size_t i = static_cast<size_t>(axis) + 1; i < a.rank(); ++i) inner *= a.shape().dims()[i];
  visit(a.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      const T *of_a = static_cast<const T*>(a.address()), *of_b = static_cast<const T*>(b.address());
      T* const result = static_cast<T*>(out.address());
      parallel_for(a.elements() / 3, detail::grain / 4, [=](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) {
          const int64_t at = inner == 1 ? 3 * v : v / inner * 3 * inner + v % inner;
          const T *x = of_a + at, *y = of_b + at;
          T* const z = result + at;
          z[0] = x[inner] * y[2 * inner] - x[2 * inner] * y[inner];
          z[inner] = x[2 * inner] * y[0] - x[0] * y[2 * inner];
          z[2 * inner] = x[0] * y[inner] - x[inner] * y[0];
        }
      });
    }
  });
}

}  // namespace

Variable outer(const Operand& a, const Operand& b) {
  return of_pair(a, b, "outer", [](const Variable& x, const Variable& y) {
    if (x.rank() != 1 || y.rank() != 1) throw_pair("outer", "two vectors", x, y);
    return unsqueeze(x, 1) * y;
  });
}

Variable dot(const Operand& a, const Operand& b) {
  return of_pair(a, b, "dot", [](const Variable& x, const Variable& y) {
    if (x.rank() != 1 || !(x.shape() == y.shape())) throw_pair("dot", "two vectors of one size", x, y);
    return summed_products(x, y);
  });
}

Variable inner(const Operand& a, const Operand& b) {
  return of_pair(a, b, "inner", [](const Variable& x, const Variable& y) {
    if (x.rank() == 0 || y.rank() == 0) return x * y;
    const bool of_vector = x.rank() > 1 && y.rank() == 1 && x.shape()[-1] == y.shape()[-1];
    if (of_vector && is_real(x.dtype()) && x.dtype() == y.dtype())
      return squeeze(matmul(x, unsqueeze(y, 1)), -1);
    const auto last_x = static_cast<int64_t>(x.rank()) - 1, last_y = static_cast<int64_t>(y.rank()) - 1;
    return contracted("inner", x, y, {last_x}, {last_y});
  });
}

Variable vecdot(const Operand& a, const Operand& b, int64_t axis) {
  return of_pair(a, b, "vecdot", [&](const Variable& x, const Variable& y) {
    const Shape shape = broadcast(x.shape(), y.shape(), "vecdot");
    (void)resolve_axis(axis, shape.rank(), "vecdot");
    return summed_products(x, y, Axes{axis});
  });
}

Variable tensordot(const Operand& a, const Operand& b, int64_t axes) {
  return of_pair(a, b, "tensordot", [&](const Variable& x, const Variable& y) {
    if (axes < 0 || axes > static_cast<int64_t>(std::min(x.rank(), y.rank())))
      throw ShapeError(fmt::format("tensordot: {} and {} have no {} axes to be summed over", x.shape().str(),
                                   y.shape().str(), axes));
    Dims of_x, of_y;
    for (int64_t i = 0; i < axes; ++i) {
      of_x.push_back(static_cast<int64_t>(x.rank()) - axes + i);
      of_y.push_back(i);
    }
    return contracted("tensordot", x, y, of_x, of_y);
  });
}

Variable tensordot(const Operand& a, const Operand& b, const Axes& axes_a, const Axes& axes_b) {
  return of_pair(a, b, "tensordot", [&](const Variable& x, const Variable& y) {
    if (axes_a.list().size() != axes_b.list().size())
      throw ShapeError(fmt::format("tensordot: {} axes of {} do not pair with {} of {}", axes_a.list().size(),
                                   x.shape().str(), axes_b.list().size(), y.shape().str()));
    (void)axes_a.mask(x.rank(), "tensordot");  // throws on axes that come twice
    (void)axes_b.mask(y.rank(), "tensordot");
    Dims of_x, of_y;
    for (size_t i = 0; i < axes_a.list().size(); ++i) {
      of_x.push_back(static_cast<int64_t>(resolve_axis(axes_a.list()[i], x.rank(), "tensordot")));
      of_y.push_back(static_cast<int64_t>(resolve_axis(axes_b.list()[i], y.rank(), "tensordot")));
    }
    return contracted("tensordot", x, y, of_x, of_y);
  });
}

Variable cross(const Operand& a, const Operand& b, int64_t axis) {
  return of_pair(a, b, "cross", [&](const Variable& x, const Variable& y) {
    const size_t rank = std::max(x.rank(), y.rank());
    const Variable u = with_rank(x, rank), v = with_rank(y, rank);
    const auto at = static_cast<int64_t>(resolve_axis(axis, rank, "cross"));
    if (u.shape()[at] != 3 || v.shape()[at] != 3)
      throw_pair("cross", fmt::format("vectors of size 3 along axis {}", axis), x, y);
    (void)broadcast(u.shape(), v.shape(), "cross");
    const auto parts = [&] {
      return std::pair(turned(u, at, false) * turned(v, at, true),
                       turned(u, at, true) * turned(v, at, false));
    };
    if (!(u.shape() == v.shape()) || u.dtype() != v.dtype() || !may_be_one_pass({&u, &v})) {
      const auto [first, second] = parts();
      return first - second;
    }
    const auto [first, second] = [&] {
      const ValuesLater later;
      return parts();
    }();
    const auto compute = [&](Tensor& out) {
      cross_vectors(u.value().contiguous_copy(), v.value().contiguous_copy(), at, out);
    };
    return apply_by(compute, subtract_op(), {&first, &second}, a.where());
  });
}

Variable kron(const Operand& a, const Operand& b) {
  return of_pair(a, b, "kron", [](const Variable& x, const Variable& y) {
    const size_t rank = std::max(x.rank(), y.rank());
    Dims behind, before;
    for (size_t i = 0; i < rank; ++i) {
      behind.push_back(static_cast<int64_t>(2 * i + 1));
      before.push_back(static_cast<int64_t>(2 * i));
    }
    const Variable u = with_rank(x, rank), v = with_rank(y, rank);
    return merge_axes(unsqueeze_axes(u, behind) * unsqueeze_axes(v, before), Dims(rank, 2));
  });
}

Variable bilinear(const Operand& a, const Operand& b, const Operand& weight, const Variable& bias) {
  return of_pair(a, b, "bilinear", [&](const Variable& x, const Variable& y) {
    const Variable& w = weight.defined("bilinear");
    check_real_pair("bilinear", x, y);
    check_real_pair("bilinear", x, w);
    const Shape &u = x.shape(), &v = y.shape();
    const bool same = u.rank() > 0 && u.rank() == v.rank() && std::equal(u.begin(), u.end() - 1, v.begin());
    if (!same || w.rank() != 3 || w.shape()[1] != u[-1] || w.shape()[2] != v[-1])
      throw ShapeError(fmt::format(
          "bilinear: {} and {} with a weight of {}: takes [..., i] and [..., j] with a weight of [o, i, j]",
          u.str(), v.str(), w.shape().str()));
    const auto last = static_cast<int>(u.rank()) - 1;
    Labelled p{x, AxisLabels(u.rank())}, q{y, AxisLabels(u.rank())}, r{w, {last + 2, last, last + 1}};
    std::iota(p.labels.begin(), p.labels.end(), 0);
    q.labels = p.labels;
    q.labels.back() = last + 1;
    AxisLabels output(p.labels.begin(), p.labels.end() - 1);
    output.push_back(last + 2);
    const Variable result = contract({std::move(p), std::move(q), std::move(r)}, output);
    if (!bias.defined()) return result;
    if (!(bias.shape() == Shape{w.shape()[0]}))
      throw ShapeError(fmt::format("bilinear: a bias of {} does not go with a weight of {}",
                                   bias.shape().str(), w.shape().str()));
    return result + bias;
  });
}

}  // namespace espalier
