#include "espalier/executor/cuda/fused_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/executor/cuda/fused_form.h"

namespace espalier {

/// core/half.h, core/scalar.h and fused_device.cuh.
extern const char* const fused_prelude;

namespace {

using namespace fused;

constexpr int64_t hoisted_by_thread = 64;  // bytes

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

class Writer {
 public:
  Writer(const Program& program, const FusedTensors& tensors, bool group)
      : program_(program),
        tensors_(tensors),
        values_(take_apart(program, tensors)),
        form_(choose_form(program, tensors, values_, group)),
        hoisted_(values_.all.size(), false),
        group_(group) {}

  FusedSource write(bool wide = false) {
    form_.wide |= wide;
    find_accesses();
    schedule_ = schedule(form_, values_, tensors_.in_place);
    describe();
    write_arguments();
    line("extern \"C\" __global__ void __launch_bounds__({}) fused(const Arguments arguments) {{",
         form_.threads());
    write_begin();
    write_loop();
    write_finals();
    line("}}");
    source_.text = fused_prelude + text_;
    return std::move(source_);
  }
  /// Whether elements lie in order, or are one for all, in all tensors.
  bool in_order() const {
    if (form_.kind != FormKind::flat || values_.all.empty()) return false;
    for (const Value& v : values_.all) {
      if (v.level == Level::row || v.kind == Value::Kind::fold_row || v.kind == Value::Kind::fold_column)
        return false;
      if (v.kind != Value::Kind::load || v.level != Level::full) continue;
      const Dims& strides = v.layout.strides;
      if (strides.size() > 1 || (strides.size() == 1 && strides[0] != 1 && strides[0] != 0)) return false;
    }
    return true;
  }

 private:
  // Text.

  template <class... A>
  void line(fmt::format_string<A...> format, A&&... a) {
    const std::string text = fmt::format(format, std::forward<A>(a)...);
    if (text.starts_with('}')) --depth_;
    text_.append(2 * depth_, ' ');
    text_ += text;
    text_ += '\n';
    if (text.ends_with('{')) ++depth_;
  }
  void each_piece() {
    if (form_.pieces > 1) line("#pragma unroll");
    line("for (int j = 0; j < {}; ++j) {{", form_.pieces);
  }
  void each_element() {
    if (form_.pack > 1) line("#pragma unroll");
    line("for (int k = 0; k < {}; ++k) {{", form_.pack);
  }

  // What is known of values.

  const Value& value(uint32_t id) const { return values_.all[id]; }
  std::string_view type(uint32_t id) const { return computed_type(value(id).dtype); }
  bool is_full(uint32_t id) const { return value(id).level == Level::full; }
  bool flat() const { return form_.kind == FormKind::flat; }
  bool tiled() const { return form_.kind == FormKind::tiled; }
  bool whole() const { return form_.kind == FormKind::rows; }
  /// Threads of more than one warp share a row.
  bool by_blocks() const { return whole() && form_.across > 32; }
  std::string dims() const { return fmt::format("[{}][{}]", form_.pieces, form_.pack); }
  /// Arrays of columns, which are the same in all rows.
  std::string column_dims() const { return tiled() ? fmt::format("[{}]", form_.pack) : dims(); }
  std::string_view column_index() const { return tiled() ? "[k]" : "[j][k]"; }
  /// Which block this is, and of how many that share the work.
  std::string_view block_number() const { return group_ ? "block.number" : "blockIdx.x"; }
  std::string_view blocks() const { return group_ ? "block.count" : "gridDim.x"; }
  std::string inside() const { return flat() ? "k < count" : "inside"; }

  std::string ref(uint32_t id) const {
    const Value& v = value(id);
    if (v.kind == Value::Kind::constant) return v.text;
    if (v.kind == Value::Kind::load) {
      if (v.level != Level::full) return fmt::format("x{}", id);
      return fmt::format("x{}{}", id, hoisted_[id] ? column_index() : "[j][k]");
    }
    if (v.level == Level::full && schedule_.held[id] && schedule_.phase[id] != phase_)
      return fmt::format("h{}[j][k]", id);
    return fmt::format("v{}", id);
  }
  std::string call(uint32_t id) const {
    std::string text = value(id).text + "()(";
    for (size_t k = 0; k < value(id).arguments.size(); ++k)
      text += (k ? ", " : "") + ref(value(id).arguments[k]);
    return fmt::format("const {0} v{1} = static_cast<{0}>({2}));", type(id), id, text);
  }

