// Columns of feeds as inputs of a file whose batch may have any size.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::onnx {

/// The axes of `x` that have other sizes in batches of other numbers of rows.
std::set<size_t> axes_of_batch(const Variable& x);

/// Placeholders that stand for Variables while a tree is written: their axes of the batch are open, so that
/// no number of rows becomes a part of the tree.
class StandIns {
 public:
  /// What stands for `x`, of which these axes are open.
  Variable add(const std::string& name, const Variable& x, const std::set<size_t>& open);
  /// These Variables, written again with what was stood for. Throws UnsupportedError for a tree in which the
  /// size of an open axis is a number.
  std::vector<Variable> replaced(const std::vector<Variable>& roots) const;

 private:
  std::vector<std::pair<Variable, Variable>> pairs_;
};

}  // namespace espalier::onnx
