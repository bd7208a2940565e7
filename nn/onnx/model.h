// ONNX files as trees: a Model is a Module whose parameters are the weights of the file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/nn/module.h"

namespace espalier::onnx {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

struct LoadOptions {
  /// What stands for inputs of the file, by their names: the columns of a feed, other Variables, or Tensors,
  /// which are constants. Every other input becomes a placeholder of its name. An axis of the batch that has
  /// no number in the file follows the batches of the feed.
  NamedVariables inputs = {};
  /// The sizes of axes that the file names, as {"batch", 8}. Every other axis without a number is open: its
  /// size may differ from run to run. DataError for a name that no axis has, as for one that no input has.
  std::vector<std::pair<std::string, int64_t>> sizes = {};
  /// The most bytes that one constant may take which the file computes from others.
  int64_t largest_constant = int64_t{1} << 30;
  /// The most nodes that loops, branches and functions are written out to.
  int64_t most_nodes = 1'000'000;
};

/// An operator reads values that decide about shapes, such as the sizes of a Reshape, and the tree does not
/// know them: they depend on inputs of the model.
class ConstantNeeded : public UnsupportedError {
 public:
  ConstantNeeded(const std::string& message, std::vector<std::string> inputs)
      : UnsupportedError(message), inputs_(std::move(inputs)) {}
  /// The inputs that would have to be constants (LoadOptions::inputs).
  const std::vector<std::string>& inputs() const { return inputs_; }

 private:
  std::vector<std::string> inputs_;
};

/// The graph of a file. Its parameters are the real initializers with at least one axis that outputs depend
/// on, by the names of the file, whose dots separate modules; the running statistics of normalizations are
/// buffers. An Identity of one is another one. Other initializers are constants, and so is what is computed
/// from constants alone.
class Model : public nn::Module {
 public:
  const NamedVariables& inputs() const { return inputs_; }
  const NamedVariables& outputs() const { return outputs_; }
  /// Throws Error for an unknown name.
  const Variable& input(std::string_view name, Where where = Where::current()) const;
  const Variable& output(std::string_view name, Where where = Where::current()) const;
  /// The only output. Throws Error if there are several.
  const Variable& output(Where where = Where::current()) const;
  /// The version of the operators of ai.onnx.
  int64_t opset() const { return opset_; }

 private:
  friend class ModelReader;
  NamedVariables inputs_, outputs_;
  int64_t opset_ = 0;
};

/// Reads a file of ONNX; weights in files of their own are looked for in its folder. Operators are those of
/// ai.onnx, docs/onnx.md lists them; functions of the file are expanded. Throws FileError for a file that is
/// no ONNX or that contradicts itself, naming the node; UnsupportedError for operators, types and settings
/// that Espalier does not have; ConstantNeeded. Names in `options` that the file does not have are a
/// DataError, other errors in them an Error. All end with the line `where`.
Model load(const std::filesystem::path& file, const LoadOptions& options = {},
           std::source_location where = std::source_location::current());

}  // namespace espalier::onnx
