#include "espalier/ops/recurrent/memory_cell.h"

#include <fmt/format.h>

#include "espalier/core/autograd.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/recurrent/composed.h"
#include "espalier/ops/recurrent/memory_cell_call.h"
#include "espalier/ops/recurrent/memory_cell_kernel.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// The spec of h and c.
Spec state_spec(const MemoryCellForm& form, const InputSpecs& in) {
  const auto summands = static_cast<size_t>(form.summands());
  const auto inputs = summands + static_cast<size_t>(form.memories);
  size_t highest = 0;
  for (size_t i = 0; i < inputs; ++i) {
    check_same_dtype(*in[0], *in[i], "memory_cell");
    if (in[i]->shape.rank() > in[highest]->shape.rank()) highest = i;
  }
  check_dtype<Reals>(*in[0], "memory_cell");
  Shape shape = in[highest]->shape;
  if (shape.rank() == 0) throw ShapeError("memory_cell: its operands have no axis of units");
  shape.dims().back() = form.width;
  for (size_t i = 0; i < inputs; ++i) {
    int64_t blocks = 1;
    for (int64_t gate = 0; i < summands && gate < form.gates(); ++gate)
      blocks = std::max(blocks, form.block(static_cast<int64_t>(i), gate) + 1);
    const Shape& own = in[i]->shape;
    const bool of_all_rows = i < summands && own.rank() == 1;
    const bool fits = own.rank() > 0 && own[-1] % form.width == 0 && own[-1] / form.width >= blocks &&
                      own[-1] / form.width <= MemoryCellForm::most_blocks &&
                      (i < summands || own[-1] == form.width) &&
                      (of_all_rows ||
                       (own.rank() == shape.rank() && std::equal(own.begin(), own.end() - 1, shape.begin())));
    if (!fits)
      throw ShapeError(fmt::format("memory_cell: operand {} of shape {} does not fit {} units, of shape {}",
                                   i, in[i]->shape.str(), form.width, shape.str()));
  }
  return {in[0]->dtype, std::move(shape)};
}

Shape with_blocks(Shape shape, int64_t blocks) {
  int64_t& size = shape.dims().back();
  if (__builtin_mul_overflow(size, blocks, &size))
    throw ShapeError(fmt::format("memory_cell: {} blocks are more than 64 bits count", blocks));
  return shape;
}

/// What both ops have.
class CellOp : public MemoryCellOp, public Batchable {
 public:
  CellOp(MemoryCellForm form, int64_t given, const OpTraits& traits)
      : MemoryCellOp(std::move(form), given, traits) {}
  Attributes attributes() const override {
    return {{"width", form().width},
            {"memories", form().memories},
            {"blocks", std::vector<int64_t>(form().blocks.begin(), form().blocks.end())}};
  }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return axis + 1 == in[input]->shape.rank();
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    size_t rank = 0;
    for (const Spec* spec : in) rank = std::max(rank, spec->shape.rank());
    InputSet rows = InputSet::none();
    for (size_t i = 0; i < std::min<size_t>(in.size(), 63); ++i)
      if (rank > 1 && in[i]->shape.rank() == rank) rows.bits |= uint64_t{1} << i;
    return in.size() > 63 ? InputSet::none() : rows;
  }
  /// The rows of nodes are rows of one node. A summand for all rows of a node goes on being one if all nodes
  /// share it.
  Gradients batched(const Stacked& in) const override {
    size_t rank = 0;
    for (size_t i = 0; i < in.size(); ++i) rank = std::max(rank, in.rank(i));
    Shape rows;
    for (size_t i = 0; i < in.size(); ++i)
      if (in.rank(i) == rank) rows = in.shape(i);
    SmallVector<Variable, 8> whole;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in.rank(i) == rank) {
        whole.push_back(in.stacked(i));
      } else if (in.is_shared(i)) {
        whole.push_back(in[i]);
      } else {
        Dims one{in.rows()};
        for (size_t axis = 1; axis < rank; ++axis) one.push_back(1);
        one.push_back(in.shape(i)[0]);
        Shape all = in.with_rows(rows);
        all.dims().back() = in.shape(i)[0];
        whole.push_back(broadcast_to(in[i].reshape(Shape(one)), all));
      }
    }
    SmallVector<const Variable*, 16> inputs;
    for (const Variable& each : whole) inputs.push_back(&each);
    const Variable first =
        apply(in.op(), std::span(inputs.begin(), inputs.size()), std::source_location::current());
    Gradients all{first};
    for (uint32_t k = 1; k < first.node()->outputs.size(); ++k) all.push_back(Variable(first.node(), k));
    return all;
  }

 protected:
  size_t summands() const { return static_cast<size_t>(form().summands()); }
  size_t memories() const { return static_cast<size_t>(form().memories); }
  /// Throws ShapeError unless there are so `many` inputs behind the summands and memories.
  void check_inputs(const InputSpecs& in, size_t many) const {
    if (in.size() != summands() + memories() + many)
      throw ShapeError(
          fmt::format("{}: {} operands, not {}", name(), in.size(), summands() + memories() + many));
  }
  NodeFlops flops(const Spec& state) const {
    return {.elementwise = 8.0 * static_cast<double>(form().gates() * state.shape.elements())};
  }
};

