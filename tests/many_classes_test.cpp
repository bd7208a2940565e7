// Softmax over many classes: AdaptiveLogSoftmax and ClassFactoredSoftmax.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/nn/adaptive_log_softmax.h"
#include "espalier/nn/serialize.h"
#include "layer_figures.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

esp::Tensor int_list(const std::vector<int64_t>& values) {
  return esp::tensor_from(values, {static_cast<int64_t>(values.size())});
}

/// For x of width 6: the largest element is the target.
template <class L>
double many_class_differences(const std::function<L()>& make) {
  const auto call = [&](Module& module) -> LayerTraining::Call {
    const L layer = module.add("layer", make());
    return [layer](const Variable& x) { return layer(x, esp::argmax(x, -1)).output; };
  };
  return training_differences_of(call, {6});
}

const std::vector<int64_t> six_words{1, 0, 1, 2, 1, 0};

}  // namespace

BOOST_AUTO_TEST_SUITE(many_classes)

BOOST_AUTO_TEST_CASE(adaptive_log_softmax_computes_what_pytorch_s_computes) {
  for (const bool bias : {false, true}) {
    const AdaptiveLogSoftmax layer(8, 9, {3, 5}, {.div_value = 2, .head_bias = bias, .dtype = esp::float64});
    give_figure_values(layer);
    const Variable x = figure_numbers({6, 8}, 37, 19, 8);
    const auto [output, loss] = layer(x, int_list({0, 8, 3, 5, 2, 4}));
    const Variable all = layer.log_prob(x);
    check_layer_figures(bias ? "adaptive log softmax with bias" : "adaptive log softmax",
                        {output, loss, all, layer.predict(x)}, loss + weighed(all), layer);
    BOOST_TEST(difference(esp::sum(esp::exp(all), -1).value(), esp::ones({6}, esp::float64)) < 1e-12);
    BOOST_TEST(difference(Layer(layer)(x).value(), all.value()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(class_factored_softmax_is_the_product_of_two) {
  const ClassFactoredSoftmax layer(4, six_words, {.dtype = esp::float64});
  give_figure_values(layer);
  const Variable x = figure_numbers({3, 4}, 37, 19, 8);
  const auto [output, loss] = layer(x, int_list({4, 3, 5}));
  const Variable all = layer.log_prob(x);
  check_layer_figures("class-factored softmax", {output, all}, loss + weighed(all), layer);
  BOOST_TEST(difference(esp::sum(esp::exp(all), -1).value(), esp::ones({3}, esp::float64)) < 1e-12);
  BOOST_TEST(difference(layer.predict(x).value(), esp::argmax(all, -1).value()) == 0);
  // Each word is drawn as often as its probability says.
  esp::seed(4);
  const Variable row = esp::broadcast_to(esp::slice(x, 0, 0, 1), {4000, 4});
  const esp::Tensor drawn = layer.sample(row).value();
  std::vector<double> counts(6, 0);
  for (const int64_t word : drawn.span<int64_t>()) counts[static_cast<size_t>(word)] += 1.0 / 4000;
  const esp::Tensor expected = esp::exp(esp::slice(all, 0, 0, 1)).value();
  for (int64_t w = 0; w < 6; ++w)
    BOOST_TEST(std::abs(counts[static_cast<size_t>(w)] - expected.at<double>({0, w})) < 0.04);
  BOOST_TEST(ClassFactoredSoftmax(4, six_words, {.bias = false}).parameters().size() == 2u);
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_many_classes_as_an_eager_loop) {
  BOOST_TEST(many_class_differences<AdaptiveLogSoftmax>([] {
               return AdaptiveLogSoftmax(6, 6, {2, 3}, {.div_value = 2, .dtype = esp::float64});
             }) < 1e-9);
  BOOST_TEST(many_class_differences<ClassFactoredSoftmax>(
                 [] { return ClassFactoredSoftmax(6, six_words, {.dtype = esp::float64}); }) < 1e-9);
}

BOOST_AUTO_TEST_CASE(many_classes_in_files_clones_and_sixteen_bits) {
  const TemporaryFolder folder;
  const esp::Tensor x = figure_numbers({3, 8}, 37, 19, 8).to(esp::float32), target = int_list({4, 0, 5});
  const auto check = [&](const auto& layer, const auto& other, const auto& narrow) {
    save(layer, folder / "layer.safetensors");
    load(other, folder / "layer.safetensors");
    const esp::Tensor y = layer(x, target).output.value();
    BOOST_TEST(difference(other(x, target).output.value(), y) == 0);
    BOOST_TEST(difference(layer.clone()(x, target).output.value(), y) == 0);
    for (const auto& [path, p] : layer.parameters())
      esp::set_value(narrow.parameter(path), p.value().to(esp::float16));
    const Variable rounded = narrow(x.to(esp::float16), target.to(esp::int32)).output;
    BOOST_TEST(rounded.dtype() == esp::float16);
    BOOST_TEST(difference(rounded.value(), y) < 2e-2);
    BOOST_TEST(difference(narrow.log_prob(x.to(esp::float16)).value(), layer.log_prob(x).value()) < 2e-2);
  };
  const auto adaptive = [](esp::DType dtype) {
    return AdaptiveLogSoftmax(8, 6, {2, 4}, {.div_value = 2, .dtype = dtype});
  };
  const auto factored = [](esp::DType dtype) { return ClassFactoredSoftmax(8, six_words, {.dtype = dtype}); };
  check(adaptive(esp::float32), adaptive(esp::float32), adaptive(esp::float16));
  check(factored(esp::float32), factored(esp::float32), factored(esp::float16));
  std::vector<std::string> names;
  for (const auto& [path, p] : adaptive(esp::float32).parameters()) names.push_back(path);
  BOOST_TEST(names == (std::vector<std::string>{"head.weight", "tail.0.0.weight", "tail.0.1.weight",
                                                "tail.1.0.weight", "tail.1.1.weight"}));
}

BOOST_AUTO_TEST_CASE(wrong_classes_are_refused) {
  const AdaptiveLogSoftmax adaptive(8, 9, {3, 5}, {.div_value = 2});
  const ClassFactoredSoftmax factored(8, six_words);
  const esp::Tensor x = esp::ones({2, 8});
  const auto check = [&](const auto& layer, const std::string& name, int64_t outside) {
    for (const int64_t target : {outside, int64_t{-1}})
      BOOST_CHECK_EXCEPTION(
          layer(x, int_list({0, target})), esp::IndexError,
          says({name, std::to_string(target), std::to_string(outside), "many_classes_test.cpp"}));
    BOOST_CHECK_EXCEPTION(layer(x, int_list({0})), esp::ShapeError, says({name, "[1]", "[2, 8]"}));
    BOOST_CHECK_EXCEPTION(layer(x, x), esp::TypeError, says({name, "float32"}));
    BOOST_CHECK_EXCEPTION(layer.log_prob(esp::ones({2, 7})), esp::ShapeError,
                          says({name, "[2, 7]", "8", "many_classes_test.cpp"}));
    BOOST_CHECK_EXCEPTION(layer(x.to(esp::float64), int_list({0, 1})), esp::TypeError, says({"float64"}));
  };
  check(adaptive, "AdaptiveLogSoftmax", 9);
  check(factored, "ClassFactoredSoftmax", 6);
  for (const std::vector<int64_t>& cutoffs : std::vector<std::vector<int64_t>>{{}, {0}, {9}, {5, 3}, {3, 3}})
    BOOST_CHECK_EXCEPTION(AdaptiveLogSoftmax(8, 9, cutoffs), esp::Error,
                          says({"AdaptiveLogSoftmax", "cutoffs", "9", "many_classes_test.cpp"}));
  BOOST_CHECK_EXCEPTION(AdaptiveLogSoftmax(8, 9, {3, 5}), esp::Error, says({"cluster 1", "0 of 8"}));
  BOOST_CHECK_EXCEPTION(AdaptiveLogSoftmax(8, 9, {3}, {.div_value = 0}), esp::Error, says({"div_value"}));
  BOOST_CHECK_EXCEPTION(ClassFactoredSoftmax(8, {}), esp::Error, says({"no word"}));
  BOOST_CHECK_EXCEPTION(ClassFactoredSoftmax(8, {0, 2, 0}), esp::Error, says({"class 1 has no word"}));
  BOOST_CHECK_EXCEPTION(ClassFactoredSoftmax(8, {0, -1}), esp::Error, says({"word 1", "-1"}));
}

BOOST_AUTO_TEST_SUITE_END()
