// Attention and transformer layers: PyTorch's figures, plans and replicas as an eager loop, steps with
// caches, errors.
#include "espalier/nn/transformer.h"

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/nn/decoding.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/functional_call.h"
#include "figures/transformers.h"
#include "layer_figures.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

Variable input() { return figure_numbers({2, 3, 4}, 37, 19, 8); }
Variable memory() { return figure_numbers({2, 5, 4}, 41, 23, 8); }
Variable padding() {
  Tensor there = esp::full({2, 5}, 1, esp::boolean);
  there.at<bool>({0, 4}) = there.at<bool>({1, 1}) = false;
  return there;
}

/// Compares values, and two sums of each gradient of the first one weighed, with the figures of that name.
void check_figures(const std::string& name, const std::vector<Variable>& values, const Module& module) {
  std::vector<double> found;
  for (const Variable& v : values)
    for (const double x : v.value().contiguous_copy().span<double>()) found.push_back(x);
  const Variable loss = weighed(values[0]);
  for (const auto& [path, p] : parameters_by_name(module)) {
    const Variable g = loss.gradient(p);
    found.push_back(esp::sum(g).item());
    found.push_back(weighed(g).item());
  }
  const std::vector<double>& expected = transformer_figures.at(name);
  BOOST_TEST_REQUIRE(found.size() == expected.size(), name);
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i)
    largest = std::max(largest, std::abs(found[i] - expected[i]) / (1 + std::abs(expected[i])));
  BOOST_TEST(largest < 1e-11, name << " differs by " << largest);
}

MultiHeadAttention attention(MultiHeadAttentionOptions options = {}) {
  options.dtype = esp::float64;
  MultiHeadAttention layer(4, 2, options);
  give_figure_values(layer);
  return layer;
}

