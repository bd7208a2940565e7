// Elementwise arithmetic, and the operators of Variables.
#include "espalier/ops/elementwise/arithmetic.h"

#include <algorithm>
#include <cmath>

#include "espalier/core/autograd.h"
#include "espalier/core/deferred/batch.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/indexing/rows.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// The operand to return if the other one is filled with `neutral`: input 1, or with `either` also input 0.
/// A real zero is neutral with one sign only: -0.0 + 0.0 is 0.0.
std::optional<size_t> unless_neutral(const KnownInputs& in, const Spec& out, double neutral, bool either) {
  const auto is_neutral = [&](const std::optional<double>& fill) {
    return fill == neutral && (!is_real(out.dtype) || std::signbit(*fill) == std::signbit(neutral));
  };
  if (is_neutral(in.fill[1]) && *in.specs[0] == out) return 0;
  if (either && is_neutral(in.fill[0]) && *in.specs[1] == out) return 1;
  return std::nullopt;
}

struct Add : BinaryOp<scalar::Add, Numbers> {
  Add()
      : BinaryOp({.linearity = Linearity::together,
                  .precision = OpPrecision::follows,
                  .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "add"; }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return unless_neutral(in, out, -0.0, true);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.output_gradient(), rule.output_gradient()};
  }
};

struct Subtract : BinaryOp<scalar::Subtract, Numbers> {
  Subtract()
      : BinaryOp({.linearity = Linearity::together,
                  .precision = OpPrecision::follows,
                  .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "subtract"; }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return unless_neutral(in, out, 0, false);
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    return {g, rule.wants(1) ? negative(g) : Variable()};
  }
};

struct Multiply : BinaryOp<scalar::Multiply, Numbers> {
  Multiply() : BinaryOp({.linearity = Linearity::each, .precision = OpPrecision::follows}) {}
  std::string_view name() const override { return "multiply"; }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return unless_neutral(in, out, 1, true);
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    return {rule.wants(0) ? g * rule.input(1) : Variable(), rule.wants(1) ? g * rule.input(0) : Variable()};
  }
};

struct Divide : BinaryOp<scalar::Divide, Reals> {
  Divide()
      : BinaryOp({.linearity = Linearity::first,
                  .gradient_reads = InputSet::only(1),
                  .gradient_reads_output = true}) {}
  std::string_view name() const override { return "divide"; }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return unless_neutral(in, out, 1, false);
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable g = rule.output_gradient() / rule.input(1);
    return {g, rule.wants(1) ? negative(g * rule.output()) : Variable()};
  }
};

struct Power : BinaryOp<scalar::Power, Reals> {
  Power() : BinaryOp({.gradient_reads_output = true}) {}
  std::string_view name() const override { return "power"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable x = rule.input(0), y = rule.input(1);
    Gradients result(2);
    if (rule.wants(0)) {
      // The slope of x⁰ is 0 everywhere, but 0 · x⁻¹ is NaN where x is 0 or NaN. If y needs a gradient
      // itself, the formula stays elsewhere, since it is differentiable in y.
      if (y.node()->needs_gradient) {
        const Variable flat = logical_and(equal(y, 0.0), logical_or(equal(x, 0.0), not_equal(x, x)));
        result[0] = g * y * power(where(flat, 1.0, x), y - 1.0);
      } else {
        result[0] = g * y * power(x, where(equal(y, 0.0), 0.0, y - 1.0));
      }
    }
    // x^y log x; its limit at x = 0 is 0 for y ≥ 0. Below x = 0 only some powers are real, and they count as
    // constant.
    if (rule.wants(1)) {
      const Variable zero = logical_or(less(x, 0.0), logical_and(equal(x, 0.0), greater_equal(y, 0.0)));
      result[1] = g * where(zero, 0.0, rule.output() * log(where(zero, 1.0, x)));
    }
    return result;
  }
};

