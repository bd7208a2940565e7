#include "espalier/executor/sharding/refusal.h"

#include <fmt/format.h>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/op_names.h"
#include "espalier/executor/graph/user_names.h"
#include "espalier/executor/sharding/row_growth.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

namespace {

/// Whether a node adds a sum over the batch to something that is none.
bool adds_to_sum(const GraphNode& n, const BatchShardings& shardings) {
  bool sums = false, others = false;
  for (const ValueRef& input : n.inputs) {
    const BatchSharding in = shardings[input.node][input.output].sharding;
    if (in == BatchSharding::rows || in >= BatchSharding::local) return false;
    (in == BatchSharding::sum ? sums : others) = true;
  }
  return n.op->traits().linearity == Linearity::together && sums && others;
}

/// Whether the elements of a scan's sequences are rows of the batch.
bool steps_are_rows(const GraphNode& n, const BatchShardings& shardings) {
  const LoopBodyPtr body = loop_body_of(*n.op);
  for (size_t k = 0; body && k < body->sequences; ++k) {
    const ValueRef sequence = n.inputs[body->states + k];
    const BatchValue& value = shardings[sequence.node][sequence.output];
    if (value.sharding == BatchSharding::rows && value.axis == 0) return true;
  }
  return false;
}

bool is_of_whole(ValueRef v, const BatchShardings& shardings) {
  const BatchSharding sharding = shardings[v.node][v.output].sharding;
  return sharding == BatchSharding::mean || sharding == BatchSharding::sum;
}

constexpr std::string_view set_local = "get_executor({.replicas = {.local_statistics = true}})";

/// What a node needs that reads means or sums over the whole batch.
std::string of_whole(const Graph& graph, const GraphNode& n, const BatchShardings& shardings,
                     const ShardOptions& options) {
  if (options.shard.micro_batches > 1) {
    const bool divides = is_op(*n.op, "divide") && is_of_whole(n.inputs[1], shardings);
    return fmt::format(
        ", which are known after the last micro-batch only. {}{} takes them over the rows of each part "
        "instead, if these may stand for the batch; else leave out .accumulate",
        divides
            ? "A sum may be divided by a fixed number or by axis_size(x, 0) (a loss that ignores or weighs "
              "labels is LossReduction::sum then). "
            : "",
        set_local);
  }
  for (const ValueRef& input : n.inputs)
    if (is_of_whole(input, shardings) && !is_real(graph.spec(input).dtype))
      return fmt::format(", which replicas exchange in reals alone, and this is {}: cast() it",
                         name(graph.spec(input).dtype));
  return fmt::format(". {} takes them over the rows of each part instead", set_local);
}

std::string_view growing(int8_t growth) {
  if (growth == unknown_growth)
    return "sums over rows are in it (a part's sum is smaller than the batch's), and how it grows with the "
           "number of rows is not known. Use means, or divide each sum by axis_size(x, 0)";
  return growth > 0
             ? "it grows with the number of rows that it is computed from (a part's sum is smaller than "
               "the batch's). Use a mean, or divide it by axis_size(x, 0)"
             : "the more rows it is computed from, the smaller it becomes, as what is divided by a sum or "
               "by a number of rows does (a part's sum is smaller than the batch's). Use means, and sums "
               "where "
               "it is made of gradients with respect to rows: those of a mean are divided by their number";
}

int8_t growth_of(const std::vector<BatchValue>& outputs) {
  for (const BatchValue& value : outputs)
    if (value.growth != 0) return value.growth;
  return unknown_growth;
}

std::string reason(const Graph& graph, const BatchValue& value, const BatchShardings& shardings,
                   const ShardOptions& options) {
  const GraphNode& n = graph.nodes[value.cause];
  if (steps_are_rows(n, shardings))
    return "the rows of the batch are the steps of this scan, which come one after the other. If its steps "
           "are along another axis, swapaxes(x, 0, 1) makes that the first one";
  if (is_loop(*n.op))
    return "a step of it draws random numbers, or is neither row by row nor made of sums over the batch. "
           "Steps that are written out one by one, so that their number is fixed, may be computed so";
  if (adds_to_sum(n, shardings))
    return "it adds a value to a sum over the batch, and each part would add it again. Use a mean";
  const std::string_view custom = is_custom_op(*n.op) ? ". A custom_op states that it is .row_by_row" : "";
  switch (value.obstacle) {
    case Obstacle::grows: return std::string(growing(growth_of(shardings[value.cause])));
    case Obstacle::positions:
      return fmt::format(
          "it takes or writes what is at fixed positions along an axis of rows, and a part has other rows "
          "there than the batch{}",
          custom);
    case Obstacle::whole_in_rows:
      return "its rows read means or sums over the whole batch" + of_whole(graph, n, shardings, options);
    case Obstacle::function_of_whole:
      return "it is a function of means or sums over the whole batch" +
             of_whole(graph, n, shardings, options);
    case Obstacle::mixed_rows: break;
  }
  if (value.sharding == BatchSharding::local)
    return fmt::format(
        "the result has elements for rows of several parts. Take a mean of it, or another value of a fixed "
        "shape{}",
        custom);
  return fmt::format("its elements depend on rows of several parts{}{}{}",
                     options.local_statistics
                         ? ""
                         : ". A statistic or a loss that each part may take over its own rows "
                           "(pairs of rows, the greatest of them): ",
                     options.local_statistics ? "" : set_local, custom);
}

}  // namespace

std::string parts_of(const BatchShard& shard) {
  if (shard.micro_batches == 1) return fmt::format("{} replicas", shard.replicas);
  if (shard.replicas == 1) return fmt::format("{} micro-batches", shard.micro_batches);
  return fmt::format("{} micro-batches of {} replicas", shard.micro_batches, shard.replicas);
}

void refuse(const Graph& graph, const BatchValue& value, const BatchShardings& shardings,
            const ShardOptions& options) {
  throw UnsupportedError(fmt::format(
      "get_executor: {} cannot compute {} from a part of the batch's rows each: {}", parts_of(options.shard),
      in_user_words(graph.nodes[value.cause]), reason(graph, value, shardings, options)));
}

void refuse_reductions(const Graph& graph, const ExchangedSharding& exchanged, const ShardOptions& options) {
  for (const InputChange& change : exchanged.changes) {
    if (change.kind != InputChange::Kind::reduce) continue;
    const bool rows = exchanged.shardings[change.node][0].sharding == BatchSharding::rows;
    BatchValue value{BatchSharding::unshardable};
    value.cause = change.node;
    value.obstacle = rows ? Obstacle::whole_in_rows : Obstacle::function_of_whole;
    refuse(graph, value, exchanged.shardings, options);
  }
}

}  // namespace espalier
