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
  Variable a, b;         // [n]
  Variable rows;         // a as [n / 64, 64]
  Variable mask;         // [n], bool
  Variable indices;      // [n], from 0 to n - 1, in random order with repetitions
  Variable row_places;   // [n / 64, 64], from 0 to 63
  Variable integers;     // [n], int64
  Variable divisors;     // [n], int64, from 1 to 1,000
  Variable classes;      // [n], from 0 to 999
  Variable labels;       // [n / 64], from 0 to 63
  Variable images;       // a as [n / 4096, 4, 32, 32]
  Variable half, brain;  // a in float16 and bfloat16
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
  o.divisors = Variable(randint_like(o.a, 1, 1001).value());
  o.classes = Variable(randint_like(o.a, 0, 1000).value());
  o.labels = Variable(randint(0, 64, {n / 64}));
  o.images = Variable(reshape(o.a, {n / 4096, 4, 32, 32}).value());
  o.half = Variable(cast(o.a, float16).value());
  o.brain = Variable(cast(o.a, bfloat16).value());
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
      {"relu6", relu6},       {"hardsigmoid", hardsigmoid},
      {"isinf", isinf},       {"isfinite", isfinite},
      {"cube", cube},         {"tanhshrink", tanhshrink},
      {"sinc", sinc},         {"isposinf", isposinf},
      {"isneginf", isneginf},
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
      {"subtract", subtract},
      {"minimum", minimum},
      {"not_equal", not_equal},
      {"greater_equal", greater_equal},
      {"heaviside", heaviside},
      {"greater", greater},
      {"less_equal", less_equal},
  };
  for (const auto& [name, f] : binary) ops[name] = [f = f](const Operands& o) { return f(o.a, o.b); };
  ops["where"] = [](const Operands& o) { return where(o.mask, o.a, o.b); };
  ops["clamp"] = [](const Operands& o) { return clamp(o.a, -1.0, 1.0); };
  ops["clamp_min"] = [](const Operands& o) { return clamp_min(o.a, -1.0); };
  ops["clamp_max"] = [](const Operands& o) { return clamp_max(o.a, 1.0); };
  ops["isclose"] = [](const Operands& o) { return isclose(o.a, o.b); };
  ops["polygamma_1"] = [](const Operands& o) { return polygamma(1, o.a); };
  ops["polygamma_2"] = [](const Operands& o) { return polygamma(2, o.a); };
  ops["polygamma_3"] = [](const Operands& o) { return polygamma(3, o.a); };
  ops["gelu_tanh"] = [](const Operands& o) { return gelu(o.a, GeluApproximation::tanh); };
  ops["rrelu"] = [](const Operands& o) { return rrelu(o.a); };
  ops["lerp"] = [](const Operands& o) { return lerp(o.a, o.b, 0.3); };
  ops["softplus"] = [](const Operands& o) { return softplus(o.a); };
  ops["elu"] = [](const Operands& o) { return elu(o.a); };
  ops["celu"] = [](const Operands& o) { return celu(o.a, 0.7); };
  ops["leaky_relu"] = [](const Operands& o) { return leaky_relu(o.a); };
  ops["prelu"] = [](const Operands& o) { return prelu(o.rows, o.rows[{0}]); };
  ops["hardtanh"] = [](const Operands& o) { return hardtanh(o.a); };
  ops["softshrink"] = [](const Operands& o) { return softshrink(o.a); };
  ops["hardshrink"] = [](const Operands& o) { return hardshrink(o.a); };
  ops["threshold"] = [](const Operands& o) { return threshold(o.a, 0.1, 2); };
  ops["glu"] = [](const Operands& o) { return glu(o.rows); };
  ops["nan_to_num"] = [](const Operands& o) { return nan_to_num(o.a); };
  ops["masked_fill"] = [](const Operands& o) { return masked_fill(o.a, o.mask, 1.5); };
  ops["logical_not"] = [](const Operands& o) { return logical_not(o.mask); };
  ops["logical_and"] = [](const Operands& o) { return logical_and(o.mask, o.mask); };
  ops["logical_or"] = [](const Operands& o) { return logical_or(o.mask, o.mask); };
  ops["logical_xor"] = [](const Operands& o) { return logical_xor(o.mask, o.mask); };
  ops["add_scalar"] = [](const Operands& o) { return o.a + 1.5; };
  ops["power_3"] = [](const Operands& o) { return power(o.a, 3.0); };
  ops["power_half"] = [](const Operands& o) { return power(o.a, 0.7); };
  ops["add_row"] = [](const Operands& o) { return o.rows + o.rows[{0}]; };
  ops["add_column"] = [](const Operands& o) { return o.rows + slice(o.rows, 1, 0, 1); };
  ops["multiply_strided"] = [](const Operands& o) {
    return slice(o.rows, 1, 0, 32) * slice(o.rows, 1, 32, 64);
  };
  ops["add_int64"] = [](const Operands& o) { return o.integers + o.divisors; };
  ops["floor_divide_int64"] = [](const Operands& o) { return floor_divide(o.integers, o.divisors); };
  ops["remainder_int64"] = [](const Operands& o) { return remainder(o.integers, o.divisors); };
  ops["bitwise_and"] = [](const Operands& o) { return bitwise_and(o.integers, o.divisors); };
  ops["bitwise_or"] = [](const Operands& o) { return bitwise_or(o.integers, o.divisors); };
  ops["bitwise_xor"] = [](const Operands& o) { return bitwise_xor(o.integers, o.divisors); };
  ops["bitwise_left_shift"] = [](const Operands& o) {
    return bitwise_left_shift(o.row_places, o.row_places);
  };
  ops["bitwise_right_shift"] = [](const Operands& o) {
    return bitwise_right_shift(o.row_places, o.row_places);
  };
  ops["bitwise_not"] = [](const Operands& o) { return bitwise_not(o.integers); };
  ops["add_bfloat16"] = [](const Operands& o) { return o.brain + o.brain; };
  ops["exp_bfloat16"] = [](const Operands& o) { return exp(o.brain); };
  ops["add_float16"] = [](const Operands& o) { return o.half + o.half; };
  ops["cast_float64"] = [](const Operands& o) { return cast(o.a, float64); };
  ops["cast_int64"] = [](const Operands& o) { return cast(o.a, int64); };
  ops["cast_float16"] = [](const Operands& o) { return cast(o.a, float16); };
  ops["cast_bfloat16"] = [](const Operands& o) { return cast(o.a, bfloat16); };
  ops["cast_of_float16"] = [](const Operands& o) { return cast(o.half, float32); };
  ops["cast_of_bfloat16"] = [](const Operands& o) { return cast(o.brain, float32); };
  ops["cast_of_int64"] = [](const Operands& o) { return cast(o.integers, float32); };
  ops["cast_of_bool"] = [](const Operands& o) { return cast(o.mask, float32); };

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
  ops["nanmean"] = [](const Operands& o) { return nanmean(o.a); };
  ops["nanmean_rows"] = [](const Operands& o) { return nanmean(o.rows, -1); };
  ops["trace"] = [](const Operands& o) { return trace(o.images, 0, 2, 3); };
  ops["cov"] = [](const Operands& o) { return cov(transpose(o.rows)); };
  ops["cummin_rows"] = [](const Operands& o) { return cummin(o.rows, -1).values; };
  ops["cumsum"] = [](const Operands& o) { return cumsum(o.a); };
  ops["cumsum_rows"] = [](const Operands& o) { return cumsum(o.rows, -1); };
  ops["cumprod_rows"] = [](const Operands& o) { return cumprod(o.rows, -1); };
  ops["cummax_rows"] = [](const Operands& o) { return cummax(o.rows, -1).values; };
  ops["min"] = [](const Operands& o) { return min(o.a); };
  ops["argmin"] = [](const Operands& o) { return argmin(o.a); };
  ops["all"] = [](const Operands& o) { return all(o.mask); };
  ops["mean_rows"] = [](const Operands& o) { return mean(o.rows, -1); };
  ops["mean_columns"] = [](const Operands& o) { return mean(o.rows, 0); };
  ops["max_columns"] = [](const Operands& o) { return max(o.rows, 0); };
  ops["prod_rows"] = [](const Operands& o) { return prod(o.rows, -1); };
  ops["std_rows"] = [](const Operands& o) { return espalier::std(o.rows, -1); };
  ops["var_columns"] = [](const Operands& o) { return var(o.rows, 0); };
  ops["logsumexp"] = [](const Operands& o) { return logsumexp(o.a, {}); };
  ops["norm_infinity"] = [](const Operands& o) { return norm(o.a, {}, {.p = INFINITY}); };
  ops["sum_int64"] = [](const Operands& o) { return sum(o.divisors); };
  ops["sum_bfloat16"] = [](const Operands& o) { return sum(o.brain); };
  ops["sum_of_images"] = [](const Operands& o) { return sum(o.images, {0, 2, 3}); };
  ops["cumprod"] = [](const Operands& o) { return cumprod(o.a); };
  ops["cumsum_columns"] = [](const Operands& o) { return cumsum(o.rows, 0); };
  ops["logcumsumexp_rows"] = [](const Operands& o) { return logcumsumexp(o.rows, -1); };
  ops["layer_norm"] = [](const Operands& o) { return layer_norm(o.rows, o.rows[{0}], o.rows[{1}]); };
  ops["normalize"] = [](const Operands& o) { return normalize(o.rows); };
  ops["mean_squared_error"] = [](const Operands& o) { return mean_squared_error(o.a, o.b); };
  ops["smooth_l1"] = [](const Operands& o) { return smooth_l1_loss(o.a, o.b); };
  ops["huber"] = [](const Operands& o) { return huber_loss(o.a, o.b); };
  ops["cross_entropy"] = [](const Operands& o) { return softmax_cross_entropy(o.rows, o.labels); };
  ops["cosine_similarity"] = [](const Operands& o) { return cosine_similarity(o.rows, flip(o.rows, 0)); };
  ops["dot"] = [](const Operands& o) { return dot(o.a, o.b); };
  ops["matrix_vector"] = [](const Operands& o) { return inner(o.rows, slice(o.a, 0, 0, 64)); };
  ops["outer"] = [](const Operands& o) {
    return outer(slice(o.a, 0, 0, o.a.shape()[0] / 64), slice(o.b, 0, 0, 64));
  };
  ops["kron"] = [](const Operands& o) {
    return kron(slice(o.rows, 0, 0, o.rows.shape()[0] / 4), slice(reshape(o.a, {-1, 2}), 0, 0, 2));
  };
  ops["cross"] = [](const Operands& o) {
    const auto three = [&](const Variable& x) {
      return reshape(slice(x, 0, 0, x.shape()[0] / 3 * 3), {-1, 3});
    };
    return cross(three(o.a), three(o.b));
  };
  ops["cdist"] = [](const Operands& o) { return cdist(o.rows, slice(o.rows, 0, 0, 16)); };

  ops["sort_descending"] = [](const Operands& o) { return sort(o.a, -1, true).values; };
  ops["sort_columns"] = [](const Operands& o) { return sort(o.rows, 0).values; };
  ops["argsort_rows"] = [](const Operands& o) { return argsort(o.rows); };
  ops["sort"] = [](const Operands& o) { return sort(o.a).values; };
  ops["sort_rows"] = [](const Operands& o) { return sort(o.rows).values; };
  ops["sort_int64"] = [](const Operands& o) { return sort(o.integers).values; };
  ops["argsort"] = [](const Operands& o) { return argsort(o.a); };
  ops["topk"] = [](const Operands& o) { return topk(o.a, 10).values; };
  ops["topk_rows"] = [](const Operands& o) { return topk(o.rows, 5).values; };
  ops["kthvalue"] = [](const Operands& o) { return kthvalue(o.a, o.a.shape()[0] / 3).values; };
  ops["median"] = [](const Operands& o) { return median(o.a); };
  ops["median_rows"] = [](const Operands& o) { return median(o.rows, -1).values; };
  ops["quantile"] = [](const Operands& o) { return quantile(o.a, 0.3); };
  ops["quantile_rows"] = [](const Operands& o) { return quantile(o.rows, 0.3, -1); };
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
  ops["max_along_axis"] = [](const Operands& o) { return max_along_axis(o.rows, o.row_places, o.rows, -1); };
  ops["min_along_axis"] = [](const Operands& o) { return min_along_axis(o.rows, o.row_places, o.rows, -1); };
  ops["scatter"] = [](const Operands& o) { return scatter(o.a, o.indices, o.b); };
  ops["scatter_max"] = [](const Operands& o) { return scatter_max(o.a, o.indices, o.b); };
  ops["scatter_min"] = [](const Operands& o) { return scatter_min(o.a, o.indices, o.b); };
  ops["scatter_nd"] = [](const Operands& o) { return scatter_nd(o.a, unsqueeze(o.indices, 1), o.b); };
  ops["scatter_nd_add"] = [](const Operands& o) { return scatter_nd_add(o.a, unsqueeze(o.indices, 1), o.b); };
  ops["masked_scatter"] = [](const Operands& o) { return masked_scatter(o.a, o.mask, o.b); };
  ops["scatter_add"] = [](const Operands& o) { return scatter_add(o.a, o.indices, o.b); };
  ops["masked_select"] = [](const Operands& o) { return masked_select(o.a, o.mask); };
  ops["nonzero"] = [](const Operands& o) { return nonzero(o.mask); };
  ops["flip"] = [](const Operands& o) { return flip(o.a); };
  ops["roll"] = [](const Operands& o) { return roll(o.a, 5, 0); };
  ops["concat"] = [](const Operands& o) { return concat({o.a, o.b}); };
  ops["pad"] = [](const Operands& o) { return pad(o.rows, {{1, 1}}); };
  ops["triu"] = [](const Operands& o) { return triu(o.rows); };
  ops["stack"] = [](const Operands& o) { return stack({o.a, o.b}); };
  ops["stack_last"] = [](const Operands& o) { return stack({o.a, o.b}, -1); };
  ops["concat_last"] = [](const Operands& o) { return concat({o.rows, o.rows}, -1); };
  ops["transpose"] = [](const Operands& o) { return Variable(transpose(o.rows).value().contiguous_copy()); };
  ops["channels_last"] = [](const Operands& o) {
    return Variable(transpose(o.images, {0, 2, 3, 1}).value().contiguous_copy());
  };
  ops["every_second"] = [](const Operands& o) {
    return Variable(slice(o.a, 0, 0, open_end, 2).value().contiguous_copy());
  };
  ops["tile"] = [](const Operands& o) { return tile(o.rows, {1, 2}); };
  ops["diagonal"] = [](const Operands& o) {
    return Variable(diagonal(o.images, 0, 2, 3).value().contiguous_copy());
  };
  ops["one_hot"] = [](const Operands& o) { return one_hot(o.labels, 64); };
  ops["unfold"] = [](const Operands& o) { return unfold(o.images, {.kernel = 3, .padding = 1}); };
  ops["pixel_shuffle"] = [](const Operands& o) { return pixel_shuffle(o.images, 2); };
  ops["pad_images"] = [](const Operands& o) {
    return pad(o.images, {{1, 1}, {1, 1}}, {.mode = PadMode::reflect});
  };
  ops["gather_columns"] = [](const Operands& o) { return gather(o.rows, slice(o.labels, 0, 0, 64), 1); };
  ops["index_add_rows"] = [](const Operands& o) { return index_add(o.rows, o.labels, o.rows); };

  ops["random_uniform"] = [](const Operands& o) { return rand_like(o.a); };
  ops["random_normal"] = [](const Operands& o) { return randn_like(o.a); };
  ops["random_integers"] = [](const Operands& o) { return randint_like(o.a, 0, 1000); };
  ops["bernoulli"] = [](const Operands& o) { return bernoulli(abs(o.a) * 0.3); };
  ops["dropout"] = [](const Operands& o) { return dropout(o.a, 0.3); };
  ops["random_permutation"] = [](const Operands& o) { return Variable(randperm(o.a.shape()[0])); };
  ops["arange"] = [](const Operands& o) { return Variable(arange(o.a.shape()[0])); };
  ops["full"] = [](const Operands& o) { return Variable(full(o.a.shape(), 1.5F)); };
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
