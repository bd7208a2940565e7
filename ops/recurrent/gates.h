// The equations of recurrent cells, and their derivatives, for one unit: the text of all backends.
#pragma once
#include <cstdint>

#include "espalier/core/scalar.h"

namespace espalier::gates {

// Floats are computed as floats: their errors are some 1e-7, and the values at most 1.
template <class C>
ESPALIER_HD C sigmoid(C x) {
  if constexpr (sizeof(C) == sizeof(float))
    return C(1) / (C(1) + scalar::Exp()(-x));
  else
    return scalar::Sigmoid()(x);
}
/// (1 − e) / (1 + e) with e = exp(−2|x|), and for small x, where that loses digits, Taylor's polynomial.
template <class C>
ESPALIER_HD C tanh(C x) {
  if constexpr (sizeof(C) == sizeof(float)) {
    const C size = x < C(0) ? -x : x, e = scalar::Exp()(C(-2) * size), y = (C(1) - e) / (C(1) + e), z = x * x;
    const C sum = C(1) + z * (C(-1.0 / 3) + z * (C(2.0 / 15) + z * (C(-17.0 / 315) + z * C(62.0 / 2835))));
    return size < C(0.25) ? x * sum : x < C(0) ? -y : y;
  } else {
    return scalar::Tanh()(x);
  }
}

/// Where one row of a step lies. Gates that are kept are `width` apart, those of operands `in_width`. C is
/// the type to compute in, S that of the product with the state.
template <class T, class C, class S = T>
struct ForwardRow {
  const T* x;  ///< gates: the product with the inputs
  const S* s;  ///< gates: the product with the state
  const T *bias_ih, *bias_hh;
  T *h, *c;           ///< the state before, which becomes that after; c of an LSTM alone
  T* out;             ///< the state after
  T *gates, *memory;  ///< what derivatives need, if that is kept
  int64_t width, in_width;

  ESPALIER_HD C of_x(int64_t gate, int64_t j) const {
    return static_cast<C>(x[gate * in_width + j]) + static_cast<C>(bias_ih[gate * in_width + j]);
  }
  ESPALIER_HD C of_h(int64_t gate, int64_t j) const {
    return static_cast<C>(s[gate * in_width + j]) + static_cast<C>(bias_hh[gate * in_width + j]);
  }
  /// A gate's sum of both products and biases.
  ESPALIER_HD C sum(int64_t gate, int64_t j) const { return of_x(gate, j) + of_h(gate, j); }
  ESPALIER_HD void keep(int64_t gate, int64_t j, C value) const {
    gates[gate * width + j] = static_cast<T>(value);
  }
};

/// `dh` is what later steps and the output give to the state after; what each step gives to the state before
/// is a product with the weights, for which `of_sums` is the operand, and of a GRU `dh` as it is left here.
template <class T, class C>
struct BackwardRow {
  const T *gates, *memory;       ///< of the forward pass
  const T *h_before, *c_before;  ///< the state before
  const T* h_after;
  const T* of_out;  ///< the gradient of the state in the output
  T *dh, *dc;       ///< those of the state after, which become those of the state before
  T *of_x, *of_sums;
  int64_t width, in_width;  ///< how far apart the gates of the gradients are, and those of the forward pass

