// Recurrent layers and their gradients: a loop over steps and rows, with the equations of nn/cells.h.
#include "espalier/ops/recurrent/recurrence_call.h"

#include <tuple>

#include "espalier/executor/c_export/emitters.h"
#include "espalier/executor/c_export/scalar_text.h"

namespace espalier::c_export {

namespace {

/// What both ops are, and where their operands are.
struct Recurrence {
  std::string cell;
  bool lstm, gru, bias, lengths, reverse;
  int64_t steps, batch, width, hidden;
  size_t biases_at, lengths_at, behind;  ///< behind them come the outputs of the op, for its gradient

  explicit Recurrence(const Function& f)
      : cell(attribute<std::string>(f.op(), "cell")),
        lstm(cell == name(RecurrentCell::lstm)),
        gru(cell == name(RecurrentCell::gru)),
        bias(attribute<bool>(f.op(), "bias")),
        lengths(has_lengths(f.op())),
        reverse(attribute<bool>(f.op(), "reverse")) {
    if (lengths)
      f.only({DType::float32, DType::int64});
    else
      f.only({DType::float32});
    if (!attribute<std::vector<int64_t>>(f.op(), "batch_sizes").empty())
      f.refuse("there is no C code for packed sequences");
    steps = f.input_shape(0)[0];
    batch = f.input_shape(0)[1];
    width = f.input_shape(1)[0];
    hidden = f.input_shape(1)[1];
    biases_at = lstm ? 4 : 3;
    lengths_at = biases_at + (bias ? 2 : 0);
    behind = lengths_at + (lengths ? 1 : 0);
  }
  bool has_gates() const { return lstm || gru; }
};

void zero_row(Function& f, std::string_view row, int64_t width) {
  f.line(fmt::format("for (long j = 0; j < {}; ++j) {}[j] = 0;", width, row));
}

class RecurrenceText {
 public:
  explicit RecurrenceText(Function& f) : f_(f), r_(f), cell_(r_.cell), hidden_(r_.hidden) {}

  void run() {
    const auto [steps, batch, width] = std::tuple(r_.steps, r_.batch, r_.width);
    const bool lstm = r_.lstm, bias = r_.bias, lengths = r_.lengths;
    keeps_ = r_.has_gates() && attribute<bool>(f_.op(), "keeps");
    const std::string x = f_.dense(0), weight = f_.dense(1), y = f_.out(0), h = f_.out(1),
                      sums = f_.scratch(width, DType::float32);
    begin_state(h, f_.dense(2), batch);
    if (lstm) begin_state(c_ = f_.out(2), f_.dense(3), batch);
    if (bias) of_x_ = f_.dense(r_.biases_at), of_h_ = f_.dense(r_.biases_at + 1);
    const std::string ends = lengths ? f_.dense(r_.lengths_at) : "";
    const size_t gates_at = lstm ? 3 : 2;
    const std::string gates = keeps_ ? f_.out(gates_at) : "", memory = keeps_ ? f_.out(gates_at + 1) : "";
    f_.loop("step", steps);
    f_.loop("b", batch);
    f_.line(r_.reverse ? fmt::format("const long at = ({} - step) * {} + b;", steps - 1, batch)
                       : fmt::format("const long at = step * {} + b;", batch));
    f_.line(fmt::format("const float *row = {} + at * {};", x, width));
    f_.line(fmt::format("float *to = {} + at * {};", y, hidden_));
    if (keeps_)
      f_.line(
          fmt::format("float *gate = {} + at * {}, *memory = {} + at * {};", gates, width, memory, hidden_));
    if (lengths) {  // behind the end of a sequence
      f_.open(fmt::format("if (at / {} >= {}[b])", batch, ends));
      zero_row(f_, "to", hidden_);
      if (keeps_) zero_row(f_, "gate", width), zero_row(f_, "memory", hidden_);
      f_.line("continue;");
      f_.close();
    }
    f_.line(fmt::format("float *state = {} + b * {};", h, hidden_));
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
      keep({"in", "kept", "fresh", "shown"}, "cell[j]");
    } else if (cell_ == name(RecurrentCell::gru)) {
      define("reset", "sigmoid", sum(0));
      define("kept", "sigmoid", sum(1));
      define("fresh", "tanh", fmt::format("{} + reset * {}", of_x(2), of_h(2)));
      f_.line("state[j] = fresh + kept * (state[j] - fresh);");
      keep({"reset", "kept", "fresh"}, of_h(2));
    } else {
      f_.line(fmt::format("const float total = {};", sum(0)));
      define("next", cell_ == name(RecurrentCell::tanh) ? "tanh" : "relu", "total");
      f_.line("state[j] = next;");
    }
  }

