#include "espalier/ops/recurrent/recurrence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "espalier/core/autograd.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/recurrent/composed.h"
#include "espalier/ops/recurrent/memory_cell_call.h"
#include "espalier/ops/recurrent/recurrence_kernel.h"
#include "espalier/ops/recurrent/sequence_checks.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

/// Whether the rows of each step can be the first of those of the step before.
bool are_batch_sizes(const Dims& sizes) {
  for (size_t k = 0; k < sizes.size(); ++k)
    if (sizes[k] < 1 || (k && sizes[k] > sizes[k - 1])) return false;
  return true;
}

/// What the ops are made from.
struct Settings {
  RecurrenceForm form;
  bool bias = false;
  bool lengths = false;

  bool is_lstm() const { return form.cell == RecurrentCell::lstm; }
  /// Of the inputs x, weight, states, biases and lengths.
  size_t inputs() const { return 3u + is_lstm() + 2u * bias + lengths; }
  size_t biases_at() const { return 3u + is_lstm(); }
  bool is_bias(size_t input) const { return bias && (input == biases_at() || input == biases_at() + 1); }
  bool is_lengths(size_t input) const { return lengths && input + 1 == inputs(); }
  Attributes attributes() const {
    return {{"cell", std::string(name(form.cell))},
            {"reverse", form.reverse},
            {"batch_sizes", std::vector<int64_t>(form.batch_sizes.begin(), form.batch_sizes.end())},
            {"bias", bias}};
  }
  /// x and the biases, which the gradient is not made of.
  InputSet unread() const {
    InputSet set = InputSet::only(0);
    if (bias) set.bits |= uint64_t{3} << biases_at();
    return set;
  }
  /// [steps, batch, width] or [rows, width].
  Shape like_x(const Shape& x, int64_t width) const {
    Shape made = x;
    made.dims().back() = width;
    return made;
  }
  /// Whether the batch is not along that axis of an input.
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const {
    if (input == 1 || is_bias(input)) return true;
    return !form.batch_sizes.empty() || (!is_lengths(input) && axis + 2 != in[input]->shape.rank());
  }
};

RecurrenceInputs inputs_of(const Settings& s, const std::vector<Variable>& v) {
  RecurrenceInputs in{v[0], v[1], v[2]};
  if (s.is_lstm()) in.c = v[3];
  if (s.bias) in.bias_ih = v[s.biases_at()], in.bias_hh = v[s.biases_at() + 1];
  if (s.lengths) in.lengths = v[s.inputs() - 1];
  return in;
}

/// Throws ShapeError unless the shapes of the operands go together, and the lengths are int64.
void check_shapes(const Settings& s, const InputSpecs& in) {
  const Shape &x = in[0]->shape, &weight = in[1]->shape, &h = in[2]->shape;
  const int64_t gates = gates_of(s.form.cell);
  const size_t rank = s.form.batch_sizes.empty() ? 3 : 2;
  int64_t rows = 0;
  bool countable = true;
  if (!are_batch_sizes(s.form.batch_sizes))
    throw ShapeError(fmt::format("recurrence: batch sizes [{}] must be positive and not rise",
                                 fmt::join(s.form.batch_sizes.begin(), s.form.batch_sizes.end(), ", ")));
  for (const int64_t size : s.form.batch_sizes) countable &= !__builtin_add_overflow(rows, size, &rows);
  const bool fits =
      countable && x.rank() == rank && weight.rank() == 2 && weight[0] % gates == 0 &&
      weight[0] / gates == weight[1] && x[-1] == weight[0] && h.rank() == 2 && h[1] == weight[1] &&
      (rank == 3 ? h[0] == x[1] : x[0] == rows && h[0] == s.form.batch_sizes[0]) &&
      (!s.is_lstm() || in[3]->shape == h) &&
      (!s.bias ||
       (in[s.biases_at()]->shape == Shape{weight[0]} && in[s.biases_at() + 1]->shape == Shape{weight[0]}));
  if (!fits)
    throw ShapeError(
        fmt::format("recurrence: {} takes [{}, {} · hidden], weights [{} · hidden, hidden] and states "
                    "[batch, hidden], not "
                    "{}, {} and {}",
                    name(s.form.cell), rank == 3 ? "steps, batch" : "rows", gates, gates, x.str(),
                    weight.str(), h.str()));
  if (s.lengths && (rank != 3 || *in[s.inputs() - 1] != Spec{DType::int64, Shape{x[1]}}))
    throw ShapeError(fmt::format("recurrence: lengths of shape {} for x {}; they are int64 [batch]",
                                 in[s.inputs() - 1]->shape.str(), x.str()));
}

