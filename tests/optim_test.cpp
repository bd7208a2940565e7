// Optimizers: update rules against plain loops.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/rmsprop.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

constexpr int steps = 6;

/// One parameter element: the loss is a·p² + b·p, so that g = 2ap + b. `rule(p, g, t)` gives the next p.
using Rule = std::function<double(double p, double g, int t)>;
using MakeRule = std::function<Rule()>;  // with a state of its own

struct Case {
  const char* name;
  std::function<optim::Optimizer()> make;
  MakeRule reference;
};

const double a[] = {0.5, 1.0, 2.0, 0.1}, b[] = {1.0, -3.0, 0.0, 0.25}, start[] = {1.0, -2.0, 0.5, 3.0};

esp::Tensor list(const double* values) { return esp::tensor_from(std::span<const double>(values, 4), {4}); }

std::vector<double> by_loops(const MakeRule& make) {
  std::vector<double> result;
  for (int i = 0; i < 4; ++i) {
    const Rule rule = make();
    double p = start[i];
    for (int t = 1; t <= steps; ++t) p = rule(p, 2 * a[i] * p + b[i], t);
    result.push_back(p);
  }
  return result;
}

esp::Variable loss_of(const esp::Variable& p) {
  return esp::sum(list(a).to(p.dtype()) * esp::square(p) + list(b).to(p.dtype()) * p);
}

MakeRule sgd(double lr, double momentum, bool nesterov, double decay) {
  return [=] {
    return [=, v = 0.0](double p, double g, int) mutable {
      g += decay * p;
      v = momentum * v + g;
      return p - lr * (momentum == 0 ? g : nesterov ? g + momentum * v : v);
    };
  };
}
MakeRule adam(double lr, double beta1, double beta2, double epsilon, double decay) {
  return [=] {
    return [=, m = 0.0, v = 0.0](double p, double g, int t) mutable {
      g += decay * p;
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      const double m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
      return p - lr * m_hat / (std::sqrt(v_hat) + epsilon);
    };
  };
}
MakeRule adamw(double lr, double beta1, double beta2, double epsilon, double decay) {
  return [=] {
    return [=, step = adam(lr, beta1, beta2, epsilon, 0)()](double p, double g, int t) {
      return step(p - lr * decay * p, g, t);
    };
  };
}
MakeRule rmsprop(double lr, double alpha, double epsilon, double momentum, double decay) {
  return [=] {
    return [=, v = 0.0, b = 0.0](double p, double g, int) mutable {
      g += decay * p;
      v = alpha * v + (1 - alpha) * g * g;
      b = momentum * b + g / (std::sqrt(v) + epsilon);
      return p - lr * b;
    };
  };
}
MakeRule adagrad(double lr, double epsilon, double decay) {
  return [=] {
    return [=, s = 0.0](double p, double g, int) mutable {
      g += decay * p;
      s += g * g;
      return p - lr * g / (std::sqrt(s) + epsilon);
    };
  };
}

