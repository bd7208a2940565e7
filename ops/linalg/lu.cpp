// LU factorization, and what is computed with it.
#include <cmath>

#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/lapack.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/lu_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// What getrf makes of the matrices as they lie, row by row, which to LAPACK are the transposed ones.
/// Outputs: the factors, and the pivots (int32) [..., n].
struct LuFactor : MatrixOp {
  LuFactor() : MatrixOp({.gradient_reads = InputSet::none(), .passes_no_gradient = true}) {}
  std::string_view name() const override { return "lu_factor"; }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), true);
    Specs specs;
    specs.push_back(*in[0]);
    specs.push_back({DType::int32, batch_with(batch_of_matrices(in[0]->shape), {in[0]->shape[-1]})});
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& lu = *call.outputs[0];
    if (lu.elements() == 0) return;
    copy_elements(*call.inputs[0], lu);
    const int64_t n = lu.shape()[-1];
    visit_matrix(lu.dtype(), [&]<class T>(TypeTag<T>) {
      T* factors = detail::output<T>(call);
      int32_t* pivots = detail::output<int32_t>(call, 1);
      each_matrix(name(), lu.elements() / (n * n), 2.0 / 3 * cube(n),
                  [&](int64_t i) { (void)lapack::getrf(n, factors + i * n * n, pivots + i * n); });
    });
  }
  NodeFlops cost(const NodeWork& work) const override {
    const Shape& shape = work.inputs[0]->shape;
    return {.elementwise = 2.0 / 3 * static_cast<double>(shape.elements()) * static_cast<double>(shape[-1])};
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
};

/// An op on (a, lu, pivots, …) that reads the factors, and whose gradient is that of `a`.
class LuOp : public MatrixOp {
 public:
  using MatrixOp::MatrixOp;

 protected:
  size_t matrix_axes(size_t input) const override { return input == 2 ? 1 : 2; }
  /// Throws unless inputs 1 and 2 are what LuFactor makes of a matrix.
  static void check_factors(const InputSpecs& in, std::string_view op) {
    check_matrix(*in[1], op, true);
    const Shape& lu = in[1]->shape;
    if (*in[2] != Spec{DType::int32, batch_with(batch_of_matrices(lu), {lu[-1]})})
      throw ShapeError(fmt::format("{}: pivots of {} {} for factors of shape {}", op,
                                   espalier::name(in[2]->dtype), in[2]->shape.str(), lu.str()));
  }
  /// Throws Error unless each pivot is the number of a row, counted from 1.
  static void check_pivots(const Tensor& pivots, int64_t n, std::string_view op) {
    for (const int32_t pivot : pivots.span<int32_t>())
      if (pivot < 1 || pivot > n)
        throw Error(fmt::format("{}: a pivot of {} in a matrix of {} rows", op, pivot, n));
  }
  static LuFactors factors_of(const GradientRule& rule) {
    return {rule.input(0), rule.input(1), rule.input(2)};
  }
};