NodeFlops flops(const NodeWork& work) {
  const Shape& weight = work.inputs[1]->shape;
  const double rows = static_cast<double>(work.inputs[0]->shape.elements()) / static_cast<double>(weight[0]);
  return {.elementwise = 8 * rows * static_cast<double>(weight[0]),
          .product = 2 * rows * static_cast<double>(weight.elements()),
          .product_type = work.inputs[1]->dtype};
}

/// The recurrence from (x, weight, h[, c][, bias_ih, bias_hh][, lengths]). Outputs: the states of all steps,
/// the last h[, the last c], and if it `keeps` them, for LSTM and GRU, the gates and what they were made
/// with.
class Recurrence : public Op {
 public:
  Recurrence(Settings settings, bool keeps)
      : Op({.takes_any_values = !settings.lengths,
            .gradient_reads = InputSet{~settings.unread().bits},
            .gradient_reads_output = true}),
        s_(std::move(settings)),
        keeps_(keeps && keeps_gates(s_.form.cell)) {}
  std::string_view name() const override { return s_.lengths ? "padded_recurrence" : "recurrence"; }
  Attributes attributes() const override {
    Attributes all = s_.attributes();
    all.emplace_back("keeps", keeps_);
    return all;
  }
  Specs infer(const InputSpecs& in) const override;
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return s_.mixes(input, axis, in);
  }
  NodeFlops cost(const NodeWork& work) const override { return flops(work); }
  bool can_write_over(size_t output, size_t input) const override {
    return keeps_ && input == 0 && output == gates_at();
  }
  void run_cpu(const KernelCall& call) const override {
    if (call.outputs[0]->elements() == 0) return without_steps(call);
    bind_recurrence(forward_call_of(*this, call), {})->run({});
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    if (call.outputs[0]->elements() == 0) return nullptr;
    return bind_recurrence(forward_call_of(*this, call), context);
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    if (call.outputs[0].shape.elements() == 0) return 0;
    return recurrence_workspace_bytes(s_.form, call, false);
  }
  Gradients gradient(const GradientRule& rule) const override;
  std::shared_ptr<const Op> for_inference() const override {
    return keeps_ ? std::make_shared<Recurrence>(s_, false) : nullptr;
  }

 private:
  size_t gates_at() const { return 2u + s_.is_lstm(); }
  void without_steps(const KernelCall& call) const {
    copy_elements(*call.inputs[2], *call.outputs[1]);
    if (s_.is_lstm()) copy_elements(*call.inputs[3], *call.outputs[2]);
  }

  const Settings s_;
  const bool keeps_;
};