/// h and c from (summands, memories), and if it `keeps` them the values of the gates.
class MemoryCell : public CellOp {
 public:
  MemoryCell(MemoryCellForm form, bool keeps)
      : CellOp(form, 0, {.gradient_reads = read_by_gradient(form), .gradient_reads_output = true}),
        keeps_(keeps) {}
  std::string_view name() const override { return "memory_cell"; }
  Attributes attributes() const override {
    Attributes all = CellOp::attributes();
    all.emplace_back("keeps", keeps_);
    return all;
  }
  bool equals(const Op& other) const override {
    const auto* cell = dynamic_cast<const MemoryCell*>(&other);
    return cell && cell->keeps_ == keeps_ && cell->form() == form();
  }
  Specs infer(const InputSpecs& in) const override {
    check_inputs(in, 0);
    const Spec state = state_spec(form(), in);
    Specs specs;
    specs.reserve(3);
    specs.push_back(state);
    specs.push_back(state);
    if (keeps_) specs.push_back({state.dtype, with_blocks(state.shape, form().gates())});
    return specs;
  }
  NodeFlops cost(const NodeWork& work) const override { return flops(work.outputs[0]); }
  void run_cpu(const KernelCall& call) const override { run_memory_cell(*this, call); }
  Gradients gradient(const GradientRule& rule) const override;
  std::shared_ptr<const Op> for_inference() const override {
    return keeps_ ? std::make_shared<MemoryCell>(form(), false) : nullptr;
  }

 private:
  static InputSet read_by_gradient(const MemoryCellForm& form) {
    return {((uint64_t{1} << form.memories) - 1) << form.summands()};
  }
  const bool keeps_;
};

/// The gradients from (summands, memories, c, gates, and those gradients of h and c that `given` names).
/// Outputs: for summands that differ in blocks, in the shape of all rows, and for memories.
class MemoryCellGradient : public CellOp {
 public:
  MemoryCellGradient(MemoryCellForm form, int64_t given)
      : CellOp(form, given,
               {.reads = InputSet{~((uint64_t{1} << form.summands()) - 1)},
                .gradient_reads = InputSet{~(uint64_t{3} << (form.summands() + form.memories))}}) {}
  std::string_view name() const override { return "memory_cell_gradient"; }
  Attributes attributes() const override {
    Attributes all = CellOp::attributes();
    all.emplace_back("given", given());
    return all;
  }
  Specs infer(const InputSpecs& in) const override {
    check_inputs(in, 2u + bool(given() & given_cell_h) + bool(given() & given_cell_c));
    const Spec state = state_spec(form(), in);
    Specs specs;
    for (int64_t k = 0; k < gradients_of_summands(form()); ++k) {
      const int64_t columns = in[static_cast<size_t>(summand_of_gradient(form(), k))]->shape[-1];
      specs.push_back({state.dtype, with_blocks(state.shape, columns / form().width)});
    }
    for (size_t k = 0; k < memories(); ++k) specs.push_back(state);
    for (size_t i = summands() + memories(); i < in.size(); ++i) {
      const bool gates = i == summands() + memories() + 1;
      check_same_dtype(state, *in[i], name());
      if (!(in[i]->shape == (gates ? with_blocks(state.shape, form().gates()) : state.shape)))
        throw ShapeError(fmt::format("memory_cell_gradient: operand {} of shape {} does not fit {}", i,
                                     in[i]->shape.str(), state.shape.str()));
    }
    return specs;
  }
  NodeFlops cost(const NodeWork& work) const override { return flops(*work.inputs[summands() + memories()]); }
  void run_cpu(const KernelCall& call) const override { run_memory_cell_gradient(*this, call); }
  Gradients gradient(const GradientRule& rule) const override;
};

OpPtr cell_op(const MemoryCellForm& form, bool keeps) { return kept_op<MemoryCell>(form, keeps); }

Variable applied_cell(const OpPtr& op, const std::vector<Variable>& operands,
                      const std::source_location& where) {
  SmallVector<const Variable*, 16> inputs;
  for (const Variable& each : operands) inputs.push_back(&each);
  return apply(op, std::span(inputs.begin(), inputs.size()), where);
}

