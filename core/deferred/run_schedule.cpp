#include "espalier/core/deferred/run_schedule.h"

#include <algorithm>

#include "espalier/core/deferred/stacked.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/stopwatch.h"
#include "espalier/core/values_later.h"

namespace espalier {

namespace {

/// How many nodes ahead of its use one is fetched.
constexpr size_t prefetch_distance = 6;
/// Has the processor fetch what changes of a node: there are more of them than a cache holds.
void prefetch(const Node& node) {
  __builtin_prefetch(&node);
  __builtin_prefetch(&node.place);
}

class ScheduleRun {
 public:
  ScheduleRun(WaitingGraph& graph, NodeKinds& kinds, EvaluationReport& report)
      : graph_(graph), kinds_(kinds), report_(report) {}

  bool run(const Schedule& schedule) {
    report_.batches.reserve(schedule.batches.size());
    results_.reserve(schedule.batches.size());
    keeps_apart_ = !schedule.apart.empty();
    try {
      for (const ScheduledBatch& batch : schedule.batches) compute(batch);
    } catch (...) {
      settle();
      throw;
    }
    settle();
    return all_stacked_;
  }

 private:
  using Results = SmallVector<Variable, 1>;

  static BuildContext context_of(const Node& node) {
    BuildContext now;
    now.tag = node.tag;
    now.no_grad = node.stops_gradient;
    now.where = &node.where;
    return now;
  }

  /// Gives values to the nodes that are held, and lets go of what nodes without gradients were made of.
  void settle() {
    for (const Edge& held : held_) {
      Node& node = *held.node();
      take_from_batch(node);
      if (node.stops_gradient) node.cut(constant_op());
    }
  }

  void compute(const ScheduledBatch& batch) {
    Node& first = graph_.node(batch.nodes[0]);
    const int64_t before = kernels_run_here();
    report_.batches.push_back(described(batch, first));
    const BuildScope scope(context_of(first));
    Results results = results_of(batch, first);
    auto done = std::make_shared<Batch>();
    done->form = batch.form;
    for (const Variable& result : results) {
      done->outputs.push_back(Edge(result));
      report_.batches.back().bytes += done->outputs.back().spec().bytes();
    }
    for (uint32_t i = 0; i < batch.nodes.size(); ++i) {
      if (i + prefetch_distance < batch.nodes.size())
        prefetch(graph_.node(batch.nodes[i + prefetch_distance]));
      finish(batch.nodes[i], batch.starts.empty() ? i : batch.starts[i], done);
    }
    for (const auto& [node, row] : batch.copies) finish(node, row, done);
    results_.push_back(std::move(results));
    report_.batches.back().kernels = kernels_run_here() - before;
    report_.batches.back().seconds = watch_.lap();
    report_.nodes_computed += static_cast<int64_t>(batch.nodes.size() + batch.copies.size());
  }

  Results results_of(const ScheduledBatch& batch, const Node& first) {
    if (batch.form == BatchForm::rows) return row_results(batch, first);
    if (batch.form == BatchForm::row && !batch.joined) return stacked_results(batch);
    return located(first.where, [&] {
      return batch.joined ? joined_results(batch, first) : single_results(operands(batch.inputs), first);
    });
  }

  /// Notes where a node's value is.
  void finish(uint32_t number, uint32_t row, const std::shared_ptr<Batch>& done) {
    Edge held = graph_.take(number);
    Node& node = *held.node();
    node.batch = done;
    node.place = row;
    node.waits = false;
    if (node.has_handles()) held_.push_back(std::move(held));
  }

  EvaluationReport::Batch described(const ScheduledBatch& batch, const Node& first) const {
    EvaluationReport::Batch text{.op = std::string(first.op().name()),
                                 .nodes = static_cast<int64_t>(batch.nodes.size() + batch.copies.size()),
                                 .of_one = first.outputs[0].spec,
                                 .where = first.where};
    for (const ScheduledInput& input : batch.inputs)
      for (const ScheduledSource& from : input.sources) {
        if (from.external || std::ranges::find(text.reads, from.index) != text.reads.end()) continue;
        text.reads.push_back(from.index);
        text.level = std::max(text.level, report_.batches[from.index].level + 1);
      }
    return text;
  }

  Variable source(const ScheduledSource& from) const {
    const Variable& whole = from.external ? graph_.external(from.index) : results_[from.index][from.output];
    if (!from.flat) return whole;
    Dims dims(whole.shape().begin() + 1, whole.shape().end());
    dims[0] *= whole.shape().dims()[0];  // not -1, which an empty value has no size for
    return whole.reshape(Shape(std::move(dims)));
  }

