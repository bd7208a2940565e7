// Scans as nodes of ONNX, whose body is a graph of its own.
#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier::onnx {

std::string write_loop(GraphWriter& w, const GraphWriter::Call& call) {
  const LoopBodyPtr body = loop_body_of(call.op);
  if (!body) return {};
  if (call.input(body->states).shape[0] == 0)
    throw UnsupportedError("a scan without steps cannot be written");
  const size_t looped = body->states + body->sequences;
  pb::GraphProto graph;
  w.write_body(*body, call.inputs, graph);
  pb::NodeProto& node =
      w.begin("Scan", {call.inputs.begin(), call.inputs.begin() + static_cast<int64_t>(looped)},
              static_cast<int>(body->outputs.size()));
  pb::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("body");
  attribute.set_type(pb::AttributeProto::GRAPH);
  attribute.mutable_g()->Swap(&graph);
  w.set(node, "num_scan_inputs", static_cast<int64_t>(body->sequences));
  if (scan_form_of(call.op).reverse) {
    w.set(node, "scan_input_directions", std::vector<int64_t>(body->sequences, 1));
    w.set(node, "scan_output_directions", std::vector<int64_t>(body->results(), 1));
  }
  for (int i = 1; i < node.output_size(); ++i) w.name_output(call, static_cast<uint32_t>(i), node.output(i));
  return w.last_output(node);
}

}  // namespace espalier::onnx
