#include "espalier/executor/fused/tile_lowering.h"

#include <algorithm>
#include <cstring>

#include "espalier/core/cpu/strided_loop.h"

namespace espalier {

namespace {

constexpr int64_t tile_elements = 2048;

template <class T>
void store(double value, char* to) {
  const T x = scalar::Cast<T>()(value);
  std::memcpy(to, &x, sizeof x);
}

/// Sizes and strides with as few axes as possible, and at least one.
struct Collapsed {
  Dims sizes, strides;
  explicit Collapsed(const Layout& layout) {
    const Layout joined = collapsed(layout);
    sizes = joined.shape.dims();
    strides = joined.strides;
    if (!sizes.empty()) return;
    sizes.push_back(1);
    strides.push_back(0);
  }
};

TileStep::Kind map_kind(const RowFunction& function) {
  return function.ternary  ? TileStep::Kind::ternary
         : function.binary ? TileStep::Kind::binary
                           : TileStep::Kind::unary;
}

}  // namespace

TileProgram lower_to_tiles(const Program& program, std::span<const Tensor* const> inputs,
                           std::span<Tensor* const> outputs, const TableRows* tables) {
  return TileLowering(program, inputs, outputs, tables).run();
}

TileLowering::TileLowering(const Program& program, std::span<const Tensor* const> inputs,
                           std::span<Tensor* const> outputs, const TableRows* tables)
    : program_(program), inputs_(inputs), tables_(tables) {
  tiles_.elements = program.elements;
  tiles_.outputs.assign(outputs.begin(), outputs.end());
  if (!tables) return;
  tiles_.table_rows = tables->rows;
  is_put_.assign(outputs.size(), false);
}

TileProgram TileLowering::run() {
  choose_tiles();
  tiles_.uniforms.resize(program_.constants.size() + program_.instructions.size());
  for (size_t i = 0; i < program_.constants.size(); ++i)
    visit_all(program_.constants[i].dtype,
              [&]<class T>(TypeTag<T>) { store<T>(program_.constants[i].value, tiles_.uniforms[i].data()); });
  values_.resize(program_.instructions.size());
  for (uint32_t i = 0; i < program_.instructions.size(); ++i) {
    lower(program_.instructions[i], i);
    if (tables_) put_early(i);
  }
  write_outputs();
  place_registers();
  return std::move(tiles_);
}

/// Rows are those of the program. Without any they are the longest runs in which the stride of no operand
/// changes.
void TileLowering::choose_tiles() {
  int64_t length = tables_ ? tables_->columns : program_.row;
  if (!length) {
    length = program_.elements;
    const auto even = [&](int64_t candidate) {
      if (candidate > 1 && candidate < length && program_.elements % candidate == 0) length = candidate;
    };
    for (const Instruction& n : program_.instructions) {
      if (n.kind == Instruction::Kind::fold_column) even(n.period);
      if (n.extent != Extent::full) continue;
      for (const Argument& operand : n.arguments)
        if (operand.from == Argument::From::input && operand.extent == Extent::full) {
          const Collapsed c(broadcast_layout(inputs_[operand.index]->layout(), n.shape));
          if (c.sizes.size() > 1) even(c.sizes.back());
        }
    }
  }
  TileProgram& t = tiles_;
  t.columns = std::max<int64_t>(length, 1);
  t.rows = program_.elements / t.columns;
  if (program_.row || t.columns <= tile_elements) {
    t.tile_columns = t.columns;
    t.tile_rows = t.columns >= tile_elements / 4 ? 1 : std::max<int64_t>(1, tile_elements / t.columns);
  } else {
    const int64_t parts = (t.columns + tile_elements - 1) / tile_elements;
    t.tile_columns = ((t.columns + parts - 1) / parts + 15) / 16 * 16;
    t.tiles_per_row = (t.columns + t.tile_columns - 1) / t.tile_columns;
  }
  t.tiles = (t.rows + t.tile_rows - 1) / t.tile_rows * t.tiles_per_row;
}

TileLocation TileLowering::new_register(size_t bytes, Extent extent) {
  registers_.push_back({bytes, extent, INT64_MAX, -1});
  TileLocation l;
  l.vreg = static_cast<int32_t>(registers_.size()) - 1;
  return l;
}

void TileLowering::emit(TileStep step) {
  const auto now = static_cast<int64_t>(tiles_.steps.size());
  const auto use = [&](const TileLocation& l) {
    if (l.vreg < 0) return;
    Register& r = registers_[static_cast<size_t>(l.vreg)];
    r.first = std::min(r.first, now);
    r.last = std::max(r.last, now);
  };
  for (const TileLocation& l : step.in) use(l);
  use(step.out);
  tiles_.steps.push_back(std::move(step));
}

size_t TileLowering::operand_bytes(const Argument& operand) const {
  switch (operand.from) {
    case Argument::From::constant: return size_of(program_.constants[operand.index].dtype);
    case Argument::From::value: return size_of(program_.instructions[operand.index].dtype);
    case Argument::From::input: break;
  }
  return size_of(inputs_[operand.index]->dtype());
}

TileStep TileLowering::table_step(TileStep::Kind kind, const Tensor& table) {
  const auto bytes = static_cast<int64_t>(size_of(table.dtype()));
  TileStep step{.kind = kind, .extent = Extent::full, .bytes = static_cast<uint32_t>(bytes)};
  step.index = static_cast<uint32_t>(tiles_.tables.size());
  tiles_.tables.push_back({static_cast<char*>(const_cast<void*>(table.address())), tables_->columns * bytes});
  return step;
}
TileLocation TileLowering::take(const Tensor& table) {
  TileStep step = table_step(TileStep::Kind::take, table);
  step.out = new_register(step.bytes, Extent::full);
  emit(step);
  return step.out;
}

/// While the rows are in the first cache, if they have been read.
void TileLowering::put_early(uint32_t instruction) {
  for (size_t o = 0; o < program_.outputs.size(); ++o) {
    const uint32_t table = tables_->outputs[o];
    if (program_.outputs[o] != instruction || table == TableRows::none) continue;
    if (std::ranges::any_of(sources_, [&](const Source& known) { return known.input == table; })) put(o);
  }
}
void TileLowering::put(size_t output) {
  if (is_put_[output]) return;
  is_put_[output] = true;
  TileStep step = table_step(TileStep::Kind::put, *tiles_.outputs[output]);
  step.in[0] = values_[program_.outputs[output]];
  emit(std::move(step));
}

/// An input in place where its layout is one of rows and columns, and gathered into a register otherwise.
TileLocation TileLowering::load(uint32_t input, Extent extent, const Shape& shape) {
  const bool in_table = tables_ && tables_->inputs[input];
  for (const Source& known : sources_)
    if (known.input == input && (in_table || (known.extent == extent && known.shape == shape)))
      return known.location;
  const Tensor& tensor = *inputs_[input];
  const auto bytes = static_cast<int64_t>(size_of(tensor.dtype()));
  const Collapsed c(extent == Extent::uniform ? Layout() : broadcast_layout(tensor.layout(), shape));
  TileLocation l;
  l.base = static_cast<char*>(const_cast<void*>(tensor.address()));
  const bool contiguous = c.sizes.size() == 1 && c.strides[0] == 1;
  if (in_table) {
    l = take(tensor);
  } else if (extent == Extent::uniform || (c.sizes.size() == 1 && c.strides[0] == 0)) {
    l.step = 0;
  } else if (extent == Extent::row && contiguous) {
    l.row_stride = bytes;
  } else if (extent == Extent::full && contiguous) {
    l.row_stride = tiles_.columns * bytes;
    l.column_stride = bytes;
  } else if (extent == Extent::full && tiles_.tile_rows == 1 && c.sizes.size() == 2 &&
             c.sizes[1] == tiles_.columns && (c.strides[1] == 0 || c.strides[1] == 1)) {
    l.row_stride = c.strides[0] * bytes;
    l.column_stride = c.strides[1] * bytes;
    l.step = c.strides[1];
  } else {
    TileGather gather{l.base, c.sizes, c.strides};
    for (int64_t& stride : gather.strides) stride *= bytes;
    TileStep step{.kind = TileStep::Kind::gather, .extent = extent, .bytes = static_cast<uint32_t>(bytes)};
    step.index = static_cast<uint32_t>(tiles_.gathers.size());
    tiles_.gathers.push_back(std::move(gather));
    step.out = l = new_register(static_cast<size_t>(bytes), extent);
    emit(std::move(step));
  }
  sources_.push_back({input, extent, shape, l});
  return l;
}

/// A row value for all elements of its row.
TileLocation TileLowering::spread(const TileLocation& row_value, size_t bytes) {
  if (row_value.step == 0) return row_value;
  if (tiles_.tile_rows == 1) {
    TileLocation l = row_value;
    l.step = 0;
    return l;
  }
  if (row_value.vreg >= 0)
    for (const auto& [vreg, location] : spreads_)
      if (vreg == row_value.vreg) return location;
  TileStep step{
      .kind = TileStep::Kind::spread, .extent = Extent::full, .bytes = static_cast<uint32_t>(bytes)};
  step.in[0] = row_value;
  const TileLocation l = step.out = new_register(bytes, Extent::full);
  emit(std::move(step));
  if (row_value.vreg >= 0) spreads_.emplace_back(row_value.vreg, l);
  return l;
}

TileLocation TileLowering::operand(const Argument& operand, const Instruction& by) {
  TileLocation l;
  switch (operand.from) {
    case Argument::From::constant:
      l.base = tiles_.uniforms[operand.index].data();
      l.step = 0;
      return l;
    case Argument::From::value: l = values_[operand.index]; break;
    case Argument::From::input: l = load(operand.index, operand.extent, by.shape); break;
  }
  return operand.extent == Extent::row && by.extent == Extent::full ? spread(l, operand_bytes(operand)) : l;
}

/// For loops that read elements one after the other: a repeated element is written out.
TileLocation TileLowering::side_by_side(const Argument& argument, const Instruction& by) {
  Instruction full = by;
  full.extent = Extent::full;
  const TileLocation l = operand(argument, full);
  if (l.step == 1) return l;
  const size_t bytes = operand_bytes(argument);
  TileStep step{.kind = TileStep::Kind::fill, .extent = Extent::full, .bytes = static_cast<uint32_t>(bytes)};
  step.in[0] = l;
  const TileLocation filled = step.out = new_register(bytes, Extent::full);
  emit(std::move(step));
  return filled;
}

void TileLowering::lower(const Instruction& n, uint32_t index) {
  TileStep step{.kind = TileStep::Kind::whole_row,
                .extent = n.extent,
                .bytes = static_cast<uint32_t>(size_of(n.dtype))};
  Extent result = n.extent;
  switch (n.kind) {
    case Instruction::Kind::map:
      return n.extent == Extent::uniform ? lower_uniform(n, index) : lower_map(n, index);
    case Instruction::Kind::fold_column:
    case Instruction::Kind::fold_all: return lower_total(n, index);
    case Instruction::Kind::whole_row: step.whole_row = n.whole_row; break;
    case Instruction::Kind::fold_row:
      step.kind = TileStep::Kind::fold_row;
      step.fold_row = fold_rows_function(n.fold, n.dtype);
      result = Extent::row;
      break;
  }
  step.in[0] = side_by_side(n.arguments[0], n);
  step.out = values_[index] = new_register(step.bytes, result);
  emit(std::move(step));
}

/// Binary functions of more than two arguments are folded from the left.
void TileLowering::lower_map(const Instruction& n, uint32_t index) {
  const size_t bytes = size_of(n.dtype);
  TileStep step{.kind = map_kind(n.function), .extent = n.extent, .bytes = static_cast<uint32_t>(bytes)};
  step.function = n.function;
  step.out = new_register(bytes, n.extent);
  for (size_t k = 0; k < n.arguments.size(); ++k) {
    const TileLocation l = operand(n.arguments[k], n);
    if (!n.function.binary || k < 2) {
      step.in[k] = l;
      continue;
    }
    emit(step);
    step.in = {step.out, l, {}};
    step.out = new_register(bytes, n.extent);
  }
  values_[index] = step.out;
  emit(std::move(step));
}

void TileLowering::lower_uniform(const Instruction& n, uint32_t index) {
  TileLocation& value = values_[index];
  value.base = tiles_.uniforms[program_.constants.size() + index].data();
  value.step = 0;
  TileStep step{.kind = map_kind(n.function), .extent = Extent::uniform, .function = n.function};
  step.out = value;
  for (size_t k = 0; k < n.arguments.size(); ++k) {
    Argument one = n.arguments[k];
    one.extent = Extent::uniform;
    const TileLocation l = operand(one, n);
    if (!n.function.binary || k < 2) {
      step.in[k] = l;
      continue;
    }
    tiles_.uniform_steps.push_back(step);
    step.in = {value, l, {}};
  }
  tiles_.uniform_steps.push_back(std::move(step));
}

void TileLowering::lower_total(const Instruction& n, uint32_t index) {
  const bool column = n.kind == Instruction::Kind::fold_column;
  TileStep step{.kind = column ? TileStep::Kind::fold_column : TileStep::Kind::fold_all,
                .extent = Extent::full,
                .bytes = static_cast<uint32_t>(size_of(n.dtype)),
                .period = n.period};
  if (column)
    step.fold_column = fold_column_function(n.dtype);
  else
    step.fold_all = fold_all_function(n.dtype);
  step.in[0] = side_by_side(n.arguments[0], n);
  const auto output = std::find(program_.outputs.begin(), program_.outputs.end(), index);
  step.index = static_cast<uint32_t>(tiles_.totals.size());
  tiles_.totals.push_back({.output = static_cast<size_t>(output - program_.outputs.begin()),
                           .fold = n.fold,
                           .dtype = n.dtype,
                           .elements = column ? n.period : 1,
                           .by_column = column});
  emit(std::move(step));
}

}  // namespace espalier
