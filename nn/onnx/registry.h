// Registry: how operators are translated, by name and version.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/nn/onnx/file_node.h"

namespace espalier::onnx {

/// Writes a node's operations, and returns its outputs; undefined ones, and those that are missing at the
/// end, are not supported.
using Translate = Outputs (*)(FileNode& node);

class Registry {
 public:
  /// For opsets from `since` on, up to the next version that is added.
  void add(std::string_view op, int64_t since, Translate translate);
  /// Null for an unknown operator, and one that was added to ONNX later.
  Translate find(std::string_view op, int64_t opset) const;
  bool contains(std::string_view op) const { return operators_.contains(op); }
  std::vector<std::string> names() const;

 private:
  std::map<std::string, std::map<int64_t, Translate>, std::less<>> operators_;
};

/// The operators of ai.onnx.
const Registry& registry();

// One function for each file of operators.
void add_activations(Registry& operators);
void add_attention(Registry& operators);
void add_comparisons(Registry& operators);
void add_control(Registry& operators);
void add_convolutions(Registry& operators);
void add_creation(Registry& operators);
void add_elementwise(Registry& operators);
void add_images(Registry& operators);
void add_indexing(Registry& operators);
void add_layout(Registry& operators);
void add_losses(Registry& operators);
void add_normalization(Registry& operators);
void add_pooling(Registry& operators);
void add_products(Registry& operators);
void add_quantized(Registry& operators);
void add_random(Registry& operators);
void add_recurrent(Registry& operators);
void add_reductions(Registry& operators);
void add_signals(Registry& operators);

}  // namespace espalier::onnx