  /// What the gradient needs.
  void keep(std::initializer_list<const char*> gates, const std::string& memory) {
    if (!keeps_) return;
    int64_t at = 0;
    for (const char* gate : gates) {
      f_.line(fmt::format("gate[j + {}] = {};", at, gate));
      at += hidden_;
    }
    f_.line(fmt::format("memory[j] = {};", memory));
  }

  Function& f_;
  const Recurrence r_;
  std::string cell_, c_, of_x_, of_h_, sums_;
  int64_t hidden_;
  bool keeps_ = false;
};

/// From the last step to the first.
class RecurrenceGradientText {
 public:
  explicit RecurrenceGradientText(Function& f) : f_(f), r_(f) {}

  void run() {
    const int64_t width = r_.width, hidden = r_.hidden, given = attribute<int64_t>(f_.op(), "given");
    size_t at = r_.behind;
    const std::string weight = f_.dense(1), h = f_.dense(2), c = r_.lstm ? f_.dense(3) : "",
                      ends = r_.lengths ? f_.dense(r_.lengths_at) : "", states = f_.dense(at++),
                      gates = r_.has_gates() ? f_.dense(at++) : "",
                      memory = r_.has_gates() ? f_.dense(at++) : "";
    const std::string of_states = given & given_h ? f_.dense(at++) : "";
    begin_gradient(f_.out(1), given & given_last_h ? f_.dense(at++) : "");
    if (r_.lstm) begin_gradient(f_.out(2), given & given_last_c ? f_.dense(at++) : "");
    const size_t before_at = r_.lstm ? 3 : 2;
    const std::string of_x = f_.out(0), before = f_.out(before_at),
                      of_sums = r_.gru ? f_.out(before_at + 1) : "",
                      sums = f_.scratch(hidden, DType::float32);
    f_.loop("back", r_.steps);
    f_.loop("b", r_.batch);
    f_.line(fmt::format("const long t = {};", r_.reverse ? "back" : fmt::format("{} - back", r_.steps - 1)));
    f_.line(fmt::format("const long at = t * {} + b;", r_.batch));
    f_.line(fmt::format("float *to = {} + at * {}, *begin = {} + at * {};", of_x, width, before, hidden));
    if (r_.gru) f_.line(fmt::format("float *to_sums = {} + at * {};", of_sums, width));
    if (r_.lengths) {  // behind the end of a sequence
      f_.open(fmt::format("if (t >= {}[b])", ends));
      zero_row(f_, "to", width);
      if (r_.gru) zero_row(f_, "to_sums", width);
      zero_row(f_, "begin", hidden);
      f_.line("continue;");
      f_.close();
    }
    // Where the state before is: of the step before, or given.
    std::string is_first = fmt::format("back == {}", r_.steps - 1);
    if (r_.lengths && r_.reverse) is_first += fmt::format(" || t + 1 >= {}[b]", ends);
    f_.line(fmt::format("const int first = {};", is_first));
    const auto step_before = [&](const char* name, const std::string& start, const std::string& steps) {
      f_.line(fmt::format("const float *{0} = first ? {1} + b * {2} : {3} + (at {4} {5}) * {2};", name, start,
                          hidden, steps, r_.reverse ? "+" : "-", r_.batch));
    };
    step_before("state", h, states);
    if (r_.lstm) step_before("cell", c, memory);
    if (r_.has_gates())
      f_.line(fmt::format("const float *gate = {} + at * {}, *memory = {} + at * {};", gates, width, memory,
                          hidden));
    f_.line(fmt::format("float *dh = {} + b * {};", f_.out(1), hidden));
    if (r_.lstm) f_.line(fmt::format("float *dc = {} + b * {};", f_.out(2), hidden));
    f_.loop("j", hidden);
    f_.line("begin[j] = state[j];");
    f_.line(of_states.empty()
                ? "const float arrived = dh[j];"
                : fmt::format("const float arrived = dh[j] + {}[at * {} + j];", of_states, hidden));
    write_unit(fmt::format("{}[at * {} + j]", states, hidden));
    f_.close();
    zero_row(f_, sums, hidden);
    f_.loop("k", width);
    f_.line(fmt::format("for (long j = 0; j < {0}; ++j) {1}[j] += {2}[k] * {3}[k * {0} + j];", hidden, sums,
                        r_.gru ? "to_sums" : "to", weight));
    f_.close();
    f_.line(fmt::format("for (long j = 0; j < {}; ++j) dh[j] {} {}[j];", hidden, r_.gru ? "+=" : "=", sums));
    f_.close(2);
  }

