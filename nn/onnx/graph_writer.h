// GraphWriter: a tree as a graph of ONNX, node by node.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/nn/onnx/proto.h"
#include "espalier/nn/onnx/save.h"
#include "espalier/ops/loop/loop_body.h"

namespace espalier::onnx {

class GraphWriter {
 public:
  GraphWriter(pb::GraphProto& graph, const SaveOptions& options);
  void add_inputs(const NamedVariables& inputs);
  void add_outputs(const NamedVariables& outputs);

  // For the functions that write ops.
  using Names = std::vector<std::string>;
  /// The node that is being written, and its op, which may stand in its place in inference.
  struct Call {
    const Node& node;
    const Op& op;
    Names inputs;
    const Spec& input(size_t i) const { return node.inputs[i].spec(); }
    const Spec& output() const { return node.outputs[0].spec; }
    bool is_open(size_t i, size_t axis) const {
      return is_open_axis(*node.inputs[i].node(), node.inputs[i].output(), axis);
    }
    bool is_output_open(size_t axis) const { return is_open_axis(node, 0, axis); }
    int64_t axis(std::string_view attribute, int64_t rank) const;
  };
  /// Adds a node, and returns the name of its first output.
  std::string add(std::string_view type, const Names& inputs) { return last_output(begin(type, inputs)); }
  pb::NodeProto& begin(std::string_view type, const Names& inputs, int outputs = 1);
  static std::string last_output(const pb::NodeProto& node) { return node.output(0); }
  static void set(pb::NodeProto& node, std::string_view attribute, int64_t value);
  static void set(pb::NodeProto& node, std::string_view attribute, double value);
  static void set(pb::NodeProto& node, std::string_view attribute, const std::vector<int64_t>& values);
  static void set_text(pb::NodeProto& node, std::string_view attribute, const std::string& value);
  static void set_texts(pb::NodeProto& node, std::string_view attribute,
                        const std::vector<std::string>& values);
  /// A constant of the file.
  std::string constant(const Tensor& tensor);
  std::string integers(const std::vector<int64_t>& values);
  std::string number(double value, DType dtype);
  std::string shape_of(const std::string& value) { return add("Shape", {value}); }
  /// Says that nothing makes the value of that name: if it is needed in the end, the file is refused.
  void refuse(const std::string& name, const std::string& reason) { refused_[name] = reason; }
  /// Gives a further output of the node that is being written its name. Those without one are refused.
  void name_output(const Call& call, uint32_t output, const std::string& name) {
    names_[{&call.node, output}] = name;
  }
  /// Writes the body of a loop: a graph of its states and sequences, which are its inputs, that reads what
  /// else the loop takes, of these names, where it is.
  void write_body(const LoopBody& body, const Names& inputs, pb::GraphProto& graph);
  /// The name of a value that has been written.
  const std::string& name_of(const Edge& edge) const;
  /// The value of a constant scalar. Throws UnsupportedError for others.
  double number_of(const Edge& edge, const Op& op) const;

 private:
  using Key = std::pair<const Node*, uint32_t>;
  /// For a graph within that of another writer, whose names it neither takes nor changes.
  GraphWriter(pb::GraphProto& graph, const GraphWriter& outer)
      : graph_(graph), given_names_(outer.given_names_), taken_(outer.taken_) {}
  static void describe(const std::string& name, DType dtype, size_t rank, pb::ValueInfoProto& info);
  void add_output(const std::string& name, const Variable& variable);
  void write(const Variable& root);
  void write_node(const Node& node);
  void write_leaf(const Node& node);
  std::string fresh(std::string_view hint);
  void prune(const std::set<std::string>& wanted);

  pb::GraphProto& graph_;
  std::map<Key, std::string> names_;
  std::map<std::string, std::string> refused_;  ///< reasons, by the names of values that cannot be written
  std::map<const Node*, std::string> given_names_;
  std::set<std::string> taken_;
};

/// Writes a node, and returns the name of its output; empty if none of them knows the op.
std::string write_attention(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_elementwise(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_functions(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_indexing(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_layout(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_loop(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_recurrence(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_reduction(GraphWriter& writer, const GraphWriter::Call& call);
std::string write_windows(GraphWriter& writer, const GraphWriter::Call& call);

}  // namespace espalier::onnx
