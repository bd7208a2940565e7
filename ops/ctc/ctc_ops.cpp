#include "espalier/ops/ctc/ctc_ops.h"

#include <cmath>

#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ctc/ctc_lattice.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// The inputs that all ops have, as a row of the batch needs them.
class CtcRows {
 public:
  CtcRows(const KernelCall& call, CtcForm form)
      : x_(call.inputs[0]->contiguous_copy()),
        targets_(call.inputs[1]->to(int64).contiguous_copy()),
        input_lengths_(call.inputs[2]->to(int64).contiguous_copy()),
        target_lengths_(call.inputs[3]->to(int64).contiguous_copy()),
        form_(form),
        batch(x_.shape()[0]),
        steps(x_.shape()[1]),
        classes(x_.shape()[2]),
        labels(targets_.shape()[1]) {
    check();
  }

  const Tensor& x() const { return x_; }
  int64_t steps_of(int64_t row) const { return numbers(input_lengths_)[row]; }
  void states_of(int64_t row, ctc::States& states) const {
    const int64_t* own = numbers(targets_) + row * labels;
    states.assign(numbers(target_lengths_)[row], form_.blank, [=](int64_t i) { return own[i]; });
  }
  /// How many rows make work for a thread.
  int64_t grain() const {
    return std::max<int64_t>(1, detail::grain / 16 / std::max<int64_t>(1, steps * (2 * labels + 1)));
  }

 private:
  static const int64_t* numbers(const Tensor& t) { return static_cast<const int64_t*>(t.address()); }
  void check() const {
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t in = numbers(input_lengths_)[i], count = numbers(target_lengths_)[i];
      if (in < 0 || in > steps)
        throw IndexError(fmt::format("ctc_loss: input length {} of row {} with {} steps", in, i, steps));
      if (count < 0 || count > labels)
        throw IndexError(
            fmt::format("ctc_loss: target length {} of row {} with {} labels", count, i, labels));
      for (int64_t k = 0; k < count; ++k) {
        const int64_t label = numbers(targets_)[i * labels + k];
        if (label < 0 || label >= classes)
          throw IndexError(
              fmt::format("ctc_loss: label {} of row {} is none of {} classes", label, i, classes));
        if (label == form_.blank)
          throw IndexError(fmt::format("ctc_loss: label {} of row {} is the blank", label, i));
      }
    }
  }

  Tensor x_, targets_, input_lengths_, target_lengths_;
  CtcForm form_;

 public:
  const int64_t batch, steps, classes, labels;
};

class CtcOp : public Op {
 public:
  CtcOp(CtcForm form, const OpTraits& traits) : Op(traits), form_(form) {}
  Attributes attributes() const override {
    return {{"blank", form_.blank}, {"zero_infinity", form_.zero_infinity}};
  }
  bool mixes(size_t, size_t axis, const InputSpecs&) const override { return axis > 0; }

 protected:
  void check(const InputSpecs& in) const {
    check_dtype<Reals>(*in[0], "ctc_loss");
    for (size_t i = 1; i < 4; ++i) check_indices(*in[i], "ctc_loss");
    const Shape &x = in[0]->shape, &targets = in[1]->shape;
    const bool fits = x.rank() == 3 && targets.rank() == 2 && targets[0] == x[0] &&
                      in[2]->shape == Shape{x[0]} && in[3]->shape == Shape{x[0]};
    if (!fits)
      throw ShapeError(fmt::format("ctc_loss: log-probabilities by rows {}, targets {}, lengths {} and {}",
                                   x.str(), targets.str(), in[2]->shape.str(), in[3]->shape.str()));
    if (form_.blank < 0 || form_.blank >= x[2])
      throw Error(fmt::format("ctc_loss: the blank is {}; there are {} classes", form_.blank, x[2]));
  }
  void check_more(const InputSpecs& in, size_t i, const Spec& expected) const {
    if (*in[i] != expected)
      throw ShapeError(fmt::format("{}: operand {} is {} {}, not {} {}", name(), i,
                                   espalier::name(in[i]->dtype), in[i]->shape.str(),
                                   espalier::name(expected.dtype), expected.shape.str()));
  }
  Shape lattice(const InputSpecs& in) const {
    return {in[0]->shape[0], in[0]->shape[1], 2 * in[1]->shape[1] + 1};
  }
  /// Whether a loss counts as 0.
  bool left_out(double total) const { return form_.zero_infinity && std::isinf(total) && total < 0; }

