// Softmax, cross-entropy and the place of the largest: functions of the rows along an axis.
#include <algorithm>

#include "espalier/executor/c_export/emitters.h"
#include "espalier/executor/c_export/indices.h"
#include "espalier/executor/c_export/program_text.h"

namespace espalier::c_export {

namespace {

constexpr const char* softmax_text =
    R"(/* y = softmax of n numbers x, or of y where x is 0. */
static void softmax(long n, float *y, const float *x) {
  float largest = -INFINITY, sum = 0;
  if (!x) x = y;
  for (long i = 0; i < n; ++i) largest = x[i] > largest || x[i] != x[i] ? x[i] : largest;
  for (long i = 0; i < n; ++i) y[i] = expf(x[i] - largest);
  for (long i = 0; i < n; ++i) sum += y[i];
  for (long i = 0; i < n; ++i) y[i] *= 1 / sum;
}
)";
constexpr const char* log_softmax_text =
    R"(/* y = logarithm of the softmax of n numbers x, or of y where x is 0. */
static void log_softmax(long n, float *y, const float *x) {
  float largest = -INFINITY, sum = 0;
  if (!x) x = y;
  for (long i = 0; i < n; ++i) largest = x[i] > largest || x[i] != x[i] ? x[i] : largest;
  for (long i = 0; i < n; ++i) sum += expf(x[i] - largest);
  sum = logf(sum);
  for (long i = 0; i < n; ++i) y[i] = x[i] - largest - sum;
}
)";

/// The loss is the negative log probability.
const char* sign_of(const Function& f) { return attribute<bool>(f.op(), "loss") ? "-" : ""; }

}  // namespace

std::string softmax_function(Function& f, std::string_view op, DType dtype) {
  if (dtype != DType::float32 || (op != "softmax" && op != "log_softmax"))
    f.refuse(fmt::format("there is no C code for '{}' of {}", op, name(dtype)));
  f.need(std::string(op), op == "softmax" ? softmax_text : log_softmax_text);
  return std::string(op);
}

void write_softmax(Function& f) {
  const std::string function = softmax_function(f, f.op().name(), f.output_spec().dtype);
  const int64_t n = f.output_shape()[-1], rows = f.output_shape().elements() / n;
  const std::string x = f.dense(0), y = f.out();
  f.loop("r", rows);
  f.line(fmt::format("{0}({1}, {2} + r * {1}, {3} + r * {1});", function, n, y, x));
  f.close();
}

void write_log_softmax_pick(Function& f) {
  f.only({DType::float32, DType::int32, DType::int64});
  const int64_t n = f.input_shape(0)[-1], rows = f.input_shape(0).elements() / n;
  const std::string x = f.dense(0), labels = f.dense(1), y = f.out(0), figures = f.out(1);
  f.loop("r", rows);
  f.line(fmt::format("const float *row = {} + r * {};", x, n));
  f.line("float largest = -INFINITY, sum = 0;");
  write_index(f, "at", fmt::format("{}[r]", labels), n, false);
  f.open(fmt::format("for (long i = 0; i < {}; ++i)", n));
  f.line("largest = row[i] > largest || row[i] != row[i] ? row[i] : largest;");
  f.close();
  f.line(fmt::format("for (long i = 0; i < {}; ++i) sum += expf(row[i] - largest);", n));
  f.line("sum = logf(sum);");
  f.line(fmt::format("{}[r] = {}(row[at] - largest - sum);", y, sign_of(f)));
  f.line(fmt::format("{}[2 * r] = largest;", figures));
  f.line(fmt::format("{}[2 * r + 1] = sum;", figures));
  f.close();
}

void write_log_softmax_pick_gradient(Function& f) {
  f.only({DType::float32, DType::int32, DType::int64});
  const int64_t n = f.input_shape(0)[-1], rows = f.input_shape(0).elements() / n;
  const bool one = f.layout(3).shape.elements() == 1 ||
                   std::ranges::all_of(f.layout(3).strides, [](int64_t stride) { return stride == 0; });
  const std::string x = f.dense(0), figures = f.dense(1), labels = f.dense(2), g = one ? f.in(3) : f.dense(3),
                    y = f.out();
  f.loop("r", rows);
  f.line(fmt::format("const float slope = {0}{1}[{2}], largest = {3}[2 * r], sum = {3}[2 * r + 1];",
                     sign_of(f), g, one ? "0" : "r", figures));
  write_index(f, "at", fmt::format("{}[r]", labels), n, false);
  f.loop("i", n);
  f.line(fmt::format("{0}[r * {1} + i] = -slope * expf({2}[r * {1} + i] - largest - sum);", y, n, x));
  f.close();
  f.line(fmt::format("{}[r * {} + at] += slope;", y, n));
  f.close();
}

}  // namespace espalier::c_export
