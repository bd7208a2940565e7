#include "espalier/executor/fused/codegen/fused_source.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "espalier/executor/fused/codegen/fused_writer.h"

namespace espalier {

/// core/half.h, the functors of core/scalar*.h, and fused_device.cuh.
extern const char* const fused_prelude;

namespace fused {

namespace {

constexpr int64_t hoisted_by_thread = 64;  // bytes

}  // namespace

FusedSource FusedWriter::write(bool wide) {
  form_.wide |= wide;
  find_accesses();
  schedule_ = schedule(form_, values_, tensors_.in_place);
  describe();
  write_arguments();
  line("extern \"C\" __global__ void __launch_bounds__({}) {}(const Arguments arguments) {{", form_.threads(),
       source_.name);
  write_begin();
  write_loop();
  write_finals();
  line("}}");
  source_.text = fused_prelude + text_;
  return std::move(source_);
}

/// The ops in their order, for timelines of profilers.
std::string FusedWriter::kernel_name(const Program& program, bool group) {
  constexpr size_t longest = 80;
  std::string name = group ? "fused_group" : "fused";
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    std::string op(program.instructions[i].op->name());
    for (char& c : op)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    if (name.size() + op.size() >= longest) {
      name += fmt::format("_and_{}_more", program.instructions.size() - i);
      break;
    }
    name += '_' + op;
  }
  return name;
}

bool FusedWriter::in_order() const {
  if (form_.kind != FormKind::flat || values_.all.empty()) return false;
  for (const Value& v : values_.all) {
    if (v.extent == Extent::row || v.kind == Value::Kind::fold_row || v.kind == Value::Kind::fold_column)
      return false;
    if (v.kind != Value::Kind::load || v.extent != Extent::full) continue;
    const Dims& strides = v.layout.strides;
    if (strides.size() > 1 || (strides.size() == 1 && strides[0] != 1 && strides[0] != 0)) return false;
  }
  return true;
}

void FusedWriter::find_accesses() {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < values_.all.size(); ++i) {
    Value& v = values_.all[i];
    if (v.kind != Value::Kind::load || v.extent != Extent::full) continue;
    const auto size = static_cast<int64_t>(size_of(v.dtype));
    v.access =
        access(v.layout, flat() ? 0 : form_.columns, form_.pack, tensors_.inputs[v.input].alignment / size);
    if (!v.access.repeats_rows() || flat()) continue;
    bytes += whole() ? form_.pieces * form_.pack * size : 0;
    hoisted_[i] = bytes <= hoisted_by_thread;
  }
}

void FusedWriter::describe() {
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
    if (value(values_.results[o]).extent == Extent::uniform && !value(values_.results[o]).is_final())
      uniform_outputs_.push_back(o);
  source_.last_block |= !totals_.empty() || (!group_ && tensors_.in_place && !uniform_outputs_.empty());
  source_.counts_reads = group_ && !uniform_outputs_.empty();
}

void FusedWriter::write_arguments() {
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

}  // namespace fused

namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

FusedLaunch FusedSource::launch(int64_t multiprocessors) const {
  constexpr int64_t threads_at_once = 2048, waves = 8;
  const int64_t resident = multiprocessors * std::max<int64_t>(1, threads_at_once / threads);
  // Combining costs time for each block, so these get more elements.
  const int64_t most = has_finals() ? std::max<int64_t>(1, resident / 2) : resident * waves;
  if (flat) {
    const FusedLaunch launch{std::clamp<int64_t>(divide_up(columns, tile), 1, most), 0, 0, 1};
    return launch;
  }
  FusedLaunch launch{};
  launch.chunks = std::clamp<int64_t>(most / tiles, 1, divide_up(rows, chunk_rows));
  launch.blocks = launch.chunks * tiles;
  // A second stage takes as long as some thirty sums more.
  launch.stage =
      launch.chunks <= 32 ? launch.chunks : static_cast<int64_t>(std::ceil(std::sqrt(launch.chunks)));
  launch.counters = 1 + tiles + tiles * divide_up(launch.chunks, launch.stage);
  return launch;
}

FusedSource fused_source(const Program& program, const FusedTensors& tensors) {
  return fused::FusedWriter(program, tensors, false).write();
}

std::optional<FusedSource> fused_group_source(const Program& program, const FusedTensors& tensors,
                                              bool wide) {
  fused::FusedWriter writer(program, tensors, true);
  if (!writer.in_order()) return std::nullopt;
  return writer.write(wide);
}

}  // namespace espalier
