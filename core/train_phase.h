// What a tree computes in training, and what stands for it in inference.
#pragma once
#include <source_location>

#include "espalier/core/function_ref.h"
#include "espalier/core/scoped_value.h"
#include "espalier/core/variable.h"

namespace espalier {

/// `training`, which in plans of inference, those of validation too, is replaced by what `inference` makes:
/// the statistics of a batch by running ones. `inference` is called once, at once; what it makes is computed
/// by such plans alone. What belongs to `training` only, with_assignment() in it included, is not a part of
/// such plans. Eager evaluation computes `training`. Gradients pass through `training`, and in plans of
/// inference that contain them through what `inference` makes.
///
/// Throws Error unless both are defined, ShapeError or TypeError unless they have one shape and dtype, and
/// DeviceError unless they are on one device.
Variable in_train_phase(const Variable& training, FunctionRef<Variable()> inference,
                        std::source_location where = std::source_location::current());

/// While it lives, what this thread writes is what plans of inference compute: in_train_phase() gives what
/// stands for inference, with_assignment() assigns nothing, dropout keeps everything, and modules are in
/// inference mode, whatever their own is.
class InferencePhase {
 public:
  InferencePhase();

 private:
  ScopedValue<bool> scope_;
};
bool in_inference_phase();

/// For autograd: while it lives, gradients that are written in this thread pass through what stands for
/// inference.
class InferenceGradients {
 public:
  InferenceGradients();

 private:
  ScopedValue<bool> scope_;
};
bool writes_inference_gradients();
/// Whether any node of this process chooses by phase.
bool has_phases();

class Op;
class OpRegistry;
/// Whether an op is that of such a choice: inputs training and inference, or in a graph the chosen one alone.
bool chooses_by_phase(const Op& op);
void add_phase_ops(OpRegistry& ops);

}  // namespace espalier
