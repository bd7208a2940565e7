// FileNode: one node of a file while it is translated, with its inputs as Variables.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/nn/onnx/proto.h"
#include "espalier/nn/onnx/size.h"

namespace espalier::onnx {

/// A value of the file.
struct Value {
  Variable variable;
  bool constant = false;   ///< it depends on nothing that a run or a training step changes
  Variable shape_of = {};  ///< if it is the shape of a Variable: that one, whose open axes it does not know
  /// Its elements, if some of them are made of the sizes of axes that may differ from run to run.
  std::vector<Size> sizes = {};
};

using Outputs = std::vector<Variable>;

class FileNode {
 public:
  /// Translates the graph of an attribute, whose inputs are given.
  using Subgraph =
      std::function<std::vector<Value>(const pb::GraphProto& graph, const std::vector<Value>& inputs)>;
  /// Reads a tensor of the file.
  using ReadTensor = std::function<Tensor(const pb::TensorProto& tensor)>;

  FileNode(const pb::NodeProto& proto, int64_t opset, std::vector<Value> inputs, int64_t largest_constant,
           ReadTensor read, Subgraph subgraph)
      : proto_(proto),
        opset_(opset),
        inputs_(std::move(inputs)),
        largest_constant_(largest_constant),
        read_(std::move(read)),
        subgraph_(std::move(subgraph)) {}

  const std::string& type() const { return proto_.op_type(); }
  int64_t opset() const { return opset_; }
  /// "node 'name' (Conv)".
  std::string label() const;

  // Inputs. Those that are left out, in the middle or at the end, are not there.
  size_t count() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i].variable.defined(); }
  /// Throws FileError if it is not there.
  const Variable& operator[](size_t i) const;
  /// One that may be left out in the middle. Throws FileError behind the end.
  const Value& value(size_t i) const {
    if (i >= count()) fail_without(i);
    return inputs_[i];
  }
  Variable optional(size_t i) const { return has(i) ? inputs_[i].variable : Variable(); }
  std::vector<Variable> all() const;
  /// Whether all inputs are constants.
  bool constant() const;

  // Values that decide about the tree. They throw ConstantNeeded unless they are known.
  bool known(size_t i) const;
  Tensor tensor(size_t i) const;
  /// Integers of a scalar or a vector. Sizes of open axes are refused.
  std::vector<int64_t> integers(size_t i) const;
  /// The same with sizes of open axes, which are multiples of nominal_size.
  std::vector<int64_t> open_integers(size_t i) const;
  /// The same, each as what it is the size of. What is made of an open size in another way is refused.
  std::vector<Size> sizes(size_t i) const { return sizes_or_sums(i, false); }
  /// The same with sums that are the size of nothing, for number_of and numbers_from.
  std::vector<Size> sums(size_t i) const { return sizes_or_sums(i, true); }
  /// Throws UnsupportedError: input `i` depends on the size of an open axis.
  [[noreturn]] void refuse_open(size_t i) const;
  void set_inputs(std::vector<Value> inputs) { inputs_ = std::move(inputs); }
  /// The node with these inputs in place of its own.
  FileNode with_inputs(std::vector<Value> inputs) const;
  std::vector<double> numbers(size_t i) const;
  int64_t integer(size_t i) const;
  double number(size_t i) const;

  // Attributes. What is not asked for by the end is refused.
  bool has(std::string_view attribute) const;
  int64_t integer(std::string_view attribute, int64_t otherwise) const;
  int64_t integer(std::string_view attribute) const;
  double real(std::string_view attribute, double otherwise) const;
  std::string text(std::string_view attribute, std::string_view otherwise) const;
  std::vector<int64_t> integers(std::string_view attribute, std::vector<int64_t> otherwise = {}) const;
  std::vector<double> reals(std::string_view attribute) const;
  std::vector<std::string> texts(std::string_view attribute) const;
  Tensor tensor(std::string_view attribute) const;
  const pb::GraphProto& graph(std::string_view attribute) const;
  void ignore(std::string_view attribute) const { read_attributes_.insert(std::string(attribute)); }
  /// Throws UnsupportedError for an attribute that nothing asked for.
  void check_attributes() const;

  std::vector<Value> run(const pb::GraphProto& graph, const std::vector<Value>& inputs) const {
    return subgraph_(graph, inputs);
  }

  size_t outputs() const { return static_cast<size_t>(proto_.output_size()); }
  bool wants(size_t output) const {
    return output < outputs() && !proto_.output(static_cast<int>(output)).empty();
  }
  /// Says that its outputs are drawn anew in each run.
  void set_random() { random_ = true; }
  /// Says that its outputs are known although its inputs are not: sizes.
  void set_known() { known_ = true; }
  /// Says that its outputs depend on a feed although its inputs are known.
  void set_fed() { random_ = true; }
  bool random() const { return random_; }
  /// Says what the elements of its output are the sizes of.
  void set_sizes(std::vector<Size> sizes) { made_sizes_ = std::move(sizes); }
  const std::vector<Size>& made_sizes() const { return made_sizes_; }

  /// Refuses a constant that its translation would make, if it is larger than LoadOptions::largest_constant.
  void check_constant(const Shape& shape, DType dtype) const;
  /// Refuses to write out more steps than this, or parts.
  void check_steps(int64_t steps) const;
  /// Throws UnsupportedError, or FileError: the node, and the reason.
  [[noreturn]] void refuse(const std::string& reason) const;
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  std::vector<Size> sizes_or_sums(size_t i, bool sums) const;
  [[noreturn]] void fail_without(size_t input) const;
  const pb::AttributeProto* find(std::string_view attribute, pb::AttributeProto::AttributeType type) const;
  const pb::AttributeProto& need(std::string_view attribute, pb::AttributeProto::AttributeType type) const;

  const pb::NodeProto& proto_;
  int64_t opset_;
  std::vector<Value> inputs_;
  int64_t largest_constant_;
  ReadTensor read_;
  Subgraph subgraph_;
  mutable std::set<std::string, std::less<>> read_attributes_;
  std::vector<Size> made_sizes_;
  bool random_ = false, known_ = false;
};

}  // namespace espalier::onnx
