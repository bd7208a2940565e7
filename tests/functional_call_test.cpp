// functional_call: modules with other Variables in place of their parameters.
#include "espalier/nn/functional_call.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/recompute.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/multi_head_attention.h"
#include "espalier/nn/weight_norm.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Holds its parameter as a member.
struct Scale : Module {
  Variable operator()(const Variable& x) const {
    if (fails) throw esp::Error("it failed");
    return x * gain;
  }
  Variable gain = add_parameter("gain", esp::tensor({1.0, 2.0, 3.0}, esp::float64));
  bool fails = false;
};

using Given = std::vector<std::pair<std::string, Variable>>;

}  // namespace

BOOST_AUTO_TEST_SUITE(functional_calls)

BOOST_AUTO_TEST_CASE(what_is_given_is_read_and_has_the_gradient) {
  const Variable x = Variable(numbers({4, 3}, -1, 1));
  const Sequential net{Dense(3, 3, {.dtype = esp::float64}), Tanh(), Scale()};
  const esp::Tensor y = net(x).value();
  const Variable w = esp::variable(numbers({3, 3}, -1, 1, 2)),
                 g = esp::variable(numbers({3}, -1, 1, 3)) * 2.0;
  const Variable other = functional_call(net, {{"0.weight", w}, {"2.gain", g}}, x);
  const Variable expected = esp::tanh(esp::linear(x, w, net.parameter("0.bias"))) * g;
  BOOST_TEST(difference(other.value(), expected.value()) < 1e-15);
  BOOST_TEST(difference(net(x).value(), y) == 0);
  BOOST_TEST(difference(esp::sum(other).gradient(w).value(), esp::sum(expected).gradient(w).value()) < 1e-14);
  BOOST_TEST(difference(esp::sum(other).gradient(g).value(), esp::sum(expected).gradient(g).value()) < 1e-14);
  const Variable bias = net.parameter("0.bias");  // what is not given is read as ever
  BOOST_TEST(difference(esp::sum(other).gradient(bias).value(), esp::sum(expected).gradient(bias).value()) <
             1e-14);
  BOOST_CHECK_THROW(esp::sum(other).gradient(net.parameter("2.gain")), esp::Error);
}

/// Two parameters change their places.
BOOST_AUTO_TEST_CASE(parameters_can_be_given) {
  struct Both : Module {
    Variable operator()() const { return a - b; }
    Variable a = add_parameter("a", esp::tensor(5.0)), b = add_parameter("b", esp::tensor(2.0));
  };
  const Both both;
  BOOST_TEST(both().item() == 3);
  BOOST_TEST(functional_call(both, {{"a", both.b}, {"b", both.a}}).item() == -3);
  // A call within a call reads what the outer one gives.
  const Variable inner = functional_call(both, {{"a", Variable(esp::tensor(7.0))}}, [&] {
    return functional_call(both, {{"b", both.a}});
  });
  BOOST_TEST(inner.item() == 0);
}