/// The gradient of maximum and minimum: `first` is true where a is selected; ties get half each.
Gradients pick_gradient(const GradientRule& rule, const Variable& first) {
  const Variable& g = rule.output_gradient();
  const Variable tie = cast(equal(rule.input(0), rule.input(1)), g.dtype()) * 0.5;
  const Variable share = cast(first, g.dtype()) + tie;
  return {rule.wants(0) ? g * share : Variable(), rule.wants(1) ? g * (1.0 - share) : Variable()};
}

struct Maximum : BinaryOp<scalar::Maximum, Numbers> {
  Maximum() : BinaryOp({.precision = OpPrecision::follows}) {}
  std::string_view name() const override { return "maximum"; }
  Gradients gradient(const GradientRule& rule) const override {
    return pick_gradient(rule, greater(rule.input(0), rule.input(1)));
  }
};

struct Minimum : BinaryOp<scalar::Minimum, Numbers> {
  Minimum() : BinaryOp({.precision = OpPrecision::follows}) {}
  std::string_view name() const override { return "minimum"; }
  Gradients gradient(const GradientRule& rule) const override {
    return pick_gradient(rule, less(rule.input(0), rule.input(1)));
  }
};

struct Negative : UnaryOp<scalar::Negative, Numbers> {
  Negative()
      : UnaryOp({.linearity = Linearity::together,
                 .precision = OpPrecision::follows,
                 .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "negative"; }
  Gradients gradient(const GradientRule& rule) const override { return {negative(rule.output_gradient())}; }
};

struct Abs : UnaryOp<scalar::Abs, Numbers> {
  Abs() : UnaryOp({.precision = OpPrecision::follows}) {}
  std::string_view name() const override { return "abs"; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.output_gradient() * sign(rule.input())};
  }
};

/// Piecewise constant: the gradient is 0.
template <class F>
struct Flat : UnaryOp<F, Numbers> {
  Flat() : UnaryOp<F, Numbers>({.gradient_reads = InputSet::none()}) {}
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
};
struct Sign : Flat<scalar::Sign> {
  std::string_view name() const override { return "sign"; }
};
struct Floor : Flat<scalar::Floor> {
  std::string_view name() const override { return "floor"; }
};

struct Square : UnaryOp<scalar::Square, Numbers> {
  std::string_view name() const override { return "square"; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.output_gradient() * (rule.input() * 2.0)};
  }
};

