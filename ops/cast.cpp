// Changing the element type.
#include "espalier/ops/cast.h"

#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

struct Cast : Op {
  explicit Cast(DType to) : to_(to) {}
  std::string_view name() const override { return "cast"; }
  OpKind kind() const override { return OpKind::pointwise; }
  Linearity linearity() const override { return is_real(to_) ? Linearity::together : Linearity::none; }
  Attributes attributes() const override { return {{"dtype", std::string(espalier::name(to_))}}; }
  bool gradient_needs_input(size_t) const override { return false; }
  Specs infer(const InputSpecs& in) const override { return {{to_, in[0]->shape}}; }
  bool takes_halves() const override { return true; }
  RowFunction row_function(const InputSpecs& in) const override {
    return is_half(in[0]->dtype) || is_half(to_) ? RowFunction() : row(in[0]->dtype);
  }
  void run_cpu(const KernelCall& call) const override { run_rows(call, row(call.inputs[0]->dtype()).unary); }
  std::string scalar_function(const InputSpecs&) const override {
    return visit_all(to_, []<class To>(TypeTag<To>) { return std::string(type_name<scalar::Cast<To>>()); });
  }
  std::unique_ptr<BoundKernel> bind_cuda(const KernelCall& call) const override {
    return cu::bind_pointwise(call, scalar_function({}));
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {cast(rule.output_gradient(), rule.input().dtype())};
  }

 private:
  RowFunction row(DType from) const {
    return visit_all(from, [&]<class From>(TypeTag<From>) {
      return visit_all(to_, []<class To>(TypeTag<To>) -> RowFunction {
        return detail::unary_row<scalar::Cast<To>, To, From>;
      });
    });
  }

  DType to_;
};

}  // namespace

OpPtr cast_op(DType to) { return std::make_shared<Cast>(to); }

Variable cast(const Operand& x, DType dtype) {
  if (x.defined("cast").dtype() == dtype) return x.variable();
  return apply(cast_op(dtype), {&x.variable()}, x.where());
}

}  // namespace espalier
