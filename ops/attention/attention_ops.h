// The ops that attention and its gradients are made of.
#pragma once
#include "espalier/core/gradient_rule.h"
#include "espalier/ops/attention/form.h"

namespace espalier {

/// What all of them share. `values` are the inputs before the optional ones.
class AttentionOp : public Op {
 public:
  AttentionOp(AttentionForm form, size_t values, OpTraits traits)
      : Op(traits), form_(form), values_(values) {}
  Attributes attributes() const override { return form_.attributes(); }
  /// Only axes before the queries, and before grouped heads, stay apart.
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override;

 protected:
  const AttentionForm& form() const { return form_; }
  size_t values() const { return values_; }
  /// That reads all inputs but the keys of a dropout that drops nothing.
  static InputSet reads_of(const AttentionForm& form, size_t values) {
    return form.keyed && form.dropout == 0 ? InputSet::all_but(form.keys_at(values)) : InputSet::all();
  }
  /// The optional inputs of a node.
  std::vector<Variable> options(const GradientRule& rule) const;

 private:
  /// The axes of an input behind its heads, or behind its batch.
  size_t trailing_axes(size_t input) const;

  AttentionForm form_;
  size_t values_;
};

/// One key for each head, from which the numbers of its dropout are drawn: int64 of the shape of `q` without
/// the last two axes. In plans of inference they are 0.
Variable attention_keys(const Variable& q, const std::source_location& where);
/// The result, and the logarithm of the sum of the exponentials of the scores of each query, which is ∞ if it
/// sees no key: float32 or float64.
struct AttentionResult {
  Variable y, log_sums;
};
AttentionResult attention(const Variable& q, const Variable& k, const Variable& v,
                          const std::vector<Variable>& options, const AttentionForm& form,
                          const std::source_location& where);
/// The weights [..., heads, queries, keys] before dropout.
Variable attention_weights(const Variable& q, const Variable& k, const Variable& log_sums,
                           const std::vector<Variable>& options, const AttentionForm& form);
/// The factors of dropout of these weights, in the dtype of `q`: 1 / (1 − rate), or 0.
Variable attention_dropout(const Variable& q, const Variable& k, const std::vector<Variable>& options,
                           const AttentionForm& form);

/// The gradients of q, k, v and, if it is real, the mask from that of the result.
Gradients attention_gradients(const GradientRule& rule, const std::vector<Variable>& options,
                              const AttentionForm& form);
/// That of a real mask: the gradient of the scores.
Variable attention_mask_gradient(const GradientRule& rule, const std::vector<Variable>& options,
                                 const AttentionForm& form);
/// The gradients of (g, q, k, v, result, log sums, options...) from those of the gradients of q, k and v.
Gradients attention_second_gradients(const GradientRule& rule, const std::vector<Variable>& options,
                                     const AttentionForm& form);
/// The gradients of (q, k, log sums, options...) from that of the weights.
Gradients attention_weights_gradients(const GradientRule& rule, const AttentionForm& form);

/// Adds all of them to a registry.
void add_attention_ops(OpRegistry& ops);
/// Adds the ops of matrices of weights, of dropout and of its keys.
void add_attention_matrix_ops(OpRegistry& ops);

}  // namespace espalier