/// The gradients from (x, weight, h[, c][, biases][, lengths], states[, gates, memory], and those gradients
/// of the states of all steps, of the last h and of the last c that `given` names). Outputs: those of x, of
/// h[, of c], the states that the steps begin with, 0 where a step does not count, and of a GRU those of the
/// products with the states.
class RecurrenceGradient : public Op {
 public:
  RecurrenceGradient(Settings settings, int64_t given)
      : Op({.takes_any_values = !settings.lengths,
            .reads = InputSet{~settings.unread().bits},
            .gradient_reads = InputSet{~(kept_of(settings).bits)}}),
        s_(std::move(settings)),
        given_(given) {}
  std::string_view name() const override {
    return s_.lengths ? "padded_recurrence_gradient" : "recurrence_gradient";
  }
  Attributes attributes() const override {
    Attributes all = s_.attributes();
    all.emplace_back("given", given_);
    return all;
  }
  Specs infer(const InputSpecs& in) const override {
    check_shapes(s_, in);
    check_dtype<Reals>(*in[0], name());
    const Spec states{in[0]->dtype, s_.like_x(in[0]->shape, in[1]->shape[1])};
    size_t at = 1;
    const auto take = [&](const Shape& shape) {
      // The dtype of x, which is not read, may be another 16-bit one in a plan of mixed precision.
      if (widened(in[at]->dtype) != widened(in[0]->dtype) || !(in[at]->shape == shape))
        throw ShapeError(fmt::format("{}: operand {} is {} {}, not {} {}", name(), at,
                                     espalier::name(in[at]->dtype), in[at]->shape.str(),
                                     espalier::name(in[0]->dtype), shape.str()));
      ++at;
    };
    const Shape &x = in[0]->shape, &h = in[2]->shape;
    take(in[1]->shape), take(h);
    if (s_.is_lstm()) take(h);
    at = s_.inputs();
    take(states.shape);
    if (keeps_gates(s_.form.cell)) take(x), take(states.shape);
    if (given_ & given_h) take(states.shape);
    if (given_ & given_last_h) take(h);
    if (given_ & given_last_c) take(h);
    if (at != in.size()) throw ShapeError(fmt::format("{}: {} operands, not {}", name(), in.size(), at));
    Specs specs{*in[0], *in[2]};
    if (s_.is_lstm()) specs.push_back(*in[3]);
    specs.push_back(states);
    if (s_.form.cell == RecurrentCell::gru) specs.push_back(*in[0]);
    return specs;
  }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return s_.mixes(input, axis, in);
  }
  NodeFlops cost(const NodeWork& work) const override { return flops(work); }
  bool can_write_over(size_t output, size_t input) const override {
    return output == 0 && keeps_gates(s_.form.cell) && input == s_.inputs() + 1;
  }
  void run_cpu(const KernelCall& call) const override {
    if (call.outputs[0]->elements() == 0) return without_steps(call);
    bind_recurrence(backward_call_of(*this, call), {})->run({});
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    if (call.outputs[0]->elements() == 0) return nullptr;
    return bind_recurrence(backward_call_of(*this, call), context);
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    if (call.outputs[0].shape.elements() == 0) return 0;
    return recurrence_workspace_bytes(s_.form, call, true);
  }
  Gradients gradient(const GradientRule& rule) const override;

 private:
  /// States, gates and memory: functions of the other inputs.
  static InputSet kept_of(const Settings& s) {
    return {(keeps_gates(s.form.cell) ? uint64_t{7} : uint64_t{1}) << s.inputs()};
  }
  size_t gradients_at() const { return s_.inputs() + (keeps_gates(s_.form.cell) ? 3 : 1); }
  void without_steps(const KernelCall& call) const {
    const BackwardCall c = backward_call_of(*this, call);
    c.of_last_h ? copy_elements(*c.of_last_h, *c.of_h) : zero_elements(*c.of_h);
    if (c.of_c) c.of_last_c ? copy_elements(*c.of_last_c, *c.of_c) : zero_elements(*c.of_c);
  }

  const Settings s_;
  const int64_t given_;
};

Specs Recurrence::infer(const InputSpecs& in) const {
  if (in.size() != s_.inputs())
    throw ShapeError(fmt::format("recurrence: {} operands, not {}", in.size(), s_.inputs()));
  for (size_t i = 0; i < in.size(); ++i) {
    if (s_.is_lengths(i)) continue;
    check_same_dtype(*in[0], *in[i], name());
    check_dtype<Reals>(*in[i], name());
  }
  check_shapes(s_, in);
  const Shape &x = in[0]->shape, &weight = in[1]->shape;
  Specs specs{{in[0]->dtype, s_.like_x(x, weight[1])}, *in[2]};
  if (s_.is_lstm()) specs.push_back(*in[2]);
  if (!keeps_) return specs;
  specs.push_back(*in[0]);
  specs.push_back({in[0]->dtype, s_.like_x(x, weight[1])});
  return specs;
}

