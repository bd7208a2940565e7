// CtcLoss: connectionist temporal classification as a loss.
#pragma once
#include <source_location>

#include "espalier/ops/functions/ctc.h"

namespace espalier::nn {

/// `ctc_loss` with these options.
class CtcLoss {
 public:
  using Where = std::source_location;
  CtcLoss() = default;
  explicit CtcLoss(const CtcOptions& options) : options_(options) {}
  Variable operator()(const Variable& log_probabilities, const Variable& targets,
                      const Variable& input_lengths, const Variable& target_lengths,
                      Where where = Where::current()) const {
    return ctc_loss({log_probabilities, where}, {targets, where}, {input_lengths, where},
                    {target_lengths, where}, options_);
  }

 private:
  CtcOptions options_;
};

}  // namespace espalier::nn