  CtcForm form_;
};

/// Writes −slope · the sum of the shares of each class into the gradient of a step.
template <class T>
void add_shares(const ctc::States& states, const double* shares, double slope, double* sums, T* out,
                int64_t classes) {
  std::fill_n(sums, classes, 0.0);
  for (int64_t s = 0; s < states.count(); ++s) sums[states.classes[static_cast<size_t>(s)]] += shares[s];
  for (int64_t c = 0; c < classes; ++c) out[c] = static_cast<T>(-slope * sums[c]);
}

class CtcLoss final : public CtcOp {
 public:
  explicit CtcLoss(CtcForm form) : CtcOp(form, {.gradient_reads_output = true}) {}
  std::string_view name() const override { return "ctc_loss"; }
  Specs infer(const InputSpecs& in) const override {
    check(in);
    return {{in[0]->dtype, {in[0]->shape[0]}}, {DType::float64, lattice(in)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const CtcRows rows(call, form_);
    const int64_t stride = 2 * rows.labels + 1;
    visit(rows.x().dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* x = static_cast<const T*>(rows.x().address());
        T* losses = detail::output<T>(call);
        double* alphas = detail::output<double>(call, 1);
        parallel_for(rows.batch, rows.grain(), [&](int64_t begin, int64_t end) {
          ctc::States states;
          ctc::Lattice<double> lattice;
          for (int64_t i = begin; i < end; ++i) {
            rows.states_of(i, states);
            const T* own = x + i * rows.steps * rows.classes;
            const double total = lattice.forward(
                states, rows.steps_of(i),
                [&](int64_t t, int64_t c) { return static_cast<double>(own[t * rows.classes + c]); },
                alphas + i * rows.steps * stride, stride);
            losses[i] = left_out(total) ? T(0) : static_cast<T>(-total);
          }
        });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input(0), targets = rule.input(1), in = rule.input(2), out = rule.input(3),
                   alphas = rule.output(1);
    return {apply(ctc_loss_gradient_op(form_), {&x, &targets, &in, &out, &alphas, &rule.output_gradient()},
                  rule.where()),
            Variable(), Variable(), Variable()};
  }
};

class CtcLossGradient final : public CtcOp {
 public:
  explicit CtcLossGradient(CtcForm form) : CtcOp(form, {.gradient_reads = InputSet::all_but(4)}) {}
  std::string_view name() const override { return "ctc_loss_gradient"; }
  Specs infer(const InputSpecs& in) const override {
    check(in);
    check_more(in, 4, {DType::float64, lattice(in)});
    check_more(in, 5, {in[0]->dtype, {in[0]->shape[0]}});
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const CtcRows rows(call, form_);
    const int64_t stride = 2 * rows.labels + 1, size = rows.steps * rows.classes;
    const Tensor beginnings = call.inputs[4]->contiguous_copy(), g = call.inputs[5]->contiguous_copy();
    visit(rows.x().dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T *x = static_cast<const T*>(rows.x().address()), *slopes = static_cast<const T*>(g.address());
        const double* alphas = static_cast<const double*>(beginnings.address());
        T* out = detail::output<T>(call);
        parallel_for(rows.batch, rows.grain(), [&](int64_t begin, int64_t end) {
          ctc::States states;
          ctc::Lattice<double> lattice;
          std::vector<double> sums(static_cast<size_t>(rows.classes));
          for (int64_t i = begin; i < end; ++i) {
            rows.states_of(i, states);
            const int64_t steps = rows.steps_of(i), n = states.count();
            const T* own = x + i * size;
            const double *alpha = alphas + i * rows.steps * stride, *last = alpha + (steps - 1) * stride;
            T* to = out + i * size;
            std::fill_n(to, size, T(0));
            if (steps == 0) continue;
            const double none = ctc::nothing<double>(),
                         total = ctc::sum_of(last[n - 1], n > 1 ? last[n - 2] : none, none, 0);
            if (left_out(total)) continue;
            if (total == none) {
              std::fill_n(to, steps * rows.classes, static_cast<T>(NAN));
              continue;
            }
            lattice.backward(
                states, steps,
                [&](int64_t t, int64_t c) { return static_cast<double>(own[t * rows.classes + c]); }, alpha,
                stride, total,
                [&](int64_t t, const double* shares) {
                  add_shares(states, shares, static_cast<double>(slopes[i]), sums.data(),
                             to + t * rows.classes, rows.classes);
                });
          }
        });
      }
    });
  }
  /// Its derivative in a direction is that of the gradient of the loss, since second derivatives are
  /// symmetric.
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input(0), targets = rule.input(1), in = rule.input(2), out = rule.input(3);
    const Variable of_losses =
        apply(ctc_loss_curvature_op(form_), {&x, &targets, &in, &out, &rule.output_gradient()}, rule.where());
    const Variable of_gradients(of_losses.node(), 1);
    Variable of_x;
    if (rule.wants(0)) of_x = of_gradients * unsqueeze_axes(rule.input(5), {1, 2});
    return {of_x, Variable(), Variable(), Variable(), Variable(), of_losses};
  }
};

