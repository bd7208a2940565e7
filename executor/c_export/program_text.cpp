#include "espalier/executor/c_export/program_text.h"

#include <algorithm>

#include "espalier/executor/c_export/scalar_text.h"

namespace espalier::c_export {

namespace {

using Kind = Instruction::Kind;

/// The loops over rows and columns, and in which of a row's loops each value is computed.
class ProgramText {
 public:
  ProgramText(Function& f, const Program& program) : f_(f), program_(program) {}

  void run() {
    if (program_.elements == 0) return;
    choose_columns();
    find_loops();
    for (uint32_t i = 0; i < count(); ++i) begin_total(i);
    for (uint32_t i = 0; i < count(); ++i)
      if (instruction(i).kind == Kind::map && instruction(i).extent == Extent::uniform) define(i, "0", "0");
    if (rows_ > 1) f_.loop("r", rows_);
    for (loop_ = 0; loop_ < loops_; ++loop_) write_loop();
    write_row_values(loops_);
    for (size_t k = 0; k < program_.outputs.size(); ++k)
      if (is_row_value(program_.outputs[k]))
        f_.line(fmt::format("{}[{}] = v{};", f_.out(k), row(), program_.outputs[k]));
    if (rows_ > 1) f_.close();
    end_totals();
  }

 private:
  const Instruction& instruction(uint32_t i) const { return program_.instructions[i]; }
  uint32_t count() const { return static_cast<uint32_t>(program_.instructions.size()); }
  std::string row() const { return rows_ > 1 ? "r" : "0"; }
  bool is_row_fold(uint32_t i) const { return instruction(i).kind == Kind::fold_row; }
  bool is_row_value(uint32_t i) const {
    return is_row_fold(i) || (instruction(i).kind == Kind::map && instruction(i).extent == Extent::row);
  }
  bool is_total(uint32_t i) const {
    return instruction(i).kind == Kind::fold_column || instruction(i).kind == Kind::fold_all;
  }
  bool is_full(uint32_t i) const {
    const Instruction& n = instruction(i);
    return n.kind == Kind::whole_row || (n.kind == Kind::map && n.extent == Extent::full);
  }
  Axes axes_of(const Argument& a, const Instruction& by) const {
    return join_axes(by.shape, {broadcast_layout(f_.layout(a.index), by.shape).strides});
  }

  /// The rows of the program, or the longest runs in which no operand changes its stride.
  void choose_columns() {
    columns_ = program_.row ? program_.row : program_.elements;
    const auto even = [&](int64_t length) {
      if (!program_.row && length > 1 && length < columns_ && program_.elements % length == 0)
        columns_ = length;
    };
    for (const Instruction& n : program_.instructions) {
      if (n.kind == Kind::fold_column) even(n.period);
      if (n.kind == Kind::map && n.extent != Extent::full) continue;
      for (const Argument& a : n.arguments)
        if (a.from == Argument::From::input && a.extent == Extent::full) {
          const Axes axes = axes_of(a, n);
          if (axes.sizes.size() > 1) even(axes.sizes.back());
        }
    }
    rows_ = program_.elements / columns_;
  }

  /// A value of a row is there before the loop of its number, an element within it.
  void find_loops() {
    loop_of_.resize(count());
    for (uint32_t i = 0; i < count(); ++i) {
      const Instruction& n = instruction(i);
      int at = 0;
      for (const Argument& a : n.arguments)
        if (a.from == Argument::From::value) at = std::max(at, loop_of_[a.index]);
      loop_of_[i] = n.kind == Kind::fold_row || n.kind == Kind::whole_row ? at + 1 : at;
      if (is_full(i) || is_total(i)) loops_ = std::max(loops_, at + 1);
      if (n.kind == Kind::fold_row) loops_ = std::max(loops_, at + 1);
      if (n.kind == Kind::whole_row) loops_ = std::max(loops_, at + 2);
    }
    carried_.assign(count(), false);
    const auto carry = [&](uint32_t value, int loop) {
      if (is_full(value) && instruction(value).kind == Kind::map && loop_of_[value] < loop)
        carried_[value] = true;
    };
    for (uint32_t i = 0; i < count(); ++i)
      for (const Argument& a : instruction(i).arguments)
        if (a.from == Argument::From::value && reads_columns(i)) carry(a.index, loop_in(i));
    for (const uint32_t output : program_.outputs) carry(output, loops_ - 1);
    for (uint32_t i = 0; i < count(); ++i) {
      if (instruction(i).kind != Kind::whole_row) continue;
      if (const Argument& a = instruction(i).arguments[0];
          a.from == Argument::From::value && is_full(a.index))
        carried_[a.index] = true;
    }
    for (uint32_t i = 0; i < count(); ++i)
      if (carried_[i] || instruction(i).kind == Kind::whole_row)
        buffers_[i] = f_.scratch(columns_, instruction(i).dtype);
  }
  bool reads_columns(uint32_t i) const { return is_full(i) || is_row_fold(i) || is_total(i); }
  /// The loop in which an instruction reads its operands.
  int loop_in(uint32_t i) const {
    const Kind kind = instruction(i).kind;
    return kind == Kind::fold_row || kind == Kind::whole_row ? loop_of_[i] - 1 : loop_of_[i];
  }

