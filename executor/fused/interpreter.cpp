#include "espalier/executor/fused/interpreter.h"

#include <algorithm>
#include <cstring>

#include "espalier/core/cpu/strided_loop.h"
#include "espalier/executor/fused/folds.h"

namespace espalier {

namespace {

constexpr int64_t tile_elements = 2048;
constexpr size_t alignment = 64;
constexpr int64_t large_output = int64_t{32} << 20;  // bytes

size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

template <class T>
void store(double value, char* to) {
  const T x = scalar::Cast<T>()(value);
  std::memcpy(to, &x, sizeof x);
}

}  // namespace

TileKernel::TileKernel(const Program& program, std::span<const Tensor* const> inputs,
                       std::span<Tensor* const> outputs)
    : program_(program), inputs_(inputs.begin(), inputs.end()), outputs_(outputs.begin(), outputs.end()) {
  choose_tiles(inputs);
  uniforms_.resize(program_.constants.size() + program_.instructions.size());
  for (size_t i = 0; i < program_.constants.size(); ++i)
    visit(program_.constants[i].dtype,
          [&]<class T>(TypeTag<T>) { store<T>(program_.constants[i].value, uniforms_[i].data()); });
  values_.resize(program_.instructions.size());
  for (uint32_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& n = program_.instructions[i];
    if (n.level == Level::uniform && n.kind == Instruction::Kind::map)
      emit_uniform(n, i);
    else
      emit(n, i);
  }
  write_outputs();
  place_registers();
  tile_cost_ = tile_rows_ * tile_columns_ * static_cast<int64_t>(steps_.size());
}

TileKernel::Collapsed TileKernel::collapse(const Layout& layout) {
  const Layout joined = collapsed(layout);
  Collapsed c{joined.shape.dims(), joined.strides};
  if (c.sizes.empty()) {
    c.sizes.push_back(1);
    c.strides.push_back(0);
  }
  return c;
}

/// Rows are those of the program, or else the longest pieces that every operand walks evenly.
void TileKernel::choose_tiles(std::span<const Tensor* const> inputs) {
  int64_t length = program_.row;
  if (!length) {
    length = program_.elements;
    const auto even = [&](int64_t candidate) {
      if (candidate > 1 && candidate < length && program_.elements % candidate == 0) length = candidate;
    };
    for (const Instruction& n : program_.instructions) {
      if (n.kind == Instruction::Kind::fold_column) even(n.period);
      if (n.level != Level::full) continue;
      for (const Argument& operand : n.arguments)
        if (operand.from == Argument::From::input && operand.level == Level::full) {
          const Collapsed c = collapse(broadcast_layout(inputs[operand.index]->layout(), n.shape));
          if (c.sizes.size() > 1) even(c.sizes.back());
        }
    }
  }
  columns_ = std::max<int64_t>(length, 1);
  rows_ = program_.elements / columns_;
  if (program_.row || columns_ <= tile_elements) {
    tile_columns_ = columns_;
    tile_rows_ = columns_ >= tile_elements / 4 ? 1 : std::max<int64_t>(1, tile_elements / columns_);
  } else {
    pieces_ = (columns_ + tile_elements - 1) / tile_elements;
    tile_columns_ = ((columns_ + pieces_ - 1) / pieces_ + 15) / 16 * 16;
    pieces_ = (columns_ + tile_columns_ - 1) / tile_columns_;
  }
  tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_ * pieces_;
}

int32_t TileKernel::new_register(size_t bytes, Level level) {
  registers_.push_back({bytes, level, INT64_MAX, -1});
  return static_cast<int32_t>(registers_.size()) - 1;
}

TileKernel::Location TileKernel::in_register(int32_t vreg) {
  Location l;
  l.vreg = vreg;
  return l;
}

void TileKernel::emit(Step step) {
  const auto now = static_cast<int64_t>(steps_.size());
  const auto use = [&](const Location& l) {
    if (l.vreg < 0) return;
    Register& r = registers_[static_cast<size_t>(l.vreg)];
    r.first = std::min(r.first, now);
    r.last = std::max(r.last, now);
  };
  for (const Location& l : step.in) use(l);
  use(step.out);
  steps_.push_back(std::move(step));
}

size_t TileKernel::operand_bytes(const Argument& operand) const {
  switch (operand.from) {
    case Argument::From::constant: return size_of(program_.constants[operand.index].dtype);
    case Argument::From::value: return size_of(program_.instructions[operand.index].dtype);
    case Argument::From::input: break;
  }
  return size_of(inputs_[operand.index]->dtype());
}

TileKernel::Location TileKernel::load(uint32_t input, Level level, const Shape& shape) {
  for (const Source& known : sources_)
    if (known.input == input && known.level == level && known.shape == shape) return known.location;
  const Tensor& tensor = *inputs_[input];
  const auto bytes = static_cast<int64_t>(size_of(tensor.dtype()));
  const Collapsed c = collapse(level == Level::uniform ? Layout() : broadcast_layout(tensor.layout(), shape));
  Location l;
  l.base = static_cast<char*>(const_cast<void*>(tensor.address()));
  const bool contiguous = c.sizes.size() == 1 && c.strides[0] == 1;
  if (level == Level::uniform || (c.sizes.size() == 1 && c.strides[0] == 0)) {
    l.step = 0;
  } else if (level == Level::row && contiguous) {
    l.row_stride = bytes;
  } else if (level == Level::full && contiguous) {
    l.row_stride = columns_ * bytes;
    l.column_stride = bytes;
  } else if (level == Level::full && tile_rows_ == 1 && c.sizes.size() == 2 && c.sizes[1] == columns_ &&
             (c.strides[1] == 0 || c.strides[1] == 1)) {
    l.row_stride = c.strides[0] * bytes;
    l.column_stride = c.strides[1] * bytes;
    l.step = c.strides[1];
  } else {
    Gather gather{l.base, c.sizes, c.strides};
    for (int64_t& stride : gather.strides) stride *= bytes;
    Step step{.kind = Step::Kind::gather, .level = level, .bytes = static_cast<uint32_t>(bytes)};
    step.gather = static_cast<uint32_t>(gathers_.size());
    gathers_.push_back(std::move(gather));
    step.out = l = in_register(new_register(static_cast<size_t>(bytes), level));
    emit(std::move(step));
  }
  sources_.push_back({input, level, shape, l});
  return l;
}

/// A row value for all elements of its row.
TileKernel::Location TileKernel::spread(const Location& row_value, size_t bytes) {
  if (row_value.step == 0) return row_value;
  if (tile_rows_ == 1) {
    Location l = row_value;
    l.step = 0;
    return l;
  }
  if (row_value.vreg >= 0)
    for (const auto& [vreg, location] : spreads_)
      if (vreg == row_value.vreg) return location;
  Step step{.kind = Step::Kind::spread, .level = Level::full, .bytes = static_cast<uint32_t>(bytes)};
  step.in[0] = row_value;
  step.out = in_register(new_register(bytes, Level::full));
  const Location l = step.out;
  emit(std::move(step));
  if (row_value.vreg >= 0) spreads_.emplace_back(row_value.vreg, l);
  return l;
}

TileKernel::Location TileKernel::operand(const Argument& operand, const Instruction& by) {
  Location l;
  switch (operand.from) {
    case Argument::From::constant:
      l.base = uniforms_[operand.index].data();
      l.step = 0;
      return l;
    case Argument::From::value: l = values_[operand.index]; break;
    case Argument::From::input: l = load(operand.index, operand.level, by.shape); break;
  }
  return operand.level == Level::row && by.level == Level::full ? spread(l, operand_bytes(operand)) : l;
}

/// For loops that read elements one after the other: a number that is repeated is written out.
TileKernel::Location TileKernel::side_by_side(const Argument& argument, const Instruction& by) {
  Instruction full = by;
  full.level = Level::full;
  const Location l = operand(argument, full);
  if (l.step == 1) return l;
  const size_t bytes = operand_bytes(argument);
  Step step{.kind = Step::Kind::fill, .level = Level::full, .bytes = static_cast<uint32_t>(bytes)};
  step.in[0] = l;
  step.out = in_register(new_register(bytes, Level::full));
  const Location filled = step.out;
  emit(std::move(step));
  return filled;
}

void TileKernel::emit_uniform(const Instruction& n, uint32_t index) {
  char* result = uniforms_[program_.constants.size() + index].data();
  Location& value = values_[index];
  value.base = result;
  value.step = 0;
  Step step{.kind = Step::Kind::unary, .level = Level::uniform, .function = n.function};
  step.out = value;
  for (size_t k = 0; k < n.arguments.size(); ++k) {
    Argument one = n.arguments[k];
    one.level = Level::uniform;
    const Location l = operand(one, n);
    if (n.function.binary && k > 1) {  // one more to fold in
      step.kind = Step::Kind::binary;
      uniform_steps_.push_back(step);
      step.in[0] = value;
      step.in[1] = l;
    } else {
      step.in[k] = l;
    }
  }
  step.kind = n.function.ternary  ? Step::Kind::ternary
              : n.function.binary ? Step::Kind::binary
                                  : Step::Kind::unary;
  uniform_steps_.push_back(step);
}

void TileKernel::emit(const Instruction& n, uint32_t index) {
  const size_t bytes = size_of(n.dtype);
  Step step{.kind = Step::Kind::unary, .level = n.level, .bytes = static_cast<uint32_t>(bytes)};
  switch (n.kind) {
    case Instruction::Kind::map: {
      step.function = n.function;
      Location result = in_register(new_register(bytes, n.level));
      std::array<Location, 3> in;
      for (size_t k = 0; k < n.arguments.size(); ++k) {
        const Location l = operand(n.arguments[k], n);
        if (!n.function.binary || k < 2) {
          in[k] = l;
          continue;
        }
        step.kind = Step::Kind::binary;
        step.in = in;
        step.out = result;
        emit(step);
        in = {result, l, {}};
        result = in_register(new_register(bytes, n.level));
      }
      step.kind = n.function.ternary  ? Step::Kind::ternary
                  : n.function.binary ? Step::Kind::binary
                                      : Step::Kind::unary;
      step.in = in;
      step.out = values_[index] = result;
      emit(std::move(step));
      return;
    }
    case Instruction::Kind::whole_row:
      step.kind = Step::Kind::whole_row;
      step.whole_row = n.whole_row;
      step.in[0] = side_by_side(n.arguments[0], n);
      step.out = values_[index] = in_register(new_register(bytes, n.level));
      emit(std::move(step));
      return;
    case Instruction::Kind::fold_row:
      step.kind = Step::Kind::fold_row;
      step.fold_row = fold_rows_function(n.fold, n.dtype);
      step.in[0] = side_by_side(n.arguments[0], n);
      step.out = values_[index] = in_register(new_register(bytes, Level::row));
      emit(std::move(step));
      return;
    case Instruction::Kind::fold_column:
    case Instruction::Kind::fold_all: {
      step.level = Level::full;
      const bool column = n.kind == Instruction::Kind::fold_column;
      step.kind = column ? Step::Kind::fold_column : Step::Kind::fold_all;
      step.period = n.period;
      if (column)
        step.fold_column = fold_column_function(n.dtype);
      else
        step.fold_all = fold_all_function(n.dtype);
      step.in[0] = side_by_side(n.arguments[0], n);
      Total total{index, 0, 0, column ? bytes * static_cast<size_t>(n.period) : sizeof(double)};
      for (size_t o = 0; o < program_.outputs.size(); ++o)
        if (program_.outputs[o] == index) total.output = o;
      step.gather = static_cast<uint32_t>(totals_.size());
      totals_.push_back(total);
      emit(std::move(step));
      return;
    }
  }
}

namespace {

bool overlaps(const Tensor& a, const Tensor& b) {
  const auto* x = static_cast<const char*>(a.address());
  const auto* y = static_cast<const char*>(b.address());
  return a.storage().get() == b.storage().get() && x < y + b.bytes() && y < x + a.bytes();
}

}  // namespace

/// Values that are outputs are computed where they belong, unless an input lies there which is read later.
void TileKernel::write_outputs() {
  for (size_t o = 0; o < program_.outputs.size(); ++o) {
    const uint32_t index = program_.outputs[o];
    const Instruction& n = program_.instructions[index];
    const int32_t vreg = values_[index].vreg;
    if (vreg < 0) continue;  // uniform, or a fold over the domain
    const auto bytes = static_cast<int64_t>(size_of(n.dtype));
    Location memory;
    memory.base = static_cast<char*>(outputs_[o]->address());
    memory.row_stride = n.level == Level::row ? bytes : columns_ * bytes;
    memory.column_stride = n.level == Level::row ? 0 : bytes;
    const int64_t written = registers_[static_cast<size_t>(vreg)].first;
    bool late = values_[index].base != nullptr;
    for (size_t s = 0; s < steps_.size(); ++s) {
      const auto reads = [&](const char* base) {
        for (const Tensor* input : inputs_)
          if (base == input->address() && overlaps(*input, *outputs_[o])) return true;
        return false;
      };
      // A loop over elements reads each before it writes it; one over whole rows may come back to them.
      const bool comes_back = n.kind == Instruction::Kind::whole_row && !n.op->can_run_in_place(0);
      if (static_cast<int64_t>(s) < written + !comes_back) continue;
      if (steps_[s].kind == Step::Kind::gather) late |= reads(gathers_[steps_[s].gather].base);
      for (const Location& l : steps_[s].in) late |= l.base && l.vreg < 0 && reads(l.base);
    }
    for (size_t before = 0; before < o; ++before) late |= program_.outputs[before] == index;
    // Large results go past the caches, which would first fetch what is there.
    const bool streams = static_cast<int64_t>(outputs_[o]->bytes()) >= large_output &&
                         n.level == Level::full &&
                         std::none_of(inputs_.begin(), inputs_.end(),
                                      [&](const Tensor* input) { return overlaps(*input, *outputs_[o]); });
    if (late || streams) {
      Step copy{.kind = streams ? Step::Kind::stream : Step::Kind::copy,
                .level = n.level,
                .bytes = static_cast<uint32_t>(bytes)};
      copy.in[0] = values_[index];
      copy.out = memory;
      emit(std::move(copy));
      continue;
    }
    // The register becomes the output's own memory.
    for (Step& step : steps_) {
      const auto move = [&](Location& l) {
        if (l.vreg != vreg) return;
        l.base = memory.base;
        l.row_stride = memory.row_stride;
        l.column_stride = memory.column_stride;
      };
      for (Location& l : step.in) move(l);
      move(step.out);
    }
    registers_[static_cast<size_t>(vreg)].bytes = 0;
    values_[index] = memory;
    values_[index].vreg = vreg;
  }
}

/// Registers whose lives do not meet share memory.
void TileKernel::place_registers() {
  struct Cell {
    size_t bytes, offset;
    Level level;
    int64_t free_from;
  };
  std::vector<Cell> cells;
  std::vector<size_t> offsets(registers_.size(), 0);
  std::vector<size_t> order;
  for (size_t r = 0; r < registers_.size(); ++r)
    if (registers_[r].bytes && registers_[r].last >= 0) order.push_back(r);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return registers_[a].first < registers_[b].first; });
  size_t end = 0;
  for (const size_t r : order) {
    const Register& reg = registers_[r];
    const Step& maker = steps_[static_cast<size_t>(reg.first)];
    // A loop over elements may write over what it reads last.
    const bool over = maker.kind == Step::Kind::unary || maker.kind == Step::Kind::binary ||
                      maker.kind == Step::Kind::ternary;
    Cell* free = nullptr;
    for (Cell& cell : cells)
      if (cell.bytes == reg.bytes && cell.level == reg.level &&
          cell.free_from + (over ? 0 : 1) <= reg.first) {
        free = &cell;
        break;
      }
    if (!free) {
      const int64_t count = reg.level == Level::row ? tile_rows_ : tile_rows_ * tile_columns_;
      cells.push_back({reg.bytes, end, reg.level, 0});
      end += aligned(reg.bytes * static_cast<size_t>(count));
      free = &cells.back();
    }
    free->free_from = reg.last;
    offsets[r] = free->offset;
  }
  for (Step& step : steps_) {
    for (Location& l : step.in)
      if (l.vreg >= 0) l.offset = offsets[static_cast<size_t>(l.vreg)];
    if (step.out.vreg >= 0) step.out.offset = offsets[static_cast<size_t>(step.out.vreg)];
  }
  totals_begin_ = end;
  for (Step& step : steps_)
    if (step.kind == Step::Kind::fold_column || step.kind == Step::Kind::fold_all) {
      Total& total = totals_[step.gather];
      total.offset = end;
      step.out.offset = end;
      end += aligned(total.bytes);
    }
  scratch_bytes_ = end;
}