  void find_accesses() {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < values_.all.size(); ++i) {
      Value& v = values_.all[i];
      if (v.kind != Value::Kind::load || v.level != Level::full) continue;
      const auto size = static_cast<int64_t>(size_of(v.dtype));
      v.access =
          access(v.layout, flat() ? 0 : form_.columns, form_.pack, tensors_.inputs[v.input].alignment / size);
      if (!v.access.repeats_rows() || flat()) continue;
      bytes += whole() ? form_.pieces * form_.pack * size : 0;
      hoisted_[i] = bytes <= hoisted_by_thread;
    }
  }

  void describe() {
    for (const Value& v : values_.all)
      if (v.kind == Value::Kind::load &&
          std::find(source_.inputs.begin(), source_.inputs.end(), v.input) == source_.inputs.end())
        source_.inputs.push_back(v.input);
    std::sort(source_.inputs.begin(), source_.inputs.end());
    source_.threads = form_.threads();
    source_.flat = flat();
    source_.rows = form_.rows;
    source_.columns = form_.columns;
    source_.tile = form_.tile();
    source_.tiles = form_.tiles;
    source_.chunk_rows = form_.block_rows() * (whole() ? form_.tiles : 1);
    source_.width = form_.width;
    for (uint32_t i = 0; i < values_.all.size(); ++i) {
      if (value(i).kind == Value::Kind::fold_column) {
        columns_.push_back(i);
        source_.column_bytes.push_back(static_cast<int64_t>(size_of(computed_dtype(value(i).dtype))));
        source_.last_block |= value(i).period != form_.width;
      } else if (value(i).kind == Value::Kind::fold_all) {
        totals_.push_back(i);
      }
    }
    source_.totals = static_cast<int64_t>(totals_.size());
    for (size_t o = 0; o < values_.results.size(); ++o)
      if (value(values_.results[o]).level == Level::uniform && !value(values_.results[o]).is_final())
        uniform_outputs_.push_back(o);
    source_.last_block |= !totals_.empty() || (!group_ && tensors_.in_place && !uniform_outputs_.empty());
    source_.counts_reads = group_ && !uniform_outputs_.empty();
  }

  // The pieces of the text.

  void write_arguments() {
    line("");
    line("using namespace espalier;");
    line("using Index = {};", form_.wide ? "long long" : "unsigned int");
    line("struct {} {{", group_ ? "Member" : "Arguments");
    for (const uint32_t i : source_.inputs) line("const {}* i{};", stored_type(tensors_.inputs[i].dtype), i);
    for (size_t o = 0; o < tensors_.outputs.size(); ++o)
      line("{}* o{};", stored_type(tensors_.outputs[o].dtype), o);
    line("long long {};", flat() ? "columns" : "rows");
    for (const uint32_t c : columns_) line("{}* sums{};", type(c), c);
    if (source_.has_finals() || source_.counts_reads) {
      line("double* totals;");
      line("unsigned int* counters;");
      if (!group_) line("long long stage;");
    }
    line("}};");
    if (group_) {
      line("struct Block {{");
      line("unsigned int member, begin, end, number, count;");
      line("}};");
      line("struct Arguments {{");
      line("const Member* members;");
      line("const Block* blocks;");
      line("}};");
    }
  }

  void write_begin() {
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
      if (value(i).level != Level::uniform || value(i).is_final()) continue;
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
  /// No thread is beyond the last column.
  bool columns_exact() const {
    return form_.columns % (form_.across * form_.pack * (tiled() ? 1 : form_.pieces)) == 0;
  }

  void write_loop() {
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
      // With one fold in a row, nothing else keeps it apart from that of the next row.
      if (by_blocks() && fold_phases() == 1) line("__syncthreads();");
    }
    for (phase_ = 0; phase_ < schedule_.phases; ++phase_) write_phase();
    store_rows();
    line("}}");
  }
  void load_rows() {
    for (uint32_t i = 0; i < values_.all.size(); ++i) {
      const Value& v = value(i);
      if (v.kind != Value::Kind::load || v.level != Level::row) continue;
      line("{} x{};", type(i), i);
      line("load_one(x{}, a.i{} + ({}), valid);", i, v.input, offset_text(terms_of(v.layout), "r"));
    }
  }
  size_t fold_phases() const {
    size_t n = 0;
    for (uint32_t p = 0; p < schedule_.phases; ++p) n += !folds_of(p).empty();
    return n;
  }
  std::vector<uint32_t> folds_of(uint32_t phase) const {
    std::vector<uint32_t> folds;
    for (uint32_t i = 0; i < values_.all.size(); ++i)
      if (value(i).kind == Value::Kind::fold_row && schedule_.ready[i] == phase) folds.push_back(i);
    return folds;
  }

