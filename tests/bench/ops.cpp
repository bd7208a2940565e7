// bench_ops: times single operations, as a driver asks (peer/pytorch/ops.py, which alternates with PyTorch).
// A line of standard input is "operation elements low high calls": the operands have so many elements,
// uniform from low to high in float32. It answers with the processor seconds of a call, on one thread.
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "espalier/espalier.h"

namespace {

using namespace espalier;

/// The operands of one size and range; operations choose.
struct Operands {
  Variable a, b;        // [n]
  Variable rows;        // a as [n / 64, 64]
  Variable mask;        // [n], bool
  Variable indices;     // [n], from 0 to n - 1, in random order with repetitions
  Variable row_places;  // [n / 64, 64], from 0 to 63
  Variable integers;    // [n], int64
  Variable classes;     // [n], from 0 to 999
};

Operands make(int64_t n, double low, double high) {
  const auto draw = [&](double from, double to) {
    return Variable((uniform({n}) * (to - from) + from).value());
  };
  Operands o;
  o.a = draw(low, high);
  o.b = draw(low, high);
  o.rows = Variable(reshape(o.a, {n / 64, 64}).value());
  o.mask = Variable(less(draw(0, 1), 0.5).value());
  o.indices = Variable(randint_like(o.a, 0, n).value());
  o.row_places = Variable(randint_like(o.rows, 0, 64).value());
  o.integers = Variable(randint_like(o.a, -1'000'000'000, 1'000'000'000).value());
  o.classes = Variable(randint_like(o.a, 0, 1000).value());
  return o;
}

using Timed = std::function<Variable(const Operands&)>;

std::map<std::string, Timed> table() {
  std::map<std::string, Timed> ops;
  const std::map<std::string, Variable (*)(const Operand&)> unary = {
      {"abs", abs},           {"acos", acos},
      {"acosh", acosh},       {"asin", asin},
      {"asinh", asinh},       {"atan", atan},
      {"atanh", atanh},       {"ceil", ceil},
      {"cos", cos},           {"cosh", cosh},
      {"digamma", digamma},   {"erf", erf},
      {"erfc", erfc},         {"erfinv", erfinv},
      {"exp", exp},           {"exp2", exp2},
      {"expm1", expm1},       {"floor", floor},
      {"gelu", gelu},         {"hardswish", hardswish},
      {"lgamma", lgamma},     {"log", log},
      {"log10", log10},       {"log1p", log1p},
      {"log2", log2},         {"mish", mish},
      {"negative", negative}, {"reciprocal", reciprocal},
      {"relu", relu},         {"round", round},
      {"rsqrt", rsqrt},       {"sigmoid", sigmoid},
      {"sign", sign},         {"silu", silu},
      {"sin", sin},           {"sinh", sinh},
      {"sqrt", sqrt},         {"square", square},
      {"tan", tan},           {"tanh", tanh},
      {"isnan", isnan},       {"frac", frac},
      {"trunc", trunc},       {"selu", selu},
      {"softsign", softsign}, {"log_sigmoid", log_sigmoid},
  };
  for (const auto& [name, f] : unary) ops[name] = [f = f](const Operands& o) { return f(o.a); };
  const std::map<std::string, Variable (*)(const Operand&, const Operand&)> binary = {
      {"add", add},
      {"multiply", multiply},
      {"divide", divide},
      {"maximum", maximum},
      {"power", power},
      {"atan2", atan2},
      {"hypot", hypot},
      {"fmod", fmod},
      {"remainder", remainder},
      {"logaddexp", logaddexp},
      {"less", less},
      {"equal", equal},
      {"xlogy", xlogy},
      {"floor_divide", floor_divide},
  };
  for (const auto& [name, f] : binary) ops[name] = [f = f](const Operands& o) { return f(o.a, o.b); };
  ops["where"] = [](const Operands& o) { return where(o.mask, o.a, o.b); };
  ops["clamp"] = [](const Operands& o) { return clamp(o.a, -1.0, 1.0); };
  ops["lerp"] = [](const Operands& o) { return lerp(o.a, o.b, 0.3); };
  ops["softplus"] = [](const Operands& o) { return softplus(o.a); };
  ops["elu"] = [](const Operands& o) { return elu(o.a); };

  ops["sum"] = [](const Operands& o) { return sum(o.a); };
  ops["sum_rows"] = [](const Operands& o) { return sum(o.rows, -1); };
  ops["sum_columns"] = [](const Operands& o) { return sum(o.rows, 0); };
  ops["mean"] = [](const Operands& o) { return mean(o.a); };
  ops["max"] = [](const Operands& o) { return max(o.a); };
  ops["max_rows"] = [](const Operands& o) { return max(o.rows, -1); };
  ops["prod"] = [](const Operands& o) { return prod(o.a); };
  ops["var"] = [](const Operands& o) { return var(o.a); };
  ops["var_rows"] = [](const Operands& o) { return var(o.rows, -1); };
  ops["std"] = [](const Operands& o) { return espalier::std(o.a); };
  ops["norm"] = [](const Operands& o) { return norm(o.a); };
  ops["norm_rows"] = [](const Operands& o) { return norm(o.rows, -1); };
  ops["norm_1"] = [](const Operands& o) { return norm(o.a, {}, {.p = 1}); };
  ops["logsumexp_rows"] = [](const Operands& o) { return logsumexp(o.rows, -1); };
  ops["softmax"] = [](const Operands& o) { return softmax(o.rows); };
  ops["log_softmax"] = [](const Operands& o) { return log_softmax(o.rows); };
  ops["argmax"] = [](const Operands& o) { return argmax(o.a); };
  ops["argmax_rows"] = [](const Operands& o) { return argmax(o.rows, -1); };
  ops["argmax_columns"] = [](const Operands& o) { return argmax(o.rows, 0); };
  ops["any"] = [](const Operands& o) { return any(o.a); };
  ops["count_nonzero"] = [](const Operands& o) { return count_nonzero(o.a); };
  ops["nansum"] = [](const Operands& o) { return nansum(o.a); };
  ops["cumsum"] = [](const Operands& o) { return cumsum(o.a); };
  ops["cumsum_rows"] = [](const Operands& o) { return cumsum(o.rows, -1); };
  ops["cumprod_rows"] = [](const Operands& o) { return cumprod(o.rows, -1); };
  ops["cummax_rows"] = [](const Operands& o) { return cummax(o.rows, -1).values; };

  ops["sort"] = [](const Operands& o) { return sort(o.a).values; };
  ops["sort_rows"] = [](const Operands& o) { return sort(o.rows).values; };
  ops["sort_int64"] = [](const Operands& o) { return sort(o.integers).values; };
  ops["argsort"] = [](const Operands& o) { return argsort(o.a); };
  ops["topk"] = [](const Operands& o) { return topk(o.a, 10).values; };
  ops["topk_rows"] = [](const Operands& o) { return topk(o.rows, 5).values; };
  ops["kthvalue"] = [](const Operands& o) { return kthvalue(o.a, o.a.shape()[0] / 3).values; };
  ops["median"] = [](const Operands& o) { return median(o.a); };
  ops["median_rows"] = [](const Operands& o) { return median(o.rows, -1).values; };
  ops["unique"] = [](const Operands& o) { return unique(o.a).values; };
  ops["unique_classes"] = [](const Operands& o) { return unique(o.classes).values; };
  ops["searchsorted"] = [](const Operands& o) {
    static std::pair<int64_t, Variable> sorted{0, {}};
    if (sorted.first != o.a.shape()[0]) sorted = {o.a.shape()[0], Variable(sort(o.a).values.value())};
    return searchsorted(sorted.second, o.b);
  };
  ops["bincount"] = [](const Operands& o) { return bincount(o.classes); };
  ops["histogram"] = [](const Operands& o) { return histogram(o.a, 100, -3, 3); };

  ops["gather"] = [](const Operands& o) { return gather(o.a, o.indices); };
  ops["gather_rows"] = [](const Operands& o) { return gather(o.rows, o.row_places[{range(), 0}]); };
  ops["take_along_axis"] = [](const Operands& o) { return take_along_axis(o.rows, o.row_places, -1); };
  ops["put_along_axis"] = [](const Operands& o) { return put_along_axis(o.rows, o.row_places, o.rows, -1); };
  ops["add_along_axis"] = [](const Operands& o) { return add_along_axis(o.rows, o.row_places, o.rows, -1); };
  ops["scatter_add"] = [](const Operands& o) { return scatter_add(o.a, o.indices, o.b); };
  ops["masked_select"] = [](const Operands& o) { return masked_select(o.a, o.mask); };
  ops["nonzero"] = [](const Operands& o) { return nonzero(o.mask); };
  ops["flip"] = [](const Operands& o) { return flip(o.a); };
  ops["roll"] = [](const Operands& o) { return roll(o.a, 5, 0); };
  ops["concat"] = [](const Operands& o) { return concat({o.a, o.b}); };
  ops["pad"] = [](const Operands& o) { return pad(o.rows, {{1, 1}}); };
  ops["tril"] = [](const Operands& o) { return tril(o.rows); };
  ops["repeat_interleave"] = [](const Operands& o) { return repeat_interleave(o.a, 2, 0); };
  return ops;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main() {
  const NoGrad no_gradients;
  const auto ops = table();
  std::string name, drawn;
  int64_t elements = 0;
  double low = 0, high = 0;
  Operands operands;
  for (int calls = 0; std::cin >> name >> elements >> low >> high >> calls;) {
    const std::string wanted =
        std::to_string(elements) + " " + std::to_string(low) + " " + std::to_string(high);
    if (wanted != drawn) operands = make(elements, low, high);
    drawn = wanted;
    const Timed& op = ops.at(name);
    const double start = processor_seconds();
    for (int i = 0; i < calls; ++i) (void)op(operands).value();
    std::cout << (processor_seconds() - start) / calls << std::endl;
  }
}