void TileKernel::run_gather(const Gather& g, int64_t begin, int64_t count, uint32_t bytes, char* to) {
  const size_t outer = g.sizes.size() - 1;
  SmallVector<int64_t, 16> index(outer + 1, 0);
  const char* from = g.base;
  int64_t rest = begin;
  for (size_t i = outer + 1; i-- > 0;) {
    index[i] = rest % g.sizes[i];
    rest /= g.sizes[i];
    from += index[i] * g.strides[i];
  }
  const int64_t last = g.sizes[outer], stride = g.strides[outer];
  while (count > 0) {
    const int64_t n = std::min(count, last - index[outer]);
    gather_row(n, to, from, stride, bytes);
    to += n * bytes;
    count -= n;
    from -= index[outer] * stride;
    index[outer] = 0;
    for (size_t i = outer; i-- > 0;) {
      from += g.strides[i];
      if (++index[i] < g.sizes[i]) break;
      from -= g.sizes[i] * g.strides[i];
      index[i] = 0;
    }
  }
}

void TileKernel::run_step(const Step& s, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          char* scratch) {
  const int64_t n = s.level == Level::full ? rows * columns : s.level == Level::row ? rows : 1;
  const auto in = [&](size_t k) { return s.in[k].at(row, column, scratch); };
  char* out = s.out.at(row, column, scratch);
  switch (s.kind) {
    case Step::Kind::unary: return s.function.unary(n, out, in(0), s.in[0].step);
    case Step::Kind::binary: return s.function.binary(n, out, in(0), s.in[0].step, in(1), s.in[1].step);
    case Step::Kind::ternary:
      return s.function.ternary(n, out, in(0), s.in[0].step, in(1), s.in[1].step, in(2), s.in[2].step);
    case Step::Kind::whole_row: {
      const char* from = in(0);
      for (int64_t r = 0; r < rows; ++r, from += columns * s.bytes, out += columns * s.bytes)
        s.whole_row(columns, out, from, 1);
      return;
    }
    case Step::Kind::fold_row: return s.fold_row(rows, columns, out, in(0));
    case Step::Kind::fold_all: return s.fold_all(n, reinterpret_cast<double*>(out), in(0));
    case Step::Kind::spread: {
      const char* from = in(0);
      for (int64_t r = 0; r < rows; ++r, from += s.bytes, out += columns * s.bytes)
        gather_row(columns, out, from, 0, s.bytes);
      return;
    }
    case Step::Kind::stream: stream_row(static_cast<size_t>(n) * s.bytes, out, in(0)); return;
    case Step::Kind::fill: return gather_row(n, out, in(0), 0, s.bytes);
    case Step::Kind::copy: std::memcpy(out, in(0), static_cast<size_t>(n) * s.bytes); return;
    case Step::Kind::fold_column:
    case Step::Kind::gather: return;  // they need more than this; see run_tile
  }
}

