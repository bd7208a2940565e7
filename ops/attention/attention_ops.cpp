#include "espalier/ops/attention/attention_ops.h"

#include "espalier/core/bind_context.h"
#include "espalier/core/device.h"
#include "espalier/core/node.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/attention/operands.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/widened.h"

namespace espalier {

bool AttentionOp::mixes(size_t input, size_t axis, const InputSpecs& in) const {
  const size_t rank = in[input]->shape.rank(), behind = trailing_axes(input);
  if (axis + behind >= rank) return true;
  const bool on_heads =
      !(form_.keys_masked && input == form_.key_mask_at(values_)) && axis + behind + 1 == rank;
  const size_t q = in.size() > values_ && values_ > 3 ? 1 : 0;  // gradients have g before q
  return on_heads && in[q]->shape.rank() > 2 && in[q]->shape[-3] != in[q + 1]->shape[-3];
}

size_t AttentionOp::trailing_axes(size_t input) const {
  if (form_.keyed && input == form_.keys_at(values_)) return 0;
  if (form_.keys_masked && input == form_.key_mask_at(values_)) return 1;
  return 2;
}

std::vector<Variable> AttentionOp::options(const GradientRule& rule) const {
  std::vector<Variable> all;
  for (size_t i = values_; i < values_ + form_.options(); ++i) all.push_back(rule.input(i));
  return all;
}

namespace {

AttentionForm without_dropout(AttentionForm form) {
  form.dropout = 0;
  return form;
}
Shape without_last(const Shape& shape, size_t axes) { return Shape(Dims(shape.begin(), shape.end() - axes)); }
DType log_sum_type(DType dtype) { return widened(dtype); }

/// Calls `f(TypeTag<T>{})` with the type of the elements of q, float or double.
template <class F>
void visit_query(const Tensor& q, F&& f) {
  if (q.dtype() == DType::float32)
    f(TypeTag<float>{});
  else
    f(TypeTag<double>{});
}

/// A kernel that takes `bytes(threads)` of scratch memory: `run(call, scratch, threads)`.
template <class Bytes, class Run>
std::unique_ptr<BoundKernel> bind_with_scratch(const KernelCall& call, const BindContext& context,
                                               Bytes bytes, Run run) {
  const int threads = num_threads();
  Workspace workspace = Workspace::of(context);
  Tensor scratch = workspace.take({bytes(threads)}, DType::boolean, Device());
  return bound([=, call = KernelCall(call)](RandomStream) { run(call, scratch.address(), threads); });
}

/// (q, k, v, options...) -> (result, log sums)
class Attention : public AttentionOp {
 public:
  explicit Attention(AttentionForm form)
      : AttentionOp(form, 3,
                    {.precision = OpPrecision::product,
                     .takes_any_values = true,
                     .reads = reads_of(form, 3),
                     .gradient_reads_output = true}) {}
  std::string_view name() const override { return "attention"; }
  Specs infer(const InputSpecs& in) const override {
    Shape y = form().output(in, values(), "scaled_dot_product_attention");
    Specs specs;
    specs.push_back({in[0]->dtype, y});
    specs.push_back({log_sum_type(in[0]->dtype), without_last(y, 1)});
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    const int threads = num_threads();
    const Tensor scratch(
        {scratch_bytes(call.inputs[0]->spec(), call.inputs[1]->shape(), call.inputs[2]->shape(), threads)},
        DType::boolean);
    run(form(), call, scratch.address(), threads);
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    const auto bytes = [&](int threads) {
      return scratch_bytes(call.inputs[0]->spec(), call.inputs[1]->shape(), call.inputs[2]->shape(), threads);
    };
    return bind_with_scratch(
        call, context, bytes,
        [form = form()](const KernelCall& c, void* scratch, int threads) { run(form, c, scratch, threads); });
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    if (call.device != DeviceType::cpu || is_half(call.inputs[0]->dtype)) return 0;
    return aligned_bytes(
        scratch_bytes(*call.inputs[0], call.inputs[1]->shape, call.inputs[2]->shape, num_threads()));
  }
  NodeFlops cost(const NodeWork& work) const override {
    const AttentionSizes sizes(work.inputs[0]->shape, work.inputs[1]->shape, work.inputs[2]->shape);
    return {.product = sizes.product_flops(sizes.width) + sizes.product_flops(sizes.value_width),
            .product_type = work.inputs[0]->dtype};
  }
  Gradients gradient(const GradientRule& rule) const override {
    return attention_gradients(rule, options(rule), form());
  }
  std::shared_ptr<const Op> for_inference() const override {
    return form().dropout == 0 ? nullptr : std::make_shared<Attention>(without_dropout(form()));
  }

