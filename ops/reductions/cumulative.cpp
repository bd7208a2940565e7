// Cumulative sums and products along an axis.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/indexing/chosen.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/last_axis.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/linear_scan.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// What elements are accumulated in.
template <class T>
using Accumulated = std::conditional_t<std::is_floating_point_v<T>, double, T>;

/// Writes carry + Σ of the elements so far, with a step of 1 or −1, and returns the sum without carry. Four
/// elements are added apart from the running sum, whose latency the loop would wait for. Without `out` it
/// returns the same sum, to the bit.
template <int step, class T>
Accumulated<T> sum_so_far(const T* in, T* out, int64_t n, Accumulated<T> carry) {
  using A = Accumulated<T>;
  const scalar::Add add;
  A total{};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T* x = in + i * step;
    const A one = x[0], two = add(one, A(x[step])), three = add(two, A(x[2 * step])),
            four = add(three, A(x[3 * step]));
    if (out) {
      T* y = out + i * step;
      const A before = add(carry, total);
      y[0] = static_cast<T>(add(before, one));
      y[step] = static_cast<T>(add(before, two));
      y[2 * step] = static_cast<T>(add(before, three));
      y[3 * step] = static_cast<T>(add(before, four));
    }
    total = add(total, four);
  }
  for (; i < n; ++i) {
    total = add(total, A(in[i * step]));
    if (out) out[i * step] = static_cast<T>(add(carry, total));
  }
  return total;
}

struct Summed {
  using Functor = scalar::Add;
  static constexpr int neutral = 0;
  /// A long row is summed in chunks of one size, so that the number of threads changes no bit.
  template <int step, class T>
  static void row(const T* in, T* out, int64_t n) {
    using A = Accumulated<T>;
    constexpr int64_t chunk = 64 * 1024;
    const int64_t chunks = (n + chunk - 1) / chunk;
    const auto size = [=](int64_t c) { return std::min(chunk, n - c * chunk); };
    if (chunks < 4 || num_threads() == 1) {
      A carry{};
      for (int64_t c = 0; c < chunks; ++c)
        carry = scalar::Add()(
            carry, sum_so_far<step>(in + c * chunk * step, out + c * chunk * step, size(c), carry));
      return;
    }
    std::vector<A> carries(static_cast<size_t>(chunks));
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        carries[static_cast<size_t>(c)] = sum_so_far<step, T>(in + c * chunk * step, nullptr, size(c), A{});
    });
    A carry{};
    for (A& own : carries) carry = scalar::Add()(std::exchange(own, carry), carry);
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        sum_so_far<step>(in + c * chunk * step, out + c * chunk * step, size(c),
                         carries[static_cast<size_t>(c)]);
    });
  }
};

/// Products are taken one after the other: those of parts may overflow where the product does not.
struct Multiplied {
  using Functor = scalar::Multiply;
  static constexpr int neutral = 1;
  template <int step, class T>
  static void row(const T* in, T* out, int64_t n) {
    Accumulated<T> product(1);
    for (int64_t i = 0; i < n; ++i) {
      product = scalar::Multiply()(product, Accumulated<T>(in[i * step]));
      out[i * step] = static_cast<T>(product);
    }
  }
};

/// Columns begin to end of a matrix [n, inner], from the top or from the bottom.
template <class Kind, class T>
void scan_columns(const T* in, T* out, int64_t n, int64_t inner, int64_t begin, int64_t end, bool reverse) {
  using A = Accumulated<T>;
  constexpr int64_t most = 512;  // columns whose totals stay in the first-level cache
  A totals[most];
  for (int64_t left = begin; left < end; left += most) {
    const int64_t width = std::min(most, end - left);
    std::fill_n(totals, width, A(Kind::neutral));
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = (reverse ? n - 1 - k : k) * inner + left;
      A* total = totals;
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < width; ++i) {
          total[i] = typename Kind::Functor()(total[i], static_cast<A>(in[at + i]));
          out[at + i] = static_cast<T>(total[i]);
        }
      });
    }
  }
}

