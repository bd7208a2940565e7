// Where the steps of a tile keep their values: in outputs, or in registers that share a thread's scratch.
#include <algorithm>

#include "espalier/executor/fused/tile_lowering.h"

namespace espalier {

namespace {

constexpr int64_t large_output = int64_t{32} << 20;  // bytes

bool overlaps(const Tensor& a, const Tensor& b) {
  const auto* x = static_cast<const char*>(a.address());
  const auto* y = static_cast<const char*>(b.address());
  return a.storage().get() == b.storage().get() && x < y + b.bytes() && y < x + a.bytes();
}

}  // namespace

/// Whether computing the value in its output would destroy an input that is read later.
bool TileLowering::is_overwritten_early(size_t output) const {
  const uint32_t index = program_.outputs[output];
  const Instruction& n = program_.instructions[index];
  const auto reads = [&](const char* base) {
    return std::any_of(inputs_.begin(), inputs_.end(), [&](const Tensor* input) {
      return base == input->address() && overlaps(*input, *tiles_.outputs[output]);
    });
  };
  // A loop over elements reads each before it writes it; one over whole rows may read them again.
  const bool rereads = n.kind == Instruction::Kind::whole_row && !n.op->can_write_over(0, 0);
  const int64_t written = registers_[static_cast<size_t>(values_[index].vreg)].first;
  for (auto s = static_cast<size_t>(written + !rereads); s < tiles_.steps.size(); ++s) {
    const TileStep& step = tiles_.steps[s];
    if (step.kind == TileStep::Kind::gather && reads(tiles_.gathers[step.index].base)) return true;
    for (const TileLocation& l : step.in)
      if (l.base && l.vreg < 0 && reads(l.base)) return true;
  }
  return false;
}

/// Values that are outputs are computed in place, unless an input is read from there later.
void TileLowering::write_outputs() {
  for (size_t o = 0; o < program_.outputs.size(); ++o) {
    const uint32_t index = program_.outputs[o];
    const Instruction& n = program_.instructions[index];
    if (n.extent == Extent::uniform && n.kind == Instruction::Kind::map)
      tiles_.uniform_outputs.emplace_back(o, program_.constants.size() + index);
    const int32_t vreg = values_[index].vreg;
    if (vreg < 0) continue;  // uniform, or a fold over the domain
    if (tables_) {
      put(o);
      continue;
    }
    const auto bytes = static_cast<int64_t>(size_of(n.dtype));
    TileLocation memory;
    memory.base = static_cast<char*>(tiles_.outputs[o]->address());
    memory.row_stride = n.extent == Extent::row ? bytes : tiles_.columns * bytes;
    memory.column_stride = n.extent == Extent::row ? 0 : bytes;
    const bool is_elsewhere = values_[index].base != nullptr;  // in an earlier output
    // Large results bypass the caches, which would first fetch the old content.
    const bool streams =
        static_cast<int64_t>(tiles_.outputs[o]->bytes()) >= large_output && n.extent == Extent::full &&
        std::none_of(inputs_.begin(), inputs_.end(),
                     [&](const Tensor* input) { return overlaps(*input, *tiles_.outputs[o]); });
    const bool repeated =
        std::find(program_.outputs.begin(), program_.outputs.begin() + static_cast<std::ptrdiff_t>(o),
                  index) != program_.outputs.begin() + static_cast<std::ptrdiff_t>(o);
    if (streams || is_elsewhere || repeated || is_overwritten_early(o)) {
      TileStep copy{.kind = streams ? TileStep::Kind::stream : TileStep::Kind::copy,
                    .extent = n.extent,
                    .bytes = static_cast<uint32_t>(bytes)};
      copy.in[0] = values_[index];
      copy.out = memory;
      emit(std::move(copy));
      continue;
    }
    // The register becomes the output's own memory.
    const auto move = [&](TileLocation& l) {
      if (l.vreg != vreg) return;
      l.base = memory.base;
      l.row_stride = memory.row_stride;
      l.column_stride = memory.column_stride;
    };
    for (TileStep& step : tiles_.steps) {
      for (TileLocation& l : step.in) move(l);
      move(step.out);
    }
    registers_[static_cast<size_t>(vreg)].bytes = 0;
    move(values_[index]);
  }
}

/// Registers that are not live at the same time share memory. `end` becomes the bytes of all.
std::vector<size_t> TileLowering::register_offsets(size_t& end) const {
  struct Cell {
    size_t bytes, offset;
    Extent extent;
    int64_t free_from;
  };
  std::vector<Cell> cells;
  std::vector<size_t> offsets(registers_.size(), 0);
  std::vector<size_t> order;
  for (size_t r = 0; r < registers_.size(); ++r)
    if (registers_[r].bytes && registers_[r].last >= 0) order.push_back(r);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return registers_[a].first < registers_[b].first; });
  for (const size_t r : order) {
    const Register& reg = registers_[r];
    const TileStep& maker = tiles_.steps[static_cast<size_t>(reg.first)];
    // A loop over elements may write over what it reads last.
    const bool over = maker.kind == TileStep::Kind::unary || maker.kind == TileStep::Kind::binary ||
                      maker.kind == TileStep::Kind::ternary;
    auto cell = std::find_if(cells.begin(), cells.end(), [&](const Cell& c) {
      return c.bytes == reg.bytes && c.extent == reg.extent && c.free_from + (over ? 0 : 1) <= reg.first;
    });
    if (cell == cells.end()) {
      const int64_t count =
          reg.extent == Extent::row ? tiles_.tile_rows : tiles_.tile_rows * tiles_.tile_columns;
      cell = cells.insert(cell, {reg.bytes, end, reg.extent, 0});
      end += static_cast<size_t>(aligned_bytes(static_cast<int64_t>(reg.bytes) * count));
    }
    cell->free_from = reg.last;
    offsets[r] = cell->offset;
  }
  return offsets;
}

void TileLowering::place_registers() {
  size_t end = 0;
  const std::vector<size_t> offsets = register_offsets(end);
  const auto place = [&](TileLocation& l) {
    if (l.vreg >= 0) l.offset = offsets[static_cast<size_t>(l.vreg)];
  };
  tiles_.totals_begin = end;
  for (TileStep& step : tiles_.steps) {
    for (TileLocation& l : step.in) place(l);
    place(step.out);
    if (step.kind != TileStep::Kind::fold_column && step.kind != TileStep::Kind::fold_all) continue;
    TileTotal& total = tiles_.totals[step.index];
    total.offset = step.out.offset = end;
    end += static_cast<size_t>(aligned_bytes(static_cast<int64_t>(total.scratch_bytes())));
  }
  tiles_.scratch_bytes = end;
}

}  // namespace espalier
