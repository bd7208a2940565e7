// Optimizers: update rules against plain loops.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
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

/// One parameter element: the loss is a·p² + b·p, so that g = 2ap + b. `rule(p, g, t)` returns the next p.
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

        // Eager and frozen steps alternate: they use the same parameter and state.
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

BOOST_AUTO_TEST_CASE(states_are_made_in_the_order_of_parameters) {
  // Checkpoints identify leaves by their order, which must not depend on the order of the tree's expressions.
  const esp::Variable first = esp::parameter(esp::ones({2})), second = esp::parameter(esp::ones({2})),
                      third = esp::parameter(esp::ones({2}));
  const optim::Sgd momentum({.lr = 0.1, .momentum = 0.5});
  (esp::sum(second * third) + esp::sum(first)).update(momentum);
  uint64_t before = 0;
  for (const esp::Variable& p : {first, second, third}) {
    const uint64_t id = momentum.state_of(p).at(0).second.node()->id;
    BOOST_TEST(id > before);
    before = id;
  }
}

BOOST_AUTO_TEST_CASE(the_learning_rate_can_be_set) {
  const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64));
  optim::Sgd sgd(0.5);
  BOOST_TEST(sgd.learning_rate() == 0.5);
  const esp::Variable loss = p * 1.0;
  loss.update(sgd);
  BOOST_TEST(p.item() == 0.5);
  sgd.set_learning_rate(0.125);
  loss.update(sgd);  // builds updates in the existing tree
  BOOST_TEST(p.item() == 0.375);
  BOOST_CHECK_EXCEPTION(sgd.set_learning_rate(-1), esp::Error, says({"Sgd", "lr", "-1"}));
  for (const double bad : {double(NAN), double(INFINITY), -1e-300})
    BOOST_CHECK_EXCEPTION(sgd.set_learning_rate(bad), esp::Error, says({"Sgd", "lr", here()}));
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

// Their states are freed one after the other, and may have had the same address.
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
  struct Setting {
    const char* name;
    std::function<optim::Optimizer(double)> make;
    std::vector<double> bad, good;
  };
  const std::vector<double> below{-1, -1e-9, NAN, INFINITY}, shares{-0.1, 1, 1.5, NAN},
      above{0, -1, NAN, INFINITY};
  const Setting settings[] = {
      {"Sgd: lr", [](double v) { return optim::Sgd(v); }, below, {0, 2}},
      {"Sgd: momentum", [](double v) { return optim::Sgd({.momentum = v}); }, below, {0, 0.9}},
      {"Sgd with nesterov: momentum",
       [](double v) { return optim::Sgd({.momentum = v, .nesterov = true}); },
       {0},
       {0.1}},
      {"Sgd: weight_decay", [](double v) { return optim::Sgd({.weight_decay = v}); }, below, {0, 1}},
      {"Sgd: clip_norm", [](double v) { return optim::Sgd({.clip_norm = v}); }, below, {0, 1}},
      {"Sgd: clip_value", [](double v) { return optim::Sgd({.clip_value = v}); }, below, {0, 1}},
      {"Adam: lr", [](double v) { return optim::Adam(v); }, below, {0}},
      {"Adam: beta1", [](double v) { return optim::Adam({.beta1 = v}); }, shares, {0, 0.999}},
      {"Adam: beta2", [](double v) { return optim::Adam({.beta2 = v}); }, shares, {0, 0.999}},
      {"Adam: epsilon", [](double v) { return optim::Adam({.epsilon = v}); }, above, {1e-12}},
      {"Adam: weight_decay", [](double v) { return optim::Adam({.weight_decay = v}); }, below, {0}},
      {"AdamW: lr", [](double v) { return optim::AdamW(v); }, below, {0}},
      {"AdamW: beta1", [](double v) { return optim::AdamW({.beta1 = v}); }, shares, {0}},
      {"AdamW: beta2", [](double v) { return optim::AdamW({.beta2 = v}); }, shares, {0}},
      {"AdamW: epsilon", [](double v) { return optim::AdamW({.epsilon = v}); }, above, {1e-12}},
      {"AdamW: weight_decay", [](double v) { return optim::AdamW({.weight_decay = v}); }, below, {0}},
      {"RmsProp: lr", [](double v) { return optim::RmsProp(v); }, below, {0}},
      {"RmsProp: alpha", [](double v) { return optim::RmsProp({.alpha = v}); }, shares, {0, 0.9}},
      {"RmsProp: epsilon", [](double v) { return optim::RmsProp({.epsilon = v}); }, above, {1e-12}},
      {"RmsProp: momentum", [](double v) { return optim::RmsProp({.momentum = v}); }, below, {0}},
      {"RmsProp: weight_decay", [](double v) { return optim::RmsProp({.weight_decay = v}); }, below, {0}},
      {"Adagrad: lr", [](double v) { return optim::Adagrad({.lr = v}); }, below, {0}},
      {"Adagrad: epsilon", [](double v) { return optim::Adagrad({.epsilon = v}); }, above, {1e-12}},
      {"Adagrad: weight_decay", [](double v) { return optim::Adagrad({.weight_decay = v}); }, below, {0}},
  };
  for (const Setting& s : settings) BOOST_TEST_CONTEXT(s.name) {
      for (const double value : s.bad)
        BOOST_CHECK_EXCEPTION(s.make(value), esp::Error, says({s.name, "cannot be", "optim_test.cpp"}));
      for (const double value : s.good) BOOST_CHECK_NO_THROW(s.make(value));
    }
  BOOST_CHECK_EXCEPTION(optim::Adam({.beta1 = 1}), esp::Error, says({"Adam", "beta1", "1", here()}));
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
  esp::Variable loss = q * q;  // creates q's momentum
  loss.update(sgd);
  const double q_before = q.item(), momentum = sgd.state_of(q).at(0).second.item();
  loss = q * q + op({p}) * q;
  BOOST_CHECK_THROW(loss.update(sgd), std::runtime_error);
  BOOST_TEST(p.item() == 1);
  BOOST_TEST(q.item() == q_before);
  BOOST_TEST(sgd.state_of(q).at(0).second.item() == momentum);
  fail = false;
  loss.update(sgd);  // continues after the failure
  BOOST_TEST(p.item() == 1 - 0.1 * q_before, boost::test_tools::tolerance(1e-15));
}