  ESPALIER_HD C gate(int64_t g, int64_t j) const { return static_cast<C>(gates[g * in_width + j]); }
  ESPALIER_HD C arrived(int64_t j) const { return static_cast<C>(dh[j]) + static_cast<C>(of_out[j]); }
  ESPALIER_HD void put(int64_t g, int64_t j, C value) const { of_x[g * width + j] = static_cast<T>(value); }
};

template <class Activation>
struct Rnn {
  static constexpr int gates = 1;
  static constexpr bool has_c = false, keeps_gates = false, separate_sums = false;
  template <bool keeps, class T, class C, class S>
  ESPALIER_HD static void forward(const ForwardRow<T, C, S>& r, int64_t j) {
    r.out[j] = r.h[j] = static_cast<T>(Activation::value(r.sum(0, j)));
  }
  template <class T, class C>
  ESPALIER_HD static void backward(const BackwardRow<T, C>& r, int64_t j) {
    r.put(0, j, r.arrived(j) * Activation::slope(static_cast<C>(r.h_after[j])));
  }
};
struct TanhActivation {
  template <class C>
  ESPALIER_HD static C value(C x) {
    return tanh(x);
  }
  /// From the value.
  template <class C>
  ESPALIER_HD static C slope(C y) {
    return C(1) - y * y;
  }
};
struct ReluActivation {
  template <class C>
  ESPALIER_HD static C value(C x) {
    return x > C(0) ? x : x - x;  // NaN stays NaN
  }
  template <class C>
  ESPALIER_HD static C slope(C y) {
    return y > C(0) ? C(1) : C(0);
  }
};

struct Lstm {
  static constexpr int gates = 4;
  static constexpr bool has_c = true, keeps_gates = true, separate_sums = false;
  template <bool keeps, class T, class C, class S>
  ESPALIER_HD static void forward(const ForwardRow<T, C, S>& r, int64_t j) {
    const C i = sigmoid(r.sum(0, j)), f = sigmoid(r.sum(1, j)), g = tanh(r.sum(2, j)),
            o = sigmoid(r.sum(3, j));
    const C c = f * static_cast<C>(r.c[j]) + i * g;
    r.c[j] = static_cast<T>(c);
    r.out[j] = r.h[j] = static_cast<T>(o * tanh(c));
    if constexpr (keeps) {
      r.keep(0, j, i);
      r.keep(1, j, f);
      r.keep(2, j, g);
      r.keep(3, j, o);
      r.memory[j] = static_cast<T>(c);
    }
  }
  template <class T, class C>
  ESPALIER_HD static void backward(const BackwardRow<T, C>& r, int64_t j) {
    const C i = r.gate(0, j), f = r.gate(1, j), g = r.gate(2, j), o = r.gate(3, j), dh = r.arrived(j);
    const C t = tanh(static_cast<C>(r.memory[j]));
    const C dc = static_cast<C>(r.dc[j]) + dh * o * (C(1) - t * t);
    r.put(0, j, dc * g * i * (C(1) - i));
    r.put(1, j, dc * static_cast<C>(r.c_before[j]) * f * (C(1) - f));
    r.put(2, j, dc * i * (C(1) - g * g));
    r.put(3, j, dh * t * o * (C(1) - o));
    r.dc[j] = static_cast<T>(dc * f);
  }
};

struct Gru {
  static constexpr int gates = 3;
  static constexpr bool has_c = false, keeps_gates = true, separate_sums = true;
  template <bool keeps, class T, class C, class S>
  ESPALIER_HD static void forward(const ForwardRow<T, C, S>& r, int64_t j) {
    const C reset = sigmoid(r.sum(0, j)), z = sigmoid(r.sum(1, j)), of_h = r.of_h(2, j);
    const C n = tanh(r.of_x(2, j) + reset * of_h);
    r.out[j] = r.h[j] = static_cast<T>(n + z * (static_cast<C>(r.h[j]) - n));
    if constexpr (keeps) {
      r.keep(0, j, reset);
      r.keep(1, j, z);
      r.keep(2, j, n);
      r.memory[j] = static_cast<T>(of_h);
    }
  }
  template <class T, class C>
  ESPALIER_HD static void backward(const BackwardRow<T, C>& r, int64_t j) {
    const C reset = r.gate(0, j), z = r.gate(1, j), n = r.gate(2, j), dh = r.arrived(j);
    const C of_n = dh * (C(1) - z) * (C(1) - n * n);
    const C of_reset = of_n * static_cast<C>(r.memory[j]) * reset * (C(1) - reset);
    const C of_z = dh * (static_cast<C>(r.h_before[j]) - n) * z * (C(1) - z);
    r.put(0, j, of_reset);
    r.put(1, j, of_z);
    r.put(2, j, of_n);
    r.of_sums[j] = static_cast<T>(of_reset);
    r.of_sums[r.width + j] = static_cast<T>(of_z);
    r.of_sums[2 * r.width + j] = static_cast<T>(of_n * reset);
    r.dh[j] = static_cast<T>(dh * z);
  }
};

}  // namespace espalier::gates