  DType type_of(const Argument& a) const {
    switch (a.from) {
      case Argument::From::constant: return program_.constants[a.index].dtype;
      case Argument::From::value: return instruction(a.index).dtype;
      case Argument::From::input: break;
    }
    return f_.input_spec(a.index).dtype;
  }

  /// The position in a tensor of the element that has that row and column.
  std::string place(const Axes& axes, std::string_view r, std::string_view c) const {
    std::string text;
    const auto add = [&](std::string_view index, int64_t divisor, int64_t size, int64_t stride,
                         bool outermost) {
      if (stride == 0 || index == "0") return;
      if (!text.empty()) text += " + ";
      text += index;
      if (divisor != 1) text += fmt::format(" / {}", divisor);
      if (!outermost) text += fmt::format(" % {}", size);
      if (stride != 1) text += fmt::format(" * {}", stride);
    };
    const size_t n = axes.sizes.size();
    const Dims& strides = axes.strides[0];
    if (axes.sizes[n - 1] % columns_ == 0) {  // a row lies in the last axis
      int64_t divisor = 1;
      std::vector<std::pair<int64_t, int64_t>> parts;  // sizes and strides, counted in rows
      parts.emplace_back(axes.sizes[n - 1] / columns_, strides[n - 1] * columns_);
      for (size_t i = n - 1; i-- > 0;) parts.emplace_back(axes.sizes[i], strides[i]);
      for (size_t i = 0; i < parts.size(); divisor *= parts[i].first, ++i)
        if (parts[i].first > 1) add(r, divisor, parts[i].first, parts[i].second, i + 1 == parts.size());
      add(c, 1, columns_, strides[n - 1], true);
    } else {
      const std::string element = r == "0" ? std::string(c) : fmt::format("({} * {} + {})", r, columns_, c);
      int64_t divisor = 1;
      for (size_t i = n; i-- > 0; divisor *= axes.sizes[i])
        add(element, divisor, axes.sizes[i], strides[i], i == 0);
    }
    return text.empty() ? "0" : text;
  }

  std::string operand(const Argument& a, const Instruction& by, std::string_view r, std::string_view c) {
    switch (a.from) {
      case Argument::From::constant:
        return literal(program_.constants[a.index].value, program_.constants[a.index].dtype);
      case Argument::From::value: return fmt::format("v{}", a.index);
      case Argument::From::input: break;
    }
    const std::string from = f_.in(a.index);
    if (a.extent == Extent::uniform) return fmt::format("{}[0]", from);
    if (a.extent == Extent::row) {
      Axes axes = axes_of(a, by);
      std::string at;
      int64_t divisor = 1;
      for (size_t i = axes.sizes.size(); i-- > 0; divisor *= axes.sizes[i]) {
        if (axes.strides[0][i] == 0 || rows_ == 1) continue;
        at += at.empty() ? "" : " + ";
        at += "r";
        if (divisor != 1) at += fmt::format(" / {}", divisor);
        if (i != 0) at += fmt::format(" % {}", axes.sizes[i]);
        if (axes.strides[0][i] != 1) at += fmt::format(" * {}", axes.strides[0][i]);
      }
      return fmt::format("{}[{}]", from, at.empty() ? "0" : at);
    }
    return fmt::format("{}[{}]", from, place(axes_of(a, by), r, c));
  }

