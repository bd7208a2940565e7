// ModelReader: the graph of a file, node by node.
#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "espalier/nn/onnx/file_node.h"
#include "espalier/nn/onnx/model.h"
#include "espalier/nn/onnx/stand_in.h"

namespace espalier::onnx {

/// The values of a graph by name; those of a graph around it are seen from inside.
struct Scope {
  const Scope* around = nullptr;
  std::map<std::string, Value> values = {};

  const Value* find(const std::string& name) const;
};

/// The versions of the operators by their domains.
using Opsets = std::map<std::string, int64_t>;

class ModelReader {
 public:
  ModelReader(const pb::ModelProto& proto, std::filesystem::path file, const LoadOptions& options,
              const std::source_location& where);
  Model read();

 private:
  void read_opsets();
  void read_initializers(const pb::GraphProto& graph, Scope& scope, bool outermost);
  void check_options() const;
  void read_inputs();
  Variable given_input(const pb::ValueInfoProto& info, const Variable& own);
  Tensor tensor_of(const pb::TensorProto& proto);
  void count_copy(const Tensor& tensor);
  Value add_weight(const std::string& name, const Tensor& tensor);
  bool adds_equal_weight(const pb::NodeProto& node);
  Variable make_input(const pb::ValueInfoProto& info);
  void translate(const pb::GraphProto& graph);
  void translate(const pb::NodeProto& node, Scope& scope, const Opsets& opsets);
  std::vector<Value> call(const pb::FunctionProto& function, const pb::NodeProto& node,
                          const std::vector<Value>& inputs);
  std::vector<Value> run(const pb::GraphProto& graph, const std::vector<Value>& inputs, const Scope& around,
                         const Opsets& opsets);
  Value folded(Variable variable, const FileNode& node) const;
  void add_parameters();
  nn::Module module_of(const std::string& path, std::string& name);

  const pb::ModelProto& proto_;
  std::filesystem::path file_;
  const LoadOptions& options_;
  std::source_location where_;
  Model model_;
  Scope scope_;
  Opsets opsets_;
  int depth_ = 0;
  int64_t nodes_ = 0;                 // that have been written out
  int64_t copied_bytes_ = 0;          // of equal weights, and of constants at each call of what holds them
  std::set<std::string> statistics_;  // initializers that are running statistics
  std::map<std::string, Tensor> weights_;
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::map<std::string, nn::Module> modules_;
  std::set<std::string> paths_;
  StandIns stand_ins_;
};

}  // namespace espalier::onnx