/// a⁻¹ · b from (a, lu, pivots, b), or with aᵀ.
class LuSolve : public LuOp {
 public:
  LuSolve(bool transposed, std::string function)
      : LuOp({.reads = InputSet::all_but(0),
              .gradient_reads = InputSet{uint64_t{6}},
              .gradient_reads_output = true}),
        transposed_(transposed),
        function_(std::move(function)) {}
  std::string_view name() const override { return "lu_solve"; }
  Attributes attributes() const override { return {{"transposed", transposed_}, {"function", function_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    if (input == 3) return axis + 2 == in[3]->shape.rank();
    return LuOp::mixes(input, axis, in);
  }
  Specs infer(const InputSpecs& in) const override {
    check_factors(in, function_);
    check_same_dtype(*in[1], *in[3], function_);
    check_matrix(*in[3], function_, false);
    const Shape &a = in[1]->shape, &b = in[3]->shape;
    if (a[-1] != b[-2])
      throw ShapeError(fmt::format("{}: {} does not go with a right side {}: [..., n, n] takes [..., n, k]",
                                   function_, a.str(), b.str()));
    return {{in[1]->dtype,
             batch_with(broadcast(batch_of_matrices(a), batch_of_matrices(b), function_), {b[-2], b[-1]})}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor lu = call.inputs[1]->contiguous_copy(), pivots = call.inputs[2]->contiguous_copy();
    Tensor& out = *call.outputs[0];
    const int64_t n = lu.shape()[-1], k = out.shape()[-1];
    check_pivots(pivots, n, function_);
    visit_matrix(lu.dtype(), [&]<class T>(TypeTag<T>) {
      const T* factors = static_cast<const T*>(lu.address());
      check_regular(factors, lu.shape());
      if (out.elements() == 0) return;
      // LAPACK has columns side by side, so it solves with what lies in rows.
      const Shape batch = batch_of_matrices(out.shape());
      Tensor columns(batch_with(batch, {k, n}), out.dtype());
      copy_elements(transposed_layout(broadcast_layout_of(*call.inputs[3], out.shape())), columns);
      T* x = static_cast<T*>(columns.address());
      const int32_t* swaps = static_cast<const int32_t*>(pivots.address());
      const BroadcastBatch matrix(batch_of_matrices(lu.shape()), batch);
      each_matrix(function_, batch.elements(), 2.0 * static_cast<double>(n) * static_cast<double>(n * k),
                  [&](int64_t i) {
                    const int64_t of = matrix(i);
                    (void)lapack::getrs(!transposed_, n, k, factors + of * n * n, swaps + of * n,
                                        x + i * n * k);
                  });
      copy_elements(transposed_layout(columns), out);
    });
  }
  NodeFlops cost(const NodeWork& work) const override {
    return {.elementwise = 2.0 * static_cast<double>(work.outputs[0].shape.elements()) *
                           static_cast<double>(work.inputs[0]->shape[-1])};
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    const LuFactors factors = factors_of(rule);
    const Variable of_b = lu_solve(factors, rule.output_gradient(), !transposed_, function_);
    if (rule.wants(0)) {
      const Variable x = rule.output();
      result[0] = negative(transposed_ ? matmul(x, transpose(of_b)) : matmul(of_b, transpose(x)));
    }
    if (rule.wants(3)) result[3] = of_b;
    return result;
  }

 private:
  /// Throws LinAlgError where a factor has a zero on its diagonal.
  template <class T>
  void check_regular(const T* factors, const Shape& shape) const {
    const int64_t n = shape[-1], count = batch_of_matrices(shape).elements();
    for (int64_t i = 0; i < count; ++i)
      for (int64_t d = 0; d < n; ++d)
        if (factors[i * n * n + d * (n + 1)] == 0)
          throw LinAlgError(
              fmt::format("{}: {} is singular", function_, name_of_matrix(batch_of_matrices(shape), i)));
  }

  bool transposed_;
  std::string function_;
};

/// Determinants from (a, lu, pivots): themselves, their signs, or the logarithms of their absolute values.
class LuDeterminant : public LuOp {
 public:
  explicit LuDeterminant(DeterminantForm form)
      : LuOp({.reads = InputSet{uint64_t{6}},
              .gradient_reads = InputSet{uint64_t{6}},
              .gradient_reads_output = form == DeterminantForm::whole,
              .passes_no_gradient = form == DeterminantForm::sign}),
        form_(form) {}
  std::string_view name() const override { return "lu_determinant"; }
  Attributes attributes() const override { return {{"form", static_cast<int64_t>(form_)}}; }
  Specs infer(const InputSpecs& in) const override {
    check_factors(in, name());
    return {{in[1]->dtype, batch_of_matrices(in[1]->shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor lu = call.inputs[1]->contiguous_copy(), pivots = call.inputs[2]->contiguous_copy();
    const int64_t n = lu.shape()[-1], count = call.outputs[0]->elements();
    const int32_t* swaps = static_cast<const int32_t*>(pivots.address());
    visit_matrix(lu.dtype(), [&]<class T>(TypeTag<T>) {
      const T* factors = static_cast<const T*>(lu.address());
      T* out = detail::output<T>(call);
      for (int64_t i = 0; i < count; ++i) {
        T product = 1, log_abs = 0, sign = 1;
        for (int64_t d = 0; d < n; ++d) {
          const T factor = factors[i * n * n + d * (n + 1)];
          if (swaps[i * n + d] != d + 1) sign = -sign;
          product *= factor;
          log_abs += std::log(std::abs(factor));
          sign *= factor > 0 ? T(1) : factor < 0 ? T(-1) : factor;  // 0 and NaN stay
        }
        if (form_ == DeterminantForm::log_abs) out[i] = log_abs;
        if (form_ == DeterminantForm::sign) out[i] = sign;
        if (form_ == DeterminantForm::whole)
          out[i] = std::copysign(product, std::isnan(sign) ? product : sign);
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (form_ == DeterminantForm::sign) return Gradients(rule.inputs());
    Variable g = rule.output_gradient();
    if (form_ == DeterminantForm::whole) g = g * rule.output();
    const LuFactors factors = factors_of(rule);
    const std::string function =
        form_ == DeterminantForm::whole ? "the gradient of det" : "the gradient of slogdet";
    const Variable inverse = lu_solve(factors, eye_like(factors.lu), true, function);
    Gradients result(rule.inputs());
    result[0] = unsqueeze(unsqueeze(g, -1), -1) * inverse;
    return result;
  }

 private:
  DeterminantForm form_;
};

}  // namespace

LuFactors lu_factors(const Variable& a) {
  const Variable lu = apply(shared_op<LuFactor>(), {&a}, std::source_location::current());
  return {a, lu, Variable(lu.node(), 1)};
}
Variable lu_solve(const LuFactors& factors, const Variable& b, bool transposed, const std::string& function) {
  return apply(std::make_shared<LuSolve>(transposed, function),
               {&factors.a, &factors.lu, &factors.pivots, &b}, std::source_location::current());
}
Variable lu_determinant(const LuFactors& factors, DeterminantForm form) {
  return apply(std::make_shared<LuDeterminant>(form), {&factors.a, &factors.lu, &factors.pivots},
               std::source_location::current());
}

void add_lu_ops(OpRegistry& ops) {
  ops.add<LuFactor>(1);
  ops.add("lu_solve", 4, [](AttributeReader& a) {
    const bool transposed = a.flag("transposed");
    return std::make_shared<LuSolve>(transposed, a.text("function"));
  });
  ops.add("lu_determinant", 3, [](AttributeReader& a) {
    const int64_t form = a.integer("form", 0);
    if (form > 2) a.refuse("form");
    return std::make_shared<LuDeterminant>(static_cast<DeterminantForm>(form));
  });
}

}  // namespace espalier