/// p ← p − scale · g, by an op that can fail.
struct FragileRule : optim::UpdateRule {
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

BOOST_AUTO_TEST_CASE(settings_are_set_one_by_one) {
  struct TwoFactors : optim::UpdateRule {
    std::string_view name() const override { return "TwoFactors"; }
    void update(optim::ParameterUpdate& step) const override {
      step.assign(step.parameter(),
                  step.parameter() - step.setting("a") * step.setting("b") * step.gradient());
    }
  };
  optim::Optimizer two(std::make_shared<TwoFactors>(), {{"a", 0.5}, {"b", 2}});
  const esp::Variable p = esp::parameter(esp::tensor(0.0, esp::float64));
  const esp::Variable loss = p * 1.0;
  loss.update(two);
  BOOST_TEST(p.item() == -1);
  two.set("a", 4);
  BOOST_TEST(two.setting("b") == 2);
  loss.update(two);
  BOOST_TEST(p.item() == -9);
  two.set("b", 0.25);
  loss.update(two);
  BOOST_TEST(p.item() == -10);
  BOOST_CHECK_EXCEPTION(two.set("c", 1), esp::Error, says({"TwoFactors", "'c'", here()}));
  const std::vector<std::pair<std::string, double>> expected{{"a", 4}, {"b", 0.25}};
  BOOST_TEST((two.settings() == expected));
}

BOOST_AUTO_TEST_CASE(only_leaves_are_assigned) {
  struct Wrong : optim::UpdateRule {
    explicit Wrong(int what) : what(what) {}
    std::string_view name() const override { return "Wrong"; }
    void update(optim::ParameterUpdate& step) const override {
      const esp::Variable p = step.parameter();
      if (what == 0) step.assign(p * 2.0, p);
      if (what == 1) step.assign({}, p);
      if (what == 2) step.assign(p, {});
      if (what == 3) step.assign(p, esp::sum(p));
    }
    int what;
  };
  const esp::Variable p = esp::parameter(esp::ones({2}));
  for (const int what : {0, 1, 2})
    BOOST_CHECK_EXCEPTION(esp::sum(p).update(optim::Optimizer(std::make_shared<Wrong>(what), {})), esp::Error,
                          says({"Wrong", "assign() takes a leaf"}));
  BOOST_CHECK_EXCEPTION(esp::sum(p).update(optim::Optimizer(std::make_shared<Wrong>(3), {})), esp::ShapeError,
                        says({"assign", "[2]", "[]"}));
}

BOOST_AUTO_TEST_CASE(a_rule_of_ones_own) {
  const optim::Optimizer mine(std::make_shared<FragileRule>(), {{"scale", 0.5}});
  const esp::Variable p = esp::parameter(esp::tensor(4.0, esp::float64)),
                      q = esp::parameter(esp::tensor(1.0, esp::float64));
  const auto loss = [&](double weight) { return p * 2 + q * q * (weight / 2); };
  loss(1).update(mine);
  BOOST_TEST(p.item() == 3);
  BOOST_TEST(q.item() == 0.5);
  BOOST_TEST(mine.state_of(p).at(0).second.item() == 6);
  BOOST_CHECK_THROW(mine.learning_rate(), esp::Error);  // it has no learning rate

  BOOST_CHECK_THROW(loss(1000).update(mine), std::runtime_error);  // in the update of the second parameter
  BOOST_TEST(p.item() == 3);
  BOOST_TEST(mine.state_of(p).at(0).second.item() == 6);

  const esp::Executor executor = loss(1000).get_executor({.mode = esp::Mode::training, .optimizer = mine});
  BOOST_CHECK_THROW(executor.execute({.progress = false}), std::runtime_error);
  BOOST_TEST(p.item() == 3);
  BOOST_TEST(q.item() == 0.5);
  BOOST_TEST(mine.state_of(p).at(0).second.item() == 6);
}

BOOST_AUTO_TEST_SUITE_END()
