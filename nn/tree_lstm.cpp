#include "espalier/nn/tree_lstm.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/memory_cell.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier::nn {

namespace {

/// What both cells share: the part of the input, and the checks.
class TreeCellState : public LayerState {
 public:
  Variable forward(const Variable& x) override { return next(x, {}).h; }
  virtual LSTMState next(const Variable& x, const std::vector<LSTMState>& children) = 0;
  void create_for(int64_t in, DType dtype) { create_with("input width", in, dtype); }

 protected:
  TreeCellState(std::string_view kind, int64_t hidden, bool bias)
      : LayerState(kind), hidden_(hidden), bias_(bias) {
    if (hidden <= 0)
      throw Error(fmt::format("{}: the state has width {}; it must be at least 1", kind, hidden));
  }
  Initializer initial(const std::optional<Initializer>& given) const {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
    return given ? *given : init::Uniform(-bound, bound);
  }

  void check(const Variable& x, const std::vector<LSTMState>& children) {
    if (x.defined()) {
      if (x.rank() != 2)
        throw ShapeError(fmt::format("{}: an input of shape {} is not [n, width]", kind(), x.shape().str()));
      fit(x, {{-1, x.shape()[1]}});
    } else if (children.empty()) {
      throw Error(fmt::format("{}: a node needs an input or children", kind()));
    } else if (!parameter("weight_ih").defined()) {
      throw Error(fmt::format("{}: the first call, which creates the parameters, needs an input", kind()));
    }
    for (size_t k = 0; k < children.size(); ++k)
      if (!children[k].h.defined() || !children[k].c.defined())
        throw Error(fmt::format("{}: {} of child {} is an undefined Variable; leave out a child that is not",
                                kind(), children[k].h.defined() ? "c" : "h", k));
    for (const LSTMState& child : children)
      for (const Variable* each : {&child.h, &child.c}) check_state(*each, x.defined() ? x : children[0].h);
  }
  /// x · Wᵀ as one node.
  static Variable product(const Variable& x, const Variable& weight) {
    return apply(matmul_op({.transpose_a = false, .transpose_b = true}), {&x, &weight},
                 std::source_location::current());
  }
  /// A sum of pre-activations, and the blocks that it has for the gates of memory_cell: i, o and g, and for
  /// each child's forget gate.
  struct Summand {
    Variable value;
    int64_t i, o, g;
    int64_t f, step = 0;  ///< of child k: f + k · step
    int64_t child = -1;   ///< of this one alone, unless it is −1
    int64_t forget(int64_t k) const { return child < 0 || child == k ? f + k * step : -1; }
  };
  using Summands = SmallVector<Summand, 4>;
  /// W·x and b as far as there are, of f, i, o, u, or where nothing `forgets` perhaps of the last three.
  Summands of_input(const Variable& x, bool forgets = true) const {
    Summands parts;
    if (!forgets && x.defined() && deferring()) {
      // Leaves have no use for f, a quarter of a product that is made for all of them at once.
      const OpPtr rest = slice_op(0, hidden_, 4 * hidden_);
      parts.push_back({product(x, waiting_part(rest, parameter("weight_ih"))), 0, 1, 2, -1});
      if (bias_) parts.push_back({waiting_part(rest, parameter("bias")), 0, 1, 2, -1});
      return parts;
    }
    if (x.defined()) parts.push_back({product(x, parameter("weight_ih")), 1, 2, 3, 0});
    if (bias_) parts.push_back({parameter("bias"), 1, 2, 3, 0});
    return parts;
  }
  LSTMState state_of(const Summands& parts, const std::vector<LSTMState>& children) const {
    MemoryCellForm form{hidden_, static_cast<int64_t>(children.size()), {}};
    SmallVector<Variable, 4> summands, memories;
    for (const Summand& part : parts) {
      summands.push_back(part.value);
      form.blocks.push_back(part.i);
      form.blocks.push_back(part.o);
      for (int64_t k = 0; k < form.memories; ++k) form.blocks.push_back(part.forget(k));
      form.blocks.push_back(part.g);
    }
    for (const LSTMState& child : children) memories.push_back(child.c);
    const MemoryStates next = next_memory(form, std::span(summands.data(), summands.size()),
                                          std::span(memories.data(), memories.size()));
    return {next.h, next.c};
  }
  int64_t hidden() const { return hidden_; }

 private:
  void check_state(const Variable& state, const Variable& like) const {
    if (state.rank() != 2 || state.shape()[0] != like.shape()[0] || state.shape()[1] != hidden_)
      throw ShapeError(fmt::format("{}: a child's state of shape {} does not fit {}: it must be [n, {}]",
                                   kind(), state.shape().str(), like.shape().str(), hidden_));
    if (state.dtype() != parameter("weight_ih").dtype())
      throw TypeError(fmt::format("{}: a child's state is {} and the weights {}", kind(), name(state.dtype()),
                                  name(parameter("weight_ih").dtype())));
  }