Gradients MemoryCell::gradient(const GradientRule& rule) const {
  std::vector<Variable> operands;
  for (size_t i = 0; i < rule.inputs(); ++i) operands.push_back(rule.input(i));
  Variable h = rule.output();
  if (!keeps_)
    h = applied_cell(cell_op(form(), true), operands, rule.where());  // it was not to be differentiated
  operands.push_back(Variable(h.node(), 1));
  operands.push_back(Variable(h.node(), 2));
  int64_t given = 0;
  for (const auto& [k, bit] : {std::pair{size_t{0}, given_cell_h}, {1, given_cell_c}}) {
    if (!rule.output_gradient(k).defined()) continue;
    given |= bit;
    operands.push_back(rule.output_gradient(k));
  }
  const Variable first = applied_cell(kept_op<MemoryCellGradient>(form(), given), operands, rule.where());
  const auto output = [&](int64_t k) { return Variable(first.node(), static_cast<uint32_t>(k)); };
  Gradients result(rule.inputs());
  const int64_t of_summands = gradients_of_summands(form());
  for (size_t p = 0; p < summands(); ++p)
    if (rule.wants(p)) result[p] = output(gradient_of_summand(form(), static_cast<int64_t>(p)));
  for (size_t k = 0; k < memories(); ++k)
    if (rule.wants(summands() + k)) result[summands() + k] = output(of_summands + static_cast<int64_t>(k));
  return result;
}

/// The gradients of the sum of h and c, each times what it is given, are written with elementary ops, and
/// differentiated again.
Gradients MemoryCellGradient::gradient(const GradientRule& rule) const {
  Gradients result(rule.inputs());
  const size_t states = summands() + memories(), given_at = states + 2;
  std::vector<Variable> own(rule.inputs());  // nodes of their own, at which the gradients end
  for (size_t i = 0; i < own.size(); ++i)
    if (i < states || i >= given_at) own[i] = reshape_like(rule.input(i), rule.input(i));
  std::vector<Variable> sums;
  for (size_t p = 0; p < summands(); ++p) {
    const auto k = static_cast<size_t>(gradient_of_summand(form(), static_cast<int64_t>(p)));
    sums.push_back(broadcast_like(own[p], rule.output(k)));
  }
  const std::span all(own);
  const MemoryStates composed = composed_memory_cell(form(), sums, all.subspan(summands(), memories()));
  const auto add = [](Variable& sum, const Variable& term) { sum = sum.defined() ? sum + term : term; };
  Variable first, second;
  size_t at = given_at;
  if (given() & given_cell_h) add(first, sum(composed.h * own[at++]));
  if (given() & given_cell_c) add(first, sum(composed.c * own[at++]));
  const auto of_summands = static_cast<size_t>(gradients_of_summands(form()));
  for (size_t k = 0; k < of_summands + memories(); ++k) {
    if (!rule.output_gradient(k).defined()) continue;
    const Variable& end =
        k < of_summands ? sums[static_cast<size_t>(summand_of_gradient(form(), static_cast<int64_t>(k)))]
                        : own[summands() + k - of_summands];
    if (is_below(first, end)) add(second, sum(first.gradient(end) * rule.output_gradient(k)));
  }
  if (!second.defined()) return result;
  for (size_t i = 0; i < own.size(); ++i)
    if (own[i].defined() && rule.wants(i) && is_below(second, own[i])) result[i] = second.gradient(own[i]);
  return result;
}

MemoryCellForm read_form(AttributeReader& a) {
  const Dims blocks = a.integers("blocks");
  MemoryCellForm form{a.integer("width", 1), a.integer("memories", 0), {blocks.begin(), blocks.end()}};
  if (form.memories > MemoryCellForm::most_memories) a.refuse("memories");
  const auto gates = static_cast<size_t>(form.gates());
  if (form.blocks.empty() || form.blocks.size() % gates || form.summands() > MemoryCellForm::most_summands)
    a.refuse("blocks");
  for (size_t gate = 0; gate < gates; ++gate) {
    int64_t most = -1;
    for (size_t at = gate; at < form.blocks.size(); at += gates) {
      if (form.blocks[at] < -1 || form.blocks[at] >= MemoryCellForm::most_blocks) a.refuse("blocks");
      most = std::max(most, form.blocks[at]);
    }
    if (most < 0) a.refuse("blocks");
  }
  return form;
}

}  // namespace

MemoryStates memory_cell(const MemoryCellForm& form, std::span<const Variable> summands,
                         std::span<const Variable> memories) {
  SmallVector<const Variable*, 16> inputs;
  bool differentiable = false;
  for (const std::span<const Variable> list : {summands, memories})
    for (const Variable& each : list) {
      inputs.push_back(&each);
      differentiable |= each.node()->needs_gradient;
    }
  const Variable h = apply(cell_op(form, differentiable && !build_context().no_grad),
                           std::span(inputs.begin(), inputs.size()), std::source_location::current());
  return {h, Variable(h.node(), 1)};
}

void add_memory_cell_ops(OpRegistry& ops) {
  ops.add("memory_cell", Arity::at_least(1), [](AttributeReader& a) {
    MemoryCellForm form = read_form(a);
    return std::make_shared<MemoryCell>(std::move(form), a.flag("keeps"));
  });
  ops.add("memory_cell_gradient", Arity::at_least(4), [](AttributeReader& a) {
    MemoryCellForm form = read_form(a);
    const int64_t given = a.integer("given", 1);
    if (given > 3) a.refuse("given");
    return std::make_shared<MemoryCellGradient>(std::move(form), given);
  });
}

}  // namespace espalier
