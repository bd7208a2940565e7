#include "espalier/nn/crf.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_note.h"
#include "espalier/nn/init.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/sequence_checks.h"

namespace espalier::nn {

namespace {

/// Element t of axis 1.
Variable at_step(const Variable& x, int64_t t) { return squeeze(slice(x, 1, t, t + 1), 1); }
Variable from_step(const Variable& x, int64_t t) { return slice(x, 1, t, open_end); }
/// The loop over axis 1 of the sequences, whose outputs stand along it: a scan if its size is open, else
/// nodes for each step.
ScanResult over_steps(const ScanStep& step, const std::vector<Variable>& state,
                      const std::vector<Variable>& sequences, bool open, bool reverse = false) {
  std::vector<Variable> elements;
  if (open) {
    for (const Variable& x : sequences) elements.push_back(swapaxes(x, 0, 1));
    ScanResult made = scan(step, state, elements, {.reverse = reverse});
    for (Variable& y : made.outputs) y = swapaxes(y, 0, 1);
    return made;
  }
  const int64_t count = sequences[0].shape()[1];
  ScanResult made{state, {}};
  std::vector<std::vector<Variable>> outputs;
  for (int64_t k = 0; k < count; ++k) {
    elements.clear();
    for (const Variable& x : sequences) elements.push_back(at_step(x, reverse ? count - 1 - k : k));
    ScanResult next = step(made.state, elements);
    made.state = std::move(next.state);
    outputs.resize(next.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].push_back(std::move(next.outputs[i]));
  }
  for (std::vector<Variable>& steps : outputs) {
    if (reverse) std::reverse(steps.begin(), steps.end());
    made.outputs.push_back(stack(steps, 1));
  }
  return made;
}
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
    const ScanResult forwards = over_steps(
        [&](const std::vector<Variable>& state, const std::vector<Variable>& x) -> ScanResult {
          const Variable &best = state[0], &any = state[1], &e = x[0], &m = x[1];
          const Variable reached = unsqueeze(best, 2) + transitions, from = argmax(reached, 1);
          const Variable next = for_rows(any, max(reached, 1), parameter("start")) + e;
          return {{for_rows(m, next, best), logical_or(any, m)}, {for_rows(logical_and(any, m), from, own)}};
        },
        {at_step(chain.emissions, 0) + parameter("start"), at_step(chain.mask, 0)},
        {from_step(chain.emissions, 1), from_step(chain.mask, 1)}, chain.open);
    const Variable last = unsqueeze(argmax(forwards.state[0] + parameter("end"), -1), 1);
    if (forwards.outputs.empty()) return where(chain.mask, last, -1);
    const ScanResult backwards = over_steps(
        [](const std::vector<Variable>& tag, const std::vector<Variable>& before) -> ScanResult {
          const Variable next = take_along_axis(before[0], tag[0], 1);
          return {{next}, {squeeze(next, 1)}};
        },
        {last}, {forwards.outputs[0]}, chain.open, true);
    const Variable all = concat({backwards.outputs[0], last}, 1);
    return where(chain.mask, all, -1);
  }

  Variable marginals(const Variable& x, const Variable& given) {
    const Chain chain = chain_of(x, given);
    Variable beginnings;
    const Variable total = unsqueeze(forward_sums(chain, &beginnings), -1);
    const Variable transitions = unsqueeze(parameter("transitions"), 0);
    return over_steps(
               [&](const std::vector<Variable>& state, const std::vector<Variable>& x) -> ScanResult {
                 const Variable &behind = state[0], &beginning = x[0], &e = x[1], &m = x[2];
                 const Variable next = logsumexp(transitions + unsqueeze(e + behind, 1), 2);
                 return {{for_rows(m, next, behind)}, {for_rows(m, exp(beginning + behind - total), 0.0)}};
               },
               {zeros_like(at_step(beginnings, 0)) + parameter("end")},
               {beginnings, chain.emissions, chain.mask}, chain.open, true)
        .outputs[0];
  }

 private:
  struct Chain {
    Variable emissions, mask;  // [batch, steps, tags], bool [batch, steps]
    int64_t steps;
    bool open;  ///< whether the number of steps comes with a batch
  };

