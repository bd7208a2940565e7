#include <algorithm>
#include <optional>

#include "espalier/core/op_names.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/fused/fused_rows.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/graph/views.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/indexing/rows.h"

namespace espalier {

namespace {

/// The nodes that read each value.
class ValueReaders {
 public:
  explicit ValueReaders(const Graph& graph) : of_(graph.nodes.size()), is_result_(graph.nodes.size(), false) {
    for (uint32_t i = 0; i < graph.nodes.size(); ++i)
      for (const ValueRef& input : graph.nodes[i].inputs) of_[input.node].push_back({i, input.output});
    for (const ValueRef& result : graph.results) is_result_[result.node] = true;
  }
  /// The only one, unless the value is a result.
  std::optional<uint32_t> only(ValueRef v) const {
    if (is_result_[v.node]) return std::nullopt;
    std::optional<uint32_t> found;
    for (const auto& [reader, output] : of_[v.node]) {
      if (output != v.output) continue;
      if (found) return std::nullopt;
      found = reader;
    }
    return found;
  }

  /// The first, by position; behind all nodes if there is none.
  uint32_t first(ValueRef v) const {
    for (const auto& [reader, output] : of_[v.node])
      if (output == v.output) return reader;
    return static_cast<uint32_t>(of_.size());
  }

 private:
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> of_;  // by node: readers, and the output each reads
  std::vector<bool> is_result_;
};

/// Makes one node of a program and of what takes its operands out of tables and puts its results back.
class RowFuser {
 public:
  explicit RowFuser(Graph& graph) : graph_(graph), readers_(graph), views_(graph), rewriter_(graph) {}

  bool run() {
    bool changed = false;
    const auto count = static_cast<uint32_t>(graph_.nodes.size());
    for (uint32_t i = 0; i < count; ++i)
      if (const auto* op = dynamic_cast<const FusedOp*>(graph_.nodes[i].op.get()))
        changed |= fuse(i, op->program());
    if (!changed) return false;
    rewriter_.finish();
    dead_nodes(graph_);
    return true;
  }

 private:
  const GraphNode& node(uint32_t i) const { return graph_.nodes[i]; }

  /// The put of a result, if nothing else reads that, and only an assignment reads the put.
  std::optional<uint32_t> put_of(ValueRef result) const {
    const std::optional<uint32_t> put = readers_.only(result);
    if (!put || !is_op(*node(*put).op, "put_rows") || node(*put).inputs[2] != result) return std::nullopt;
    const std::optional<uint32_t> assignment = readers_.only({*put, 0});
    if (!assignment || !node(*assignment).op->has_side_effects()) return std::nullopt;
    return put;
  }

