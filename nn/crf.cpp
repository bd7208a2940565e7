#include "espalier/nn/crf.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/init.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/checked_indices.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

/// Element t of axis 1.
Variable at_step(const Variable& x, int64_t t) { return squeeze(slice(x, 1, t, t + 1), 1); }
/// [batch, …] from a condition [batch].
Variable for_rows(const Variable& condition, const Operand& yes, const Operand& no) {
  return where(unsqueeze(condition, -1), yes, no);
}

class CrfState : public LayerStateOf<CrfState> {
 public:
  CrfState(int64_t tags, const CrfOptions& options) : LayerStateOf("Crf"), tags_(tags) {
    if (tags <= 0) throw Error(fmt::format("Crf: {} tags; it needs at least one", tags));
    declare("transitions", {tags, tags}, options.initializer);
    declare("start", {tags}, options.initializer);
    declare("end", {tags}, options.initializer);
    create_with("number of tags", tags, options.dtype);
  }

  Variable forward(const Variable& x) override { return decode(x, {}); }

  Variable log_likelihood(const Variable& x, const Variable& tags, const Variable& given) {
    const Chain chain = chain_of(x, given);
    check_tags(x, tags);
    return score(chain, tags) - forward_sums(chain, nullptr);
  }

  Variable decode(const Variable& x, const Variable& given) {
    const Chain chain = chain_of(x, given);
    const Variable transitions = unsqueeze(parameter("transitions"), 0),
                   own = on(arange(tags_, int64), chain);
    Variable best = at_step(chain.emissions, 0) + parameter("start"), any = at_step(chain.mask, 0);
    std::vector<Variable> before;  // the tag from which each tag is reached
    for (int64_t t = 1; t < chain.steps; ++t) {
      const Variable e = at_step(chain.emissions, t), m = at_step(chain.mask, t);
      const Variable reached = unsqueeze(best, 2) + transitions, from = argmax(reached, 1);
      const Variable next = for_rows(any, max(reached, 1), parameter("start")) + e;
      before.push_back(for_rows(logical_and(any, m), from, own));
      best = for_rows(m, next, best);
      any = logical_or(any, m);
    }
    Variable tag = unsqueeze(argmax(best + parameter("end"), -1), 1);
    std::vector<Variable> tags{tag};
    for (size_t t = before.size(); t-- > 0;) {
      tag = take_along_axis(before[t], tag, 1);
      tags.push_back(tag);
    }
    std::reverse(tags.begin(), tags.end());
    const Variable all = concat(tags, 1);
    return where(chain.mask, all, -1);
  }

  Variable marginals(const Variable& x, const Variable& given) {
    const Chain chain = chain_of(x, given);
    std::vector<Variable> beginnings;
    const Variable total = unsqueeze(forward_sums(chain, &beginnings), -1);
    const Variable transitions = unsqueeze(parameter("transitions"), 0);
    Variable behind = zeros_like(beginnings[0]) + parameter("end");
    std::vector<Variable> steps;
    for (int64_t t = chain.steps - 1; t >= 0; --t) {
      const Variable e = at_step(chain.emissions, t), m = at_step(chain.mask, t);
      const Variable p = exp(beginnings[static_cast<size_t>(t)] + behind - total);
      steps.push_back(for_rows(m, p, 0.0));
      if (t > 0) behind = for_rows(m, logsumexp(transitions + unsqueeze(e + behind, 1), 2), behind);
    }
    std::reverse(steps.begin(), steps.end());
    return stack(steps, 1);
  }

 private:
  struct Chain {
    Variable emissions, mask;  // [batch, steps, tags], bool [batch, steps]
    int64_t steps;
  };

  Chain chain_of(const Variable& x, const Variable& mask) {
    if (x.rank() != 3 || x.shape()[2] != tags_)
      throw ShapeError(
          fmt::format("Crf: emissions of shape {} are not [batch, steps, {}]", x.shape().str(), tags_));
    fit(x, {});
    const int64_t steps = x.shape()[1];
    if (steps == nominal_size)
      throw UnsupportedError("Crf: the axis of steps is open; its size must be known");
    if (steps == 0) throw ShapeError(fmt::format("Crf: emissions of shape {} have no step", x.shape().str()));
    if (!mask.defined()) {
      const Variable first = squeeze(slice(x, 2, 0, 1), 2);
      return {x, greater(ones_like(first), 0), steps};
    }
    if (mask.dtype() != boolean)
      throw TypeError(fmt::format("Crf: the mask must be bool, not {}", name(mask.dtype())));
    if (mask.rank() != 2 || mask.shape()[0] != x.shape()[0] || mask.shape()[1] != steps)
      throw ShapeError(fmt::format("Crf: a mask of shape {} for emissions of shape {}", mask.shape().str(),
                                   x.shape().str()));
    return {x, mask, steps};
  }
  static void check_tags(const Variable& x, const Variable& tags) {
    if (tags.dtype() != int32 && tags.dtype() != int64)
      throw TypeError(fmt::format("Crf: tags must be int32 or int64, not {}", name(tags.dtype())));
    if (tags.rank() != 2 || tags.shape()[0] != x.shape()[0] || tags.shape()[1] != x.shape()[1])
      throw ShapeError(fmt::format("Crf: tags of shape {} for emissions of shape {}", tags.shape().str(),
                                   x.shape().str()));
  }
  static Variable on(const Tensor& table, const Chain& chain) { return table.to(chain.emissions.device()); }

