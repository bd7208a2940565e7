// Layers, losses, initializers and containers.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::says;
namespace init = espalier::nn::init;
using namespace espalier::nn;

namespace {

double largest_difference(const esp::Variable& a, const esp::Variable& b) {
  BOOST_TEST(a.shape() == b.shape());
  return esp::max(esp::abs(a - b)).item();
}

/// A module with one parameter, which it adds to its input.
struct PlusOne : Module {
  esp::Variable operator()(const esp::Variable& x) { return x + step; }
  esp::Variable step = add_parameter("step", esp::tensor({1.0f}));
};

/// A user-defined layer derived from one of the library.
struct Doubled : Dense {
  using Dense::Dense;
  esp::Variable operator()(const esp::Variable& x) const { return Dense::operator()(x) * 2; }
};

/// Two weights with one open size, and one with another dtype: x·U·Vᵀ·x for each row.
class FormState : public LayerStateOf<FormState> {
 public:
  explicit FormState(Initializer last) : LayerStateOf("Form") {
    declare("left", {-1, 2}, init::XavierUniform());
    declare("right", {-1, 2}, init::XavierUniform());
    declare("scale", {}, std::move(last), esp::float64);
  }
  esp::Variable forward(const esp::Variable& x) override {
    fit(x, {{-1, x.shape()[-1]}});
    const esp::Variable products = esp::matmul(x, parameter("left")) * esp::matmul(x, parameter("right"));
    return esp::sum(products, -1) * esp::cast(parameter("scale"), x.dtype());
  }
};
struct Form : LayerOf<Form> {
  explicit Form(Initializer last = init::Ones()) : LayerOf(std::make_shared<FormState>(std::move(last))) {}
};

/// Does not fit its size -2, or requests an undeclared parameter.
class CarelessState : public LayerStateOf<CarelessState> {
 public:
  explicit CarelessState(bool forgets) : LayerStateOf("Careless") {
    declare("weight", {forgets ? -2 : -1}, init::Ones());
  }
  esp::Variable forward(const esp::Variable& x) override {
    fit(x, {{-1, x.shape()[-1]}});
    return x * parameter("gain");
  }
};
struct Careless : LayerOf<Careless> {
  explicit Careless(bool forgets) : LayerOf(std::make_shared<CarelessState>(forgets)) {}
};

}  // namespace

BOOST_AUTO_TEST_SUITE(layers)

BOOST_AUTO_TEST_CASE(dense_is_x_times_w_transposed_plus_b) {
  Dense dense(2);
  const esp::Tensor x = esp::tensor({{1.0f, 2.0f, 3.0f}});
  dense(x);
  esp::set_value(dense.parameter("weight"), esp::tensor({{1.0f, 0.0f, -1.0f}, {2.0f, 1.0f, 0.5f}}));
  esp::set_value(dense.parameter("bias"), esp::tensor({10.0f, 20.0f}));
  const esp::Tensor y = dense(x).value();
  BOOST_TEST(y.shape() == esp::Shape({1, 2}));
  BOOST_TEST(y.at<float>({0, 0}) == 8.0f);
  BOOST_TEST(y.at<float>({0, 1}) == 25.5f);
}

BOOST_AUTO_TEST_CASE(dense_learns_its_width_and_dtype_at_the_first_call) {
  Dense dense(3);
  BOOST_TEST(dense.parameters().empty());
  dense(esp::ones({2, 5}, esp::float64));
  BOOST_TEST(dense.parameter("weight").shape() == esp::Shape({3, 5}));
  BOOST_TEST(dense.parameter("weight").dtype() == esp::float64);
  BOOST_TEST(dense.parameter("bias").dtype() == esp::float64);
  BOOST_TEST(largest_difference(dense.parameter("bias"), esp::zeros({3}, esp::float64)) == 0);

  Dense plain(3, {.bias = false});
  plain(esp::ones({2, 5}));
  BOOST_TEST(plain.parameters().size() == 1u);
}

