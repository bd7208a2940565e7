// Pointwise ops from scalar functors: one template for each number of operands, and its loops.
#pragma once
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/cpu/constant_power.h"
#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/row_blocks.h"
#include "espalier/core/cpu/strided_loop.h"
#include "espalier/core/cpu/unary_row.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/scalar.h"
#include "espalier/core/type_name.h"

namespace espalier {

// The element types an op takes. 16-bit reals are computed in float and taken wherever float is.
struct Reals {
  template <class T>
  static constexpr bool accepts = std::is_floating_point_v<T>;
  static constexpr std::string_view names = "real numbers";
};
struct Numbers {
  template <class T>
  static constexpr bool accepts = !std::is_same_v<T, bool>;
  static constexpr std::string_view names = "numbers";
};
struct Bools {
  template <class T>
  static constexpr bool accepts = std::is_same_v<T, bool>;
  static constexpr std::string_view names = "bool";
};
struct Anything {
  template <class T>
  static constexpr bool accepts = true;
  static constexpr std::string_view names = "any type";
};

template <class Types>
bool takes(DType dtype) {
  if (is_small_integer(dtype)) return std::is_same_v<Types, Anything>;
  return visit_all(dtype, []<class T>(TypeTag<T>) { return Types::template accepts<compute_t<T>>; });
}
template <class Types>
void check_dtype(const Spec& spec, std::string_view op) {
  if (takes<Types>(spec.dtype)) return;
  if (is_small_integer(spec.dtype)) detail::throw_small_integers(op, spec);
  throw TypeError(fmt::format("{}: takes {}, not {} (shape {}); cast() it first", op, Types::names,
                              name(spec.dtype), spec.shape.str()));
}
/// Throws TypeError unless both operands have one dtype.
void check_same_dtype(const Spec& a, const Spec& b, std::string_view op);

// The kernel of a pointwise op has two parts: a row function, compiled for each functor and type, and a
// driver that loops over the rows of operands of any strides. Steps count elements.
/// The drivers: broadcast the inputs to the output and run every row, on several threads if it is large.
void run_rows(const KernelCall& call, UnaryRow row);
void run_rows(const KernelCall& call, BinaryRow row);
void run_rows(const KernelCall& call, TernaryRow row);

namespace detail {

inline constexpr int64_t grain = 32 * 1024;  // elements, at least, for each thread

// ivdep: an output may be one of the operands, element for element, which the compiler must not treat as a
// dependence. Integers run baseline code, since they are rarely critical.

template <class F, class R, class T>
void binary_row(int64_t n, void* to, const void* first, int64_t sa, const void* second, int64_t sb) {
  R* out = static_cast<R*>(to);
  const T *a = static_cast<const T*>(first), *b = static_cast<const T*>(second);
  if constexpr (std::is_same_v<F, scalar::Power> && std::is_floating_point_v<T>)
    if (sa == 1 && sb == 0 && constant_power_row(n, out, a, *b)) return;
  if constexpr (!std::is_floating_point_v<T>) {
    for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i * sa], b[i * sb]);
  } else if (sa == 1 && sb == 1 && n >= shortest<F>) {
    if constexpr (HasBoundedPairs<F, T> && std::is_same_v<R, T>)
      return bounded_row_of_pairs<F, false>(n, out, a, b);
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i], b[i]);
    });
  } else if constexpr (!is_costly<F>) {
    if (n >= shortest<F> && sa == 1 && sb == 0) {
      if constexpr (HasBoundedPairs<F, T> && std::is_same_v<R, T>)
        return bounded_row_of_pairs<F, true>(n, out, a, b);
      vectorized([=]() __attribute__((always_inline)) {
        const T y = *b;
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i], y);
      });
    } else if (n >= shortest<F> && sa == 0 && sb == 1) {
      vectorized([=]() __attribute__((always_inline)) {
        const T x = *a;
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) out[i] = F()(x, b[i]);
      });
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i * sa], b[i * sb]);
    }
  } else if (n < very_few) {
    for (int64_t i = 0; i < n; ++i, not_vectorized()) out[i] = F()(a[i * sa], b[i * sb]);
  } else if (DenseBlocks<T> first_blocks(a, sa), second_blocks(b, sb); n < few) {
    R filled[few];
    binary_row<F, R, T>(few, filled, first_blocks.filled_up(n), 1, second_blocks.filled_up(n), 1);
    std::copy(filled, filled + n, out);
  } else {
    for (int64_t begin = 0; begin < n; begin += row_block) {
      const int64_t count = std::min(row_block, n - begin);
      binary_row<F, R, T>(count, out + begin, first_blocks.at(begin, count), 1,
                          second_blocks.at(begin, count), 1);
    }
  }
}

template <class T>
const T* input(const KernelCall& call, size_t k) {
  return static_cast<const T*>(call.inputs[k]->address());
}
template <class T>
T* output(const KernelCall& call, size_t k = 0) {
  return static_cast<T*>(call.outputs[k]->address());
}

}  // namespace detail

static_assert(type_name<scalar::Add>() == "scalar::Add");

