// The values of a generated kernel: constants, loads, functions of single elements, and folds.
#pragma once
#include "espalier/executor/fused/codegen/fused_access.h"
#include "espalier/executor/fused/codegen/fused_source.h"

namespace espalier::fused {

struct Value {
  enum class Kind : uint8_t { constant, load, map, fold_row, fold_column, fold_all };
  Kind kind;
  Extent extent;
  DType dtype;
  std::string text = {};  ///< of a constant, or the functor of a map
  std::vector<uint32_t> arguments = {};
  Fold fold = Fold::sum;
  int64_t period = 0;  ///< of fold_column
  uint32_t input = 0;  ///< of a load
  Layout layout = {};  ///< of a load, over the domain or its rows
  Access access = {};  ///< of a load of a full value, once the form is chosen

  bool is_final() const { return kind == Kind::fold_column || kind == Kind::fold_all; }
};

struct Values {
  std::vector<Value> all;         ///< each after its arguments
  std::vector<uint32_t> results;  ///< of each output of the program
};

/// Equal loads become one. Throws UnsupportedError for an op without a device function.
Values lower_to_values(const Program& program, const FusedTensors& tensors);

/// "float": the types of a dtype's elements in memory, and in computations.
std::string_view stored_type(DType dtype);
DType computed_dtype(DType dtype);
std::string_view computed_type(DType dtype);
/// A number, converted as scalar::Cast does, exactly.
std::string literal(double value, DType dtype);

}  // namespace espalier::fused
