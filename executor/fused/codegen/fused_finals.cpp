#include <algorithm>

#include "espalier/executor/fused/codegen/fused_writer.h"

namespace espalier::fused {

size_t FusedWriter::output_of(uint32_t id) const {
  return static_cast<size_t>(std::find(values_.results.begin(), values_.results.end(), id) -
                             values_.results.begin());
}

void FusedWriter::store_uniform_outputs() {
  for (const size_t o : uniform_outputs_)
    line("*a.o{} = static_cast<{}>({});", o, stored_type(tensors_.outputs[o].dtype), ref(values_.results[o]));
}

void FusedWriter::write_finals() {
  // Some members of a group overwrite their inputs, so all wait until their blocks have read.
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

void FusedWriter::write_partial_sums(uint32_t c) {
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
    line("const Index column = {}c;",
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

void FusedWriter::write_partial_totals() {
  for (size_t i = 0; i < totals_.size(); ++i) {
    line("{{");
    fold_block(fmt::format("total{}", totals_[i]));
    line("if (threadIdx.x == 0) a.totals[static_cast<long long>({}) * {} + {}] = total;", block_number(),
         totals_.size(), i);
    line("}}");
  }
}

void FusedWriter::fold_block(const std::string& number) {
  const int64_t warps = form_.threads() / 32;
  line("__shared__ double parts[{}];", warps);
  line("double total = fold_lanes<scalar::Add, 32>({});", number);
  line("if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;");
  line("__syncthreads();");
  line("total = fold_parts<scalar::Add, {}>(parts);", warps);
}

void FusedWriter::combine_columns() {
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
  line("if (stages > 1 && !is_last(a.counters + (1 + tile), stages)) return;");
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

void FusedWriter::store_sum(uint32_t id, std::string_view at, const std::string& sum) {
  const size_t o = output_of(id);
  std::string result = sum;
  if (value(id).fold == Fold::mean)
    result = fmt::format("{} / static_cast<{}>({})", sum,
                         value(id).kind == Value::Kind::fold_all ? "double" : type(id), count_text(id));
  line("a.o{}[{}] = static_cast<{}>({});", o, at, stored_type(tensors_.outputs[o].dtype), result);
}

std::string FusedWriter::count_text(uint32_t id) const {
  if (flat()) return "a.columns";
  const int64_t period = value(id).kind == Value::Kind::fold_all ? 1 : value(id).period;
  return fmt::format("a.rows * {} / {}", form_.columns, period);
}

void FusedWriter::write_last_block() {
  line("if (!is_last(a.counters, {})) return;",
       columns_.empty() ? std::string(blocks()) : fmt::format("{}", form_.tiles));
  for (const uint32_t c : columns_) {
    if (value(c).period == form_.width) continue;
    line("for (Index column = threadIdx.x; column < {}; column += {}) {{", value(c).period, form_.threads());
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

}  // namespace espalier::fused