const Case cases[] = {
    {"Sgd", [] { return optim::Sgd(0.1); }, sgd(0.1, 0, false, 0)},
    {"Sgd", [] { return optim::Sgd({.lr = 0.05, .weight_decay = 0.3}); }, sgd(0.05, 0, false, 0.3)},
    {"Sgd", [] { return optim::Sgd({.lr = 0.05, .momentum = 0.9}); }, sgd(0.05, 0.9, false, 0)},
    {"Sgd", [] { return optim::Sgd({.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}); },
     sgd(0.05, 0.9, true, 0.1)},
    {"Adam", [] { return optim::Adam(0.1); }, adam(0.1, 0.9, 0.999, 1e-8, 0)},
    {"Adam",
     [] {
       return optim::Adam({.lr = 0.2, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-3, .weight_decay = 0.2});
     },
     adam(0.2, 0.5, 0.75, 1e-3, 0.2)},
    {"Adam", [] { return optim::Adam({.lr = 0.1, .beta1 = 0, .beta2 = 0.5}); }, adam(0.1, 0, 0.5, 1e-8, 0)},
    {"AdamW", [] { return optim::AdamW(0.1); }, adamw(0.1, 0.9, 0.999, 1e-8, 0.01)},
    {"AdamW",
     [] {
       return optim::AdamW({.lr = 0.2, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-3, .weight_decay = 0.5});
     },
     adamw(0.2, 0.5, 0.75, 1e-3, 0.5)},
    {"AdamW", [] { return optim::AdamW({.lr = 0.1, .weight_decay = 0}); }, adam(0.1, 0.9, 0.999, 1e-8, 0)},
    {"RmsProp", [] { return optim::RmsProp(0.05); }, rmsprop(0.05, 0.99, 1e-8, 0, 0)},
    {"RmsProp",
     [] {
       return optim::RmsProp(
           {.lr = 0.02, .alpha = 0.5, .epsilon = 0.01, .momentum = 0.9, .weight_decay = 0.1});
     },
     rmsprop(0.02, 0.5, 0.01, 0.9, 0.1)},
    {"Adagrad", [] { return optim::Adagrad({.lr = 0.5}); }, adagrad(0.5, 1e-10, 0)},
    {"Adagrad", [] { return optim::Adagrad({.lr = 0.5, .epsilon = 0.1, .weight_decay = 0.2}); },
     adagrad(0.5, 0.1, 0.2)},
};

double of_first(const esp::Variable& p) { return Array(p.value()).values[0]; }

}  // namespace

BOOST_AUTO_TEST_SUITE(optimizers)

BOOST_AUTO_TEST_CASE(rules_agree_with_plain_loops) {
  for (const Case& c : cases)
    for (esp::DType dtype : {esp::float64, esp::float32})
      BOOST_TEST_CONTEXT(c.name << " number " << &c - cases << " in " << esp::name(dtype)) {
        const double tolerance = dtype == esp::float64 ? 1e-13 : 1e-5;
        const esp::Tensor wanted = esp::tensor_from(by_loops(c.reference), {4});

        const esp::Variable p = esp::parameter(list(start).to(dtype));
        const optim::Optimizer optimizer = c.make();
        BOOST_TEST(optimizer.name() == c.name);
        for (int t = 0; t < steps; ++t) loss_of(p).update(optimizer);
        BOOST_TEST(difference(wanted, p.value()) < tolerance);

        const esp::Variable q = esp::parameter(list(start).to(dtype));
        const esp::Executor executor =
            loss_of(q).get_executor({.mode = esp::Mode::training, .optimizer = c.make()});
        executor.execute({.epochs = steps, .progress = false});
        BOOST_TEST(difference(wanted, q.value()) < tolerance);

        // Both ways by turns: parameter and state are the same things.
        const esp::Variable r = esp::parameter(list(start).to(dtype));
        const optim::Optimizer shared = c.make();
        const esp::Executor other =
            loss_of(r).get_executor({.mode = esp::Mode::training, .optimizer = shared});
        for (int t = 0; t < steps; ++t) {
          if (t % 3 == 1)
            loss_of(r).update(shared);
          else
            other.execute({.epochs = 1, .progress = false});
        }
        BOOST_TEST(difference(wanted, r.value()) < tolerance);
      }
}

BOOST_AUTO_TEST_CASE(each_parameter_has_a_state_of_its_own) {
  const esp::Variable p = esp::parameter(esp::ones({2})), q = esp::parameter(esp::ones({3}, esp::float64));
  const optim::Adam adam(0.1);
  BOOST_TEST(adam.state_of(p).empty());
  esp::sum(p * 2).update(adam);
  BOOST_TEST(adam.state_of(p).size() == 3u);
  BOOST_TEST(adam.state_of(q).empty());
  esp::sum(p * 2).update(adam);
  esp::sum(q * 2).update(adam);
  for (const auto& [name, leaf] : adam.state_of(p)) {
    if (name == "step") {
      BOOST_TEST(leaf.item() == 2);
    } else {
      BOOST_TEST((name == "m" || name == "v"));
      BOOST_TEST(leaf.shape() == esp::Shape({2}));
      BOOST_TEST(of_first(leaf) > 0);
    }
  }
  for (const auto& [name, leaf] : adam.state_of(q)) BOOST_TEST(leaf.dtype() == esp::float64);
  const optim::Sgd momentum({.lr = 0.1, .momentum = 0.5});
  esp::sum(p * 2).update(momentum);
  BOOST_TEST(momentum.state_of(p).at(0).first == "momentum");
  BOOST_TEST(of_first(momentum.state_of(p).at(0).second) == 2);
  const optim::Optimizer copy = momentum;  // a handle
  BOOST_TEST(of_first(copy.state_of(p).at(0).second) == 2);
  BOOST_TEST(optim::Sgd({.lr = 0.1, .momentum = 0.5}).state_of(p).empty());
}

