#include "espalier/executor/sharding/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/error.h"
#include "espalier/executor/graph/user_names.h"
#include "espalier/executor/sharding/batch_sharding.h"
#include "espalier/executor/sharding/exchange_rows.h"
#include "espalier/executor/sharding/exchange_statistics.h"
#include "espalier/executor/sharding/random_rows.h"
#include "espalier/executor/sharding/refusal.h"

namespace espalier {

namespace {

/// Whether there are results, or values that states get, which the parts of a batch cannot make up.
bool has_refused(const Graph& graph, const BatchShardings& shardings) {
  const auto refused = [&](ValueRef v) { return shardings[v.node][v.output].is_refused(); };
  return std::ranges::any_of(graph.results, refused) ||
         std::ranges::any_of(graph.nodes,
                             [&](const GraphNode& n) { return is_store(*n.op) && refused(n.inputs[0]); });
}

void check_value(const Graph& graph, const BatchValue& value, const BatchShardings& shardings,
                 const ShardOptions& options) {
  if (value.is_refused()) refuse(graph, value, shardings, options);
}

/// Losses, and other results of fixed shapes, that are computed from each part's rows: their means are taken.
void average_local(const Graph& part, const Graph& other, BatchShardings& shardings) {
  for (size_t i = 0; i < part.results.size(); ++i) {
    const ValueRef v = part.results[i];
    BatchValue& value = shardings[v.node][v.output];
    const bool fixed = part.spec(v).shape == other.spec(other.results[i]).shape;
    if (value.sharding == BatchSharding::local && value.growth == 0 && fixed)
      value.sharding = BatchSharding::mean;
  }
}

/// The loss last: it may be the sum of a result.
void check_results(const StepGraph& step, const BatchShardings& shardings, const ShardOptions& options) {
  const auto check = [&](ValueRef v) {
    check_value(step.graph, shardings[v.node][v.output], shardings, options);
  };
  for (size_t i = 0; i < step.graph.results.size(); ++i)
    if (i != step.loss) check(step.graph.results[i]);
  check(step.graph.results[step.loss]);
}

/// Gradients of tables are not, where updates read their rows alone.
bool is_read_by_updates(const Graph& graph, ValueRef v) {
  return std::ranges::any_of(graph.nodes, [&](const GraphNode& n) {
    return n.tag == Tag::update && std::ranges::count(n.inputs, v) > 0;
  });
}

/// States that forward passes write are the same on all replicas, and so what is written must be. Sums over
/// micro-batches become results, which are summed with the gradients and the loss.
void reduce_assigned(Graph& graph, ExchangedSharding& sharding, const ShardOptions& options) {
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_store(*graph.nodes[i].op)) continue;
    const ValueRef v = graph.nodes[i].inputs[0];
    const BatchValue& value = sharding.shardings[v.node][v.output];
    if (value.sharding == BatchSharding::replicated) continue;
    // A replica's own statistic stands for one of the batch: a state gets the mean of them.
    if (value.sharding == BatchSharding::local && value.growth == 0)
      sharding.shardings[v.node][v.output].sharding = BatchSharding::mean;
    check_value(graph, value, sharding.shardings, options);
    if (value.sharding == BatchSharding::rows || !is_real(graph.spec(v).dtype))
      throw UnsupportedError(fmt::format(
          "get_executor: with_assignment: {} cannot write {} into a state: it is not the same for all of "
          "them",
          parts_of(options.shard), in_user_words(graph.nodes[v.node])));
    if (options.shard.micro_batches > 1)
      graph.results.push_back(v);
    else
      sharding.changes.push_back({i, 0, InputChange::Kind::reduce});
  }
}