  bool fuse(uint32_t i, Program program) {
    std::vector<std::optional<uint32_t>> puts;  // by result
    uint32_t last = 0;
    for (uint32_t k = 0; k < node(i).outputs.size(); ++k) {
      puts.push_back(put_of({i, k}));
      if (puts[k]) last = std::max(last, *puts[k]);
    }
    if (last == 0) return false;
    const ValueRef rows = node(last).inputs[1];
    if (!sums_rows(*node(rows.node).op) || rows.output != 1) return false;  // each row once
    GraphNode fused;
    ProgramTables tables;
    // What reads a table that another kernel writes must not come behind that.
    const auto writes = [&](ValueRef table) {
      return std::ranges::any_of(puts, [&](const auto& put) { return put && node(*put).inputs[0] == table; });
    };
    for (const ValueRef& input : node(i).inputs) {
      const GraphNode& take = node(input.node);
      const bool taken = is_op(*take.op, "take_rows") && take.inputs[1] == rows && writes(take.inputs[0]);
      fused.inputs.push_back(taken ? take.inputs[0] : input);
      tables.inputs.push_back(taken);
    }
    for (uint32_t k = 0; k < puts.size(); ++k) {
      tables.of_output.push_back(ProgramTables::none);
      if (!puts[k]) {
        if (program.instructions[program.outputs[k]].extent != Extent::uniform ||
            readers_.first({i, k}) < last)
          return false;
        continue;
      }
      if (node(*puts[k]).inputs[1] != rows) return false;
      const ValueRef table = node(*puts[k]).inputs[0];
      const auto at = std::find(fused.inputs.begin(), fused.inputs.end(), table) - fused.inputs.begin();
      tables.of_output.back() = static_cast<uint32_t>(at);
      if (at < static_cast<std::ptrdiff_t>(fused.inputs.size())) continue;
      fused.inputs.push_back(table);
      tables.inputs.push_back(true);
    }
    if (!has_tables(fused, tables) || !fits(program, tables, graph_.spec(node(last).inputs[2]))) return false;
    fused.inputs.push_back(rows);
    for (uint32_t k = 0; k < puts.size(); ++k)
      fused.outputs.push_back(puts[k] ? node(*puts[k]).outputs[0] : node(i).outputs[k]);
    fused.op = std::make_shared<FusedRows>(std::move(program), std::move(tables));
    fused.tag = node(i).tag;
    fused.where = node(i).where;
    const uint32_t number = rewriter_.add_after(last, std::move(fused));
    for (uint32_t k = 0; k < puts.size(); ++k) {
      rewriter_.replace(puts[k] ? ValueRef{*puts[k], 0} : ValueRef{i, k}, {number, k});
      if (puts[k]) rewriter_.remove(*puts[k]);
    }
    rewriter_.remove(i);
    return true;
  }

  /// Whether tables are leaves of one shape, which no other operand shows: that could not be written where it
  /// lies.
  bool has_tables(const GraphNode& fused, const ProgramTables& tables) const {
    std::vector<ValueRef> seen;
    for (uint32_t k = 0; k < fused.inputs.size(); ++k) {
      if (!tables.inputs[k]) continue;
      const ValueRef table = fused.inputs[k];
      const bool alike = seen.empty() || graph_.spec(seen[0]).shape == graph_.spec(table).shape;
      if (!node(table.node).op->is_leaf() || !alike) return false;
      seen.push_back(table);
    }
    return std::ranges::all_of(seen, [&](ValueRef table) {
      return std::ranges::count_if(fused.inputs, [&](ValueRef v) { return views_.value_of(v) == table; }) ==
             1;
    });
  }

  /// Whether a program reads tables as rows of its domain, and has new rows as its results.
  static bool fits(const Program& program, const ProgramTables& tables, const Spec& taken) {
    const auto is_rows = [&](const Instruction& n) {
      return n.kind == Instruction::Kind::map && n.extent == Extent::full &&
             n.shape.elements() == taken.shape.elements();
    };
    for (const Instruction& n : program.instructions) {
      if (n.kind != Instruction::Kind::map || n.extent == Extent::row) return false;
      for (const Argument& a : n.arguments)
        if (a.from == Argument::From::input && tables.inputs[a.index] &&
            !(is_rows(n) && a.extent == Extent::full))
          return false;
    }
    for (size_t k = 0; k < program.outputs.size(); ++k)
      if (tables.of_output[k] != ProgramTables::none && !is_rows(program.instructions[program.outputs[k]]))
        return false;
    return program.row == 0 && program.elements == taken.shape.elements();
  }

  Graph& graph_;
  const ValueReaders readers_;
  const Views views_;
  GraphRewriter rewriter_;
};

/// Sums may be written over their terms.
bool sum_in_place(Graph& graph) {
  bool changed = false;
  for (GraphNode& n : graph.nodes) {
    if (!sums_rows(*n.op) || n.op == sum_rows_in_place()) continue;
    n.op = sum_rows_in_place();
    changed = true;
  }
  return changed;
}

}  // namespace

bool fuse_rows(Graph& graph, const CompileOptions&) {
  const bool sums = std::ranges::any_of(graph.nodes, [](const GraphNode& n) { return sums_rows(*n.op); });
  if (graph.device != DeviceType::cpu || !sums) return false;
  const bool fused = RowFuser(graph).run();
  return sum_in_place(graph) || fused;
}

}  // namespace espalier