BOOST_AUTO_TEST_CASE(the_learning_rate_can_be_set) {
  const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64));
  optim::Sgd sgd(0.5);
  BOOST_TEST(sgd.learning_rate() == 0.5);
  const esp::Variable loss = p * 1.0;
  loss.update(sgd);
  BOOST_TEST(p.item() == 0.5);
  sgd.set_learning_rate(0.125);
  loss.update(sgd);  // in the tree that is there
  BOOST_TEST(p.item() == 0.375);
  BOOST_CHECK_EXCEPTION(sgd.set_learning_rate(-1), esp::Error, says({"Sgd", "lr", "-1"}));
  BOOST_CHECK_THROW(sgd.set_learning_rate(NAN), esp::Error);
  BOOST_CHECK_EXCEPTION(sgd.setting("speed"), esp::Error, says({"Sgd", "speed"}));
  BOOST_TEST(sgd.learning_rate() == 0.125);

  const esp::Variable q = esp::parameter(esp::tensor(1.0, esp::float64));
  const esp::Executor executor = (q * 1.0).get_executor({.mode = esp::Mode::training, .optimizer = sgd});
  executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(q.item() == 0.875);
  sgd.set_learning_rate(0.25);
  executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(q.item() == 0.375);
  sgd.set_learning_rate(0);
  executor.step();
  BOOST_TEST(q.item() == 0.375);
}

BOOST_AUTO_TEST_CASE(the_learning_rate_can_be_set_from_a_callback) {
  const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64));
  optim::Sgd sgd(0.5);
  const esp::Executor executor = (p * 1.0).get_executor({.mode = esp::Mode::training, .optimizer = sgd});
  std::vector<double> seen;
  executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) {
    seen.push_back(p.item());
    sgd.set_learning_rate(sgd.learning_rate() / 2);
  });
  executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST(seen == (std::vector<double>{0.5, 0.25, 0.125}));
}

// Their states are freed one after the other, and may have lain at the same address.
BOOST_AUTO_TEST_CASE(optimizers_that_are_gone_are_not_taken_for_others) {
  const esp::Variable p = esp::parameter(esp::tensor(0.0, esp::float64));
  const esp::Variable loss = p * 1.0;
  double expected = 0;
  for (double lr : {0.5, 0.25, 2.0}) {
    loss.update(optim::Sgd(lr));
    expected -= lr;
    BOOST_TEST(p.item() == expected);
  }
}

BOOST_AUTO_TEST_CASE(settings_that_make_no_sense) {
  BOOST_CHECK_EXCEPTION(optim::Sgd(-1), esp::Error, says({"Sgd", "lr", "-1", here()}));
  BOOST_CHECK_THROW(optim::Sgd{NAN}, esp::Error);
  BOOST_CHECK_THROW(optim::Sgd{INFINITY}, esp::Error);
  BOOST_CHECK_EXCEPTION(optim::Sgd({.momentum = -0.5}), esp::Error, says({"momentum", "-0.5", here()}));
  BOOST_CHECK_EXCEPTION(optim::Sgd({.nesterov = true}), esp::Error, says({"nesterov", here()}));
  BOOST_CHECK_EXCEPTION(optim::Sgd({.weight_decay = -1}), esp::Error, says({"weight_decay", here()}));
  BOOST_CHECK_EXCEPTION(optim::Adam({.beta1 = 1}), esp::Error, says({"Adam", "beta1", "1", here()}));
  BOOST_CHECK_EXCEPTION(optim::Adam({.beta2 = -0.1}), esp::Error, says({"Adam", "beta2", here()}));
  BOOST_CHECK_EXCEPTION(optim::Adam({.epsilon = 0}), esp::Error, says({"Adam", "epsilon", here()}));
  BOOST_CHECK_EXCEPTION(optim::AdamW({.weight_decay = NAN}), esp::Error,
                        says({"AdamW", "weight_decay", here()}));
  BOOST_CHECK_EXCEPTION(optim::RmsProp({.alpha = 1}), esp::Error, says({"RmsProp", "alpha", here()}));
  BOOST_CHECK_EXCEPTION(optim::Adagrad({.lr = -3}), esp::Error, says({"Adagrad", "lr", here()}));
}

