// RNNCell, LSTMCell, GRUCell: one step of a recurrent network, by PyTorch's equations and names.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>

#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

enum class Nonlinearity : uint8_t { tanh, relu };

struct CellOptions {
  bool bias = true;
  /// Of all parameters. Without: uniform within ±1/√hidden.
  std::optional<Initializer> initializer = {};
  DType dtype = float32;  ///< of the parameters, if the input width is given: a real one
};

struct RNNCellOptions {
  Nonlinearity nonlinearity = Nonlinearity::tanh;
  bool bias = true;
  std::optional<Initializer> initializer = {};
  DType dtype = float32;
};

/// Those of CellOptions, and what changes the equations of an LSTM, in any combination.
struct LSTMCellOptions {
  bool bias = true;
  /// The width of h, less than hidden: h' = W_hr·(σ(o)·tanh(c')), with the parameter `weight_hr`
  /// [projection, hidden]. 0: there is none. Sak, Senior and Beaufays, Long short-term memory recurrent
  /// neural network architectures for large scale acoustic modeling, 2014; PyTorch's proj_size.
  int64_t projection = 0;
  /// Gates see the memory: the sums of i and f have p_i·c and p_f·c added, that of o p_o·c', with the
  /// parameter `weight_peephole` [3 · hidden] in this order. Gers and Schmidhuber, Recurrent nets that time
  /// and count, 2000.
  bool peepholes = false;
  /// The forget gate is 1 − σ(i): weights and biases have the gates i, g, o, peepholes i and o. Greff et al.,
  /// LSTM: a search space odyssey, 2017.
  bool coupled = false;
  /// Both products are normalized along all gates, and what tanh takes of c' along the units, with ε = 1e-5:
  /// LN(W_ih·x)·norm_ih + b_ih, LN(W_hh·h)·norm_hh + b_hh and tanh(LN(c')·norm_c + bias_c). Ba, Kiros and
  /// Hinton, Layer normalization, 2016.
  bool layer_norm = false;
  std::optional<Initializer> initializer = {};  ///< of all parameters but those of normalizations
  DType dtype = float32;
};

// Inputs x are [n, in], states [n, hidden]; without a state it is 0. Parameters: `weight_ih` [gates · hidden,
// in], `weight_hh` [gates · hidden, hidden], and with a bias `bias_ih` and `bias_hh` [gates · hidden]. With
// an input width they are there at once, on the CPU, else after the first call. A call throws ShapeError for
// other shapes and TypeError for other dtypes; a constructor Error unless the sizes are positive.

/// h' = tanh(W_ih·x + b_ih + W_hh·h + b_hh), or relu of it. Elman, Finding structure in time, 1990.
class RNNCell : public LayerOf<RNNCell> {
 public:
  explicit RNNCell(int64_t hidden, RNNCellOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  RNNCell(int64_t in, Hidden hidden, RNNCellOptions options = {}, Where where = Where::current())
      : RNNCell(in, static_cast<int64_t>(hidden), options, &where) {}

  using LayerOf::operator();
  /// The next state; before the first one `h` may be undefined, which is zeros.
  Variable operator()(const Variable& x, const Variable& h, Where where = Where::current()) const;

 private:
  RNNCell(int64_t in, int64_t hidden, const RNNCellOptions& options, const Where* where);
};

/// What an LSTM carries on: its output and its memory.
struct LSTMState {
  Variable h, c;
};

/// With i, f, g, o the four parts of W_ih·x + b_ih + W_hh·h + b_hh: c' = σ(f)·c + σ(i)·tanh(g),
/// h' = σ(o)·tanh(c'). Hochreiter and Schmidhuber, Long short-term memory, 1997; the forget gate by Gers,
/// Schmidhuber and Cummins, 2000. As a Layer it is x ↦ h'.
class LSTMCell : public LayerOf<LSTMCell> {
 public:
  explicit LSTMCell(int64_t hidden, LSTMCellOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  LSTMCell(int64_t in, Hidden hidden, LSTMCellOptions options = {}, Where where = Where::current())
      : LSTMCell(in, static_cast<int64_t>(hidden), options, &where) {}

  /// The next output and memory: `const auto [h, c] = cell(x);`.
  LSTMState operator()(const Variable& x, const LSTMState& state = {}, Where where = Where::current()) const;

 private:
  LSTMCell(int64_t in, int64_t hidden, const LSTMCellOptions& options, const Where* where);
};

/// With r, z, n the three parts of each product: r = σ(x_r + h_r), z = σ(x_z + h_z), n = tanh(x_n + r·h_n),
/// h' = (1 − z)·n + z·h, where x_ and h_ are W_ih·x + b_ih and W_hh·h + b_hh. Cho et al., Learning phrase
/// representations using RNN encoder–decoder for statistical machine translation, 2014.
class GRUCell : public LayerOf<GRUCell> {
 public:
  explicit GRUCell(int64_t hidden, CellOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  GRUCell(int64_t in, Hidden hidden, CellOptions options = {}, Where where = Where::current())
      : GRUCell(in, static_cast<int64_t>(hidden), options, &where) {}

  using LayerOf::operator();
  /// The next state; before the first one `h` may be undefined, which is zeros.
  Variable operator()(const Variable& x, const Variable& h, Where where = Where::current()) const;

 private:
  GRUCell(int64_t in, int64_t hidden, const CellOptions& options, const Where* where);
};

}  // namespace espalier::nn