/// The gradient through a step of descent, against its formula.
BOOST_AUTO_TEST_CASE(a_step_of_descent_has_a_derivative) {
  const Variable x = Variable(numbers({6, 2}, -1, 1)), t = Variable(numbers({6, 1}, -1, 1, 4));
  const Dense net(2, 1, {.bias = false, .dtype = esp::float64});
  const auto loss = [&](const Variable& y) { return esp::mean(esp::square(y - t)); };
  const auto after_step = [&](const Given& start) {
    Given next;
    const Variable before = loss(functional_call(net, start, x));
    for (const auto& [path, p] : start) next.emplace_back(path, p - 0.1 * before.gradient(p));
    return loss(functional_call(net, next, x));
  };
  const Variable w = net.parameter("weight");
  const Variable outer = after_step(net.parameters());
  const auto check = esp::sum(outer).gradient(w).value();
  const double step = 1e-6;
  for (int64_t i = 0; i < 2; ++i) {
    const auto moved = [&](double by) {
      esp::Tensor v = w.value().clone();
      v.span<double>()[static_cast<size_t>(i)] += by;
      return after_step({{"weight", esp::variable(v)}}).item();
    };
    BOOST_TEST(check.at<double>({0, i}) == (moved(step) - moved(-step)) / (2 * step),
               boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(a_call_that_throws_leaves_the_module) {
  Scale net;
  net.fails = true;
  const Variable x = Variable(numbers({2, 3}, -1, 1)), zero = Variable(esp::zeros({3}, esp::float64));
  BOOST_CHECK_THROW(functional_call(net, {{"gain", zero}}, x), esp::Error);
  net.fails = false;
  BOOST_TEST(esp::max(esp::abs(net(x))).item() > 0);
  BOOST_TEST(esp::max(esp::abs(functional_call(net, {{"gain", zero}}, x))).item() == 0);
}

BOOST_AUTO_TEST_CASE(layers_that_compute_their_weights) {
  const Variable x = Variable(numbers({4, 3}, -1, 1).to(esp::float32));
  const WeightNorm normed(Dense(3, 3));
  const SpectralNorm spectral(Dense(3, 3));
  const MultiHeadAttention attention(4, 2);
  const Variable sequence = Variable(numbers({2, 3, 4}, -1, 1).to(esp::float32));
  const auto zeros_of = [](const Module& module) {
    Given given;
    for (const auto& [path, p] : module.parameters()) given.emplace_back(path, esp::zeros_like(p) + 1.0);
    return given;
  };
  const auto check = [&](auto& layer, const Variable& in) {
    const esp::Tensor y = layer(in).value(), other = functional_call(layer, zeros_of(layer), in).value();
    BOOST_TEST(difference(y, other) > 0.01);
    for (const auto& [path, p] : layer.parameters()) esp::set_value(p, esp::ones(p.shape()));
    BOOST_TEST(difference(layer(in).value(), other) < 1e-5);
  };
  check(normed, x);
  check(attention, sequence);
  const esp::Tensor other = functional_call(spectral, zeros_of(spectral), x).value();
  BOOST_TEST(difference(spectral(x).value(), other) > 0.01);
}

BOOST_AUTO_TEST_CASE(below_feeds_and_in_plans) {
  const esp::Tensor data = numbers({8, 3}, -1, 1);
  esp::data::Distributor feed({data}, {.batch_size = 4});
  auto [x] = feed.get_output_graphs<1>();
  const Scale net;
  const Variable w = esp::parameter(esp::ones({3}, esp::float64), "w");
  const Variable loss = esp::mean(esp::square(functional_call(net, {{"gain", w * 0.5}}, x) - 1.0));
  auto executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.5)});
  executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST(difference(w.value(), esp::ones({3}, esp::float64)) > 1e-3);
  BOOST_TEST(difference(net.gain.value(), esp::tensor({1.0, 2.0, 3.0}, esp::float64)) == 0);

  const Variable v = Variable(data);
  const Variable again = esp::recompute(
      [&](const Variable& in) {
        return functional_call(net, {{"gain", w * 2.0}}, in);
      },
      v);
  const Variable at_once = functional_call(net, {{"gain", w * 2.0}}, v);
  BOOST_TEST(difference(esp::sum(again).gradient(w).value(), esp::sum(at_once).gradient(w).value()) == 0);
}

BOOST_AUTO_TEST_CASE(parameters_are_given_in_place_of_each_other) {
  esp::seed(8);
  const Sequential m{Dense(2, 2), Tanh(), Dense(2, 2)};
  const Variable x = Variable(esp::randn({3, 2})), a = m.parameter("0.weight"), b = m.parameter("2.weight");
  const Variable old_a = a.value().clone(), old_b = b.value().clone();
  const auto check = [&](const Given& given, const Given& by_value) {
    const Variable y = functional_call(m, given, x);
    BOOST_TEST(difference(y, functional_call(m, by_value, x)) == 0);
    return y;
  };
  const Variable swapped =
      check({{"0.weight", b}, {"2.weight", a}}, {{"0.weight", old_b}, {"2.weight", old_a}});
  BOOST_TEST(difference(swapped, m(x)) > 1e-3);
  check({{"0.weight", b}, {"2.weight", old_a}}, {{"0.weight", old_b}, {"2.weight", old_a}});
  check({{"0.weight", a}, {"2.weight", a}}, {{"0.weight", old_a}, {"2.weight", old_a}});
  const Variable leaf = esp::variable(old_b.value());
  const Variable of_leaf = functional_call(m, {{"0.weight", leaf}, {"2.weight", old_a}}, x);
  BOOST_TEST(difference(esp::sum(swapped).gradient(b), esp::sum(of_leaf).gradient(leaf)) < 1e-6);
}

BOOST_AUTO_TEST_CASE(computed_weights_are_states_of_each_step_in_plans) {
  esp::seed(1);
  const esp::Tensor x = esp::randn({6, 3}, esp::float64);
  const auto first = SpectralNorm(Dense(3, 4, {.dtype = esp::float64}));
  const auto losses = [&](bool gives, bool frozen) {
    const auto m = first.clone();
    Given given;
    for (const auto& [path, p] : m.parameters())
      given.emplace_back(path, esp::parameter(p.value().clone(), path));
    for (const auto& [path, b] : m.buffers()) given.emplace_back(path, esp::state(b.value().clone(), path));
    const auto loss = [&](const Variable& in) {
      return esp::mean(esp::square((gives ? functional_call(m, given, in) : m(in)) - 1.0));
    };
    const esp::optim::Sgd sgd(0.1);
    std::vector<double> values;
    if (frozen) {
      const esp::data::Distributor feed({x}, {.batch_size = 2});
      const auto executor = loss(feed.get_output_graphs()[0]).get_executor({.optimizer = sgd});
      for (int i = 0; i < 3; ++i) values.push_back(executor.step().loss);
    } else {
      for (int64_t i = 0; i < 6; i += 2) {
        const Variable l = loss(x.slice(0, i, i + 2));
        l.update(sgd);
        values.push_back(l.item());
      }
    }
    return values;
  };
  const std::vector<double> expected = losses(false, false);
  for (const auto& [gives, frozen] : {std::pair(true, false), {false, true}, {true, true}}) {
    const std::vector<double> found = losses(gives, frozen);
    for (size_t i = 0; i < expected.size(); ++i)
      BOOST_TEST(std::abs(found[i] - expected[i]) < 1e-12,
                 gives << frozen << ": " << found[i] << " for " << expected[i]);
  }
}