BOOST_AUTO_TEST_CASE(updates_that_fail_change_nothing) {
  bool fail = true;
  const auto op = esp::custom_op({.name = "moody",
                                  .forward = [](const std::vector<esp::Tensor>& in) { return in[0].clone(); },
                                  .gradient =
                                      [&](const esp::CustomGradient& g) {
                                        if (fail) throw std::runtime_error("not today");
                                        return Variables{g.output_gradient};
                                      }});
  const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64)),
                      q = esp::parameter(esp::tensor(2.0, esp::float64));
  const optim::Sgd sgd({.lr = 0.1, .momentum = 0.9});
  esp::Variable loss = q * q;  // gives q's momentum a value
  loss.update(sgd);
  const double q_before = q.item(), momentum = sgd.state_of(q).at(0).second.item();
  loss = q * q + op({p}) * q;
  BOOST_CHECK_THROW(loss.update(sgd), std::runtime_error);
  BOOST_TEST(p.item() == 1);
  BOOST_TEST(q.item() == q_before);
  BOOST_TEST(sgd.state_of(q).at(0).second.item() == momentum);
  fail = false;
  loss.update(sgd);  // as if nothing had been
  BOOST_TEST(p.item() == 1 - 0.1 * q_before, boost::test_tools::tolerance(1e-15));
}

/// p ← p − scale · g, through an op which can fail.
struct FragileRule : optim::Rule {
  std::string_view name() const override { return "Fragile"; }
  void update(optim::ParameterUpdate& step) const override {
    const esp::Variable seen = step.scalar_state("seen", 5);
    step.assign(seen, seen + 1.0);
    step.assign(
        step.parameter(),
        step.parameter() -
            step.setting("scale") * esp::custom_op({.name = "fragile", .forward = check})({step.gradient()}));
  }
  static esp::Tensor check(const std::vector<esp::Tensor>& in) {
    if (in[0].item() > 100) throw std::runtime_error("too much");
    return in[0].clone();
  }
};

BOOST_AUTO_TEST_CASE(a_rule_of_ones_own) {
  const optim::Optimizer mine(std::make_shared<FragileRule>(), {{"scale", 0.5}});
  const esp::Variable p = esp::parameter(esp::tensor(4.0, esp::float64)),
                      q = esp::parameter(esp::tensor(1.0, esp::float64));
  const auto loss = [&](double weight) { return p * 2 + q * q * (weight / 2); };
  loss(1).update(mine);
  BOOST_TEST(p.item() == 3);
  BOOST_TEST(q.item() == 0.5);
  BOOST_TEST(mine.state_of(p).at(0).second.item() == 6);
  BOOST_CHECK_THROW(mine.learning_rate(), esp::Error);  // it has none

  BOOST_CHECK_THROW(loss(1000).update(mine), std::runtime_error);  // while the second parameter's is computed
  BOOST_TEST(p.item() == 3);
  BOOST_TEST(mine.state_of(p).at(0).second.item() == 6);

  const esp::Executor executor = loss(1000).get_executor({.mode = esp::Mode::training, .optimizer = mine});
  BOOST_CHECK_THROW(executor.execute({.progress = false}), std::runtime_error);
  BOOST_TEST(p.item() == 3);
  BOOST_TEST(q.item() == 0.5);
  BOOST_TEST(mine.state_of(p).at(0).second.item() == 6);
}

BOOST_AUTO_TEST_SUITE_END()
