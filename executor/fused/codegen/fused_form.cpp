#include "espalier/executor/fused/codegen/fused_form.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace espalier::fused {

namespace {

constexpr int64_t block_threads = 256;
constexpr int64_t shortest_tiled_row = 64;
constexpr int64_t bytes_in_flight = 64;    // of each thread, to hide latency
constexpr int64_t small_domain = 1 << 20;  // elements; smaller tiles then keep more blocks busy
constexpr int64_t held_by_thread = 320;    // bytes
constexpr int64_t held_by_block = 160 << 10;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_of_two(int64_t at_least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(at_least)));
}

bool is_full_load(const Value& v) { return v.kind == Value::Kind::load && v.extent == Extent::full; }

/// The row length for which loads and folds over rows have simple addresses; 0 if there is none.
int64_t tiled_row(const Values& values, int64_t pack) {
  int64_t folded = 0, shortest = 0;
  for (const Value& v : values.all) {
    if (v.kind == Value::Kind::fold_column) folded = std::lcm(std::max<int64_t>(folded, 1), v.period);
    if (!is_full_load(v) || v.layout.shape.rank() < 2) continue;
    const int64_t size = v.layout.shape[-1];
    if (size >= shortest_tiled_row && size % pack == 0 && (!shortest || size < shortest)) shortest = size;
  }
  return folded ? folded : shortest;
}

void divide_rows(Form& form) {
  const int64_t packs = divide_up(form.columns, form.pack);
  // A thread's elements must fit its registers; one warp takes the row where that suffices.
  const int64_t warp_pieces = 16 / form.pack, block_pieces = 8 / form.pack;
  if (packs <= 32)
    form.across = power_of_two(packs);
  else if (packs <= 32 * warp_pieces)
    form.across = 32;
  else
    form.across = std::min<int64_t>(1024, divide_up(divide_up(packs, block_pieces), 32) * 32);
  form.groups = form.across <= 32 ? block_threads / form.across : 1;
  if (form.positions > 1) {  // a thread keeps its position in the period
    form.groups = std::min(form.groups, form.positions & -form.positions);
    form.across = std::max(form.across, 32 / form.groups);
  }
  form.pieces = divide_up(packs, form.across);
  form.tiles = form.positions > 1 ? form.positions / form.groups : 1;
}

void divide_tiles(Form& form, const Values& values, bool folds) {
  bool transposed = false;
  for (const Value& v : values.all)
    if (is_full_load(v) && v.layout.shape.rank() > 1)
      transposed |= v.layout.strides.back() != 0 && v.layout.strides.back() != 1;
  const int64_t most = folds || transposed ? 32 : block_threads;
  form.across = std::min(most, power_of_two(divide_up(form.columns, form.pack)));
  form.groups = block_threads / form.across;
  form.tiles = divide_up(form.columns, form.across * form.pack);
}

/// Whether offsets need more than 32 bits: in an input, or in the domain and a tile beyond it.
bool needs_wide(const Program& program, const Values& values) {
  constexpr int64_t most = int64_t{1} << 31;
  if (program.elements >= most) return true;
  for (const Value& v : values.all) {
    int64_t offset = 0;
    for (size_t i = 0; i < v.layout.shape.rank(); ++i) {
      if (v.layout.strides[i] < 0) return true;
      offset += (v.layout.shape.dims()[i] - 1) * v.layout.strides[i];
    }
    if (offset >= most) return true;
  }
  return false;
}

}  // namespace

Form choose_form(const Program& program, const FusedTensors& tensors, const Values& values, bool group) {
  size_t largest = 1;
  int64_t loads = 0;
  for (const Value& v : values.all) {
    if (!is_full_load(v)) continue;
    largest = std::max(largest, size_of(v.dtype));
    ++loads;
  }
  for (size_t o = 0; o < values.results.size(); ++o)
    if (values.all[values.results[o]].extent == Extent::full)
      largest = std::max(largest, size_of(tensors.outputs[o].dtype));
  Form form;
  form.pack = std::min<int64_t>(8, 16 / static_cast<int64_t>(largest));
  form.wide = needs_wide(program, values);
  const int64_t tiled = program.row ? 0 : tiled_row(values, form.pack);
  form.columns = program.row ? program.row : tiled ? tiled : program.elements;
  form.rows = program.elements / std::max<int64_t>(form.columns, 1);
  form.kind = program.row ? FormKind::rows : tiled ? FormKind::tiled : FormKind::flat;
  if (form.kind != FormKind::flat)
    while (form.columns % form.pack != 0) form.pack /= 2;
  bool folds = false;
  form.width = form.columns;
  for (const Value& v : values.all)
    if (v.kind == Value::Kind::fold_column) {
      folds = true;
      form.width = std::lcm(form.width, v.period);
    }
  form.positions = form.kind == FormKind::rows ? form.width / form.columns : 1;
  if (form.kind == FormKind::rows) {
    divide_rows(form);
    return form;
  }
  if (form.kind == FormKind::tiled)
    divide_tiles(form, values, folds);
  else
    form.tiles = 0;
  const int64_t asked = form.pack * static_cast<int64_t>(largest) * std::max<int64_t>(loads, 1);
  if (program.elements > small_domain || folds || group)
    form.pieces = std::clamp<int64_t>(bytes_in_flight / asked, 1, 4);
  return form;
}

Schedule schedule(const Form& form, const Values& values, bool in_place) {
  const std::vector<Value>& all = values.all;
  Schedule s;
  s.ready.assign(all.size(), 0);
  s.phase.assign(all.size(), Schedule::never);
  s.held.assign(all.size(), false);
  const auto known = [&](uint32_t id) {
    return s.ready[id] + (all[id].kind == Value::Kind::fold_row ? 1 : 0);
  };
  uint32_t last = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    for (const uint32_t a : all[i].arguments) s.ready[i] = std::max(s.ready[i], known(a));
    last = std::max(last, s.ready[i]);
  }
  for (const uint32_t result : values.results)
    if (all[result].extent == Extent::full) last = std::max(last, known(result));
  s.phases = last + 1;

  // Values are computed as late as possible, so that fewer are held for later phases.
  std::vector<uint32_t> last_use(all.size(), 0);
  const auto use = [&](uint32_t id, uint32_t phase) {
    s.phase[id] = std::min(s.phase[id], phase);
    last_use[id] = std::max(last_use[id], phase);
  };
  for (const uint32_t result : values.results) {
    // An output over an input is stored after the last read.
    s.stored.push_back(in_place ? last : known(result));
    if (all[result].extent == Extent::full) use(result, s.stored.back());
  }
  for (uint32_t i = static_cast<uint32_t>(all.size()); i-- > 0;) {
    const bool element = all[i].extent == Extent::full;
    if (!element) s.phase[i] = s.ready[i];
    if (s.phase[i] == Schedule::never) continue;
    for (const uint32_t a : all[i].arguments) use(a, s.phase[i]);
  }
  int64_t bytes = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (all[i].extent != Extent::full || s.phase[i] == Schedule::never) continue;
    s.held[i] = last_use[i] > s.phase[i];
    if (s.held[i]) bytes += form.pack * form.pieces * static_cast<int64_t>(size_of(all[i].dtype));
  }
  s.holds = bytes <= held_by_thread && bytes * form.threads() <= held_by_block;
  if (!s.holds) s.held.assign(all.size(), false);
  return s;
}

}  // namespace espalier::fused