BOOST_AUTO_TEST_CASE(buffers_are_given_too) {
  BatchNorm norm(3, {.dtype = esp::float64});
  const Variable x = Variable(numbers({4, 3}, -1, 1, 2));
  const esp::Tensor shift = esp::tensor({1.0, 2.0, 3.0}, esp::float64);
  const std::vector<std::pair<std::string, Variable>> before = norm.buffers();
  norm.eval();
  const Variable mean = esp::variable(shift);
  const Variable y = functional_call(norm, {{"running_mean", mean * 2.0}}, x);
  BOOST_TEST(difference(y, norm(x - Variable(shift) * 2.0)) < 1e-12);
  BOOST_TEST(difference(esp::sum(y).gradient(mean), esp::sum(norm(x - mean * 2.0)).gradient(mean)) < 1e-12);

  // What training writes is the state that is given.
  norm.train();
  const Variable state = esp::state(shift, "another mean");
  const Variable of_batch = functional_call(norm, {{"running_mean", state}}, x);
  BOOST_TEST(difference(of_batch, esp::nn::BatchNorm(3, {.dtype = esp::float64})(x)) < 1e-12);
  BOOST_TEST(difference(state, Variable(shift) * 0.9 + esp::mean(x, 0) * 0.1) < 1e-12);
  BOOST_TEST(difference(norm.buffer("running_mean").value(), esp::zeros({3}, esp::float64)) == 0);
  BOOST_CHECK_EXCEPTION(functional_call(norm, {{"running_mean", mean * 2.0}}, x), esp::Error,
                        says({"state()", "multiply", "BatchNorm", here()}));
  BOOST_CHECK_EXCEPTION(
      functional_call(norm, {{"running_mean", esp::state(esp::zeros({2}, esp::float64))}}, x),
      esp::ShapeError, says({"running_mean", "[2]", here()}));

  // A plan writes it, too.
  esp::data::Distributor feed({x.value()}, {.batch_size = 4});
  auto [rows] = feed.get_output_graphs<1>();
  const Variable other = esp::state(shift, "a mean of a plan");
  const Variable out = functional_call(norm, {{"running_mean", other}}, rows);
  out.get_executor({.mode = esp::Mode::training}).execute({.epochs = 1, .progress = false});
  BOOST_TEST(difference(other, Variable(shift) * 0.9 + esp::mean(x, 0) * 0.1) < 1e-12);
  BOOST_TEST(difference(norm.buffer("running_mean").value(), esp::zeros({3}, esp::float64)) == 0);
}

BOOST_AUTO_TEST_CASE(errors_name_the_parameter) {
  const Scale net;
  const Variable x = Variable(numbers({2, 3}, -1, 1));
  const auto given = [](const esp::Shape& shape, esp::DType dtype) {
    return Variable(esp::zeros(shape, dtype));
  };
  BOOST_CHECK_EXCEPTION(functional_call(net, {{"gian", given({3}, esp::float64)}}, x), esp::Error,
                        says({"'gian'", here()}));
  BOOST_CHECK_EXCEPTION(functional_call(net, {{"gain", Variable()}}, x), esp::Error,
                        says({"'gain'", "undefined", here()}));
  BOOST_CHECK_EXCEPTION(functional_call(net, {{"gain", given({1}, esp::float64)}}, x), esp::ShapeError,
                        says({"'gain'", "[3]", "[1]", here()}));
  BOOST_CHECK_EXCEPTION(functional_call(net, {{"gain", given({3}, esp::float32)}}, x), esp::TypeError,
                        says({"'gain'", "float64", "float32", here()}));
  const Sequential layers{Dense(3, 2)};
  const Variable wide = Variable(esp::ones({2, 5}));
  BOOST_CHECK_EXCEPTION(functional_call(layers, layers.parameters(), wide), esp::ShapeError,
                        says({"Dense", here()}));
  BOOST_CHECK_EXCEPTION(functional_call(layers[0], {}, wide), esp::ShapeError, says({"Dense", here()}));
  BOOST_CHECK_EXCEPTION(esp::recompute(layers, wide), esp::ShapeError, says({"Dense", here()}));
  const Variable twice = given({3}, esp::float64);
  BOOST_CHECK_EXCEPTION(functional_call(net, {{"gain", twice}, {"gain", twice}}, x), esp::Error,
                        says({"'gain'", "twice", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