 private:
  static int64_t scratch_bytes(const Spec& q, const Shape& k, const Shape& v, int threads) {
    const AttentionSizes sizes(q.shape, k, v);
    return q.dtype == DType::float64 ? 8 * forward_scratch<double>(sizes, threads)
                                     : 4 * forward_scratch<float>(sizes, threads);
  }
  static void run(const AttentionForm& form, const KernelCall& call, void* scratch, int threads) {
    if (call.outputs[1]->elements() == 0) return;
    const AttentionOperands operands(form, call, 3);
    visit_query(operands.q, [&]<class T>(TypeTag<T>) {
      attend(operands, detail::output<T>(call), detail::output<T>(call, 1), static_cast<T*>(scratch),
             threads);
    });
  }
};

/// (g, q, k, v, result, log sums, options...) -> the gradients of q, k and v
class AttentionGradient : public AttentionOp {
 public:
  explicit AttentionGradient(AttentionForm form)
      : AttentionOp(
            form, 6,
            {.precision = OpPrecision::product, .takes_any_values = true, .reads = reads_of(form, 6)}) {}
  std::string_view name() const override { return "attention_gradient"; }
  Specs infer(const InputSpecs& in) const override {
    InputSpecs rest;
    for (size_t i = 1; i < in.size(); ++i) rest.push_back(in[i]);
    const Shape y = form().output(rest, 5, name());
    if (!(in[0]->shape == y) || !(in[4]->shape == y) || !(in[5]->shape == without_last(y, 1)))
      throw ShapeError(fmt::format("{}: gradients {}, results {} and log sums {} do not fit together", name(),
                                   in[0]->shape.str(), in[4]->shape.str(), in[5]->shape.str()));
    check_same_dtype(*in[0], *in[1], name());
    if (widened(in[4]->dtype) != widened(in[1]->dtype) || widened(in[5]->dtype) != log_sum_type(in[1]->dtype))
      throw TypeError(fmt::format("{}: results of {} and log sums of {} for queries of {}", name(),
                                  espalier::name(in[4]->dtype), espalier::name(in[5]->dtype),
                                  espalier::name(in[1]->dtype)));
    Specs specs;
    for (size_t i = 1; i < 4; ++i) specs.push_back(*in[i]);
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    const int threads = num_threads();
    const Tensor scratch(
        {scratch_bytes(call.inputs[1]->spec(), call.inputs[2]->shape(), call.inputs[3]->shape(), threads)},
        DType::boolean);
    run(form(), call, scratch.address(), threads);
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    const auto bytes = [&](int threads) {
      return scratch_bytes(call.inputs[1]->spec(), call.inputs[2]->shape(), call.inputs[3]->shape(), threads);
    };
    return bind_with_scratch(
        call, context, bytes,
        [form = form()](const KernelCall& c, void* scratch, int threads) { run(form, c, scratch, threads); });
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    if (call.device != DeviceType::cpu || is_half(call.inputs[1]->dtype)) return 0;
    return aligned_bytes(
        scratch_bytes(*call.inputs[1], call.inputs[2]->shape, call.inputs[3]->shape, num_threads()));
  }
  NodeFlops cost(const NodeWork& work) const override {
    const AttentionSizes sizes(work.inputs[1]->shape, work.inputs[2]->shape, work.inputs[3]->shape);
    return {.product = 3 * sizes.product_flops(sizes.width) + 2 * sizes.product_flops(sizes.value_width),
            .product_type = work.inputs[1]->dtype};
  }
  Gradients gradient(const GradientRule& rule) const override {
    return attention_second_gradients(rule, options(rule), form());
  }
  std::shared_ptr<const Op> for_inference() const override {
    return form().dropout == 0 ? nullptr : std::make_shared<AttentionGradient>(without_dropout(form()));
  }

