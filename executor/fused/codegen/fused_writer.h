// FusedWriter: writes the text of one fused kernel. fused_source.cpp has its arguments, fused_loop.cpp the
// loop over elements, fused_memory.cpp the loads and stores, fused_finals.cpp the reductions after the loop.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "espalier/executor/fused/codegen/fused_form.h"
#include "espalier/executor/fused/codegen/fused_source.h"

namespace espalier::fused {

class FusedWriter {
 public:
  FusedWriter(const Program& program, const FusedTensors& tensors, bool group)
      : tensors_(tensors),
        values_(lower_to_values(program, tensors)),
        form_(choose_form(program, tensors, values_, group)),
        hoisted_(values_.all.size(), false),
        group_(group) {
    source_.name = kernel_name(program, group);
  }

  FusedSource write(bool wide = false);
  /// Whether every tensor is contiguous or one repeated element.
  bool in_order() const;

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
  void each_piece();
  void each_element();

  // Values.

  const Value& value(uint32_t id) const { return values_.all[id]; }
  std::string_view type(uint32_t id) const { return computed_type(value(id).dtype); }
  bool is_full(uint32_t id) const { return value(id).extent == Extent::full; }
  bool flat() const { return form_.kind == FormKind::flat; }
  bool tiled() const { return form_.kind == FormKind::tiled; }
  bool whole() const { return form_.kind == FormKind::rows; }
  /// Threads of more than one warp share a row.
  bool by_blocks() const { return whole() && form_.across > 32; }
  std::string dims() const { return fmt::format("[{}][{}]", form_.pieces, form_.pack); }
  /// Arrays of columns, which are the same in all rows.
  std::string column_dims() const { return tiled() ? fmt::format("[{}]", form_.pack) : dims(); }
  std::string_view column_index() const { return tiled() ? "[k]" : "[j][k]"; }
  /// This block's number, and the number of blocks that share the work.
  std::string_view block_number() const { return group_ ? "block.number" : "blockIdx.x"; }
  std::string_view blocks() const { return group_ ? "block.count" : "gridDim.x"; }
  std::string inside() const { return flat() ? "k < count" : "inside"; }
  std::string element() const { return flat() ? "c" : fmt::format("r * {} + c", form_.columns); }
  std::string ref(uint32_t id) const;
  std::string call(uint32_t id) const;

  // fused_source.cpp
  static std::string kernel_name(const Program& program, bool group);
  void find_accesses();
  void describe();
  void write_arguments();

  // fused_loop.cpp
  void write_begin();
  /// No thread is beyond the last column.
  bool columns_exact() const;
  void write_loop();
  size_t fold_phases() const;
  std::vector<uint32_t> folds_of(uint32_t phase) const;
  /// The full values that phase_ computes: its results, and what they depend on.
  std::vector<bool> needed() const;
  void write_phase();
  /// Combines the threads' folds of a row; every thread of the row gets the result.
  void fold_groups(const std::vector<uint32_t>& folds);

  // fused_memory.cpp
  /// The coordinates of piece j of this thread, and whether it is inside the domain.
  void place_piece();
  void load_rows();
  void load(uint32_t id, std::string_view at);
  void write_loads(const std::vector<bool>& now);
  void store(uint32_t o);
  void store_rows();

  // fused_finals.cpp
  size_t output_of(uint32_t id) const;
  void store_uniform_outputs();
  void write_finals();
  /// Writes a block's column sums as one row of partial sums, or several side by side.
  void write_partial_sums(uint32_t c);
  void write_partial_totals();
  /// Declares `total`, the sum of `number` over the block; valid in thread 0.
  void fold_block(const std::string& number);
  /// The last block of each stage adds up the partial sums, always in the same order.
  void combine_columns();
  void store_sum(uint32_t id, std::string_view at, const std::string& sum);
  /// The number of elements in one sum as an expression, since the number of rows is known at launch only.
  std::string count_text(uint32_t id) const;
  void write_last_block();

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

}  // namespace espalier::fused
