// Layers made of others or of functions: containers, activations, bilinear forms, bags of vectors, dropouts.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/bias.h"
#include "espalier/nn/bilinear.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/embedding_bag.h"
#include "espalier/nn/feature_dropout.h"
#include "espalier/nn/lambda.h"
#include "espalier/nn/maxout.h"
#include "espalier/nn/module_list.h"
#include "espalier/nn/piecewise_activation.h"
#include "espalier/nn/residual.h"
#include "espalier/nn/serialize.h"
#include "espalier/nn/simplex.h"
#include "espalier/nn/smooth_activation.h"
#include "espalier/ops/functions/piecewise_activation.h"
#include "espalier/ops/functions/smooth_activation.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(composed_layers)

BOOST_AUTO_TEST_CASE(functions_as_layers) {
  const esp::Tensor x = numbers({3, 4}, -4, 4, 1);
  const std::vector<std::tuple<std::string, Layer, std::function<Variable(const Variable&)>>> table{
      {"Identity", Identity(), [](const Variable& v) { return v; }},
      {"Lambda", Lambda([](const Variable& v) { return v * 2; }), [](const Variable& v) { return v + v; }},
      {"LogSoftmax", LogSoftmax(0), [](const Variable& v) { return esp::log_softmax(v, 0); }},
      {"Softmin", Softmin(), [](const Variable& v) { return esp::softmax(-v); }},
      {"Sparsemax", Sparsemax(0), [](const Variable& v) { return esp::sparsemax(v, 0); }},
      {"Silu", Silu(), [](const Variable& v) { return esp::silu(v); }},
      {"Mish", Mish(), [](const Variable& v) { return esp::mish(v); }},
      {"Softplus", Softplus(2), [](const Variable& v) { return esp::softplus(v, 2); }},
      {"LogSigmoid", LogSigmoid(), [](const Variable& v) { return esp::log_sigmoid(v); }},
      {"Softsign", Softsign(), [](const Variable& v) { return esp::softsign(v); }},
      {"Tanhshrink", Tanhshrink(), [](const Variable& v) { return esp::tanhshrink(v); }},
      {"Glu", Glu(), [](const Variable& v) { return esp::glu(v); }},
      {"LeakyRelu", LeakyRelu(0.2), [](const Variable& v) { return esp::leaky_relu(v, 0.2); }},
      {"PRelu", PRelu(4, 0.3, esp::float64), [](const Variable& v) { return esp::leaky_relu(v, 0.3); }},
      {"Elu", Elu(0.5), [](const Variable& v) { return esp::elu(v, 0.5); }},
      {"Celu", Celu(0.5), [](const Variable& v) { return esp::celu(v, 0.5); }},
      {"Selu", Selu(), [](const Variable& v) { return esp::selu(v); }},
      {"Relu6", Relu6(), [](const Variable& v) { return esp::relu6(v); }},
      {"Hardtanh", Hardtanh(-2, 3), [](const Variable& v) { return esp::hardtanh(v, -2, 3); }},
      {"Hardsigmoid", Hardsigmoid(), [](const Variable& v) { return esp::hardsigmoid(v); }},
      {"Hardswish", Hardswish(), [](const Variable& v) { return esp::hardswish(v); }},
      {"Softshrink", Softshrink(1), [](const Variable& v) { return esp::softshrink(v, 1); }},
      {"Hardshrink", Hardshrink(1), [](const Variable& v) { return esp::hardshrink(v, 1); }},
      {"Threshold", Threshold(1, -3), [](const Variable& v) { return esp::threshold(v, 1, -3); }},
  };
  for (const auto& [name, layer, function] : table)
    BOOST_TEST(difference(layer(x).value(), function(x).value()) < 1e-12, name);
  RRelu random;
  esp::seed(5);
  const Variable drawn = random(x);
  esp::seed(5);
  BOOST_TEST(difference(drawn.value(), esp::rrelu(x).value()) == 0);
  random.train(false);
  BOOST_TEST(difference(random(x).value(), esp::leaky_relu(x, (1.0 / 8 + 1.0 / 3) / 2).value()) < 1e-12);
  GumbelSoftmax sampled({.temperature = 0.5, .axis = 0});
  esp::seed(5);
  const Variable sample = sampled(x);
  esp::seed(5);
  BOOST_TEST(difference(sample.value(), esp::gumbel_softmax(x, {.temperature = 0.5, .axis = 0}).value()) ==
             0);
  sampled.train(false);
  BOOST_TEST(difference(sampled(x).value(), esp::softmax(esp::Variable(x) * 2.0, 0).value()) < 1e-12);
  GumbelSoftmax hard({.hard = true});
  hard.train(false);
  BOOST_TEST(difference(hard(x).value(), esp::one_hot(esp::argmax(x), 4, esp::float64).value()) == 0);
  BOOST_TEST(Sequential(PRelu(), Silu()).parameters()[0].first == "0.weight");
  BOOST_CHECK_EXCEPTION(PRelu(3)(esp::ones({2, 4})), esp::ShapeError,
                        says({"PRelu", "[2, 4]", "[3]", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(PRelu(0), esp::Error, says({"PRelu", "0", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Lambda(nullptr), esp::Error, says({"Lambda", "empty", "composed_layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(forward_hooks) {
  const Dense dense(3, 2);
  const Sequential net{dense, Tanh()};
  const esp::Tensor x = numbers({2, 3}).to(esp::float32);
  const esp::Tensor before = net(x).value();
  int calls = 0;
  const int64_t watch = dense.register_forward_hook([&](const Variable& in, const Variable& out) {
    BOOST_TEST(in.shape() == esp::Shape({2, 3}));
    BOOST_TEST(out.shape() == esp::Shape({2, 2}));
    ++calls;
    return Variable();
  });
  BOOST_TEST(difference(net(x).value(), before) == 0);
  BOOST_TEST(calls == 1);
  const int64_t halve = dense.register_forward_hook([](const auto&, const auto& y) { return y * 0.5; });
  BOOST_TEST(difference(dense(x).value(), (dense.clone()(x)).value()) == 0);
  BOOST_TEST(calls == 3);
  dense.remove_forward_hook(watch);
  BOOST_TEST(difference(net(x).value(), before) > 0);
  dense.remove_forward_hook(halve);
  BOOST_TEST(difference(net(x).value(), before) == 0);
  BOOST_TEST(calls == 3);
  // Each hook gets what the one before it returned.
  const Variable y = dense(x);
  (void)dense.register_forward_hook([](const auto&, const auto& out) { return out * 2.0; });
  (void)dense.register_forward_hook([](const auto&, const auto& out) { return out + 1.0; });
  BOOST_TEST(difference(dense(x).value(), (y * 2.0 + 1.0).value()) < 1e-6);
  const struct Own : Module {
    Variable operator()(const Variable& v) const { return inner(v) * 2.0; }
    Dense inner = add("inner", Dense(3, 2));
  } own;
  const Lambda hooked([own](const Variable& v) { return own(v); });
  (void)hooked.register_forward_hook([](const Variable& in, const Variable& out) {
    BOOST_TEST(in.shape() == esp::Shape({2, 3}));
    return -out;
  });
  BOOST_TEST(difference(hooked(x).value(), (-own(x)).value()) == 0);
  BOOST_CHECK_EXCEPTION(dense.remove_forward_hook(watch), esp::Error,
                        says({"remove_forward_hook", "0", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(dense.register_forward_hook(nullptr), esp::Error, says({"empty"}));
}

BOOST_AUTO_TEST_CASE(unflatten_undoes_flatten) {
  const esp::Tensor x = numbers({2, 12});
  BOOST_TEST(Unflatten(1, {3, 4})(x).shape() == esp::Shape({2, 3, 4}));
  BOOST_TEST(Unflatten(-1, {2, -1, 3})(x).shape() == esp::Shape({2, 2, 2, 3}));
  BOOST_TEST(Unflatten(0, {1, 2})(x).shape() == esp::Shape({1, 2, 12}));
  BOOST_TEST(difference(Flatten()(Unflatten(1, {3, 4})(x)).value(), x) == 0);
  BOOST_TEST(Unflatten(1, {3, 4})(esp::zeros({0, 12})).shape() == esp::Shape({0, 3, 4}));
  for (const esp::Shape& sizes : std::vector<esp::Shape>{{5, 2}, {-1, -1}, {5, -1}})
    BOOST_CHECK_EXCEPTION(Unflatten(1, sizes)(x), esp::ShapeError,
                          says({"Unflatten", "[2, 12]", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Unflatten(2, {3})(x), esp::ShapeError, says({"Unflatten", "2", "[2, 12]"}));
}

BOOST_AUTO_TEST_CASE(residual_adds_its_input) {
  const Dense dense(4);
  const Residual residual(dense, Tanh());
  const esp::Tensor x = numbers({3, 4});
  BOOST_TEST(difference(residual(x).value(), (esp::tanh(dense(x)) + x).value()) == 0);
  BOOST_TEST(residual.parameters()[0].first == "body.0.weight");
  const Residual clone = residual.clone();
  esp::set_value(dense.parameter("bias"), esp::ones({4}, esp::float64));
  BOOST_TEST(difference(clone(x).value(), residual(x).value()) > 0.01);
  BOOST_CHECK_EXCEPTION(Residual(Dense(5))(x), esp::ShapeError,
                        says({"Residual", "[3, 5]", "[3, 4]", "composed_layers_test.cpp"}));
  Residual drop(Dropout(0.5));
  drop.train(false);
  BOOST_TEST(difference(drop(x).value(), (x + Variable(x)).value()) == 0);
}

BOOST_AUTO_TEST_CASE(lists_and_dictionaries_of_modules) {
  ModuleList<Dense> list{Dense(3), Dense(4)};
  list.append(Dense(5));
  const ModuleList<Dense> copy = list;
  Variable h = esp::ones({2, 2});
  for (const Dense& layer : copy) h = layer(h);
  BOOST_TEST(h.shape() == esp::Shape({2, 5}));
  BOOST_TEST(list.size() == 3u);
  BOOST_TEST(list.parameters().size() == 6u);
  BOOST_TEST(list.parameters()[2].first == "1.weight");
  BOOST_TEST(list[2].parameter("bias").shape() == esp::Shape({5}));
  BOOST_TEST(list[-1].state() == list[2].state());
  BOOST_CHECK_EXCEPTION(list[3], esp::IndexError, says({"ModuleList", "no module 3 among 3"}));
  BOOST_CHECK_EXCEPTION(list[-4], esp::IndexError, says({"ModuleList", "no module -4 among 3"}));

  ModuleDict<> dict{{"body", Dense(3)}, {"activation", Tanh()}};
  dict.insert("head", Dense(1));
  Module net;
  net.add("parts", dict);
  BOOST_TEST(dict["head"](dict["activation"](dict["body"](esp::ones({2, 2})))).shape() == esp::Shape({2, 1}));
  BOOST_TEST(net.parameters()[2].first == "parts.head.weight");
  BOOST_TEST(dict.contains("body"));
  BOOST_TEST(!dict.contains("tail"));
  BOOST_TEST(dict.begin()->first == "body");
  BOOST_CHECK_EXCEPTION(dict["tail"], esp::IndexError,
                        says({"ModuleDict", "tail", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(dict.insert("head", Relu()), esp::Error, says({"head", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION((ModuleDict<Dense>{{"a", Dense(1)}, {"a", Dense(2)}}), esp::Error,
                        says({"'a'", "composed_layers_test.cpp"}));
  BOOST_TEST(dict.size() == 3u);
  net.train(false);
  BOOST_TEST(!dict["body"].training());
}

BOOST_AUTO_TEST_CASE(clones_of_lists_and_dictionaries) {
  const Variable x = esp::ones({2, 3});
  const Dense shared(3);
  const ModuleList<> list{shared, Sequential{Dense(3), Tanh()}, shared};
  const auto run = [&](const ModuleList<>& layers) {
    Variable h = x;
    for (const Layer& layer : layers) h = layer(h);
    return h.value();
  };
  const esp::Tensor y = run(list);
  const ModuleList<> clone = list.clone();
  BOOST_TEST(difference(run(clone), y) == 0);
  BOOST_TEST(clone.parameters().size() == 4u);
  BOOST_TEST(clone[0].state() == clone[2].state());  // a layer used twice is one in the clone, too
  BOOST_TEST(clone[0].state() != list[0].state());
  esp::set_value(shared.parameter("weight"), esp::zeros({3, 3}));
  BOOST_TEST(difference(run(clone), y) == 0);
  ModuleList<> longer = clone;
  longer.append(Relu());
  BOOST_TEST(clone.size() == 4u);
  BOOST_TEST(list.size() == 3u);

  ModuleDict<ModuleList<Dense>> dict{{"a", {Dense(3, 2)}}, {"b", {Dense(3, 2), Dense(2, 1)}}};
  dict.add_buffer("steps", esp::tensor(1.0f));
  dict.train(false);
  const ModuleDict<ModuleList<Dense>> other = dict.clone();
  BOOST_TEST(difference(other["b"][1](other["a"][0](x)).value(), dict["b"][1](dict["a"][0](x)).value()) == 0);
  BOOST_TEST(other.parameter("b.1.weight").node() == other["b"][1].parameter("weight").node());
  BOOST_TEST(other.parameter("b.1.weight").node() != dict.parameter("b.1.weight").node());
  BOOST_TEST(other.buffer("steps").item() == 1);
  BOOST_TEST(!other["b"][1].training());
  struct Own : Module {};
  BOOST_CHECK_EXCEPTION(ModuleList<Module>{Own()}.clone(), esp::UnsupportedError,
                        says({"'0'", "of your own", "composed_layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(bags_without_words_are_zero) {
  const esp::Tensor none = esp::zeros({2, 0}, esp::int64);
  for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max})
    for (const std::optional<int64_t> padding : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
      const EmbeddingBag bag(5, 3, {.mode = mode, .padding_index = padding});
      BOOST_TEST(difference(bag(none).value(), esp::zeros({2, 3})) == 0);
      const Variable loss = esp::sum(bag(none));
      BOOST_TEST(difference(loss.gradient(bag.parameter("weight")).value(), esp::zeros({5, 3})) == 0);
    }
  BOOST_CHECK_EXCEPTION(EmbeddingBag(5, 3)(esp::tensor_from(std::vector<int64_t>{0, 7}, {1, 2})),
                        esp::IndexError, says({"EmbeddingBag: index 7", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(EmbeddingBag(5, 3)(esp::tensor_from(std::vector<int64_t>{0, -1}, {1, 2})),
                        esp::IndexError, says({"EmbeddingBag: index -1", "composed_layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(bilinear_is_a_form_of_two_inputs) {
  for (const esp::Shape& lead : std::vector<esp::Shape>{{3}, {2, 3}}) {
    esp::Dims first = lead.dims(), second = lead.dims();
    first.push_back(4), second.push_back(5);
    const esp::Tensor a = numbers(esp::Shape(first), -1, 1, 1), b = numbers(esp::Shape(second), -1, 1, 2);
    const Bilinear bilinear(2);
    const esp::Tensor y = bilinear(a, b).value();
    esp::set_value(bilinear.parameter("bias"), esp::tensor({1.0, -2.0}, esp::float64));
    BOOST_TEST(bilinear.parameter("weight").shape() == esp::Shape({2, 4, 5}));
    const Array w(bilinear.parameter("weight").value()), x1(a.reshape({-1, 4})), x2(b.reshape({-1, 5}));
    const Array expected(esp::Shape{x1.shape[0], 2}, [&](const Index& at) {
      double total = at[1] == 0 ? 1 : -2;
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t j = 0; j < 5; ++j) total += x1({at[0], i}) * w({at[1], i, j}) * x2({at[0], j});
      return total;
    });
    BOOST_TEST(difference(expected, bilinear(a, b).value().reshape({-1, 2})) < 1e-12);
    BOOST_TEST(y.rank() == lead.rank() + 1);
    const auto result = esp::check_gradient(
        [&](const std::vector<Variable>& v) { return bilinear(v[0], v[1]); }, {a, b}, {.order = 2});
    BOOST_TEST(result.passed, result.message);
    BOOST_TEST(difference(bilinear.clone()(a, b).value(), bilinear(a, b).value()) == 0);
  }
  BOOST_TEST(Bilinear(4, 5, 2).parameters().size() == 2u);
  const Variable a = esp::ones({2, 4}), b = esp::ones({3, 5});
  BOOST_CHECK_EXCEPTION(Bilinear(2)(a, b), esp::ShapeError,
                        says({"Bilinear", "[2, 4]", "[3, 5]", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Bilinear(2)(esp::ones({4}), esp::ones({5})), esp::ShapeError,
                        says({"Bilinear", "[4]", "[5]"}));
  BOOST_CHECK_EXCEPTION(Bilinear(4, 6, 2)(a, esp::ones({2, 5})), esp::ShapeError,
                        says({"Bilinear", "weight"}));
  BOOST_CHECK_EXCEPTION(Bilinear(2)(a, esp::ones({2, 5}, esp::float64)), esp::TypeError,
                        says({"float32", "float64"}));
  BOOST_CHECK_EXCEPTION(Bilinear(0), esp::Error, says({"Bilinear", "0", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(static_cast<const Layer&>(Bilinear(2))(a), esp::Error, says({"two inputs"}));
}

BOOST_AUTO_TEST_CASE(maxout_and_bias) {
  const Maxout maxout(3, 2);
  const esp::Tensor x = numbers({2, 5, 4});
  const Variable y = maxout(x);
  BOOST_TEST(y.shape() == esp::Shape({2, 5, 3}));
  BOOST_TEST(maxout.parameter("maps.weight").shape() == esp::Shape({6, 4}));
  const Variable maps = esp::matmul(x, esp::transpose(maxout.parameter("maps.weight")));
  BOOST_TEST(difference(y.value(), esp::max(esp::reshape(maps, {2, 5, 3, 2}), -1).value()) < 1e-12);
  BOOST_CHECK_EXCEPTION(Maxout(3, 0), esp::Error, says({"Maxout", "0", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Maxout(int64_t{1} << 32, int64_t{1} << 32), esp::ShapeError,
                        says({"Maxout", "4294967296", "64 bits", "composed_layers_test.cpp"}));

  const Bias bias(4, esp::float64);
  esp::set_value(bias.parameter("bias"), numbers({4}, 1, 2, 3));
  BOOST_TEST(difference(bias(x).value(), (x + Variable(numbers({4}, 1, 2, 3))).value()) == 0);
  BOOST_CHECK_EXCEPTION(bias(esp::ones({5})), esp::ShapeError, says({"Bias", "[5]", "[4]"}));
  BOOST_CHECK_EXCEPTION(Bias(-1), esp::Error, says({"Bias", "-1", "composed_layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(padding_and_norms_of_embeddings) {
  const Embedding words(5, 3, {.dtype = esp::float64, .padding_index = 1, .max_norm = 1.0});
  const Variable weight = words.parameter("weight");
  BOOST_TEST(difference(esp::gather(weight, 1).value(), esp::zeros({3}, esp::float64)) == 0);
  esp::set_value(weight, numbers({5, 3}, 1, 2, 3));
  const esp::Tensor at = esp::tensor({0, 1, 4});
  const Variable y = words(at);
  const Variable norms = esp::sqrt(esp::sum(esp::square(y), -1));
  BOOST_TEST(difference(norms.value(), esp::ones({3}, esp::float64)) < 1e-6);
  const Array slope(esp::sum(y).gradient(weight).value());
  BOOST_TEST(slope({0, 0}) > 0);
  BOOST_TEST(slope({1, 0}) == 0);
  BOOST_TEST(slope({2, 0}) == 0);
  const Embedding large(1, 3, {.dtype = esp::float16, .max_norm = 2.0});
  esp::set_value(large.parameter("weight"), esp::tensor({{300.0, 0.0, -400.0}}, esp::float16));
  BOOST_TEST(difference(large(esp::tensor({0})).value().to(esp::float64),
                        esp::tensor({{1.2, 0.0, -1.6}}, esp::float64)) < 1e-3);
  BOOST_CHECK_EXCEPTION(Embedding(5, 3, {.padding_index = 5}), esp::Error,
                        says({"Embedding", "5", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Embedding(5, 3, {.max_norm = 0.0}), esp::Error, says({"max_norm", "0"}));
}

BOOST_AUTO_TEST_CASE(bags_of_vectors) {
  const esp::Tensor table = numbers({5, 3}, -1, 1, 3), bags = esp::tensor({{4, 0, 2}, {2, 4, 4}, {2, 2, 2}});
  for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max})
    for (const bool padded : {false, true}) {
      EmbeddingBagOptions options{.mode = mode, .dtype = esp::float64};
      if (padded) options.padding_index = 2;
      const EmbeddingBag layer(5, 3, options);
      const Variable weight = layer.parameter("weight");
      esp::set_value(weight, table);
      const Array rows(table), ids(bags.to(esp::float64));
      const Array expected(esp::Shape{3, 3}, [&](const Index& i) {
        double total = 0, largest = -INFINITY;
        int count = 0;
        for (int64_t k = 0; k < 3; ++k) {
          const auto id = static_cast<int64_t>(ids({i[0], k}));
          if (padded && id == 2) continue;
          total += rows({id, i[1]}), largest = std::max(largest, rows({id, i[1]})), ++count;
        }
        if (count == 0) return 0.0;
        return mode == BagMode::sum ? total : mode == BagMode::mean ? total / count : largest;
      });
      BOOST_TEST(difference(expected, layer(bags).value()) < 1e-12);
      const Array slope(esp::sum(layer(bags)).gradient(weight).value());
      if (padded) BOOST_TEST(slope({2, 0}) == 0);
      BOOST_TEST(slope({1, 0}) == 0);
      BOOST_TEST(std::abs(slope({4, 0})) + std::abs(slope({0, 0})) > 0);
    }
  const EmbeddingBag low(2, 1, {.mode = BagMode::max, .dtype = esp::float64, .padding_index = 0});
  esp::set_value(low.parameter("weight"), esp::tensor({{0.0}, {-1e300}}, esp::float64));
  const Variable lowest = low(esp::tensor({{0, 1}, {0, 0}}));
  BOOST_TEST(difference(lowest.value(), esp::tensor({{-1e300}, {0.0}}, esp::float64)) == 0);
  BOOST_TEST(difference(esp::sum(lowest).gradient(low.parameter("weight")).value(),
                        esp::tensor({{0.0}, {1.0}}, esp::float64)) == 0);
  const EmbeddingBag sum(5, 3, {.mode = BagMode::sum, .dtype = esp::float64});
  const esp::Tensor counts = numbers({3, 3}, 0, 2, 6);
  const Variable looked_up = esp::gather(sum.parameter("weight"), bags);
  BOOST_TEST(difference(sum(bags, counts).value(),
                        esp::sum(looked_up * esp::unsqueeze(counts, -1), -2).value()) < 1e-12);
  BOOST_CHECK_EXCEPTION(EmbeddingBag(5, 3)(bags, counts), esp::Error, says({"EmbeddingBag", "sum"}));
  BOOST_CHECK_EXCEPTION(sum(bags, esp::ones({3})), esp::ShapeError, says({"EmbeddingBag", "[3]", "[3, 3]"}));
  BOOST_CHECK_EXCEPTION(sum(esp::ones({3, 3})), esp::TypeError, says({"EmbeddingBag", "float32"}));
  BOOST_CHECK_EXCEPTION(sum(esp::tensor(1)), esp::ShapeError, says({"EmbeddingBag", "[]"}));
}

BOOST_AUTO_TEST_CASE(dropouts_of_channels_and_with_fixed_moments) {
  esp::seed(4);
  const Variable ones = esp::ones({200, 30, 2, 2});
  ChannelDropout channels(0.25);
  const Array kept(esp::mean(channels(ones), {2, 3}).value());
  double zeros = 0;
  for (const double v : kept.values) {
    BOOST_TEST((v == 0 || std::abs(v - 4.0 / 3) < 1e-6));
    zeros += v == 0;
  }
  BOOST_TEST(std::abs(zeros / 6000 - 0.25) < 0.03);
  AlphaDropout alpha(0.3);
  const Variable x = esp::randn({100000}, esp::float64), y = alpha(x);
  const double mean = esp::mean(y).item(), variance = esp::mean(esp::square(y - mean)).item();
  BOOST_TEST(std::abs(mean) < 0.02);
  BOOST_TEST(std::abs(variance - 1) < 0.03);
  BOOST_TEST(difference(y.value(), x.value()) > 0.1);
  FeatureAlphaDropout feature(0.3);
  const Variable maps = esp::randn({20000, 3, 4}, esp::float64), dropped = feature(maps);
  const Array before(maps.value()), after(dropped.value());
  double lowered = 0, sum = 0, squares = 0;
  for (int64_t i = 0; i < 60000; ++i) {
    // Whole channels become one number, others are scaled and shifted alike.
    const auto slope = [&](int64_t k) {
      return after.values[size_t(4 * i + k)] - after.values[size_t(4 * i)];
    };
    const double scale = (before.values[size_t(4 * i + 1)] - before.values[size_t(4 * i)]);
    lowered += slope(1) == 0;
    for (int64_t k = 1; k < 4; ++k)
      BOOST_REQUIRE_SMALL(
          slope(k) - slope(1) / scale * (before.values[size_t(4 * i + k)] - before.values[size_t(4 * i)]),
          1e-9);
    for (int64_t k = 0; k < 4; ++k) sum += after.values[size_t(4 * i + k)];
    for (int64_t k = 0; k < 4; ++k) squares += std::pow(after.values[size_t(4 * i + k)], 2);
  }
  BOOST_TEST(std::abs(lowered / 60000 - 0.3) < 0.01);
  BOOST_TEST(std::abs(sum / 240000) < 0.02);
  BOOST_TEST(std::abs(squares / 240000 - 1) < 0.03);
  // In plans of inference both are the identity.
  const Variable fed = esp::placeholder("x", {3, 4, 2}, esp::float64);
  const Variable both = feature(alpha(channels(fed)));
  const esp::Tensor value = numbers({3, 4, 2});
  BOOST_TEST(difference(both.get_executor().run({{"x", value}}), value) == 0);
  channels.train(false), alpha.train(false), feature.train(false);
  BOOST_TEST(feature(maps).node() == maps.node());
  BOOST_TEST(channels(ones).node() == ones.node());
  BOOST_TEST(alpha(x).node() == x.node());
  BOOST_CHECK_EXCEPTION(ChannelDropout(1), esp::Error,
                        says({"ChannelDropout", "1", "composed_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(AlphaDropout(-0.1), esp::Error, says({"AlphaDropout", "-0.1"}));
  BOOST_CHECK_EXCEPTION(ChannelDropout()(esp::ones({3})), esp::ShapeError, says({"ChannelDropout", "[3]"}));
  BOOST_CHECK_EXCEPTION(FeatureAlphaDropout(1.5), esp::Error, says({"FeatureAlphaDropout", "1.5"}));
  BOOST_CHECK_EXCEPTION(FeatureAlphaDropout()(esp::ones({3})), esp::ShapeError,
                        says({"FeatureAlphaDropout", "[3]", "composed_layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_as_an_eager_loop) {
  const esp::Shape rows{4}, images{4, 3};
  for (const esp::Shape& shape : {rows, images}) {
    BOOST_TEST(training_differences<Residual>([&] { return Residual(Dense(shape[-1]), Tanh()); }, shape) <
               1e-9);
    BOOST_TEST(training_differences<Maxout>([] { return Maxout(3, 2); }, shape) < 1e-9);
    BOOST_TEST(training_differences<Bias>([] { return Bias(); }, shape) < 1e-9);
    BOOST_TEST(training_differences<PRelu>([] { return PRelu(4, 0.25, esp::float64); }, shape) < 1e-9);
    BOOST_TEST(training_differences<ChannelDropout>([] { return ChannelDropout(0.4); }, shape) < 1e-9);
    BOOST_TEST(training_differences<AlphaDropout>([] { return AlphaDropout(0.4); }, shape) < 1e-9);
    BOOST_TEST(training_differences<FeatureAlphaDropout>([] { return FeatureAlphaDropout(0.4); }, shape) <
               1e-9);
    BOOST_TEST(training_differences<Sequential>(
                   [] {
                     return Sequential{Flatten(), Unflatten(1, {2, -1})};
                   },
                   shape) < 1e-9);
  }
  const auto own = [](const Bilinear& bilinear) {
    return Lambda([bilinear](const Variable& x) { return bilinear(x, esp::tanh(x)); });
  };
  const Bilinear form(4, 4, 2, {.dtype = esp::float64});
  BOOST_TEST(training_differences<Lambda>([&] { return own(form.clone()); }, rows) < 1e-9);
}

BOOST_AUTO_TEST_SUITE_END()
