// Comparisons, logic and selection.
#include "espalier/ops/elementwise/compare.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// A comparison has no gradient.
template <class F, class Types>
struct Comparison : BinaryOp<F, Types, bool> {
  Comparison()
      : BinaryOp<F, Types, bool>(
            {.takes_small_integers = std::is_same_v<Types, Anything>, .gradient_reads = InputSet::none()}) {}
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }
};
struct Equal : Comparison<scalar::Equal, Anything> {
  std::string_view name() const override { return "equal"; }
};
struct NotEqual : Comparison<scalar::NotEqual, Anything> {
  std::string_view name() const override { return "not_equal"; }
};
struct Less : Comparison<scalar::Less, Numbers> {
  std::string_view name() const override { return "less"; }
};
struct LessEqual : Comparison<scalar::LessEqual, Numbers> {
  std::string_view name() const override { return "less_equal"; }
};
struct Greater : Comparison<scalar::Greater, Numbers> {
  std::string_view name() const override { return "greater"; }
};
struct GreaterEqual : Comparison<scalar::GreaterEqual, Numbers> {
  std::string_view name() const override { return "greater_equal"; }
};
struct LogicalAnd : Comparison<scalar::LogicalAnd, Bools> {
  std::string_view name() const override { return "logical_and"; }
};
struct LogicalOr : Comparison<scalar::LogicalOr, Bools> {
  std::string_view name() const override { return "logical_or"; }
};
struct LogicalNot : UnaryOp<scalar::LogicalNot, Bools> {
  std::string_view name() const override { return "logical_not"; }
};

template <class T>
void select_row(int64_t n, void* to, const void* condition, int64_t sc, const void* first, int64_t sa,
                const void* second, int64_t sb) {
  T* out = static_cast<T*>(to);
  const bool* c = static_cast<const bool*>(condition);
  const T *a = static_cast<const T*>(first), *b = static_cast<const T*>(second);
  if (n > detail::few && sc == 1 && (sa == 1 || sa == 0) && (sb == 1 || sb == 0)) {
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = scalar::Select()(c[i], a[i * sa], b[i * sb]);
    });
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = scalar::Select()(c[i * sc], a[i * sa], b[i * sb]);
}

struct Where : Op {
  Where()
      : Op({.kind = OpKind::pointwise,
            .precision = OpPrecision::follows,
            .takes_halves = true,
            .in_place = InputSet::all_but(0),
            .gradient_reads = InputSet::only(0)}) {}
  std::string_view name() const override { return "where"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Bools>(*in[0], name());
    check_same_dtype(*in[1], *in[2], name());
    return {{in[1]->dtype, broadcast(broadcast(in[0]->shape, in[1]->shape, name()), in[2]->shape, name())}};
  }
  ElementLoops loops(const InputSpecs& in) const override {
    return {.row = is_half(in[1]->dtype) ? RowFunction() : row(in[1]->dtype),
            .functor = type_name<scalar::Select>()};
  }
  void run_cpu(const KernelCall& call) const override { run_rows(call, row(call.outputs[0]->dtype())); }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable c = rule.input(0);
    return {Variable(), rule.wants(1) ? where(c, g, 0.0) : Variable(),
            rule.wants(2) ? where(c, 0.0, g) : Variable()};
  }

 private:
  static TernaryRow row(DType dtype) {
    return visit_size(dtype, []<class T>(TypeTag<T>) -> TernaryRow { return select_row<T>; });
  }
};

}  // namespace

Variable equal(const Operand& a, const Operand& b) { return apply_binary<Equal>(a, b); }
Variable not_equal(const Operand& a, const Operand& b) { return apply_binary<NotEqual>(a, b); }
Variable less(const Operand& a, const Operand& b) { return apply_binary<Less>(a, b); }
Variable less_equal(const Operand& a, const Operand& b) { return apply_binary<LessEqual>(a, b); }
Variable greater(const Operand& a, const Operand& b) { return apply_binary<Greater>(a, b); }
Variable greater_equal(const Operand& a, const Operand& b) { return apply_binary<GreaterEqual>(a, b); }
Variable logical_and(const Operand& a, const Operand& b) { return apply_binary<LogicalAnd>(a, b); }
Variable logical_or(const Operand& a, const Operand& b) { return apply_binary<LogicalOr>(a, b); }
Variable logical_not(const Operand& x) { return apply_unary<LogicalNot>(x); }

OpPtr where_op() { return shared_op<Where>(); }

Variable where(const Operand& condition, const Operand& a, const Operand& b) {
  const Variable& c = condition.defined("where");
  const Variable& x = a.is_number() && !b.is_number() ? a.like(b.defined("where")) : a.variable(c.device());
  const Variable& y = b.is_number() ? b.like(a.is_number() ? x : a.defined("where")) : b.variable();
  return apply(shared_op<Where>(), {&c, &x, &y}, condition.where());
}

void add_comparison_ops(OpRegistry& ops) {
  ops.add<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, LogicalAnd, LogicalOr, LogicalNot>();
  ops.add<Where>(3);
}

}  // namespace espalier
