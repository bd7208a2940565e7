// The parts of modules: by number, name and path, their hooks, and clones of modules made of parts.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/node.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/kit/summary.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/functional_call.h"
#include "espalier/nn/lambda.h"
#include "espalier/nn/serialize.h"
#include "espalier/nn/transformer.h"
#include "espalier/nn/vision/models.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// A module of one's own, which can be cloned.
struct Gated : ModuleOf<Gated> {
  Gated with_parts(const ClonedParts& parts) const {
    Gated copy(*this);
    parts.reset(copy);
    copy.hidden = parts.of(hidden);
    copy.gain = parts.of(gain);
    copy.tied = parts.of(tied);
    copy.steps = parts.of(steps);
    return copy;
  }
  Variable operator()(const Variable& x) const { return esp::tanh(hidden(x)) * gain * tied + steps; }

  Dense hidden = add("hidden", Dense(4));
  Variable gain = add_parameter("gain", esp::full({4}, 2));
  Variable tied = add_parameter("tied", gain);
  Variable steps = add_buffer("steps", esp::tensor(3.0f));
};

std::vector<std::string> paths(const std::vector<std::pair<std::string, Module>>& modules) {
  std::vector<std::string> list;
  for (const auto& [path, module] : modules) list.push_back(path);
  return list;
}

using Paths = std::vector<std::string>;

/// Whether a clone gives the same, has the same names, and shares nothing.
template <class M, class Call>
void check_clone(const M& module, Call&& call) {
  const esp::Tensor before = call(module).value();
  const M clone = module.clone();
  BOOST_TEST(difference(call(clone).value(), before) == 0);
  const auto ours = module.parameters(), theirs = clone.parameters();
  BOOST_REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    BOOST_TEST(ours[i].first == theirs[i].first);
    BOOST_TEST(ours[i].second.node() != theirs[i].second.node());
  }
  BOOST_TEST(paths(module.modules()) == paths(clone.modules()), boost::test_tools::per_element());
  for (const auto& [name, p] : ours) esp::set_value(p, (esp::Variable(p.value().clone()) + 1.0).value());
  BOOST_TEST(difference(call(clone).value(), before) == 0);
  BOOST_TEST(difference(call(module).value(), before) > 0);
  for (const auto& [name, p] : theirs) esp::set_value(p, (esp::Variable(p.value().clone()) + 1.0).value());
  BOOST_TEST(difference(call(clone).value(), call(module).value()) == 0);
  BOOST_TEST(esp::sum(call(clone)).gradient(theirs.back().second).defined());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(module_parts)

BOOST_AUTO_TEST_CASE(elements_of_a_sequential) {
  const Sequential net{Dense(4), Relu(), Gated(), Dense(2)};
  const Variable x = esp::Variable(numbers({3, 5}, -1, 1).to(esp::float32));
  const Variable y = net(x);
  BOOST_TEST(net.size() == 4u);
  BOOST_TEST(net[0].kind_name() == "Dense");
  BOOST_TEST(net[1].kind_name() == "Relu");
  BOOST_TEST(net[0].parameter("weight").node() == net.parameter("0.weight").node());
  BOOST_TEST(net[-1].parameter("weight").node() == net.parameter("3.weight").node());
  BOOST_TEST(net["2"].parameter("hidden.weight").node() == net.parameter("2.hidden.weight").node());
  BOOST_TEST(net[2].buffers().size() == 1u);
  Variable h = x;
  size_t count = 0;
  for (const Layer& layer : net) h = layer(h), ++count;
  BOOST_TEST(count == 4u);
  for (auto& layer : net) layer.trainable(false);
  BOOST_TEST(net.parameters().front().second.node()->frozen);
  for (auto& layer : net) layer.trainable(true);
  BOOST_TEST(difference(h.value(), y.value()) == 0);
  BOOST_TEST(difference(Sequential{net[0], net[1]}(x).value(), net[1](net[0](x)).value()) == 0);
  BOOST_CHECK_EXCEPTION(net[4], esp::IndexError, says({"Sequential", "4", "among 4"}));
  BOOST_CHECK_EXCEPTION(net[-5], esp::IndexError, says({"-5"}));
  BOOST_CHECK_EXCEPTION(net["fc"], esp::IndexError, says({"'fc'", here()}));
}