TransformerOptions options(bool norm_first = false) {
  TransformerOptions o{.feedforward = 6, .dropout = 0, .norm_first = norm_first, .dtype = esp::float64};
  if (norm_first) o.activation = [](const Variable& x) { return esp::gelu(x); };
  return o;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(transformers)

BOOST_AUTO_TEST_CASE(attention_computes_what_pytorch_s_computes) {
  const Variable x = input(), m = memory(), bias = figure_numbers({3, 5}, 13, 7, 4);
  const auto check = [](const std::string& name, const MultiHeadAttention& layer,
                        const std::vector<Variable>& values) { check_figures(name, values, layer); };
  const MultiHeadAttention plain = attention();
  check("attention", plain, {plain(x)});
  check("attention, causal", plain, {plain(x, {.causal = true})});
  const auto mean = plain.with_weights(x, m, m, {.mask = bias, .key_mask = padding()});
  check("attention, weights", plain, {mean.y, mean.weights});
  const auto each = plain.with_weights(x, m, m, {.key_mask = padding()}, false);
  check("attention, weights of heads", plain, {each.y, each.weights});
  const MultiHeadAttention other = attention({.bias = false, .key_width = 3, .value_width = 2});
  const auto widths =
      other.with_weights(x, figure_numbers({2, 5, 3}, 43, 29, 8), figure_numbers({2, 5, 2}, 47, 31, 8));
  check("attention, widths", other, {widths.y, widths.weights});
  const MultiHeadAttention more = attention({.add_bias_kv = true});
  const auto behind = more.with_weights(x, m, m, {.mask = bias, .key_mask = padding()});
  check("attention, bias_kv", more, {behind.y, behind.weights});
}

BOOST_AUTO_TEST_CASE(values_may_differ_from_queries_that_are_the_keys) {
  const MultiHeadAttention layer = attention();
  const Variable x = memory(), copy = memory(), v = figure_numbers({2, 5, 4}, 31, 17, 8);
  BOOST_TEST(difference(layer(x, x, v).value(), layer(x, copy, v).value()) < 1e-12);
  BOOST_TEST(difference(layer(x, x, v).value(), layer(x).value()) > 1e-3);
}

BOOST_AUTO_TEST_CASE(transformers_compute_what_pytorch_s_compute) {
  for (const bool first : {false, true}) {
    const std::string name = first ? ", norm first" : "";
    const AttentionMasks causal{.causal = true}, padded{.key_mask = padding()};
    const TransformerEncoderLayer encoder_layer(4, 2, options(first));
    give_figure_values(encoder_layer);
    check_figures("encoder layer" + name, {encoder_layer(input(), causal)}, encoder_layer);
    const TransformerDecoderLayer decoder_layer(4, 2, options(first));
    give_figure_values(decoder_layer);
    check_figures("decoder layer" + name, {decoder_layer(input(), memory(), causal, padded)}, decoder_layer);
    const TransformerEncoder encoder(2, 4, 2, options(first), true);
    give_figure_values(encoder);
    check_figures("encoder" + name, {encoder(memory(), padded)}, encoder);
    const TransformerDecoder decoder(2, 4, 2, options(first), true);
    give_figure_values(decoder);
    check_figures("decoder" + name, {decoder(input(), memory(), causal)}, decoder);
    const Transformer whole({.width = 4, .heads = 2, .encoder_layers = 1, .decoder_layers = 2},
                            options(first));
    give_figure_values(whole);
    check_figures("transformer" + name,
                  {whole(memory(), input(), {.source = padded, .target = causal, .memory = padded})}, whole);
  }
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_as_an_eager_loop) {
  const auto differences = [](const TransformerOptions& o, const AttentionMasks& masks) {
    return training_differences_of(
        [=](Module& module) -> LayerTraining::Call {
          const TransformerEncoderLayer layer = module.add("layer", TransformerEncoderLayer(4, 2, o));
          return [=](const Variable& x) { return layer(x, masks); };
        },
        {5, 4});
  };
  TransformerOptions dropping = options(true);
  dropping.dropout = 0.3;
  Tensor mask = esp::full({5, 5}, 1, esp::boolean);
  mask.at<bool>({2, 3}) = false;
  BOOST_TEST(differences(options(), {.causal = true}) < 1e-11);
  BOOST_TEST(differences(dropping, {.mask = mask}) < 1e-11);
  TransformerOptions turned = options();
  turned.rotary = RotaryOptions{};
  BOOST_TEST(differences(turned, {.causal = true}) < 1e-11);
}

BOOST_AUTO_TEST_CASE(inference_drops_nothing) {
  esp::seed(5);
  TransformerOptions o = options();
  o.dropout = 0.5;
  TransformerEncoderLayer layer(4, 2, o);
  const Variable y = layer(esp::placeholder("x", {4, 3, 4}, esp::float64));  // in training mode
  layer.train(false);
  const Tensor expected = layer(numbers({4, 3, 4})).value();
  const auto plan = y.get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(difference(expected, plan.run({{"x", numbers({4, 3, 4})}})) < 1e-12);
}

BOOST_AUTO_TEST_CASE(steps_with_a_cache_equal_the_whole) {
  esp::seed(6);
  TransformerOptions o = options(true);
  o.rotary = RotaryOptions{.interleaved = true};
  const TransformerEncoder encoder(2, 4, 2, o, true);
  const TransformerDecoder decoder(2, 4, 2, o);
  const Tensor x = numbers({2, 7, 4});
  const Variable m = memory();
  const AttentionMasks causal{.causal = true};
  const Tensor all = encoder(x, causal).value(), decoded = decoder(x, m, causal).value();
  KvCaches caches, others;
  for (int64_t begin = 0; begin < 7;) {
    const int64_t end = begin == 0 ? 3 : begin + 1;  // three steps at once, then one by one
    const Tensor next = x.slice(1, begin, end);
    BOOST_TEST(difference(all.slice(1, begin, end), encoder.step(next, caches).value()) < 1e-12);
    BOOST_TEST(difference(decoded.slice(1, begin, end), decoder.step(next, m, others).value()) < 1e-12);
    begin = end;
  }
  BOOST_TEST(caches[0].length() == 7);
  // Both rows go on from the first one, behind its fifth step.
  for (KvCache& cache : caches) {
    cache.truncate(5);
    cache.select(esp::zeros({2}, esp::int64));
  }
  const Tensor last = x.slice(0, 0, 1).slice(1, 5, 6);
  const Tensor both = esp::concat({last, last}, 0).value();
  const Tensor y = encoder.step(both, caches).value();
  for (const int64_t row : {0, 1})
    BOOST_TEST(difference(all.slice(0, 0, 1).slice(1, 5, 6), y.slice(0, row, row + 1)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(steps_project_a_memory_once) {
  const MultiHeadAttention layer = attention();
  const Variable x = input(), m = memory();
  const AttentionMasks masks{.key_mask = padding()};
  KvCache cache;
  const auto step = [&](const Variable& to, bool projects, const std::string& what) {
    const int64_t before = esp::kernels_run_here();
    const Variable y = layer.step(x, to, cache, masks);
    const int64_t between = esp::kernels_run_here();
    const Variable whole = layer(x, to, to, masks);
    const int64_t saved = esp::kernels_run_here() - between - (between - before);
    BOOST_TEST((saved == 0) == projects, what << ": " << saved << " kernels fewer");
    BOOST_TEST(difference(whole, y) < 1e-15, what);
    return std::pair(y, whole);
  };
  const auto [first, whole] = step(m, true, "at first");
  const auto [second, again] = step(m, false, "the same memory");
  const Variable w = layer.parameter("in_proj_weight");
  BOOST_TEST(difference(weighed(whole + again).gradient(w), weighed(first + second).gradient(w)) < 1e-12);
  const Variable other = m * 2;
  step(other, true, "another memory");
  step(other, false, "that again");
  KvCache copy = cache;
  (void)copy;
  step(other, false, "beside a copy");
  set_value(w, (w * 0.5).value());
  step(other, true, "an assigned parameter");
  const Variable leaf = esp::variable(m.value());
  step(leaf, true, "a leaf");
  set_value(leaf, other.value());
  step(leaf, true, "an assigned leaf");
  {
    const esp::NoGrad inference;
    step(leaf, true, "without gradients");
    step(leaf, false, "without gradients again");
  }
  step(leaf, true, "with gradients again");
  const auto replaced = [&] {
    return functional_call(layer, {{"in_proj_weight", w * 2}},
                           [&] { return layer.step(x, leaf, cache, masks); });
  };
  const Variable before = layer.step(x, leaf, cache, masks);
  BOOST_TEST(difference(before, replaced()) > 1e-3);
  BOOST_TEST(difference(before, layer.step(x, leaf, cache, masks)) == 0);
  // Rows follow a selection, also after another parameter and a mask of rows.
  step(leaf, false, "before rows are chosen");
  cache.select(esp::tensor({1, 0, 1}));
  cache.select(esp::tensor({2, 1}));  // rows 1 and 0
  const Variable rows = esp::gather(x, cache.rows()), chosen = esp::gather(leaf, cache.rows());
  const AttentionMasks of_rows{.key_mask = esp::gather(masks.key_mask, cache.rows())};
  BOOST_TEST(difference(layer.step(rows, leaf, cache, of_rows), layer(rows, chosen, chosen, of_rows)) <
             1e-15);
  set_value(w, (w * 2.0).value());
  BOOST_TEST(difference(layer.step(rows, leaf, cache, of_rows), layer(rows, chosen, chosen, of_rows)) <
             1e-15);
  BOOST_CHECK_EXCEPTION((void)layer.step(esp::concat({x, x}, 0), leaf, cache), esp::ShapeError,
                        says({"4 rows", "memory", here()}));
  // Another layer has keys of its own.
  const MultiHeadAttention other_layer(4, 2, {.dtype = esp::float64});
  cache.truncate(0);
  BOOST_TEST(!cache.rows().defined());
  (void)layer.step(x, leaf, cache, masks);
  BOOST_TEST(difference(other_layer.step(x, leaf, cache, masks), other_layer(x, leaf, leaf, masks)) < 1e-15);
  BOOST_CHECK_THROW((void)layer.step(x, numbers({2, 5, 3}), cache), esp::ShapeError);
  BOOST_CHECK_THROW((void)layer.step(x, esp::zeros({2, 5, 4}), cache), esp::TypeError);
  BOOST_CHECK_THROW((void)layer.step(x, m, cache, {.mask = numbers({7, 7})}), esp::ShapeError);
  // A layer's cache has the steps, too.
  KvCache layers;
  const TransformerDecoderLayer decoder(4, 2, options());
  const int64_t start = esp::kernels_run_here();
  (void)decoder.step(esp::slice(x, 1, 0, 1), m, layers);
  const int64_t behind = esp::kernels_run_here();
  (void)decoder.step(esp::slice(x, 1, 1, 2), m, layers);
  BOOST_TEST(esp::kernels_run_here() - behind < behind - start);
  // A step that fails leaves nothing behind.
  const TransformerDecoder stack(2, 4, 2, options());
  KvCaches caches;
  (void)stack.step(esp::slice(x, 1, 0, 1), m, caches);
  const KvCaches kept = caches;
  BOOST_CHECK_THROW(
      (void)stack.step(esp::slice(x, 1, 1, 2), m, caches, {.key_mask = esp::ones({2, 4}, esp::boolean)}),
      esp::ShapeError);
  BOOST_TEST((caches[0].length() == 1 && caches[1].length() == 1));
  KvCaches other_caches = kept;
  BOOST_TEST(difference(stack.step(esp::slice(x, 1, 1, 2), m, caches),
                        stack.step(esp::slice(x, 1, 1, 2), m, other_caches)) == 0);
}

BOOST_AUTO_TEST_CASE(copies_of_a_cache_go_on_by_themselves) {
  const auto steps = [](double value, int64_t time = 1) {
    return Variable(esp::full({1, 1, time, 2}, value));
  };
  const auto at = [](const KvCache& cache, int64_t t) {
    return cache.keys().value().at<float>({0, 0, t, 1});
  };
  KvCache first(8);
  first.append(steps(1), steps(1));
  KvCache second = first;
  first.append(steps(2), steps(2));
  const Variable before = first.keys(), values = first.values();
  second.append(steps(3, 2), steps(3, 2));
  BOOST_TEST(at(first, 1) == 2);
  BOOST_TEST(first.length() == 2);
  BOOST_TEST(at(second, 0) == 1);
  BOOST_TEST(at(second, 1) == 3);
  // What was read before steps were cut off stays, and so do the steps of a copy.
  KvCache third = first;
  first.truncate(1);
  first.append(steps(4), steps(4));
  BOOST_TEST(at(first, 1) == 4);
  BOOST_TEST(at(third, 1) == 2);
  BOOST_TEST(before.value().at<float>({0, 0, 1, 0}) == 2);
  BOOST_TEST(values.value().at<float>({0, 0, 1, 0}) == 2);
  third.select(esp::tensor({0, 0}));
  BOOST_TEST(third.keys().shape() == esp::Shape({2, 1, 2, 2}));
  BOOST_TEST(first.keys().shape() == esp::Shape({1, 1, 2, 2}));
  KvCache moved = std::move(first);
  BOOST_TEST(moved.length() == 2);
  BOOST_TEST(first.length() == 0);
  BOOST_CHECK_THROW((void)first.keys(), esp::Error);
  first.append(steps(5), steps(5));
  BOOST_TEST(at(first, 0) == 5);
  BOOST_TEST(at(moved, 1) == 4);
}

BOOST_AUTO_TEST_CASE(a_cache_writes_in_place_while_nothing_else_holds_its_steps) {
  KvCache cache(16);
  const Variable step = esp::ones({1, 1, 1, 2});
  cache.append(step, step);
  const void* memory = cache.keys().value().address();
  for (int i = 0; i < 15; ++i) cache.append(step, step);
  cache.truncate(3);
  cache.append(step, step);
  BOOST_TEST(cache.keys().value().address() == memory);
  BOOST_TEST(cache.length() == 4);
}

BOOST_AUTO_TEST_CASE(beams_with_caches_equal_those_that_compute_whole_sequences) {
  esp::seed(8);
  const Embedding embed(6, 8);
  const TransformerEncoder model(2, 8, 2, {.feedforward = 8, .dropout = 0, .rotary = RotaryOptions{}});
  const Dense head(8, 6);
  KvCaches caches;
  const DecodingStep cached = [&](const Variable& tokens, const DecodingState& state) -> NextTokens {
    for (KvCache& cache : caches) cache.select(state[0].value());
    const Variable y = model.step(unsqueeze(embed(tokens), 1), caches);
    return {head(squeeze(y, {1})) * 4, {Variable(esp::arange(tokens.shape()[0], esp::int64))}};
  };
  const DecodingStep whole = [&](const Variable& tokens, const DecodingState& state) -> NextTokens {
    const Variable all = esp::concat({state[0], unsqueeze(tokens, 1)}, 1);
    const Variable y = model(embed(all), {.causal = true});
    const int64_t length = all.shape()[1];
    return {head(squeeze(slice(y, 1, length - 1, length), {1})) * 4, {all}};
  };
  const BeamOptions options{.beams = 3, .best = 3, .most_tokens = 5, .end_token = 0};
  const auto a = beam_search(cached, {1, 2}, {Variable(esp::arange(2, esp::int64))}, options);
  const auto b = beam_search(whole, {1, 2}, {Variable(esp::zeros({2, 0}, esp::int64))}, options);
  for (size_t i = 0; i < 2; ++i)
    for (size_t k = 0; k < 3; ++k) {
      BOOST_TEST(a[i][k].tokens == b[i][k].tokens);
      BOOST_TEST(std::abs(a[i][k].score - b[i][k].score) < 1e-4);
    }
}

BOOST_AUTO_TEST_CASE(grouped_heads_share_keys) {
  esp::seed(7);
  const MultiHeadAttention grouped(8, 4, {.key_heads = 2, .dtype = esp::float64});
  BOOST_TEST((grouped.parameter("in_proj_weight").shape() == esp::Shape{16, 8}));
  MultiHeadAttention full(8, 4, {.dtype = esp::float64});
  const auto twice = [](const Tensor& x) {  // each head of 2 rows, two times
    return esp::flatten(esp::repeat_interleave(esp::unflatten(Variable(x), 0, {2, -1}), 2, 0), 0);
  };
  const Tensor w = grouped.parameter("in_proj_weight").value();
  const Variable k = esp::reshape(twice(w.slice(0, 8, 12).contiguous_copy()), {8, 8}),
                 v = esp::reshape(twice(w.slice(0, 12, 16).contiguous_copy()), {8, 8});
  esp::set_value(full.parameter("in_proj_weight"), esp::concat({w.slice(0, 0, 8), k, v}, 0).value());
  esp::set_value(full.parameter("out_proj.weight"), grouped.parameter("out_proj.weight").value());
  const Tensor x = numbers({2, 5, 8});
  BOOST_TEST(difference(full(x).value(), grouped(x).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(errors_name_the_layer) {
  BOOST_CHECK_THROW(MultiHeadAttention(5, 2), esp::Error);
  BOOST_CHECK_THROW(MultiHeadAttention(8, 4, {.key_heads = 3}), esp::Error);
  BOOST_CHECK_THROW(MultiHeadAttention(8, 4, {.dropout = 1}), esp::Error);
  const MultiHeadAttention layer = attention();
  const auto names = [](const std::string& text) {
    return [text](const esp::Error& e) {
      return std::string(e.what()).find(text) != std::string::npos &&
             std::string(e.what()).find("transformer_test.cpp") != std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION((void)layer(numbers({2, 4})), esp::ShapeError, names("[2, 4]"));
  BOOST_CHECK_EXCEPTION((void)layer(numbers({2, 3, 5})), esp::ShapeError, names("[2, 3, 5]"));
  BOOST_CHECK_EXCEPTION((void)layer(esp::zeros({2, 3, 4})), esp::TypeError, names("float32"));
  BOOST_CHECK_THROW((void)attention({.add_bias_kv = true})(input(), {.causal = true}), esp::UnsupportedError);
  KvCache cache;
  BOOST_CHECK_EXCEPTION((void)cache.keys(), esp::Error, names("KvCache::keys"));
  BOOST_CHECK_EXCEPTION((void)cache.values(), esp::Error, names("KvCache::values"));
  BOOST_CHECK_EXCEPTION(cache.select(esp::tensor({0})), esp::Error, names("KvCache::select"));
  (void)layer.step(input(), cache);
  BOOST_CHECK_THROW((void)layer.step(numbers({1, 3, 4}), cache), esp::ShapeError);
  BOOST_CHECK_THROW(cache.truncate(4), esp::IndexError);
  BOOST_CHECK_EXCEPTION(cache.select(esp::tensor({0, 2})), esp::IndexError, names("KvCache::select"));
  BOOST_CHECK_EXCEPTION(cache.select(esp::tensor({-1})), esp::IndexError, names("KvCache::select"));
  BOOST_CHECK_EXCEPTION(cache.select(esp::tensor({{0}})), esp::ShapeError, names("KvCache::select"));
  BOOST_CHECK_EXCEPTION(cache.select(esp::tensor({0.0})), esp::TypeError, names("KvCache::select"));
  esp::data::Distributor feed({numbers({4, 3, 4})}, {.batch_size = 2});
  KvCache other;
  BOOST_CHECK_THROW((void)layer.step(feed.get_output_graphs()[0], other), esp::UnsupportedError);
  BOOST_CHECK_THROW((void)rotary(numbers({2, 3})), esp::ShapeError);
  BOOST_CHECK_THROW((void)alibi(0, 1, 1), esp::Error);
  BOOST_CHECK_EXCEPTION((void)alibi(1, -1, 1), esp::ShapeError, names("alibi"));
  BOOST_CHECK_EXCEPTION((void)alibi(1, 1, 1, 0, esp::int32), esp::TypeError, names("alibi"));
  BOOST_CHECK_EXCEPTION((void)sinusoidal_positions(2, 2, esp::int64), esp::TypeError,
                        names("sinusoidal_pos"));
  BOOST_CHECK_EXCEPTION((void)sinusoidal_positions(-1, 2), esp::ShapeError, names("sinusoidal_positions"));
  BOOST_CHECK_EXCEPTION((void)SinusoidalPositions()(esp::zeros({2, 2}, esp::int64)), esp::TypeError,
                        names("SinusoidalPositions"));
  BOOST_CHECK_EXCEPTION((void)rotary(esp::zeros({2, 2}, esp::int64)), esp::TypeError, names("rotary"));
  BOOST_CHECK_THROW(TransformerEncoder(-1, 4, 2), esp::Error);
}

BOOST_AUTO_TEST_SUITE_END()
