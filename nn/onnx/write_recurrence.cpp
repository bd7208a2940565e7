// Recurrences over all steps as LSTM, GRU and RNN, and the memory cell of a single step.
#include <fmt/format.h>

#include "espalier/core/op_names.h"
#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/ops/recurrent/memory_cell_call.h"
#include "espalier/ops/recurrent/recurrence_call.h"

namespace espalier::onnx {

namespace {

/// Slices of the first axis, one for each gate, in the order of ONNX: i, o, f, c of an LSTM, whose order here
/// is i, f, c, o; and z, r, h of a GRU, whose order here is r, z, h.
std::string ordered_gates(GraphWriter& w, const std::string& x, RecurrentCell cell, int64_t hidden) {
  if (gates_of(cell) == 1) return x;
  const std::vector<int64_t> order =
      cell == RecurrentCell::lstm ? std::vector<int64_t>{0, 3, 1, 2} : std::vector<int64_t>{1, 0, 2};
  GraphWriter::Names parts;
  for (const int64_t gate : order)
    parts.push_back(
        w.add("Slice", {x, w.integers({gate * hidden}), w.integers({(gate + 1) * hidden}), w.integers({0})}));
  pb::NodeProto& node = w.begin("Concat", parts);
  w.set(node, "axis", int64_t{0});
  return w.last_output(node);
}

/// With one direction in front.
std::string of_direction(GraphWriter& w, const std::string& x) {
  return w.add("Unsqueeze", {x, w.integers({0})});
}

/// The inputs of the steps, [steps, batch, in], and their weights [gates · hidden, in].
struct Products {
  std::string x, weight;
};
Products products_of(GraphWriter& w, const GraphWriter::Call& call) {
  const Edge& product = call.node.inputs[0];
  const Node& node = *product.node();
  if (is_op(node.op(), "matmul") && !attribute<bool>(node.op(), "transpose_a") &&
      node.inputs[0].spec().shape.rank() == 3 && node.inputs[1].spec().shape.rank() == 2) {
    const std::string& weight = w.name_of(node.inputs[1]);
    return {w.name_of(node.inputs[0]),
            attribute<bool>(node.op(), "transpose_b") ? weight : w.add("Transpose", {weight})};
  }
  // Something else made the products: they are multiplied by the identity.
  const int64_t width = call.input(0).shape[-1];
  Tensor identity = zeros({width, width});
  for (int64_t i = 0; i < width; ++i) identity.at<float>({i, i}) = 1;
  return {call.inputs[0], w.constant(identity.to(call.output().dtype))};
}

bool is_zero(const Edge& state) {
  const Op& op = state.node()->op();
  return is_op(op, "full_like") && attribute<double>(op, "value") == 0;
}

/// The formulas of `MemoryCellForm`.
std::string write_memory_cell(GraphWriter& w, const GraphWriter::Call& call) {
  const MemoryCellForm form = memory_cell_form_of(call.op);
  const auto gate = [&](int64_t which) {
    std::string sum;
    for (int64_t p = 0; p < form.summands(); ++p) {
      const int64_t block = form.block(p, which);
      if (block < 0) continue;
      const std::string part =
          w.add("Slice", {call.inputs[static_cast<size_t>(p)], w.integers({block * form.width}),
                          w.integers({(block + 1) * form.width}), w.integers({-1})});
      sum = sum.empty() ? part : w.add("Add", {sum, part});
    }
    return w.add(which + 1 == form.gates() ? "Tanh" : "Sigmoid", {sum});
  };
  std::string c = w.add("Mul", {gate(0), gate(form.gates() - 1)});
  for (int64_t k = 0; k < form.memories; ++k) {
    const std::string& memory = call.inputs[static_cast<size_t>(form.summands() + k)];
    c = w.add("Add", {c, w.add("Mul", {gate(2 + k), memory})});
  }
  w.name_output(call, 1, c);
  return w.add("Mul", {gate(1), w.add("Tanh", {c})});
}

}  // namespace

std::string write_recurrence(GraphWriter& w, const GraphWriter::Call& call) {
  if (is_op(call.op, "memory_cell")) return write_memory_cell(w, call);
  if (!is_op(call.op, "recurrence") && !is_op(call.op, "padded_recurrence")) return {};
  const RecurrenceForm form = recurrence_form_of(call.op);
  if (!form.batch_sizes.empty()) throw UnsupportedError("packed sequences cannot be written");
  const bool lstm = form.cell == RecurrentCell::lstm, bias = attribute<bool>(call.op, "bias");
  const int64_t hidden = call.input(1).shape[1];
  const auto ordered = [&](const std::string& x) {
    return of_direction(w, ordered_gates(w, x, form.cell, hidden));
  };
  const Products products = products_of(w, call);
  GraphWriter::Names inputs{products.x, ordered(products.weight), ordered(call.inputs[1]), "", "", ""};
  if (bias) {
    const size_t first = lstm ? 4 : 3;
    pb::NodeProto& both = w.begin("Concat", {ordered_gates(w, call.inputs[first], form.cell, hidden),
                                             ordered_gates(w, call.inputs[first + 1], form.cell, hidden)});
    w.set(both, "axis", int64_t{0});
    inputs[3] = of_direction(w, w.last_output(both));
  }
  if (has_lengths(call.op)) {
    pb::NodeProto& lengths = w.begin("Cast", {call.inputs.back()});
    w.set(lengths, "to", int64_t{type_in_file(int32)});
    inputs[4] = w.last_output(lengths);
  }
  const bool started = !is_zero(call.node.inputs[2]) || (lstm && !is_zero(call.node.inputs[3]));
  if (started) {
    inputs[5] = of_direction(w, call.inputs[2]);
    if (lstm) inputs.push_back(of_direction(w, call.inputs[3]));
  }
  while (inputs.back().empty()) inputs.pop_back();
  const char* type = lstm ? "LSTM" : form.cell == RecurrentCell::gru ? "GRU" : "RNN";
  pb::NodeProto& node = w.begin(type, inputs, lstm ? 3 : 2);
  w.set(node, "hidden_size", hidden);
  if (form.reverse) w.set_text(node, "direction", "reverse");
  if (form.cell == RecurrentCell::gru) w.set(node, "linear_before_reset", int64_t{1});
  if (form.cell == RecurrentCell::relu) w.set_texts(node, "activations", {"Relu"});
  const GraphWriter::Names made(node.output().begin(), node.output().end());
  w.name_output(call, 1, w.add("Squeeze", {made[1], w.integers({0})}));
  if (lstm) w.name_output(call, 2, w.add("Squeeze", {made[2], w.integers({0})}));
  return w.add("Squeeze", {made[0], w.integers({1})});
}

}  // namespace espalier::onnx