BOOST_AUTO_TEST_CASE(modules_of_ones_own_have_hooks_in_a_sequential) {
  const Sequential net{Dense(4), Gated()};
  const Variable x = esp::Variable(numbers({3, 5}, -1, 1).to(esp::float32));
  const esp::Tensor y = net(x).value();
  Variable seen;
  const int64_t hook = net[1].register_forward_hook([&](const Variable&, const Variable& out) {
    seen = out;
    return out * 2.0;
  });
  BOOST_TEST(difference(net(x).value(), (esp::Variable(y) * 2.0).value()) == 0);
  BOOST_TEST(difference(seen.value(), y) == 0);
  net[1].remove_forward_hook(hook);
  BOOST_TEST(difference(net(x).value(), y) == 0);
  std::vector<std::string> names;
  for (const auto& [name, p] : net.parameters()) names.push_back(name);
  const Paths expected{"0.weight", "0.bias", "1.hidden.weight", "1.hidden.bias", "1.gain"};
  BOOST_TEST(names == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(parts_by_path) {
  struct Net : Module {
    Sequential body = add("body", Sequential{Dense(3), Sequential{Relu(), Dense(2)}});
    MultiHeadAttention attention = add("attention", MultiHeadAttention(4, 2));
    Dense again = add("again", static_cast<const Dense&>(Dense(2)));
  };
  const Net net;
  const Paths children{"body", "attention", "again"};
  BOOST_TEST(paths(net.children()) == children, boost::test_tools::per_element());
  const Paths all{"body", "body.0", "body.1", "body.1.0", "body.1.1", "attention", "attention.out_proj",
                  "again"};
  BOOST_TEST(paths(net.modules()) == all, boost::test_tools::per_element());
  BOOST_TEST(net.get_module("attention").parameters().size() == 4u);
  BOOST_TEST(net.get_module("attention").kind_name() == "module");
  BOOST_TEST(net.get_layer("attention.out_proj").kind_name() == "Dense");
  BOOST_TEST(net.get_layer("body.1.1").state() == net.body[1].get_module("1").state());
  net.get_module("body").train(false);
  BOOST_TEST(!net.get_layer("body.1.1").training());
  BOOST_TEST(net.get_layer("again").training());
  BOOST_CHECK_EXCEPTION(net.get_layer("attention"), esp::Error,
                        says({"attention", "not a layer", "out_proj", here()}));
  BOOST_CHECK_EXCEPTION(net.get_module("body.2"), esp::Error, says({"'body.2'", "'0', '1'", here()}));
  BOOST_CHECK_EXCEPTION(net.get_module("head.2"), esp::Error, says({"'head.2'", "'again'", here()}));
  BOOST_CHECK_THROW(net.get_module(""), esp::Error);
  BOOST_CHECK_THROW(net.get_module("body."), esp::Error);

  const Dense shared(3);
  const Sequential twice{shared, Relu(), shared};
  BOOST_TEST(twice.modules().size() == 2u);  // each once, by the first path
  BOOST_TEST(twice.get_layer("2").state() == shared.state());
}

BOOST_AUTO_TEST_CASE(activations_within_a_vision_model) {
  Sequential net = vision::resnet18({.classes = 4});
  net.train(false);
  const Paths known = paths(net.modules());
  BOOST_TEST(std::ranges::count(known, "layer4.1.conv2") == 1);
  const auto convolutions =
      std::ranges::count_if(net.modules(), [](const auto& m) { return m.second.kind_name() == "Conv2d"; });
  BOOST_TEST(convolutions == 20);
  Variable seen;
  net.get_layer("layer4.1.conv2").register_forward_hook([&](const Variable&, const Variable& y) {
    seen = y;
    return Variable();
  });
  (void)net(esp::ones({1, 3, 33, 33}));
  BOOST_TEST(seen.shape() == esp::Shape({1, 512, 2, 2}));

  const Variable in = esp::placeholder("image", {1, 3, 33, 33});
  const Variable y = net(in);
  auto executor = y.get_executor({.outputs = {{"activation", seen}}});
  executor.run({{"image", esp::ones({1, 3, 33, 33})}});
  BOOST_TEST(net["layer4"].get_layer("1.conv2").state() == net.get_layer("layer4.1.conv2").state());
}

BOOST_AUTO_TEST_CASE(clones_of_attention_and_transformers) {
  esp::seed(5);
  const Variable x = esp::Variable(numbers({2, 3, 8}, -1, 1).to(esp::float32)),
                 memory = esp::Variable(numbers({2, 5, 8}, -1, 1, 9).to(esp::float32));
  check_clone(MultiHeadAttention(8, 2, {.add_bias_kv = true}), [&](const auto& m) { return m(x); });
  check_clone(MultiHeadAttention(8, 2, {.key_width = 6}),
              [&](const auto& m) { return m(x, esp::slice(memory, 2, 0, 6), memory); });
  const TransformerOptions options{.feedforward = 16, .dropout = 0};
  check_clone(TransformerEncoderLayer(8, 2, options), [&](const auto& m) { return m(x); });
  check_clone(TransformerDecoderLayer(8, 2, options), [&](const auto& m) { return m(x, memory); });
  check_clone(TransformerEncoder(2, 8, 2, options, true), [&](const auto& m) { return m(x); });
  check_clone(TransformerDecoder(2, 8, 2, options), [&](const auto& m) { return m(x, memory); });
  check_clone(Transformer({.width = 8, .heads = 2, .encoder_layers = 1, .decoder_layers = 2}, options),
              [&](const auto& m) { return m(memory, x); });
  check_clone(Sequential{Dense(8), TransformerEncoder(1, 8, 2, options), Dense(2)},
              [&](const auto& m) { return m(x); });
  check_clone(ModuleList<TransformerEncoder>{TransformerEncoder(1, 8, 2, options)},
              [&](const auto& m) { return m[0](x); });
}

BOOST_AUTO_TEST_CASE(clones_of_modules_of_ones_own) {
  const Variable x = esp::Variable(numbers({3, 5}, -1, 1).to(esp::float32));
  const Sequential net{Dense(4), Gated()};
  (void)net(x);
  check_clone(net, [&](const auto& m) { return m(x); });
  const Gated gated;
  check_clone(gated, [&](const auto& m) { return m(x); });
  const Gated clone = gated.clone();
  BOOST_TEST(clone.gain.node() == clone.tied.node());  // one parameter by two names stays one
  BOOST_TEST(clone.steps.node() == clone.buffer("steps").node());
  BOOST_TEST(clone.steps.node() != gated.steps.node());
  // The elements of the clone have hooks of their own.
  const Sequential other = net.clone();
  other[1].register_forward_hook([](const Variable&, const Variable& y) { return y * 0.0; });
  BOOST_TEST(esp::max(esp::abs(other(x))).item() == 0);
  BOOST_TEST(esp::max(esp::abs(net(x))).item() > 0);

  struct Plain : Module {
    Variable operator()(const Variable& v) const { return dense(v); }
    Dense dense = add("dense", Dense(2));
  };
  BOOST_CHECK_EXCEPTION(Sequential{Plain()}.clone(), esp::UnsupportedError,
                        says({"module of your own", "with_parts", here()}));
}

BOOST_AUTO_TEST_CASE(a_summary_names_modules_of_ones_own) {
  struct Scale : Module {
    Variable operator()(const Variable& v) const { return v * gain; }
    Variable gain = add_parameter("gain", esp::ones({4}));
  };
  const esp::ModuleSummary summary = esp::summary(Sequential{Dense(4), Scale(), Gated()}, {2, 3});
  BOOST_REQUIRE(summary.layers.size() == 3u);
  BOOST_TEST(summary.layers[1].path == "1");
  BOOST_TEST(summary.layers[1].parameters == 4);
  BOOST_TEST(summary.layers[2].path == "2.hidden");
}

BOOST_AUTO_TEST_CASE(a_module_is_printed_as_a_tree) {
  const Dense shared(3, 3);
  Sequential inner{shared, Relu(), Dropout(0.5)};
  Sequential net;
  net.append("body", inner).append("act", Tanh()).append(Gated(), shared);
  std::ostringstream text;
  text << net;
  BOOST_TEST(text.str() ==
             "Sequential\n"
             "  body: Sequential\n"
             "    0: Dense\n"
             "      weight                     float32  [3, 3]\n"
             "      bias                       float32  [3]\n"
             "    1: Relu\n"
             "    2: Dropout\n"
             "  act: Tanh\n"
             "  2: module\n"
             "    hidden: Dense\n"
             "      weight                              [4, -1]          comes with the first input\n"
             "      bias                                [4]              comes with the first input\n"
             "    gain                         float32  [4]\n"
             "    tied                         float32  [4]              above\n"
             "    steps                        float32  []               buffer\n"
             "  3: Dense (above)\n"
             "16 numbers in parameters, 1 in buffers\n");
}

BOOST_AUTO_TEST_CASE(numbers_of_parts_that_are_not_there_name_the_line) {
  const Sequential net{Relu()};
  const ModuleList<Dense> list{Dense(2)};
  for (const int64_t number : {3, -2}) {
    const std::string text = std::to_string(number) + " among 1";
    BOOST_CHECK_EXCEPTION(net[number], esp::IndexError, says({"Sequential", text, here()}));
    BOOST_CHECK_EXCEPTION(list[number], esp::IndexError, says({"ModuleList", text, here()}));
  }
}

BOOST_AUTO_TEST_CASE(parts_are_replaced) {
  struct Net : Module {
    Variable operator()(const Variable& x) const { return fc(drop(esp::tanh(hidden(x)))); }
    Dense hidden = add("hidden", Dense(3, 4)), fc = add("fc", Dense(4, 2));
    Dropout drop = add("drop", Dropout(0.5));
  };
  Net net;
  const Variable x = esp::ones({2, 3});
  net.trainable(false);
  net.fc = net.replace("fc", Dense(4, 7));
  net.drop = net.replace("drop", Dropout(0.25));
  BOOST_TEST((net(x).shape() == esp::Shape{2, 7}));
  BOOST_TEST((net.parameter("fc.weight").shape() == net.fc.parameter("weight").shape()));
  BOOST_TEST((net.fc.trainable() && !net.hidden.trainable()));
  net.eval();
  BOOST_TEST(!net.drop.training());
  BOOST_TEST((paths(net.children()) == std::vector<std::string>{"hidden", "fc", "drop"}));

  // Below layers that call their parts, also through copies, by path.
  Sequential deep{Dense(3, 4), Sequential{Dense(4, 4), Tanh()}, Gated()};
  const Sequential copy = deep;
  deep.replace("1.0", Dense(4, 5));
  deep.replace("2", Dense(5, 6));
  BOOST_TEST((copy(x).shape() == esp::Shape{2, 6}));
  deep.replace("1.0", Dense(4, 8));
  deep.replace("2", Gated());
  BOOST_TEST((copy(x).shape() == esp::Shape{2, 4}));
  BOOST_TEST((copy.clone()(x).shape() == esp::Shape{2, 4}));
  Sequential resnet = vision::resnet18({.classes = 10});
  resnet.replace("fc", Dense(512, 2));
  resnet.replace("layer1.0.bn1", Identity());
  BOOST_TEST((resnet(esp::zeros({2, 3, 32, 32})).shape() == esp::Shape{2, 2}));

  ModuleList<> list{Dense(3, 4), Tanh()};
  list.replace(-1, Relu());
  BOOST_TEST(list[1].kind_name() == "Relu");
  BOOST_TEST(list.get_module("1").kind_name() == "Relu");
  ModuleDict<Dense> dict{{"a", Dense(3, 4)}};
  dict.replace("a", Dense(3, 9));
  BOOST_TEST((dict["a"](x).shape() == esp::Shape{2, 9}));
  BOOST_TEST((dict.parameter("a.weight").shape() == dict["a"].parameter("weight").shape()));

  BOOST_CHECK_EXCEPTION(net.replace("head", Dense(2)), esp::Error, says({"no part 'head'", here()}));
  BOOST_CHECK_EXCEPTION(net.replace("", Dense(2)), esp::Error, says({"no part ''", here()}));
  BOOST_CHECK_EXCEPTION(net.replace("fc.weight", Dense(2)), esp::Error, says({"'fc.weight'", here()}));
  BOOST_CHECK_EXCEPTION(net.replace("fc", Gated()), esp::Error, says({"'fc' is a layer, a Dense", here()}));
  BOOST_CHECK_EXCEPTION(copy.replace("0", deep), esp::Error, says({"part of itself", here()}));
  const Sequential with_member{Gated()};
  BOOST_CHECK_EXCEPTION(with_member.replace("0.hidden", Dense(4)), esp::Error,
                        says({"replace it there", here()}));
  BOOST_CHECK_EXCEPTION(list.replace(2, Relu()), esp::IndexError, says({"2", here()}));
  static_assert(!std::is_assignable_v<Layer, Dense> && std::is_assignable_v<Layer&, Dense>);
}

BOOST_AUTO_TEST_CASE(parameters_are_tied) {
  struct Net : ModuleOf<Net> {
    Net with_parts(const ClonedParts& parts) const {
      Net copy(*this);
      parts.reset(copy);
      copy.table = parts.of(table);
      copy.body = parts.of(body);
      return copy;
    }
    Variable operator()(const Variable& words) const { return body(table(words)); }
    Embedding table = add("table", Embedding(5, 3));
    Sequential body = add("body", Sequential{Gated(), Dense(5, {.bias = false})});
  };
  esp::seed(3);
  Net net;
  const Variable words = esp::tensor({0, 4, 2});
  const Variable weight = net.table.parameter("weight");
  net.body.replace("0", Dense(3, 3));
  net.tie("body.1.weight", weight);  // of a layer that has not learned its width
  BOOST_TEST((net(words).shape() == esp::Shape{3, 5}));
  BOOST_TEST(net.parameters().size() == 3u);
  BOOST_TEST(net.parameter("table.weight").node() == net.body.get_module("1").parameter("weight").node());
  const Net clone = net.clone();
  BOOST_TEST(clone.parameter("table.weight").node() == clone.body.get_module("1").parameter("weight").node());

  // Both uses of the parameter have their share of its gradient, eagerly and in a plan.
  const auto loss_of = [&](const Net& n, const Variable& w) { return esp::sum(esp::square(n(w))); };
  const Variable b = net.parameter("body.0.bias"), w = net.parameter("body.0.weight");
  const Variable hidden = esp::linear(esp::gather(weight, words), w) + b;
  const Variable by_hand = esp::sum(esp::square(esp::linear(hidden, weight)));
  BOOST_TEST(difference(loss_of(net, words).gradient(weight).value(), by_hand.gradient(weight).value()) == 0);
  const auto epoch = [&](const Net& n) {
    const esp::data::Distributor feed({words.value()}, {.batch_size = 3});
    const auto [fed] = feed.get_output_graphs<1>();
    loss_of(n, fed).get_executor({.optimizer = esp::optim::Sgd({.lr = 0.01})}).step();
    return n.parameter("table.weight").value().clone();
  };
  const esp::Tensor before = weight.value().clone(), slope = loss_of(net, words).gradient(weight).value();
  BOOST_TEST(difference(epoch(clone), (Variable(before) - 0.01 * Variable(slope)).value()) < 1e-6);

  // A known weight is let go of; what a frozen layer gets stays trained.
  Dense head(3, 5, {.bias = false});
  head.trainable(false);
  head.tie("weight", weight);
  BOOST_TEST(head.parameter("weight").node() == weight.node());
  std::ostringstream text;
  text << net;
  BOOST_TEST(text.str().find("frozen") == std::string::npos);
  BOOST_TEST(text.str().find("float32  [5, 3]           above\n") != std::string::npos, text.str());

  BOOST_CHECK_EXCEPTION(net.tie("body.2.weight", weight), esp::Error,
                        says({"no parameter 'body.2.weight'", here()}));
  BOOST_CHECK_EXCEPTION(net.tie("body", weight), esp::Error, says({"no parameter 'body'", here()}));
  BOOST_CHECK_EXCEPTION(net.tie("body.0.bias", weight), esp::ShapeError,
                        says({"'body.0.bias'", "[3]", "[5, 3]", here()}));
  BOOST_CHECK_EXCEPTION(Dense(4, {.bias = false}).tie("weight", weight), esp::ShapeError,
                        says({"[4, -1]", "[5, 3]", here()}));
  BOOST_CHECK_EXCEPTION(head.tie("weight", esp::parameter(esp::zeros({5, 3}, esp::float64))), esp::TypeError,
                        says({"float32", "float64", here()}));
  BOOST_CHECK_EXCEPTION(head.tie("weight", weight * 1.0), esp::Error,
                        says({"'weight'", "not a parameter", here()}));
  BOOST_CHECK_EXCEPTION(Gated().tie("gain", esp::parameter(esp::ones({4}))), esp::Error,
                        says({"'gain'", "add_parameter", here()}));
}

BOOST_AUTO_TEST_CASE(tied_parameters_have_all_of_their_paths) {
  Sequential net{Dense(3, 4), Tanh(), Dense(4, 4), Dense(4, 4)};
  net.tie("3.weight", net.parameter("2.weight"));
  const Variable x = esp::ones({2, 3}), weight = net.parameter("3.weight");
  BOOST_TEST(weight.node() == net.parameter("2.weight").node());
  const Variable given = esp::full({4, 4}, 0.5);
  BOOST_TEST(difference(functional_call(net, {{"3.weight", given}}, x).value(),
                        functional_call(net, {{"2.weight", given}}, x).value()) == 0);

  // Files have it under the first path, and may have it under another one or both.
  const TemporaryFolder folder;
  save(net, folder / "net");
  esp::NamedTensors tensors = esp::read_safetensors(folder / "net");
  BOOST_TEST(tensors.size() == 5u);
  const auto load_with = [&](const esp::Tensor& second, const esp::Tensor& third) {
    esp::NamedTensors changed;
    for (const auto& [name, tensor] : tensors)
      if (name != "2.weight") changed.emplace_back(name, tensor);
    if (second.defined()) changed.emplace_back("2.weight", second);
    if (third.defined()) changed.emplace_back("3.weight", third);
    esp::write_safetensors(folder / "changed", changed);
    load(net, folder / "changed");
    return weight.value().clone();
  };
  const esp::Tensor ones = esp::ones({4, 4}), twos = esp::full({4, 4}, 2);
  BOOST_TEST(difference(load_with({}, ones), ones) == 0);
  BOOST_TEST(difference(load_with(twos, twos), twos) == 0);
  BOOST_CHECK_EXCEPTION(load_with(ones, twos), esp::FileError, says({"3.weight"}));
  BOOST_CHECK_EXCEPTION(load_with({}, {}), esp::FileError, says({"2.weight"}));
  BOOST_TEST(difference(weight.value(), twos) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