/// Sums several variables of one shape, so that adding up the gradients of a Variable is one node.
struct AddAll : Op {
  AddAll()
      : Op({.kind = OpKind::pointwise,
            .linearity = Linearity::together,
            .in_place = InputSet::only(0),
            .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "add_all"; }
  Specs infer(const InputSpecs& in) const override {
    for (const Spec* spec : in) {
      check_same_dtype(*in[0], *spec, name());
      check_dtype<Numbers>(*spec, name());
      if (!(spec->shape == in[0]->shape))
        throw ShapeError(
            fmt::format("add_all: shapes {} and {} differ", in[0]->shape.str(), spec->shape.str()));
    }
    return {*in[0]};
  }
  ElementLoops loops(const InputSpecs& in) const override {
    const RowFunction row = row_for(in[0]->dtype, []<class T>(TypeTag<T>) -> RowFunction {
      if constexpr (Numbers::accepts<T>)
        return detail::binary_row<scalar::Add, T, T>;
      else
        return {};
    });
    return {.row = row, .functor = type_name<scalar::Add>()};
  }
  void run_cpu(const KernelCall& call) const override {
    visit(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        T* out = detail::output<T>(call);
        if (call.outputs[0]->elements() == 1) {
          T total{};
          for (const Tensor* in : call.inputs)
            total = scalar::Add()(total, *static_cast<const T*>(in->address()));
          *out = total;
          return;
        }
        // From left to right: out = in0 + in1, out = out + in2, …
        for (size_t k = 1; k < call.inputs.size(); ++k) {
          KernelCall pair;
          pair.inputs = {k == 1 ? call.inputs[0] : call.outputs[0], call.inputs[k]};
          pair.outputs = {call.outputs[0]};
          run_rows(pair, detail::binary_row<scalar::Add, T, T>);
        }
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result;
    for (size_t i = 0; i < rule.inputs(); ++i) result.push_back(rule.output_gradient());
    return result;
  }
};

}  // namespace

OpPtr add_op() { return shared_op<Add>(); }
OpPtr multiply_op() { return shared_op<Multiply>(); }
OpPtr subtract_op() { return shared_op<Subtract>(); }

Variable add(const Operand& a, const Operand& b) { return apply_binary<Add>(a, b); }
Variable subtract(const Operand& a, const Operand& b) { return apply_binary<Subtract>(a, b); }
Variable multiply(const Operand& a, const Operand& b) { return apply_binary<Multiply>(a, b); }
Variable divide(const Operand& a, const Operand& b) { return apply_binary<Divide>(a, b); }
Variable power(const Operand& base, const Operand& exponent) { return apply_binary<Power>(base, exponent); }
Variable maximum(const Operand& a, const Operand& b) { return apply_binary<Maximum>(a, b); }
Variable minimum(const Operand& a, const Operand& b) { return apply_binary<Minimum>(a, b); }
Variable negative(const Operand& x) { return apply_unary<Negative>(x); }
Variable abs(const Operand& x) { return apply_unary<Abs>(x); }
Variable sign(const Operand& x) { return apply_unary<Sign>(x); }
Variable floor(const Operand& x) { return apply_unary<Floor>(x); }
Variable square(const Operand& x) { return apply_unary<Square>(x); }

Variable operator+(const Operand& a, const Operand& b) { return add(a, b); }
Variable operator-(const Operand& a, const Operand& b) { return subtract(a, b); }
Variable operator*(const Operand& a, const Operand& b) { return multiply(a, b); }
Variable operator/(const Operand& a, const Operand& b) { return divide(a, b); }
Variable operator-(const Operand& a) { return negative(a); }

Variable add_all(const std::vector<Variable>& variables) {
  if (variables.size() == 1) return variables[0];
  if (std::ranges::all_of(variables, is_row_gradient)) return joined_row_gradients(variables);
  if (std::ranges::all_of(variables, puts_rows_like)) return joined_put_rows(variables);
  if (variables.size() == 2) return add(variables[0], variables[1]);
  SmallVector<const Variable*, 8> inputs;
  for (const Variable& v : variables) inputs.push_back(&v);
  return apply(shared_op<AddAll>(), {inputs.data(), inputs.size()}, std::source_location::current());
}

Variable add_all_into(Variable first, const std::vector<Variable>& others) {
  if (is_row_gradient(first) && std::ranges::all_of(others, is_row_gradient)) {
    std::vector<Variable> all{std::move(first)};
    all.insert(all.end(), others.begin(), others.end());
    return joined_row_gradients(all);
  }
  if (puts_rows_like(first) || std::ranges::any_of(others, puts_rows_like)) {
    std::vector<Variable> rows, sums;
    (puts_rows_like(first) ? rows : sums).push_back(std::move(first));
    for (const Variable& v : others) (puts_rows_like(v) ? rows : sums).push_back(v);
    if (sums.empty()) return joined_put_rows(rows);
    Variable sum = std::move(sums[0]);
    sums.erase(sums.begin());
    if (!sums.empty()) sum = add_all_into(std::move(sum), sums);
    return joined_put_rows(rows, std::move(sum));
  }
  SmallVector<const Variable*, 8> inputs{&first};
  for (const Variable& v : others) inputs.push_back(&v);
  return apply(others.size() == 1 ? add_op() : shared_op<AddAll>(), {inputs.data(), inputs.size()},
               std::source_location::current(), 1);
}

void add_arithmetic_ops(OpRegistry& ops) {
  ops.add<Add, Subtract, Multiply, Divide, Power, Maximum, Minimum, Negative, Abs, Sign, Floor, Square>();
  ops.add<AddAll>(Arity::at_least(2));
}

}  // namespace espalier
