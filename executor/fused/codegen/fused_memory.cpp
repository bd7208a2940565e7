#include "espalier/executor/fused/codegen/fused_writer.h"

namespace espalier::fused {

void FusedWriter::place_piece() {
  if (flat()) {
    line("const Index c = tile * {} + (j * {} + t) * {};", form_.tile(), form_.across, form_.pack);
    line("const int count = c >= columns ? 0 : columns - c < {0} ? static_cast<int>(columns - c) : {0};",
         form_.pack);
  } else if (tiled()) {
    line("const Index r = first + (j * {} + group);", form_.groups);
    line("const bool inside = r < rows{};", columns_exact() ? "" : fmt::format(" && c < {}", form_.columns));
  } else {
    line("const Index c = (j * {} + t) * {};", form_.across, form_.pack);
    line("const bool inside = valid{};", columns_exact() ? "" : fmt::format(" && c < {}", form_.columns));
  }
}

void FusedWriter::load_rows() {
  for (uint32_t i = 0; i < values_.all.size(); ++i) {
    const Value& v = value(i);
    if (v.kind != Value::Kind::load || v.extent != Extent::row) continue;
    line("{} x{};", type(i), i);
    line("load_one(x{}, a.i{} + ({}), valid);", i, v.input, offset_text(terms_of(v.layout), "r"));
  }
}

void FusedWriter::load(uint32_t id, std::string_view at) {
  const Value& v = value(id);
  const Access& a = v.access;
  const auto offset = [&](const std::string& plus) {
    if (!a.divided) return offset_text(a.element, fmt::format("({}{})", element(), plus));
    const std::string column = offset_text(a.column, plus.empty() ? "c" : fmt::format("(c{})", plus));
    if (a.row.empty()) return column;
    return offset_text(a.row, "r") + (a.column.empty() ? "" : " + " + column);
  };
  const std::string_view here = flat() ? "count" : "inside";
  switch (a.reading) {
    case Reading::all:
      line("load_{}(x{}{}, a.i{} + ({}), {});", flat() ? "some" : "all", id, at, v.input, offset(""), here);
      return;
    case Reading::same:
      line("load_same(x{}{}, a.i{} + ({}), {});", id, at, v.input, offset(""), flat() ? "count > 0" : here);
      return;
    case Reading::each: break;
  }
  if (form_.pack > 1) line("#pragma unroll");
  line("for (int k = 0; k < {}; ++k) load_one(x{}{}[k], a.i{} + ({}), {});", form_.pack, id, at, v.input,
       offset(" + k"), inside());
}

void FusedWriter::write_loads(const std::vector<bool>& now) {
  std::vector<uint32_t> loads;
  for (uint32_t i = 0; i < values_.all.size(); ++i)
    if (now[i] && value(i).kind == Value::Kind::load && !hoisted_[i]) loads.push_back(i);
  if (loads.empty()) return;
  for (const uint32_t i : loads)
    if (!schedule_.held[i]) line("{} x{}{};", type(i), i, dims());
  each_piece();
  place_piece();
  for (const uint32_t i : loads) load(i, "[j]");
  line("}}");
}

void FusedWriter::store(uint32_t o) {
  const FusedTensor& tensor = tensors_.outputs[o];
  const int64_t aligned = tensor.alignment / static_cast<int64_t>(size_of(tensor.dtype));
  if (aligned % form_.pack == 0)
    line("store_{}(a.o{} + ({}), y{}, {});", flat() ? "some" : "all", o, element(), o,
         flat() ? "count" : "inside");
  else
    line("store_each(a.o{} + ({}), y{}, {});", o, element(), o,
         flat() ? "count" : fmt::format("inside ? {} : 0", form_.pack));
}

void FusedWriter::store_rows() {
  if (!whole()) return;
  std::vector<uint32_t> rows;
  for (uint32_t o = 0; o < values_.results.size(); ++o)
    if (value(values_.results[o]).extent == Extent::row) rows.push_back(o);
  if (rows.empty()) return;
  // All threads of the row must have read an input before an output overwrites it.
  if (tensors_.in_place) line("{};", by_blocks() ? "__syncthreads()" : "__syncwarp()");
  line("if (t == 0 && valid) {{");
  for (const uint32_t o : rows)
    line("a.o{}[r] = static_cast<{}>({});", o, stored_type(tensors_.outputs[o].dtype),
         ref(values_.results[o]));
  line("}}");
}

}  // namespace espalier::fused
