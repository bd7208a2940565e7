// Layers whose weight is computed from other parameters: WeightNorm and SpectralNorm.
#include "espalier/nn/weight_norm.h"

#include <boost/test/unit_test.hpp>

#include <map>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/bilinear.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/serialize.h"
#include "layer_figures.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

const DenseOptions in_double{.dtype = esp::float64};
Variable norm_input(int which) { return figure_numbers({3, 4}, which ? 41 : 37, which ? 23 : 19, 8); }

std::vector<std::string> names_of(const std::vector<std::pair<std::string, Variable>>& leaves) {
  std::vector<std::string> names;
  for (const auto& [path, leaf] : leaves) names.push_back(path);
  return names;
}
using NameList = std::vector<std::string>;

/// The largest singular value of [rows, columns], by many iterations.
double largest_singular_value(const esp::Tensor& matrix) {
  const esp::NoGrad no_tree;
  const Variable m = matrix.to(esp::float64);
  Variable v = esp::ones({matrix.shape()[1], 1}, esp::float64);
  for (int i = 0; i < 200; ++i) {
    v = esp::matmul(esp::transpose(m), esp::matmul(m, v));
    v = v / esp::sqrt(esp::sum(esp::square(v)));
  }
  return esp::sqrt(esp::sum(esp::square(esp::matmul(m, v)))).item();
}

using LayerLoss = std::function<Variable(const Layer& layer, const Variable& x)>;

/// The largest difference of leaves after steps from a tensor, each with a tree of its own, and after those
/// of a plan.
template <class L>
double eager_difference(const std::function<L()>& make, const esp::Tensor& x, const LayerLoss& loss) {
  const esp::optim::Sgd sgd(0.1);
  constexpr int64_t steps = 4;
  esp::seed(3);
  const L eager = make();
  for (int64_t i = 0; i < steps; ++i) loss(eager, x).update(sgd);
  esp::seed(3);
  const L planned = make();
  const esp::data::Distributor feed({x}, {.batch_size = x.shape()[0]});
  const auto executor = loss(planned, feed.get_output_graphs()[0]).get_executor({.optimizer = sgd});
  (void)executor.execute({.epochs = steps, .progress = false});
  double largest = 0;
  for (const auto& [path, leaf] : eager.parameters())
    largest = std::max(largest, difference(leaf.value(), planned.parameter(path).value()));
  for (const auto& [path, leaf] : eager.buffers())
    largest = std::max(largest, difference(leaf.value(), planned.buffer(path).value()));
  return largest;
}

/// x / ‖x‖.
esp::Tensor unit(const Variable& x) { return (x / esp::sqrt(esp::sum(esp::square(x)))).value(); }

}  // namespace

BOOST_AUTO_TEST_SUITE(weight_norm)

BOOST_AUTO_TEST_CASE(weight_norm_computes_what_pytorch_s_computes) {
  const std::map<std::string, std::optional<int64_t>> axes{
      {"weight norm", 0}, {"weight norm, axis 1", -1}, {"weight norm of the whole", std::nullopt}};
  for (const auto& [name, axis] : axes) {
    const WeightNorm layer(Dense(4, 3, in_double), {.axis = axis});
    give_figure_values(layer);
    const Variable y = layer(norm_input(0));
    check_layer_figures(name, {y}, weighed(y), layer);
  }
}

BOOST_AUTO_TEST_CASE(a_layer_computes_what_it_did_before) {
  const Dense dense(4, 3);
  const Variable x = norm_input(0).value().to(esp::float32);
  const esp::Tensor before = dense(x).value();
  const WeightNorm normed(dense);
  BOOST_TEST(names_of(normed.parameters()) == (NameList{"weight_v", "bias", "weight_g"}));
  BOOST_TEST(normed.parameter("weight_g").shape() == esp::Shape({3, 1}));
  BOOST_TEST(difference(normed(x).value(), before) < 1e-6);
  BOOST_TEST(difference(dense(x).value(), before) < 1e-6);  // the same layer
  BOOST_TEST(WeightNorm(Dense(4, 3), {.axis = {}}).parameter("weight_g").rank() == 0u);
  // Sizes may come with the first input.
  const WeightNorm open(Dense(3)), inputs(Dense(3), {.axis = 1});
  BOOST_TEST(open.parameters().empty());
  (void)open(x), (void)inputs(x);
  BOOST_TEST(open.parameter("weight_g").shape() == esp::Shape({3, 1}));
  BOOST_TEST(inputs.parameter("weight_g").shape() == esp::Shape({1, 4}));
  // Layers with calls of their own keep them.
  const Bilinear bilinear(2);
  const WeightNorm other(bilinear);
  (void)bilinear(x, x);
  BOOST_TEST(other.parameter("weight_g").shape() == esp::Shape({2, 1, 1}));
  const Embedding words(5, 2);
  const esp::Tensor indices = esp::tensor_from(std::vector<int64_t>{1, 4}, {2});
  const esp::Tensor rows = words(indices).value();
  BOOST_TEST(difference(WeightNorm(words)(indices).value(), rows) < 1e-6);
}

