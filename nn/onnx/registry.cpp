#include "espalier/nn/onnx/registry.h"

namespace espalier::onnx {

void Registry::add(std::string_view op, int64_t since, Translate translate) {
  operators_[std::string(op)][since] = translate;
}

Translate Registry::find(std::string_view op, int64_t opset) const {
  const auto known = operators_.find(op);
  if (known == operators_.end()) return nullptr;
  const auto later = known->second.upper_bound(opset);
  return later == known->second.begin() ? nullptr : std::prev(later)->second;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> list;
  for (const auto& [name, versions] : operators_) list.push_back(name);
  return list;
}

const Registry& registry() {
  static const Registry all = [] {
    Registry operators;
    for (const auto add :
         {add_activations, add_attention, add_comparisons, add_control, add_convolutions, add_creation,
          add_elementwise, add_images, add_indexing, add_layout, add_losses, add_normalization, add_pooling,
          add_products, add_quantized, add_random, add_recurrent, add_reductions, add_signals})
      add(operators);
    return operators;
  }();
  return all;
}

}  // namespace espalier::onnx