  /// log Σ exp(score) over all tags: [batch]. Also the sums over the beginnings up to each step,
  /// [batch, tags]; where the step does not count, those up to the last that does.
  Variable forward_sums(const Chain& chain, std::vector<Variable>* beginnings) {
    const Variable transitions = unsqueeze(parameter("transitions"), 0);
    Variable sums = at_step(chain.emissions, 0) + parameter("start"), any = at_step(chain.mask, 0);
    if (beginnings) beginnings->push_back(sums);
    for (int64_t t = 1; t < chain.steps; ++t) {
      const Variable e = at_step(chain.emissions, t), m = at_step(chain.mask, t);
      const Variable reached = logsumexp(unsqueeze(sums, 2) + transitions, 1);
      const Variable next = for_rows(any, reached, parameter("start")) + e;
      sums = for_rows(m, next, sums);
      any = logical_or(any, m);
      if (beginnings) beginnings->push_back(sums);
    }
    const Variable total = logsumexp(sums + parameter("end"), -1);
    return where(any, total, 0.0);
  }

  /// The score of given tags: [batch].
  Variable score(const Chain& chain, const Variable& given) {
    const Variable tags =
        checked_indices(where(chain.mask, cast(given, int64), 0), chain.emissions, 2, false, kind());
    // The last step that counts, up to each step and before it: −1 if there is none.
    const Variable position = zeros_like(tags) + on(arange(chain.steps, int64), chain);
    const Variable last = cummax(where(chain.mask, position, -1), 1).values;
    const Variable none = full_like(slice(last, 1, 0, 1), -1);
    const Variable before = chain.steps > 1 ? concat({none, slice(last, 1, 0, chain.steps - 1)}, 1) : none;
    const auto tag_at = [&](const Variable& p) { return take_along_axis(tags, maximum(p, 0), 1); };
    const Variable linked =
        gather(reshape(parameter("transitions"), {tags_ * tags_}), tag_at(before) * tags_ + tags);
    const Variable emitted = squeeze(take_along_axis(chain.emissions, unsqueeze(tags, 2), 2), 2);
    const Variable first = less(before, 0);
    const Variable each = where(first, gather(parameter("start"), tags), linked) + emitted;
    const Variable end = squeeze(slice(last, 1, chain.steps - 1, chain.steps), 1);
    const Variable final = gather(parameter("end"), squeeze(tag_at(unsqueeze(end, 1)), 1));
    return sum(where(chain.mask, each, 0.0), 1) + where(less(end, 0), 0.0, final);
  }

  int64_t tags_;
};

/// A call of the layer with its line.
template <class F>
Variable call_crf(LayerState& layer, const Variable& x, const Module::Where& where, F&& f) {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    (void)x.shape();  // an undefined Variable throws here
    return f(static_cast<CrfState&>(layer));
  });
}

}  // namespace

Crf::Crf(int64_t tags, CrfOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return std::make_shared<CrfState>(tags, options);
      })) {}

Variable Crf::log_likelihood(const Variable& emissions, const Variable& tags, const Variable& mask,
                             Where where) const {
  return call_crf(layer_state(), emissions, where,
                  [&](CrfState& crf) { return crf.log_likelihood(emissions, tags, mask); });
}
Variable Crf::decode(const Variable& emissions, const Variable& mask, Where where) const {
  return call_crf(layer_state(), emissions, where,
                  [&](CrfState& crf) { return crf.decode(emissions, mask); });
}
Variable Crf::marginals(const Variable& emissions, const Variable& mask, Where where) const {
  return call_crf(layer_state(), emissions, where,
                  [&](CrfState& crf) { return crf.marginals(emissions, mask); });
}

}  // namespace espalier::nn