Gradients Recurrence::gradient(const GradientRule& rule) const {
  std::vector<Variable> operands;
  for (size_t i = 0; i < s_.inputs(); ++i) operands.push_back(rule.input(i));
  Variable out = rule.output();
  if (keeps_gates(s_.form.cell) && !keeps_) {  // it was not to be differentiated
    SmallVector<const Variable*, 8> inputs;
    for (const Variable& each : operands) inputs.push_back(&each);
    out =
        apply(std::make_shared<Recurrence>(s_, true), std::span(inputs.begin(), inputs.size()), rule.where());
  }
  operands.push_back(out);
  const size_t gates = gates_at();
  if (keeps_gates(s_.form.cell))
    for (const size_t k : {gates, gates + 1})
      operands.push_back(Variable(out.node(), static_cast<uint32_t>(k)));
  int64_t given = 0;
  for (const auto& [k, bit] : {std::pair{0, given_h}, {1, given_last_h}, {2, given_last_c}}) {
    if (k == 2 && !s_.is_lstm()) break;
    if (!rule.output_gradient(static_cast<size_t>(k)).defined()) continue;
    given |= bit;
    operands.push_back(rule.output_gradient(static_cast<size_t>(k)));
  }
  SmallVector<const Variable*, 16> inputs;
  for (const Variable& each : operands) inputs.push_back(&each);
  const Variable of_x = apply(std::make_shared<RecurrenceGradient>(s_, given),
                              std::span(inputs.begin(), inputs.size()), rule.where());
  const auto output = [&](uint32_t k) { return Variable(of_x.node(), k); };
  const uint32_t before_at = 2u + s_.is_lstm();
  const Variable of_sums = s_.form.cell == RecurrentCell::gru ? output(before_at + 1) : of_x;

  Gradients result(rule.inputs());
  result[0] = of_x;
  result[2] = output(1);
  if (s_.is_lstm()) result[3] = output(2);
  if (rule.wants(1)) {
    const Variable sums = fold_rows(of_sums), before = fold_rows(output(before_at));
    if (rule.adds_up(1))
      rule.add_product(1, {sums, before, {.transpose_a = true, .transpose_b = false}});
    else
      result[1] = matmul(transpose(sums), before);
  }
  if (!s_.bias) return result;
  const size_t b = s_.biases_at();
  if (rule.wants(b)) result[b] = sum_to_like(of_x, operands[b]);
  if (rule.wants(b + 1))
    result[b + 1] = rule.wants(b) && of_sums.node() == of_x.node() && of_sums.output() == of_x.output()
                        ? result[b]
                        : sum_to_like(of_sums, operands[b + 1]);
  return result;
}