  Chain chain_of(const Variable& given, const Variable& mask) {
    if (given.rank() != 3 || given.shape()[2] != tags_)
      throw ShapeError(fmt::format("Crf: emissions of shape {} are not [batch, steps, {}]{}",
                                   given.shape().str(), tags_, open_note(given.shape(), Shape{tags_})));
    fit(given, {});
    const Variable by_steps = swapaxes(given, 0, 1);
    const bool open = has_open_steps(by_steps);
    const Variable x = open ? swapaxes(checked_steps(by_steps, kind()), 0, 1) : given;
    const int64_t steps = x.shape()[1];
    if (steps == 0) throw ShapeError(fmt::format("Crf: emissions of shape {} have no step", x.shape().str()));
    if (!mask.defined()) {
      const Variable first = squeeze(slice(x, 2, 0, 1), 2);
      return {x, greater(ones_like(first), 0), steps, open};
    }
    if (mask.dtype() != boolean)
      throw TypeError(fmt::format("Crf: the mask must be bool, not {}", name(mask.dtype())));
    if (mask.rank() != 2 || mask.shape()[0] != x.shape()[0] || mask.shape()[1] != steps)
      throw ShapeError(fmt::format("Crf: a mask of shape {} for emissions of shape {}", mask.shape().str(),
                                   x.shape().str()));
    return {x, mask, steps, open};
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
  /// [batch, steps, tags]; where the step does not count, those up to the last that does.
  Variable forward_sums(const Chain& chain, Variable* beginnings) {
    const Variable transitions = unsqueeze(parameter("transitions"), 0);
    const Variable first = at_step(chain.emissions, 0) + parameter("start");
    const ScanResult made = over_steps(
        [&](const std::vector<Variable>& state, const std::vector<Variable>& x) -> ScanResult {
          const Variable &sums = state[0], &any = state[1], &e = x[0], &m = x[1];
          const Variable reached = logsumexp(unsqueeze(sums, 2) + transitions, 1);
          const Variable next = for_rows(any, reached, parameter("start")) + e;
          const Variable kept = for_rows(m, next, sums);
          return {{kept, logical_or(any, m)}, beginnings ? std::vector{kept} : std::vector<Variable>{}};
        },
        {first, at_step(chain.mask, 0)}, {from_step(chain.emissions, 1), from_step(chain.mask, 1)},
        chain.open);
    if (beginnings) {
      *beginnings = unsqueeze(first, 1);
      if (!made.outputs.empty()) *beginnings = concat({*beginnings, made.outputs[0]}, 1);
    }
    const Variable total = logsumexp(made.state[0] + parameter("end"), -1);
    return where(made.state[1], total, 0.0);
  }

  /// The score of given tags: [batch].
  Variable score(const Chain& chain, const Variable& given) {
    const Variable tags =
        checked_indices(where(chain.mask, cast(given, int64), 0), chain.emissions, 2, false, kind());
    // The last step that counts, up to each step and before it: −1 if there is none.
    const Variable numbers = chain.open ? positions_like(tags, 1) : on(arange(chain.steps, int64), chain);
    const Variable position = zeros_like(tags) + numbers;
    const Variable last = cummax(where(chain.mask, position, -1), 1).values;
    const Variable none = full_like(slice(last, 1, 0, 1), -1);
    const Variable before = chain.steps > 1 ? concat({none, slice(last, 1, 0, -1)}, 1) : none;
    const auto tag_at = [&](const Variable& p) { return take_along_axis(tags, maximum(p, 0), 1); };
    const Variable linked =
        gather(reshape(parameter("transitions"), {tags_ * tags_}), tag_at(before) * tags_ + tags);
    const Variable emitted = squeeze(take_along_axis(chain.emissions, unsqueeze(tags, 2), 2), 2);
    const Variable first = less(before, 0);
    const Variable each = where(first, gather(parameter("start"), tags), linked) + emitted;
    const Variable end = squeeze(slice(last, 1, -1, open_end), 1);
    const Variable final = gather(parameter("end"), squeeze(tag_at(unsqueeze(end, 1)), 1));
    return sum(where(chain.mask, each, 0.0), 1) + where(less(end, 0), 0.0, final);
  }

  int64_t tags_;
};

/// A call of the layer with its line.
template <class F>
Variable call_crf(LayerState& layer, const Variable& x, const Module::Where& where, F&& f) {
  const CallScope scope(where, layer.kind());
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
