#include <algorithm>
#include <cmath>

#include "espalier/executor/fused/codegen/fused_writer.h"

namespace espalier::fused {

namespace {

std::string functor_of(Fold fold) {
  switch (fold) {
    case Fold::max: return "scalar::Maximum";
    case Fold::min: return "scalar::Minimum";
    default: return "scalar::Add";
  }
}
std::string identity_of(Fold fold, DType dtype) {
  switch (fold) {
    case Fold::max: return literal(-INFINITY, dtype);
    case Fold::min: return literal(INFINITY, dtype);
    default: return literal(0, dtype);
  }
}

}  // namespace

void FusedWriter::each_piece() {
  if (form_.pieces > 1) line("#pragma unroll");
  line("for (int j = 0; j < {}; ++j) {{", form_.pieces);
}

void FusedWriter::each_element() {
  if (form_.pack > 1) line("#pragma unroll");
  line("for (int k = 0; k < {}; ++k) {{", form_.pack);
}

std::string FusedWriter::ref(uint32_t id) const {
  const Value& v = value(id);
  if (v.kind == Value::Kind::constant) return v.text;
  if (v.kind == Value::Kind::load) {
    if (v.extent != Extent::full) return fmt::format("x{}", id);
    return fmt::format("x{}{}", id, hoisted_[id] ? column_index() : "[j][k]");
  }
  if (v.extent == Extent::full && schedule_.held[id] && schedule_.phase[id] != phase_)
    return fmt::format("h{}[j][k]", id);
  return fmt::format("v{}", id);
}

std::string FusedWriter::call(uint32_t id) const {
  std::string text = value(id).text + "()(";
  for (size_t k = 0; k < value(id).arguments.size(); ++k)
    text += (k ? ", " : "") + ref(value(id).arguments[k]);
  return fmt::format("const {0} v{1} = static_cast<{0}>({2}));", type(id), id, text);
}

void FusedWriter::write_begin() {
  if (group_) {
    line("const Block block = arguments.blocks[blockIdx.x];");
    line("const Member a = arguments.members[block.member];");
  } else {
    line("const Arguments& a = arguments;");
  }
  if (flat()) {
    line("const Index columns = static_cast<Index>(a.columns), t = threadIdx.x;");
  } else {
    line("const Index rows = static_cast<Index>(a.rows);");
    line("const Index t = threadIdx.x % {0}, group = threadIdx.x / {0};", form_.across);
    if (tiled() || !columns_.empty()) line("const Index tile = blockIdx.x % {};", form_.tiles);
    if (tiled() || !columns_.empty()) line("const unsigned int chunk = blockIdx.x / {};", form_.tiles);
    if (tiled()) line("const Index c = tile * {} + t * {};", form_.tile(), form_.pack);
  }
  for (uint32_t i = 0; i < values_.all.size(); ++i) {
    if (value(i).extent != Extent::uniform || value(i).is_final()) continue;
    if (value(i).kind == Value::Kind::load)
      line("const {0} x{1} = static_cast<{0}>(*a.i{2});", type(i), i, value(i).input);
    if (value(i).kind == Value::Kind::map) line("{}", call(i));
  }
  if (source_.counts_reads) {
    line("__syncthreads();");
    line("const bool read_last = threadIdx.x == 0 && comes_last(a.counters + 1, block.count);");
  }
  for (const uint32_t c : columns_) line("{} sum{}{} = {{}};", type(c), c, column_dims());
  for (const uint32_t c : totals_) line("double total{} = 0;", c);
  const bool any = std::find(hoisted_.begin(), hoisted_.end(), true) != hoisted_.end();
  if (!any) return;
  for (uint32_t i = 0; i < values_.all.size(); ++i)
    if (hoisted_[i]) line("{} x{}{};", type(i), i, column_dims());
  if (tiled()) {
    line("const bool inside = {};", columns_exact() ? "true" : fmt::format("c < {}", form_.columns));
    for (uint32_t i = 0; i < values_.all.size(); ++i)
      if (hoisted_[i]) load(i, "");
  } else {
    each_piece();
    line("const Index c = (j * {} + t) * {};", form_.across, form_.pack);
    line("const bool inside = {};", columns_exact() ? "true" : fmt::format("c < {}", form_.columns));
    for (uint32_t i = 0; i < values_.all.size(); ++i)
      if (hoisted_[i]) load(i, "[j]");
    line("}}");
  }
}

bool FusedWriter::columns_exact() const {
  return form_.columns % (form_.across * form_.pack * (tiled() ? 1 : form_.pieces)) == 0;
}

void FusedWriter::write_loop() {
  if (flat()) {
    if (group_) {
      line("for (Index tile = block.begin; tile < block.end; ++tile) {{");
    } else {
      line("const Index tiles = (columns + {}) / {};", form_.tile() - 1, form_.tile());
      line("for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{");
    }
  } else if (tiled()) {
    line("const unsigned int chunks = gridDim.x / {};", form_.tiles);
    line(
        "for (Index first = static_cast<Index>(chunk) * {0}; first < rows; first += "
        "static_cast<Index>(chunks) * {0}) {{",
        form_.block_rows());
  } else {
    line(
        "for (Index first = static_cast<Index>(blockIdx.x) * {0}; first < rows; first += "
        "static_cast<Index>(gridDim.x) * {0}) {{",
        form_.groups);
    line("const Index r = first + group;");
    line("const bool valid = r < rows;");
    load_rows();
    // A single fold has no other barrier between it and that of the next row.
    if (by_blocks() && fold_phases() == 1) line("__syncthreads();");
  }
  for (phase_ = 0; phase_ < schedule_.phases; ++phase_) write_phase();
  store_rows();
  line("}}");
}

size_t FusedWriter::fold_phases() const {
  size_t n = 0;
  for (uint32_t p = 0; p < schedule_.phases; ++p) n += !folds_of(p).empty();
  return n;
}

std::vector<uint32_t> FusedWriter::folds_of(uint32_t phase) const {
  std::vector<uint32_t> folds;
  for (uint32_t i = 0; i < values_.all.size(); ++i)
    if (value(i).kind == Value::Kind::fold_row && schedule_.ready[i] == phase) folds.push_back(i);
  return folds;
}

std::vector<bool> FusedWriter::needed() const {
  std::vector<bool> needed(values_.all.size(), false);
  const auto ask = [&](uint32_t id) { needed[id] = needed[id] || is_full(id); };
  for (uint32_t i = 0; i < values_.all.size(); ++i) {
    const Value& v = value(i);
    if ((v.kind == Value::Kind::fold_row || v.is_final()) && schedule_.ready[i] == phase_)
      ask(v.arguments[0]);
    if (schedule_.held[i] && schedule_.phase[i] == phase_) ask(i);
  }
  for (size_t o = 0; o < values_.results.size(); ++o)
    if (schedule_.stored[o] == phase_) ask(values_.results[o]);
  for (uint32_t i = static_cast<uint32_t>(values_.all.size()); i-- > 0;) {
    if (!needed[i]) continue;
    if (schedule_.held[i] && schedule_.phase[i] < phase_) {
      needed[i] = false;
      continue;
    }
    for (const uint32_t a : value(i).arguments) ask(a);
  }
  return needed;
}

void FusedWriter::write_phase() {
  for (uint32_t i = 0; i < values_.all.size(); ++i)
    if (value(i).kind == Value::Kind::map && value(i).extent == Extent::row && schedule_.ready[i] == phase_)
      line("{}", call(i));
  const std::vector<uint32_t> folds = folds_of(phase_);
  const std::vector<bool> now = needed();
  std::vector<uint32_t> finals, stores;
  for (uint32_t i = 0; i < values_.all.size(); ++i)
    if (value(i).is_final() && schedule_.ready[i] == phase_) finals.push_back(i);
  for (uint32_t o = 0; o < values_.results.size(); ++o)
    if (is_full(values_.results[o]) && schedule_.stored[o] == phase_) stores.push_back(o);
  if (folds.empty() && finals.empty() && stores.empty() &&
      std::find(now.begin(), now.end(), true) == now.end())
    return;
  for (const uint32_t f : folds) line("{} f{} = {};", type(f), f, identity_of(value(f).fold, value(f).dtype));
  for (uint32_t i = 0; i < values_.all.size(); ++i)
    if (now[i] && schedule_.held[i] && !hoisted_[i])
      line("{} {}{}{};", type(i), value(i).kind == Value::Kind::load ? "x" : "h", i, dims());
  line("{{");
  write_loads(now);
  for (const uint32_t f : finals)
    if (value(f).kind == Value::Kind::fold_all) line("{} part{} = 0;", type(f), f);
  each_piece();
  place_piece();
  for (const uint32_t o : stores) line("{} y{}[{}];", type(values_.results[o]), o, form_.pack);
  each_element();
  for (uint32_t i = 0; i < values_.all.size(); ++i) {
    if (!now[i] || value(i).kind != Value::Kind::map) continue;
    line("{}", call(i));
    if (schedule_.held[i]) line("h{0}[j][k] = v{0};", i);
  }
  for (const uint32_t f : folds)
    line("if ({}) f{} = {}()(f{}, {});", inside(), f, functor_of(value(f).fold), f,
         ref(value(f).arguments[0]));
  for (const uint32_t f : finals) {
    const std::string to = value(f).kind == Value::Kind::fold_all ? fmt::format("part{}", f)
                                                                  : fmt::format("sum{}{}", f, column_index());
    line("if ({0}) {1} = scalar::Add()({1}, {2});", inside(), to, ref(value(f).arguments[0]));
  }
  for (const uint32_t o : stores) line("y{}[k] = {};", o, ref(values_.results[o]));
  line("}}");
  for (const uint32_t o : stores) store(o);
  line("}}");
  for (const uint32_t f : finals)
    if (value(f).kind == Value::Kind::fold_all) line("total{0} += static_cast<double>(part{0});", f);
  line("}}");
  fold_groups(folds);
}

void FusedWriter::fold_groups(const std::vector<uint32_t>& folds) {
  if (folds.empty()) return;
  const int64_t warps = form_.across / 32;
  if (by_blocks()) {
    for (const uint32_t f : folds) line("__shared__ {} parts{}[{}];", type(f), f, warps);
    for (const uint32_t f : folds) line("f{0} = fold_lanes<{1}, 32>(f{0});", f, functor_of(value(f).fold));
    line("if (threadIdx.x % 32 == 0) {{");
    for (const uint32_t f : folds) line("parts{0}[threadIdx.x / 32] = f{0};", f);
    line("}}");
    line("__syncthreads();");
  }
  for (const uint32_t f : folds) {
    const std::string functor = functor_of(value(f).fold);
    const std::string all = by_blocks() ? fmt::format("fold_parts<{}, {}>(parts{})", functor, warps, f)
                                        : fmt::format("fold_lanes<{}, {}>(f{})", functor, form_.across, f);
    const std::string count =
        value(f).fold == Fold::mean ? fmt::format(" / static_cast<{}>({})", type(f), form_.columns) : "";
    line("const {} v{} = {}{};", type(f), f, all, count);
  }
}

}  // namespace espalier::fused