  /// Where piece j of this thread is, and whether that is in the domain.
  void place_piece() {
    if (flat()) {
      line("const Index c = tile * {} + (j * {} + t) * {};", form_.tile(), form_.across, form_.pack);
      line("const int count = c >= columns ? 0 : columns - c < {0} ? static_cast<int>(columns - c) : {0};",
           form_.pack);
    } else if (tiled()) {
      line("const Index r = first + (j * {} + group);", form_.groups);
      line("const bool inside = r < rows{};",
           columns_exact() ? "" : fmt::format(" && c < {}", form_.columns));
    } else {
      line("const Index c = (j * {} + t) * {};", form_.across, form_.pack);
      line("const bool inside = valid{};", columns_exact() ? "" : fmt::format(" && c < {}", form_.columns));
    }
  }
  std::string element() const { return flat() ? "c" : fmt::format("r * {} + c", form_.columns); }

  void load(uint32_t id, std::string_view at) {
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

  /// What phase_ computes of each element: what is asked of it, and what that needs.
  std::vector<bool> needed() const {
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

  void write_phase() {
    for (uint32_t i = 0; i < values_.all.size(); ++i)
      if (value(i).kind == Value::Kind::map && value(i).level == Level::row && schedule_.ready[i] == phase_)
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
    for (const uint32_t f : folds)
      line("{} f{} = {};", type(f), f, identity_of(value(f).fold, value(f).dtype));
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
      const std::string to = value(f).kind == Value::Kind::fold_all
                                 ? fmt::format("part{}", f)
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

  void write_loads(const std::vector<bool>& now) {
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

  void store(uint32_t o) {
    const FusedTensor& tensor = tensors_.outputs[o];
    const int64_t aligned = tensor.alignment / static_cast<int64_t>(size_of(tensor.dtype));
    if (aligned % form_.pack == 0)
      line("store_{}(a.o{} + ({}), y{}, {});", flat() ? "some" : "all", o, element(), o,
           flat() ? "count" : "inside");
    else
      line("store_each(a.o{} + ({}), y{}, {});", o, element(), o,
           flat() ? "count" : fmt::format("inside ? {} : 0", form_.pack));
  }

  /// From each thread's share of a row to all of it, in all threads of the row.
  void fold_groups(const std::vector<uint32_t>& folds) {
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

  void store_rows() {
    if (!whole()) return;
    std::vector<uint32_t> rows;
    for (uint32_t o = 0; o < values_.results.size(); ++o)
      if (value(values_.results[o]).level == Level::row) rows.push_back(o);
    if (rows.empty()) return;
    // An input that is written over has been read by all threads of the row.
    if (tensors_.in_place) line("{};", by_blocks() ? "__syncthreads()" : "__syncwarp()");
    line("if (t == 0 && valid) {{");
    for (const uint32_t o : rows)
      line("a.o{}[r] = static_cast<{}>({});", o, stored_type(tensors_.outputs[o].dtype),
           ref(values_.results[o]));
    line("}}");
  }

  // After the loop: sums over rows, and what is one element for all.

  size_t output_of(uint32_t id) const {
    return static_cast<size_t>(std::find(values_.results.begin(), values_.results.end(), id) -
                               values_.results.begin());
  }
  void store_uniform_outputs() {
    for (const size_t o : uniform_outputs_)
      line("*a.o{} = static_cast<{}>({});", o, stored_type(tensors_.outputs[o].dtype),
           ref(values_.results[o]));
  }

  void write_finals() {
    // Members of a group write over their inputs or not: then, too, all their blocks have read these.
    if (!uniform_outputs_.empty() && (group_ || !tensors_.in_place)) {
      line("if ({}) {{", group_ ? "read_last" : "blockIdx.x == 0 && threadIdx.x == 0");
      store_uniform_outputs();
      line("}}");
    }
    if (!source_.has_finals()) return;
    for (size_t i = 0; i < columns_.size(); ++i) write_partial_sums(columns_[i]);
    write_partial_totals();
    if (!columns_.empty()) combine_columns();
    if (source_.last_block) write_last_block();
  }

  /// Each block's sums of its columns, as one row of partial sums (or several, side by side).
  void write_partial_sums(uint32_t c) {
    const int64_t width = form_.width, tile = form_.tile();
    const bool together = form_.groups > 1 && form_.positions == 1;
    const auto each = [&](const std::string& statement) {
      if (tiled()) {
        each_element();
        line("const Index column = c + k;");
        line("if (column < {}) {}", width, statement);
        line("}}");
        return;
      }
      each_piece();
      each_element();
      line("const Index c = (j * {} + t) * {} + k;", form_.across, form_.pack);
      line(
          "const Index column = {}c;",
          form_.positions > 1 ? fmt::format("(tile * {} + group) * {} + ", form_.groups, form_.columns) : "");
      line("if (c < {}) {}", form_.columns, statement);
      line("}}");
      line("}}");
    };
    if (!together) {
      each(fmt::format("a.sums{0}[static_cast<Index>(chunk) * {1} + column] = sum{0}{2};", c, width,
                       column_index()));
      return;
    }
    line("__shared__ {} block_sums{}[{}];", type(c), c, tile);
    if (form_.across < 32) {
      if (!tiled()) each_piece();
      each_element();
      line("sum{0}{1} = fold_across<scalar::Add, {2}>(sum{0}{1});", c, column_index(), form_.across);
      line("}}");
      if (!tiled()) line("}}");
    }
    line("for (int w = 0; w < {}; ++w) {{", form_.threads() / 32);
    line("if (threadIdx.x / 32 == w && threadIdx.x % 32 < {}) {{", form_.across);
    const std::string at =
        fmt::format("block_sums{}[column{}]", c, tiled() ? fmt::format(" - tile * {}", tile) : "");
    each(fmt::format("{0} = w == 0 ? sum{1}{2} : scalar::Add()({0}, sum{1}{2});", at, c, column_index()));
    line("}}");
    line("__syncthreads();");
    line("}}");
    line("for (Index i = threadIdx.x; i < {0} && tile * {0} + i < {1}; i += {2})", tile, width,
         form_.threads());
    line("  a.sums{0}[static_cast<Index>(chunk) * {1} + tile * {2} + i] = block_sums{0}[i];", c, width, tile);
  }

  void write_partial_totals() {
    for (size_t i = 0; i < totals_.size(); ++i) {
      line("{{");
      fold_block(fmt::format("total{}", totals_[i]));
      line("if (threadIdx.x == 0) a.totals[static_cast<long long>({}) * {} + {}] = total;", block_number(),
           totals_.size(), i);
      line("}}");
    }
  }
  /// Declares `total`, the sum of `number` over the block, which thread 0 knows.
  void fold_block(const std::string& number) {
    const int64_t warps = form_.threads() / 32;
    line("__shared__ double parts[{}];", warps);
    line("double total = fold_lanes<scalar::Add, 32>({});", number);
    line("if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;");
    line("__syncthreads();");
    line("total = fold_parts<scalar::Add, {}>(parts);", warps);
  }

  /// The last block of each stage adds up what the others have left, always in the same order.
  void combine_columns() {
    const int64_t width = form_.width;
    line("const unsigned int all_chunks = gridDim.x / {}, stage = static_cast<unsigned int>(a.stage);",
         form_.tiles);
    line("const unsigned int stages = (all_chunks + stage - 1) / stage, mine = chunk / stage;");
    line(
        "const unsigned int begin = mine * stage, end = begin + stage < all_chunks ? begin + stage : "
        "all_chunks;");
    line("if (!is_last(a.counters + (1 + {} + tile * stages + mine), end - begin)) return;", form_.tiles);
    const auto each_column = [&] {
      line("for (Index i = threadIdx.x; i < {0} && tile * {0} + i < {1}; i += {2}) {{", form_.tile(), width,
           form_.threads());
      line("const Index column = tile * {} + i;", form_.tile());
    };
    const auto add = [&](uint32_t c, std::string_view from, std::string_view to, std::string_view step) {
      line("{} s{} = a.sums{}[static_cast<Index>({}) * {} + column];", type(c), c, c, from, width);
      line("for (unsigned int n = {0} + {1}; n < {2}; n += {1})", from, step, to);
      line("  s{0} = scalar::Add()(s{0}, a.sums{0}[static_cast<Index>(n) * {1} + column]);", c, width);
    };
    each_column();
    for (const uint32_t c : columns_) {
      add(c, "begin", "end", "1");
      line("a.sums{0}[static_cast<Index>(begin) * {1} + column] = s{0};", c, width);
    }
    line("}}");
    line("if (!is_last(a.counters + (1 + tile), stages)) return;");
    each_column();
    for (const uint32_t c : columns_) {
      add(c, "0", "all_chunks", "stage");
      if (value(c).period == width)
        store_sum(c, "column", fmt::format("s{}", c));
      else
        line("a.sums{0}[column] = s{0};", c);
    }
    line("}}");
  }
  /// As many elements as went into one sum.
  int64_t count_of(uint32_t id) const {
    return value(id).kind == Value::Kind::fold_all ? program_.elements : program_.elements / value(id).period;
  }
  void store_sum(uint32_t id, std::string_view at, const std::string& sum) {
    const size_t o = output_of(id);
    std::string result = sum;
    if (value(id).fold == Fold::mean)
      result = fmt::format("{} / static_cast<{}>({})", sum,
                           value(id).kind == Value::Kind::fold_all ? "double" : type(id), count_text(id));
    line("a.o{}[{}] = static_cast<{}>({});", o, at, stored_type(tensors_.outputs[o].dtype), result);
  }
  /// That of rows is not known before the launch.
  std::string count_text(uint32_t id) const {
    if (flat()) return "a.columns";
    const int64_t period = value(id).kind == Value::Kind::fold_all ? 1 : value(id).period;
    return fmt::format("a.rows * {} / {}", form_.columns, period);
  }

  void write_last_block() {
    line("if (!is_last(a.counters, {})) return;",
         columns_.empty() ? std::string(blocks()) : fmt::format("{}", form_.tiles));
    for (const uint32_t c : columns_) {
      if (value(c).period == form_.width) continue;
      line("for (Index column = threadIdx.x; column < {}; column += {}) {{", value(c).period,
           form_.threads());
      line("{} s = a.sums{}[column];", type(c), c);
      line("for (Index at = column + {0}; at < {1}; at += {0}) s = scalar::Add()(s, a.sums{2}[at]);",
           value(c).period, form_.width, c);
      store_sum(c, "column", "s");
      line("}}");
    }
    for (size_t i = 0; i < totals_.size(); ++i) {
      line("{{");
      line("double sum = 0;");
      line(
          "for (unsigned int b = threadIdx.x; b < {}; b += {}) sum += a.totals[static_cast<long "
          "long>(b) * {} + {}];",
          blocks(), form_.threads(), totals_.size(), i);
      fold_block("sum");
      line("if (threadIdx.x == 0) {{");
      store_sum(totals_[i], "0", "total");
      line("}}");
      line("}}");
    }
    if (uniform_outputs_.empty() || group_ || !tensors_.in_place) return;
    line("if (threadIdx.x == 0) {{");
    store_uniform_outputs();
    line("}}");
  }

  const Program& program_;
  const FusedTensors& tensors_;
  Values values_;
  Form form_;
  Schedule schedule_;
  std::vector<bool> hoisted_;
  std::vector<uint32_t> columns_, totals_;  // folds over rows, and over all
  std::vector<size_t> uniform_outputs_;
  bool group_;
  uint32_t phase_ = 0;
  FusedSource source_;
  std::string text_;
  size_t depth_ = 0;
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

FusedLaunch FusedSource::launch(int64_t multiprocessors) const {
  constexpr int64_t threads_at_once = 2048, waves = 8;
  const int64_t resident = multiprocessors * std::max<int64_t>(1, threads_at_once / threads);
  // Where sums are combined, each block should have many elements of its own.
  const int64_t most = has_finals() ? std::max<int64_t>(1, resident / 2) : resident * waves;
  if (flat) {
    const FusedLaunch launch{std::clamp<int64_t>(divide_up(columns, tile), 1, most), 0, 0, 1};
    return launch;
  }
  FusedLaunch launch{};
  launch.chunks = std::clamp<int64_t>(most / tiles, 1, divide_up(rows, chunk_rows));
  launch.blocks = launch.chunks * tiles;
  launch.stage = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(std::sqrt(launch.chunks))));
  launch.counters = 1 + tiles + tiles * divide_up(launch.chunks, launch.stage);
  return launch;
}

FusedSource fused_source(const Program& program, const FusedTensors& tensors) {
  return Writer(program, tensors, false).write();
}

std::optional<FusedSource> fused_group_source(const Program& program, const FusedTensors& tensors,
                                              bool wide) {
  Writer writer(program, tensors, true);
  if (!writer.in_order()) return std::nullopt;
  return writer.write(wide);
}

}  // namespace espalier