BOOST_AUTO_TEST_CASE(dense_refuses_what_does_not_fit) {
  Dense dense(3);
  dense(esp::ones({2, 5}));
  BOOST_CHECK_EXCEPTION(dense(esp::ones({2, 4})), esp::ShapeError,
                        says({"Dense", "[2, 4]", "[3, 5]", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(dense(esp::ones({5})), esp::ShapeError, says({"Dense", "[5]", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(dense(esp::tensor(1.0f)), esp::ShapeError, says({"Dense", "[]"}));
  BOOST_CHECK_EXCEPTION(dense(esp::ones({2, 5}, esp::float64)), esp::TypeError,
                        says({"Dense", "float64", "float32"}));
  BOOST_CHECK_EXCEPTION(dense(esp::ones({2, 5}, esp::int64)), esp::TypeError, says({"Dense", "int64"}));
  BOOST_CHECK_EXCEPTION(dense(esp::Variable()), esp::Error, says({"undefined", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Dense(0), esp::Error, says({"Dense", "0", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Dense(-7), esp::Error, says({"-7"}));

  Dense fresh(3);  // a failed first call creates no parameters
  BOOST_CHECK_THROW(fresh(esp::ones({5})), esp::ShapeError);
  BOOST_CHECK_THROW(fresh(esp::ones({2, 5}, esp::int64)), esp::TypeError);
  BOOST_TEST(fresh.parameters().empty());
  BOOST_TEST(fresh(esp::ones({2, 7})).shape() == esp::Shape({2, 3}));
}

BOOST_AUTO_TEST_CASE(dense_keeps_leading_axes) {
  esp::seed(3);
  Dense dense(4);
  const esp::Tensor x = esp::randn({2, 3, 5});
  const esp::Variable y = dense(x);
  BOOST_TEST(y.shape() == esp::Shape({2, 3, 4}));
  BOOST_TEST(largest_difference(esp::reshape(y, {6, 4}), dense(x.reshape({6, 5}))) == 0);
  // Empty axes.
  BOOST_TEST(dense(esp::zeros({0, 5})).shape() == esp::Shape({0, 4}));
  BOOST_TEST(dense(esp::zeros({2, 0, 5})).shape() == esp::Shape({2, 0, 4}));
  BOOST_TEST(dense(esp::zeros({0, 3, 5})).shape() == esp::Shape({0, 3, 4}));
  Dense narrow(2);
  const esp::Variable z = narrow(esp::zeros({2, 3, 0}));
  BOOST_TEST(largest_difference(z, esp::zeros({2, 3, 2})) == 0);
}

BOOST_AUTO_TEST_CASE(nodes_of_a_layer_carry_the_line_of_its_call) {
  Sequential model{Dense(3), Relu()};
  const esp::Variable y = model(esp::ones({1, 2}));
  std::ostringstream tree;
  y.print_tree(tree);
  BOOST_TEST(tree.str().find("layers_test.cpp") != std::string::npos);
  BOOST_TEST(tree.str().find("dense.cpp") == std::string::npos);
  BOOST_TEST(tree.str().find("activation.cpp") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(activations) {
  const esp::Tensor x = esp::tensor({{-1.0, 0.0, 2.0}}, esp::float64);
  auto at = [&](const Layer& layer, int64_t i) { return layer(x).value().at<double>({0, i}); };
  BOOST_TEST(at(Relu(), 0) == 0);
  BOOST_TEST(at(Relu(), 2) == 2);
  BOOST_TEST(at(Gelu(), 2) == 1 + std::erf(std::sqrt(2.0)), boost::test_tools::tolerance(1e-14));
  BOOST_TEST(at(Tanh(), 2) == std::tanh(2.0), boost::test_tools::tolerance(1e-14));
  BOOST_TEST(at(Sigmoid(), 0) == 1 / (1 + std::exp(1.0)), boost::test_tools::tolerance(1e-14));
  const double sum = std::exp(-1.0) + 1 + std::exp(2.0);
  BOOST_TEST(at(Softmax(), 2) == std::exp(2.0) / sum, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(at(Softmax(0), 2) == 1);
  BOOST_CHECK_EXCEPTION(Softmax(2)(x), esp::ShapeError, says({"softmax", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Flatten(2)(x), esp::ShapeError, says({"flatten", "layers_test.cpp"}));
  BOOST_TEST(Flatten()(esp::zeros({2, 3, 4})).shape() == esp::Shape({2, 12}));
  BOOST_TEST(Flatten(0)(esp::zeros({2, 3, 4})).shape() == esp::Shape({24}));
}

BOOST_AUTO_TEST_CASE(embedding_looks_up_rows) {
  esp::seed(4);
  Embedding embedding(5, 3);
  BOOST_TEST(embedding.parameters().size() == 1u);
  const esp::Tensor at = esp::tensor({{4, 0}, {1, 4}}, esp::int32);
  const esp::Variable y = embedding(at);
  BOOST_TEST(y.shape() == esp::Shape({2, 2, 3}));
  const esp::Variable weight = embedding.parameter("weight");
  BOOST_TEST(weight.shape() == esp::Shape({5, 3}));
  BOOST_TEST(weight.dtype() == esp::float32);
  BOOST_TEST(y.value().at<float>({1, 1, 2}) == weight.value().at<float>({4, 2}));
  BOOST_TEST(embedding(esp::tensor(2)).shape() == esp::Shape({3}));
  BOOST_TEST(embedding(esp::zeros({0}, esp::int64)).shape() == esp::Shape({0, 3}));
  const esp::Tensor gradient = esp::sum(y).gradient(weight).value();
  for (int64_t row : {0, 1, 2, 3, 4})
    BOOST_TEST(gradient.at<float>({row, 1}) == (row == 4 ? 2 : row < 2 ? 1 : 0));
  BOOST_TEST(largest_difference(embedding(at), embedding.clone()(at)) == 0);

  Embedding wide(2, 40000, {.dtype = esp::float64});
  const esp::Tensor row = wide(esp::tensor(0)).value();
  BOOST_TEST(row.dtype() == esp::float64);
  BOOST_TEST(std::abs(esp::mean(row).item()) < 0.03);
  BOOST_TEST(std::abs(esp::mean(esp::square(row)).item() - 1) < 0.05);
}

BOOST_AUTO_TEST_CASE(embedding_refuses_what_does_not_fit) {
  const Embedding embedding(5, 3);
  BOOST_CHECK_EXCEPTION(embedding(esp::tensor({0, 5})), esp::IndexError,
                        says({"Embedding: index 5 is outside an axis of size 5", "layers_test"}));
  BOOST_CHECK_EXCEPTION(embedding(esp::tensor({0, -1})), esp::IndexError,
                        says({"Embedding: index -1 is outside an axis of size 5", "layers_test"}));
  BOOST_CHECK_EXCEPTION(embedding(esp::ones({2})), esp::TypeError,
                        says({"Embedding", "float32", "[2]", "layers_test"}));
  BOOST_CHECK_EXCEPTION(Embedding(0, 3), esp::Error, says({"Embedding", "0", "layers_test"}));
  BOOST_CHECK_EXCEPTION(Embedding(4, -3), esp::Error, says({"-3"}));
  BOOST_CHECK_EXCEPTION(Embedding(4, 3, {.dtype = esp::int64}), esp::TypeError, says({"int64"}));
}

BOOST_AUTO_TEST_CASE(layers_of_ones_own_declare_their_parameters) {
  const Form form;
  const esp::Tensor x = esp::randn({3, 5});
  BOOST_TEST(form.parameters().empty());
  BOOST_TEST(form(x).shape() == esp::Shape({3}));
  const auto parameters = form.parameters();
  BOOST_REQUIRE(parameters.size() == 3u);
  BOOST_TEST(parameters[0].first == "left");
  BOOST_TEST(parameters[1].first == "right");
  BOOST_TEST(parameters[1].second.shape() == esp::Shape({5, 2}));
  BOOST_TEST(parameters[1].second.dtype() == esp::float32);
  BOOST_TEST(parameters[2].first == "scale");
  BOOST_TEST(parameters[2].second.dtype() == esp::float64);
  BOOST_CHECK_EXCEPTION(form(esp::randn({3, 4})), esp::ShapeError,
                        says({"Form", "[3, 4]", "left", "[5, 2]", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(form(esp::randn({3, 5}, esp::float64)), esp::TypeError,
                        says({"Form", "float64", "left", "float32", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(form(esp::ones({3, 5}, esp::int32)), esp::TypeError, says({"Form", "int32"}));

  const esp::testing::TemporaryFolder folder;
  save(form, folder / "form.safetensors");
  const Form loaded;
  load(loaded, folder / "form.safetensors");
  BOOST_TEST(largest_difference(form(x), loaded(x)) == 0);
  BOOST_TEST(largest_difference(form(x), form.clone()(x)) == 0);
  esp::write_safetensors(
      folder / "form.safetensors",
      {{"left", esp::zeros({5, 2})}, {"right", esp::zeros({4, 2})}, {"scale", esp::tensor(1.0)}});
  const Form torn;  // its weights have one open size
  BOOST_CHECK_EXCEPTION(load(torn, folder / "form.safetensors"), esp::FileError, says({"right", "[4, 2]"}));
  BOOST_TEST(torn.parameters().empty());
}

BOOST_AUTO_TEST_CASE(parameters_of_a_layer_are_created_together) {
  bool fails = true;
  const Form form([&](const esp::Shape& shape) {
    if (fails) throw esp::Error("not yet");
    return esp::ones(shape);
  });
  BOOST_CHECK_EXCEPTION(form(esp::ones({1, 5})), esp::Error, says({"not yet", "layers_test.cpp"}));
  BOOST_TEST(form.parameters().empty());
  fails = false;
  form(esp::ones({1, 7}));  // a width other than that of the failed call
  BOOST_TEST(form.parameter("left").shape() == esp::Shape({7, 2}));

  BOOST_CHECK_EXCEPTION(Careless(true)(esp::ones({2, 3})), esp::Error,
                        says({"Careless", "-2", "weight", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Careless(false)(esp::ones({2, 3})), esp::Error,
                        says({"Careless", "gain", "layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(dropout_keeps_the_mean) {
  esp::seed(11);
  Dropout drop(0.25);
  const esp::Variable x = esp::ones({40000});
  const esp::Tensor y = drop(x).value();
  int64_t zeros = 0;
  for (float v : y.span<float>()) {
    if (v == 0)
      ++zeros;
    else
      BOOST_REQUIRE_CLOSE(v, 1 / 0.75f, 1e-4);
  }
  BOOST_TEST(std::abs(zeros / 40000.0 - 0.25) < 0.02);
  BOOST_TEST(Dropout(0)(x).node() == x.node());
  BOOST_CHECK_EXCEPTION(Dropout(1), esp::Error, says({"rate", "1", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Dropout(-0.5), esp::Error, says({"-0.5"}));
  BOOST_CHECK_THROW(Dropout(NAN), esp::Error);
}

BOOST_AUTO_TEST_CASE(clones_are_equal_and_apart) {
  Sequential model{Dense(4), Relu(), Sequential{Dense(2, {.bias = false})}};
  const esp::Tensor x = esp::randn({3, 5});
  model(x);
  model.train(false);
  const Sequential copy = model, clone = model.clone();
  BOOST_TEST(clone.parameters().size() == 3u);
  BOOST_TEST(!clone.training());
  BOOST_TEST(largest_difference(model(x), clone(x)) == 0);
  esp::set_value(model.parameter("2.0.weight"), esp::zeros({2, 4}));
  BOOST_TEST(largest_difference(copy(x), esp::zeros({3, 2})) == 0);  // a copy shares parameters
  BOOST_TEST(largest_difference(model(x), clone(x)) != 0);           // a clone does not
  const Sequential apart = model.clone();
  for (size_t i = 0; i < 3; ++i) {
    const esp::Variable p = model.parameters()[i].second, q = apart.parameters()[i].second;
    BOOST_TEST(p.value().address() != q.value().address());  // they do not share buffers
    BOOST_TEST(q.node()->where.line() == p.node()->where.line());
    BOOST_TEST(q.node()->op().name() == p.node()->op().name());
  }

  Dense fresh(2);
  Dense other = fresh.clone();  // before the first call: each gets its own width
  fresh(esp::ones({1, 3}));
  BOOST_TEST(other(esp::ones({1, 4})).shape() == esp::Shape({1, 2}));

  Dense twice(5);
  Sequential tied{twice, twice};
  tied(x);
  BOOST_TEST(tied.parameters().size() == 2u);
  BOOST_TEST(tied.clone().parameters().size() == 2u);
  BOOST_TEST(largest_difference(tied(x), tied.clone()(x)) == 0);
  const Sequential tied_clone = tied.clone();
  esp::set_value(tied_clone.parameter("0.bias"), esp::full({5}, 9));  // the clone has one layer twice, too
  BOOST_TEST(largest_difference(tied(x), tied_clone(x)) > 1);
  BOOST_TEST(tied_clone.parameters().size() == 2u);
}

BOOST_AUTO_TEST_CASE(elements_of_a_sequential_have_names_of_ones_own) {
  Sequential net;
  net.append("first", Dense(3, 4)).append(Relu()).append("last", Dense(4, 2));
  BOOST_TEST(net.parameters()[0].first == "first.weight");
  BOOST_TEST(net.parameters()[2].first == "last.weight");
  BOOST_TEST(largest_difference(net(esp::ones({2, 3})), net.clone()(esp::ones({2, 3}))) == 0);
  BOOST_CHECK_EXCEPTION(net.append("last", Relu()), esp::Error, says({"last", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(net.append("a.b", Relu()), esp::Error, says({"a.b", "layers_test.cpp"}));
  BOOST_TEST(net.size() == 3u);
}

BOOST_AUTO_TEST_CASE(sequential_holds_modules_of_ones_own) {
  PlusOne plus;
  Sequential model{plus, plus, Relu()};
  model.append(Flatten());
  BOOST_TEST(model.size() == 4u);
  BOOST_TEST(model(esp::zeros({1, 1})).item() == 2);
  BOOST_TEST(model.parameters().size() == 1u);
  BOOST_TEST(model.parameters()[0].first == "0.step");
  BOOST_CHECK_EXCEPTION(model.clone(), esp::UnsupportedError, says({"element 0", "layers_test.cpp"}));

  Doubled doubled(1, {.initializer = init::Constant(3)});
  BOOST_TEST(Sequential{doubled}(esp::ones({1, 1})).item() == 6);  // its own call, not that of Dense
}

BOOST_AUTO_TEST_CASE(sequential_copies_share_and_can_be_empty) {
  const esp::Variable x = esp::ones({2});
  Sequential empty;
  BOOST_TEST(empty(x).node() == x.node());
  Sequential a{Tanh()};
  Sequential b{a};
  b.append(Relu());
  BOOST_TEST(a.size() == 2u);
  BOOST_TEST((Sequential{a, Relu()}.size()) == 2u);  // nested
}

BOOST_AUTO_TEST_CASE(losses) {
  const esp::Tensor a = esp::tensor({{1.0, 2.0}, {3.0, 5.0}}, esp::float64);
  const esp::Tensor b = esp::tensor({{1.0, 1.0}, {1.0, 1.0}}, esp::float64);
  BOOST_TEST(MeanSquared()(a, b).item() == (0 + 1 + 4 + 16) / 4.0);
  BOOST_TEST(ConstantLoss()(a).item() == 11);
  BOOST_TEST(ConstantLoss(esp::LossReduction::mean)(a).item() == 2.75);
  const double row0 = std::log(std::exp(1.0) + std::exp(2.0)) - 2,
               row1 = std::log(std::exp(3.0) + std::exp(5.0)) - 3;
  const esp::Tensor labels = esp::tensor({1, 0});
  BOOST_TEST(SoftmaxCrossEntropy()(a, labels).item() == (row0 + row1) / 2,
             boost::test_tools::tolerance(1e-12));
  const esp::Tensor probabilities = esp::tensor({{0.0, 1.0}, {1.0, 0.0}}, esp::float64);
  BOOST_TEST(SoftmaxCrossEntropy()(a, probabilities).item() == (row0 + row1) / 2,
             boost::test_tools::tolerance(1e-12));
  BOOST_CHECK_EXCEPTION(MeanSquared()(a, esp::ones({2, 3}, esp::float64)), esp::ShapeError,
                        says({"[2, 2]", "[2, 3]", "layers_test"}));
  BOOST_CHECK_EXCEPTION(SoftmaxCrossEntropy()(a, esp::tensor({0, 2})), esp::IndexError,
                        says({"2", "layers_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(a_network_has_right_gradients) {
  Dense first(4), second(3);
  const SoftmaxCrossEntropy loss;
  const esp::Tensor labels = esp::tensor({0, 2});
  auto network = [&](const std::vector<esp::Variable>& v) {
    return loss(second(Tanh()(first(v[0]))), labels);
  };
  const auto result = esp::check_gradient(network, {esp::randn({2, 3}, esp::float64)}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(layers_that_know_their_width_have_their_parameters_at_once) {
  using esp::nn::LayerNorm;
  const Dense dense(3, 2);
  BOOST_TEST(dense.parameter("weight").shape() == esp::Shape({2, 3}));
  BOOST_TEST(dense.parameter("bias").dtype() == esp::float32);
  BOOST_TEST(Dense(3, 2, {.bias = false}).parameters().size() == 1u);
  const Dense wide(3, 2, {.dtype = esp::float64});
  BOOST_TEST(wide(esp::ones({4, 3}, esp::float64)).dtype() == esp::float64);
  BOOST_TEST(Dense(2, {}).parameters().empty());  // default options
  const LayerNorm norm(5);
  BOOST_TEST(norm.parameter("bias").shape() == esp::Shape({5}));
  BOOST_TEST(LayerNorm(5, {.epsilon = 1, .dtype = esp::float64}).parameter("weight").dtype() == esp::float64);
  BOOST_TEST(LayerNorm().parameters().empty());
  BOOST_TEST(Embedding(7, 2).parameter("weight").shape() == esp::Shape({7, 2}));

  // The initial values are those of a layer that learns its width.
  esp::seed(4);
  const Dense late(2);
  late(esp::ones({1, 3}));
  esp::seed(4);
  BOOST_TEST(largest_difference(Dense(3, 2).parameter("weight"), late.parameter("weight")) == 0);

  BOOST_CHECK_EXCEPTION(dense(esp::ones({1, 4})), esp::ShapeError, says({"Dense", "[1, 4]", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(dense(esp::ones({1, 3}, esp::float64)), esp::TypeError, says({"Dense", "float64"}));
  BOOST_CHECK_EXCEPTION(Dense(0, 2), esp::Error, says({"Dense", "0 inputs", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Dense(3, -2), esp::Error, says({"Dense", "-2 outputs", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(Dense(3, 2, {.dtype = esp::int32}), esp::TypeError,
                        says({"int32", "layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(LayerNorm(5, {.dtype = esp::int32}), esp::TypeError, says({"int32"}));
  BOOST_CHECK_EXCEPTION(LayerNorm(5, {.epsilon = 0}), esp::Error, says({"epsilon", "layers_test.cpp"}));
}

BOOST_AUTO_TEST_SUITE_END()
