// LayerTrace: which layers were called, in which order, and what they have made.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/scoped_value.h"
#include "espalier/core/variable.h"

namespace espalier::nn {

class LayerState;

/// While one lives, it notes the calls of layers in this thread. The innermost one hears of them.
class LayerTrace {
 public:
  struct Call {
    const LayerState* layer;
    uint64_t first_node;    ///< ids of the nodes that it made are larger
    Variable output = {};   ///< undefined while it lasts, and if it threw
    bool contains = false;  ///< whether it has called other layers
  };

  LayerTrace();

  /// In the order in which they began.
  const std::vector<Call>& calls() const { return calls_; }

  /// For LayerState: null if none lives in this thread.
  static LayerTrace* current();
  size_t begin(const LayerState& layer);
  void end(size_t call, const Variable& output);

 private:
  std::vector<Call> calls_;
  ScopedValue<LayerTrace*> scope_;
};

}  // namespace espalier::nn
