// Recurrent layers, forward: a loop over steps and rows, with the equations of nn/cells.h.
#include "espalier/ops/recurrent/recurrence_call.h"

#include "espalier/executor/c_export/emitters.h"
#include "espalier/executor/c_export/scalar_text.h"

namespace espalier::c_export {

namespace {

class RecurrenceText {
 public:
  explicit RecurrenceText(Function& f)
      : f_(f), cell_(attribute<std::string>(f.op(), "cell")), hidden_(f.input_shape(1)[1]) {}

  void run() {
    const bool lengths = has_lengths(f_.op());
    if (lengths)
      f_.only({DType::float32, DType::int64});
    else
      f_.only({DType::float32});
    // What is kept for gradients is not written: there is no C code for these.
    if (!attribute<std::vector<int64_t>>(f_.op(), "batch_sizes").empty())
      f_.refuse("there is no C code for packed sequences");
    const bool lstm = cell_ == name(RecurrentCell::lstm), bias = attribute<bool>(f_.op(), "bias");
    const int64_t steps = f_.input_shape(0)[0], batch = f_.input_shape(0)[1], width = f_.input_shape(1)[0];
    const std::string x = f_.dense(0), weight = f_.dense(1), y = f_.out(0), h = f_.out(1),
                      sums = f_.scratch(width, DType::float32);
    begin_state(h, f_.dense(2), batch);
    if (lstm) begin_state(c_ = f_.out(2), f_.dense(3), batch);
    const size_t biases_at = lstm ? 4 : 3;
    if (bias) of_x_ = f_.dense(biases_at), of_h_ = f_.dense(biases_at + 1);
    const std::string ends = lengths ? f_.dense(biases_at + (bias ? 2 : 0)) : "";
    f_.loop("step", steps);
    f_.loop("b", batch);
    f_.line(attribute<bool>(f_.op(), "reverse")
                ? fmt::format("const long at = ({} - step) * {} + b;", steps - 1, batch)
                : fmt::format("const long at = step * {} + b;", batch));
    f_.line(fmt::format("const float *row = {} + at * {};", x, width));
    if (lengths) {  // behind the end of a sequence
      f_.open(fmt::format("if (at / {} >= {}[b])", batch, ends));
      f_.line(fmt::format("for (long j = 0; j < {0}; ++j) {1}[at * {0} + j] = 0;", hidden_, y));
      f_.line("continue;");
      f_.close();
    }
    f_.line(fmt::format("float *state = {} + b * {}, *to = {} + at * {};", h, hidden_, y, hidden_));
    if (lstm) f_.line(fmt::format("float *cell = {} + b * {};", c_, hidden_));
    f_.loop("k", width);
    f_.line(bias ? fmt::format("float sum = {}[k];", of_h_) : "float sum = 0;");
    f_.line(
        fmt::format("for (long j = 0; j < {0}; ++j) sum += {1}[k * {0} + j] * state[j];", hidden_, weight));
    f_.line(fmt::format("{}[k] = sum;", sums));
    f_.close();
    f_.loop("j", hidden_);
    sums_ = sums;
    write_unit();
    f_.line("to[j] = state[j];");
    f_.close(3);
  }

 private:
  void begin_state(const std::string& to, const std::string& from, int64_t batch) {
    f_.loop("k", batch * hidden_);
    f_.line(fmt::format("{}[k] = {}[k];", to, from));
    f_.close();
  }
  /// A gate's product with the input, and with the state, each with its bias.
  std::string of_x(int gate) const {
    const std::string k = fmt::format("[j + {}]", gate * hidden_);
    return of_x_.empty() ? "row" + k : fmt::format("(row{0} + {1}{0})", k, of_x_);
  }
  std::string of_h(int gate) const { return fmt::format("{}[j + {}]", sums_, gate * hidden_); }
  std::string sum(int gate) const { return fmt::format("{} + {}", of_x(gate), of_h(gate)); }
  void define(std::string_view value, std::string_view function, const std::string& operand) {
    const std::vector<std::string> operands{operand};
    f_.line(fmt::format("const float {} = {};", value,
                        *scalar_text(function, DType::float32, DType::float32, operands, f_.helpers())));
  }
  /// The new state of unit j.
  void write_unit() {
    if (cell_ == name(RecurrentCell::lstm)) {
      define("in", "sigmoid", sum(0));
      define("kept", "sigmoid", sum(1));
      define("fresh", "tanh", sum(2));
      define("shown", "sigmoid", sum(3));
      f_.line("cell[j] = kept * cell[j] + in * fresh;");
      f_.line("state[j] = shown * tanhf(cell[j]);");
    } else if (cell_ == name(RecurrentCell::gru)) {
      define("reset", "sigmoid", sum(0));
      define("kept", "sigmoid", sum(1));
      define("fresh", "tanh", fmt::format("{} + reset * {}", of_x(2), of_h(2)));
      f_.line("state[j] = fresh + kept * (state[j] - fresh);");
    } else {
      f_.line(fmt::format("const float total = {};", sum(0)));
      define("next", cell_ == name(RecurrentCell::tanh) ? "tanh" : "relu", "total");
      f_.line("state[j] = next;");
    }
  }

  Function& f_;
  std::string cell_, c_, of_x_, of_h_, sums_;
  int64_t hidden_;
};

}  // namespace

void write_recurrence(Function& f) { RecurrenceText(f).run(); }

void write_checked_lengths(Function& f) {
  const std::string given = f.dense(0), to = f.out();
  f.loop("b", f.output_shape().elements());
  f.fail_if(fmt::format("{0}[b] < 0 || {0}[b] > {1}", given, f.input_shape(1)[0]));
  if (given != to) f.line(fmt::format("{}[b] = {}[b];", to, given));
  f.close();
}

}  // namespace espalier::c_export
