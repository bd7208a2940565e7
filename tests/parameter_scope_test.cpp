// Scopes in which functions find their parameters by name.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/parameters.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Shape;
using esp::Variable;

namespace {

Variable network(const nn::Parameters& scope, const Variable& x) {
  const Variable h = nn::batch_norm(scope["body"], nn::dense(scope["body"], x, 5));
  return nn::dense(scope["head.last"], nn::layer_norm(scope["body"], h), 2) *
         scope.parameter("scale", {2}, nn::init::Ones());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parameter_scope)

BOOST_AUTO_TEST_CASE(functions_share_parameters_by_name) {
  nn::Parameters scope;
  const esp::Tensor x = numbers({4, 3}).to(esp::float32);
  const esp::Tensor first = network(scope, x).value();
  BOOST_TEST(scope.parameters().size() == 9u);
  const esp::Tensor second = network(scope, x).value();
  BOOST_TEST(difference(first, second) == 0);
  BOOST_TEST(scope.parameters().size() == 9u);
  BOOST_TEST(scope.parameters()[0].first == "body.dense.weight");
  BOOST_TEST(scope.parameter("head.last.dense.bias").shape() == esp::Shape({2}));
  BOOST_TEST(scope["head"]["last"].parameters().size() == 2u);
  BOOST_TEST(scope.buffers().size() == 3u);

  nn::Parameters other;
  (void)network(other, x);
  const TemporaryFolder folder;
  save(scope, folder / "scope.safetensors");
  load(other, folder / "scope.safetensors");
  scope.train(false), other.train(false);
  BOOST_TEST(difference(network(scope, x).value(), network(other, x).value()) == 0);
  BOOST_TEST(difference(network(scope, x).value(), first) > 0);  // running statistics

  scope["body"].trainable(false);
  const Variable w = scope["body"].parameter("dense.weight");
  const esp::Tensor before = w.value().clone();
  esp::sum(network(scope, x)).backward();
  BOOST_TEST(!scope["body"].trainable());
  BOOST_TEST(scope["head"].trainable());
  BOOST_TEST(difference(w.value(), before) == 0);
}

BOOST_AUTO_TEST_CASE(a_new_scope_takes_what_a_file_has) {
  nn::Parameters scope;
  const esp::Tensor x = numbers({4, 3}).to(esp::float32);
  (void)network(scope, x);
  (void)network(scope, x);  // moves the running statistics
  const TemporaryFolder folder;
  save(scope, folder / "scope.safetensors");
  scope.train(false);

  nn::Parameters loaded;
  const nn::LoadReport report = load(loaded, folder / "scope.safetensors");
  BOOST_TEST(report.unexpected.empty());
  save(loaded, folder / "again.safetensors");  // of which nothing was lost
  nn::Parameters again;
  load(again, folder / "again.safetensors");
  nn::Parameters clone = again.clone(), part;
  load(part["inner"], folder / "scope.safetensors");
  part.train(false);
  BOOST_TEST(difference(network(part["inner"], x).value(), network(scope, x).value()) == 0);
  for (nn::Parameters* other : {&loaded, &again, &clone}) {
    other->train(false);
    BOOST_TEST(difference(network(*other, x).value(), network(scope, x).value()) == 0);
    BOOST_TEST(other->parameters().size() == 9u);
    BOOST_TEST(other->buffers().size() == 3u);
  }
  // Copies train apart.
  esp::set_value(again.parameter("body.dense.bias"), esp::full({5}, 9));
  BOOST_TEST(difference(network(clone, x).value(), network(scope, x).value()) == 0);

  nn::Parameters frozen;
  frozen.trainable(false);
  load(frozen, folder / "scope.safetensors");
  (void)network(frozen, x);
  BOOST_TEST(!esp::is_trained(*frozen.parameters()[0].second.node()));
}

BOOST_AUTO_TEST_CASE(what_a_scope_has_loaded_must_fit_what_is_written) {
  nn::Parameters scope;
  const esp::Tensor x = numbers({4, 3}).to(esp::float32);
  (void)network(scope, x);
  const TemporaryFolder folder;
  save(scope, folder / "scope.safetensors");
  nn::Parameters loaded;
  load(loaded, folder / "scope.safetensors");
  BOOST_CHECK_EXCEPTION(nn::dense(loaded["body"], x, 6), esp::FileError,
                        says({"scope.safetensors", "dense.weight", "[6, -1]", "[5, 3]", here()}));
  BOOST_CHECK_EXCEPTION(nn::dense(loaded["body"], x, 5, {.bias = false}), esp::FileError,
                        says({"dense.bias", here()}));
  BOOST_CHECK_EXCEPTION(loaded.parameter("scale", {3}), esp::FileError,
                        says({"scale", "[3]", "[2]", here()}));
  BOOST_TEST(loaded.parameters().empty());  // nothing was made, and nothing was lost
  BOOST_CHECK_EXCEPTION(nn::dense(loaded["body"], esp::ones({4, 7}), 5), esp::ShapeError, says({"[4, 7]"}));
  loaded.train(false), scope.train(false);
  BOOST_TEST(difference(network(loaded, x).value(), network(scope, x).value()) == 0);

  // A layer that is there has no more than its own.
  nn::Parameters narrow;
  (void)nn::dense(narrow["body"], x, 5, {.bias = false});
  BOOST_CHECK_EXCEPTION(load(narrow, folder / "scope.safetensors"), esp::FileError,
                        says({"body.dense.bias", here()}));
}

BOOST_AUTO_TEST_CASE(a_clone_has_parameters_of_its_own_by_the_same_names) {
  nn::Parameters scope;
  const esp::Tensor x = numbers({4, 3}).to(esp::float32);
  (void)network(scope, x);
  scope.train(false);
  const esp::Tensor y = network(scope, x).value();
  const nn::Parameters clone = scope.clone();
  BOOST_TEST(difference(network(clone, x).value(), y) == 0);
  BOOST_TEST(clone.parameters().size() == 9u);
  for (size_t i = 0; i < 9; ++i) {
    BOOST_TEST(clone.parameters()[i].first == scope.parameters()[i].first);
    BOOST_TEST(clone.parameters()[i].second.node() != scope.parameters()[i].second.node());
  }
  for (const auto& [path, p] : scope.parameters()) esp::set_value(p, esp::zeros(p.shape()));
  BOOST_TEST(difference(network(clone, x).value(), y) == 0);
  (void)nn::dense(clone["new"], x, 2);  // what the clone creates is its own
  BOOST_TEST(scope.parameters().size() == 9u);
  BOOST_CHECK_THROW(nn::dense(clone["body"], x, 7), esp::Error);
}

BOOST_AUTO_TEST_CASE(convolutions_are_those_of_layers) {
  const nn::Parameters scope;
  for (const Shape& shape : {Shape{2, 3, 7}, Shape{2, 3, 7, 6}, Shape{1, 3, 5, 4, 6}}) {
    const nn::Parameters part = scope[std::to_string(shape.rank())];
    const Variable x = numbers(shape);
    const nn::ConvOptions options{.kernel = 3, .padding = 1, .groups = 1, .bias = false};
    const Variable y = nn::convolution(part, x, 4, options);
    BOOST_TEST(difference(y.value(),
                          esp::conv(x, part.parameter("convolution.weight"), {.padding = 1}).value()) == 0);
    BOOST_TEST(difference(y.value(), nn::convolution(part, x, 4, options).value()) == 0);
    BOOST_TEST(difference(y.value(), nn::convolution(part.clone(), x, 4, options).value()) == 0);
    BOOST_CHECK_EXCEPTION(nn::convolution(part, x, 4, {.kernel = 3, .bias = false}), esp::Error,
                          says({"padding (1, 1)", "padding (0, 0)", "parameter_scope_test.cpp"}));
    for (const nn::ConvOptions& other : {nn::ConvOptions{.kernel = 1, .padding = 1, .bias = false},
                                         {.kernel = 3, .stride = 2, .padding = 1, .bias = false},
                                         {.kernel = 3, .padding = 1, .dilation = 2, .bias = false},
                                         {.kernel = 3, .padding = 1, .bias = true}})
      BOOST_CHECK_EXCEPTION(nn::convolution(part, x, 4, other), esp::Error,
                            says({"convolution", "padding (1, 1)", "parameter_scope_test.cpp"}));
  }
  // Numbers for each axis.
  const nn::Parameters wide = scope["wide"];
  const Variable images = numbers({1, 2, 9, 9});
  nn::convolution(wide, images, 4, {.kernel = {2, 3}, .stride = {2, 1}});
  BOOST_CHECK_EXCEPTION(nn::convolution(wide, images, 4, {.kernel = {3, 3}, .stride = {2, 1}}), esp::Error,
                        says({"kernels 2×3", "kernels 3×3", "parameter_scope_test.cpp"}));
  BOOST_CHECK_EXCEPTION(nn::convolution(wide, images, 4, {.kernel = {2, 3}, .stride = {2, 2}}), esp::Error,
                        says({"strides 2×1", "strides 2×2", "parameter_scope_test.cpp"}));
  BOOST_TEST(scope.parameters().size() == 5u);
  BOOST_CHECK_EXCEPTION(nn::convolution(scope["a"], numbers({2, 3}), 4, {.kernel = 3}), esp::ShapeError,
                        says({"convolution", "[2, 3]", "parameter_scope_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(what_comes_later_has_the_mode_of_its_scope) {
  nn::Parameters scope;
  scope.train(false);
  scope.trainable(false);
  BOOST_TEST(!scope["a.b"].training());
  BOOST_TEST(!scope["a"].trainable());
  BOOST_TEST(!esp::is_trained(*scope["a"].parameter("scale", {2}).node()));
  const Variable y = nn::batch_norm(scope["a"], esp::ones({2, 3}));
  BOOST_TEST(difference(y.value(), (esp::ones({2, 3}) / esp::sqrt(1 + Variable(1e-5f))).value()) < 1e-6);
}

BOOST_AUTO_TEST_CASE(names_of_other_things_are_refused) {
  const nn::Parameters scope;
  const Variable x = esp::ones({2, 3});
  (void)nn::dense(scope, x, 5);
  BOOST_CHECK_EXCEPTION(nn::dense(scope, x, 6), esp::Error,
                        says({"dense", "5 outputs", "6 outputs", "parameter_scope_test.cpp"}));
  BOOST_CHECK_EXCEPTION(nn::dense(scope, esp::ones({2, 4}), 5), esp::ShapeError,
                        says({"Dense", "[2, 4]", "parameter_scope_test.cpp"}));
  BOOST_CHECK_EXCEPTION(scope.layer<nn::LayerNorm>("dense", "", [] { return nn::LayerNorm(); }), esp::Error,
                        says({"another kind", "dense", "parameter_scope_test.cpp"}));
  (void)scope.parameter("p", {2});
  BOOST_CHECK_EXCEPTION(scope.parameter("p", {3}), esp::ShapeError,
                        says({"'p'", "[2]", "[3]", "parameter_scope_test.cpp"}));
  BOOST_CHECK_EXCEPTION(scope.parameter("p", {2}, nn::init::Zeros(), esp::float64), esp::TypeError,
                        says({"float32", "float64"}));
  BOOST_CHECK_THROW(scope["dense"], esp::Error);
  BOOST_CHECK_THROW(scope[""], esp::Error);
  BOOST_TEST(scope.parameters().size() == 3u);
}

BOOST_AUTO_TEST_CASE(other_settings_than_in_the_first_call) {
  const esp::nn::Parameters scope;
  const esp::Variable x = esp::ones({2, 3});
  (void)esp::nn::dense(scope["a"], x, 3);
  BOOST_CHECK_THROW(esp::nn::dense(scope["a"], x, 3, {.bias = false}), esp::Error);
  (void)esp::nn::batch_norm(scope["b"], x);
  BOOST_CHECK_THROW(esp::nn::batch_norm(scope["b"], x, {.affine = false}), esp::Error);
}

BOOST_AUTO_TEST_CASE(embeddings_share_a_table) {
  const nn::Parameters scope;
  const Variable words = esp::tensor({4, 0, 1});
  const Variable first = nn::embedding(scope, words, 5, 3);
  const Variable table = scope.parameter("embedding.weight");
  BOOST_TEST(table.shape() == Shape({5, 3}));
  BOOST_TEST(difference(first.value(), esp::gather(table, words, 0).value()) == 0);
  BOOST_TEST(difference(first.value(), nn::embedding(scope, words, 5, 3).value()) == 0);
  for (const nn::EmbeddingOptions& other : {nn::EmbeddingOptions{.padding_index = 1}, {.max_norm = 2}})
    BOOST_CHECK_EXCEPTION(nn::embedding(scope, words, 5, 3, other), esp::Error,
                          says({"5 vectors of width 3, padding index -1", "parameter_scope_test.cpp"}));
  BOOST_TEST(scope.parameters().size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_prefix_that_nothing_in_the_file_has) {
  const TemporaryFolder folder;
  const nn::Parameters scope, fresh;
  (void)network(scope, esp::ones({2, 3}));
  nn::save(scope, folder / "a.safetensors");
  BOOST_CHECK_EXCEPTION(nn::load(fresh, folder / "a.safetensors", {.prefix = "typo."}), esp::FileError,
                        says({"a.safetensors", "\"typo.\"", here()}));
  const nn::LoadReport report =
      nn::load(fresh, folder / "a.safetensors", {.strict = false, .prefix = "typo."});
  BOOST_TEST((report.missing.empty() && report.unexpected.empty()));
  BOOST_CHECK_NO_THROW(nn::load(fresh, folder / "a.safetensors", {.prefix = "body."}));
}

BOOST_AUTO_TEST_SUITE_END()