/// The loss, and what else is a mean or a sum over the batch in real numbers.
std::vector<size_t> summed_results(const StepGraph& step, const BatchShardings& shardings) {
  std::vector<size_t> summed{step.loss};
  for (size_t i = 0; i < step.graph.results.size(); ++i) {
    const ValueRef result = step.graph.results[i];
    const BatchSharding sharding = shardings[result.node][result.output].sharding;
    if (i == step.loss || !is_real(step.graph.spec(result).dtype)) continue;
    if (sharding == BatchSharding::mean || sharding == BatchSharding::sum) summed.push_back(i);
  }
  return summed;
}

/// Outputs are exchanged as they are.
void check_outputs(const StepGraph& step, const BatchShardings& shardings) {
  for (const size_t output : step.outputs) {
    const ValueRef v = step.graph.results[output];
    const BatchSharding sharding = shardings[v.node][v.output].sharding;
    if ((sharding != BatchSharding::mean && sharding != BatchSharding::sum) ||
        is_real(step.graph.spec(v).dtype))
      continue;
    const GraphNode& n = step.graph.nodes[v.node];
    throw UnsupportedError(fmt::format(
        "get_executor: the output {} is a sum over the batch, of which each replica has a part; such "
        "outputs are real, and this is {}: cast() it",
        in_user_words(n), name(step.graph.spec(v).dtype)));
  }
}

/// Whether all that is summed up over replicas is so in the same way: weighed by their rows, or plainly.
bool summed_alike(const StepGraph& step, const BatchShardings& shardings, bool averages) {
  return std::ranges::all_of(summed_results(step, shardings), [&](size_t result) {
    const ValueRef v = step.graph.results[result];
    return result == step.loss ||
           shardings[v.node][v.output].sharding == (averages ? BatchSharding::mean : BatchSharding::sum);
  });
}

/// Whether each update reads only gradients of parameters that the owner of the updated leaf owns.
bool owners_read_their_own(const StepGraph& step, const StateOwners& owners) {
  constexpr int none = -1, several = -2;
  const auto join = [](int a, int b) { return a == none ? b : b == none || a == b ? a : several; };
  std::map<ValueRef, int> owner_of;
  for (size_t k = 0; k < step.gradients.size(); ++k) {
    const int owner = owners.of(step.parameters[k].node());
    int& known = owner_of.emplace(step.gradients[k], none).first->second;
    known = join(known, owner < 0 ? several : owner);
  }
  const Graph& graph = step.graph;
  std::vector<int> read(graph.nodes.size(), none);  // the owners of the gradients that updates are made of
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.tag != Tag::update) continue;
    for (const ValueRef& input : n.inputs) {
      const auto gradient = owner_of.find(input);
      read[i] = join(read[i], gradient != owner_of.end() ? gradient->second : read[input.node]);
    }
    if (n.op->has_side_effects() && read[i] != none &&
        read[i] != owners.of(graph.nodes[n.inputs[0].node].leaf.node()))
      return false;
  }
  return true;
}

/// Gradients that are sent early are sent whole: few owners have a part in each bucket, and would get all of
/// it.
bool scatters(const StepGraph& step, const ShardOptions& options) {
  if (!options.owners) return false;
  int64_t bytes = 0;
  for (const ValueRef& value : step.gradients) {
    const Spec& spec = step.graph.spec(value);
    bytes += spec.shape.elements() * static_cast<int64_t>(size_of(spec.dtype));
  }
  const bool at_once = options.bucket_bytes == 0 || bytes <= options.bucket_bytes;
  return at_once && owners_read_their_own(step, *options.owners);
}

/// Shapes that do not go with a number of rows that no feed gives are a reason to refuse, and no error of the
/// tree.
template <class F>
StepGraph freeze_or_refuse(const StepTree& tree, const FeedSizes& rows, bool inference, F&& refusal) {
  try {
    return freeze(tree, rows, inference);
  } catch (const ShapeError& error) {
    throw UnsupportedError(fmt::format("{}: {}", refusal(), error.what()));
  } catch (const IndexError& error) {
    throw UnsupportedError(fmt::format("{}: {}", refusal(), error.what()));
  }
}