 private:
  void begin_gradient(const std::string& to, const std::string& from) {
    f_.loop("k", r_.batch * r_.hidden);
    f_.line(fmt::format("{}[k] = {};", to, from.empty() ? "0" : from + "[k]"));
    f_.close();
  }
  void read_gates(std::initializer_list<const char*> names) {
    int64_t at = 0;
    for (const char* name : names) {
      f_.line(fmt::format("const float {} = gate[j + {}];", name, at));
      at += r_.hidden;
    }
  }
  void put(std::string_view row, int64_t gate, std::string_view value) {
    f_.line(fmt::format("{}[j + {}] = {};", row, gate * r_.hidden, value));
  }
  void write_unit(const std::string& after) {
    if (r_.lstm) {
      read_gates({"in", "kept", "fresh", "shown"});
      f_.line("const float shown_cell = tanhf(memory[j]);");
      f_.line("const float of_cell = dc[j] + arrived * shown * (1 - shown_cell * shown_cell);");
      put("to", 0, "of_cell * fresh * in * (1 - in)");
      put("to", 1, "of_cell * cell[j] * kept * (1 - kept)");
      put("to", 2, "of_cell * in * (1 - fresh * fresh)");
      put("to", 3, "arrived * shown_cell * shown * (1 - shown)");
      f_.line("dc[j] = of_cell * kept;");
    } else if (r_.gru) {
      read_gates({"reset", "kept", "fresh"});
      f_.line("const float of_fresh = arrived * (1 - kept) * (1 - fresh * fresh);");
      f_.line("const float of_reset = of_fresh * memory[j] * reset * (1 - reset);");
      f_.line("const float of_kept = arrived * (state[j] - fresh) * kept * (1 - kept);");
      put("to", 0, "of_reset"), put("to", 1, "of_kept"), put("to", 2, "of_fresh");
      put("to_sums", 0, "of_reset"), put("to_sums", 1, "of_kept"), put("to_sums", 2, "of_fresh * reset");
      f_.line("dh[j] = arrived * kept;");
    } else {
      f_.line(fmt::format("const float after = {};", after));
      put("to", 0,
          r_.cell == name(RecurrentCell::tanh) ? "arrived * (1 - after * after)" : "after > 0 ? arrived : 0");
    }
  }

  Function& f_;
  const Recurrence r_;
};

}  // namespace

void write_recurrence(Function& f) { RecurrenceText(f).run(); }

void write_recurrence_gradient(Function& f) { RecurrenceGradientText(f).run(); }

void write_checked_lengths(Function& f) {
  const std::string given = f.dense(0), to = f.out();
  f.loop("b", f.output_shape().elements());
  f.fail_if(fmt::format("{0}[b] < 0 || {0}[b] > {1}", given, f.input_shape(1)[0]));
  if (given != to) f.line(fmt::format("{}[b] = {}[b];", to, given));
  f.close();
}

}  // namespace espalier::c_export
