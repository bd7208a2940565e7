// LoopGradient: the body of the loop that computes the gradients of a scan.
#pragma once
#include "espalier/ops/loop/loop_body.h"

namespace espalier {

/// A step back: from the gradients of the next states to those of the states. It carries these and the sums
/// of the gradients of what the body uses beside states and sequences, and its outputs are the gradients of
/// the elements. Its sequences are the states in front of the steps, the elements, and the gradients that
/// arrive at outputs of the scan beside the last states.
class LoopGradient {
 public:
  /// `arriving`: for each output of the scan, undefined where there is none. `wanted`: for each input.
  LoopGradient(LoopBodyPtr body, const std::vector<Variable>& arriving, const std::vector<bool>& wanted);

  LoopBodyPtr body() const { return body_; }
  // Whether the loop carries the gradient of that state or other input, and gives that of a sequence.
  bool has_state(size_t input) const { return is_real(forward_->inputs[input].dtype()); }
  bool has_captured(size_t input) const { return wanted_[input] && is_real(forward_->inputs[input].dtype()); }
  bool has_element(size_t input) const { return has_captured(input); }
  bool has_arriving(size_t output) const { return arriving_[output]; }

 private:
  LoopBodyPtr forward_;
  std::vector<bool> wanted_, arriving_;
  LoopBodyPtr body_;
};

}  // namespace espalier