  /// const T v3 = …;
  void define(uint32_t i, std::string_view r, std::string_view c) {
    const Instruction& n = instruction(i);
    std::vector<std::string> operands;
    for (size_t k = 0; k < n.arguments.size(); ++k) {
      std::string text = operand(n.arguments[k], n, r, c);
      if (text.find('[') != std::string::npos) {  // formulas name operands several times
        const std::string name = fmt::format("a{}_{}", i, k);
        f_.line(fmt::format("const {} {} = {};", c_type(type_of(n.arguments[k])), name, text));
        text = name;
      }
      operands.push_back(std::move(text));
    }
    f_.line(fmt::format("const {} v{} = {};", c_type(n.dtype), i, expression(n, operands)));
  }
  std::string expression(const Instruction& n, const std::vector<std::string>& operands) {
    const DType from = type_of(n.arguments.back());
    const auto text = [&](std::span<const std::string> some) {
      auto found = scalar_text(n.op->name(), from, n.dtype, some, f_.helpers());
      if (!found) f_.refuse(fmt::format("there is no C code for '{}' of {}", n.op->name(), name(from)));
      return *found;
    };
    // Binary functions of more operands are folded from the left.
    if (!n.function.binary || operands.size() <= 2) return text(operands);
    std::string folded = text(std::span(operands).first(2));
    for (size_t k = 2; k < operands.size(); ++k) folded = text(std::vector<std::string>{folded, operands[k]});
    return folded;
  }

  void write_row_values(int loop) {
    for (uint32_t i = 0; i < count(); ++i)
      if (instruction(i).kind == Kind::map && instruction(i).extent == Extent::row && loop_of_[i] == loop)
        define(i, row(), "0");
  }

  void write_loop() {
    write_row_values(loop_);
    for (uint32_t i = 0; i < count(); ++i)
      if (is_row_fold(i) && loop_in(i) == loop_) begin_row_fold(i);
    f_.loop("c", columns_);
    loaded_.assign(count(), false);
    for (uint32_t i = 0; i < count(); ++i) {
      if (!reads_columns(i) || loop_in(i) != loop_) continue;
      for (const Argument& a : instruction(i).arguments) load(a);
      if (instruction(i).kind == Kind::map) {
        define(i, row(), "c");
        if (carried_[i]) f_.line(fmt::format("{}[c] = v{};", buffers_.at(i), i));
      } else if (instruction(i).kind == Kind::whole_row) {
        const Instruction& n = instruction(i);
        if (!row_source(i))
          f_.line(fmt::format("{}[c] = {};", buffers_.at(i), operand(n.arguments[0], n, row(), "c")));
      } else {
        add_to_fold(i);
      }
    }
    if (loop_ == loops_ - 1)
      for (size_t k = 0; k < program_.outputs.size(); ++k)
        if (const uint32_t i = program_.outputs[k]; is_full(i)) {
          load({Argument::From::value, i, Extent::full});
          const std::string at = rows_ > 1 ? fmt::format("r * {} + c", columns_) : "c";
          f_.line(fmt::format("{}[{}] = v{};", f_.out(k), at, i));
        }
    f_.close();
    for (uint32_t i = 0; i < count(); ++i) {
      if (loop_in(i) != loop_) continue;
      if (is_row_fold(i) && instruction(i).fold == Fold::mean)
        f_.line(fmt::format("v{} /= {};", i, columns_));
      if (instruction(i).kind == Kind::whole_row) {
        const auto source = row_source(i);
        f_.line(fmt::format("{}({}, {}, {});",
                            softmax_function(f_, instruction(i).op->name(), instruction(i).dtype), columns_,
                            buffers_.at(i), source ? *source : "0"));
      }
    }
  }
  /// The buffer that an instruction over whole rows reads; nothing if its own buffer has its operand.
  std::optional<std::string> row_source(uint32_t i) const {
    const Argument& a = instruction(i).arguments[0];
    if (a.from != Argument::From::value || !is_full(a.index)) return std::nullopt;
    return buffers_.at(a.index);
  }

  /// A value that an earlier loop has computed.
  void load(const Argument& a) {
    if (a.from != Argument::From::value || !is_full(a.index) || loaded_[a.index]) return;
    const bool here = instruction(a.index).kind == Kind::map && loop_of_[a.index] == loop_;
    if (!here)
      f_.line(fmt::format("const {} v{} = {}[c];", c_type(instruction(a.index).dtype), a.index,
                          buffers_.at(a.index)));
    loaded_[a.index] = true;
  }