/// The gradients of the sum over the recurrence's outputs, each times what it is given, are written with the
/// cells' equations, and differentiated again.
Gradients RecurrenceGradient::gradient(const GradientRule& rule) const {
  Gradients result(rule.inputs());
  std::vector<Variable> own(rule.inputs());  // nodes of their own, at which the gradients end
  const auto take = [&](size_t i) { own[i] = reshape_like(rule.input(i), rule.input(i)); };
  for (size_t i = 0; i < s_.inputs(); ++i)
    if (s_.is_lengths(i))
      own[i] = rule.input(i);
    else
      take(i);
  for (size_t i = gradients_at(); i < rule.inputs(); ++i) take(i);
  const RecurrenceInputs in = inputs_of(s_, own);
  const ComposedRecurrence composed = composed_recurrence(in, s_.form);

  Variable first;
  const auto add = [](Variable& sum, const Variable& term) { sum = sum.defined() ? sum + term : term; };
  size_t at = gradients_at();
  if (given_ & given_h) add(first, sum(composed.out.h * own[at++]));
  if (given_ & given_last_h) add(first, sum(composed.out.last_h * own[at++]));
  if (given_ & given_last_c) add(first, sum(composed.out.last_c * own[at++]));
  std::vector<Variable> outputs{first.gradient(in.x), first.gradient(in.h)};
  if (s_.is_lstm()) outputs.push_back(first.gradient(in.c));
  outputs.push_back(composed.h_before);
  if (s_.form.cell == RecurrentCell::gru) outputs.push_back(first.gradient(composed.of_sums));

  Variable second;
  for (size_t k = 0; k < outputs.size(); ++k)
    if (rule.output_gradient(k).defined()) add(second, sum(outputs[k] * rule.output_gradient(k)));
  if (!second.defined()) return result;
  for (size_t i = 0; i < own.size(); ++i)
    if (own[i].defined() && !s_.is_lengths(i) && rule.wants(i) && is_below(second, own[i]))
      result[i] = second.gradient(own[i]);
  return result;
}

Settings read_settings(AttributeReader& a, bool lengths) {
  Settings s;
  s.lengths = lengths;
  const std::string& cell = a.text("cell");
  bool known = false;
  for (const RecurrentCell each :
       {RecurrentCell::tanh, RecurrentCell::relu, RecurrentCell::lstm, RecurrentCell::gru})
    if (name(each) == cell) s.form.cell = each, known = true;
  if (!known) a.refuse("cell");
  s.form.reverse = a.flag("reverse");
  s.form.batch_sizes = a.integers("batch_sizes");
  if (!are_batch_sizes(s.form.batch_sizes) || (lengths && !s.form.batch_sizes.empty()))
    a.refuse("batch_sizes");
  s.bias = a.flag("bias");
  return s;
}

}  // namespace

RecurrenceOutputs recurrence(const RecurrenceInputs& in, const RecurrenceForm& form) {
  const Settings settings{form, in.bias_ih.defined(), in.lengths.defined()};
  SmallVector<const Variable*, 8> inputs{&in.x, &in.weight, &in.h};
  if (settings.is_lstm()) inputs.push_back(&in.c);
  if (settings.bias) inputs.push_back(&in.bias_ih), inputs.push_back(&in.bias_hh);
  if (settings.lengths) inputs.push_back(&in.lengths);
  bool differentiable = false;
  for (const Variable* each : inputs) differentiable |= each->node()->needs_gradient;
  const Variable h = apply(std::make_shared<Recurrence>(settings, differentiable && !build_context().no_grad),
                           std::span(inputs.begin(), inputs.size()), std::source_location::current());
  const auto output = [&](uint32_t k) { return Variable(h.node(), k); };
  return {h, output(1), settings.is_lstm() ? output(2) : Variable()};
}

void add_recurrence_ops(OpRegistry& ops) {
  add_memory_cell_ops(ops);
  add_sequence_check_ops(ops);
  for (const bool lengths : {false, true}) {
    const size_t least = lengths ? 4 : 3;
    ops.add(lengths ? "padded_recurrence" : "recurrence", {least, least + 3}, [lengths](AttributeReader& a) {
      Settings settings = read_settings(a, lengths);
      const bool keeps = a.flag("keeps");
      if (keeps && !keeps_gates(settings.form.cell)) a.refuse("keeps");
      return std::make_shared<Recurrence>(std::move(settings), keeps);
    });
    ops.add(lengths ? "padded_recurrence_gradient" : "recurrence_gradient", Arity::at_least(least),
            [lengths](AttributeReader& a) {
              Settings settings = read_settings(a, lengths);
              const int64_t given = a.integer("given", 1);
              if (given > (settings.is_lstm() ? 7 : 3)) a.refuse("given");
              return std::make_shared<RecurrenceGradient>(std::move(settings), given);
            });
  }
}

}  // namespace espalier
