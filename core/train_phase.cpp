#include "espalier/core/train_phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "espalier/core/error.h"
#include "espalier/core/first_input.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"

namespace espalier {

namespace {

thread_local bool inference_phase = false, inference_gradients = false;
std::atomic<bool> any_phases = false;

/// Shows its first input. Plans keep the one that they compute.
struct InTrainPhase : FirstInput {
  std::string_view name() const override { return "in_train_phase"; }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients gradients(rule.inputs());
    gradients[inference_gradients ? 1 : 0] = rule.output_gradient();
    return gradients;
  }
};

/// What waits for a plan, and keeps no values for gradients.
Variable built_lazily(FunctionRef<Variable()> make) {
  BuildContext now = build_context();
  now.lazy = now.without_activations = true;
  const BuildScope scope(now);
  return make();
}

void check_alike(const Variable& training, const Variable& inference) {
  const Spec a{training.dtype(), training.shape()}, b{inference.dtype(), inference.shape()};
  const auto text = [&] {
    return fmt::format("in_train_phase: {} {} in training and {} {} in inference are not alike",
                       name(a.dtype), a.shape.str(), name(b.dtype), b.shape.str());
  };
  if (a.dtype != b.dtype) throw TypeError(text());
  if (!(a.shape == b.shape)) throw ShapeError(text());
  if (training.device() != inference.device())
    throw DeviceError(fmt::format("in_train_phase: training is on {} and inference on {}",
                                  training.device().str(), inference.device().str()));
}

}  // namespace

InferencePhase::InferencePhase() : scope_(inference_phase, true) {}
bool in_inference_phase() { return inference_phase; }

InferenceGradients::InferenceGradients() : scope_(inference_gradients, true) {}
bool writes_inference_gradients() { return inference_gradients; }
bool has_phases() { return any_phases.load(std::memory_order_relaxed); }

Variable in_train_phase(const Variable& training, FunctionRef<Variable()> inference,
                        std::source_location where) {
  return located(where, [&] {
    if (!training.defined()) throw Error("in_train_phase: the Variable for training is undefined");
    if (inference_phase) {
      const Variable result = inference();
      if (!result.defined()) throw Error("in_train_phase: the Variable for inference is undefined");
      check_alike(training, result);
      return result;
    }
    // Without a tree there is no plan.
    if (build_context().no_grad && !training.node()->lazy) return training;
    const Variable other = built_lazily(inference);
    if (!other.defined()) throw Error("in_train_phase: the Variable for inference is undefined");
    check_alike(training, other);
    const Variable result = apply(shared_op<InTrainPhase>(), {&training}, where);
    any_phases.store(true, std::memory_order_relaxed);
    // The second input makes no node lazy.
    Node& node = *result.node();
    node.inputs.push_back(Edge(other));
    node.depth = std::max(node.depth, other.node()->depth + 1);
    return result;
  });
}

bool chooses_by_phase(const Op& op) { return &op == shared_op<InTrainPhase>().get(); }

void add_phase_ops(OpRegistry& ops) { ops.add<InTrainPhase>(2); }

}  // namespace espalier