  Variable operand(const ScheduledInput& input) {
    const Variable rows = rows_of(input);
    if (!input.rows_of_one) return rows;
    Dims dims{rows.shape().dims()[0] / input.rows_of_one, input.rows_of_one};
    dims.append(rows.shape().begin() + 1, rows.shape().end());
    return rows.reshape(Shape(std::move(dims)));
  }
  Variable rows_of(const ScheduledInput& input) {
    using Form = ScheduledInput::Form;
    const Variable first = source(input.sources[0]);
    switch (input.form) {
      case Form::whole: return first;
      case Form::row: return row_of(first, input.begin);
      case Form::range: return row_range(first, input.begin, input.step, input.count);
      case Form::gathered: break;
    }
    ++report_.batches.back().gathered;
    SmallVector<Variable, 4> sources;
    for (const ScheduledSource& from : input.sources) sources.push_back(source(from));
    SmallVector<const Variable*, 8> list;
    for (const Variable& each : sources) list.push_back(&each);
    return stack_rows(input.stack, {list.data(), list.size()});
  }

  SmallVector<Variable, 4> operands(const std::vector<ScheduledInput>& inputs) {
    SmallVector<Variable, 4> result;
    for (const ScheduledInput& input : inputs) result.push_back(operand(input));
    return result;
  }

  static Results outputs_of(const Variable& first) {
    Results results{first};
    for (uint32_t k = 1; k < first.node()->outputs.size(); ++k) results.push_back(Variable(first.node(), k));
    return results;
  }

  static Results single_results(const SmallVector<Variable, 4>& operands, const Node& node) {
    SmallVector<const Variable*, 4> inputs;
    for (const Variable& v : operands) inputs.push_back(&v);
    const std::span<const Variable* const> list{inputs.data(), inputs.size()};
    if (!node.op().is_random()) return outputs_of(apply(node.op_, list, node.where));
    std::optional<ValuesLater> later(std::in_place);  // it has its random numbers already
    const Variable result = apply(node.op_, list, node.where);
    later.reset();
    result.node()->rare().stream = const_cast<Node&>(node).rare().stream;
    result.node()->drawn = true;
    ensure_value(*result.node());
    if (node.stops_gradient) result.node()->cut(constant_op());
    return outputs_of(result);
  }

  /// Nodes whose inputs are rows of one operand: their concatenations have the same elements in the same
  /// order.
  Results joined_results(const ScheduledBatch& batch, const Node& node) {
    Dims dims;
    if (batch.form == BatchForm::row) dims.push_back(static_cast<int64_t>(batch.nodes.size()));
    dims.append(node.outputs[0].spec.shape.begin(), node.outputs[0].spec.shape.end());
    return {operand(batch.inputs[0]).reshape(Shape(std::move(dims)))};
  }

  /// The rows of all nodes as those of one.
  Results row_results(const ScheduledBatch& batch, const Node& first) {
    const SmallVector<Variable, 4> inputs = operands(batch.inputs);
    try {
      return single_results(inputs, first);
    } catch (const Error&) {  // the line of the node that is wrong is wanted
    }
    std::vector<Results> all;
    std::vector<RowPiece> pieces;
    for (uint32_t i = 0; i < batch.nodes.size(); ++i) {
      const Node& node = graph_.node(batch.nodes[i]);
      const auto count = static_cast<int32_t>(batch.starts[i + 1] - batch.starts[i]);
      SmallVector<Variable, 4> own;
      for (size_t k = 0; k < inputs.size(); ++k)
        own.push_back(batch.inputs[k].shared ? inputs[k] : row_range(inputs[k], batch.starts[i], 1, count));
      all.push_back(located(node.where, [&] { return single_results(own, node); }));
      for (int32_t row = 0; row < count; ++row) pieces.push_back({i, row});
    }
    return stacked_rows(all, std::move(pieces));
  }

  /// These rows of the outputs of nodes that were computed apart.
  static Results stacked_rows(const std::vector<Results>& all, std::vector<RowPiece> pieces) {
    const OpPtr stack = stack_rows_op(std::move(pieces));
    Results results;
    for (size_t k = 0; k < all[0].size(); ++k) {
      std::vector<const Variable*> sources;
      for (const Results& one : all) sources.push_back(&one[k]);
      results.push_back(stack_rows(stack, sources));
    }
    return results;
  }