  int64_t hidden_;
  bool bias_;
};

class ChildSumState : public LayerStateOf<ChildSumState, TreeCellState> {
 public:
  ChildSumState(int64_t hidden, const CellOptions& options)
      : LayerStateOf("ChildSumTreeLstm", hidden, options.bias) {
    declare("weight_ih", {4 * hidden, -1}, initial(options.initializer));
    declare("weight_hh", {3 * hidden, hidden}, initial(options.initializer));
    declare("weight_fh", {hidden, hidden}, initial(options.initializer));
    if (options.bias) declare("bias", {4 * hidden}, initial(options.initializer));
  }
  LSTMState next(const Variable& x, const std::vector<LSTMState>& children) override {
    check(x, children);
    Summands parts = of_input(x, !children.empty());
    if (children.empty()) return state_of(parts, children);
    Variable h = children[0].h;
    for (size_t k = 1; k < children.size(); ++k) h = h + children[k].h;
    parts.push_back({product(h, parameter("weight_hh")), 0, 1, 2, -1});
    const Variable of_f = parameter("weight_fh");
    for (size_t own = 0; own < children.size(); ++own)
      parts.push_back({product(children[own].h, of_f), -1, -1, -1, 0, 0, static_cast<int64_t>(own)});
    return state_of(parts, children);
  }
};

class NaryState : public LayerStateOf<NaryState, TreeCellState> {
 public:
  NaryState(int64_t hidden, const NaryTreeLstmOptions& options)
      : LayerStateOf("NaryTreeLstm", hidden, options.bias), children_(options.children) {
    if (children_ <= 0)
      throw Error(fmt::format("NaryTreeLstm: nodes with {} children; there must be at least 1", children_));
    declare("weight_ih", {4 * hidden, -1}, initial(options.initializer));
    declare("weight_hh", {(3 + children_) * hidden, children_ * hidden}, initial(options.initializer));
    if (options.bias) declare("bias", {4 * hidden}, initial(options.initializer));
  }
  LSTMState next(const Variable& x, const std::vector<LSTMState>& children) override {
    check(x, children);
    const auto count = static_cast<int64_t>(children.size());
    if (count > children_)
      throw Error(fmt::format("NaryTreeLstm: {} children, and at most {} are allowed", count, children_));
    Summands parts = of_input(x, !children.empty());
    if (children.empty()) return state_of(parts, children);
    std::vector<Variable> states;
    for (const LSTMState& child : children) states.push_back(child.h);
    const Variable h = count == 1 ? states[0] : concat(states, 1);
    const Variable weight = parameter("weight_hh");
    const Variable used = count == children_ ? weight : slice(weight, 1, 0, count * hidden());
    parts.push_back({product(h, used), 0, 1, 2, 3, 1});
    return state_of(parts, children);
  }

 private:
  int64_t children_;
};

LSTMState state_after(LayerState& cell, const Variable& x, const std::vector<LSTMState>& children,
                      const Module::Where& where) {
  const CallScope scope(where, cell.kind());
  return located(*build_context().where, [&] {
    LSTMState next = static_cast<TreeCellState&>(cell).next(x, children);
    return x.defined() ? LSTMState{cell.after_hooks(x, next.h), next.c} : next;
  });
}

void create_tree_cell(LayerState& cell, int64_t in, DType dtype, const Module::Where& where) {
  const CallScope scope(where, cell.kind());
  located(where, [&] { static_cast<TreeCellState&>(cell).create_for(in, dtype); });
}

}  // namespace

ChildSumTreeLstm::ChildSumTreeLstm(int64_t hidden, CellOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<ChildSumState>(hidden, options); })) {}
ChildSumTreeLstm::ChildSumTreeLstm(int64_t in, int64_t hidden, const CellOptions& options, const Where* where)
    : ChildSumTreeLstm(hidden, options, *where) {
  create_tree_cell(layer_state(), in, options.dtype, *where);
}
LSTMState ChildSumTreeLstm::operator()(const Variable& x, Where where) const {
  return state_after(layer_state(), x, {}, where);
}
LSTMState ChildSumTreeLstm::operator()(const Variable& x, const std::vector<LSTMState>& children,
                                       Where where) const {
  return state_after(layer_state(), x, children, where);
}
LSTMState ChildSumTreeLstm::operator()(const Variable& x, std::initializer_list<LSTMState> children,
                                       Where where) const {
  return state_after(layer_state(), x, children, where);
}

NaryTreeLstm::NaryTreeLstm(int64_t hidden, NaryTreeLstmOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<NaryState>(hidden, options); })) {}
NaryTreeLstm::NaryTreeLstm(int64_t in, int64_t hidden, const NaryTreeLstmOptions& options, const Where* where)
    : NaryTreeLstm(hidden, options, *where) {
  create_tree_cell(layer_state(), in, options.dtype, *where);
}
LSTMState NaryTreeLstm::operator()(const Variable& x, Where where) const {
  return state_after(layer_state(), x, {}, where);
}
LSTMState NaryTreeLstm::operator()(const Variable& x, const std::vector<LSTMState>& children,
                                   Where where) const {
  return state_after(layer_state(), x, children, where);
}
LSTMState NaryTreeLstm::operator()(const Variable& x, std::initializer_list<LSTMState> children,
                                   Where where) const {
  return state_after(layer_state(), x, children, where);
}

}  // namespace espalier::nn
