// TreeLstm cells: Tai, Socher and Manning, Improved semantic representations from tree-structured long
// short-term memory networks, 2015.
#pragma once
#include <concepts>
#include <initializer_list>
#include <vector>

#include "espalier/nn/cells.h"

namespace espalier::nn {

// A call computes the states of n nodes at once from inputs x [n, in] and the states of their children, each
// [n, hidden]. Without an x that part of the sums is 0: inner nodes of trees whose words are at the leaves.
// Leaves have no children. A call throws Error if a node has neither and for an undefined state, ShapeError
// for other shapes and TypeError for other dtypes; a constructor Error unless sizes are positive. With an
// input width the parameters are there at once, on the CPU, else after the first call. As a Layer each is x ↦
// h of leaves.

/// For any number of children, in any order. With h̃ the sum of the children's h, and i, o, u the parts of
/// W·x + U·h̃ + b: c = σ(i)·tanh(u) + Σ σ(W_f·x + U_f·h_k + b_f)·c_k, h = σ(o)·tanh(c) (equations 2 to 8).
/// Parameters: `weight_ih` [4 · hidden, in] and `bias` [4 · hidden], of f, i, o, u, and `weight_hh` [3 ·
/// hidden, hidden], of i, o, u, and `weight_fh` [hidden, hidden].
class ChildSumTreeLstm : public LayerOf<ChildSumTreeLstm> {
 public:
  explicit ChildSumTreeLstm(int64_t hidden, CellOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  ChildSumTreeLstm(int64_t in, Hidden hidden, CellOptions options = {}, Where where = Where::current())
      : ChildSumTreeLstm(in, static_cast<int64_t>(hidden), options, &where) {}

  LSTMState operator()(const Variable& x, Where where = Where::current()) const;
  LSTMState operator()(const Variable& x, const std::vector<LSTMState>& children,
                       Where where = Where::current()) const;
  LSTMState operator()(const Variable& x, std::initializer_list<LSTMState> children,
                       Where where = Where::current()) const;

 private:
  ChildSumTreeLstm(int64_t in, int64_t hidden, const CellOptions& options, const Where* where);
};

struct NaryTreeLstmOptions {
  int64_t children = 2;
  bool bias = true;
  std::optional<Initializer> initializer = {};
  DType dtype = float32;
};

/// For at most `children` children, in order; missing ones count as 0. With i, o, u and f_k the parts of
/// W·x + U·[h_1 … h_N] + b, where all f_k have one part of W and b: c = σ(i)·tanh(u) + Σ σ(f_k)·c_k,
/// h = σ(o)·tanh(c) (equations 9 to 14). Parameters: `weight_ih` [4 · hidden, in] and `bias` [4 · hidden], of
/// f, i, o, u, and `weight_hh` [(3 + N) · hidden, N · hidden], of i, o, u, f_1, …, f_N.
class NaryTreeLstm : public LayerOf<NaryTreeLstm> {
 public:
  explicit NaryTreeLstm(int64_t hidden, NaryTreeLstmOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  NaryTreeLstm(int64_t in, Hidden hidden, NaryTreeLstmOptions options = {}, Where where = Where::current())
      : NaryTreeLstm(in, static_cast<int64_t>(hidden), options, &where) {}

  LSTMState operator()(const Variable& x, Where where = Where::current()) const;
  LSTMState operator()(const Variable& x, const std::vector<LSTMState>& children,
                       Where where = Where::current()) const;
  LSTMState operator()(const Variable& x, std::initializer_list<LSTMState> children,
                       Where where = Where::current()) const;

 private:
  NaryTreeLstm(int64_t in, int64_t hidden, const NaryTreeLstmOptions& options, const Where* where);
};

}  // namespace espalier::nn
