#include "espalier/executor/fused/fused_rows.h"

#include <algorithm>
#include <optional>

#include "espalier/core/bind_context.h"
#include "espalier/core/cpu/parallel.h"
#include "espalier/executor/fused/interpreter.h"

namespace espalier {

namespace {

class BoundRows : public BoundKernel {
 public:
  BoundRows(const Program& program, const ProgramTables& tables, const KernelCall& call) {
    for (size_t k = 0; k < tables.of_output.size(); ++k)
      if (tables.of_output[k] != ProgramTables::none)
        tables_.emplace_back(call.inputs[tables.of_output[k]], call.outputs[k]);
    const Tensor &rows = *call.inputs[call.inputs.size() - 1], &table = *tables_[0].first;
    size_ = table.shape()[0];
    columns_ = size_ == 0 ? 0 : table.elements() / size_;
    rows_ = {static_cast<const int64_t*>(rows.address()), static_cast<size_t>(rows.elements())};
    const TableRows of_domain{rows_.data(), columns_, tables.inputs, tables.of_output};
    kernel_.emplace(program, std::span(call.inputs.data(), call.inputs.size()),
                    std::span(call.outputs.data(), call.outputs.size()), &of_domain);
    threads_ = threads_for_tiles(kernel_->tiles() * kernel_->tile_cost(), kernel_->tiles());
    scratch_ = TileScratch(kernel_->scratch_bytes(), threads_);
  }

  void run(RandomStream) override {
    for (const auto& [table, output] : tables_)
      if (output->address() != table->address()) copy_elements(*table, *output);
    kernel_->begin();
    if (columns_ > 0) update();
    kernel_->finish(scratch_.all());
  }

 private:
  /// Of a gradient, numbers of no row come last, so that this is done once.
  void update() {
    const auto is_row = [this](int64_t row) { return row >= 0 && row < size_; };
    const auto last = rows_.end();
    for (auto begin = std::find_if(rows_.begin(), last, is_row); begin != last;) {
      const auto end = std::find_if_not(begin, last, is_row);
      update(begin - rows_.begin(), end - rows_.begin());
      begin = std::find_if(end, last, is_row);
    }
  }
  void update(int64_t begin, int64_t end) {
    const int64_t tiles = kernel_->tiles_of(end - begin), threads = std::min(threads_, tiles);
    parallel_for(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        for (int64_t tile = tiles * t / threads; tile < tiles * (t + 1) / threads; ++tile)
          kernel_->run_tile_of(tile, begin, end, scratch_.of(t));
    });
  }

  std::vector<std::pair<const Tensor*, Tensor*>> tables_;  // and the outputs with new rows
  std::span<const int64_t> rows_;
  int64_t size_ = 0, columns_ = 0;  // of a table
  std::optional<TileKernel> kernel_;
  int64_t threads_ = 1;
  TileScratch scratch_;
};

}  // namespace

FusedRows::FusedRows(Program program, ProgramTables tables)
    : Op({.takes_halves = true, .takes_any_values = true}),
      program_(std::move(program)),
      tables_(std::move(tables)) {}

Attributes FusedRows::attributes() const {
  std::vector<int64_t> tables;
  for (const uint32_t table : tables_.of_output)
    tables.push_back(table == ProgramTables::none ? -1 : int64_t{table});
  return {{"tables", std::move(tables)}, {"program", program_.str()}};
}

Specs FusedRows::infer(const InputSpecs& in) const {
  Specs specs;
  for (size_t k = 0; k < tables_.of_output.size(); ++k) {
    const uint32_t table = tables_.of_output[k];
    const Instruction& n = program_.instructions[program_.outputs[k]];
    specs.push_back(table == ProgramTables::none ? Spec{n.dtype, n.shape} : *in[table]);
  }
  return specs;
}

bool FusedRows::can_write_over(size_t output, size_t input) const {
  const uint32_t table = tables_.of_output[output];
  if (table != ProgramTables::none) return input == table;
  // A uniform value is written after all has been read.
  return input >= tables_.inputs.size() || !tables_.inputs[input];
}

std::unique_ptr<BoundKernel> FusedRows::bind_cpu(const KernelCall& call, const BindContext&) const {
  return std::make_unique<BoundRows>(program_, tables_, call);
}

}  // namespace espalier