  Results stacked_results(const ScheduledBatch& batch) {
    const auto rows = static_cast<int64_t>(batch.nodes.size());
    const Node& first = graph_.node(batch.nodes[0]);
    if (first.op().is_random()) return random_results(batch, first);
    Gradients outputs;
    SmallVector<Variable, 4> inputs;
    uint64_t shared = 0;
    for (size_t i = 0; i < batch.inputs.size(); ++i)
      shared |= static_cast<uint64_t>(batch.inputs[i].shared) << (i < 63 ? i : 63);
    inputs = operands(batch.inputs);
    try {
      if (inputs.size() <= 63) outputs = batched(Stacked(first.op_, rows, inputs, shared));
    } catch (const Error&) {
      // The line of the node that is wrong is wanted: all are computed one by one.
      return one_by_one(batch, inputs, shared);
    }
    if (!outputs.empty()) return Results(outputs.begin(), outputs.end());
    if (!keeps_apart_) {  // nodes that are apart may make several operands of one
      kinds_[graph_.kind(batch.nodes[0])].one_by_one = true;
      all_stacked_ = false;
    }
    return one_by_one(batch, inputs, shared);
  }

  /// Random numbers side by side, those of each node from the stream that it drew when it was written.
  Results random_results(const ScheduledBatch& batch, const Node& first) {
    const Op& op = first.op();
    SmallVector<Variable, 4> read;
    for (size_t i = 0; i < batch.inputs.size(); ++i)
      read.push_back(op.reads_elements(i) ? operand(batch.inputs[i]) : Variable());
    std::vector<Tensor> all;
    for (const Output& output : first.outputs) {
      Dims dims{static_cast<int64_t>(batch.nodes.size())};
      dims.append(output.spec.shape.begin(), output.spec.shape.end());
      all.emplace_back(Shape(std::move(dims)), output.spec.dtype, output.value.device());
    }
    for (size_t row = 0; row < batch.nodes.size(); ++row) {
      Node& node = graph_.node(batch.nodes[row]);
      std::vector<Tensor> inputs, outputs;
      for (size_t i = 0; i < read.size(); ++i) {
        const Spec& spec = node.inputs[i].spec();
        if (!read[i].defined())
          inputs.emplace_back(StoragePtr(), Layout(spec.shape), spec.dtype);
        else
          inputs.push_back(batch.inputs[i].shared ? read[i].value() : read[i].value()[row]);
      }
      for (const Tensor& output : all) outputs.push_back(output[row]);
      KernelCall call;
      call.where = &node.where;
      call.random = node.rare().stream;
      for (const Tensor& input : inputs) call.inputs.push_back(&input);
      for (Tensor& output : outputs) call.outputs.push_back(&output);
      located(node.where, [&] { backend(all[0].device()).run(op, call); });
      ++kernels_run_here();
    }
    Results results;
    for (const Tensor& output : all) results.push_back(make_leaf(constant_op(), output, first.where));
    return results;
  }

  /// The nodes of a batch computed apart, and their outputs stacked.
  Results one_by_one(const ScheduledBatch& batch, const SmallVector<Variable, 4>& inputs, uint64_t shared) {
    std::vector<Results> all;
    for (size_t row = 0; row < batch.nodes.size(); ++row) {
      const Node& node = graph_.node(batch.nodes[row]);
      SmallVector<Variable, 4> own;
      for (size_t i = 0; i < inputs.size(); ++i)
        own.push_back((shared >> (i < 63 ? i : 63)) & 1 ? inputs[i]
                                                        : row_of(inputs[i], static_cast<int64_t>(row)));
      all.push_back(located(node.where, [&] { return single_results(own, node); }));
    }
    std::vector<RowPiece> pieces;
    for (uint32_t row = 0; row < all.size(); ++row) pieces.push_back({row, -1});
    return stacked_rows(all, std::move(pieces));
  }

  WaitingGraph& graph_;
  NodeKinds& kinds_;
  EvaluationReport& report_;
  Stopwatch watch_;  // of a batch
  std::vector<Results> results_;
  std::vector<Edge> held_;  ///< by handles, of the nodes that are done
  bool all_stacked_ = true, keeps_apart_ = false;
};

}  // namespace

bool run_schedule(const Schedule& schedule, WaitingGraph& graph, NodeKinds& kinds, EvaluationReport& report) {
  return ScheduleRun(graph, kinds, report).run(schedule);
}

}  // namespace espalier