void TileKernel::begin() {
  for (const Step& step : uniform_steps_) run_step(step, 0, 1, 0, 1, nullptr);
}

void TileKernel::clear(char* scratch) const {
  std::memset(scratch + totals_begin_, 0, scratch_bytes_ - totals_begin_);
}

void TileKernel::run_tile(int64_t tile, char* scratch) const {
  const int64_t row = tile / pieces_ * tile_rows_, column = tile % pieces_ * tile_columns_;
  const int64_t rows = std::min(tile_rows_, rows_ - row);
  const int64_t columns = std::min(tile_columns_, columns_ - column);
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::gather) {
      const bool full = step.level == Level::full;
      run_gather(gathers_[step.gather], full ? row * columns_ + column : row, full ? rows * columns : rows,
                 step.bytes, scratch + step.out.offset);
    } else if (step.kind == Step::Kind::fold_column) {
      step.fold_column((row * columns_ + column) % step.period, step.period, rows * columns,
                       scratch + step.out.offset, step.in[0].at(row, column, scratch));
    } else {
      run_step(step, row, rows, column, columns, scratch);
    }
  }
}

void TileKernel::finish(std::span<char* const> scratches) {
  for (const Total& total : totals_) {
    const Instruction& n = program_.instructions[total.instruction];
    const bool column = n.kind == Instruction::Kind::fold_column;
    const int64_t size = column ? n.period : 1;
    const double count =
        n.fold == Fold::mean ? static_cast<double>(program_.elements) / static_cast<double>(size) : 1;
    visit(n.dtype, [&]<class T>(TypeTag<T>) {
      T* out = static_cast<T*>(outputs_[total.output]->address());
      for (int64_t i = 0; i < size; ++i) {
        double sum = 0;
        for (const char* scratch : scratches)
          sum += column ? static_cast<double>(reinterpret_cast<const T*>(scratch + total.offset)[i])
                        : *reinterpret_cast<const double*>(scratch + total.offset);
        out[i] = static_cast<T>(sum / count);
      }
    });
  }
  for (size_t o = 0; o < program_.outputs.size(); ++o) {
    const uint32_t index = program_.outputs[o];
    const Instruction& n = program_.instructions[index];
    if (n.level == Level::uniform && n.kind == Instruction::Kind::map)
      std::memcpy(outputs_[o]->address(), values_[index].base, size_of(n.dtype));
  }
}