BOOST_AUTO_TEST_CASE(weight_norm_as_a_function) {
  const esp::Tensor v = numbers({2, 3}, -1, 1, 1), g = numbers({2, 1}, 0.5, 2, 2);
  for (const std::optional<int64_t> axis : {std::optional<int64_t>(0), std::optional<int64_t>()}) {
    const auto result = esp::check_gradient(
        [&](const std::vector<Variable>& in) {
          return esp::sum(esp::nn::weight_norm(in[0], axis ? in[1] : esp::sum(in[1]), axis) *
                          numbers({2, 3}, -1, 1, 3));
        },
        {v, g}, {.order = 2});
    BOOST_TEST(result.passed, result.message);
  }
  // Of one axis each element is a direction of its own, with its absolute value as length.
  const esp::Tensor b = esp::tensor({-3.0, 0.5, -2.0}, esp::float64);
  BOOST_TEST(difference(esp::nn::weight_norm(b, esp::tensor(4.0, esp::float64)).value(),
                        esp::tensor({-4.0, 4.0, -4.0})) == 0);
  const Dense dense(2, 3, in_double);
  esp::set_value(dense.parameter("bias"), b);
  const WeightNorm biased(dense, {.parameter = "bias"});
  BOOST_TEST(difference(biased.parameter("bias_g").value(), esp::tensor({3.0, 0.5, 2.0})) == 0);
  const esp::Tensor at_zero = biased(esp::zeros({1, 2}, esp::float64)).value();
  BOOST_TEST(difference(at_zero, esp::unsqueeze(b, 0).value()) < 1e-15);
  BOOST_CHECK_EXCEPTION(esp::nn::weight_norm(v, esp::ones({3}, esp::float64)), esp::ShapeError,
                        says({"weight_norm", "[3]", "[2, 1]", "[2, 3]", "weight_norm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::nn::weight_norm(v, esp::ones({2, 1})), esp::TypeError,
                        says({"weight_norm", "float64", "float32"}));
}

BOOST_AUTO_TEST_CASE(spectral_norm_computes_what_pytorch_s_computes) {
  for (const int64_t iterations : {1, 3}) {
    SpectralNorm layer(Dense(4, 3, in_double), {.power_iterations = iterations});
    give_figure_values(layer);
    esp::set_value(layer.buffer("weight_u"), unit(figure_numbers({3}, 5, 7, 4)));
    esp::set_value(layer.buffer("weight_v"), unit(figure_numbers({4}, 3, 7, 4)));
    const esp::Tensor first = layer(norm_input(0)).value();
    const Variable y = layer(norm_input(1)), loss = weighed(y);
    const esp::Tensor u = layer.buffer("weight_u").value().clone(),
                      v = layer.buffer("weight_v").value().clone();
    for (const auto& [path, p] : layer.parameters()) (void)loss.gradient(p);
    layer.train(false);
    check_layer_figures("spectral norm " + std::to_string(iterations), {first, y, u, v, layer(norm_input(0))},
                        loss, layer);
    BOOST_TEST(difference(layer.buffer("weight_u").value(), u) == 0);
  }
}

BOOST_AUTO_TEST_CASE(spectral_norm_divides_by_the_largest_singular_value) {
  for (const int64_t axis : {0, 1}) {
    SpectralNorm layer(Bilinear(3, 4, 5, {.dtype = esp::float64}), {.axis = axis});
    BOOST_TEST(names_of(layer.parameters()) == (NameList{"weight_orig", "bias"}));
    BOOST_TEST(names_of(layer.buffers()) == (NameList{"weight_u", "weight_v"}));
    BOOST_TEST(layer.buffer("weight_v").shape() == esp::Shape({axis == 0 ? 12 : 20}));
    BOOST_TEST(layer.buffer("weight_u").shape() == esp::Shape({axis == 0 ? 5 : 3}));
  }
  SpectralNorm layer(Dense(6, in_double));
  const Variable x = numbers({8, 5}, -1, 1, 3);
  for (int i = 0; i < 100; ++i) (void)layer(x);
  layer.train(false);
  const double sigma = largest_singular_value(layer.parameter("weight_orig").value());
  const Variable expected = esp::matmul(x, esp::transpose(layer.parameter("weight_orig"))) / sigma;
  BOOST_TEST(difference(layer(x).value(), (expected + layer.parameter("bias")).value()) < 1e-9);
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_normed_layers_as_an_eager_loop) {
  BOOST_TEST(training_differences<WeightNorm>([] { return WeightNorm(Dense(3)); }, {4}) < 1e-9);
  BOOST_TEST(training_differences<WeightNorm>([] { return WeightNorm(Dense(3), {.axis = {}}); }, {4}) < 1e-9);
  BOOST_TEST(training_differences<SpectralNorm>([] { return SpectralNorm(Dense(3)); }, {4}) < 1e-9);
  // A discriminator is called twice in a step, which iterates once.
  const auto twice = [](Module& module) -> LayerTraining::Call {
    const SpectralNorm layer = module.add("layer", SpectralNorm(Dense(3)));
    return [layer](const Variable& x) { return layer(x) - layer(esp::square(x)); };
  };
  BOOST_TEST(training_differences_of(twice, {4}) < 1e-9);
}

BOOST_AUTO_TEST_CASE(eager_training_of_tensors_is_that_of_a_plan) {
  const LayerLoss squares = [](const Layer& layer, const Variable& x) {
    return esp::mean(esp::square(layer(x)));
  };
  const LayerLoss linear = [](const Layer& layer, const Variable& x) { return esp::mean(layer(x)); };
  // The norm of the gradient by the input should be 1.
  const LayerLoss penalty = [](const Layer& layer, const Variable& x) {
    const Variable input = x * esp::variable(esp::tensor(1.0, esp::float64)), y = esp::tanh(layer(input));
    const Variable slope = esp::sum(y).gradient(input);
    const Variable norm = esp::sqrt(esp::sum(esp::square(slope), 1));
    return esp::mean(esp::square(norm - 1.0)) - esp::mean(y);
  };
  const esp::Tensor rows = numbers({5, 4}, -1, 1, 1), images = numbers({2, 3, 5, 5}, -1, 1, 2);
  const auto dense = [](int64_t iterations) -> std::function<SpectralNorm()> {
    return [iterations] { return SpectralNorm(Dense(4, 3, in_double), {.power_iterations = iterations}); };
  };
  for (const LayerLoss& loss : {squares, linear, penalty})
    for (const int64_t iterations : {1, 2})
      BOOST_TEST(eager_difference(dense(iterations), rows, loss) < 1e-12);
  const std::function<SpectralNorm()> convolution = [] {
    return SpectralNorm(Conv2d(3, 4, {.kernel = 3, .dtype = esp::float64}));
  };
  BOOST_TEST(eager_difference(convolution, images, squares) < 1e-12);
  const std::function<WeightNorm()> weight = [] { return WeightNorm(Dense(4, 3, in_double)); };
  for (const LayerLoss& loss : {squares, linear, penalty})
    BOOST_TEST(eager_difference(weight, rows, loss) < 1e-12);
}

BOOST_AUTO_TEST_CASE(a_discriminator_called_twice_trains_eagerly) {
  const esp::Tensor real = numbers({5, 4}, -1, 1, 1), drawn = numbers({5, 4}, -2, 1, 2);
  const esp::optim::Sgd sgd(0.1);
  const SpectralNorm layer(Dense(4, 3, {.bias = false, .dtype = esp::float64}));
  const Variable weight = esp::parameter(layer.parameter("weight_orig").value().clone());
  esp::Tensor u = layer.buffer("weight_u").value().clone().reshape({3, 1}), v;
  // What the layer should do, of plain operations. Each call iterates.
  const auto divided = [&](const esp::Tensor& x) {
    const esp::Tensor matrix = weight.value().clone();
    v = unit(esp::matmul(esp::transpose(Variable(matrix)), u));
    u = unit(esp::matmul(matrix, v));
    return esp::matmul(x, esp::transpose(weight / esp::sum(u * esp::matmul(weight, v))));
  };
  const auto loss_of = [](const Variable& a, const Variable& b) {
    return esp::mean(esp::square(a - 1.0)) + esp::mean(esp::square(b));
  };
  for (int step = 0; step < 4; ++step) {
    const Variable loss = loss_of(layer(real), layer(drawn));
    const Variable expected = loss_of(divided(real), divided(drawn));
    BOOST_TEST(loss.item() == expected.item(), boost::test_tools::tolerance(1e-12));
    loss.update(sgd), expected.update(sgd);
    BOOST_TEST(difference(layer.parameter("weight_orig").value(), weight.value()) < 1e-12);
    BOOST_TEST(difference(layer.buffer("weight_u").value(), u.reshape({3})) < 1e-12);
    BOOST_TEST(difference(layer.buffer("weight_v").value(), v.reshape({4})) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(norms_of_the_parameters_of_norms) {
  const Variable x = norm_input(0);
  for (const bool open : {true, false}) {
    const auto dense = [&] { return open ? Dense(3) : Dense(4, 3, in_double); };
    // The length does not depend on that of the direction.
    const SpectralNorm direction(WeightNorm(dense()), {.parameter = "weight_v"});
    const Variable y = direction(x);
    BOOST_TEST(names_of(direction.parameters()) == (NameList{"weight_v_orig", "bias", "weight_g"}));
    BOOST_TEST(names_of(direction.buffers()) == (NameList{"weight_v_u", "weight_v_v"}));
    const Variable v = direction.parameter("weight_v_orig"), plain = esp::matmul(x, esp::transpose(v));
    BOOST_TEST(difference(y.value(), (plain + direction.parameter("bias")).value()) < 1e-12);
    const WeightNorm original(SpectralNorm(dense()), {.parameter = "weight_orig"});
    (void)original(x);
    BOOST_TEST(names_of(original.parameters()) == (NameList{"weight_orig_v", "bias", "weight_orig_g"}));
    BOOST_TEST(original.buffer("weight_u").shape() == esp::Shape({3}));
    for (int i = 0; i < 200; ++i) (void)original(x);
    const esp::Tensor whole = original.parameter("weight_orig_v").value();
    const Variable divided = esp::matmul(x, esp::transpose(Variable(whole))) / largest_singular_value(whole);
    BOOST_TEST(difference(original(x).value(), (divided + original.parameter("bias")).value()) < 1e-9);
  }
  const auto direction = [] { return SpectralNorm(WeightNorm(Dense(3)), {.parameter = "weight_v"}); };
  BOOST_TEST(training_differences<SpectralNorm>(direction, {4}) < 1e-9);
  const auto twice = [](Module& module) -> LayerTraining::Call {
    const WeightNorm layer =
        module.add("layer", WeightNorm(SpectralNorm(Dense(3)), {.parameter = "weight_orig"}));
    return [layer](const Variable& a) { return layer(a) - layer(esp::square(a)); };
  };
  BOOST_TEST(training_differences_of(twice, {4}) < 1e-9);
}

BOOST_AUTO_TEST_CASE(inference_takes_the_vectors_of_training) {
  const esp::data::Distributor feed({numbers({8, 4}, -1, 1, 1)}, {.batch_size = 4});
  SpectralNorm layer(Dense(4, 3, in_double));
  const Variable loss = esp::mean(esp::square(layer(feed.get_output_graphs()[0])));
  (void)loss.get_executor({.optimizer = esp::optim::Sgd(0.1)}).execute({.progress = false});
  const esp::Tensor u = layer.buffer("weight_u").value().clone();
  const double served = loss.get_executor().step().loss;
  BOOST_TEST(difference(layer.buffer("weight_u").value(), u) == 0);
  layer.train(false);
  const esp::Tensor first = numbers({8, 4}, -1, 1, 1).slice(0, 0, 4);
  BOOST_TEST(served == esp::mean(esp::square(layer(first))).item(), boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(normed_layers_in_files_clones_and_networks) {
  const Variable x = norm_input(0).value().to(esp::float32);
  Sequential net{WeightNorm(Dense(5)), SpectralNorm(Dense(2))},
      other{WeightNorm(Dense(5)), SpectralNorm(Dense(2))};
  (void)net(x);
  const Sequential clone = net.clone();
  const TemporaryFolder folder;
  save(net, folder / "net.safetensors");
  load(other, folder / "net.safetensors");
  net.train(false), other.train(false);
  Sequential copy = clone;
  copy.train(false);
  const esp::Tensor y = net(x).value();
  BOOST_TEST(difference(other(x).value(), y) == 0);
  BOOST_TEST(difference(copy(x).value(), y) == 0);
  BOOST_TEST(names_of(net.parameters()) ==
             (NameList{"0.weight_v", "0.bias", "0.weight_g", "1.weight_orig", "1.bias"}));
  net.train();
  (void)net(x);
  BOOST_TEST(difference(copy(x).value(), y) == 0);  // a clone has buffers of its own
  net.trainable(false);
  BOOST_CHECK_EXCEPTION(esp::mean(net(x)).update(esp::optim::Sgd(0.1)), esp::Error,
                        says({"all parameters in the tree are frozen"}));
}

BOOST_AUTO_TEST_CASE(sixteen_bit_weights_are_normed_in_float32) {
  const Variable x = norm_input(0).value().to(esp::float16);
  const Dense dense(4, 3, {.dtype = esp::float16});
  const esp::Tensor before = dense(x).value();
  BOOST_TEST(difference(WeightNorm(dense)(x).value(), before) < 4e-3);
  SpectralNorm layer(Dense(4, 3, {.dtype = esp::float16}));
  for (int i = 0; i < 20; ++i) (void)layer(x);
  BOOST_TEST(layer(x).dtype() == esp::float16);
  BOOST_TEST(layer.buffer("weight_u").dtype() == esp::float16);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_normed_is_refused) {
  BOOST_CHECK_EXCEPTION(WeightNorm(Sequential{Dense(3)}), esp::Error,
                        says({"Sequential", "'weight'", "weight_norm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(
      WeightNorm(Dense(3), {.parameter = "gain"}), esp::Error,
      says({"WeightNorm: the Dense layer", "'gain'", "its parameters are 'weight', 'bias'"}));
  BOOST_CHECK_EXCEPTION(WeightNorm(Relu{}), esp::Error,
                        says({"WeightNorm: the layer has no parameter 'weight' of its own; it has none"}));
  BOOST_CHECK_EXCEPTION(WeightNorm(Dense(4, 3), {.axis = 2}), esp::ShapeError,
                        says({"WeightNorm", "no axis 2", "'weight'", "[3, 4]", "weight_norm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(SpectralNorm(Dense(4, 3), {.axis = -3}), esp::ShapeError,
                        says({"SpectralNorm", "no axis -3", "'weight'", "[3, 4]", "weight_norm_test.cpp"}));
  for (const bool spectral : {false, true})
    BOOST_CHECK_EXCEPTION(
        spectral ? (void)SpectralNorm(WeightNorm(Dense(3))) : (void)WeightNorm(WeightNorm(Dense(3)), {}),
        esp::Error,
        says({spectral ? "SpectralNorm: " : "WeightNorm: ", "the Dense layer has no parameter 'weight'",
              "it is computed from 'weight_v' and 'weight_g'", "weight_norm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(WeightNorm(SpectralNorm(Dense(4, 3)), {.parameter = "weight_u"}), esp::Error,
                        says({"WeightNorm: ", "'weight_u'", "its parameters are 'weight_orig', 'bias'"}));
  for (const bool first : {false, true})
    BOOST_CHECK_EXCEPTION((void)esp::nn::weight_norm(first ? Variable() : esp::ones({2, 2}),
                                                     first ? esp::ones({2, 1}) : Variable()),
                          esp::Error, says({"weight_norm: ", "undefined", "weight_norm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(SpectralNorm(Dense(3), {.parameter = "bias"}), esp::ShapeError,
                        says({"SpectralNorm", "'bias'", "[3]", "weight_norm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(SpectralNorm(Dense(3), {.power_iterations = 0}), esp::Error, says({"0 power"}));
  BOOST_CHECK_EXCEPTION(SpectralNorm(Dense(3), {.epsilon = 0}), esp::Error, says({"epsilon"}));
}

BOOST_AUTO_TEST_SUITE_END()
