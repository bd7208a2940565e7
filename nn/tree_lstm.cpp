#include "espalier/nn/tree_lstm.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

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
    for (const LSTMState& child : children)
      for (const Variable* each : {&child.h, &child.c}) check_state(*each, x.defined() ? x : children[0].h);
  }
  /// W·x + b, or b, or nothing.
  Variable of_input(const Variable& x) const {
    if (!x.defined()) return bias_ ? parameter("bias") : Variable();
    const Variable product = matmul(x, transpose(parameter("weight_ih")));
    return bias_ ? product + parameter("bias") : product;
  }
  /// Part `which` of the last axis; nothing of nothing.
  Variable part(const Variable& sums, int64_t which) const {
    return sums.defined() ? slice(sums, -1, which * hidden_, (which + 1) * hidden_) : sums;
  }
  /// The sum of what is defined.
  static Variable sum(const Variable& a, const Variable& b) {
    return !a.defined() ? b : b.defined() ? a + b : a;
  }
  LSTMState state_of(const Variable& i, const Variable& o, const Variable& u, const Variable& kept) const {
    const Variable fresh = sigmoid(i) * tanh(u), c = sum(fresh, kept);
    return {sigmoid(o) * tanh(c), c};
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
    const Variable in = of_input(x);
    if (children.empty()) return state_of(part(in, 1), part(in, 2), part(in, 3), {});
    Variable h = children[0].h, kept;
    const Variable of_f = transpose(parameter("weight_fh"));
    for (size_t k = 0; k < children.size(); ++k) {
      if (k) h = h + children[k].h;
      kept = sum(kept, sigmoid(sum(matmul(children[k].h, of_f), part(in, 0))) * children[k].c);
    }
    const Variable of_h = matmul(h, transpose(parameter("weight_hh")));
    return state_of(sum(part(of_h, 0), part(in, 1)), sum(part(of_h, 1), part(in, 2)),
                    sum(part(of_h, 2), part(in, 3)), kept);
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
    const Variable in = of_input(x);
    if (children.empty()) return state_of(part(in, 1), part(in, 2), part(in, 3), {});
    std::vector<Variable> states;
    for (const LSTMState& child : children) states.push_back(child.h);
    const Variable h = count == 1 ? states[0] : concat(states, 1);
    const Variable weight = parameter("weight_hh");
    const Variable used = count == children_ ? weight : slice(weight, 1, 0, count * hidden());
    const Variable of_h = matmul(h, transpose(used));
    Variable kept;
    for (int64_t k = 0; k < count; ++k)
      kept = sum(kept, sigmoid(sum(part(of_h, 3 + k), part(in, 0))) * children[static_cast<size_t>(k)].c);
    return state_of(sum(part(of_h, 0), part(in, 1)), sum(part(of_h, 1), part(in, 2)),
                    sum(part(of_h, 2), part(in, 3)), kept);
  }

 private:
  int64_t children_;
};

LSTMState call(LayerState& cell, const Variable& x, const std::vector<LSTMState>& children,
               const Module::Where& where) {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    LSTMState next = static_cast<TreeCellState&>(cell).next(x, children);
    return x.defined() ? LSTMState{cell.after_hooks(x, next.h), next.c} : next;
  });
}

void create_cell(LayerState& cell, int64_t in, DType dtype, const Module::Where& where) {
  const CallScope scope(where);
  located(where, [&] { static_cast<TreeCellState&>(cell).create_for(in, dtype); });
}

}  // namespace

ChildSumTreeLstm::ChildSumTreeLstm(int64_t hidden, CellOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<ChildSumState>(hidden, options); })) {}
ChildSumTreeLstm::ChildSumTreeLstm(int64_t in, int64_t hidden, const CellOptions& options, const Where* where)
    : ChildSumTreeLstm(hidden, options, *where) {
  create_cell(layer_state(), in, options.dtype, *where);
}
LSTMState ChildSumTreeLstm::operator()(const Variable& x, Where where) const {
  return call(layer_state(), x, {}, where);
}
LSTMState ChildSumTreeLstm::operator()(const Variable& x, const std::vector<LSTMState>& children,
                                       Where where) const {
  return call(layer_state(), x, children, where);
}

NaryTreeLstm::NaryTreeLstm(int64_t hidden, NaryTreeLstmOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<NaryState>(hidden, options); })) {}
NaryTreeLstm::NaryTreeLstm(int64_t in, int64_t hidden, const NaryTreeLstmOptions& options, const Where* where)
    : NaryTreeLstm(hidden, options, *where) {
  create_cell(layer_state(), in, options.dtype, *where);
}
LSTMState NaryTreeLstm::operator()(const Variable& x, Where where) const {
  return call(layer_state(), x, {}, where);
}
LSTMState NaryTreeLstm::operator()(const Variable& x, const std::vector<LSTMState>& children,
                                   Where where) const {
  return call(layer_state(), x, children, where);
}

}  // namespace espalier::nn