/// The step for a batch of another size, which shows which axes are those of the rows.
StepGraph freeze_other(const StepTree& tree, bool inference, const ShardOptions& options) {
  return freeze_or_refuse(tree, options.other_feeds, inference, [&] {
    return fmt::format(
        "get_executor: {} share out the rows of batches of any size, while the tree fixes their number (this "
        "batch has {}). For {} rows",
        parts_of(options.shard), options.batch_rows, options.other_rows);
  });
}

}  // namespace

StepGraph freeze_shard(const StepTree& tree, const FeedSizes& rows, bool inference,
                       const ShardOptions* options) {
  if (!options) return freeze(tree, rows, inference);
  return freeze_or_refuse(tree, rows, inference, [&] {
    return fmt::format(
        "get_executor: {} have a part of the batch's rows each, which the tree cannot be computed from",
        parts_of(options->shard));
  });
}

Replication shard(StepGraph& step, const StepTree& tree, bool inference, const ShardOptions& options) {
  const StepGraph other = freeze_other(tree, inference, options);
  const BatchSizes sizes{options.shard.rows(options.batch_rows), options.other_rows};
  BatchShardings shardings = batch_sharding(step.graph, other.graph, sizes, options.local_statistics);
  average_local(step.graph, other.graph, shardings);
  ExchangedSharding exchanged;
  const bool exchanges = has_refused(step.graph, shardings) && !options.local_statistics;
  if (exchanges) {
    const Graph& whole = options.other_rows == options.batch_rows ? other.graph : step.graph;
    exchanged = exchanged_sharding(step.graph, other.graph, sizes, whole);
    if (options.shard.micro_batches > 1) refuse_reductions(step.graph, exchanged, options);
    shardings = exchanged.shardings;
    for (const ValueRef& v : step.gradients)
      if (is_read_by_updates(step.graph, v))
        check_value(step.graph, shardings[v.node][v.output], shardings, options);
  } else {
    exchanged.shardings = shardings;
  }
  reduce_assigned(step.graph, exchanged, options);
  shardings = exchanged.shardings;
  check_results(step, shardings, options);
  mark_random_rows(step.graph, shardings);
  check_outputs(step, shardings);
  const auto sharding = [&](size_t result) -> const BatchValue& {
    const ValueRef v = step.graph.results[result];
    return shardings[v.node][v.output];
  };
  const bool averages = sharding(step.loss).sharding != BatchSharding::sum;
  const bool sums = exchanges || !summed_alike(step, shardings, averages);  // each part is weighed beforehand
  Replication result{.replicas = options.shard.replicas,
                     .micro_batches = options.shard.micro_batches,
                     .batch_rows = options.batch_rows,
                     .averages = averages && !sums};
  for (size_t i = 0; i < step.graph.results.size(); ++i) {
    const BatchValue& value = sharding(i);
    result.rows.emplace_back();
    if (value.sharding == BatchSharding::rows)
      result.rows.back() = RowAxis{value.axis, value.in_order() ? value.repeats : 0};
  }
  result.owners = options.owners;
  result.replica = options.shard.replica;
  step.summed_results = summed_results(step, shardings);
  const double fraction = static_cast<double>(sizes.part) / static_cast<double>(options.batch_rows);
  if (sums && !exchanges)  // gradients are what the loss is
    for (const ValueRef& v : step.gradients)
      exchanged.shardings[v.node][v.output].sharding = averages ? BatchSharding::mean : BatchSharding::sum;
  const RowExchanges rows =
      row_exchanges(step.graph, other.graph, sizes, exchanged.shardings, exchanges, averages);
  if (sums || exchanged.reduces()) exchange_statistics(step, exchanged, fraction, sums);
  step.scatters = scatters(step, options);
  exchange_rows(step.graph, rows, sizes.part, options.batch_rows);
  return result;
}

}  // namespace espalier
