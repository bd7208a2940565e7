// Program: what a fused node computes. Several ops over one domain of elements, run tile by tile, so that
// intermediate values never reach memory. It is independent of devices: each backend runs it in its own way.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "espalier/core/op.h"

namespace espalier {

/// How many elements a value has. The domain is seen as rows: `full` values have an element for each of its
/// elements, `row` values one for each row, and `uniform` values one in all.
enum class Extent : uint8_t { uniform, row, full };

struct Argument {
  enum class From : uint8_t { input, value, constant } from = From::input;
  uint32_t index = 0;  ///< an input of the node, an earlier instruction, or a constant
  Extent extent = Extent::full;
  friend bool operator==(const Argument&, const Argument&) = default;
};

struct Instruction {
  enum class Kind : uint8_t {
    map,          ///< element by element
    whole_row,    ///< each row as a whole
    fold_row,     ///< each row to one element
    fold_column,  ///< all rows (of `period` elements) to one; an output only
    fold_all,     ///< the domain to one element; an output only
  } kind = Kind::map;
  Extent extent = Extent::full;  ///< of the result
  OpPtr op;
  RowFunction function = {};
  UnaryRow whole_row = nullptr;
  Fold fold = Fold::sum;
  int64_t period = 0;
  DType dtype = DType::float32;
  Shape shape;  ///< to which operands are broadcast
  std::vector<Argument> arguments;
};

struct Program {
  struct Constant {
    double value;
    DType dtype;
    /// -0 is not 0.
    friend bool operator==(const Constant& a, const Constant& b) {
      return a.value == b.value && std::signbit(a.value) == std::signbit(b.value) && a.dtype == b.dtype;
    }
  };
  int64_t elements = 0;  ///< of the domain
  int64_t row = 0;       ///< elements in a row; 0 where there are no rows
  std::vector<Constant> constants;
  std::vector<Instruction> instructions;
  std::vector<uint32_t> outputs;  ///< instructions whose values are outputs of the node

  bool is_output(uint32_t instruction) const;
  /// One for each element that an instruction computes, or folds.
  double flops() const;
  /// "v0 = multiply(i0, i1); v1 = tanh(v0) -> v1"
  std::string str() const;
};

}  // namespace espalier