template <class Kind>
class CumulativeOp : public Op {
 public:
  CumulativeOp(int64_t axis, bool reverse, const OpTraits& traits)
      : Op(traits), axis_(axis), reverse_(reverse) {}
  Attributes attributes() const override { return {{"axis", axis_}, {"reverse", reverse_}}; }
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_has_axis(*in[0], name());
    resolve_axis(axis_, in[0]->shape.rank(), name());
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    if (x.elements() == 0) return;
    const AxisBlocks b(x.shape(), resolve_axis(axis_, x.rank(), name()));
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) run(static_cast<const T*>(x.address()), detail::output<T>(call), b);
    });
  }

 protected:
  int64_t axis_;
  bool reverse_;

 private:
  template <class T>
  void run(const T* in, T* out, const AxisBlocks& b) const {
    const bool reverse = reverse_;
    const int64_t n = b.size, inner = b.inner;
    if (inner > 1) {
      constexpr int64_t part = 64;  // columns, so that threads rarely write to one cache line
      const int64_t parts = (inner + part - 1) / part;
      const int64_t grain = std::max<int64_t>(1, detail::grain / (n * std::min(inner, part)));
      parallel_for(b.outer * parts, grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          const int64_t o = i / parts, last = std::min(end, (o + 1) * parts);
          scan_columns<Kind>(in + o * n * inner, out + o * n * inner, n, inner, (i - o * parts) * part,
                             std::min(inner, (last - o * parts) * part), reverse);
          i = last;
        }
      });
      return;
    }
    const auto row = [=](int64_t o) {
      if (reverse)
        Kind::template row<-1>(in + (o + 1) * n - 1, out + (o + 1) * n - 1, n);
      else
        Kind::template row<1>(in + o * n, out + o * n, n);
    };
    if (b.outer == 1) return row(0);
    parallel_for(b.outer, std::max<int64_t>(1, detail::grain / n), [=](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) row(o);
    });
  }
};

struct Cumsum : CumulativeOp<Summed> {
  Cumsum(int64_t axis, bool reverse)
      : CumulativeOp(axis, reverse,
                     {.linearity = Linearity::together,
                      .in_place = InputSet::all(),
                      .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "cumsum"; }
  Gradients gradient(const GradientRule& rule) const override {
    return {apply(kept_op<Cumsum>(axis_, !reverse_), {&rule.output_gradient()}, rule.where())};
  }
};

struct Cumprod : CumulativeOp<Multiplied> {
  Cumprod(int64_t axis, bool reverse)
      : CumulativeOp(axis, reverse, {.in_place = InputSet::all(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return "cumprod"; }
  /// dx[k] = Π x before k · s[k], where s[k] = Σ over i from k on of g[i] · Π x[k + 1 … i] is a recurrence:
  /// nothing is divided by x.
  Gradients gradient(const GradientRule& rule) const override {
    const auto axis = static_cast<int64_t>(resolve_axis(axis_, rule.input().rank(), name()));
    const auto last = [&](const Variable& v) { return exchange_last_axis(v, axis); };
    const Variable s =
        linear_scan(last(rule.input()), last(rule.output_gradient()), {.reverse = !reverse_, .lagged = true});
    return {last(shift_by_one(last(rule.output()), reverse_, 1) * s)};
  }
};

template <class T>
OpPtr remade_scan(AttributeReader& a) {
  const int64_t axis = a.integer("axis");
  return std::make_shared<T>(axis, a.flag("reverse"));
}

}  // namespace

Variable cumsum(const Operand& x, int64_t axis) {
  return apply(kept_op<Cumsum>(axis, false), {&x.variable()}, x.where(), x.is_last());
}
Variable cumprod(const Operand& x, int64_t axis) {
  return apply(kept_op<Cumprod>(axis, false), {&x.variable()}, x.where(), x.is_last());
}
Variable cumprod_backwards(const Variable& x, int64_t axis) {
  return apply(kept_op<Cumprod>(axis, true), {&x}, std::source_location::current());
}

void add_cumulative_ops(OpRegistry& ops) {
  ops.add("cumsum", 1, remade_scan<Cumsum>);
  ops.add("cumprod", 1, remade_scan<Cumprod>);
}

}  // namespace espalier