 private:
  static int64_t scratch_bytes(const Spec& q, const Shape& k, const Shape& v, int threads) {
    const AttentionSizes sizes(q.shape, k, v);
    return q.dtype == DType::float64 ? 8 * backward_scratch<double>(sizes, threads)
                                     : 4 * backward_scratch<float>(sizes, threads);
  }
  static void run(const AttentionForm& form, const KernelCall& call, void* scratch, int threads) {
    KernelCall rest = call;
    rest.inputs.clear();
    for (size_t i = 1; i < call.inputs.size(); ++i) rest.inputs.push_back(call.inputs[i]);
    for (Tensor* gradient : call.outputs)
      if (call.inputs[5]->elements() == 0) zero_elements(*gradient);
    if (call.inputs[5]->elements() == 0) return;
    const AttentionOperands operands(form, rest, 5);
    const Tensor g = with_rows(*call.inputs[0]), y = with_rows(*call.inputs[4]),
                 log_sums = call.inputs[5]->contiguous_copy();
    visit_query(operands.q, [&]<class T>(TypeTag<T>) {
      attend_back(operands, g, y, static_cast<const T*>(log_sums.address()), detail::output<T>(call),
                  detail::output<T>(call, 1), detail::output<T>(call, 2), static_cast<T*>(scratch), threads);
    });
  }
};

}  // namespace

AttentionResult attention(const Variable& q, const Variable& k, const Variable& v,
                          const std::vector<Variable>& options, const AttentionForm& form,
                          const std::source_location& where) {
  SmallVector<const Variable*, 8> inputs{&q, &k, &v};
  for (const Variable& option : options) inputs.push_back(&option);
  const Variable y = apply(std::make_shared<Attention>(form), {inputs.data(), inputs.size()}, where);
  return {y, Variable(y.node(), 1)};
}

Gradients attention_gradients(const GradientRule& rule, const std::vector<Variable>& options,
                              const AttentionForm& form) {
  const Variable& g = rule.output_gradient();
  const Variable q = rule.input(0), k = rule.input(1), v = rule.input(2), y = rule.output(),
                 log_sums = rule.output(1);
  Gradients result(rule.inputs());
  if (!g.defined()) return result;
  if (rule.wants(0) || rule.wants(1) || rule.wants(2)) {
    SmallVector<const Variable*, 16> inputs{&g, &q, &k, &v, &y, &log_sums};
    for (const Variable& option : options) inputs.push_back(&option);
    const Variable dq = apply(std::make_shared<AttentionGradient>(form), {inputs.data(), inputs.size()},
                              std::source_location::current());
    result[0] = dq;
    result[1] = Variable(dq.node(), 1);
    result[2] = Variable(dq.node(), 2);
  }
  if (const size_t mask = form.mask_at(3);
      form.masked && rule.wants(mask) && is_real(rule.input(mask).dtype()))
    result[mask] = attention_mask_gradient(rule, options, form);
  return result;
}

void add_attention_ops(OpRegistry& ops) {
  ops.add("attention", {3, 6},
          [](AttributeReader& a) { return std::make_shared<Attention>(AttentionForm::read(a)); });
  ops.add("attention_gradient", {6, 9},
          [](AttributeReader& a) { return std::make_shared<AttentionGradient>(AttentionForm::read(a)); });
  add_attention_matrix_ops(ops);
}

}  // namespace espalier
