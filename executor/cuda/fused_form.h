// The form of a generated kernel: how its threads and blocks share the domain, and in which of its phases
// each value is computed.
#pragma once
#include "espalier/executor/cuda/fused_values.h"

namespace espalier::fused {

enum class FormKind : uint8_t {
  flat,   ///< one row of any length: blocks take tiles of it
  tiled,  ///< rows of a known length: a block keeps its columns and walks over rows
  rows,   ///< rows folded by the threads of a warp or a block, which hold all of a row
};

struct Form {
  FormKind kind = FormKind::flat;
  int64_t rows = 1, columns = 0;  ///< of the domain
  int64_t pack = 1;               ///< elements that a thread computes side by side
  int64_t pieces = 1;             ///< packs of a thread: further on in the row, or `tiled`, in rows below
  int64_t across = 256;           ///< threads side by side
  int64_t groups = 1;             ///< so many of them, one below the other, make a block
  int64_t positions = 1;          ///< `rows`: so many rows make one of `width`
  int64_t width = 0;              ///< columns of what is folded over rows
  int64_t tiles = 1;              ///< blocks side by side; 0 if that is known at run time alone
  bool wide = false;              ///< numbers of elements need 64 bits

  int64_t threads() const { return across * groups; }
  /// Columns of a tile.
  int64_t tile() const {
    return kind == FormKind::rows ? columns * (positions > 1 ? groups : 1)
                                  : across * pack * (kind == FormKind::flat ? pieces : 1);
  }
  /// Rows that a block computes at once.
  int64_t block_rows() const { return groups * (kind == FormKind::tiled ? pieces : 1); }
};

/// `group`: the form must not depend on how many elements there are.
Form choose_form(const Program& program, const FusedTensors& tensors, const Values& values, bool group);

/// A row is walked once for each phase: what is folded in one phase is known in the next.
struct Schedule {
  static constexpr uint32_t never = UINT32_MAX;
  uint32_t phases = 1;
  std::vector<uint32_t> ready;   ///< of each value: the first phase in which it can be known
  std::vector<uint32_t> phase;   ///< in which it is computed; `never` if nobody asks for it
  std::vector<bool> held;        ///< kept for a later phase
  std::vector<uint32_t> stored;  ///< of each output of full level
  bool holds = true;             ///< false: too much to keep, so phases compute it anew
};
Schedule schedule(const Form& form, const Values& values, bool in_place);

}  // namespace espalier::fused