  static std::string first_of(Fold fold, DType dtype) {
    if (fold == Fold::sum || fold == Fold::mean) return literal(0, dtype);
    return fold == Fold::max ? "-INFINITY" : "INFINITY";  // programs fold reals alone
  }
  static std::string folded(Fold fold, const std::string& total, const std::string& x) {
    if (fold == Fold::sum || fold == Fold::mean) return fmt::format("{} += {};", total, x);
    return fmt::format("{0} = {1} {2} {0} || {1} != {1} ? {1} : {0};", total, x,
                       fold == Fold::max ? ">" : "<");
  }
  void begin_row_fold(uint32_t i) {
    const Instruction& n = instruction(i);
    f_.line(fmt::format("{} v{} = {};", c_type(n.dtype), i, first_of(n.fold, n.dtype)));
  }
  std::string folded_operand(uint32_t i) {
    const Instruction& n = instruction(i);
    std::string text = operand(n.arguments[0], n, row(), "c");
    if (text.find('[') == std::string::npos) return text;
    f_.line(fmt::format("const {} a{} = {};", c_type(n.dtype), i, text));
    return fmt::format("a{}", i);
  }
  void add_to_fold(uint32_t i) {
    const Instruction& n = instruction(i);
    const std::string x = folded_operand(i);
    if (n.kind == Kind::fold_row) return f_.line(folded(n.fold, fmt::format("v{}", i), x));
    if (n.fold != Fold::sum && n.fold != Fold::mean) f_.refuse("it folds by more than sums");
    if (n.kind == Kind::fold_all) return f_.line(fmt::format("v{} += {};", i, x));
    f_.line(fmt::format("{}[{}] += {};", f_.out(output_of(i)), column_of(n.period), x));
  }
  std::string column_of(int64_t period) const {
    if (rows_ == 1) return period == columns_ ? "c" : fmt::format("c % {}", period);
    if (period == columns_) return "c";
    if (period % columns_ == 0) return fmt::format("r % {} * {} + c", period / columns_, columns_);
    return fmt::format("(r * {} + c) % {}", columns_, period);
  }
  size_t output_of(uint32_t i) const {
    return static_cast<size_t>(std::ranges::find(program_.outputs, i) - program_.outputs.begin());
  }

  void begin_total(uint32_t i) {
    const Instruction& n = instruction(i);
    if (n.kind == Kind::fold_all) begin_row_fold(i);
    if (n.kind != Kind::fold_column) return;
    f_.loop("c", n.period);
    f_.line(fmt::format("{}[c] = 0;", f_.out(output_of(i))));
    f_.close();
  }
  void end_totals() {
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const uint32_t i = program_.outputs[k];
      const Instruction& n = instruction(i);
      const int64_t folded = n.kind == Kind::fold_column ? program_.elements / n.period : program_.elements;
      if (n.kind == Kind::fold_all)
        f_.line(fmt::format("{}[0] = v{}{};", f_.out(k), i,
                            n.fold == Fold::mean ? fmt::format(" / {}", folded) : ""));
      if (n.kind == Kind::fold_column && n.fold == Fold::mean) {
        f_.loop("c", n.period);
        f_.line(fmt::format("{}[c] /= {};", f_.out(k), folded));
        f_.close();
      }
      if (n.kind == Kind::map && n.extent == Extent::uniform)
        f_.line(fmt::format("{}[0] = v{};", f_.out(k), i));
    }
  }

  Function& f_;
  const Program& program_;
  int64_t rows_ = 1, columns_ = 1;
  std::vector<int> loop_of_;
  int loops_ = 0, loop_ = 0;
  std::vector<bool> carried_, loaded_;
  std::map<uint32_t, std::string> buffers_;  // of rows, which a later loop reads
};

}  // namespace

void write_program(Function& f, const Program& program) { ProgramText(f, program).run(); }

void write_pointwise(Function& f) {
  Program program;
  program.elements = f.output_shape().elements();
  Instruction one;
  one.dtype = f.output_spec().dtype;
  one.shape = f.output_shape();
  for (uint32_t k = 0; k < f.inputs(); ++k) {
    if (!f.op().reads_elements(k)) continue;
    const bool uniform = f.input_shape(k).elements() == 1 && program.elements > 1;
    one.arguments.push_back({Argument::From::input, k, uniform ? Extent::uniform : Extent::full});
  }
  InputSpecs specs;
  for (size_t k = 0; k < f.inputs(); ++k) specs.push_back(&f.input_spec(k));
  one.function = f.op().loops(specs).row;
  one.op = OpPtr(OpPtr(), &f.op());
  program.instructions.push_back(std::move(one));
  program.outputs.push_back(0);
  write_program(f, program);
}

}  // namespace espalier::c_export