/// Returns the row function `f(TypeTag<T>{})` of a dtype; 16-bit reals have none.
template <class F>
RowFunction row_for(DType dtype, F&& f) {
  return is_half(dtype) ? RowFunction() : visit(dtype, f);
}

/// Stands for a result of the operands' element type.
struct Same {};

template <class F, class Types, class Result = Same>
class PointwiseOp : public Op {
 public:
  using OperandTypes = Types;
  explicit PointwiseOp(const OpTraits& traits) : Op(pointwise(traits)) {}

 protected:
  template <class T>
  using ResultOf = std::conditional_t<std::is_same_v<Result, Same>, T, Result>;
  static DType result(DType operand) {
    if constexpr (std::is_same_v<Result, Same>)
      return operand;
    else
      return dtype_of<Result>();
  }

 private:
  static OpTraits pointwise(OpTraits traits) {
    traits.kind = OpKind::pointwise;
    traits.in_place = std::is_same_v<Result, Same> ? InputSet::all() : InputSet::none();
    return traits;
  }
};

/// An op with one operand; a subclass adds name() and gradient().
template <class F, class Types, class Result = Same>
class UnaryOp : public PointwiseOp<F, Types, Result> {
 public:
  static constexpr size_t arity = 1;
  explicit UnaryOp(const OpTraits& traits = {}) : PointwiseOp<F, Types, Result>(traits) {}
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Types>(*in[0], this->name());
    return {{this->result(in[0]->dtype), in[0]->shape}};
  }
  ElementLoops loops(const InputSpecs& in) const override {
    return {.row = row(in[0]->dtype), .functor = type_name<F>()};
  }
  void run_cpu(const KernelCall& call) const override { run_rows(call, row(call.inputs[0]->dtype()).unary); }

 private:
  static RowFunction row(DType dtype) {
    return row_for(dtype, []<class T>(TypeTag<T>) -> RowFunction {
      if constexpr (Types::template accepts<T>)
        return detail::unary_row<F, typename PointwiseOp<F, Types, Result>::template ResultOf<T>, T>;
      else
        return {};
    });
  }
};

/// An op with two operands of one dtype.
template <class F, class Types, class Result = Same>
class BinaryOp : public PointwiseOp<F, Types, Result> {
 public:
  static constexpr size_t arity = 2;
  explicit BinaryOp(const OpTraits& traits = {}) : PointwiseOp<F, Types, Result>(traits) {}
  Specs infer(const InputSpecs& in) const override {
    check_same_dtype(*in[0], *in[1], this->name());
    check_dtype<Types>(*in[0], this->name());
    return {{this->result(in[0]->dtype), broadcast(in[0]->shape, in[1]->shape, this->name())}};
  }
  ElementLoops loops(const InputSpecs& in) const override {
    return {.row = row(in[0]->dtype), .functor = type_name<F>()};
  }
  void run_cpu(const KernelCall& call) const override { run_rows(call, row(call.inputs[0]->dtype()).binary); }

 private:
  template <class T>
  static constexpr BinaryRow row_of =
      detail::binary_row<F, typename PointwiseOp<F, Types, Result>::template ResultOf<T>, T>;
  static RowFunction row(DType dtype) {
    if constexpr (std::is_same_v<Types, Anything>)
      if (is_small_integer(dtype)) return dtype == DType::int16 ? row_of<int16_t> : row_of<uint8_t>;
    return row_for(dtype, []<class T>(TypeTag<T>) -> RowFunction {
      if constexpr (Types::template accepts<T>)
        return row_of<T>;
      else
        return {};
    });
  }
};

/// If two operands differ in dtype and one was made from a number, it becomes a constant that goes with the
/// other; `owned` keeps it.
void match_numbers(const Variable*& x, const Variable*& y, Variable& owned,
                   const std::source_location& where);

/// Applies an op without attributes; a number takes the dtype and device of the other operand.
template <class T>
Variable apply_unary(const Operand& x) {
  return apply(shared_op<T>(), {&x.variable()}, x.where(), x.is_last());
}
/// A number as what meets `other`. What the op does not take is refused before: then errors do not depend on
/// the number, which may be a default or made by the library, without the user's line.
template <class T>
const Variable& number_like(const Operand& number, const Operand& other, const std::source_location& where) {
  const Variable& v = other.defined(shared_op<T>()->name());
  if (!takes<typename T::OperandTypes>(v.dtype()))
    located(where, [&] {
      check_dtype<typename T::OperandTypes>({v.dtype(), v.shape()}, shared_op<T>()->name());
    });
  return number.like(v);
}
template <class T>
Variable apply_binary(const Operand& a, const Operand& b) {
  const Variable* x = a.is_number() && !b.is_number() ? &number_like<T>(a, b, a.where()) : &a.variable();
  const Variable* y = b.is_number() ? &number_like<T>(b, a, a.where()) : &b.variable();
  Variable number;
  if (x->defined() && y->defined() && x->dtype() != y->dtype()) match_numbers(x, y, number, a.where());
  return apply(shared_op<T>(), {x, y}, a.where(), a.is_last() | b.is_last() << 1);
}

}  // namespace espalier
