// Gradients of attention that are composed of operations on whole matrices of scores.
#include "espalier/ops/attention/attention_ops.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// Products with keys and values of which each serves several heads.
class Heads {
 public:
  Heads(const Variable& q, const Variable& k) {
    if (q.rank() > 2 && q.shape()[-3] != k.shape()[-3]) {
      key_heads_ = k.shape()[-3];
      group_ = q.shape()[-3] / key_heads_;
    }
  }
  /// Keys or values, once for each head.
  Variable repeated(const Variable& x) const {
    return group_ == 1 ? x : repeat_interleave(x, group_, int64_t{-3});
  }
  /// The reverse: sums over the heads that a head of keys serves.
  Variable summed(const Variable& x) const {
    if (group_ == 1) return x;
    const auto axis = static_cast<int64_t>(x.rank()) - 3;
    return sum(unflatten(x, axis, {key_heads_, group_}), axis + 1);
  }

 private:
  int64_t group_ = 1, key_heads_ = 0;
};

Variable row_sum(const Variable& x) { return sum(x, -1, true); }

}  // namespace

Variable attention_mask_gradient(const GradientRule& rule, const std::vector<Variable>& options,
                                 const AttentionForm& form) {
  const Variable q = rule.input(0), k = rule.input(1), v = rule.input(2);
  const Variable weights = attention_weights(q, k, rule.output(1), options, form);
  Variable of_weights = matmul(rule.output_gradient(), transpose(Heads(q, k).repeated(v)));
  if (form.dropout > 0) of_weights = of_weights * attention_dropout(q, k, options, form);
  return weights * (of_weights - row_sum(weights * of_weights));
}

/// With P the weights, M the factors of dropout and α the scale, the first gradients are
///   dS = P ∘ (M ∘ g vᵀ − D), D = row_sum(P ∘ M ∘ g vᵀ);  dq = α dS k;  dk = α dSᵀ q;  dv = (P ∘ M)ᵀ g.
Gradients attention_second_gradients(const GradientRule& rule, const std::vector<Variable>& options,
                                     const AttentionForm& form) {
  const Variable g = rule.input(0), q = rule.input(1), log_sums = rule.input(5);
  const Heads heads(q, rule.input(2));
  const Variable k = heads.repeated(rule.input(2)), v = heads.repeated(rule.input(3));
  const Variable &of_dq = rule.output_gradient(0), &of_dk = rule.output_gradient(1),
                 &of_dv = rule.output_gradient(2);
  const Variable weights = attention_weights(q, rule.input(2), log_sums, options, form);
  const bool drops = form.dropout > 0;
  const Variable factors = drops ? attention_dropout(q, rule.input(2), options, form) : Variable();
  const auto dropped = [&](const Variable& x) { return drops ? x * factors : x; };

  const Variable of_weights = dropped(matmul(g, transpose(v)));
  const Variable mean = row_sum(weights * of_weights);
  const auto added = [](const Variable& a, const Variable& b) { return a.defined() ? a + b : b; };
  Gradients result(rule.inputs());
  Variable along_weights;  // of what the results are, by the weights
  if (of_dq.defined() || of_dk.defined()) {
    const Variable slopes = weights * (of_weights - mean) * form.scale;
    Variable along;  // by the slopes
    if (of_dq.defined()) {
      along = matmul(of_dq, transpose(k));
      result[2] = matmul(transpose(slopes), of_dq);
    }
    if (of_dk.defined()) {
      const Variable all = heads.repeated(of_dk);
      along = added(along, matmul(q, transpose(all)));
      result[1] = matmul(slopes, all);
    }
    along = along * form.scale;
    const Variable along_mean = row_sum(along * weights);
    along_weights = along * (of_weights - mean) - of_weights * along_mean;
    const Variable of_product = dropped(weights * (along - along_mean));
    result[0] = matmul(of_product, v);
    result[3] = matmul(transpose(of_product), g);
  }
  if (of_dv.defined()) {
    const Variable all = heads.repeated(of_dv);
    along_weights = added(along_weights, dropped(matmul(g, transpose(all))));
    result[0] = added(result[0], matmul(dropped(weights), all));
  }
  if (!along_weights.defined()) return result;
  const Variable of_scores = weights * (along_weights - row_sum(weights * along_weights));
  result[1] = added(result[1], matmul(of_scores, k) * form.scale);
  result[2] = heads.summed(added(result[2], matmul(transpose(of_scores), q) * form.scale));
  if (result[3].defined()) result[3] = heads.summed(result[3]);
  if (const size_t mask = form.mask_at(6); form.masked && is_real(rule.input(mask).dtype()))
    result[mask] = of_scores;
  return result;
}

Gradients attention_weights_gradients(const GradientRule& rule, const AttentionForm& form) {
  const Variable q = rule.input(0), k = rule.input(1), weights = rule.output();
  const Heads heads(q, k);
  const Variable& g = rule.output_gradient();
  const Variable of_scores = weights * (g - row_sum(weights * g));
  Gradients result(rule.inputs());
  if (rule.wants(0)) result[0] = matmul(of_scores, heads.repeated(k)) * form.scale;
  if (rule.wants(1)) result[1] = heads.summed(matmul(transpose(of_scores), q) * form.scale);
  if (const size_t mask = form.mask_at(3);
      form.masked && rule.wants(mask) && is_real(rule.input(mask).dtype()))
    result[mask] = of_scores;
  return result;
}

}  // namespace espalier
