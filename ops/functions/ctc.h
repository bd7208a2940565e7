// Connectionist temporal classification.
#pragma once
#include "espalier/ops/functions/loss.h"

namespace espalier {

struct CtcOptions {
  int64_t blank = 0;  ///< the class that stands for no label
  LossReduction reduction = LossReduction::mean;
  /// Losses of targets that no alignment has are 0, without a gradient, instead of ∞ with a gradient of NaN.
  bool zero_infinity = false;
  Variable weights = {};  ///< by how much each loss counts: [batch], of one sequence a scalar
};
/// −log of the probability of label sequences whose places in the input are not known: the sum over all
/// alignments that give the labels when repetitions are merged and blanks removed. Graves et al.,
/// Connectionist temporal classification, 2006.
/// `log_probabilities` [steps, batch, classes], as log_softmax gives them, or [steps, classes] of one
/// sequence. `targets` are labels [batch, labels], of which those behind the length of a row do not count, or
/// the labels of all rows behind each other, [their number]; of one sequence [labels]. Lengths are
/// [batch], of one sequence scalars. Targets and lengths are int32 or int64. The mean is that of
/// loss / max(1, target length); without a reduction losses are [batch]. Gradients are those of the formula:
/// they reach second order. Throws ShapeError, also for labels behind each other that are more or fewer than
/// their lengths together, where these are known on the host when it is called; TypeError, IndexError for a
/// label that is no class or the blank and for a length that is out of range (on a GPU at the next
/// synchronization), Error for a blank that is no class.
Variable ctc_loss(const Operand& log_probabilities, const Operand& targets, const Operand& input_lengths,
                  const Operand& target_lengths, const CtcOptions& options = {});

}  // namespace espalier
