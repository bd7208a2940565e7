// The form of a generated kernel: how threads and blocks divide the domain, and in which phase each value is
// computed.
#pragma once
#include "espalier/executor/fused/codegen/fused_values.h"

namespace espalier::fused {

enum class FormKind : uint8_t {
  flat,   ///< one row of any length, divided into tiles for blocks
  tiled,  ///< rows of a known length: a block keeps its columns and iterates over rows
  rows,   ///< rows folded by the threads of a warp or a block, which hold a whole row
};

struct Form {
  FormKind kind = FormKind::flat;
  int64_t rows = 1, columns = 0;  ///< of the domain
  int64_t pack = 1;               ///< adjacent elements of a thread
  int64_t pieces = 1;             ///< packs of a thread: along the row, or if `tiled`, down the rows
  int64_t across = 256;           ///< threads along a row
  int64_t groups = 1;             ///< such rows of threads in a block
  int64_t positions = 1;          ///< `rows`: rows in a period of `width`
  int64_t width = 0;              ///< columns of the folds over rows
  int64_t tiles = 1;              ///< blocks along a row; 0 if known only at run time
  bool wide = false;              ///< indices need 64 bits

  int64_t threads() const { return across * groups; }
  /// Columns of a tile.
  int64_t tile() const {
    return kind == FormKind::rows ? columns * (positions > 1 ? groups : 1)
                                  : across * pack * (kind == FormKind::flat ? pieces : 1);
  }
  /// Rows that a block computes at once.
  int64_t block_rows() const { return groups * (kind == FormKind::tiled ? pieces : 1); }
};

/// The form of a `group` does not depend on the number of elements.
Form choose_form(const Program& program, const FusedTensors& tensors, const Values& values, bool group);

/// Each phase is one pass over a row; the next phase can read the results of its folds.
struct Schedule {
  static constexpr uint32_t never = UINT32_MAX;
  uint32_t phases = 1;
  std::vector<uint32_t> ready;   ///< of each value: the first phase that can compute it
  std::vector<uint32_t> phase;   ///< the phase that computes it; `never` if it is unused
  std::vector<bool> held;        ///< kept in registers for a later phase
  std::vector<uint32_t> stored;  ///< of each output of full extent: the phase that stores it
  bool holds = true;             ///< false if registers do not suffice: phases compute values anew
};
Schedule schedule(const Form& form, const Values& values, bool in_place);

}  // namespace espalier::fused
