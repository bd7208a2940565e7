#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

enum class MuonRate : uint8_t {
  original,     ///< lr · √max(1, rows / columns)
  match_adamw,  ///< lr · 0.2 · √max(rows, columns): steps as large as AdamW's, whose lr and decay then fit
};

struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;  ///< shrinks parameters by lr · weight_decay in each step
  int64_t iterations = 5;     ///< of Newton and Schulz
  double epsilon = 1e-7;      ///< the smallest norm by which an update is divided
  MuonRate rate = MuonRate::original;
  double clip_norm = 0;    ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;   ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};  ///< of the learning rate
  bool maximize = false;   ///< goes up the gradient
};

/// Muon (Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024; the rate `match_adamw`
/// is of Liu et al., Muon is scalable for LLM training, 2025), in PyTorch's form:
///   m ← momentum · m + (1 − momentum) · g,  u = (1 − momentum) · g + momentum · m with nesterov, or m,
///   p ← p − lr · weight_decay · p − rate · O(u)
/// O(u) is near the matrix UVᵀ of u = UΣVᵀ: x = u / ‖u‖, and in each iteration
/// x ← 3.4445x + (−4.775A + 2.0315A²)x with A = xxᵀ, in float64 or float32 (PyTorch: bfloat16).
/// For matrices; a parameter of a higher rank, as a convolution's, is a matrix of its first axis and all
/// others. An update of a vector or a scalar throws Error: Groups give those, and embeddings and the last
/// layer, to another optimizer.
class Muon : public Optimizer {
 public:
  Muon(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Muon(MuonOptions{}, where) {}
  Muon(LearningRate lr, std::source_location where = std::source_location::current())
      : Muon(MuonOptions{.lr = lr.value}, where) {}
  Muon(const MuonOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