int64_t threads_for_tiles(int64_t cost, int64_t tiles) {
  constexpr int64_t worth_a_thread = 64 * 1024;
  return std::clamp<int64_t>(std::min<int64_t>(num_threads(), cost / worth_a_thread), 1,
                             std::max<int64_t>(tiles, 1));
}

TileScratch::TileScratch(size_t bytes, int64_t threads)
    : memory_({std::max<int64_t>(1, threads * static_cast<int64_t>(aligned(bytes)))}, DType::boolean) {
  for (int64_t t = 0; t < threads; ++t)
    parts_.push_back(static_cast<char*>(memory_.address()) + t * static_cast<int64_t>(aligned(bytes)));
}

namespace {

class BoundTiles : public BoundKernel {
 public:
  explicit BoundTiles(std::vector<TileKernel> kernels) : kernels_(std::move(kernels)) {
    size_t bytes = 0;
    int64_t cost = 0;
    for (const TileKernel& kernel : kernels_) {
      bytes = std::max(bytes, kernel.scratch_bytes());
      ends_.push_back(tiles_ += kernel.tiles());
      cost += kernel.tiles() * kernel.tile_cost();
    }
    threads_ = threads_for_tiles(cost, tiles_);
    scratch_ = TileScratch(bytes, threads_);
  }

  void run(RandomStream) override {
    for (TileKernel& kernel : kernels_) kernel.begin();
    parallel_for(threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) work(t);
    });
    for (TileKernel& kernel : kernels_) kernel.finish(scratch_.all());
  }

 private:
  void work(int64_t thread) const {
    char* scratch = scratch_.of(thread);
    if (kernels_.size() == 1) kernels_[0].clear(scratch);
    const int64_t begin = tiles_ * thread / threads_, end = tiles_ * (thread + 1) / threads_;
    size_t k = 0;
    for (int64_t tile = begin; tile < end; ++tile) {
      while (tile >= ends_[k]) ++k;
      kernels_[k].run_tile(tile - (k ? ends_[k - 1] : 0), scratch);
    }
    stream_fence();
  }

  std::vector<TileKernel> kernels_;
  std::vector<int64_t> ends_;
  int64_t tiles_ = 0, threads_ = 1;
  TileScratch scratch_;
};

}  // namespace

std::unique_ptr<BoundKernel> bind_tiles(std::vector<TileKernel> kernels) {
  return std::make_unique<BoundTiles>(std::move(kernels));
}

}  // namespace espalier