class CtcLossCurvature final : public CtcOp {
 public:
  explicit CtcLossCurvature(CtcForm form) : CtcOp(form, {}) {}
  std::string_view name() const override { return "ctc_loss_curvature"; }
  Specs infer(const InputSpecs& in) const override {
    check(in);
    check_more(in, 4, *in[0]);
    return {{in[0]->dtype, {in[0]->shape[0]}}, *in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const CtcRows rows(call, form_);
    const int64_t size = rows.steps * rows.classes, stride = 2 * rows.labels + 1;
    const Tensor direction = call.inputs[4]->contiguous_copy();
    visit(rows.x().dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T *x = static_cast<const T*>(rows.x().address()),
                *along = static_cast<const T*>(direction.address());
        T *of_losses = detail::output<T>(call), *out = detail::output<T>(call, 1);
        parallel_for(rows.batch, rows.grain(), [&](int64_t begin, int64_t end) {
          ctc::States states;
          ctc::Lattice<ctc::Dual> lattice;
          std::vector<double> sums(static_cast<size_t>(rows.classes));
          std::vector<ctc::Dual> alphas(static_cast<size_t>(rows.steps * stride));
          for (int64_t i = begin; i < end; ++i) {
            rows.states_of(i, states);
            const int64_t steps = rows.steps_of(i);
            const T *own = x + i * size, *by = along + i * size;
            const auto emission = [&](int64_t t, int64_t c) {
              const int64_t at = t * rows.classes + c;
              return ctc::Dual{static_cast<double>(own[at]), static_cast<double>(by[at])};
            };
            const ctc::Dual total = lattice.forward(states, steps, emission, alphas.data(), stride);
            T* to = out + i * size;
            std::fill_n(to, size, T(0));
            const bool none = total.value == ctc::nothing<double>();
            of_losses[i] = static_cast<T>(left_out(total.value) ? 0 : none ? NAN : -total.slope);
            if (left_out(total.value)) continue;
            if (none) {
              std::fill_n(to, steps * rows.classes, static_cast<T>(NAN));
              continue;
            }
            lattice.backward(
                states, steps, emission, alphas.data(), stride, total, [&](int64_t t, const double* shares) {
                  add_shares(states, shares, 1, sums.data(), to + t * rows.classes, rows.classes);
                });
          }
        });
      }
    });
  }
};

template <class T>
OpPtr made_from(AttributeReader& a) {
  const int64_t blank = a.integer("blank", 0);
  return std::make_shared<T>(CtcForm{blank, a.flag("zero_infinity")});
}

}  // namespace

OpPtr ctc_loss_op(CtcForm form) { return std::make_shared<CtcLoss>(form); }
OpPtr ctc_loss_gradient_op(CtcForm form) { return std::make_shared<CtcLossGradient>(form); }
OpPtr ctc_loss_curvature_op(CtcForm form) { return std::make_shared<CtcLossCurvature>(form); }

void add_ctc_ops(OpRegistry& ops) {
  ops.add("ctc_loss", 4, made_from<CtcLoss>);
  ops.add("ctc_loss_gradient", 6, made_from<CtcLossGradient>);
  ops.add("ctc_loss_curvature", 5, made_from<CtcLossCurvature>);
}

}  // namespace espalier
