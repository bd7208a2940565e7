#include "espalier/executor/sharding/exchange_rows.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/graph/user_names.h"
#include "espalier/executor/sharding/shard_gather.h"
#include "espalier/executor/sharding/shard_reduction.h"
#include "espalier/ops/indexing/rows.h"

namespace espalier {

namespace {

/// Values and indices of the terms that a node adds up.
struct RowTerms {
  std::vector<ValueRef> values, indices;
};

/// Those that were joined, one by one.
RowTerms row_terms_of(const Graph& graph, const GraphNode& n) {
  const GraphNode &values = graph.nodes[n.inputs[0].node], &indices = graph.nodes[n.inputs[1].node];
  const bool joined = is_op(*values.op, "concat") && is_op(*indices.op, "concat") &&
                      values.inputs.size() == indices.inputs.size();
  if (!joined) return {{n.inputs[0]}, {n.inputs[1]}};
  return {{values.inputs.begin(), values.inputs.end()}, {indices.inputs.begin(), indices.inputs.end()}};
}

class TermExchange {
 public:
  TermExchange(Graph& graph, int64_t part_rows, int64_t batch_rows)
      : graph_(graph), part_rows_(part_rows), batch_rows_(batch_rows), rewriter_(graph) {}

  void run(uint32_t i, const std::vector<RowExchange>& kinds) {
    RowTerms terms = row_terms_of(graph_, graph_.nodes[i]);
    for (size_t k = 0; k < kinds.size(); ++k) {
      ValueRef &values = terms.values[k], &indices = terms.indices[k];
      switch (kinds[k]) {
        case RowExchange::none: break;
        case RowExchange::reduce_means:
        case RowExchange::reduce_sums:
          values =
              meeting(i, values, std::make_shared<ShardReduction>(kinds[k] == RowExchange::reduce_means));
          break;
        case RowExchange::gather_means:
        case RowExchange::gather:
          values = gathered(i, values, kinds[k] == RowExchange::gather_means);
          indices = gathered(i, indices, false);
          break;
      }
    }
    graph_.nodes[i].inputs[0] = joined(i, terms.values);
    graph_.nodes[i].inputs[1] = joined(i, terms.indices);
  }

  /// What is computed from the rows has as many of them as all replicas have together.
  void finish() {
    rewriter_.finish();
    std::vector<bool> changed(graph_.nodes.size(), false);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      GraphNode& n = graph_.nodes[i];
      changed[i] = sums_rows(*n.op);
      for (const ValueRef& input : n.inputs) changed[i] = changed[i] || changed[input.node];
      if (!changed[i] || n.op->has_side_effects()) continue;
      InputSpecs specs;
      for (const ValueRef& input : n.inputs) specs.push_back(&graph_.spec(input));
      n.outputs = n.op->infer(specs);
    }
  }

 private:
  ValueRef add(uint32_t reader, OpPtr op, const std::vector<ValueRef>& inputs) {
    GraphNode n;
    n.op = std::move(op);
    n.inputs = {inputs.begin(), inputs.end()};
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&rewriter_.spec(input));
    n.outputs = {n.op->infer(specs)[0]};
    n.tag = Tag::update;
    n.where = graph_.nodes[reader].where;
    return {rewriter_.add_before(reader, std::move(n)), 0};
  }
  /// A node in which all replicas meet, behind the one before it.
  ValueRef meeting(uint32_t reader, ValueRef v, OpPtr op) {
    std::vector<ValueRef> inputs{v};
    if (last_) inputs.push_back(*last_);
    last_ = add(reader, std::move(op), inputs);
    return *last_;
  }
  ValueRef gathered(uint32_t reader, ValueRef v, bool means) {
    const auto known = gathered_.find({v, means});
    if (known != gathered_.end()) return known->second;
    const int64_t per_row = rewriter_.spec(v).shape.elements() / part_rows_;
    return gathered_[{v, means}] =
               meeting(reader, v, std::make_shared<ShardGather>(per_row, batch_rows_, means));
  }
  /// As a vector, if there are several.
  ValueRef joined(uint32_t reader, const std::vector<ValueRef>& terms) {
    if (terms.size() == 1) return terms[0];
    std::vector<ValueRef> flat;
    for (const ValueRef& term : terms)
      flat.push_back(rewriter_.spec(term).shape.rank() == 1
                         ? term
                         : add(reader, make_op("reshape", {{"shape", std::vector<int64_t>{-1}}}), {term}));
    return add(reader, make_op("concat", {{"axis", int64_t{0}}}), flat);
  }

  Graph& graph_;
  int64_t part_rows_, batch_rows_;
  GraphRewriter rewriter_;
  std::map<std::pair<ValueRef, bool>, ValueRef> gathered_;
  std::optional<ValueRef> last_;  // where the replicas have met last
};

[[noreturn]] void refuse_rows(const GraphNode& reader, const GraphNode& indices, std::string_view why) {
  throw UnsupportedError(
      fmt::format("get_executor: replicas cannot exchange the gradients of the rows of a table ({}) that {} "
                  "looks up: {}",
                  line_of(reader.where), in_user_words(indices), why));
}

}  // namespace

RowExchanges row_exchanges(const Graph& part, const Graph& other, BatchSizes sizes,
                           const BatchShardings& shardings, bool whole_values, bool averages) {
  RowExchanges all;
  for (const GraphNode& n : part.nodes) {
    if (!sums_rows(*n.op)) continue;
    std::vector<RowExchange> kinds;
    const RowTerms terms = row_terms_of(part, n);
    for (size_t k = 0; k < terms.values.size(); ++k) {
      const ValueRef values = terms.values[k], indices = terms.indices[k];
      const BatchSharding sharding = shardings[values.node][values.output].sharding;
      const int64_t count = part.spec(indices).shape.elements(),
                    others = other.spec(indices).shape.elements();
      if (count == others) {
        if (shardings[indices.node][indices.output].sharding != BatchSharding::replicated)
          refuse_rows(n, part.nodes[indices.node], "they are computed from several rows of the batch");
        if (whole_values && sharding != BatchSharding::replicated && sharding != BatchSharding::mean &&
            sharding != BatchSharding::sum)
          refuse_rows(n, part.nodes[indices.node], "their gradients are no mean or sum over the batch");
        const bool means = whole_values ? sharding == BatchSharding::mean : averages;
        kinds.push_back(sharding == BatchSharding::replicated ? RowExchange::none
                        : means                               ? RowExchange::reduce_means
                                                              : RowExchange::reduce_sums);
        continue;
      }
      if (count * sizes.other != others * sizes.part || count % sizes.part != 0)
        refuse_rows(n, part.nodes[indices.node],
                    fmt::format("{} indices are not a number of them for each of {} rows of the batch", count,
                                sizes.part));
      if (whole_values && sharding != BatchSharding::rows)
        refuse_rows(n, part.nodes[indices.node], "their gradients are not row by row");
      kinds.push_back(averages && !whole_values ? RowExchange::gather_means : RowExchange::gather);
    }
    all.push_back(std::move(kinds));
  }
  return all;
}

void exchange_rows(Graph& graph, const RowExchanges& exchanges, int64_t part_rows, int64_t batch_rows) {
  if (exchanges.empty()) return;
  TermExchange exchange(graph, part_rows, batch_rows);
  auto next = exchanges.begin();
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (sums_rows(*graph.nodes[i].op)) exchange.run(i, *next++);
  exchange.finish();
}

}  // namespace espalier
