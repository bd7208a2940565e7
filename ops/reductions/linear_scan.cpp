#include "espalier/ops/reductions/linear_scan.h"

#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/row_op.h"

namespace espalier {

namespace {

class LinearScan : public RowOp {
 public:
  explicit LinearScan(LinearScanForm form)
      : RowOp({.gradient_reads = InputSet::only(0), .gradient_reads_output = true}), form_(form) {}
  std::string_view name() const override { return "linear_scan"; }
  Attributes attributes() const override { return {{"reverse", form_.reverse}, {"lagged", form_.lagged}}; }
  Specs infer(const InputSpecs& in) const override {
    check_same_dtype(*in[0], *in[1], name());
    if (!(in[0]->shape == in[1]->shape))
      throw ShapeError(fmt::format("linear_scan: coefficients of shape {} and terms of shape {}",
                                   in[0]->shape.str(), in[1]->shape.str()));
    return RowOp::infer(in);
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy(), b = call.inputs[1]->contiguous_copy();
    const int64_t n = a.shape()[-1];
    if (a.elements() == 0) return;
    const int64_t first = form_.reverse ? n - 1 : 0, step = form_.reverse ? -1 : 1;
    const int64_t lag = form_.lagged ? -step : 0;
    visit(a.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T *factors = static_cast<const T*>(a.address()), *terms = static_cast<const T*>(b.address());
        T* out = detail::output<T>(call);
        for_each_row(a.shape(), 1, [=](int64_t row) {
          int64_t at = row + first;
          double y = static_cast<double>(terms[at]);
          out[at] = static_cast<T>(y);
          for (int64_t k = 1; k < n; ++k) {
            at += step;
            y = static_cast<double>(terms[at]) + static_cast<double>(factors[at + lag]) * y;
            out[at] = static_cast<T>(y);
          }
        });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    // The gradient of the terms runs the other way, with the same coefficient between two neighbours.
    const Variable h = linear_scan(rule.input(0), rule.output_gradient(), {!form_.reverse, !form_.lagged});
    Variable of_factors;
    if (rule.wants(0))
      of_factors = form_.lagged ? shift_by_one(h, !form_.reverse) * rule.output()
                                : h * shift_by_one(rule.output(), form_.reverse);
    return {of_factors, rule.wants(1) ? h : Variable()};
  }

 private:
  LinearScanForm form_;
};

class ShiftByOne : public RowOp {
 public:
  ShiftByOne(bool reverse, double fill)
      : RowOp({.linearity = fill == 0 ? Linearity::together : Linearity::none,
               .gradient_reads = InputSet::none()}),
        reverse_(reverse),
        fill_(fill) {}
  std::string_view name() const override { return "shift_by_one"; }
  Attributes attributes() const override { return {{"reverse", reverse_}, {"fill", fill_}}; }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    if (x.elements() == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        T* to = detail::output<T>(call);
        const T fill = static_cast<T>(fill_);
        const bool reverse = reverse_;
        for_each_row(x.shape(), 1, [=](int64_t at) {
          std::copy_n(from + at + reverse, n - 1, to + at + !reverse);
          to[at + (reverse ? n - 1 : 0)] = fill;
        });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {shift_by_one(rule.output_gradient(), !reverse_)};
  }

 private:
  bool reverse_;
  double fill_;
};

}  // namespace

Variable linear_scan(const Variable& a, const Variable& b, LinearScanForm form) {
  return apply(std::make_shared<LinearScan>(form), {&a, &b}, std::source_location::current());
}
Variable shift_by_one(const Variable& x, bool reverse, double fill) {
  return apply(std::make_shared<ShiftByOne>(reverse, fill), {&x}, std::source_location::current());
}

void add_linear_scan_ops(OpRegistry& ops) {
  ops.add("linear_scan", 2, [](AttributeReader& a) {
    const bool reverse = a.flag("reverse");
    return std::make_shared<LinearScan>(LinearScanForm{reverse, a.flag("lagged")});
  });
  ops.add("shift_by_one", 1, [](AttributeReader& a) {
    const bool reverse = a.flag("reverse");
    return std::make_shared<ShiftByOne>(reverse, a.real("fill"));
  });
}

}  // namespace espalier
